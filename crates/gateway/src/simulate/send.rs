//! Sending: some connections, each one request after the other, with the provider's patience.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hookfast_webhook::Request;
use http::header::{HOST, RETRY_AFTER};
use http::{Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until, timeout};

use super::SimulateArguments;

/// Longer than any provider waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first pause before sending again; each further one is twice as long. Providers wait minutes and hours: that many
/// tries, but not that long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most of an answer that is looked at.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// What became of one request.
pub(super) struct Outcome {
    /// The last answer; none if there was no answer at all.
    pub(super) status: Option<StatusCode>,
    pub(super) body: Bytes,
    pub(super) tries: u32,
    /// How long the last answer took.
    pub(super) latency: Duration,
}

struct Plan {
    gateway: Uri,
    requests: Arc<Vec<Request>>,
    next: AtomicUsize,
    start: Instant,
    interval: Option<Duration>,
    retries: u32,
    progress: ProgressBar,
}

pub(super) async fn all(
    gateway: &Uri,
    requests: Arc<Vec<Request>>,
    arguments: &SimulateArguments,
    retries: u32,
    progress: &ProgressBar,
) -> Result<Vec<Outcome>, String> {
    // One connection first: a gateway that is not there is one clear sentence.
    let first = connect(gateway).await?;
    let plan = Arc::new(Plan {
        gateway: gateway.clone(),
        requests,
        next: AtomicUsize::new(0),
        start: Instant::now(),
        interval: arguments.rate.filter(|rate| *rate > 0.0).map(|rate| Duration::from_secs_f64(1.0 / rate)),
        retries,
        progress: progress.clone(),
    });
    let mut tasks = vec![tokio::spawn(Arc::clone(&plan).run(Some(first)))];
    tasks.extend((1..arguments.connections).map(|_| tokio::spawn(Arc::clone(&plan).run(None))));
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.extend(task.await.map_err(|error| error.to_string())?);
    }
    Ok(outcomes)
}

type Connection = SendRequest<Full<Bytes>>;

impl Plan {
    async fn run(self: Arc<Self>, mut connection: Option<Connection>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(request) = self.requests.get(index) else { return outcomes };
            if let Some(interval) = self.interval {
                sleep_until((self.start + interval.mul_f64(index as f64)).into()).await;
            }
            outcomes.push(self.deliver(request, &mut connection).await);
            self.progress.inc(1);
        }
    }

    /// Sends until it is taken, refused, or the provider would give up.
    async fn deliver(&self, request: &Request, connection: &mut Option<Connection>) -> Outcome {
        let mut pause = FIRST_PAUSE;
        for tries in 1.. {
            let start = Instant::now();
            let answer = timeout(PATIENCE, self.send(request, connection)).await.ok().flatten();
            let latency = start.elapsed();
            let (status, body, wait) = match answer {
                Some((status, body, wait)) => (Some(status), body, wait),
                None => (None, Bytes::new(), None),
            };
            let may_help =
                status.is_none_or(|status| status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS);
            if !may_help || tries > self.retries {
                return Outcome { status, body, tries, latency };
            }
            sleep(wait.unwrap_or(pause).min(LONGEST_PAUSE)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the loop ends with an outcome")
    }

    /// One try, on the connection there is or on a new one.
    async fn send(
        &self,
        request: &Request,
        connection: &mut Option<Connection>,
    ) -> Option<(StatusCode, Bytes, Option<Duration>)> {
        let mut sender = match connection.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => connect(&self.gateway).await.ok()?,
        };
        sender.ready().await.ok()?;
        let response = sender.send_request(as_sent(request)?).await.ok()?;
        let wait = retry_after(&response);
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await.ok()?.to_bytes();
        *connection = Some(sender);
        Some((status, body, wait))
    }
}

async fn connect(gateway: &Uri) -> Result<Connection, String> {
    let address = gateway.authority().map(ToString::to_string).unwrap_or_default();
    let stream = TcpStream::connect(&address).await.map_err(|error| format!("cannot connect to {address}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // Its errors show in the request that meets them.
    tokio::spawn(driver);
    Ok(sender)
}

/// The request with its path, as it goes over the connection.
fn as_sent(request: &Request) -> Option<http::Request<Full<Bytes>>> {
    let url: Uri = request.url.parse().ok()?;
    let mut sent = http::Request::new(Full::new(request.body.clone()));
    *sent.method_mut() = request.method.clone();
    *sent.uri_mut() = Uri::from(url.path_and_query()?.clone());
    *sent.headers_mut() = request.headers.clone();
    sent.headers_mut().insert(HOST, url.authority()?.as_str().parse().ok()?);
    Some(sent)
}

fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

//! The path of a webhook: limit, verify, read, route, record, answer.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{Recorded, Routed};
use hookfast_webhook::{
    Answer, Arrival, Event, EventId, Refusal, Request, RequestId, UNREADABLE, Unreadable, Verified, explain, verify,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};
use tracing::Level;

use crate::admit::check_host;
use crate::answer::{self, HttpResponse, Rejection};
use crate::body::{self, BodyDeadlines};
use crate::health::{Ready, may_see_details};
use crate::http::connection::Activity;
use crate::http::path::{Target, shown, target};
use crate::log_limit::{Due, LogLimit};
use crate::memory::MemoryShare;
use crate::route::route;
use crate::trace::trace_id;
use crate::{Config, Ingest, Source, Table, UnsignedType, address};

/// Verifying and reading a body beyond this size takes long enough to be kept away from other requests.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// How long the log waits for the id of an event that came again.
const FIND_FIRST_WITHIN: Duration = Duration::from_secs(1);

/// Limits the lines about requests that are for no source.
static WITHOUT_SOURCE: LogLimit = LogLimit::new();

/// Who asks.
struct Caller<'a> {
    request_id: RequestId,
    activity: &'a Activity,
    peer: IpAddr,
    /// The peer, or whom a trusted proxy names.
    address: IpAddr,
    trace_id: Option<String>,
}

/// What there is to ask for.
enum Found {
    Source(Arc<Source>),
    Live,
    Ready,
}

/// What a request turned out to be.
enum Received {
    Handshake(Answer),
    Events { events: Vec<Event>, problem: Option<Unreadable>, answer: Answer },
}

impl Ingest {
    /// Answers any request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        peer: IpAddr,
        activity: &Activity,
    ) -> HttpResponse {
        let (head, body) = request.into_parts();
        let address = address::client(peer, &head.headers, &self.config.trusted_proxies);
        let trace_id = trace_id(&head.headers).map(str::to_owned);
        let caller = Caller { request_id: RequestId::new(), activity, peer, address, trace_id };
        let table = self.table();
        let outcome = match self.find(&table, &head) {
            Ok(Found::Source(source)) => self.webhook(&table, &source, &caller, head, body).await,
            Ok(Found::Live) => return plain("live\n"),
            Ok(Found::Ready) => return self.ready(&caller, head.uri.query()).await,
            Err(rejection) => {
                log_misdirected(&rejection, &caller, head.uri.path());
                Err(rejection)
            }
        };
        match outcome {
            Ok(answer) => answer::accepted(answer, caller.request_id),
            Err(rejection) => answer::rejected(&rejection, caller.request_id),
        }
    }

    /// What the request is for.
    fn find(&self, table: &Table, head: &Parts) -> Result<Found, Rejection> {
        check_host(head)?;
        let target = target(head.uri.path()).ok_or(Rejection::NotFound)?;
        let read_only = [Method::GET, Method::HEAD].contains(&head.method);
        match target {
            Target::Webhook(name) => {
                let source = table.sources.get(name).or(self.decoy.as_ref());
                source.map(|source| Found::Source(Arc::clone(source))).ok_or(Rejection::NotFound)
            }
            _ if !read_only => Err(Rejection::MethodNotAllowed(vec![Method::GET, Method::HEAD])),
            Target::Live => Ok(Found::Live),
            Target::Ready => Ok(Found::Ready),
        }
    }

    async fn ready(&self, caller: &Caller<'_>, query: Option<&str>) -> HttpResponse {
        let verdict = self.readiness.check().await;
        if query == Some("verbose") && may_see_details(caller.address) {
            let mut response = Response::new(Full::from(self.readiness.report(verdict).await));
            *response.status_mut() = if verdict.is_ok() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            return response;
        }
        match verdict {
            Ok(Ready::Yes) => plain("ready\n"),
            Ok(Ready::Degraded(why)) => Response::new(Full::from(format!("degraded: {why}\n"))),
            Err(problem) => answer::problem(StatusCode::SERVICE_UNAVAILABLE, problem, caller.request_id),
        }
    }

    async fn webhook(
        &self,
        table: &Table,
        source: &Source,
        caller: &Caller<'_>,
        head: Parts,
        body: Incoming,
    ) -> Result<Answer, Rejection> {
        let start = Instant::now();
        let outcome = self.receive(table, source, caller, head, body).await;
        source.metrics.duration.record(start.elapsed());
        match &outcome {
            Ok(_) => source.metrics.accepted.increment(1),
            Err(rejection) => {
                source.metrics.count_rejection(rejection);
                log_rejection(rejection, source, caller);
            }
        }
        outcome
    }

    /// The stages, one after the other. `Ok` is only reached when the events are durable.
    async fn receive(
        &self,
        table: &Table,
        source: &Source,
        caller: &Caller<'_>,
        head: Parts,
        body: Incoming,
    ) -> Result<Answer, Rejection> {
        self.limits.admit(&head, source, caller.address)?;
        let (request, memory) = self.read_request(source, caller, head, body).await?;
        let deadline = Instant::now() + source.limits.answer_deadline.unwrap_or(self.config.answer_deadline);
        let payload_bytes = request.body.len();
        let received = self.verify_and_read(table, source, caller, request);
        if let Err(Rejection::Refused(..)) = received {
            self.limits.note_refusal(source, self.known_client(caller))?;
        }
        let (events, problem, answer) = match received? {
            Received::Handshake(answer) => {
                source.metrics.handshakes.increment(1);
                return Ok(answer);
            }
            Received::Events { events, problem, answer } => (events, problem, answer),
        };
        self.limits.admit_genuine(source, caller.address)?;
        if let Some(problem) = problem {
            source.metrics.unreadable.increment(1);
            log_unreadable(&problem, source, caller);
        }
        if events.is_empty() {
            return Ok(answer);
        }
        let routed = route(&table.subscriptions, events);
        let described = tracing::enabled!(Level::DEBUG).then(|| describe(&routed));
        let recorded = self.recorder.record(routed, Some(memory), deadline).await?;
        source.metrics.payload.record(payload_bytes as f64);
        count_recorded(source, &recorded);
        if let Some(events) = described {
            self.log_recorded(source, caller, &events, &recorded).await;
        }
        Ok(answer)
    }

    /// Says what is new, and what came again: of that, only the first event can be looked up.
    async fn log_recorded(&self, source: &Source, caller: &Caller<'_>, events: &[Described], recorded: &[Recorded]) {
        let Caller { request_id, address, trace_id, .. } = caller;
        let (again, new): (Vec<_>, Vec<_>) =
            events.iter().zip(recorded).partition(|(_, recorded)| **recorded == Recorded::Duplicate);
        if let Some((event, _)) = new.first() {
            let what = and_more(format!("{} {}", event.id, event.event_type), new.len());
            tracing::debug!(%request_id, source = %source.name, client = %address, trace_id, "recorded: {what}");
        }
        if let Some((event, _)) = again.first() {
            let first = timeout(FIND_FIRST_WITHIN, self.store.first_of(source.name.as_str(), &event.dedupe_key)).await;
            let first = match first {
                Ok(Ok(Some(first))) => first.to_string(),
                _ => format!("an event with the key {}", event.dedupe_key),
            };
            let what = and_more(format!("{first} {}", event.event_type), again.len());
            tracing::debug!(%request_id, source = %source.name, client = %address, trace_id, "came again: {what}");
        }
    }

    async fn read_request(
        &self,
        source: &Source,
        caller: &Caller<'_>,
        head: Parts,
        body: Incoming,
    ) -> Result<(Request, MemoryShare), Rejection> {
        let limit = source.limits.body_limit;
        let share = self.body_memory.share(self.known_client(caller), limit);
        caller.activity.set_at_work(false);
        let read = body::read(body, limit, share, self.body_deadlines()).await;
        caller.activity.set_at_work(true);
        let (body, memory) = read?;
        let path_and_query = head.uri.path_and_query().map_or("/", |text| text.as_str());
        let forwarded = self.config.forwarded_url.then_some(&self.config.trusted_proxies);
        let forwarded = forwarded.and_then(|trusted| address::forwarded_url(caller.peer, &head.headers, trusted));
        let url = format!("{}{path_and_query}", forwarded.as_ref().unwrap_or(&self.public_url));
        Ok((Request { method: head.method, url, headers: head.headers, body }, memory))
    }

    /// Where clients have limits of their own. A trusted proxy that names no client stands for many.
    fn known_client(&self, caller: &Caller<'_>) -> Option<IpAddr> {
        let is_proxy = self.config.trusted_proxies.iter().any(|range| range.contains(caller.address));
        (!is_proxy).then_some(caller.address)
    }

    fn body_deadlines(&self) -> BodyDeadlines {
        let Config { body_timeout, stall_timeout, idle_timeout, .. } = self.config;
        BodyDeadlines { whole: body_timeout, between_pieces: stall_timeout.min(idle_timeout) }
    }

    fn verify_and_read(
        &self,
        table: &Table,
        source: &Source,
        caller: &Caller<'_>,
        request: Request,
    ) -> Result<Received, Rejection> {
        let large = request.body.len() > LARGE_BODY_BYTES;
        let request = Arc::new(request);
        let work = || self.judge(table, source, caller, &request);
        // A panic in a provider must not take other requests of this connection with it, and never ends in a 2xx.
        let guarded = || catch_unwind(AssertUnwindSafe(work));
        let done = if large { tokio::task::block_in_place(guarded) } else { guarded() };
        done.map_err(|_| Rejection::Internal)?
    }

    fn judge(
        &self,
        table: &Table,
        source: &Source,
        caller: &Caller<'_>,
        request: &Arc<Request>,
    ) -> Result<Received, Rejection> {
        let (provider, now) = (source.provider.as_ref(), self.clock.now());
        let verified = verify(provider, Arc::clone(request), &source.secrets, now).map_err(|refusal| {
            let hint = self.explain(table, source, &refusal, request);
            Rejection::Refused(refusal, hint)
        });
        let genuine = match verified? {
            Verified::Handshake(answer) => return Ok(Received::Handshake(answer)),
            Verified::Genuine(genuine) => genuine,
        };
        caller.activity.prove();
        source.metrics.count_proof(genuine.proof());
        let arrival = Arrival {
            request_id: caller.request_id,
            source: source.name.clone(),
            remote_address: caller.address,
            received_at: now,
        };
        let answer = genuine.answer(provider);
        let (events, problem) = genuine.read(provider, arrival);
        refuse_unsigned_type(source, &events)?;
        Ok(Received::Events { events, problem, answer })
    }

    /// What probably went wrong, where that can be found out; at most once a second for each source.
    fn explain(&self, table: &Table, source: &Source, refusal: &Refusal, request: &Request) -> Option<String> {
        source.explanations.check().ok()?;
        let others = table.sources.values().filter(|other| other.name != source.name);
        let others: Vec<_> = others.map(|other| other.endpoint()).collect();
        let known: Vec<_> = self.known_providers.iter().map(AsRef::as_ref).collect();
        explain(refusal, request, &source.endpoint(), &others, &known, self.clock.now())
    }
}

fn refuse_unsigned_type(source: &Source, events: &[Event]) -> Result<(), Rejection> {
    let is_signed = events.iter().all(|event| event.delivery().proof.covers_type());
    match source.limits.unsigned_type {
        UnsignedType::Refuse if !is_signed => Err(Rejection::Refused(Refusal::UnsignedType, None)),
        _ => Ok(()),
    }
}

fn count_recorded(source: &Source, recorded: &[Recorded]) {
    let count = |which: Recorded| recorded.iter().filter(|recorded| **recorded == which).count() as u64;
    source.metrics.new.increment(count(Recorded::New));
    source.metrics.duplicates.increment(count(Recorded::Duplicate));
}

/// What the log says about an event.
struct Described {
    id: EventId,
    dedupe_key: String,
    event_type: String,
}

fn describe(events: &[Routed]) -> Vec<Described> {
    let described = |Routed { event, .. }: &Routed| Described {
        id: event.id(),
        dedupe_key: event.dedupe_key().as_str().to_owned(),
        event_type: event.event_type().as_str().to_owned(),
    };
    events.iter().map(described).collect()
}

/// The first of some events, and how many there are beside it.
fn and_more(first: String, count: usize) -> String {
    if count == 1 { first } else { format!("{first} and {} more", count - 1) }
}

fn log_unreadable(problem: &Unreadable, source: &Source, caller: &Caller<'_>) {
    let Some(Due { left_out }) = source.log_limit.line(UNREADABLE) else { return };
    let (request_id, source) = (caller.request_id, &source.name);
    tracing::warn!(%request_id, %source, %problem, left_out, "genuine but unreadable: kept whole");
}

/// A request that is for no source.
fn log_misdirected(rejection: &Rejection, caller: &Caller<'_>, path: &str) {
    let reason = rejection.reason();
    let Some(Due { left_out }) = WITHOUT_SOURCE.line(reason) else { return };
    let Caller { request_id, address, trace_id, .. } = caller;
    let path = shown(path);
    tracing::debug!(%request_id, client = %address, trace_id, reason, left_out, "rejected: {path}");
}

fn log_rejection(rejection: &Rejection, source: &Source, caller: &Caller<'_>) {
    let reason = match rejection {
        Rejection::Refused(refusal, _) => refusal.reason(),
        other => other.reason(),
    };
    let Some(Due { left_out }) = source.log_limit.line(reason) else { return };
    let source = &source.name;
    let Caller { request_id, address, trace_id, .. } = caller;
    match rejection {
        Rejection::Refused(refusal, probably) => {
            tracing::warn!(%request_id, %source, client = %address, trace_id, reason, left_out, probably, "refused: {refusal}");
        }
        Rejection::AddressNotAllowed | Rejection::TooLarge | Rejection::TooManyEvents | Rejection::Internal => {
            tracing::warn!(%request_id, %source, client = %address, trace_id, reason, left_out, "rejected");
        }
        // Under a flood or an outage there are many of these; the metrics count them.
        _ => tracing::debug!(%request_id, %source, client = %address, trace_id, reason, left_out, "rejected"),
    }
}

fn plain(text: &'static str) -> HttpResponse {
    Response::new(Full::from(text))
}

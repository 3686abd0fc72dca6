//! The path of a webhook: limit, verify, read, route, record, answer.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hookfast_store::Recorded;
use hookfast_webhook::{Answer, Arrival, Event, Refusal, Request, RequestId, SourceName, Unreadable, verify};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::answer::{self, HttpResponse, Rejection};
use crate::body::{self, BodyDeadlines, MemoryShare};
use crate::limit::check_host;
use crate::path::{Target, target};
use crate::route::route;
use crate::trace::trace_id;
use crate::{Ingest, Source, address};

/// Verifying and reading a body beyond this size takes long enough to be kept away from other requests.
const LARGE_BODY_BYTES: usize = 256 * 1024;

impl Ingest {
    /// Answers any request.
    pub(crate) async fn answer(self: Arc<Self>, request: hyper::Request<Incoming>, peer: IpAddr) -> HttpResponse {
        let id = RequestId::new();
        let (head, body) = request.into_parts();
        let target = check_host(&head).and_then(|()| target(head.uri.path()).ok_or(Rejection::NotFound));
        match target {
            Ok(Target::Webhook(name)) => self.webhook(id, &name, head, body, peer).await,
            Ok(health) if !matches!(head.method, Method::GET | Method::HEAD) => {
                tracing::debug!(request_id = %id, ?health, "rejected: method_not_allowed");
                answer::rejected(&Rejection::MethodNotAllowed(&[Method::GET, Method::HEAD]), id)
            }
            Ok(Target::Live) => plain("live\n"),
            Ok(Target::Ready) => match self.readiness.check().await {
                Ok(()) => plain("ready\n"),
                Err(problem) => answer::problem(StatusCode::SERVICE_UNAVAILABLE, problem, id),
            },
            Err(rejection) => {
                tracing::debug!(request_id = %id, client = %peer, "rejected: {}", rejection.reason());
                answer::rejected(&rejection, id)
            }
        }
    }

    async fn webhook(
        &self,
        id: RequestId,
        name: &SourceName,
        head: Parts,
        body: Incoming,
        peer: IpAddr,
    ) -> HttpResponse {
        let start = Instant::now();
        let client = address::client(peer, &head.headers, &self.config.trusted_proxies);
        let trace_id = trace_id(&head.headers).map(str::to_owned);
        let Some(source) = self.sources.get(name).or(self.decoy.as_ref()) else {
            tracing::debug!(request_id = %id, source = %name, %client, trace_id, "rejected: no such source");
            return answer::rejected(&Rejection::NotFound, id);
        };
        let outcome = self.receive(source, id, head, body, client).await;
        source.metrics.duration.record(start.elapsed());
        match outcome {
            Ok(answer) => {
                source.metrics.accepted.increment(1);
                answer::accepted(answer, id)
            }
            Err(rejection) => {
                source.metrics.count_rejection(&rejection);
                log_rejection(&rejection, id, source, client, trace_id.as_deref());
                answer::rejected(&rejection, id)
            }
        }
    }

    /// The stages, one after the other. `Ok` is only reached when the events are durable.
    async fn receive(
        &self,
        source: &Source,
        id: RequestId,
        head: Parts,
        body: Incoming,
        client: IpAddr,
    ) -> Result<Answer, Rejection> {
        self.limits.admit(&head, source, client)?;
        let (request, memory) = self.read_request(source, head, body).await?;
        let deadline = Instant::now() + self.config.answer_deadline;
        let payload_bytes = request.body.len();
        let (events, problem) = self.verify_and_read(source, id, request, client)?;
        if let Some(problem) = problem {
            source.metrics.unreadable.increment(1);
            tracing::warn!(request_id = %id, source = %source.name, %problem, "genuine but unreadable: kept whole");
        }
        let routed = route(&self.subscriptions, events);
        let first = routed.first().map(|routed| (routed.event.id(), routed.event.event_type().as_str().to_owned()));
        let recorded = self.recorder.record(routed, memory, deadline).await?;
        source.metrics.payload.record(payload_bytes as f64);
        count_recorded(source, &recorded);
        if let Some((event_id, event_type)) = first {
            tracing::debug!(
                request_id = %id, source = %source.name, %event_id, event_type, events = recorded.len(),
                outcome = ?recorded.first(), "recorded"
            );
        }
        Ok(source.provider.answer())
    }

    async fn read_request(
        &self,
        source: &Source,
        head: Parts,
        body: Incoming,
    ) -> Result<(Request, MemoryShare), Rejection> {
        let deadlines = BodyDeadlines { whole: self.config.body_timeout, between_pieces: self.config.idle_timeout };
        let (body, memory) = body::read(body, source.limits.body_limit, &self.body_memory, deadlines).await?;
        let path_and_query = head.uri.path_and_query().map_or("/", |text| text.as_str());
        let url = format!("{}{path_and_query}", self.public_url);
        Ok((Request { method: head.method, url, headers: head.headers, body }, memory))
    }

    fn verify_and_read(
        &self,
        source: &Source,
        id: RequestId,
        request: Request,
        client: IpAddr,
    ) -> Result<(Vec<Event>, Option<Unreadable>), Rejection> {
        let large = request.body.len() > LARGE_BODY_BYTES;
        let work = || {
            let provider = source.provider.as_ref();
            let now = self.clock.now();
            let genuine = verify(provider, request, &source.secrets, now)?;
            let arrival =
                Arrival { request_id: id, source: source.name.clone(), remote_address: client, received_at: now };
            Ok(genuine.read(provider, arrival))
        };
        // A panic in a provider must not take other requests of this connection with it, and never ends in a 2xx.
        let guarded = || catch_unwind(AssertUnwindSafe(work));
        let done: Result<Result<_, Refusal>, _> = if large { tokio::task::block_in_place(guarded) } else { guarded() };
        done.map_err(|_| Rejection::Internal)?.map_err(Rejection::Refused)
    }
}

fn count_recorded(source: &Source, recorded: &[Recorded]) {
    let new = recorded.iter().filter(|recorded| **recorded == Recorded::New).count();
    source.metrics.new.increment(new as u64);
    source.metrics.duplicates.increment((recorded.len() - new) as u64);
}

fn log_rejection(rejection: &Rejection, id: RequestId, source: &Source, client: IpAddr, trace_id: Option<&str>) {
    let source = &source.name;
    match rejection {
        Rejection::Refused(refusal) => {
            tracing::warn!(request_id = %id, %source, %client, trace_id, reason = refusal.reason(), "refused: {refusal}");
        }
        Rejection::AddressNotAllowed | Rejection::TooLarge | Rejection::Internal => {
            tracing::warn!(request_id = %id, %source, %client, trace_id, reason = rejection.reason(), "rejected");
        }
        // Under a flood or an outage there are many of these; the metrics count them.
        _ => tracing::debug!(request_id = %id, %source, %client, trace_id, reason = rejection.reason(), "rejected"),
    }
}

fn plain(text: &'static str) -> HttpResponse {
    Response::new(Full::from(text))
}

//! The path of a webhook: [`Visit::receive`] names its steps in their order.
//!
//! Before it, `http::service` reads the head of a request, finds its source, and calls [`Visit::run`]. After it, `http`
//! writes the answer. Each step turns the type of the step before into its own. Only verified data can become the type
//! that `record` takes.
//!
//! ```text
//! Visit ──admit──▶ Admitted ──read_body──▶ Received ──verify──▶ GenuineRequest ──read──▶ Events
//!                                             ├───▶ a handshake, which is answered at once
//!                                             └───▶ Refused, which keeps its request
//! Events ──route──▶ Routed ──record──▶ Recorded ──answer──▶ Answered
//! ```
//!
//! Every step can end in a [`Rejection`]. The files of the steps: `admit`, `body`, `verify`, `read`, `route`, `record`,
//! `answer`. The next station of the spine is `webhook::genuine`, which `verify` and `read` call.

use std::collections::HashMap;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use hookfast_store::Record;
use hookfast_webhook::{Answer, Clock, Provider, RequestId, SourceName, Subscription};
use http::HeaderMap;
use http::request::Parts;
use hyper::body::Body;
use tokio::time::Instant;

use crate::admit::Limits;
use crate::answer::Answered;
use crate::commit::Recorder;
use crate::http::connection::Activity;
use crate::memory::BodyMemory;
use crate::observe::observe;
use crate::rejection::Rejection;
use crate::trace::trace_id;
use crate::verify::Verified;
use crate::{Config, Source, address};

/// Verifying or reading a body above this size would block the other requests of the thread for too long.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// What all requests share on their path.
pub struct Ingest {
    pub(crate) config: Config,
    /// Scheme and host of the URLs that providers call.
    pub(crate) public_url: String,
    pub(crate) table: CurrentTable,
    /// Stands in for unknown sources when `conceal_sources` is set.
    pub(crate) decoy: Option<Arc<Source>>,
    /// Every provider, so that a refusal can say that a request was meant for another provider's source.
    pub(crate) known_providers: Vec<Arc<dyn Provider>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) body_memory: BodyMemory,
    pub(crate) store: Arc<dyn Record>,
    pub(crate) recorder: Recorder,
}

/// The sources and subscriptions. A reload replaces them together.
pub struct Table {
    pub(crate) sources: HashMap<SourceName, Arc<Source>>,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl Table {
    /// The sources and the handlers as configured.
    pub fn new(sources: Vec<Source>, subscriptions: Vec<Subscription>) -> Self {
        let sources = sources.into_iter().map(|source| (source.name.clone(), Arc::new(source)));
        Self { sources: sources.collect(), subscriptions }
    }
}

/// The table in use. A request uses the same table from start to end, even if a reload replaces it meanwhile.
#[derive(Clone)]
pub struct CurrentTable(Arc<RwLock<Arc<Table>>>);

impl CurrentTable {
    pub(crate) fn new(table: Table) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(table))))
    }

    pub(crate) fn get(&self) -> Arc<Table> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table for later requests.
    pub fn replace(&self, table: Table) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

impl Ingest {
    pub(crate) fn caller<'a>(&self, headers: &HeaderMap, peer: IpAddr, activity: &'a Activity) -> Caller<'a> {
        let address = address::client(peer, headers, &self.config.trusted_proxies);
        let trace_id = trace_id(headers).map(str::to_owned);
        Caller { request_id: RequestId::new(), activity, peer, address, trace_id }
    }
}

/// The sender of a request.
pub(crate) struct Caller<'a> {
    pub(crate) request_id: RequestId,
    /// The state of the connection that the request came on.
    pub(crate) activity: &'a Activity,
    pub(crate) peer: IpAddr,
    /// The client: the peer, or the address that a trusted proxy names.
    pub(crate) address: IpAddr,
    pub(crate) trace_id: Option<String>,
}

/// One request to one source: its sender, and the table and state that apply to it. Every step passes it on.
#[derive(Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub(crate) ingest: &'a Ingest,
    pub(crate) table: &'a Table,
    pub(crate) source: &'a Source,
    pub(crate) caller: &'a Caller<'a>,
}

impl<'a> Visit<'a> {
    /// Takes the request along its path. This is the only place that writes metrics and log lines about it.
    pub(crate) async fn run<B: Body<Data = Bytes> + Unpin>(self, head: Parts, body: B) -> Result<Answer, Rejection> {
        let start = Instant::now();
        let outcome = self.receive(head, body).await;
        observe(self, start, &outcome);
        outcome.map(|answered| answered.answer)
    }

    /// The steps. `Ok` with events means that the events are durable.
    async fn receive<B: Body<Data = Bytes> + Unpin>(self, head: Parts, body: B) -> Result<Answered, Rejection> {
        let admitted = self.admit(head)?;
        let received = admitted.read_body(body).await?;
        let genuine = match received.verify()? {
            Verified::Genuine(genuine) => genuine,
            Verified::Handshake(answer) => return Ok(Answered::handshake(answer)),
        };
        let events = genuine.read()?;
        let recorded = events.route().record().await?;
        recorded.answer()
    }

    /// The client's address, if per-client limits apply to it. `None` for a trusted proxy that names no client: many
    /// clients share its address.
    pub(crate) fn known_client(self) -> Option<IpAddr> {
        let (address, trusted) = (self.caller.address, &self.ingest.config.trusted_proxies);
        let is_proxy = trusted.iter().any(|range| range.contains(address));
        (!is_proxy).then_some(address)
    }
}

/// Runs a provider's code on a body of `body_bytes`. A panic in it becomes a rejection, so that it ends no other
/// request of the connection and never leads to a 2xx.
pub(crate) fn guarded<T>(body_bytes: usize, work: impl FnOnce() -> T) -> Result<T, Rejection> {
    let work = || catch_unwind(AssertUnwindSafe(work));
    let done = if body_bytes > LARGE_BODY_BYTES { tokio::task::block_in_place(work) } else { work() };
    done.map_err(|_| Rejection::Internal)
}

#[cfg(test)]
mod tests;

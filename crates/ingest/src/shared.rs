//! What all requests share: the configuration, the table of sources and subscriptions, and the way to the store.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use hookfast_store::Record;
use hookfast_webhook::{Clock, Provider, RequestId, SourceName, Subscription};
use http::HeaderMap;

use crate::admit::Limits;
use crate::commit::Recorder;
use crate::http::connection::Activity;
use crate::memory::BodyMemory;
use crate::trace::trace_id;
use crate::{Config, Source, address};

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

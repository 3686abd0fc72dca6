//! The sixth step: [`RoutedRequest::record`] makes the events of a request and their jobs durable.
//!
//! Before it, `route` has given the events their jobs. After it, `answer` tells the sender. Many requests share one
//! commit: `commit` calls `Record::record` of the store, or `Spooling::record` if there is a spool, and then
//! `Dispatcher::tell`, which sends hints to the workers.

use std::sync::Arc;

use hookfast_store::{Recorded, Routed};
use hookfast_webhook::{EventId, Request};
use tracing::Level;

use crate::rejection::Rejection;
use crate::route::RoutedRequest;
use crate::stages::Visit;

/// A request whose events are durable.
pub(crate) struct RecordedRequest<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) request: Arc<Request>,
    /// For each event, whether it was new.
    pub(crate) recorded: Vec<Recorded>,
    pub(crate) described: Option<Vec<Described>>,
}

/// The parts of an event that the log shows.
pub(crate) struct Described {
    pub(crate) id: EventId,
    pub(crate) dedupe_key: String,
    pub(crate) event_type: String,
}

impl<'a> RoutedRequest<'a> {
    /// Puts the events into the next commit, and waits until it ends or the deadline passes.
    pub(crate) async fn record(self) -> Result<RecordedRequest<'a>, Rejection> {
        let Self { visit, events, request, memory, deadline } = self;
        if events.is_empty() {
            return Ok(RecordedRequest { visit, request, recorded: Vec::new(), described: None });
        }
        let described = tracing::enabled!(Level::DEBUG).then(|| describe(&events));
        let recorded = visit.ingest.recorder.record(events, Some(memory), deadline).await?;
        Ok(RecordedRequest { visit, request, recorded, described })
    }
}

fn describe(events: &[Routed]) -> Vec<Described> {
    let described = |Routed { event, .. }: &Routed| Described {
        id: event.id(),
        dedupe_key: event.dedupe_key().as_str().to_owned(),
        event_type: event.event_type().as_str().to_owned(),
    };
    events.iter().map(described).collect()
}

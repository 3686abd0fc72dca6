//! The fourth step: [`GenuineRequest::read`] finds the events in a request.
//!
//! Before it, `verify` has proved the request. After it, `route` adds the handlers that want each event. A request that
//! the provider cannot read becomes one event of type `unreadable`, with its whole body. A request is refused if its type
//! is not signed and the source accepts only signed types, and rejected if it exceeds the rate of its source.

use std::sync::Arc;

use hookfast_webhook::{Arrival, Event, Refusal, Request};
use tokio::time::Instant;

use crate::UnsignedType;
use crate::memory::MemoryShare;
use crate::observe::log_unreadable;
use crate::rejection::Rejection;
use crate::source::Source;
use crate::stages::{Visit, guarded};
use crate::verify::GenuineRequest;

/// The events of a genuine request that is within its source's rate.
pub(crate) struct Events<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) events: Vec<Event>,
    pub(crate) request: Arc<Request>,
    pub(crate) memory: MemoryShare,
    pub(crate) deadline: Instant,
}

impl<'a> GenuineRequest<'a> {
    /// Counts the request against the source's rate, and finds its events.
    pub(crate) fn read(self) -> Result<Events<'a>, Rejection> {
        let Self { visit, genuine, received_at, memory, deadline } = self;
        let (source, caller) = (visit.source, visit.caller);
        let arrival = Arrival {
            request_id: caller.request_id,
            source: source.name.clone(),
            remote_address: caller.address,
            received_at,
            trace_id: caller.trace_id.clone(),
        };
        let request = Arc::clone(genuine.request());
        let (events, problem) = guarded(request.body.len(), || genuine.read(source.provider.as_ref(), arrival))?;
        if !takes_types_of(source, &events) {
            return Err(visit.refuse(Refusal::UnsignedType, request, memory));
        }
        visit.ingest.limits.admit_genuine(source, caller.address)?;
        if let Some(problem) = problem {
            source.metrics.unreadable.increment(1);
            log_unreadable(&problem, visit);
        }
        Ok(Events { visit, events, request, memory, deadline })
    }
}

fn takes_types_of(source: &Source, events: &[Event]) -> bool {
    let is_signed = |event: &Event| event.delivery().proof.covers_type();
    source.limits.unsigned_type == UnsignedType::Accept || events.iter().all(is_signed)
}

//! The fifth step: [`Events::route`] gives each event a job for every handler that wants it.
//!
//! Before it, `read` has found the events. After it, `record` makes events and jobs durable together.

use std::sync::Arc;

use hookfast_store::{NewJob, Routed};
use hookfast_webhook::{Event, KeyFacts, Ordering, Request, Subscription};
use tokio::time::Instant;

use crate::memory::MemoryShare;
use crate::read::Events;
use crate::stages::Visit;

/// The events of a request with their jobs.
pub(crate) struct RoutedRequest<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) events: Vec<Routed>,
    pub(crate) request: Arc<Request>,
    pub(crate) memory: MemoryShare,
    pub(crate) deadline: Instant,
}

impl<'a> Events<'a> {
    /// Looks up each event in the rules of its source and in the table of subscriptions.
    pub(crate) fn route(self) -> RoutedRequest<'a> {
        let Self { visit, events, request, memory, deadline } = self;
        let rules = &visit.source.limits.priority;
        let events = events.into_iter().map(|event| event.with_priority_of(rules));
        let events = route(&visit.table.subscriptions, events);
        RoutedRequest { visit, events, request, memory, deadline }
    }
}

fn route(subscriptions: &[Subscription], events: impl Iterator<Item = Event>) -> Vec<Routed> {
    events.map(|event| Routed { jobs: jobs(subscriptions, &event), event }).collect()
}

fn jobs(subscriptions: &[Subscription], event: &Event) -> Vec<NewJob> {
    let (source, event_type) = (event.delivery().arrival.source.as_str(), event.event_type().as_str());
    let wanting = subscriptions.iter().filter(|subscription| subscription.wants(source, event_type));
    wanting.map(|subscription| job(subscription, event)).collect()
}

fn job(subscription: &Subscription, event: &Event) -> NewJob {
    let ordering_key = subscription.ordering.key(&KeyFacts::of(event));
    if ordering_key.as_deref() == Some(Ordering::PANICKED) {
        let (request_id, handler) = (event.delivery().arrival.request_id, &subscription.handler);
        tracing::error!(%request_id, %handler, "the handler panicked when it computed an ordering key");
    }
    NewJob {
        handler: subscription.handler.clone(),
        priority: subscription.priority.unwrap_or(event.priority()),
        ordering_key,
    }
}

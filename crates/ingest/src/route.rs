//! Which handlers want which event: a table built at start.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hookfast_store::{NewJob, Routed};
use hookfast_webhook::{Event, Ordering, Subscription};

/// Gives each event its jobs.
pub(crate) fn route(subscriptions: &[Subscription], events: Vec<Event>) -> Vec<Routed> {
    let jobs = |event: &Event| {
        let (source, event_type) = (event.delivery().arrival.source.as_str(), event.event_type().as_str());
        let wanting = subscriptions.iter().filter(|subscription| subscription.wants(source, event_type));
        wanting.map(|subscription| job(subscription, event)).collect()
    };
    events.into_iter().map(|event| Routed { jobs: jobs(&event), event }).collect()
}

fn job(subscription: &Subscription, event: &Event) -> NewJob {
    let ordering_key = catch_unwind(AssertUnwindSafe(|| subscription.ordering.key(event))).unwrap_or_else(|_| {
        // The event is genuine and must be recorded. With all the others that went wrong it keeps an order of some kind.
        tracing::error!(handler = %subscription.handler, "the handler panicked when it computed an ordering key");
        Some(Ordering::PANICKED.into())
    });
    NewJob {
        handler: subscription.handler.clone(),
        priority: subscription.priority.unwrap_or(event.priority()),
        ordering_key,
    }
}

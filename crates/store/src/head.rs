//! The head of a request: its URL and headers. The only event of a request has them in its own row. If there are several, the
//! head stands once in `request_heads`, or a short record would cost as much as the headers of its request.

use std::collections::HashSet;

use hookfast_webhook::Delivery;
use uuid::Uuid;

use crate::{Routed, headers};

/// A head that several events have in common.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) request_id: Uuid,
    pub(crate) url: String,
    pub(crate) headers: Vec<u8>,
}

/// Whether the head of a request is kept apart from its events.
pub(crate) fn is_apart(delivery: &Delivery) -> bool {
    delivery.event_count > 1
}

/// The requests of these events whose heads are kept apart, each once.
pub(crate) fn deliveries_apart<'a>(events: &[&'a Routed]) -> Vec<&'a Delivery> {
    let mut seen = HashSet::new();
    let deliveries = events.iter().map(|routed| routed.event.delivery());
    deliveries.filter(|delivery| is_apart(delivery) && seen.insert(delivery.arrival.request_id)).collect()
}

/// The headers of a request in their stored form.
pub(crate) fn stored_headers(delivery: &Delivery) -> Vec<u8> {
    let mut stored = Vec::with_capacity(512);
    headers::write(&delivery.request.headers, &mut stored);
    stored
}

//! What the sync takes from Salla's events. There is much more in them, and it may change.

use hookfast::{Event, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// One event. What it tells is read later: what cannot be read is then something to review, and not only a dead letter.
#[derive(Debug, Clone, Deserialize)]
pub struct Notice {
    /// The store.
    pub merchant: u64,
    /// The order, if all is well.
    pub data: Value,
}

/// What has become of an order; also what the warehouse is told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The store.
    pub merchant: String,
    /// The order's id.
    pub order: String,
    /// `open`, `cancelled` or `deleted`.
    pub state: &'static str,
    /// The store's own word for how far it is.
    pub status: Option<String>,
    /// What it costs, as Salla wrote it: money is no floating-point number.
    pub total: Option<String>,
    /// In which currency.
    pub currency: Option<String>,
    /// When, in unix seconds. The warehouse should leave aside what is older than what it knows.
    pub changed_at: i64,
}

#[derive(Deserialize)]
struct Order {
    id: u64,
    status: Option<Status>,
    amounts: Option<Amounts>,
}

#[derive(Deserialize)]
struct Status {
    name: String,
}

#[derive(Deserialize)]
struct Amounts {
    total: Total,
}

#[derive(Deserialize)]
struct Total {
    amount: Number,
    currency: String,
}

impl Change {
    /// What an event tells. Trying again does not make it better: what cannot be read or is not enough is given up.
    pub fn read(event: &Event<Notice>) -> Result<Self, Failure> {
        let order = Order::deserialize(&event.payload.data).map_err(Failure::bad_payload)?;
        let state = state(&event.event_type);
        let total = order.amounts.map(|amounts| amounts.total);
        if state == "open" && total.is_none() {
            return Err(Failure::give_up(format!("the order {} has no total", order.id)));
        }
        Ok(Self {
            merchant: event.payload.merchant.to_string(),
            order: order.id.to_string(),
            state,
            status: order.status.map(|status| status.name),
            total: total.as_ref().map(|total| total.amount.to_string()),
            currency: total.map(|total| total.currency),
            changed_at: event.occurred_at.unix_timestamp(),
        })
    }
}

fn state(event_type: &str) -> &'static str {
    match event_type {
        "order.cancelled" => "cancelled",
        "order.deleted" => "deleted",
        _ => "open",
    }
}

//! What the ledger takes from Stripe's events. There is much more in them, and it may change.

use std::collections::HashMap;

use serde::Deserialize;

/// One event.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum Notice {
    /// A customer has paid.
    #[serde(rename = "payment_intent.succeeded")]
    Paid {
        /// The payment.
        object: PaymentIntent,
    },
    /// Some or all of it was given back.
    #[serde(rename = "charge.refunded")]
    Refunded {
        /// The charge that the payment was made with.
        object: Charge,
    },
}

/// A payment.
#[derive(Debug, Clone, Deserialize)]
pub struct PaymentIntent {
    /// Its id.
    pub id: String,
    /// What was paid, in minor units: cents, or yen.
    pub amount_received: i64,
    /// In which currency.
    pub currency: String,
    /// What our shop wrote there when it made the payment.
    #[serde(default)]
    pub metadata: HashMap<String, String>,
}

impl PaymentIntent {
    /// What it was paid for: the shop writes `order_id`. A payment that was made by hand is an order of its own.
    pub fn order(&self) -> &str {
        self.metadata.get("order_id").unwrap_or(&self.id)
    }
}

/// A charge with refunds.
#[derive(Debug, Clone, Deserialize)]
pub struct Charge {
    /// Its id.
    pub id: String,
    /// What was given back, in minor units: all refunds so far together, not only the last.
    pub amount_refunded: i64,
    /// In which currency.
    pub currency: String,
    /// The payment. Charges that were made without one have none.
    pub payment_intent: Option<String>,
}

//! An order ledger: what was paid and what was given back, from Stripe's webhooks.
//!
//! A posting moves an amount from one account to another, so the ledger balances by itself. There are three accounts:
//! `stripe` is what Stripe holds for us, `sales` and `refunds` are why.

mod stripe;

use hookfast::{Effects, Event, Failure, FailureKind, Handled, Handler, Transaction, Value, values};

pub use stripe::{Charge, Notice, PaymentIntent};

/// Books payments and refunds.
#[derive(Debug, Clone, Copy)]
pub struct OrderLedger;

impl Handler for OrderLedger {
    const NAME: &'static str = "order-ledger";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/payment_intent.succeeded", "stripe/charge.refunded"];
    const TABLES: &'static str = "
        CREATE TABLE IF NOT EXISTS ledger_payments (
            payment  TEXT   NOT NULL PRIMARY KEY,
            order_id TEXT   NOT NULL,
            currency TEXT   NOT NULL,
            paid     BIGINT NOT NULL,
            refunded BIGINT NOT NULL
        );
        CREATE TABLE IF NOT EXISTS ledger_postings (
            event_id TEXT   NOT NULL,
            payment  TEXT   NOT NULL,
            order_id TEXT   NOT NULL,
            debit    TEXT   NOT NULL,
            credit   TEXT   NOT NULL,
            amount   BIGINT NOT NULL,
            currency TEXT   NOT NULL
        );
    ";
    type Payload = Notice;

    async fn handle(&self, event: &Event<Notice>, effects: &Effects) -> Handled {
        // Stands beside every posting: `events show` says why it is there.
        let id = event.id.to_string();
        match &event.payload {
            Notice::Paid { object } => effects.once("payment", async |tx| book_payment(tx, &id, object).await).await,
            Notice::Refunded { object } => effects.once("refund", async |tx| book_refund(tx, &id, object).await).await,
        }
    }

    /// The refunds of one payment go one after the other. The payment itself has no key: a refund that came before it
    /// waits for it, and must not be waited for.
    fn ordering_key(&self, notice: &Notice) -> Option<String> {
        match notice {
            Notice::Paid { .. } => None,
            Notice::Refunded { object } => object.payment_intent.clone(),
        }
    }
}

async fn book_payment(tx: &mut Transaction<'_>, event_id: &str, payment: &PaymentIntent) -> Handled {
    let PaymentIntent { id, amount_received, currency, .. } = payment;
    if *amount_received <= 0 {
        return Err(Failure::give_up(format!("the payment {id} succeeded, but nothing was received")));
    }
    let is_new = tx
        .execute(
            "INSERT INTO ledger_payments (payment, order_id, currency, paid, refunded) VALUES ($1, $2, $3, $4, 0)
             ON CONFLICT (payment) DO NOTHING",
            values![id.as_str(), payment.order(), currency.as_str(), *amount_received],
        )
        .await?;
    // Stripe may tell of one payment in two events. `once` knows events; that a payment is booked once is up to us.
    if is_new == 1 {
        tx.execute(
            "INSERT INTO ledger_postings (event_id, payment, order_id, debit, credit, amount, currency)
             VALUES ($1, $2, $3, 'stripe', 'sales', $4, $5)",
            values![event_id, id.as_str(), payment.order(), *amount_received, currency.as_str()],
        )
        .await?;
    }
    Ok(())
}

async fn book_refund(tx: &mut Transaction<'_>, event_id: &str, charge: &Charge) -> Handled {
    let Charge { id, amount_refunded, currency, payment_intent } = charge;
    let Some(payment) = payment_intent else {
        return Err(Failure::give_up(format!("the charge {id} belongs to no payment, so its refund to no order")));
    };
    match fits(tx, payment, charge).await? {
        Fit::Good => {}
        // Stripe keeps no order: the payment may be on its way.
        Fit::NotYet => {
            let problem = format!("the payment {payment} is not booked yet");
            return Err(Failure::retry(FailureKind::Internal, problem));
        }
        Fit::Bad => {
            let problem = format!("a refund of {amount_refunded} {currency} does not fit what was paid with {payment}");
            return Err(Failure::give_up(problem));
        }
    }
    // What is new since the last refund that was booked: nothing, if this event is older than that.
    tx.execute(
        "INSERT INTO ledger_postings (event_id, payment, order_id, debit, credit, amount, currency)
         SELECT $1, payment, order_id, 'refunds', 'stripe', $3 - refunded, currency FROM ledger_payments
         WHERE payment = $2 AND refunded < $3",
        values![event_id, payment.as_str(), *amount_refunded],
    )
    .await?;
    tx.execute(
        "UPDATE ledger_payments SET refunded = $2 WHERE payment = $1 AND refunded < $2",
        values![payment.as_str(), *amount_refunded],
    )
    .await?;
    Ok(())
}

enum Fit {
    Good,
    NotYet,
    Bad,
}

/// Whether a refund fits its payment. The row is written as it is, which keeps it from all others until the commit.
async fn fits(tx: &mut Transaction<'_>, payment: &str, charge: &Charge) -> Result<Fit, Failure> {
    let fits = tx
        .fetch(
            "UPDATE ledger_payments SET refunded = refunded WHERE payment = $1
             RETURNING CASE WHEN currency = $2 AND paid >= $3 THEN 1 ELSE 0 END",
            values![payment, charge.currency.as_str(), charge.amount_refunded],
        )
        .await?;
    Ok(match fits {
        None => Fit::NotYet,
        Some(Value::Integer(1)) => Fit::Good,
        Some(_) => Fit::Bad,
    })
}

#[cfg(test)]
mod tests;

//! The orders of Salla stores, kept in a table and told to a warehouse.
//!
//! Salla promises no order, so an older event never overwrites a newer one. What cannot be synced, however often it is tried,
//! is written down for a person to review, and is then given up.

mod salla;
mod warehouse;

use hookfast::{Effects, Event, Failure, Handled, Handler, Transaction, values};

pub use salla::{Change, Notice};
pub use warehouse::{HttpWarehouse, Receipt, Warehouse};

/// Keeps orders and tells the warehouse.
#[derive(Debug, Clone)]
pub struct OrderSync<W> {
    /// Who is told.
    pub warehouse: W,
}

impl<W: Warehouse> Handler for OrderSync<W> {
    const NAME: &'static str = "order-sync";
    const SUBSCRIBES: &'static [&'static str] =
        &["salla/order.created", "salla/order.updated", "salla/order.cancelled", "salla/order.deleted"];
    const TABLES: &'static str = "
        CREATE TABLE IF NOT EXISTS orders (
            merchant   TEXT   NOT NULL,
            order_id   TEXT   NOT NULL,
            state      TEXT   NOT NULL,
            status     TEXT,
            total      TEXT,
            currency   TEXT,
            changed_at BIGINT NOT NULL,
            receipt    TEXT,
            PRIMARY KEY (merchant, order_id)
        );
        CREATE TABLE IF NOT EXISTS reviews (
            event_id TEXT   NOT NULL,
            merchant TEXT   NOT NULL,
            order_id TEXT,
            reason   TEXT   NOT NULL,
            is_open  BIGINT NOT NULL
        );
    ";
    type Payload = Notice;

    async fn handle(&self, event: &Event<Notice>, effects: &Effects) -> Handled {
        match self.sync(event, effects).await {
            Err(failure) if failure.is_permanent => Err(review(event, effects, failure).await?),
            handled => handled,
        }
    }

    /// One event of an order at a time, so that the warehouse hears of them in order.
    fn ordering_key(&self, notice: &Notice) -> Option<String> {
        Some(format!("{}/{}", notice.merchant, notice.data.get("id")?))
    }
}

impl<W: Warehouse> OrderSync<W> {
    async fn sync(&self, event: &Event<Notice>, effects: &Effects) -> Handled {
        let change = Change::read(event)?;
        let is_newest = effects.once("keep", async |tx| keep(tx, event, &change).await).await?;
        if !is_newest {
            return Ok(());
        }
        let told = effects.call("tell", async |key| self.warehouse.tell(key, &change).await).await?;
        effects.once("told", async |tx| note_receipt(tx, &change, &told).await).await
    }
}

/// Keeps the order as it is now, unless something newer is known; says whether it was the newest.
async fn keep(tx: &mut Transaction<'_>, event: &Event<Notice>, change: &Change) -> Result<bool, Failure> {
    let Change { merchant, order, state, status, total, currency, changed_at } = change;
    if !tx.is_newest(&format!("{merchant}/{order}"), event.occurred_at).await? {
        return Ok(false);
    }
    // Who cancels or deletes an order need not say again what it was.
    tx.execute(
        "INSERT INTO orders (merchant, order_id, state, status, total, currency, changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (merchant, order_id) DO UPDATE SET
             state = excluded.state,
             status = COALESCE(excluded.status, orders.status),
             total = COALESCE(excluded.total, orders.total),
             currency = COALESCE(excluded.currency, orders.currency),
             changed_at = excluded.changed_at",
        values![
            merchant.as_str(),
            order.as_str(),
            *state,
            status.as_deref(),
            total.as_deref(),
            currency.as_deref(),
            *changed_at
        ],
    )
    .await?;
    Ok(true)
}

/// The warehouse knows the order: there is nothing more to review about it.
async fn note_receipt(tx: &mut Transaction<'_>, change: &Change, told: &Receipt) -> Handled {
    let Change { merchant, order, .. } = change;
    tx.execute(
        "UPDATE orders SET receipt = $3 WHERE merchant = $1 AND order_id = $2",
        values![merchant.as_str(), order.as_str(), told.receipt.as_str()],
    )
    .await?;
    tx.execute(
        "UPDATE reviews SET is_open = 0 WHERE merchant = $1 AND order_id = $2",
        values![merchant.as_str(), order.as_str()],
    )
    .await?;
    Ok(())
}

/// Writes down what a person should look at, once however often the job is replayed, and hands the failure back: the job
/// is a dead letter all the same, and a replay of it is how the person tries again.
async fn review(event: &Event<Notice>, effects: &Effects, failure: Failure) -> Result<Failure, Failure> {
    let Notice { merchant, data } = &event.payload;
    let order = data.get("id").map(ToString::to_string);
    effects
        .once("review", async |tx| {
            tx.execute(
                "INSERT INTO reviews (event_id, merchant, order_id, reason, is_open) VALUES ($1, $2, $3, $4, 1)",
                values![event.id.to_string(), merchant.to_string(), order, failure.to_string()],
            )
            .await
        })
        .await?;
    Ok(failure)
}

#[cfg(test)]
mod tests;

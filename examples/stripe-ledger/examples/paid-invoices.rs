//! The handler of docs/handlers.md, "A handler in ten minutes".

use std::path::Path;
use std::process::ExitCode;

use hookfast::{Effects, Event, Failure, FailureKind, Handled, Handler, Handlers, values};
use serde::Deserialize;

/// What we take from Stripe's event. There is much more in it.
#[derive(Deserialize)]
struct InvoicePaid {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: Invoice,
}

#[derive(Deserialize)]
struct Invoice {
    id: String,
    amount_paid: i64,
    currency: String,
}

struct PaidInvoices;

impl Handler for PaidInvoices {
    const NAME: &'static str = "paid-invoices";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/invoice.paid"];
    const TABLES: &'static str = "CREATE TABLE IF NOT EXISTS paid_invoices (
        invoice TEXT NOT NULL, amount BIGINT NOT NULL, currency TEXT NOT NULL
    )";
    type Payload = InvoicePaid;

    async fn handle(&self, event: &Event<InvoicePaid>, effects: &Effects) -> Handled {
        let Invoice { id, amount_paid, currency } = &event.payload.data.object;
        if Path::new("books-are-closed").exists() {
            return Err(Failure::retry(FailureKind::Internal, "the books are closed"));
        }
        let book = "INSERT INTO paid_invoices (invoice, amount, currency) VALUES ($1, $2, $3)";
        effects.write("book", book, values![id.as_str(), *amount_paid, currency.as_str()]).await
    }
}

fn main() -> ExitCode {
    hookfast::run(Handlers::new().with(PaidInvoices))
}

#[cfg(test)]
mod tests {
    use hookfast::testing::{Kit, TestEvent};

    use super::*;

    #[tokio::test]
    async fn an_invoice_is_booked_exactly_once() {
        let body = r#"{"data":{"object":{"id":"in_1","amount_paid":2599,"currency":"eur"}}}"#;
        let event = TestEvent::new("stripe", "invoice.paid", body);
        Kit::assert_exactly_once(&PaidInvoices, &event, "SELECT * FROM paid_invoices").await;
    }
}

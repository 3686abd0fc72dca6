//! A gateway with the handler that `bench process` measures: one effect, which is one upsert. With `BENCH_EFFECT=once`
//! each has a transaction of its own.

use std::process::ExitCode;

use hookfast::{Effects, Event, Handled, Handler, Handlers, values};
use serde::Deserialize;

/// As the gateway itself.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let shares_commits = std::env::var("BENCH_EFFECT").is_err();
    hookfast::run(Handlers::new().with(Bench { shares_commits }))
}

#[derive(Debug, Deserialize)]
struct InvoicePaid {
    id: String,
    data: Data,
}

#[derive(Debug, Deserialize)]
struct Data {
    object: Invoice,
}

#[derive(Debug, Deserialize)]
struct Invoice {
    amount_paid: i64,
}

struct Bench {
    shares_commits: bool,
}

impl Handler for Bench {
    const NAME: &'static str = "bench";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/invoice.paid"];
    const TABLES: &'static str = "CREATE TABLE IF NOT EXISTS bench_done (id TEXT PRIMARY KEY, amount BIGINT NOT NULL)";
    type Payload = InvoicePaid;

    async fn handle(&self, event: &Event<InvoicePaid>, effects: &Effects) -> Handled {
        let InvoicePaid { id, data } = &event.payload;
        const UPSERT: &str = "INSERT INTO bench_done (id, amount) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET amount = excluded.amount";
        let values = values![id.as_str(), data.object.amount_paid];
        match self.shares_commits {
            true => effects.write("upsert", UPSERT, values).await,
            false => effects.once("upsert", async |tx| tx.execute(UPSERT, values).await.map(drop)).await,
        }
    }
}

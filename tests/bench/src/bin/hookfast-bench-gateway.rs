//! A gateway with the handler that `bench process` measures: one effect, which is one upsert. With `BENCH_EFFECT=once`
//! each has a transaction of its own. With `BENCH_TROUBLE` there is a second handler, which does what its events say, for
//! `bench neighbours`.

use std::process::ExitCode;
use std::time::Duration;

use hookfast::{Effects, Event, Handled, Handler, Handlers, values};
use serde::Deserialize;

/// As the gateway itself.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let shares_commits = std::env::var("BENCH_EFFECT").is_err();
    let handlers = Handlers::new().with(Bench { shares_commits });
    hookfast::run(match std::env::var("BENCH_TROUBLE") {
        Ok(_) => handlers.with(Trouble),
        Err(_) => handlers,
    })
}

#[derive(Debug, Deserialize)]
struct TroubleCame {
    id: String,
    act: Act,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Act {
    sleep_ms: u64,
    /// How long its statement takes. On Postgres only.
    statement_ms: u64,
    panic: bool,
}

struct Trouble;

impl Handler for Trouble {
    const NAME: &'static str = "trouble";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/trouble.*"];
    type Payload = TroubleCame;

    async fn handle(&self, event: &Event<TroubleCame>, effects: &Effects) -> Handled {
        let TroubleCame { id, act } = &event.payload;
        assert!(!act.panic, "told to panic");
        tokio::time::sleep(Duration::from_millis(act.sleep_ms)).await;
        if act.statement_ms > 0 {
            const SLOW: &str = "INSERT INTO bench_done (id, amount) SELECT $1, 0 FROM pg_sleep($2)";
            effects.write("slow", SLOW, values![id.as_str(), act.statement_ms as f64 / 1000.0]).await?;
        }
        Ok(())
    }
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

//! The built-in handlers, for those who try Hookfast out: one says what came, and one always fails.

use hookfast_handler::{Anything, Effects, Event, Handled, Handler};
use hookfast_webhook::{Failure, FailureKind};

/// Writes a line into the log for each event, without its content.
#[derive(Debug, Clone, Copy, Default)]
pub struct Log;

impl Handler for Log {
    const NAME: &'static str = "log";
    const SUBSCRIBES: &'static [&'static str] = &["*/*"];
    type Payload = Anything;

    async fn handle(&self, event: &Event<Anything>, effects: &Effects) -> Handled {
        let Event { id, source, event_type, account, attempt, body, .. } = event;
        let handler = effects.handler();
        tracing::info!(%handler, event_id = %id, source, event_type, account, attempt, size_bytes = body.len(), "an event came");
        Ok(())
    }
}

/// Fails each time, so that retries and dead letters can be practised with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fail;

impl Handler for Fail {
    const NAME: &'static str = "fail";
    const SUBSCRIBES: &'static [&'static str] = &["*/*"];
    type Payload = Anything;

    async fn handle(&self, _: &Event<Anything>, _: &Effects) -> Handled {
        Err(Failure::retry(FailureKind::Internal, "this handler always fails: its section says run = \"fail\""))
    }
}

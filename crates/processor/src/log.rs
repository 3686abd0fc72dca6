//! The built-in handler: says what came.

use hookfast_handler::{Anything, Effects, Event, Handled, Handler};

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

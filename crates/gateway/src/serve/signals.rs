//! The signals that end or reload the gateway.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;
use crate::log_lines;

pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Exit> {
        let listen = |kind| signal(kind).map_err(Exit::failed);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to end.
    pub(super) async fn asked_to_end(&mut self) -> &'static str {
        loop {
            match self.next().await {
                "SIGHUP" => {}
                name => return name,
            }
        }
    }

    /// Ends the process at the next signal, whatever is under way.
    pub(super) async fn end_at_once(mut self) {
        self.asked_to_end().await;
        tracing::warn!("ended by a second signal");
        log_lines::flush();
        std::process::exit(130);
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

//! From start to end: what runs is started, waited for, and shut down.

use std::time::Duration;

use hookfast_store::Migrate;

use super::Gateway;
use super::reload::Reload;
use super::signals::Signals;
use crate::Config;
use crate::exit::Exit;

/// How much longer than its jobs a process may take that must end: the jobs that are cut short are handed back, and the store
/// is closed.
const AFTER_THE_JOBS: Duration = Duration::from_secs(12);

impl Gateway {
    /// Runs until a signal asks it to end, or a part of it cannot go on. Signals are heard from the beginning.
    pub(super) async fn run(self, config: Config, migrate: Migrate) -> Result<(), Exit> {
        let mut signals = Signals::listen()?;
        let patience = config.work.shutdown_timeout.saturating_add(AFTER_THE_JOBS);
        let start = async {
            let (config, keeping) = self.open(config, migrate).await?;
            self.start(config, keeping).await
        };
        let (parts, reload) = tokio::select! {
            started = start => started?,
            name = signals.asked_to_end() => {
                tracing::info!(signal = name, "ended before the start was over; nothing was accepted");
                return Ok(());
            }
        };
        let ended = self.wait(&mut signals, &reload).await;
        tokio::spawn(signals.end_at_once());
        match ended {
            Ok(()) => {
                parts.shut_down(Duration::MAX).await;
                tracing::info!("shut down: everything that was accepted is recorded");
                Ok(())
            }
            Err(problem) => {
                // The supervisor that starts us again should not wait for a part that may never end.
                parts.shut_down(patience).await;
                Err(Exit::Failed(problem))
            }
        }
    }

    /// Waits for a signal to end, or for the reason why the process must end, which is the error. SIGHUP reloads.
    async fn wait(&self, signals: &mut Signals, reload: &Reload<'_>) -> Result<(), String> {
        loop {
            tokio::select! {
                name = signals.next() => match name {
                    "SIGHUP" => reload.reload().await,
                    name => {
                        tracing::info!(signal = name, "shutting down: finishing what was accepted");
                        return Ok(());
                    }
                },
                reason = self.must_end.wait() => return Err(reason.to_owned()),
            }
        }
    }
}

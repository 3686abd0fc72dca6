//! What decides whether a handler's jobs may run now. A worker asks its gate before it pulls, and again before a claimed job
//! begins. Today the gate closes when the handler is paused.

use async_trait::async_trait;
use tokio::sync::watch;

/// Whether jobs may run now.
#[async_trait]
pub(crate) trait Gate: Send + Sync {
    /// Whether it is open at this moment.
    fn is_open(&self) -> bool;

    /// Waits until it is open.
    async fn opened(&self);

    /// Waits until it is closed.
    async fn closed(&self);
}

/// A gate that an operator closes and opens: `paused` in the configuration.
pub(crate) struct Pause {
    is_paused: watch::Sender<bool>,
}

impl Pause {
    pub(crate) fn new(is_paused: bool) -> Self {
        Self { is_paused: watch::Sender::new(is_paused) }
    }

    /// Says whether this changed anything.
    pub(crate) fn set(&self, is_paused: bool) -> bool {
        self.is_paused.send_if_modified(|now| std::mem::replace(now, is_paused) != is_paused)
    }

    async fn until(&self, is_paused: bool) {
        let mut changes = self.is_paused.subscribe();
        let _ = changes.wait_for(|now| *now == is_paused).await.expect("the sender is ours");
    }
}

#[async_trait]
impl Gate for Pause {
    fn is_open(&self) -> bool {
        !*self.is_paused.borrow()
    }

    async fn opened(&self) {
        self.until(false).await;
    }

    async fn closed(&self) {
        self.until(true).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_pause_closes_the_gate_until_it_ends() {
        let pause = Pause::new(false);
        assert!(pause.is_open());
        timeout(SOON, pause.opened()).await.expect("it is open already");
        timeout(SOON, pause.closed()).await.expect_err("it stays open");
        assert!(pause.set(true));
        assert!(!pause.set(true), "it is closed already");
        timeout(SOON, pause.closed()).await.expect("it is closed");
        let (opened, _) = tokio::join!(timeout(SOON, pause.opened()), async { pause.set(false) });
        opened.expect("who waits is told");
    }
}

//! The store is opened.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hookfast_store::Migrate;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Gateway;
use crate::Config;
use crate::exit::Exit;
use crate::keeping::Keeping;

/// How long the start waits before it logs what it waits for.
const SAY_AFTER: Duration = Duration::from_secs(5);

impl Gateway {
    /// Opens the store on a thread of its own, because the end of the process must not wait for it.
    pub(super) async fn open(&self, config: Config, migrate: Migrate) -> Result<(Config, Arc<Keeping>), Exit> {
        let (commits, receives) = (self.commits.clone(), self.role.receives());
        let (opened, opening) = oneshot::channel();
        std::thread::spawn(move || {
            let keeping = commits.block_on(Keeping::open(&config, receives, migrate));
            let _ = opened.send((config, keeping));
        });
        let what = "the store: it is opened, or upgraded, and another process may hold a lock on it";
        let (config, keeping) = say_if_slow(what, opening).await.map_err(Exit::failed)?;
        Ok((config, Arc::new(keeping?)))
    }
}

/// Logs what the start waits for, every few seconds, until it is there.
pub(super) async fn say_if_slow<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    let mut waiting = pin!(waiting);
    let start = Instant::now();
    loop {
        match timeout(SAY_AFTER, &mut waiting).await {
            Ok(done) => return done,
            Err(_) => tracing::warn!(seconds = start.elapsed().as_secs(), "still waiting for {what}"),
        }
    }
}

//! Background tasks that receiving depends on. If one panics, the process ends, and a supervisor must start it again.

use std::future::Future;

use metrics::counter;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A group of tasks whose end can be awaited together.
#[derive(Debug)]
pub(crate) struct Background {
    tasks: TaskTracker,
    runtime: Handle,
    /// Cancelled when a task panicked.
    must_end: CancellationToken,
}

impl Background {
    pub(crate) fn new(runtime: &Handle, must_end: &CancellationToken) -> Self {
        Self { tasks: TaskTracker::new(), runtime: runtime.clone(), must_end: must_end.clone() }
    }

    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let (panics, must_end) = (counter!("hookfast_task_panics_total", "task" => name), self.must_end.clone());
        panics.increment(0);
        let watched = async move {
            if tokio::spawn(task).await.is_err_and(|error| error.is_panic()) {
                panics.increment(1);
                tracing::error!(task = name, "a background task panicked, so the process must end; start it again");
                must_end.cancel();
            }
        };
        self.tasks.spawn_on(watched, &self.runtime);
    }

    /// Waits until all tasks have ended.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_ends_the_process_and_one_that_ends_does_not() {
        let must_end = CancellationToken::new();
        let background = Background::new(&Handle::current(), &must_end);
        background.spawn("test", async {});
        background.ended().await;
        assert!(!must_end.is_cancelled());
        background.spawn("test", async { panic!("on purpose") });
        background.ended().await;
        assert!(must_end.is_cancelled());
    }
}

//! Background tasks that the process cannot do without: one that panics ends the process, and a supervisor starts it anew.

use std::future::Future;

use metrics::counter;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Starts a task. If it panics, that is counted and logged, and `must_end` is cancelled.
pub(crate) fn spawn(
    name: &'static str,
    must_end: &CancellationToken,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let (panics, must_end) = (counter!("hookfast_task_panics_total", "task" => name), must_end.clone());
    panics.increment(0);
    tokio::spawn(async move {
        let mut task = AbortOnDrop(tokio::spawn(task));
        if let Err(error) = (&mut task.0).await
            && error.is_panic()
        {
            panics.increment(1);
            tracing::error!(task = name, "a background task panicked, so the process must end; start it again");
            must_end.cancel();
        }
    })
}

/// Ends the task with its watcher.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_ends_the_process() {
        let must_end = CancellationToken::new();
        let task = spawn("test", &must_end, async { panic!("as the test wants it") });
        must_end.cancelled().await;
        task.await.expect("its watcher does not panic");
    }

    #[tokio::test]
    async fn a_task_that_ends_or_is_ended_does_not() {
        let must_end = CancellationToken::new();
        spawn("test", &must_end, async {}).await.expect("its watcher does not panic");
        let (is_there, gone) = oneshot::channel::<()>();
        let task = spawn("test", &must_end, async move {
            let _kept = is_there;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        task.abort();
        gone.await.expect_err("the task ends with its watcher");
        assert!(!must_end.is_cancelled());
    }
}

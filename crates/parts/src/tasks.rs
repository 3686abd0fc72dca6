//! Background tasks that the process cannot do without.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use metrics::{counter, describe_counter};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::MustEnd;

const PANICS: &str = "hookfast_task_panics_total";

/// A group of background tasks. If one panics, its work is not done any more, so the process ends, and a supervisor starts
/// it again.
#[derive(Debug, Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    runtime: Handle,
    must_end: MustEnd,
}

impl Tasks {
    /// A group whose tasks run on `runtime`.
    pub fn new(runtime: &Handle, must_end: &MustEnd) -> Self {
        Self { tracker: TaskTracker::new(), runtime: runtime.clone(), must_end: must_end.clone() }
    }

    /// Starts a task. If it panics, that is counted and logged, and the process must end. The task goes on when the handle
    /// is dropped.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        counter!(PANICS, "task" => name).increment(0);
        self.tracker.spawn_on(self.watched(name, task), &self.runtime)
    }

    /// A task that is watched in the same way, and that something else starts and waits for.
    pub fn watched(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let must_end = self.must_end.clone();
        async move {
            // A task that panicked is not used any more.
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                counter!(PANICS, "task" => name).increment(1);
                tracing::error!(task = name, "a background task panicked, so the process must end; start it again");
                must_end.because(reason(name));
            }
        }
    }

    /// Waits until all tasks have ended.
    pub async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

fn reason(task: &str) -> String {
    format!(
        "the background task `{task}` panicked; the log says where. Start again: what was answered with 2xx is durable, \
         and jobs that were not finished are run again"
    )
}

/// Describes the metrics of background tasks.
pub fn describe() {
    describe_counter!(
        PANICS,
        "Background tasks that panicked, by task. Each ends the process, which must be started again"
    );
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use metrics_exporter_prometheus::PrometheusBuilder;
    use tokio::sync::oneshot;

    use super::*;

    fn tasks() -> (Tasks, MustEnd) {
        let must_end = MustEnd::default();
        (Tasks::new(&Handle::current(), &must_end), must_end)
    }

    #[tokio::test]
    async fn a_task_that_panics_is_counted_and_ends_the_process() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let (tasks, must_end) = tasks();
        let count = |number: u8| format!("hookfast_task_panics_total{{task=\"test\"}} {number}\n");
        let task = tasks.spawn("test", async { panic!("as the test wants it") });
        assert!(recorder.handle().render().contains(&count(0)), "the series is there from the beginning");
        assert!(must_end.wait().await.starts_with("the background task `test` panicked"));
        task.await.expect("the panic goes no further");
        assert!(recorder.handle().render().contains(&count(1)));
    }

    #[tokio::test]
    async fn a_task_that_ends_or_is_ended_does_not_end_the_process() {
        let (tasks, must_end) = tasks();
        tasks.spawn("test", async {}).await.expect("it ends well");
        let (kept, gone) = oneshot::channel::<()>();
        let task = tasks.spawn("test", async move {
            let _kept = kept;
            pending::<()>().await;
        });
        tokio::task::yield_now().await;
        task.abort();
        gone.await.expect_err("what the task held is dropped");
        tasks.ended().await;
        assert_eq!(must_end.reason(), None);
    }

    #[tokio::test]
    async fn all_tasks_are_waited_for_also_those_without_a_handle() {
        let (tasks, _must_end) = tasks();
        let (go, waiting) = oneshot::channel();
        drop(tasks.spawn("test", async { waiting.await.expect("the test sends it") }));
        let ended = tokio::spawn({
            let tasks = tasks.clone();
            async move { tasks.ended().await }
        });
        tokio::task::yield_now().await;
        assert!(!ended.is_finished());
        go.send(()).expect("the task waits");
        ended.await.expect("it does not panic");
    }
}

//! The list of what runs in a process, and how it is shut down.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long a task may take that ends wherever it is.
const TASK_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Something that runs, and how it is shut down.
#[must_use]
pub struct Part {
    name: &'static str,
    within: Duration,
    otherwise: &'static str,
    shut_down: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Part {
    /// A part that finishes what it has accepted when `shut_down` is awaited. If that takes longer than `within`, the part is
    /// left behind, and the log says its name, such as "the workers", and what this means: `otherwise`.
    pub fn new(
        name: &'static str,
        within: Duration,
        otherwise: &'static str,
        shut_down: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { name, within, otherwise, shut_down: Box::pin(shut_down) }
    }

    /// A part that is one task and may end at any point.
    pub fn of_task(name: &'static str, task: JoinHandle<()>) -> Self {
        Self::new(name, TASK_ENDS_WITHIN, "it ends with the process", async move {
            task.abort();
            // An error says that it was aborted.
            let _ = task.await;
        })
    }

    /// Shuts the part down. Without any time left this does not begin, because a first step could block.
    async fn shut_down(self, left: Duration) {
        let within = self.within.min(left);
        if within.is_zero() || timeout(within, self.shut_down).await.is_err() {
            tracing::warn!("{} did not end in time; {}", self.name, self.otherwise);
        }
    }
}

/// What runs in a process, in the order in which it is shut down.
#[must_use]
#[derive(Default)]
pub struct Parts(Vec<Vec<Part>>);

impl Parts {
    /// Adds parts that are shut down at the same time, when those before them have ended or were left behind.
    pub fn then(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.0.push(parts.into_iter().collect());
        self
    }

    /// Shuts everything down, each part within its own deadline and all of them `within` this one.
    pub async fn shut_down(self, within: Duration) {
        let start = Instant::now();
        for together in self.0 {
            let left = within.saturating_sub(start.elapsed());
            join_all(together.into_iter().map(|part| part.shut_down(left))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tokio::runtime::Handle;
    use tokio::time::sleep;
    use tracing::subscriber::DefaultGuard;

    use super::*;
    use crate::{MustEnd, Tasks};

    const MINUTE: Duration = Duration::from_secs(60);

    /// What happened, line by line: the end of each part, and what the log says.
    #[derive(Clone, Default)]
    struct Story(Arc<Mutex<Vec<u8>>>);

    impl Story {
        /// A story that also gets the lines of the log.
        fn with_log() -> (Self, DefaultGuard) {
            let story = Self::default();
            let writer = story.clone();
            let log = tracing_subscriber::fmt().without_time().with_level(false).with_target(false).with_ansi(false);
            let log = log.with_writer(move || writer.clone()).finish();
            (story, tracing::subscriber::set_default(log))
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no test panics while it holds the lock").clone()).expect("text")
        }

        /// A part that takes this many seconds to end.
        fn part(&self, name: &'static str, seconds: u64) -> Part {
            let mut story = self.clone();
            Part::new(name, MINUTE, "its work is lost", async move {
                sleep(Duration::from_secs(seconds)).await;
                writeln!(story, "{name} ended").expect("it is written to memory");
            })
        }
    }

    impl Write for Story {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no test panics while it holds the lock").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn parts_end_in_order_and_those_of_one_entry_at_the_same_time() {
        let (story, _log) = Story::with_log();
        let parts = Parts::default()
            .then([story.part("receiving", 3), story.part("working", 2)])
            .then(None)
            .then([story.part("the store", 1)]);
        let start = Instant::now();
        parts.shut_down(Duration::MAX).await;
        assert_eq!(story.text(), "working ended\nreceiving ended\nthe store ended\n");
        assert_eq!(start.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_fails_ends_the_others() {
        let (story, _log) = Story::with_log();
        let must_end = MustEnd::default();
        let tasks = Tasks::new(&Handle::current(), &must_end);
        let failing = tasks.spawn("failing", async { panic!("as the test wants it") });
        let parts = Parts::default()
            .then([story.part("receiving", 1), Part::of_task("the failing part", failing)])
            .then([story.part("the store", 0)]);
        assert!(must_end.wait().await.contains("`failing` panicked"));
        parts.shut_down(MINUTE).await;
        let said = "a background task panicked, so the process must end; start it again task=\"failing\"\n";
        assert_eq!(story.text(), format!("{said}receiving ended\nthe store ended\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_end_in_time_is_left_behind_and_named() {
        let (story, _log) = Story::with_log();
        let parts = Parts::default().then([story.part("the workers", 61)]).then([story.part("the store", 1)]);
        parts.shut_down(Duration::MAX).await;
        assert_eq!(story.text(), "the workers did not end in time; its work is lost\nthe store ended\n");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_time_for_all_is_over_nothing_more_is_begun() {
        let (story, _log) = Story::with_log();
        let parts = Parts::default().then([story.part("the workers", 50)]).then([story.part("the store", 0)]);
        parts.shut_down(Duration::from_secs(5)).await;
        let expected =
            "the workers did not end in time; its work is lost\nthe store did not end in time; its work is lost\n";
        assert_eq!(story.text(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_may_end_at_any_point_ends_at_once() {
        let (story, _log) = Story::with_log();
        let task = tokio::spawn(pending());
        let start = Instant::now();
        Parts::default().then([Part::of_task("the listener", task)]).shut_down(Duration::MAX).await;
        assert_eq!((story.text().as_str(), start.elapsed()), ("", Duration::ZERO));
    }
}

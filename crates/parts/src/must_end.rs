//! Why a process must end.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// Says that the process must end, and why. All parts of a process share it, and the first reason counts.
#[derive(Debug, Clone, Default)]
pub struct MustEnd(Arc<SetOnce<String>>);

impl MustEnd {
    /// The process must end. The reason is for the operator: what happened, and what to do.
    pub fn because(&self, reason: impl Into<String>) {
        // It fails if there is an earlier reason.
        let _ = self.0.set(reason.into());
    }

    /// The process must end, because the store makes no further promise. Several parts notice that.
    pub fn because_of_the_store(&self) {
        self.because("the store had an I/O error, so nothing more can be promised. Look at the disk, then start again");
    }

    /// The reason, if there is one.
    pub fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Waits until there is a reason.
    pub async fn wait(&self) -> &str {
        self.0.wait().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let must_end = MustEnd::default();
        let waiting = tokio::spawn({
            let must_end = must_end.clone();
            async move { must_end.wait().await.to_owned() }
        });
        tokio::task::yield_now().await;
        assert_eq!(must_end.reason(), None);
        must_end.because("the disk is gone");
        must_end.because("and so is everything else");
        assert_eq!(waiting.await.expect("it does not panic"), "the disk is gone");
        assert_eq!(must_end.reason(), Some("the disk is gone"));
    }
}

//! The memory that the bodies of running jobs may take.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for bodies, counted in KiB.
pub(crate) struct BodyMemory {
    kibibytes: Arc<Semaphore>,
    total: usize,
}

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let total = usize::try_from(bytes / 1024).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self { kibibytes: Arc::new(Semaphore::new(total)), total }
    }

    /// Waits for room for a body. One that is larger than everything has everything to itself.
    pub(crate) async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let wanted = u32::try_from((bytes / 1024 + 1).min(self.total)).unwrap_or(u32::MAX);
        let taken = Arc::clone(&self.kibibytes).acquire_many_owned(wanted).await;
        taken.expect("the semaphore is never closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_larger_than_all_memory_has_it_to_itself() {
        let memory = BodyMemory::new(10 * 1024);
        let all = memory.take(1 << 30).await;
        assert_eq!((all.num_permits(), memory.kibibytes.available_permits()), (10, 0));
        drop(all);
        let some = memory.take(2048).await;
        assert_eq!((some.num_permits(), memory.kibibytes.available_permits()), (3, 7));
    }
}

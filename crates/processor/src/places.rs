//! Places for jobs, whose number can change while they are taken.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for jobs.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    total: Mutex<usize>,
}

impl Places {
    pub(crate) fn new(total: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(total)), total: Mutex::new(total) }
    }

    /// Waits for some places at once.
    pub(crate) async fn take(&self, count: u32) -> OwnedSemaphorePermit {
        Arc::clone(&self.free).acquire_many_owned(count).await.expect("the semaphore is never closed")
    }

    /// Adds all places that are free to those that are taken.
    pub(crate) fn take_all_free(&self, taken: &mut OwnedSemaphorePermit) {
        while let Ok(more) = Arc::clone(&self.free).try_acquire_owned() {
            taken.merge(more);
        }
    }

    /// Changes how many places there are. Places that are taken and too many go when they are given back.
    pub(crate) fn resize(&self, total: usize) {
        let mut now = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        if total > *now {
            self.free.add_permits(total - *now);
        } else if total < *now {
            let too_many = u32::try_from(*now - total).unwrap_or(u32::MAX);
            let free = Arc::clone(&self.free);
            tokio::spawn(async move {
                if let Ok(places) = free.acquire_many_owned(too_many).await {
                    places.forget();
                }
            });
        }
        *now = total;
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn places_that_are_taken_go_when_they_are_given_back() {
        let places = Places::new(4);
        let taken = places.take(3).await;
        places.resize(2);
        yield_now().await;
        drop(taken);
        yield_now().await;
        assert_eq!(places.free.available_permits(), 2);
        places.resize(5);
        let mut taken = places.take(1).await;
        places.take_all_free(&mut taken);
        assert_eq!(taken.num_permits(), 5);
    }
}

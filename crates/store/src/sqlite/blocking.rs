//! Calls that block their thread until the disk has answered.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Moves the other tasks of this thread to another thread meanwhile. A runtime of one thread has no other.
pub(super) fn waiting_for_the_disk<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => work(),
        _ => block_in_place(work),
    }
}

//! The one binary.

use std::process::ExitCode;

/// Bodies are allocated on one thread and freed on another, in batches, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    hookfast::run(hookfast::Handlers::new())
}

//! Named steps of a run, at which tests kill the process, and protections, which tests take away to see that they are
//! needed. In a build for release, and without the feature `faults`, this is nothing at all.

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "faults", debug_assertions)), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Point {
    AfterClaim,
    BeforeEffect,
    AfterEffect,
    BeforeSettle,
    AfterSettle,
}

/// Something that keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "faults", debug_assertions)), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Protection {
    Marker,
    Sweeper,
    CrashLimit,
}

/// A background task that the process cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "faults", debug_assertions)), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Task {
    Sweeper,
    Settler,
    Leases,
}

#[cfg(not(all(feature = "faults", debug_assertions)))]
pub(crate) fn pass(_: Point) {}

#[cfg(not(all(feature = "faults", debug_assertions)))]
pub(crate) fn panic_in(_: Task) {}

/// Panics when `FAULT_PANIC_IN` names this task.
#[cfg(all(feature = "faults", debug_assertions))]
pub(crate) fn panic_in(task: Task) {
    let named = std::env::var("FAULT_PANIC_IN").unwrap_or_default();
    assert_ne!(named, format!("{task:?}"), "told to panic");
}

#[cfg(not(all(feature = "faults", debug_assertions)))]
pub(crate) fn is_off(_: Protection) -> bool {
    false
}

/// Kills the process with SIGKILL when `FAULT_KILL_AT` names this step and a number, and the step is passed for that
/// number of times: `AfterClaim:3`.
#[cfg(all(feature = "faults", debug_assertions))]
pub(crate) fn pass(point: Point) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    static PASSED: AtomicU32 = AtomicU32::new(0);
    static KILL_AT: LazyLock<String> = LazyLock::new(|| std::env::var("FAULT_KILL_AT").unwrap_or_default());
    if let Some((name, number)) = KILL_AT.split_once(':')
        && name == format!("{point:?}")
        && PASSED.fetch_add(1, Relaxed) + 1 == number.parse().unwrap_or(0)
    {
        let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
    }
}

/// Whether `FAULT_WITHOUT` names this protection.
#[cfg(all(feature = "faults", debug_assertions))]
pub(crate) fn is_off(protection: Protection) -> bool {
    let without = std::env::var("FAULT_WITHOUT").unwrap_or_default();
    without.split(',').any(|name| name == format!("{protection:?}"))
}

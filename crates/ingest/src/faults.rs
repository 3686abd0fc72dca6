//! Steps of the drainer at which tests kill the process, and protections, which tests take away to see that they are
//! needed. Without the feature `faults` this is nothing at all.

/// Something that keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "faults"), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Protection {
    /// What is drained leaves the spool only after it is in the store.
    SpoolOrder,
}

#[cfg(not(feature = "faults"))]
pub(crate) fn is_off(_: Protection) -> bool {
    false
}

/// Whether `FAULT_WITHOUT` names this protection.
#[cfg(feature = "faults")]
pub(crate) fn is_off(protection: Protection) -> bool {
    let without = std::env::var("FAULT_WITHOUT").unwrap_or_default();
    without.split(',').any(|name| name == format!("{protection:?}"))
}

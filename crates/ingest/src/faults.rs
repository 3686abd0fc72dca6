//! Protections, which tests take away to see that they are needed. In a build for release, and without the feature `faults`,
//! all of them are there.

/// Something that keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "faults", debug_assertions)), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Protection {
    /// What is drained leaves the spool only after it is in the store.
    SpoolOrder,
}

#[cfg(not(all(feature = "faults", debug_assertions)))]
pub(crate) fn is_off(_: Protection) -> bool {
    false
}

/// Whether `FAULT_WITHOUT` names this protection.
#[cfg(all(feature = "faults", debug_assertions))]
pub(crate) fn is_off(protection: Protection) -> bool {
    let without = std::env::var("FAULT_WITHOUT").unwrap_or_default();
    without.split(',').any(|name| name == format!("{protection:?}"))
}

//! Protections, which tests take away to see that they are needed. In a build for release, and without the feature `faults`,
//! all of them are there.

/// Something that keeps a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Every worker has a token of its own.
    Fence,
    /// A commit is on the disk before it counts.
    Sync,
    /// After an I/O error nothing more is promised.
    Distrust,
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

//! Protections that fault tests can turn off, to prove that they are needed. In release builds, and in builds without
//! the feature `faults`, none can be turned off.

/// A step of the code that a promise of the gateway depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(all(feature = "faults", debug_assertions)), allow(dead_code, reason = "named for the tests"))]
pub(crate) enum Protection {
    /// A drained event leaves the spool only after the store has it.
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

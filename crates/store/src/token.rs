//! Where tokens come from.

use uuid::Uuid;

use crate::Token;

impl Token {
    /// A new one that nobody can have: not even a restored backup hands the same one out twice.
    pub(crate) fn new() -> Self {
        #[cfg(feature = "faults")]
        if is_off() {
            return Self(Uuid::nil());
        }
        Self(Uuid::new_v4())
    }
}

/// For tests that take the fence away: `FAULT_WITHOUT` names `Fence`, and then every worker has the same token.
#[cfg(feature = "faults")]
fn is_off() -> bool {
    std::env::var("FAULT_WITHOUT").is_ok_and(|without| without.split(',').any(|name| name == "Fence"))
}

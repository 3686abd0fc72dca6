//! Where tokens come from.

use uuid::Uuid;

use crate::Token;
use crate::faults::{Protection, is_off};

impl Token {
    /// One that no other claim has, not even one in a backup that was restored.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        // Tests take the fence away: then every worker has the same token.
        Self(if is_off(Protection::Fence) { Uuid::nil() } else { Uuid::new_v4() })
    }
}

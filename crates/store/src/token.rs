//! Where tokens come from.

use uuid::Uuid;

use crate::Token;
use crate::faults::{Protection, is_off};

impl Token {
    /// A new one that nobody can have: not even a restored backup hands the same one out twice.
    pub(crate) fn new() -> Self {
        // Tests take the fence away: then every worker has the same token.
        Self(if is_off(Protection::Fence) { Uuid::nil() } else { Uuid::new_v4() })
    }
}

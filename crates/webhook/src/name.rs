//! Names of sources and handlers. They appear in URLs, tables, metrics and queue subjects, so one narrow rule holds for
//! all.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The text is not a name. Names match `[a-z0-9][a-z0-9_-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: use 1 to 63 lower-case letters, digits, `-` or `_`, and start with a letter or digit")]
pub struct InvalidName(String);

/// Whether the text follows the rule for names.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_')
        && text.bytes().next().is_some_and(plain)
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes `text` if it follows the rule for names.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                if is_name(text) { Ok(Self(text.into())) } else { Err(InvalidName(text.escape_debug().to_string())) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The name of a source: one configured endpoint, `/webhooks/{source}`.
    SourceName
}

name! {
    /// The name of a handler: code that acts on events.
    HandlerName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_lower_case_and_starts_plainly() {
        let long = "a".repeat(63);
        for good in ["stripe", "a", "0", "stripe-eu_2", &long] {
            assert!(SourceName::new(good).is_ok(), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in ["", "-a", "_a", "Stripe", "a.b", "a/b", "a%2e", "a b", "ä", "a\n", &too_long] {
            assert!(SourceName::new(bad).is_err(), "{bad}");
        }
    }
}

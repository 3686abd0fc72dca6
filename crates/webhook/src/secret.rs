//! Secrets. They are never blank and never printed.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// A shared secret or key. It has no `Display`, and its `Debug` does not show its text.
#[derive(Clone)]
pub struct Secret(SecretString);

/// The secret is blank. A blank secret would prove nothing, because everyone can sign with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is blank")]
pub struct BlankSecret;

impl Secret {
    /// Takes `text` unless it is blank.
    pub fn new(text: impl Into<String>) -> Result<Self, BlankSecret> {
        let secret = SecretString::from(text.into());
        if secret.expose_secret().trim().is_empty() { Err(BlankSecret) } else { Ok(Self(secret)) }
    }

    /// The secret's text. Use it only for signing.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(REDACTED)")
    }
}

/// The secrets of one source. Any of them may match, so that a provider's secret can be rotated without downtime.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Gathers the secrets of one source.
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self(secrets)
    }

    /// The secrets, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }

    /// Whether there is no secret at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_secret_is_refused() {
        for blank in ["", " ", "\t\n"] {
            assert_eq!(Secret::new(blank).err(), Some(BlankSecret));
        }
    }

    #[test]
    fn debug_shows_nothing_of_a_secret() {
        let secrets = Secrets::new(vec![Secret::new("whsec_canary").expect("not blank")]);
        assert!(!format!("{secrets:?}").contains("canary"));
    }
}

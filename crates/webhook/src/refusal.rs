//! Why a request is not taken for genuine.

use time::Duration;

/// The reason of a refusal. It is for the operator, in the log and in `hookfast verify`; the sender learns only that it
/// was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header that carries the proof is absent or empty.
    #[error(
        "the header `{0}` is missing or empty: the sender is not this provider, or a proxy in between dropped the header"
    )]
    MissingHeader(&'static str),
    /// A header that carries the proof stands there more than once.
    #[error("the header `{0}` was sent more than once, so it is unclear which one counts")]
    RepeatedHeader(&'static str),
    /// A header that carries the proof cannot be understood.
    #[error("the header `{name}` cannot be understood: {problem}")]
    MalformedHeader {
        /// The header.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// No secret of the source gives any of the signatures.
    #[error(
        "no secret of this source gives this signature: the secret is another one, or the body was changed or re-encoded \
         on the way"
    )]
    WrongSignature,
    /// The signature is good, but old: perhaps a recorded request that is played again.
    #[error(
        "the signature is good but {} s old, and only {} s are allowed: a replay, or one of the clocks is wrong",
        age.whole_seconds(), tolerance.whole_seconds()
    )]
    Stale {
        /// How old the signature is.
        age: Duration,
        /// How old it may be.
        tolerance: Duration,
    },
    /// The source has no usable secret, so nothing can be verified.
    #[error("the source has no usable secret, so nothing can be verified")]
    NoSecret,
    /// There is no such source; see `conceal_sources` in the configuration.
    #[error("there is no source of this name")]
    NoSource,
}

impl Refusal {
    /// The reason as one word, for metrics and machines.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingHeader(_) => "missing_header",
            Self::RepeatedHeader(_) => "repeated_header",
            Self::MalformedHeader { .. } => "malformed_header",
            Self::WrongSignature => "wrong_signature",
            Self::Stale { .. } => "stale",
            Self::NoSecret => "no_secret",
            Self::NoSource => "no_source",
        }
    }

    /// Every word that [`Refusal::reason`] can give.
    pub const REASONS: [&'static str; 7] =
        ["missing_header", "repeated_header", "malformed_header", "wrong_signature", "stale", "no_secret", "no_source"];
}

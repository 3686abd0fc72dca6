//! The reasons why a request does not count as genuine.

use std::borrow::Cow;

use http::{HeaderName, StatusCode};
use time::Duration;

/// The reason of a refusal. Operators see it in the log and in `hookfast verify`. The sender learns only that the
/// request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header that carries the proof is absent or empty.
    #[error(
        "the header `{0}` is missing or empty: the sender is not this provider, or a proxy in between dropped the header"
    )]
    MissingHeader(HeaderName),
    /// The request has a header that carries the proof more than once.
    #[error("the header `{0}` was sent more than once, so it is unclear which one counts")]
    RepeatedHeader(HeaderName),
    /// A header that carries the proof cannot be understood.
    #[error("the header `{name}` cannot be understood: {problem}")]
    MalformedHeader {
        /// The header.
        name: HeaderName,
        /// The problem with it.
        problem: Cow<'static, str>,
    },
    /// A part of the proof that is not in a header is absent, doubled or not text.
    #[error("`{0}` is missing, doubled or not text, and the proof needs it: the sender is not this provider")]
    Missing(String),
    /// No secret of the source makes any of the signatures.
    #[error(
        "no secret of this source gives this signature: the secret is another one, or the body was changed or re-encoded \
         on the way"
    )]
    WrongSignature,
    /// The token in the request is none of the source's secrets.
    #[error("the token is none of this source's secrets")]
    WrongToken,
    /// A handshake with a wrong verify token. Providers expect a 403 here.
    #[error("the verify token of this handshake is not the configured one")]
    WrongVerifyToken,
    /// The request says that it is meant for another endpoint.
    #[error("`{0}` is not the configured one: the request is meant for another endpoint, or made up")]
    NotOurs(&'static str),
    /// The signature is good but does not cover the body.
    #[error("{0}")]
    UnprotectedBody(&'static str),
    /// The signature is good but does not cover the type of the events, and the source refuses such requests.
    #[error(
        "the type of its events is not signed, so an attacker with a recorded request could have chosen it: this source \
         refuses such requests with `unsigned_type = \"refuse\"`"
    )]
    UnsignedType,
    /// The signature is good, but its time differs too much from now. It may be a recorded request that an attacker
    /// sends again.
    #[error("{}", stale(*age, *tolerance))]
    Stale {
        /// The age of the signature; negative if its time is in the future.
        age: Duration,
        /// The greatest age that is allowed.
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
    /// The reason as one word, for metrics and programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingHeader(_) => "missing_header",
            Self::RepeatedHeader(_) => "repeated_header",
            Self::MalformedHeader { .. } => "malformed_header",
            Self::Missing(_) => "missing",
            Self::WrongSignature => "wrong_signature",
            Self::WrongToken => "wrong_token",
            Self::WrongVerifyToken => "wrong_verify_token",
            Self::NotOurs(_) => "not_ours",
            Self::UnprotectedBody(_) => "unprotected_body",
            Self::UnsignedType => "unsigned_type",
            Self::Stale { .. } => "stale",
            Self::NoSecret => "no_secret",
            Self::NoSource => "no_source",
        }
    }

    /// The HTTP status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            // Providers expect this for a handshake with a wrong token.
            Self::WrongVerifyToken => StatusCode::FORBIDDEN,
            _ => StatusCode::UNAUTHORIZED,
        }
    }

    /// Every value of [`Refusal::reason`].
    pub const REASONS: [&'static str; 13] = [
        "missing_header",
        "repeated_header",
        "malformed_header",
        "missing",
        "wrong_signature",
        "wrong_token",
        "wrong_verify_token",
        "not_ours",
        "unprotected_body",
        "unsigned_type",
        "stale",
        "no_secret",
        "no_source",
    ];
}

fn stale(age: Duration, tolerance: Duration) -> String {
    let (seconds, tolerance) = (age.whole_seconds().unsigned_abs(), tolerance.whole_seconds());
    let (when, replay) = if age.is_negative() { ("in the future", "") } else { ("old", "a replay, or ") };
    format!(
        "the signature is good but {seconds} s {when}, and only {tolerance} s are allowed: {replay}the sender's clock or \
         this machine's is {} off",
        roughly(seconds)
    )
}

fn roughly(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} minutes", seconds / 60),
        7200..=172_799 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_signature_says_which_way_and_how_far_the_clocks_are_off() {
        let words = |age| Refusal::Stale { age, tolerance: Duration::seconds(300) }.to_string();
        assert!(words(Duration::seconds(301)).contains("301 s old, and only 300 s are allowed"));
        assert!(
            words(Duration::minutes(8)).contains("a replay, or the sender's clock or this machine's is 8 minutes off")
        );
        assert!(
            words(-Duration::hours(3)).contains("10800 s in the future") && !words(-Duration::HOUR).contains("replay")
        );
        assert!(words(Duration::seconds(i64::MIN)).contains("days off"));
    }
}

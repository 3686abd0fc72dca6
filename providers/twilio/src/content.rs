//! Decides where the content of a request is, and so what the signature must cover.
//!
//! Method and content type are not signed: an attacker with one genuine request can change both. If they decided, the
//! attacker could declare a body to be of a kind that the signature does not cover. So only URL and body decide, for
//! proving and for reading, and in every case the body is covered:
//!
//! | the URL has `bodySHA256` | the body is | the signature covers | and |
//! | --- | --- | --- | --- |
//! | yes | anything | the URL | the hash must match the body |
//! | no | not empty | the URL and the body's parameters, whatever the body looks like | |
//! | no | empty | the URL | there is nothing else |

use hookfast_webhook::{Request, form};

const BODY_HASH: &str = "bodySHA256";

/// Where the content of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// In a body whose hash is in the URL: JSON.
    HashedBody,
    /// In the body, as parameters.
    Form,
    /// In the URL, as parameters.
    Query,
}

impl Content {
    pub(crate) fn of(request: &Request) -> Self {
        if body_hashes(&request.url).next().is_some() {
            Self::HashedBody
        } else if request.body.is_empty() {
            Self::Query
        } else {
            Self::Form
        }
    }
}

/// The body hashes that a URL contains. A URL with more than one is refused like one with none.
pub(crate) fn body_hashes(url: &str) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    form::pairs(form::query(url).as_bytes()).filter(|(name, _)| name == BODY_HASH).map(|(_, hash)| hash)
}

/// The URL with the hash of a body added.
pub(crate) fn with_body_hash(url: &str, hash: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{BODY_HASH}={hash}")
}

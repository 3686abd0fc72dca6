//! Where the content of a request stands, and so what the signature must cover.
//!
//! Method and content type are outside the signature: whoever holds one genuine request can change them at will. If they
//! decided, a body could be declared to be something that is not covered. So URL and body alone decide, for proving and
//! for reading alike, and every answer to the question covers the body:
//!
//! | the URL has `bodySHA256` | the body is | signed is | and |
//! | --- | --- | --- | --- |
//! | yes | anything | the URL | the hash must be the body's |
//! | no | not empty | the URL and the body's parameters, whatever the body looks like | |
//! | no | empty | the URL | there is nothing else |

use hookfast_webhook::{Request, form};

const BODY_HASH: &str = "bodySHA256";

/// Where the content of a request stands.
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

/// The hashes of the body that a URL has; one too many is as bad as none.
pub(crate) fn body_hashes(url: &str) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    form::pairs(form::query(url).as_bytes()).filter(|(name, _)| name == BODY_HASH).map(|(_, hash)| hash)
}

/// The URL with the hash of a body added.
pub(crate) fn with_body_hash(url: &str, hash: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{BODY_HASH}={hash}")
}

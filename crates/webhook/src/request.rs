//! A request, before anything is known about it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};

use crate::Refusal;

/// A request with its original bytes: not decoded, not normalised, not verified.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The public URL that the sender used. Path and query are the received bytes. Scheme and host come from the
    /// configuration, because some providers sign the URL, and a header must not be able to change it.
    pub url: String,
    /// The headers. Several values of one name keep their order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
}

impl Request {
    /// The text of a header that the proof needs, or the refusal if it is missing.
    pub fn proof_header(&self, name: &HeaderName) -> Result<&str, Refusal> {
        let value = self.headers.get(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| Refusal::MissingHeader(name.clone()))?;
        let problem = "it is not plain text";
        value.to_str().map_err(|_| Refusal::MalformedHeader { name: name.clone(), problem: problem.into() })
    }
}

//! What a provider sent, before anything is known about it.

use bytes::Bytes;
use http::{HeaderMap, Method};

/// A request as it came: nothing decoded, nothing normalised, nothing verified.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The public URL the sender used. Path and query are the received bytes; scheme and host come from configuration,
    /// because some providers sign the URL and a header must not be able to change it.
    pub url: String,
    /// The headers; repeats of one name keep their order.
    pub headers: HeaderMap,
    /// The body, byte for byte.
    pub body: Bytes,
}

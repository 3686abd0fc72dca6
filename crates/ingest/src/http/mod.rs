//! The parts of HTTP that hyper does not do: connection caps, deadlines for silent clients, routing to endpoints, and
//! the responses.

pub(crate) mod caps;
pub(crate) mod connection;
pub(crate) mod host;
pub(crate) mod listener;
pub(crate) mod path;
pub(crate) mod response;
pub(crate) mod service;

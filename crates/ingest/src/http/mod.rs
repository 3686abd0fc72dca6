//! What hyper leaves to us: caps on connections, deadlines for silent clients, which endpoint a request is for, and how an answer
//! is written.

pub(crate) mod caps;
pub(crate) mod connection;
pub(crate) mod host;
pub(crate) mod listener;
pub(crate) mod path;
pub(crate) mod response;
pub(crate) mod service;

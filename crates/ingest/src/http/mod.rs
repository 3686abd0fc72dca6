//! What hyper leaves to us: caps on connections, deadlines for silent clients, and which request this is.

pub(crate) mod caps;
pub(crate) mod connection;
pub(crate) mod listener;
pub(crate) mod path;

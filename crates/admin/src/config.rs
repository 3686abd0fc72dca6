//! What can be set, with its defaults. `deploy/hookfast.toml` documents every key; a test compares the two.

use std::net::{Ipv4Addr, SocketAddr};

use crate::HostName;

/// The settings of the listener for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where operators look.
    pub listen: SocketAddr,
    /// Names by which they reach it, beside those of this machine.
    pub hosts: Vec<HostName>,
}

impl Default for Config {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 8081).into(), hosts: Vec::new() }
    }
}

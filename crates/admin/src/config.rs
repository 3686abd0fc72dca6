//! The settings of the operators' listener, with their defaults. `deploy/hookfast.toml` documents every key; a test
//! compares the two.

use std::net::{Ipv4Addr, SocketAddr};

use crate::HostName;

/// The settings of the operators' listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The address of the listener.
    pub listen: SocketAddr,
    /// Further host names that requests may use, besides those of this machine.
    pub hosts: Vec<HostName>,
}

impl Default for Config {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 8081).into(), hosts: Vec::new() }
    }
}

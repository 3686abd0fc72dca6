//! What can be set, with its defaults. `deploy/hookfast.toml` documents every key; a test compares the two.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use governor::Quota;
use hookfast_webhook::PriorityRules;

use crate::AddressRange;

/// The settings of the listener and of what all sources share.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where providers post.
    pub listen: SocketAddr,
    /// The scheme and host under which providers reach us. Providers that sign the URL sign this one.
    pub public_url: Option<String>,
    /// Whether trusted proxies say what scheme and host the sender used.
    pub forwarded_url: bool,
    /// How long the sender waits for an answer, from the end of its body.
    pub answer_deadline: Duration,
    /// How many requests may wait for a commit.
    pub queue_requests: usize,
    /// How many events share a commit.
    pub batch_events: usize,
    /// How many bytes share a commit: bodies, headers, and what is kept beside them.
    pub batch_bytes: u64,
    /// How many bytes of bodies may be in memory.
    pub body_memory: u64,
    /// How many connections may be open.
    pub connections: usize,
    /// How many of them from one address. Trusted proxies are exempt.
    pub connections_per_address: usize,
    /// How long a request's head may take, from its first byte; and a new connection until its first byte.
    pub header_timeout: Duration,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// How long a body may give no byte.
    pub stall_timeout: Duration,
    /// How long a connection may be silent: between requests, or not reading our answer.
    pub idle_timeout: Duration,
    /// How long a connection may live; the request under way is finished.
    pub connection_lifetime: Duration,
    /// How long a shutdown waits for requests under way.
    pub shutdown_timeout: Duration,
    /// Proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<AddressRange>,
    /// How many requests one address may send.
    pub rate_per_address: Option<Rate>,
    /// How many requests of one address are refused as not genuine before it is turned away for a while.
    pub refusals_per_address: Rate,
    /// Answer unknown sources as if their signature were wrong.
    pub conceal_sources: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            public_url: None,
            forwarded_url: false,
            answer_deadline: Duration::from_millis(450),
            queue_requests: 4096,
            batch_events: 256,
            batch_bytes: 4 * 1024 * 1024,
            body_memory: 256 * 1024 * 1024,
            connections: 4096,
            connections_per_address: 1024,
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(75),
            connection_lifetime: Duration::from_secs(3600),
            shutdown_timeout: Duration::from_secs(10),
            trusted_proxies: Vec::new(),
            rate_per_address: None,
            refusals_per_address: Rate { count: NonZeroU32::new(1_000).expect("not 0"), per_minute: false },
            conceal_sources: false,
        }
    }
}

/// The limits of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceLimits {
    /// The largest body.
    pub body_limit: u64,
    /// How many genuine requests the source takes.
    pub rate: Option<Rate>,
    /// How long the sender waits for an answer, if not as long as others.
    pub answer_deadline: Option<Duration>,
    /// Who may send; `None` is everybody, an empty list nobody.
    pub allow_from: Option<Vec<AddressRange>>,
    /// What becomes of requests whose events have a type that no signature covers.
    pub unsigned_type: UnsignedType,
    /// How urgent its events are, where the source says otherwise than its provider.
    pub priority: PriorityRules,
}

/// What becomes of requests whose events have a type that no signature covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnsignedType {
    /// They are taken; the proof that is stored with their events tells them apart.
    #[default]
    Accept,
    /// They are refused.
    Refuse,
}

impl FromStr for UnsignedType {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "accept" => Ok(Self::Accept),
            "refuse" => Ok(Self::Refuse),
            _ => Err("write \"accept\" or \"refuse\""),
        }
    }
}

impl Default for SourceLimits {
    fn default() -> Self {
        Self {
            body_limit: 10 * 1024 * 1024,
            rate: None,
            answer_deadline: None,
            allow_from: None,
            unsigned_type: UnsignedType::Accept,
            priority: PriorityRules::default(),
        }
    }
}

/// So many requests in a second or minute, such as `100/s`. As many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: NonZeroU32,
    per_minute: bool,
}

impl Rate {
    pub(crate) fn quota(self) -> Quota {
        if self.per_minute { Quota::per_minute(self.count) } else { Quota::per_second(self.count) }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (count, unit) = text.split_once('/')?;
            let per_minute = match unit {
                "s" => false,
                "m" => true,
                _ => return None,
            };
            Some(Self { count: count.parse().ok()?, per_minute })
        };
        parse().ok_or_else(|| "write a number and `/s` or `/m`, such as \"100/s\"".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        assert_eq!(
            "100/s".parse::<Rate>().map(Rate::quota),
            Ok(Quota::per_second(NonZeroU32::new(100).expect("not 0")))
        );
        assert_eq!("60/m".parse::<Rate>().map(Rate::quota), Ok(Quota::per_minute(NonZeroU32::new(60).expect("not 0"))));
        for bad in ["", "0/s", "-1/s", "10", "10/h", "ten/s", "1.5/s"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}

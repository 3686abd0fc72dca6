//! The settings of receiving, with their defaults. `deploy/hookfast.toml` documents every key; a test compares the two.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use governor::Quota;
use hookfast_webhook::PriorityRules;

use crate::AddressRange;

/// The settings of the listener, and those that all sources share.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The address on which the gateway listens for webhooks.
    pub listen: SocketAddr,
    /// Scheme and host under which providers reach the gateway. Some providers sign the URL, and they sign it with
    /// these.
    pub public_url: Option<String>,
    /// Whether scheme and host are taken from the headers that trusted proxies add.
    pub forwarded_url: bool,
    /// A sender gets its answer at most this long after the end of its body.
    pub answer_deadline: Duration,
    /// The most requests that may wait for a commit.
    pub queue_requests: usize,
    /// The most events in one commit.
    pub batch_events: usize,
    /// The most bytes in one commit: bodies, headers, and everything else that is kept for a request.
    pub batch_bytes: u64,
    /// The most memory that bodies may use together, in bytes.
    pub body_memory: u64,
    /// The most open connections.
    pub connections: usize,
    /// The most open connections from one address. Trusted proxies are exempt.
    pub connections_per_address: usize,
    /// The longest time from the first byte of a request's head to its last, and from accepting a connection to its
    /// first byte.
    pub header_timeout: Duration,
    /// The longest time for a whole body.
    pub body_timeout: Duration,
    /// The longest time without a new byte of a body.
    pub stall_timeout: Duration,
    /// The longest silence of a connection: between requests, or while the sender does not read the answer.
    pub idle_timeout: Duration,
    /// The longest life of a connection. The request under way is finished.
    pub connection_lifetime: Duration,
    /// The longest time that a shutdown waits for requests under way.
    pub shutdown_timeout: Duration,
    /// Proxies whose `X-Forwarded-For` header is believed.
    pub trusted_proxies: Vec<AddressRange>,
    /// The highest rate of requests from one address.
    pub rate_per_address: Option<Rate>,
    /// The highest rate of refused requests from one address, before the address is turned away for a while.
    pub refusals_per_address: Rate,
    /// Whether unknown sources are answered as if the signature were wrong.
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
    /// The highest rate of genuine requests.
    pub rate: Option<Rate>,
    /// Replaces [`Config::answer_deadline`] for this source.
    pub answer_deadline: Option<Duration>,
    /// The addresses that may send. `None` allows every address, an empty list allows none.
    pub allow_from: Option<Vec<AddressRange>>,
    /// Whether the source takes requests whose events have a type that no signature covers.
    pub unsigned_type: UnsignedType,
    /// Priorities of this source's events, which replace those that the provider gives them.
    pub priority: PriorityRules,
}

/// Whether a source takes requests whose events have a type that no signature covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnsignedType {
    /// Takes them. The proof that is stored with each event shows that its type was not signed.
    #[default]
    Accept,
    /// Refuses them.
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

/// A number of requests per second or minute, such as `100/s`. A burst may have the same number.
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

//! The address of a client: the peer's address, or the address that a trusted proxy names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::HeaderMap;
use ipnet::IpNet;

/// An address or a range of addresses, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange(IpNet);

impl AddressRange {
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(|address| canonical(address).into()));
        range.map(Self).map_err(|_| "write an address or a range, such as \"203.0.113.7\" or \"10.0.0.0/8\"".into())
    }
}

/// An IPv4-mapped IPv6 address counts as IPv4, so that a rule for an IPv4 address holds for both forms.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// The address that rate limits and connection caps count by: an IPv6 host can use every address of its /64.
pub(crate) fn limited_as(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// The network that shares of memory and the limit of refusals count by: an IPv6 customer can use every address of a
/// /48.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 80)).into(),
    }
}

/// The client's address. Each proxy appends an address to the right end of `X-Forwarded-For`, and the client can write
/// anything to the left of those. So the header is read from the right, and the first address that is not a trusted
/// proxy is the client. If an entry on the way cannot be parsed, the peer is the client.
pub(crate) fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[AddressRange]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|range| range.contains(address));
    let peer = canonical(peer);
    if !is_trusted(peer) {
        return peer;
    }
    let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    let hops = values.iter().rev().flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
    let mut client = peer;
    for hop in hops {
        match parse_hop(hop) {
            Some(address) if is_trusted(address) => client = address,
            Some(address) => return address,
            None => return peer,
        }
    }
    client
}

/// Scheme and host that the sender used, according to a trusted proxy. Each header must come once. Only the last value
/// of a list counts: the values before it were written before the request reached that proxy.
pub(crate) fn forwarded_url(peer: IpAddr, headers: &HeaderMap, trusted: &[AddressRange]) -> Option<String> {
    if !trusted.iter().any(|range| range.contains(canonical(peer))) {
        return None;
    }
    let said = |name| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        let value = value.rsplit(',').next()?.trim();
        values.next().is_none().then_some(value)
    };
    let scheme = said("x-forwarded-proto").filter(|scheme| ["http", "https"].contains(scheme))?;
    let host = said("x-forwarded-host")?;
    let is_host = http::uri::Authority::try_from(host).is_ok() && !host.contains('@');
    is_host.then(|| format!("{scheme}://{host}"))
}

/// Parses `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:4711`. An address with a zone
/// (`%eth0`) is not accepted, because a zone has a meaning only on the proxy's own machine.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(canonical)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client_of(peer: &str, forwarded: &[&'static str]) -> String {
        let trusted: Vec<AddressRange> =
            ["10.0.0.0/8", "2001:db8:1::/48"].iter().map(|range| range.parse().expect("a range")).collect();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", HeaderValue::from_static(value));
        }
        client(peer.parse().expect("an address"), &headers, &trusted).to_string()
    }

    #[test]
    fn the_header_of_an_untrusted_peer_counts_for_nothing() {
        assert_eq!(client_of("203.0.113.9", &["198.51.100.1"]), "203.0.113.9");
    }

    #[test]
    fn the_rightmost_address_that_is_no_proxy_of_ours_is_the_client() {
        assert_eq!(client_of("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client_of("10.0.0.1", &["192.0.2.66, 198.51.100.1"]), "198.51.100.1");
        assert_eq!(client_of("10.0.0.1", &["192.0.2.66, 198.51.100.1, 10.9.9.9"]), "198.51.100.1");
        assert_eq!(client_of("10.0.0.1", &["192.0.2.66", "198.51.100.1,10.9.9.9"]), "198.51.100.1");
        assert_eq!(client_of("2001:db8:1::5", &["198.51.100.1"]), "198.51.100.1");
    }

    #[test]
    fn without_a_usable_address_the_peer_is_the_client() {
        assert_eq!(client_of("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client_of("10.0.0.1", &["198.51.100.1, unknown"]), "10.0.0.1");
        assert_eq!(client_of("10.0.0.1", &["198.51.100.1, fe80::1%eth0"]), "10.0.0.1");
        assert_eq!(client_of("10.0.0.1", &["198.51.100.1,"]), "10.0.0.1");
        assert_eq!(client_of("10.0.0.1", &["10.0.0.2, 10.0.0.3"]), "10.0.0.2");
    }

    #[test]
    fn ports_brackets_and_mapped_addresses_are_understood() {
        for hop in ["198.51.100.1:4711", "::ffff:198.51.100.1", "[::ffff:198.51.100.1]:4711"] {
            assert_eq!(parse_hop(hop.as_bytes()).map(|address| address.to_string()), Some("198.51.100.1".into()));
        }
        for hop in ["[2001:db8::1]", "[2001:db8::1]:4711", " 2001:db8::1 "] {
            assert_eq!(parse_hop(hop.as_bytes()).map(|address| address.to_string()), Some("2001:db8::1".into()));
        }
        assert_eq!(client_of("::ffff:10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
    }

    #[test]
    fn an_ipv6_host_cannot_hop_out_of_its_limit() {
        let key = |text: &str| limited_as(text.parse().expect("an address"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        let key = |text: &str| network_of(text.parse().expect("an address"));
        assert_eq!(key("2001:db8:7::1"), key("2001:db8:7:ffff::1"));
        assert_ne!(key("2001:db8:7::1"), key("2001:db8:8::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }

    #[test]
    fn only_a_trusted_proxy_says_what_url_the_sender_used() {
        let url = |peer: &str, pairs: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in pairs {
                map.append(*name, HeaderValue::from_static(value));
            }
            forwarded_url(peer.parse().expect("an address"), &map, &["10.0.0.0/8".parse().expect("a range")])
        };
        let said = [("x-forwarded-proto", "https"), ("x-forwarded-host", "a.example:8443")];
        assert_eq!(url("10.0.0.1", &said).as_deref(), Some("https://a.example:8443"));
        assert_eq!(url("192.0.2.1", &said), None);
        let chain = [("x-forwarded-proto", "http, https"), ("x-forwarded-host", "evil.example, a.example")];
        assert_eq!(url("10.0.0.1", &chain).as_deref(), Some("https://a.example"));
        for bad in [
            [("x-forwarded-proto", "ftp"), ("x-forwarded-host", "a.example")],
            [("x-forwarded-proto", "https"), ("x-forwarded-host", "u@a.example")],
            [("x-forwarded-proto", "https"), ("x-forwarded-proto", "https")],
        ] {
            assert_eq!(url("10.0.0.1", &bad), None, "{bad:?}");
        }
    }
}

//! How many connections may be open: in all, and from one address, so that one client cannot take every place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, counter, gauge};

use crate::address::limited_as;
use crate::{AddressRange, Config};

pub(crate) struct ConnectionCaps {
    total: usize,
    per_address: usize,
    exempt: Vec<AddressRange>,
    open: Mutex<Open>,
    gauge: Gauge,
    refused: Counter,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection's place; given back when dropped.
pub(crate) struct Place {
    caps: Arc<ConnectionCaps>,
    address: IpAddr,
}

impl ConnectionCaps {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            total: config.connections,
            per_address: config.connections_per_address,
            exempt: config.trusted_proxies.clone(),
            open: Mutex::default(),
            gauge: gauge!("hookfast_connections"),
            refused: counter!("hookfast_connections_refused_total"),
        }
    }

    /// A place for a connection from `peer`, if there is one.
    pub(crate) fn take_place(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let address = limited_as(peer);
        let per_address =
            if self.exempt.iter().any(|range| range.contains(peer)) { usize::MAX } else { self.per_address };
        let mut open = self.open();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        if open.total >= self.total || from_address >= per_address {
            self.refused.increment(1);
            return None;
        }
        open.total += 1;
        open.by_address.insert(address, from_address + 1);
        self.gauge.set(open.total as f64);
        Some(Place { caps: Arc::clone(self), address })
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        // Nothing in here can panic half-way.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.caps.open();
        open.total -= 1;
        if let Some(count) = open.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&self.address);
            }
        }
        self.caps.gauge.set(open.total as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps() -> Arc<ConnectionCaps> {
        let trusted_proxies = vec!["10.0.0.0/8".parse().expect("a range")];
        Arc::new(ConnectionCaps::new(&Config {
            connections: 4,
            connections_per_address: 2,
            trusted_proxies,
            ..Config::default()
        }))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let caps = caps();
        let _first = (caps.take_place(address("192.0.2.1")), caps.take_place(address("192.0.2.1")));
        assert!(caps.take_place(address("192.0.2.1")).is_none());
        assert!(caps.take_place(address("192.0.2.2")).is_some());
    }

    #[test]
    fn a_trusted_proxy_may_have_all_places_but_no_more() {
        let caps = caps();
        let places: Vec<_> = (0..5).map(|_| caps.take_place(address("10.0.0.1"))).collect();
        assert_eq!(places.iter().filter(|place| place.is_some()).count(), 4);
    }

    #[test]
    fn a_place_comes_back() {
        let caps = caps();
        for _ in 0..100 {
            assert!(caps.take_place(address("192.0.2.1")).is_some());
        }
        assert!(caps.open().by_address.is_empty());
    }
}

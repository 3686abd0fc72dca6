//! Caps on open connections: in all, and by address, so that one client cannot take every place. When all places are taken, a
//! silent connection is closed for the next one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use tokio::time::Instant;

use crate::address::limited_as;
use crate::http::connection::{Activity, Worth};
use crate::{AddressRange, Config};

/// Silent connections that are found at a time, because looking at all connections costs.
const SILENT_AT_ONCE: usize = 64;

/// Wait before the next look when no connection was silent.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

pub(crate) struct ConnectionCaps {
    total: usize,
    per_address: usize,
    trusted: Vec<AddressRange>,
    open: Mutex<Open>,
    gauge: Gauge,
    refused: Counter,
    evicted: Counter,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Connection>,
    by_address: HashMap<IpAddr, usize>,
    next_id: u64,
    /// Connections that were silent, those worth least at the end.
    silent: Vec<(Worth, u64)>,
    look_again: Option<Instant>,
}

struct Connection {
    address: IpAddr,
    activity: Activity,
}

/// A connection's place; given back when dropped.
pub(crate) struct Place {
    caps: Arc<ConnectionCaps>,
    id: u64,
    pub(crate) activity: Activity,
}

impl ConnectionCaps {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            total: config.connections,
            per_address: config.connections_per_address,
            trusted: config.trusted_proxies.clone(),
            open: Mutex::default(),
            gauge: gauge!("hookfast_connections"),
            refused: counter!("hookfast_connections_refused_total"),
            evicted: counter!("hookfast_connections_evicted_total"),
        }
    }

    /// A place for a connection from `peer`, if there is one.
    pub(crate) fn take_place(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let address = limited_as(peer);
        let is_trusted = self.trusted.iter().any(|range| range.contains(peer));
        let mut open = self.open();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        if from_address >= self.per_address && !is_trusted || !self.has_room(&mut open) {
            self.refused.increment(1);
            return None;
        }
        let (id, activity) = (open.next_id, Activity::new(is_trusted));
        open.next_id += 1;
        open.connections.insert(id, Connection { address, activity: activity.clone() });
        *open.by_address.entry(address).or_default() += 1;
        self.gauge.set(open.connections.len() as f64);
        Some(Place { caps: Arc::clone(self), id, activity })
    }

    /// Whether there is room for one more; a silent connection gives way if need be.
    fn has_room(&self, open: &mut Open) -> bool {
        if open.connections.len() < self.total {
            return true;
        }
        let Some(evicted) = open.take_silent() else { return false };
        open.remove(evicted).inspect(|connection| connection.activity.evict());
        self.evicted.increment(1);
        true
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        // No code panics while it holds the lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The silent connection that is worth least.
    fn take_silent(&mut self) -> Option<u64> {
        self.next_silent().or_else(|| {
            self.look_for_silent();
            self.next_silent()
        })
    }

    /// One of those that were found silent, if it has been silent since.
    fn next_silent(&mut self) -> Option<u64> {
        while let Some((worth, id)) = self.silent.pop() {
            if self.connections.get(&id).is_some_and(|connection| connection.activity.worth() == Some(worth)) {
                return Some(id);
            }
        }
        None
    }

    fn look_for_silent(&mut self) {
        let now = Instant::now();
        if self.look_again.is_some_and(|time| now < time) {
            return;
        }
        let worth = |(id, connection): (&u64, &Connection)| Some((connection.activity.worth()?, *id));
        let mut silent: Vec<_> = self.connections.iter().filter_map(worth).collect();
        silent.sort_unstable();
        let unproven = silent.partition_point(|(worth, _)| !worth.is_proven);
        // While one that has proved something is about to go, another may come that has not: so only one is chosen then.
        silent.truncate(unproven.clamp(1, SILENT_AT_ONCE));
        silent.reverse();
        self.look_again = silent.is_empty().then(|| now + LOOK_AGAIN_AFTER);
        self.silent = silent;
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.caps.open();
        // One that gave way is gone already.
        open.remove(self.id);
        self.caps.gauge.set(open.connections.len() as f64);
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

    /// Takes places for connections that are at work.
    fn take_for_work(caps: &Arc<ConnectionCaps>, peer: &str, count: usize) -> Vec<Place> {
        let places = (0..count).filter_map(|_| caps.take_place(address(peer)));
        places.inspect(|place| place.activity.begin()).collect()
    }

    #[test]
    fn a_trusted_proxy_may_have_all_places_but_no_more() {
        let places = take_for_work(&caps(), "10.0.0.1", 5);
        assert_eq!(places.len(), 4);
    }

    /// Each /64 has its own places, so a network of /48 can have them all, but not keep them.
    #[test]
    fn hopping_in_an_ipv6_network_keeps_no_other_out() {
        let caps = caps();
        let hop = |number: u16| IpAddr::from([0x2001, 0xdb8, 7, number, 0, 0, 0, 1]);
        let same = (0..3).filter_map(|host| caps.take_place([0x2001, 0xdb8, 7, 0, 0, 0, 0, host].into()));
        assert_eq!(same.collect::<Vec<_>>().len(), 2, "one /64 is one client");
        let mut places: Vec<_> = (1..100).filter_map(|number| caps.take_place(hop(number))).collect();
        for number in 1..=4 {
            let place = caps.take_place([192, 0, 2, number].into()).expect("a silent one gives way");
            place.activity.begin();
            places.push(place);
        }
        assert_eq!(caps.open().by_address.len(), 4, "all places are the others' now");
    }

    #[test]
    fn a_connection_at_work_gives_way_to_no_other() {
        let caps = caps();
        let places = take_for_work(&caps, "10.0.0.1", 4);
        assert!(caps.take_place(address("192.0.2.1")).is_none());
        places[1].activity.set_at_work(false);
        caps.open().look_again = None;
        let _new = caps.take_place(address("192.0.2.1")).expect("a silent one gives way");
        assert!(!caps.open().connections.contains_key(&places[1].id));
        drop(places);
        assert_eq!(caps.open().connections.len(), 1, "a place is given back once");
    }

    #[test]
    fn a_connection_that_has_proved_nothing_gives_way_first() {
        let caps = caps();
        let mut places = take_for_work(&caps, "10.0.0.1", 2);
        let stranger = caps.take_place(address("192.0.2.1")).expect("a place");
        let genuine = caps.take_place(address("192.0.2.2")).expect("a place");
        genuine.activity.prove();
        let mut gone = stranger.id;
        for number in 3..6 {
            let new = caps.take_place([192, 0, 2, number].into()).expect("a silent one gives way");
            assert!(!caps.open().connections.contains_key(&gone));
            gone = new.id;
            places.push(new);
        }
        places[4].activity.begin();
        places.extend(caps.take_place(address("192.0.2.6")));
        assert!(!caps.open().connections.contains_key(&genuine.id), "it goes when there is no other");
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

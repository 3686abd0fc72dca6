//! Caps on open connections: a total, and one for each address, so that one client cannot take every place. When all
//! places are taken, a silent connection is closed to make room for a new one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use tokio::time::Instant;

use crate::address::limited_as;
use crate::http::connection::{Activity, Worth};
use crate::{AddressRange, Config};

/// One search through all connections, which is expensive, finds up to this many silent ones.
const SILENT_AT_ONCE: usize = 64;

/// Wait before the next search if no connection was silent.
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
    /// The silent connections that the last search found. Those to be closed first are at the end.
    silent: Vec<(Worth, u64)>,
    look_again: Option<Instant>,
}

struct Connection {
    address: IpAddr,
    activity: Activity,
}

/// A connection's place. Dropping it frees the place.
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

    /// Takes a place for a connection from `peer`, if one is free or can be freed.
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

    /// Whether there is room for one more connection. If all places are taken, closes a silent connection.
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
    /// The silent connection that is worth the least.
    fn take_silent(&mut self) -> Option<u64> {
        self.next_silent().or_else(|| {
            self.look_for_silent();
            self.next_silent()
        })
    }

    /// The next connection of the last search that has been silent ever since.
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
        // Before a second proven connection is closed, an unproven one may arrive. So at most one proven one is chosen.
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
        // An evicted connection was removed before; then this does nothing.
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

    /// Takes places for connections that are busy with a request.
    fn take_for_work(caps: &Arc<ConnectionCaps>, peer: &str, count: usize) -> Vec<Place> {
        let places = (0..count).filter_map(|_| caps.take_place(address(peer)));
        places.inspect(|place| place.activity.begin()).collect()
    }

    #[test]
    fn a_trusted_proxy_may_have_all_places_but_no_more() {
        let places = take_for_work(&caps(), "10.0.0.1", 5);
        assert_eq!(places.len(), 4);
    }

    /// Each /64 has its own places, so a /48 network can take all places, but not keep them.
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

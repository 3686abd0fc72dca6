//! The first step: [`Visit::admit`] decides by the head alone whether a request may send its body.
//!
//! Before it, `http` has found the source. After it, `body` reads the body. Two limits of this file apply in later
//! steps: the source's rate once a request is known to be genuine, and the limit of refusals once it is known not to
//! be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use http::request::Parts;
use tokio::time::Instant;

use crate::address::{limited_as, network_of};
use crate::rejection::Rejection;
use crate::stages::Visit;
use crate::{Config, Source};

/// For this time after a genuine request, a client is not turned away because of its refusals: several senders may
/// share its address.
const GENUINE_FOR: Duration = Duration::from_secs(60);

/// A request that passed the checks of its head. Its body may be read.
pub(crate) struct Admitted<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) head: Parts,
}

impl<'a> Visit<'a> {
    /// Refuses by method, address and rate, before a byte of the body is read.
    pub(crate) fn admit(self, head: Parts) -> Result<Admitted<'a>, Rejection> {
        self.ingest.limits.admit(&head, self.source, self.caller.address)?;
        Ok(Admitted { visit: self, head })
    }
}

/// The limits that all sources share.
pub(crate) struct Limits {
    per_address: Option<DefaultKeyedRateLimiter<IpAddr>>,
    refusals: Refusals,
    clock: DefaultClock,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            per_address: config.rate_per_address.map(|rate| RateLimiter::keyed(rate.quota())),
            refusals: Refusals::new(RateLimiter::keyed(config.refusals_per_address.quota())),
            clock: DefaultClock::default(),
        }
    }

    /// Checks method, address and rates.
    pub(crate) fn admit(&self, head: &Parts, source: &Source, client: IpAddr) -> Result<(), Rejection> {
        if !source.provider.methods().contains(&head.method) {
            return Err(Rejection::MethodNotAllowed(source.provider.methods().to_vec()));
        }
        if let Some(allowed) = &source.limits.allow_from
            && !allowed.iter().any(|range| range.contains(client))
        {
            return Err(Rejection::AddressNotAllowed);
        }
        if let Some(limiter) = &self.per_address {
            limiter.check_key(&limited_as(client)).map_err(|until| self.wait(&until))?;
        }
        self.refusals.admit(client).map_err(Rejection::RateLimited)
    }

    /// Counts a genuine request; an error if it exceeds the source's rate.
    pub(crate) fn admit_genuine(&self, source: &Source, client: IpAddr) -> Result<(), Rejection> {
        self.refusals.note_genuine(client);
        match &source.rate {
            Some(limiter) => limiter.check().map_err(|until| self.wait(&until)),
            None => Ok(()),
        }
    }

    /// Counts a refused request; an error if there were too many. If the client is not known, the request counts only
    /// against the source's limit, because many clients may share the address.
    pub(crate) fn note_refusal(&self, source: &Source, client: Option<IpAddr>) -> Result<(), Rejection> {
        if let Some(client) = client {
            self.refusals.note(client, &self.clock).map_err(Rejection::RateLimited)?;
        }
        source.refusals.check().map_err(|until| self.wait(&until))
    }

    fn wait(&self, until: &governor::NotUntil<<DefaultClock as governor::clock::Clock>::Instant>) -> Rejection {
        Rejection::RateLimited(until.wait_time_from(self.clock.now()))
    }

    /// Forgets addresses that have their full rate again, so that the memory does not fill up with addresses.
    pub(crate) fn forget_idle_addresses(&self) {
        if let Some(limiter) = &self.per_address {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        self.refusals.forget_idle();
    }
}

/// Clients whose requests were refused. A client with too many refusals is turned away for a while, before its body is
/// read.
struct Refusals {
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    clients: Mutex<HashMap<IpAddr, Refused>>,
    /// Whether `clients` has any entry, so that most genuine requests need not lock it.
    any: AtomicBool,
}

struct Refused {
    turned_away_until: Instant,
    genuine_until: Instant,
    forget_at: Instant,
}

impl Refusals {
    fn new(limiter: DefaultKeyedRateLimiter<IpAddr>) -> Self {
        Self { limiter, clients: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// The error says how long the client must wait.
    fn admit(&self, client: IpAddr) -> Result<(), Duration> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = Instant::now();
        match self.clients().get(&network_of(client)) {
            Some(refused) if refused.turned_away_until > now && refused.genuine_until <= now => {
                Err(refused.turned_away_until - now)
            }
            _ => Ok(()),
        }
    }

    fn note(&self, client: IpAddr, clock: &DefaultClock) -> Result<(), Duration> {
        let (client, now) = (network_of(client), Instant::now());
        let verdict = self.limiter.check_key(&client).map_err(|until| until.wait_time_from(clock.now()));
        let mut clients = self.clients();
        let refused =
            clients.entry(client).or_insert(Refused { turned_away_until: now, genuine_until: now, forget_at: now });
        refused.turned_away_until = now + verdict.err().unwrap_or_default();
        refused.forget_at = refused.turned_away_until + GENUINE_FOR;
        self.any.store(true, Ordering::Relaxed);
        verdict
    }

    fn note_genuine(&self, client: IpAddr) {
        if self.any.load(Ordering::Relaxed)
            && let Some(refused) = self.clients().get_mut(&network_of(client))
        {
            refused.genuine_until = Instant::now() + GENUINE_FOR;
        }
    }

    fn forget_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
        let (mut clients, now) = (self.clients(), Instant::now());
        clients.retain(|_, refused| refused.forget_at > now);
        clients.shrink_to_fit();
        self.any.store(!clients.is_empty(), Ordering::Relaxed);
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Refused>> {
        // No code panics while it holds the lock.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_source_refuses_has_a_limit_that_genuine_requests_do_not_meet() {
        let (limits, source) = (Limits::new(&Config::default()), Source::decoy());
        // No client is known, so only the limit of the source counts.
        let refused_in_full = (0..1_000_000).take_while(|_| limits.note_refusal(&source, None).is_ok()).count();
        assert!((10_000..1_000_000).contains(&refused_in_full), "{refused_in_full}");
        limits.admit_genuine(&source, [192, 0, 2, 1].into()).expect("there is no rate");
    }

    #[test]
    fn an_address_is_turned_away_for_refusals_unless_it_is_genuine() {
        let refusals_per_address = "3/m".parse().expect("a rate");
        let (limits, source) = (Limits::new(&Config { refusals_per_address, ..Config::default() }), Source::decoy());
        let client = |text: &str| text.parse::<IpAddr>().expect("an address");
        let attacker = client("2001:db8:7:1::1");
        let refused_in_full = (0..10).filter(|_| limits.note_refusal(&source, Some(attacker)).is_ok()).count();
        assert_eq!(refused_in_full, 3);
        assert!(limits.refusals.admit(attacker).is_err());
        assert!(limits.refusals.admit(client("2001:db8:7:2::1")).is_err(), "it is in the same network");
        assert!(limits.refusals.admit(client("2001:db8:8:1::1")).is_ok());
        limits.admit_genuine(&source, attacker).expect("there is no rate");
        assert!(limits.refusals.admit(attacker).is_ok());
        limits.forget_idle_addresses();
        assert!(limits.note_refusal(&source, Some(attacker)).is_err(), "it is not forgotten yet");
    }
}

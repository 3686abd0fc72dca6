//! The first stage: who may send what, how often. Everything here is decided before a byte of the body is read.

use std::net::IpAddr;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use http::request::Parts;
use http::uri::Authority;
use http::{Version, header};

use crate::address::limited_as;
use crate::answer::Rejection;
use crate::{Config, Source};

/// The limits that all sources share.
pub(crate) struct Limits {
    per_address: Option<DefaultKeyedRateLimiter<IpAddr>>,
    clock: DefaultClock,
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            per_address: config.rate_per_address.map(|rate| RateLimiter::keyed(rate.quota())),
            clock: DefaultClock::default(),
        }
    }

    /// Whether the source takes this request from this client.
    pub(crate) fn admit(&self, head: &Parts, source: &Source, client: IpAddr) -> Result<(), Rejection> {
        if !source.provider.methods().contains(&head.method) {
            return Err(Rejection::MethodNotAllowed(source.provider.methods().to_vec()));
        }
        if let Some(allowed) = &source.limits.allow_from
            && !allowed.iter().any(|range| range.contains(client))
        {
            return Err(Rejection::AddressNotAllowed);
        }
        self.admit_rate(source, client)
    }

    fn admit_rate(&self, source: &Source, client: IpAddr) -> Result<(), Rejection> {
        let wait = |until: governor::NotUntil<_>| Rejection::RateLimited(until.wait_time_from(self.clock.now()));
        if let Some(limiter) = &self.per_address {
            limiter.check_key(&limited_as(client)).map_err(wait)?;
        }
        if let Some(limiter) = &source.rate {
            limiter.check().map_err(wait)?;
        }
        Ok(())
    }

    /// Forgets addresses that have their full rate again, so that many addresses do not fill the memory.
    pub(crate) fn forget_idle_addresses(&self) {
        if let Some(limiter) = &self.per_address {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

/// hyper takes requests without a host or with two of them; a proxy before us might have chosen the other one.
pub(crate) fn check_host(head: &Parts) -> Result<(), Rejection> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Rejection::BadRequest("There is more than one Host."));
    }
    let Some(host) = host else {
        let optional = head.version == Version::HTTP_10;
        return if optional { Ok(()) } else { Err(Rejection::BadRequest("There is no Host.")) };
    };
    let not_a_host = Rejection::BadRequest("The Host is not a host.");
    // An authority may also name a user, which a host must not.
    let Some(host) = Authority::try_from(host.as_bytes()).ok().filter(|host| !host.as_str().contains('@')) else {
        return Err(not_a_host);
    };
    match head.uri.authority() {
        Some(other) if *other != host => Err(Rejection::BadRequest("The Host is not the one in the URL.")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(uri: &str, version: Version, hosts: &[&str]) -> bool {
        let mut request = Request::builder().uri(uri).version(version);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        check_host(&request.body(()).expect("a request").into_parts().0).is_ok()
    }

    #[test]
    fn there_must_be_one_host_and_no_other_in_the_url() {
        assert!(check("/x", Version::HTTP_11, &["a.example"]));
        assert!(check("http://a.example/x", Version::HTTP_11, &["A.example"]));
        assert!(check("/x", Version::HTTP_10, &[]));
        assert!(!check("/x", Version::HTTP_11, &[]));
        assert!(!check("/x", Version::HTTP_11, &["a.example", "a.example"]));
        assert!(!check("/x", Version::HTTP_11, &[""]));
        assert!(!check("/x", Version::HTTP_11, &["a.example/path"]));
        assert!(!check("/x", Version::HTTP_11, &["a.example@b.example"]));
        assert!(!check("http://b.example/x", Version::HTTP_11, &["a.example"]));
    }
}

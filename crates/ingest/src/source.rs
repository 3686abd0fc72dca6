//! A source: one configured endpoint.

use std::sync::Arc;

use governor::DefaultDirectRateLimiter;
use governor::RateLimiter;
use hookfast_webhook::{Answer, Proof, Provider, Reading, Refusal, Request, Secret, Secrets, SourceName, Unreadable};
use time::OffsetDateTime;

use crate::SourceLimits;
use crate::metrics::SourceMetrics;

/// One configured endpoint: a provider, its secrets, its limits.
pub struct Source {
    pub(crate) name: SourceName,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) secrets: Secrets,
    pub(crate) limits: SourceLimits,
    pub(crate) rate: Option<DefaultDirectRateLimiter>,
    pub(crate) metrics: SourceMetrics,
}

impl Source {
    /// A source as configured.
    pub fn new(name: SourceName, provider: Arc<dyn Provider>, secrets: Secrets, limits: SourceLimits) -> Self {
        let rate = limits.rate.map(|rate| RateLimiter::direct(rate.quota()));
        let metrics = SourceMetrics::new(&name);
        Self { name, provider, secrets, limits, rate, metrics }
    }

    /// What stands in for sources that do not exist where their absence is concealed: it refuses everything, late.
    pub(crate) fn decoy() -> Self {
        let name = SourceName::new("unknown").expect("`unknown` is a name");
        let secrets = Secrets::new(vec![Secret::new("decoy").expect("not blank")]);
        Self::new(name, Arc::new(Nobody), secrets, SourceLimits::default())
    }
}

/// A provider that nobody is.
struct Nobody;

impl Provider for Nobody {
    fn name(&self) -> &'static str {
        "nobody"
    }

    fn proof_headers(&self) -> &'static [&'static str] {
        &[]
    }

    fn prove(&self, _: &Request, _: &Secrets, _: OffsetDateTime) -> Result<Proof, Refusal> {
        Err(Refusal::NoSource)
    }

    fn read(&self, _: &Request) -> Result<Vec<Reading>, Unreadable> {
        Err(Unreadable("nobody's request".into()))
    }

    fn answer(&self) -> Answer {
        Answer::EMPTY_OK
    }

    fn sample(&self, url: &str, _: &Secret, _: OffsetDateTime, _: u64) -> Request {
        Request { method: http::Method::POST, url: url.into(), headers: Default::default(), body: Default::default() }
    }
}

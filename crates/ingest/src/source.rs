//! A source: one configured endpoint.

use std::num::NonZeroU32;
use std::sync::Arc;

use governor::DefaultDirectRateLimiter;
use governor::{Quota, RateLimiter};
use hookfast_webhook::{
    Endpoint, NoSample, Proved, Provider, Reading, Refusal, Request, SampleOrder, Secret, Secrets, SourceName,
    Unreadable,
};
use http::HeaderName;
use time::OffsetDateTime;

use crate::SourceLimits;
use crate::log_limit::LogLimit;
use crate::metrics::SourceMetrics;

/// Refusals per second that a source answers with their own status; more are answered 429. By default, one address may
/// cause a tenth of this.
const REFUSALS_PER_SECOND: NonZeroU32 = NonZeroU32::new(10_000).expect("not 0");

/// One configured endpoint: a provider, its secrets, its limits.
pub struct Source {
    pub(crate) name: SourceName,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) secrets: Secrets,
    pub(crate) limits: SourceLimits,
    pub(crate) rate: Option<DefaultDirectRateLimiter>,
    /// Limits the refusals that are answered with their own status.
    pub(crate) refusals: DefaultDirectRateLimiter,
    /// Limits explanations of refusals: each costs time, and one sender can cause many.
    pub(crate) explanations: DefaultDirectRateLimiter,
    pub(crate) log_limit: LogLimit,
    pub(crate) metrics: SourceMetrics,
}

impl Source {
    /// A source as configured.
    pub fn new(name: SourceName, provider: Arc<dyn Provider>, secrets: Secrets, limits: SourceLimits) -> Self {
        let rate = limits.rate.map(|rate| RateLimiter::direct(rate.quota()));
        let metrics = SourceMetrics::new(&name, &secrets);
        let refusals = RateLimiter::direct(Quota::per_second(REFUSALS_PER_SECOND));
        let explanations = RateLimiter::direct(Quota::per_second(NonZeroU32::MIN));
        let log_limit = LogLimit::new();
        Self { name, provider, secrets, limits, rate, refusals, explanations, log_limit, metrics }
    }

    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        Endpoint { source: self.name.as_str(), provider: self.provider.as_ref(), secrets: &self.secrets }
    }

    /// The source that stands in for unknown ones when `conceal_sources` is set. It refuses a request at the same step
    /// as a wrong signature would.
    pub(crate) fn decoy() -> Self {
        let name = SourceName::new("unknown").expect("`unknown` is a name");
        let secrets = Secrets::new(vec![Secret::new("decoy").expect("not blank")]);
        Self::new(name, Arc::new(Decoy), secrets, SourceLimits::default())
    }
}

/// Stands in for unknown sources when `conceal_sources` is set; refuses everything.
struct Decoy;

impl Provider for Decoy {
    fn name(&self) -> &str {
        "decoy"
    }

    fn proof_headers(&self) -> &[HeaderName] {
        &[]
    }

    fn prove(&self, _: &Request, _: &Secrets, _: OffsetDateTime) -> Result<Proved, Refusal> {
        Err(Refusal::NoSource)
    }

    fn read(&self, _: &Request) -> Result<Vec<Reading>, Unreadable> {
        Err(Unreadable("no provider reads this".into()))
    }

    fn sample_kinds(&self) -> Vec<&str> {
        Vec::new()
    }

    fn sample(&self, _: &SampleOrder<'_>) -> Result<Request, NoSample> {
        Err(NoSample("no provider sends anything".into()))
    }
}

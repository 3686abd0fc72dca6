//! What is fed: each provider with each of its settings that matter, and the secrets it holds.

use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use hookfast_catalog::{CatalogProvider, EMBEDDED};
use hookfast_webhook::{Endpoint, Provider, Request, SampleOrder, Secret, Secrets};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

/// The clock of all samples.
pub(crate) const NOW: i64 = 1_760_000_000;

const URL: &str = "https://hooks.example.com/webhooks/fuzz";

/// A source, as the gateway would have it.
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) config: Map<String, Value>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) secrets: Secrets,
    /// What the provider would sign with.
    pub(crate) key: Option<Secret>,
}

impl Target {
    /// A source with given secrets.
    pub(crate) fn new(name: &str, config: Map<String, Value>, secrets: Secrets) -> anyhow::Result<Self> {
        let provider = build(name, &config)?;
        let key = secrets.iter().next().cloned();
        Ok(Self { name: name.into(), config, provider, secrets, key })
    }

    /// A source for which we can sign. No two have the same key, so that nothing is genuine for two of them.
    fn with_own_key(name: &str, config: Map<String, Value>, number: u8) -> anyhow::Result<Self> {
        let provider = build(name, &config)?;
        let keys = provider.key_pair(&[number; 32]);
        let secrets = Secrets::new(vec![keys.verifying]);
        Ok(Self { name: name.into(), config, provider, secrets, key: Some(keys.signing) })
    }

    pub(crate) fn label(&self) -> String {
        if self.config.is_empty() { self.name.clone() } else { format!("{} {}", self.name, json!(self.config)) }
    }

    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        Endpoint { source: &self.name, provider: self.provider.as_ref(), secrets: &self.secrets }
    }

    /// One request of each kind that the provider sends.
    pub(crate) fn samples(&self) -> anyhow::Result<Vec<Request>> {
        let sample = |kind| {
            let order = SampleOrder { kind: Some(kind), url: URL, key: self.key.as_ref(), now: now(), serial: 1 };
            self.provider.sample(&order).with_context(|| format!("sample `{kind}` of {}", self.name))
        };
        self.provider.sample_kinds().into_iter().map(sample).collect()
    }
}

pub(crate) fn now() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(NOW)
}

/// Every provider, with each of its ways.
pub(crate) fn all() -> anyhow::Result<Vec<Target>> {
    let code = [
        ("stripe", json!({})),
        ("garmin", json!({})),
        ("garmin", json!({ "client_id": "client-1" })),
        ("strava", json!({})),
        ("strava", json!({ "mode": "signed", "subscription_id": 120_475, "verify_token": "token" })),
        ("strava", json!({ "mode": "unsigned" })),
        ("twilio", json!({})),
        ("twilio", json!({ "algorithm": "HMAC_SHA256", "key_id": "key-1" })),
        ("salla", json!({ "strategy": "signature" })),
        ("salla", json!({ "strategy": "token", "allow_bearer": true })),
        ("salla", json!({ "strategy": "none" })),
        ("whatsapp", json!({})),
        ("whatsapp", json!({ "verify_token": "token" })),
        ("daily", json!({})),
        ("daily", json!({ "tolerance_seconds": 300 })),
    ];
    let described = EMBEDDED.iter().map(|description| (description.name.as_str(), json!({})));
    code.into_iter()
        .chain(described)
        .zip(1..)
        .map(|((name, config), number)| {
            Target::with_own_key(name, config.as_object().cloned().unwrap_or_default(), number)
        })
        .collect()
}

fn build(name: &str, config: &Map<String, Value>) -> anyhow::Result<Arc<dyn Provider>> {
    Ok(match name {
        "stripe" => Arc::new(hookfast_stripe::Stripe::new(&settings(config)?)),
        "garmin" => Arc::new(hookfast_garmin::Garmin::new(&settings(config)?)),
        "strava" => Arc::new(hookfast_strava::Strava::new(&settings(config)?).map_err(|error| anyhow!(error))?),
        "twilio" => Arc::new(hookfast_twilio::Twilio::new(&settings(config)?)),
        "salla" => Arc::new(hookfast_salla::Salla::new(&settings(config)?)),
        "whatsapp" => Arc::new(hookfast_whatsapp::WhatsApp::new(&settings(config)?).map_err(|error| anyhow!(error))?),
        "daily" => Arc::new(hookfast_daily::Daily::new(&settings(config)?)),
        _ => match EMBEDDED.iter().find(|description| description.name == name) {
            Some(description) => Arc::new(CatalogProvider::new(Arc::clone(description), settings(config)?)),
            None => bail!("there is no provider `{name}`"),
        },
    })
}

pub(crate) fn settings<T: DeserializeOwned>(config: &Map<String, Value>) -> serde_json::Result<T> {
    serde_json::from_value(config.clone().into())
}

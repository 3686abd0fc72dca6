//! The providers that need code.

use std::sync::Arc;

use hookfast_webhook::Provider;
use toml::Table;

/// A provider that needs code.
pub(crate) struct Builtin {
    pub(super) name: &'static str,
    pub(super) settings: &'static [&'static str],
    /// What must be set and has no default.
    pub(super) development: &'static str,
    pub(super) scheme: &'static str,
    pub(super) dedupe: &'static str,
    pub(super) contract: &'static str,
    pub(super) build: fn(Table) -> Result<Arc<dyn Provider>, String>,
}

macro_rules! contract {
    ($name:literal) => {
        include_str!(concat!("../../../../providers/", $name, "/CONTRACT.md"))
    };
}

/// The settings of a source, as its provider understands them.
pub(super) fn settings<T: serde::de::DeserializeOwned>(table: Table) -> Result<T, String> {
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

pub(super) static BUILTIN: [Builtin; 7] = [
    Builtin {
        name: "stripe",
        settings: &["tolerance_seconds"],
        development: "",
        scheme: "HMAC-SHA256 over time and body",
        dedupe: "event id",
        contract: contract!("stripe"),
        build: |table| Ok(Arc::new(hookfast_stripe::Stripe::new(&settings(table)?))),
    },
    Builtin {
        name: "garmin",
        settings: &["client_id"],
        development: "",
        scheme: "nothing is signed: token in the path, client id, addresses",
        dedupe: "type, user, summary and content of each record",
        contract: contract!("garmin"),
        build: |table| Ok(Arc::new(hookfast_garmin::Garmin::new(&settings(table)?))),
    },
    Builtin {
        name: "strava",
        settings: &["verify_token", "subscription_id", "mode", "tolerance_seconds"],
        development: "",
        scheme: "nothing, or HMAC-SHA256 over time and body",
        dedupe: "subscription, object, aspect, time and updates",
        contract: contract!("strava"),
        build: |table| Ok(Arc::new(hookfast_strava::Strava::new(&settings(table)?)?)),
    },
    Builtin {
        name: "twilio",
        settings: &["answer", "algorithm", "key_id"],
        development: "",
        scheme: "HMAC-SHA1 over URL and parameters, or over URL with body hash",
        dedupe: "hash of what is signed; id of each event of Event Streams",
        contract: contract!("twilio"),
        build: |table| Ok(Arc::new(hookfast_twilio::Twilio::new(&settings(table)?))),
    },
    Builtin {
        name: "salla",
        settings: &["strategy", "allow_bearer"],
        development: "strategy = \"signature\"",
        scheme: "HMAC-SHA256 over body, or a token, or nothing",
        dedupe: "merchant, event and content",
        contract: contract!("salla"),
        build: |table| Ok(Arc::new(hookfast_salla::Salla::new(&settings(table)?))),
    },
    Builtin {
        name: "whatsapp",
        settings: &["verify_token"],
        development: "",
        scheme: "HMAC-SHA256 over body",
        dedupe: "message id; message id and status",
        contract: contract!("whatsapp"),
        build: |table| Ok(Arc::new(hookfast_whatsapp::WhatsApp::new(&settings(table)?)?)),
    },
    Builtin {
        name: "daily",
        settings: &["tolerance_seconds", "hmac_known"],
        development: "",
        scheme: "HMAC-SHA256 over time and body",
        dedupe: "event id",
        contract: contract!("daily"),
        build: |table| Ok(Arc::new(hookfast_daily::Daily::new(&settings(table)?))),
    },
];

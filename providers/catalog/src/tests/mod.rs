mod engine;
mod files;
mod hostile;
mod keys;
mod precedence;
mod refusals;
mod vectors;

use std::sync::Arc;

use hookfast_webhook::{Request, SampleOrder, Secret, Secrets};
use time::OffsetDateTime;

use crate::{CatalogProvider, Description, EMBEDDED, Settings};

/// An embedded provider with default settings.
fn embedded(name: &str) -> CatalogProvider {
    with(name, Settings::default())
}

fn with(name: &str, settings: Settings) -> CatalogProvider {
    let description = EMBEDDED.iter().find(|description| description.name == name);
    CatalogProvider::new(Arc::clone(description.unwrap_or_else(|| panic!("there is no {name}"))), settings)
}

/// The provider that a text describes. The text must be valid.
fn described(text: &str) -> CatalogProvider {
    let description = Description::parse(text).unwrap_or_else(|problem| panic!("{problem}\n{text}"));
    CatalogProvider::new(Arc::new(description), Settings::default())
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time")
}

fn secret(text: &str) -> Secret {
    Secret::new(text).expect("not blank")
}

fn secrets(text: &str) -> Secrets {
    Secrets::new(vec![secret(text)])
}

/// A sample that is signed with `key`.
fn sample(provider: &CatalogProvider, kind: Option<&str>, key: &Secret) -> Request {
    use hookfast_webhook::Provider;
    let url = "https://hooks.example.com/webhooks/test";
    let order = SampleOrder { kind, url, key: Some(key), now: now(), serial: 1 };
    provider.sample(&order).unwrap_or_else(|problem| panic!("{}: {problem}", provider.name()))
}

//! Providers that need no code. Each is a TOML file that says where the signature is, what it signs, and where the
//! events are. `docs/providers.md` explains how to write one.

mod check;
mod contract;
mod description;
mod priority;
mod provider;
mod sample;
mod template;
mod view;

use std::sync::{Arc, LazyLock};

pub use description::{Description, Problem};
pub use provider::{CatalogProvider, Settings};

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../", $name, ".toml")))),*]
    };
}

/// The files next to this crate's code.
const FILES: &[(&str, &str)] = files! {
    "asana"
    "calendly"
    "discord"
    "dropbox"
    "github"
    "gitlab"
    "hubspot"
    "intercom"
    "linear"
    "mailgun"
    "notion"
    "paddle"
    "pagerduty"
    "sendgrid"
    "sentry"
    "shopify"
    "slack"
    "square"
    "standardwebhooks"
    "typeform"
    "zoom"
};

/// The built-in providers, sorted by name.
pub static EMBEDDED: LazyLock<Vec<Arc<Description>>> = LazyLock::new(|| {
    let parse = |(name, text): &(&str, &str)| match Description::parse(text) {
        Ok(description) => Arc::new(description),
        Err(problem) => panic!("{name}.toml: {problem}"),
    };
    FILES.iter().map(parse).collect()
});

#[cfg(test)]
mod tests;

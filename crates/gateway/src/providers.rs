//! The providers that are built in.

use std::sync::Arc;

use hookfast_stripe::Stripe;
use hookfast_webhook::Provider;

/// A built-in provider.
pub(crate) struct Builtin {
    /// Its name in the configuration.
    pub(crate) name: &'static str,
    /// What can be set for it, beside what every source has.
    pub(crate) settings: &'static [&'static str],
    /// How its own development secret begins, so that it looks like a real one.
    pub(crate) secret_prefix: &'static str,
    build: fn(toml::Table) -> Result<Arc<dyn Provider>, toml::de::Error>,
}

pub(crate) const BUILTIN: &[Builtin] = &[Builtin {
    name: "stripe",
    settings: &["tolerance_seconds"],
    secret_prefix: "whsec_",
    build: |settings| Ok(Arc::new(Stripe::new(&settings.try_into()?))),
}];

impl Builtin {
    /// The provider called `name`, or which there are.
    pub(crate) fn find(name: &str) -> Result<&'static Self, String> {
        let names = || BUILTIN.iter().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ");
        BUILTIN
            .iter()
            .find(|builtin| builtin.name == name)
            .ok_or_else(|| format!("there is no provider `{}`; there is: {}", name.escape_debug(), names()))
    }

    /// The provider with the settings of one source.
    pub(crate) fn build(&self, settings: toml::Table) -> Result<Arc<dyn Provider>, String> {
        (self.build)(settings).map_err(|error| error.message().to_owned())
    }
}

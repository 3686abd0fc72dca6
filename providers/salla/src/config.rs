//! The settings of a source. The strategy must be set: Salla's own documents contradict each other about the default,
//! and a wrong guess would accept every request as genuine.

use serde::Deserialize;

/// The settings of a source of this provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Settings")]
pub struct Config {
    /// How Salla proves its requests, as set in its portal. There is no default.
    pub strategy: Strategy,
    /// With the strategy `token`: whether the secret may also come as `Bearer <secret>`.
    pub allow_bearer: bool,
}

/// How Salla proves its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// By a signature of the body.
    Signature,
    /// By the secret itself, which proves nothing about the body.
    Token,
    /// Not at all: everyone who knows the URL can send anything.
    None,
}

impl Config {
    /// The settings of a development source without a configuration: the strongest strategy.
    pub fn for_development() -> Self {
        Self { strategy: Strategy::Signature, allow_bearer: false }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    strategy: Option<Strategy>,
    allow_bearer: bool,
}

impl TryFrom<Settings> for Config {
    type Error = &'static str;

    fn try_from(settings: Settings) -> Result<Self, Self::Error> {
        let strategy = settings.strategy.ok_or(
            "`strategy` is missing: set it to \"signature\", \"token\" or \"none\", whichever is set in Salla's portal",
        )?;
        if settings.allow_bearer && strategy != Strategy::Token {
            return Err("`allow_bearer` needs `strategy = \"token\"`");
        }
        Ok(Self { strategy, allow_bearer: settings.allow_bearer })
    }
}

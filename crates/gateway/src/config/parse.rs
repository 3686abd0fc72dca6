//! How the values of the configuration are written. Each function gives the value, or says what is allowed.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytesize::ByteSize;
use hookfast_webhook::{Priority, Secret, Secrets};
use toml::Value;

type Parsed<T> = Result<T, String>;

/// Text that the type itself understands.
pub(super) fn text<T: FromStr>(value: &Value) -> Parsed<T>
where
    T::Err: ToString,
{
    value.as_str().ok_or("write text in quotes")?.parse().map_err(|error: T::Err| error.to_string())
}

pub(super) fn list<T: FromStr>(value: &Value) -> Parsed<Vec<T>>
where
    T::Err: ToString,
{
    value.as_array().ok_or("write a list in brackets, such as [\"a\", \"b\"]")?.iter().map(text).collect()
}

pub(super) fn priority(value: &Value) -> Result<Priority, String> {
    let found = value.as_str().and_then(|text| Priority::ALL.into_iter().find(|priority| priority.as_str() == text));
    found.ok_or_else(|| "write \"high\", \"normal\" or \"low\"".into())
}

pub(super) fn flag(value: &Value) -> Parsed<bool> {
    value.as_bool().ok_or_else(|| "write true or false".into())
}

/// A number of things, at least one.
pub(super) fn count(value: &Value) -> Parsed<usize> {
    let number = value.as_integer().and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| "write a number from 1 on".into())
}

/// The same for numbers that the other side keeps in 32 bits.
pub(super) fn small_count(value: &Value) -> Parsed<u32> {
    u32::try_from(count(value)?).map_err(|_| "this is too large".into())
}

pub(super) fn address(value: &Value) -> Parsed<SocketAddr> {
    text(value).map_err(|_| "write an address and a port, such as \"127.0.0.1:8080\"".into())
}

/// An operator's page has no log-in yet, so nobody outside may see it.
pub(super) fn loopback_address(value: &Value) -> Parsed<SocketAddr> {
    let address = address(value)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address such as \"127.0.0.1:8081\": this listener has no authentication yet".into())
    }
}

pub(super) fn duration(value: &Value) -> Parsed<Duration> {
    #[derive(serde::Deserialize)]
    struct Wrapper(#[serde(with = "humantime_serde")] Duration);
    let parsed = value.clone().try_into::<Wrapper>().ok().filter(|duration| !duration.0.is_zero());
    parsed.map(|wrapper| wrapper.0).ok_or_else(|| "write a time in quotes, such as \"450ms\", \"30s\" or \"5m\"".into())
}

pub(super) fn size(value: &Value) -> Parsed<u64> {
    let parsed = value.as_str().and_then(|text| text.parse::<ByteSize>().ok()).filter(|size| size.0 > 0);
    parsed.map(|size| size.0).ok_or_else(|| "write a size in quotes, such as \"10MiB\"".into())
}

/// Scheme and host, nothing after it: paths are ours.
pub(super) fn public_url(value: &Value) -> Parsed<String> {
    const ALLOWED: &str = "write scheme and host without a path, such as \"https://hooks.example.com\"";
    let uri: http::Uri = text(value).map_err(|_| ALLOWED)?;
    let plain = uri.path_and_query().is_none_or(|path| path == "/") && uri.authority().is_some();
    match uri.scheme_str() {
        Some("http" | "https") if plain => Ok(uri.to_string().trim_end_matches('/').into()),
        _ => Err(ALLOWED.into()),
    }
}

/// `env:NAME`, `file:PATH`, or the text itself. The errors name the place and never the text.
pub(crate) fn reference(text: &str) -> Parsed<String> {
    if matches!(text, "env:" | "file:") {
        return Err(format!("a name is missing behind `{text}`: write \"env:NAME\" or \"file:PATH\""));
    }
    if let Some(name) = text.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| format!("the variable {name} is not set, or is not text"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let content =
            std::fs::read_to_string(path).map_err(|error| format!("the file {path} cannot be read: {error}"))?;
        // Editors and `echo` end files with a line break that is no part of the secret.
        return Ok(content.trim_end_matches(['\r', '\n']).into());
    }
    Ok(text.into())
}

/// Whether `reference` would look for it elsewhere.
pub(super) fn stands_elsewhere(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// A secret, from where `reference` says.
pub(crate) fn secret(text: &str) -> Parsed<Secret> {
    if let Some(name) = shell_variable(text) {
        return Err(format!("`{text}` is no secret but a shell's way to name a variable: write \"env:{name}\""));
    }
    let origin = if stands_elsewhere(text) { text } else { "the text" };
    Secret::new(reference(text)?).map_err(|_| format!("{origin} is blank"))
}

/// The name in `$NAME` or `${NAME}`.
fn shell_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |name| name.strip_suffix('}'))?;
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

pub(super) const SECRETS_ALLOWED: &str =
    "write at least one secret in a list, as \"env:NAME\", \"file:PATH\" or the text itself";

/// At least one secret.
pub(super) fn secrets(value: &Value) -> Parsed<Secrets> {
    let texts = list::<String>(value).map_err(|_| SECRETS_ALLOWED)?;
    if texts.is_empty() {
        return Err(format!("is empty: {SECRETS_ALLOWED}"));
    }
    Ok(Secrets::new(texts.iter().map(|text| secret(text)).collect::<Result<_, _>>()?))
}

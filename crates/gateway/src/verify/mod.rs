//! `hookfast verify`: the code that ingest uses, offline, with the reasons said aloud.

mod report;
mod vectors;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hookfast_handler::Handlers;
use hookfast_webhook::{
    Clock, Endpoint, FixedClock, Provider, Refusal, Request, Secrets, SystemClock, explain, verify,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use time::OffsetDateTime;

use crate::commands::filter;
use crate::commands::known::no_such;
use crate::config::{SourceConfig, parse};
use crate::exit::Exit;
use crate::providers::Providers;
use crate::{Config, config};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Files of test vectors to run instead of one request
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["source", "provider", "secret", "header", "body_file"])]
    pub(crate) vectors: Vec<PathBuf>,

    /// The source of the configuration whose provider, secrets and settings are used
    #[arg(long, value_name = "NAME", conflicts_with_all = ["provider", "secret", "settings"])]
    pub(crate) source: Option<String>,

    /// The provider, such as `stripe`
    #[arg(long, required_unless_present_any = ["vectors", "source"])]
    pub(crate) provider: Option<String>,

    /// A secret: `env:NAME`, `file:PATH` or the text itself; may be repeated
    #[arg(long)]
    pub(crate) secret: Vec<String>,

    /// A setting of the provider, such as `tolerance_seconds=600`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// The request's method
    #[arg(long, default_value = "POST")]
    pub(crate) method: http::Method,

    /// The URL the provider was given
    #[arg(long, default_value = "http://localhost/")]
    pub(crate) url: String,

    /// A header, as `Name: value`; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,

    /// The file with the body, byte for byte; `-` is the standard input
    #[arg(long, required_unless_present = "vectors", value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    /// The time to judge by: `2026-07-01T08:00:00Z`, a day, or unix seconds [default: now]
    #[arg(long, value_name = "TIME", value_parser = filter::unix_time)]
    pub(crate) now: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The largest body or file of vectors that is read.
const MAX_INPUT_BYTES: u64 = 256 << 20;

pub(crate) fn run(arguments: &VerifyArguments, file: Option<&Path>, handlers: &Handlers) -> Result<(), Exit> {
    let providers = config::providers(file).map_err(Exit::Config)?;
    if !arguments.vectors.is_empty() {
        return vectors::run(&providers, &arguments.vectors, arguments.json);
    }
    let (provider, secrets) = match &arguments.source {
        Some(name) => configured(name, file, handlers)?,
        None => given(&providers, arguments)?,
    };
    let now = clock(arguments.now)?.now();
    let request = Arc::new(request(arguments)?);
    let verdict = verify(provider.as_ref(), Arc::clone(&request), &secrets, now);
    let source = arguments.source.as_deref().unwrap_or("-");
    let endpoint = Endpoint { source, provider: provider.as_ref(), secrets: &secrets };
    let hint = verdict.as_ref().err().and_then(|refusal| {
        // Without a configuration there are no other sources it could be meant for.
        let config = config::load(file, handlers).ok();
        hint(refusal, &request, &endpoint, config.as_ref(), &providers, now)
    });
    report::print(provider.as_ref(), &verdict, hint.as_deref(), arguments.json);
    verdict.map(|_| ()).map_err(|_| Exit::No)
}

fn hint(
    refusal: &Refusal,
    request: &Request,
    endpoint: &Endpoint<'_>,
    config: Option<&Config>,
    providers: &Providers,
    now: OffsetDateTime,
) -> Option<String> {
    let sources = config.iter().flat_map(|config| &config.sources);
    let others: Vec<_> = sources
        .map(|(name, source)| Endpoint {
            source: name.as_str(),
            provider: source.provider.as_ref(),
            secrets: &source.secrets,
        })
        .collect();
    let known = providers.for_recognition();
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    explain(refusal, request, endpoint, &others, &known, now)
}

/// Provider and secrets of a source of the configuration.
fn configured(name: &str, file: Option<&Path>, handlers: &Handlers) -> Result<(Arc<dyn Provider>, Secrets), Exit> {
    let config = config::load(file, handlers).map_err(Exit::Config)?;
    let known: Vec<_> = config.sources.keys().map(ToString::to_string).collect();
    match config.sources.into_iter().find(|(source, _)| source.as_str() == name) {
        Some((_, SourceConfig { provider, secrets, .. })) => Ok((provider, secrets)),
        None => Err(no_such("--source", "source", name, known)),
    }
}

/// Provider and secrets as the command line says.
fn given(providers: &Providers, arguments: &VerifyArguments) -> Result<(Arc<dyn Provider>, Secrets), Exit> {
    let provider = provider(providers, arguments)?;
    let secrets =
        arguments.secret.iter().map(|text| parse::secret(text).map_err(|problem| Exit::usage("--secret", problem)));
    let secrets = Secrets::new(secrets.collect::<Result<_, _>>()?);
    for secret in secrets.iter() {
        provider.check_secret(secret).map_err(|problem| Exit::usage("--secret", problem))?;
    }
    Ok((provider, secrets))
}

fn provider(providers: &Providers, arguments: &VerifyArguments) -> Result<Arc<dyn Provider>, Exit> {
    let name = arguments.provider.as_deref().unwrap_or_default();
    let kind = providers.find(name).map_err(|problem| Exit::usage("--provider", problem))?;
    let settings =
        arguments.settings.join("\n").parse().map_err(|_| Exit::usage("--set", "write KEY=VALUE, as in the file"))?;
    kind.build(settings).map_err(|problem| Exit::usage("--set", problem))
}

fn clock(now: Option<i64>) -> Result<Box<dyn Clock>, Exit> {
    let Some(seconds) = now else { return Ok(Box::new(SystemClock)) };
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.map(|time| Box::new(FixedClock(time)) as Box<dyn Clock>)
        .map_err(|error| Exit::usage("--now", error.to_string()))
}

fn request(arguments: &VerifyArguments) -> Result<Request, Exit> {
    let headers = arguments.header.iter().map(|line| header(line)).collect::<Result<HeaderMap, _>>()?;
    let body = read_body(arguments.body_file.as_deref().unwrap_or(Path::new("-")))?;
    Ok(Request { method: arguments.method.clone(), url: arguments.url.clone(), headers, body })
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Exit> {
    let parse = || {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    parse().ok_or_else(|| Exit::usage("--header", format!("`{}` is not written as `Name: value`", line.escape_debug())))
}

fn read_body(file: &Path) -> Result<Bytes, Exit> {
    let read = if file == Path::new("-") { read_limited(io::stdin()) } else { File::open(file).and_then(read_limited) };
    let body =
        read.map_err(|error| Exit::usage("--body-file", format!("{} cannot be read: {error}", file.display())))?;
    Ok(body.into())
}

/// All of an input, which must have an end.
fn read_limited(input: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_INPUT_BYTES {
        return Err(io::Error::other(format!("it has more than {} MiB", MAX_INPUT_BYTES >> 20)));
    }
    Ok(content)
}

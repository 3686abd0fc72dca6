//! `hookfast simulate`: plays a provider against a running gateway.

mod report;
mod send;
mod traffic;

use std::sync::Arc;
use std::time::Instant;

use hookfast_webhook::{Clock, SampleOrder, Secret, SourceName, SystemClock, Verified, verify};
use http::Uri;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use time::{Duration, OffsetDateTime};

use crate::commands::filter;
use crate::config::{SourceConfig, parse};
use crate::development::{Missing, supply_secrets};
use crate::exit::Exit;
use crate::{Config, Problem};
use clap::Args;
use report::Report;
use traffic::Traffic;

#[derive(Debug, Args)]
pub(crate) struct SimulateArguments {
    /// The provider to play
    pub(crate) provider: String,

    /// What to send, such as `invoice.paid` or `challenge` [default: what the provider usually sends]
    pub(crate) event: Option<String>,

    /// The source to send to [default: the only one of this provider]
    #[arg(long)]
    pub(crate) source: Option<String>,

    /// The gateway, as scheme, host and port [default: `listen` of the configuration]
    #[arg(long, value_name = "URL")]
    pub(crate) gateway: Option<String>,

    /// How many different requests
    #[arg(long, default_value_t = 1)]
    pub(crate) count: u64,

    /// How many requests a second or minute, such as `50/s` [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = filter::per_second)]
    pub(crate) rate: Option<f64>,

    /// How many connections at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,

    /// How many of the requests are sent a second time, such as `10%`
    #[arg(long, default_value = "0%", value_name = "PERCENT", value_parser = percent)]
    pub(crate) duplicates: f64,

    /// Send them in another order than they were made in
    #[arg(long)]
    pub(crate) out_of_order: bool,

    /// Change a byte of every body after signing; a good gateway refuses them all
    #[arg(long)]
    pub(crate) tamper: bool,

    /// Sign every request as if it were a day old; a gateway refuses those of providers that sign a time
    #[arg(long)]
    pub(crate) stale: bool,

    /// The number of the first request: the same number is the same event [default: by the clock, so always new ones]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first: Option<u64>,

    /// The private key of a provider that signs with one: `env:NAME`, `file:PATH` or the text itself
    #[arg(long, value_name = "KEY")]
    pub(crate) signing_key: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|number| (0.0..=100.0).contains(number))
        .map(|number| number / 100.0)
        .ok_or_else(|| "write a share such as 10%".into())
}

pub(crate) async fn run(mut config: Config, arguments: SimulateArguments) -> Result<(), Exit> {
    let development = supply_secrets(&mut config, Missing::Refuse).map_err(Exit::Failed)?;
    let (name, source) = source(&config, &arguments)?;
    let gateway = gateway(&config, &arguments)?;
    let given = arguments.signing_key.as_deref().map(parse::secret).transpose();
    let given = given.map_err(|problem| usage("--signing-key", problem))?;
    let made_up = development.as_ref().and_then(|development| development.signing_keys.get(name));
    let key = given.as_ref().or(made_up).or(source.secrets.iter().next());

    let public_url =
        config.ingest.public_url.clone().unwrap_or_else(|| gateway.to_string().trim_end_matches('/').into());
    let url = format!("{public_url}/webhooks/{name}");
    check(source, &arguments, key, &url)?;
    let traffic = Traffic::make(source.provider.as_ref(), &arguments, key, &url).map_err(Exit::Failed)?;

    let progress = progress(&arguments, traffic.requests.len() as u64);
    let start = Instant::now();
    let outcomes = send::all(&gateway, Arc::new(traffic.requests), &arguments, source.provider.retries(), &progress)
        .await
        .map_err(|problem| Exit::Unreachable(format!("{problem}. Is `hookfast serve` running at {gateway}?")))?;
    progress.finish_and_clear();
    let report = Report::of(&outcomes, traffic.events, traffic.duplicates, start.elapsed());
    report.print(arguments.json);
    let wanted = if arguments.tamper { report.refused == report.requests } else { report.accepted == report.requests };
    if wanted || arguments.stale { Ok(()) } else { Err(Exit::No) }
}

fn usage(flag: &str, problem: impl Into<String>) -> Exit {
    Exit::Config(vec![Problem { origin: "the command line".into(), key: flag.into(), problem: problem.into() }])
}

/// The source that was named, or the only one of the provider.
fn source<'a>(config: &'a Config, arguments: &SimulateArguments) -> Result<(&'a SourceName, &'a SourceConfig), Exit> {
    config.providers.find(&arguments.provider).map_err(|problem| usage("PROVIDER", problem))?;
    let of_provider = config.sources.iter().filter(|(_, source)| source.provider.name() == arguments.provider);
    let named = |name: &SourceName| arguments.source.as_ref().is_none_or(|wanted| wanted == name.as_str());
    let candidates: Vec<_> = of_provider.filter(|(name, _)| named(name)).collect();
    match candidates.as_slice() {
        [source] => Ok(*source),
        [] => Err(no_source(config, arguments)),
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(usage("--source", format!("choose one: {}", names.join(", "))))
        }
    }
}

/// Says which sources there are: those of the provider, or all if it has none.
fn no_source(config: &Config, arguments: &SimulateArguments) -> Exit {
    let provider = &arguments.provider;
    let listed = |only: Option<&str>| {
        let sources =
            config.sources.iter().filter(|(_, source)| only.is_none_or(|only| source.provider.name() == only));
        let names: Vec<_> = sources.map(|(name, source)| format!("{name} ({})", source.provider.name())).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    };
    match &arguments.source {
        Some(name) => {
            let (name, there_is) = (name.escape_debug(), listed(Some(provider)));
            let problem = format!("`{name}` is no such source of the provider `{provider}`; there is: {there_is}");
            usage("--source", problem)
        }
        None => {
            let problem = format!("no source of this configuration has the provider `{provider}`; there is: ");
            usage("PROVIDER", problem + &listed(None))
        }
    }
}

fn gateway(config: &Config, arguments: &SimulateArguments) -> Result<Uri, Exit> {
    let text = arguments.gateway.clone().unwrap_or_else(|| format!("http://{}", config.ingest.listen));
    let uri: Option<Uri> = text.parse().ok();
    uri.filter(|uri| uri.scheme_str() == Some("http") && uri.port_u16().is_some()).ok_or_else(|| {
        usage("--gateway", "write a URL with its port and without a path, such as http://127.0.0.1:8080")
    })
}

/// Judges a sample as the gateway will, so that a wrong key is said here and not as a hundred refusals.
fn check(source: &SourceConfig, arguments: &SimulateArguments, key: Option<&Secret>, url: &str) -> Result<(), Exit> {
    let now = SystemClock.now();
    let order = SampleOrder { kind: arguments.event.as_deref(), url, key, now, serial: 0 };
    let sample = source.provider.sample(&order).map_err(|problem| usage("EVENT", problem.to_string()))?;
    match verify(source.provider.as_ref(), sample, &source.secrets, now) {
        Ok(Verified::Genuine(_) | Verified::Handshake(_)) => Ok(()),
        Err(refusal) => Err(Exit::Failed(format!(
            "this source would refuse what is sent: {refusal}. A provider that signs with a private key needs \
             --signing-key"
        ))),
    }
}

fn progress(arguments: &SimulateArguments, length: u64) -> ProgressBar {
    let target = if arguments.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {per_sec}, {eta} left");
    let bar = ProgressBar::with_draw_target(Some(length), target);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The clock of the provider that is played.
fn sender_clock(arguments: &SimulateArguments) -> OffsetDateTime {
    let now = SystemClock.now();
    if arguments.stale { now - Duration::DAY } else { now }
}

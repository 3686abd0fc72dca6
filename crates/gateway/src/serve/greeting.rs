//! What `serve` says when it is ready.

use std::net::SocketAddr;

use hookfast_queue::QueueUrl;
use hookfast_store::StoreUrl;
use hookfast_webhook::{Clock, HandlerName, Request, SampleOrder, Secret, SourceName, SystemClock};

use super::Role;
use super::workers::assigned;
use crate::Config;
use crate::development::Development;

/// What `serve` says when it is ready.
pub(super) struct Greeting {
    lines: Vec<String>,
}

impl Greeting {
    pub(super) fn of(config: &Config, role: &Role, admin: SocketAddr) -> Self {
        let mut lines = vec![
            format!("Hookfast {} is ready.", env!("CARGO_PKG_VERSION")),
            format!("  admin   http://{admin}/metrics"),
            format!("  store   {}", describe(&config.store.url)),
        ];
        if let QueueUrl::Nats(servers) = &config.queue.url {
            lines.push(format!("  queue   {servers}"));
        }
        if role.works() {
            lines.extend(describe_handlers(config, role));
        }
        Self { lines }
    }

    pub(super) fn add_ingest(&mut self, config: &Config, development: Option<&Development>, ingest: SocketAddr) {
        self.lines.insert(1, format!("  ingest  http://{ingest}/webhooks/{{source}}"));
        let lines = &mut self.lines;
        if config.sources.is_empty() {
            lines.push("  There is no source yet: add a section `[sources.NAME]` to the configuration.".into());
        }
        if let Some(development) = development {
            let names: Vec<_> = development.signing_keys.keys().map(SourceName::as_str).collect();
            lines.push(format!("  sources {}", names.join(", ")));
            let stripe = development.signing_keys.iter().find(|(name, _)| name.as_str() == "stripe");
            lines.extend(stripe.and_then(|(name, key)| try_out(config, name, key, ingest)));
            lines.push(
                "\nOr play any provider: hookfast simulate github --count 10\nThen look: hookfast events list".into(),
            );
            tracing::warn!(
                endpoint = %format_args!("http://{ingest}/webhooks/{{source}}"), file = %development.file.display(),
                secrets = names.join(", "),
                "no configuration file: each source has a development secret, which stands in the file under the \
                 source's name. For real traffic write a hookfast.toml"
            );
        }
    }

    pub(super) fn say_store_is_away(&mut self) {
        self.lines.push("  The store is not reached yet: events are recorded into the spool.".into());
    }

    pub(super) fn say_queue_is_away(&mut self) {
        self.lines
            .push("  The queue is not reached yet: the sweeper finds the jobs in the store, a little later.".into());
    }

    pub(super) fn print(self) {
        outln!("{}", self.lines.join("\n"));
    }
}

/// The handlers that this process runs, and the paused handlers.
fn describe_handlers(config: &Config, role: &Role) -> Vec<String> {
    let works = assigned(config, role).into_iter().filter(|assigned| !assigned.is_paused);
    let works: Vec<_> = works.map(|assigned| assigned.name).collect();
    let paused = config.handlers.iter().filter(|handler| handler.is_paused);
    let paused: Vec<_> = paused.map(|handler| handler.subscription.handler.clone()).collect();
    let line = |what: &str, names: &[HandlerName]| {
        let names: Vec<_> = names.iter().map(HandlerName::as_str).collect();
        (!names.is_empty()).then(|| format!("  {what} {}", names.join(", ")))
    };
    [line("handlers", &works), line("paused ", &paused)].into_iter().flatten().collect()
}

fn describe(url: &StoreUrl) -> String {
    match url {
        StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUrl::Postgres(url) => format!("postgres at {}", url.address()),
    }
}

/// A signed request to send by hand.
fn try_out(config: &Config, name: &SourceName, key: &Secret, ingest: SocketAddr) -> Option<String> {
    let now = SystemClock.now();
    let url = format!("http://{ingest}/webhooks/{name}");
    let serial = u64::try_from(now.unix_timestamp()).unwrap_or_default();
    let order = SampleOrder { kind: None, url: &url, key: Some(key), now, serial };
    let sample = config.sources.get(name)?.provider.sample(&order).ok()?;
    Some(format!("\nTry the source `{name}` (the signature is good for five minutes):\n\n  {}", curl(&sample)))
}

/// A request as a command. Samples hold no quotes of the kind that a shell would end at.
fn curl(request: &Request) -> String {
    let headers = request
        .headers
        .iter()
        .map(|(name, value)| format!("-H '{name}: {}' ", String::from_utf8_lossy(value.as_bytes())));
    let body = String::from_utf8_lossy(&request.body);
    format!("curl -i {} {}--data-binary '{body}'", request.url, headers.collect::<String>())
}

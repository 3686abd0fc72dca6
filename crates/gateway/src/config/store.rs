//! `[store]`: where events are kept.

use hookfast_store::StoreUrl;
use toml::Value;

use super::section::Section;
use super::{SpoolSettings, parse, spool};

pub(super) fn read(mut section: Section<'_>) -> Option<(hookfast_store::Config, Option<SpoolSettings>)> {
    // The URL may hold a password, so it can stand elsewhere, as a secret can.
    let url = |value: &Value| {
        parse::reference(&parse::text::<String>(value)?)?
            .parse()
            .map_err(|error: hookfast_store::OpenError| error.to_string())
    };
    let url = section.value("url", |value| url(value).map(Some), Some(StoreUrl::Sqlite("hookfast.db".into())));
    let default = hookfast_store::Config::new(StoreUrl::Sqlite("hookfast.db".into()));
    let parallel_batches = section.value("parallel_batches", parse::count, default.parallel_batches);
    let worker_connections = section.value("worker_connections", parse::small_count, default.worker_connections);
    let spool = spool::read(&mut section);
    section.finish();
    let config = hookfast_store::Config { url: url?, parallel_batches, worker_connections, ..default };
    let is_shared = matches!(config.url, StoreUrl::Postgres(_));
    Some((config, spool.filter(|_| is_shared)))
}

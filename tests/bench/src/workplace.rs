//! Where jobs are done: the gateway with the handler that is measured, its database, and its queue if it has one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use hookfast_harness::{NatsVersion, PrivateNats};
use serde::Serialize;

use crate::load;
use crate::requests::Requests;
use crate::server::{Gateway, Sections, Store, WITH_HANDLER};

/// The set-ups of a gateway that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
    Jetstream,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Jetstream];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "Postgres",
            Self::Jetstream => "Postgres + JetStream",
        }
    }

    fn store(self) -> Store {
        if self == Self::Sqlite { Store::Sqlite } else { Store::Postgres }
    }
}

/// How many jobs run at once. They do nothing but write, and the more there are, the more share a commit.
pub(crate) const CONCURRENCY: usize = 256;

/// A new one, in which nothing was done yet.
pub(crate) struct Workplace {
    pub(crate) gateway: Gateway,
    _queue: Option<PrivateNats>,
}

impl Workplace {
    pub(crate) fn new(kind: Kind) -> anyhow::Result<Self> {
        let queue = (kind == Kind::Jetstream).then(|| PrivateNats::start(NatsVersion::Current));
        let queue_section =
            queue.as_ref().map_or(String::new(), |queue| format!("[queue]\nurl = \"{}\"\n", queue.url()));
        let more = format!(
            "{queue_section}[work]\nconcurrency = {CONCURRENCY}\n[handlers.bench]\nconcurrency = {CONCURRENCY}"
        );
        // No answer may be late, because every event counts.
        let sections = Sections { ingest: "answer_deadline = \"60s\"", store: "", more: &more };
        Ok(Self { gateway: Gateway::new(WITH_HANDLER, kind.store(), &sections)?, _queue: queue })
    }
}

/// Sends every request, and each must be taken.
pub(crate) fn send_all(address: SocketAddr, events: &Arc<Requests>, connections: usize) -> anyhow::Result<()> {
    const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(3600);
    let seen = load::closed(address, events, connections, AS_LONG_AS_IT_TAKES, false)?;
    ensure!(seen.refused == 0, "{} events were refused", seen.refused);
    Ok(())
}

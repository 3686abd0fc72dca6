//! A set-up that has its turns in a closed loop, and what it reached in them.

use std::sync::Arc;
use std::time::Duration;

use crate::database::Database;
use crate::load::{self, Seen};
use crate::options::Options;
use crate::requests::Requests;
use crate::server::{Gateway, Server, Store};
use crate::statistics::{Percentiles, median};

/// How long a server is warmed up before each turn: caches, connections, the first pages of the files.
pub(crate) const WARM_UP_SECONDS: u64 = 1;

/// Who has turns.
pub(crate) enum Subject {
    /// The server that only reads the body.
    Floor,
    /// A gateway that receives, with a new and empty database for each turn.
    Anew {
        store: Store,
        /// Further lines of its configuration.
        ingest: &'static str,
        store_lines: &'static str,
    },
    /// One that keeps its database.
    Kept(Gateway),
}

impl Subject {
    /// The usual gateway.
    pub(crate) fn on(store: Store) -> Self {
        Self::Anew { store, ingest: "", store_lines: "" }
    }

    /// Only the one that has its turn runs, so that background work of the others disturbs no measurement.
    pub(crate) fn start(&self) -> anyhow::Result<Started> {
        let started = |gateway: &Gateway| gateway.start("serve", &[]);
        Ok(match self {
            Self::Floor => Started { server: Server::floor()?, database: After::Nothing },
            Self::Anew { store, ingest, store_lines } => {
                let gateway = Gateway::that_receives(*store, ingest, store_lines)?;
                Started { server: started(&gateway)?, database: After::Empty(gateway.store_url) }
            }
            Self::Kept(gateway) => Started { server: started(gateway)?, database: After::Keep },
        })
    }

    fn is_floor(&self) -> bool {
        matches!(self, Self::Floor)
    }
}

/// A competitor that has a turn.
pub(crate) struct Started {
    pub(crate) server: Server,
    database: After,
}

/// What becomes of a database after the turn.
enum After {
    Nothing,
    Keep,
    /// Databases on Postgres are there until the server ends.
    Empty(String),
}

impl Started {
    /// A gateway is left to finish, so that its next turn does not begin with a recovery.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        match self.database {
            After::Nothing => Ok(()),
            After::Keep => self.server.shut_down(),
            After::Empty(url) => {
                self.server.shut_down()?;
                // SQLite's file went with the server.
                if url.starts_with("sqlite:") { Ok(()) } else { Database::open(&url)?.empty() }
            }
        }
    }
}

/// What all set-ups are sent in one round.
pub(crate) struct Round {
    pub(crate) warm_up: Arc<Requests>,
    pub(crate) measured: Arc<Requests>,
    pub(crate) connections: usize,
    time: Duration,
}

impl Round {
    pub(crate) fn sign(options: &Options, body_bytes: usize) -> anyhow::Result<Self> {
        Ok(Self {
            warm_up: Requests::for_seconds(WARM_UP_SECONDS, body_bytes, options.ids)?,
            measured: Requests::for_seconds(options.seconds, body_bytes, options.ids)?,
            connections: options.connections,
            time: Duration::from_secs(options.seconds),
        })
    }
}

/// What one of them reached.
pub(crate) struct Turns {
    pub(crate) subject: Subject,
    per_second: Vec<f64>,
    latencies: Vec<u32>,
    refused: usize,
    cpu_time: Duration,
}

impl Turns {
    pub(crate) fn of(subject: Subject) -> Self {
        Self { subject, per_second: Vec::new(), latencies: Vec::new(), refused: 0, cpu_time: Duration::ZERO }
    }

    pub(crate) fn take(&mut self, round: &Round) -> anyhow::Result<()> {
        let started = self.subject.start()?;
        let server = &started.server;
        let send = |requests: &Arc<Requests>, time| {
            load::closed(server.address, requests, round.connections, time, self.subject.is_floor())
        };
        send(&round.warm_up, Duration::from_secs(WARM_UP_SECONDS))?;
        let cpu_before = server.cpu_time()?;
        let seen = send(&round.measured, round.time)?;
        self.cpu_time += server.cpu_time()?.saturating_sub(cpu_before);
        self.per_second.push(seen.per_second());
        let Seen { latencies, refused, .. } = seen;
        self.latencies.extend(latencies);
        self.refused += refused;
        started.stop()
    }

    /// The median of the turns.
    pub(crate) fn per_second(&self) -> f64 {
        median(&self.per_second)
    }

    /// Of all requests of all turns.
    pub(crate) fn percentiles(&self) -> Option<Percentiles> {
        Percentiles::of(self.latencies.clone())
    }

    /// What the server itself used for a request, without the database server's share.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_time.as_secs_f64() * 1e6 / self.latencies.len().max(1) as f64
    }

    pub(crate) fn refused(&self) -> usize {
        self.refused
    }
}

//! Starts and stops receiving: the background tasks, and the listener that depends on them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hookfast_parts::{MustEnd, Part, Tasks};
use hookfast_queue::Queue;
use hookfast_store::Record;
use hookfast_webhook::{Clock, Provider};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admit::Limits;
use crate::commit::{BatchLimits, Committing, Recorder};
use crate::dispatch::Dispatcher;
use crate::health::{Details, Readiness};
use crate::http::listener::Listener;
use crate::http::service::Service;
use crate::memory::BodyMemory;
use crate::spool::drain::{self, Drainer};
use crate::spool::{SpoolWay, Spooling};
use crate::{Config, CurrentTable, Ingest, Source, Table};

/// Longest wait for the commits under way, at the end of a shutdown.
const COMMIT_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for the dispatcher and the drainer, after the commits.
const FOLLOW_WITHIN: Duration = Duration::from_secs(1);

/// [`Running::shut_down`] ends within `shutdown_timeout` and the two limits above. Its [`Part`] waits this much longer
/// before it leaves the shutdown behind.
const SLACK: Duration = Duration::from_secs(1);

/// Where events become durable, and the queue that tells workers about them.
pub struct Recording<'a> {
    /// The store.
    pub store: Arc<dyn Record>,
    /// The spool, for times when the store cannot be reached.
    pub spool: Option<SpoolWay>,
    /// The queue that carries hints to the workers; `None` if no worker reads from one.
    pub queue: Option<Arc<dyn Queue>>,
    /// What `/readyz?verbose` says about the rest of the process.
    pub details: Option<Arc<dyn Details>>,
    /// The runtime of the commits. On the runtime of the requests, each step of a commit would wait behind the very
    /// requests that wait for the commit.
    pub commits: &'a Handle,
    /// For a store that is broken, and for background tasks that panic.
    pub must_end: &'a MustEnd,
}

/// A running listener.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// The sources and subscriptions, which a reload replaces.
    pub table: CurrentTable,
    listener: Arc<Listener>,
    shutdown: CancellationToken,
    connections: TaskTracker,
    background: Background,
}

/// The background tasks of a listener.
struct Background {
    /// The accept loop.
    accepting: Tasks,
    committers: Tasks,
    large_committers: Tasks,
    /// Dispatcher and drainer. They process what the committers have committed, so they end after them.
    followers: Tasks,
    /// Cancelled when no further commit will come.
    last_call: CancellationToken,
}

impl Ingest {
    /// Starts to receive on `listener`.
    pub async fn start(
        listener: TcpListener,
        config: Config,
        table: Table,
        known_providers: Vec<Arc<dyn Provider>>,
        recording: Recording<'_>,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Running> {
        let Recording { store, spool, queue, details, commits, must_end } = recording;
        let address = listener.local_addr()?;
        let background = Background::new(commits, must_end);
        let limits = BatchLimits { events: config.batch_events, bytes: config.batch_bytes };
        let dispatcher = queue.map(|queue| Dispatcher::start(queue, &background.followers));
        let spooling = match spool {
            Some(way) => Some(background.start_spooling(way, dispatcher.as_ref(), limits).await),
            None => None,
        };
        let committing = Committing {
            store: &store,
            spooling: spooling.as_ref(),
            limits,
            must_end,
            dispatcher: dispatcher.as_ref(),
        };
        let recorder =
            Recorder::start(&committing, config.queue_requests, &background.committers, &background.large_committers);
        let shutdown = CancellationToken::new();
        let readiness = Readiness::new(Arc::clone(&store), spooling, details, shutdown.clone());
        let ingest = Self::new(config, address, table, known_providers, clock, (store, recorder));
        let table = ingest.table.clone();
        let connections = TaskTracker::new();
        let serving = Arc::new(Listener::new(Service { ingest, readiness }, shutdown.clone()));
        background.accepting.spawn("listener", Arc::clone(&serving).accept(listener, connections.clone()));
        Ok(Running { address, table, listener: serving, shutdown, connections, background })
    }
}

impl Ingest {
    /// The state that requests share, for a listener at `address`.
    fn new(
        config: Config,
        address: SocketAddr,
        table: Table,
        known_providers: Vec<Arc<dyn Provider>>,
        clock: Arc<dyn Clock>,
        (store, recorder): (Arc<dyn Record>, Recorder),
    ) -> Self {
        Self {
            public_url: config.public_url.clone().unwrap_or_else(|| format!("http://{address}")),
            table: CurrentTable::new(table),
            decoy: config.conceal_sources.then(|| Arc::new(Source::decoy())),
            known_providers,
            clock,
            limits: Limits::new(&config),
            body_memory: BodyMemory::new(config.body_memory),
            store,
            recorder,
            config,
        }
    }
}

impl Background {
    fn new(commits: &Handle, must_end: &MustEnd) -> Self {
        Self {
            accepting: Tasks::new(&Handle::current(), must_end),
            committers: Tasks::new(commits, must_end),
            // On the runtime of the commits, copying a large request into a statement would delay the other commits.
            large_committers: Tasks::new(&Handle::current(), must_end),
            followers: Tasks::new(commits, must_end),
            last_call: CancellationToken::new(),
        }
    }

    async fn start_spooling(
        &self,
        way: SpoolWay,
        dispatcher: Option<&Dispatcher>,
        limits: BatchLimits,
    ) -> Arc<Spooling> {
        let spooling = Arc::new(Spooling::start(way).await);
        let drainer = Drainer::new(Arc::clone(&spooling), dispatcher.cloned(), limits, self.last_call.clone());
        self.followers.spawn("drainer", drainer.run());
        self.followers.spawn("spool", drain::show(Arc::clone(&spooling.spool), self.last_call.clone()));
        spooling
    }
}

impl Running {
    /// How this is shut down.
    pub fn into_part(self) -> Part {
        let own = self.listener.service.ingest.config.shutdown_timeout;
        let within = own.saturating_add(COMMIT_WITHIN + FOLLOW_WITHIN + SLACK);
        Part::new("receiving", within, "what was answered with 2xx is durable all the same", self.shut_down())
    }

    /// Stops accepting, then finishes and commits what was accepted. Connections that take longer than the time-out are
    /// closed. Events that they had already submitted are committed all the same.
    async fn shut_down(self) {
        let Self { listener, shutdown, connections, background, .. } = self;
        let end = Instant::now() + listener.service.ingest.config.shutdown_timeout;
        shutdown.cancel();
        connections.close();
        // The committers end when the last sender of their queue is dropped: this listener's, or the last connection's.
        drop(listener);
        let all_answered = async {
            background.accepting.ended().await;
            connections.wait().await;
        };
        if timeout_at(end, all_answered).await.is_err() {
            tracing::warn!(connections = connections.len(), "connections were still open at the end of the shutdown");
        }
        background.end(end).await;
    }
}

impl Background {
    /// Waits for the commits, then for the dispatcher and the drainer. The wait has a limit, because a connection that
    /// was closed can keep the committers alive until its runtime ends.
    async fn end(self, end: Instant) {
        let end = end.max(Instant::now() + COMMIT_WITHIN);
        let committed = async { tokio::join!(self.committers.ended(), self.large_committers.ended()) };
        if timeout_at(end, committed).await.is_err() {
            tracing::warn!("the shutdown did not wait for all commits; no 2xx was answered for what they were about");
        }
        self.last_call.cancel();
        let end = end.max(Instant::now() + FOLLOW_WITHIN);
        if timeout_at(end, self.followers.ended()).await.is_err() {
            tracing::warn!(
                "the shutdown did not wait for all hints to be sent and for the spool to be drained; the sweeper makes up \
                 for the first, the next start for the second"
            );
        }
    }
}

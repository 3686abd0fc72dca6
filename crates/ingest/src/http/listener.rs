//! The accept loop. It is ours because hyper has neither deadlines for silent clients nor caps on connections.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hookfast_queue::Queue;
use hookfast_store::Record;
use hookfast_webhook::{Clock, Provider, SourceName, Subscription};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admit::Limits;
use crate::background::Background;
use crate::commit::{BatchLimits, Committing, Recorder};
use crate::dispatch::Dispatcher;
use crate::health::{Details, Readiness};
use crate::http::caps::ConnectionCaps;
use crate::http::connection::{Activity, ImpatientStream, Patience};
use crate::memory::BodyMemory;
use crate::spool::drain::{self, Drainer};
use crate::spool::{SpoolWay, Spooling};
use crate::{Config, Source, address};

/// The largest head of a request: request line and headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// At the end of a shutdown, what was handed over for commit still has this time.
const COMMIT_WITHIN: Duration = Duration::from_secs(2);

/// And then the hints about it, and what can be drained, this.
const FOLLOW_WITHIN: Duration = Duration::from_secs(1);

/// Everything a request needs on its way.
pub struct Ingest {
    pub(crate) config: Config,
    pub(crate) public_url: String,
    pub(crate) table: RwLock<Arc<Table>>,
    pub(crate) decoy: Option<Arc<Source>>,
    /// Providers whose requests are recognised when they come to the wrong source.
    pub(crate) known_providers: Vec<Arc<dyn Provider>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) body_memory: BodyMemory,
    pub(crate) store: Arc<dyn Record>,
    pub(crate) recorder: Recorder,
    pub(crate) readiness: Readiness,
    shutdown: CancellationToken,
    connections: Arc<ConnectionCaps>,
}

/// What can change while we run: who sends, and who gets it.
pub struct Table {
    pub(crate) sources: HashMap<SourceName, Arc<Source>>,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl Table {
    /// The sources and the handlers as configured.
    pub fn new(sources: Vec<Source>, subscriptions: Vec<Subscription>) -> Self {
        let sources = sources.into_iter().map(|source| (source.name.clone(), Arc::new(source)));
        Self { sources: sources.collect(), subscriptions }
    }
}

/// A listener at work.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    ingest: Arc<Ingest>,
    /// Cancelled when the store may not be used any more; then the process should end.
    pub store_broken: CancellationToken,
    /// Cancelled when a background task panicked; then the process should end, too.
    pub must_end: CancellationToken,
    shutdown: CancellationToken,
    shutdown_timeout: Duration,
    connections: TaskTracker,
    committers: Background,
    large_committers: Background,
    /// Those who go on with what is committed: dispatcher and drainer.
    followers: Background,
    /// Cancelled when nothing more is committed.
    last_call: CancellationToken,
}

/// Where events become durable, and who is told.
pub struct Recording<'a> {
    /// Where.
    pub store: Arc<dyn Record>,
    /// Where instead, while that is away.
    pub spool: Option<SpoolWay>,
    /// How the workers are told, where that leads anywhere.
    pub queue: Option<Arc<dyn Queue>>,
    /// What `/readyz?verbose` says about the rest of the process.
    pub details: Option<Arc<dyn Details>>,
    /// The runtime of the commits. In the one of the requests, each step of a commit would queue behind the very requests
    /// that wait for it.
    pub commits: &'a Handle,
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
        let Recording { store, spool, queue, details, commits } = recording;
        let address = listener.local_addr()?;
        let (shutdown, store_broken, must_end) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let background = |runtime| Background::new(runtime, &must_end);
        let (connections, committers, followers) = (TaskTracker::new(), background(commits), background(commits));
        // Copying a large request into a statement takes time, in which the other commits would wait.
        let large_committers = background(&Handle::current());
        let last_call = CancellationToken::new();
        let limits = BatchLimits { events: config.batch_events, bytes: config.batch_bytes };
        let dispatcher = queue.map(|queue| Dispatcher::start(queue, &followers));
        let spooling = match spool {
            Some(way) => Some(Arc::new(Spooling::start(way).await)),
            None => None,
        };
        if let Some(spooling) = &spooling {
            let drainer = Drainer::new(Arc::clone(spooling), dispatcher.clone(), limits, last_call.clone());
            followers.spawn("drainer", drainer.run());
            followers.spawn("spool", drain::show(Arc::clone(&spooling.spool), last_call.clone()));
        }
        let committing = Committing {
            store: &store,
            spooling: spooling.as_ref(),
            limits,
            broken: &store_broken,
            dispatcher: dispatcher.as_ref(),
        };
        let ingest = Arc::new(Self {
            public_url: config.public_url.clone().unwrap_or_else(|| format!("http://{address}")),
            table: RwLock::new(Arc::new(table)),
            decoy: config.conceal_sources.then(|| Arc::new(Source::decoy())),
            known_providers,
            clock,
            limits: Limits::new(&config),
            body_memory: BodyMemory::new(config.body_memory),
            store: Arc::clone(&store),
            recorder: Recorder::start(&committing, config.queue_requests, &committers, &large_committers),
            readiness: Readiness::new(Arc::clone(&store), spooling, details, shutdown.clone()),
            shutdown: shutdown.clone(),
            connections: Arc::new(ConnectionCaps::new(&config)),
            config,
        });
        let shutdown_timeout = ingest.config.shutdown_timeout;
        connections.spawn(Arc::clone(&ingest).accept(listener, connections.clone()));
        Ok(Running {
            address,
            ingest,
            store_broken,
            must_end,
            shutdown,
            shutdown_timeout,
            connections,
            committers,
            large_committers,
            followers,
            last_call,
        })
    }
}

impl Running {
    /// From now on requests are judged by another table; those under way finish with the one they began with.
    pub fn reload(&self, table: Table) {
        *self.ingest.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    /// Stops accepting, finishes what was accepted, commits it. Connections that take longer than the time-out are cut;
    /// what they handed over for commit is committed all the same.
    pub async fn shut_down(self) {
        self.shutdown.cancel();
        self.connections.close();
        // The committers end when nobody can hand them anything more.
        drop(self.ingest);
        let end = Instant::now() + self.shutdown_timeout;
        if timeout_at(end, self.connections.wait()).await.is_err() {
            tracing::warn!(
                connections = self.connections.len(),
                "connections were still open at the end of the shutdown"
            );
        }
        // The committers end when the last connection has dropped its way to them; a cut one does so with the runtime.
        let end = end.max(Instant::now() + COMMIT_WITHIN);
        let _ = timeout_at(end, async { tokio::join!(self.committers.ended(), self.large_committers.ended()) }).await;
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

impl Ingest {
    pub(crate) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, tasks: TaskTracker) {
        let mut forget = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                _ = forget.tick() => self.limits.forget_idle_addresses(),
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer.ip(), &tasks),
                    Err(error) => {
                        // Out of file descriptors, mostly: accepting again at once would only spin.
                        tracing::warn!(%error, "a connection could not be accepted");
                        sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, peer: IpAddr, tasks: &TaskTracker) {
        let peer = address::canonical(peer);
        let Some(place) = self.connections.take_place(peer) else {
            refuse_connection(&stream);
            return;
        };
        let ingest = Arc::clone(self);
        tasks.spawn(async move {
            ingest.serve(stream, peer, &place.activity).await;
            drop(place);
        });
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: IpAddr, activity: &Activity) {
        // Answers are small: waiting for more to send would only make them late.
        let _ = stream.set_nodelay(true);
        let patience = Patience { head: self.config.header_timeout, idle: self.config.idle_timeout };
        let io = TokioIo::new(ImpatientStream::new(stream, patience, activity.clone()));
        let service = service_fn(|request| {
            let ingest = Arc::clone(&self);
            async move {
                activity.begin();
                let response = ingest.answer(request, peer, activity).await;
                activity.end();
                Ok::<_, Infallible>(response)
            }
        });
        let mut connection =
            std::pin::pin!(http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).serve_connection(io, service));
        tokio::select! {
            result = &mut connection => {
                log_connection_end(peer, result);
                return;
            }
            () = self.shutdown.cancelled() => {}
            // A request that has come in this very moment is finished.
            () = activity.evicted() => if !activity.is_at_work() { return },
            () = sleep(self.config.connection_lifetime) => {}
        }
        connection.as_mut().graceful_shutdown();
        let patience = self.config.shutdown_timeout;
        let _ = timeout(patience, connection).await;
    }
}

/// One write of a ready answer: a full gateway does not work for those it refuses.
fn refuse_connection(stream: &TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let _ = stream.try_write(ANSWER);
}

/// Errors are the other side's: it sent no HTTP, or went away.
fn log_connection_end(peer: IpAddr, result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

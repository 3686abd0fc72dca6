//! The accept loop. We have our own because hyper has neither deadlines for silent clients nor caps on connections.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caps::ConnectionCaps;
use super::connection::{Activity, ImpatientStream, Patience};
use super::service::Service;
use crate::address;

/// The largest head of a request, which is its request line and headers.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Accepts connections and serves them.
pub(crate) struct Listener {
    pub(crate) service: Service,
    connections: Arc<ConnectionCaps>,
    shutdown: CancellationToken,
}

impl Listener {
    pub(crate) fn new(service: Service, shutdown: CancellationToken) -> Self {
        let connections = Arc::new(ConnectionCaps::new(&service.ingest.config));
        Self { service, connections, shutdown }
    }

    /// Accepts until the shutdown begins.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener, tasks: TaskTracker) {
        let mut forget = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                _ = forget.tick() => self.service.ingest.limits.forget_idle_addresses(),
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer.ip(), &tasks),
                    Err(error) => {
                        // Mostly a lack of file descriptors, which would not end by accepting again at once.
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
        let listener = Arc::clone(self);
        tasks.spawn(async move {
            listener.serve(stream, peer, &place.activity).await;
            drop(place);
        });
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: IpAddr, activity: &Activity) {
        // Answers are small, so waiting for more bytes would only delay them.
        let _ = stream.set_nodelay(true);
        let config = &self.service.ingest.config;
        let patience = Patience { head: config.header_timeout, idle: config.idle_timeout };
        let io = TokioIo::new(ImpatientStream::new(stream, patience, activity.clone()));
        let service = service_fn(async |request| {
            activity.begin();
            let response = self.service.answer(request, peer, activity).await;
            activity.end();
            Ok::<_, Infallible>(response)
        });
        let mut connection =
            std::pin::pin!(http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).serve_connection(io, service));
        tokio::select! {
            result = &mut connection => {
                log_connection_end(peer, result);
                return;
            }
            () = self.shutdown.cancelled() => {}
            // A request that came in at this very moment is still answered.
            () = activity.evicted() => if !activity.is_at_work() { return },
            () = sleep(config.connection_lifetime) => {}
        }
        connection.as_mut().graceful_shutdown();
        let patience = config.shutdown_timeout;
        let _ = timeout(patience, connection).await;
    }
}

/// Writes a fixed answer, once and without waiting. A full gateway does no more for a connection that it refuses.
fn refuse_connection(stream: &TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let _ = stream.try_write(ANSWER);
}

/// Such errors are caused by the client: it sent no valid HTTP, or went away.
fn log_connection_end(peer: IpAddr, result: Result<(), hyper::Error>) {
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

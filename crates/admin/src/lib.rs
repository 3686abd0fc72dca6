//! What operators look at, on a listener of its own that the outside never reaches, for now the metrics; and what they do
//! ([`operate`]), which is the same function whether it is asked for on the command line or, later, here.

pub mod operate;

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A listener at work.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    shutdown: CancellationToken,
    server: JoinHandle<io::Result<()>>,
}

/// Starts to answer on `listener`.
pub fn start(listener: TcpListener, metrics: PrometheusHandle) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let shutdown = CancellationToken::new();
    let router = Router::new().route("/metrics", get(render_metrics)).with_state(metrics);
    let server = axum::serve(listener, router).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    Ok(Running { address, shutdown, server: tokio::spawn(server.into_future()) })
}

impl Running {
    /// Stops. Nobody waits for an operator's open page.
    pub fn shut_down(self) {
        self.shutdown.cancel();
        self.server.abort();
    }
}

async fn render_metrics(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}

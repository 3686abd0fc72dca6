//! The operators' listener. It limits the hosts that requests may name, the number of connections, and their duration.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hookfast_parts::{Part, Tasks};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The most open connections. Others wait until one of them ends.
const MAX_CONNECTIONS: usize = 32;

/// How long a connection may last. It serves one request.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait after a connection could not be accepted, for example because too many files are open.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// The largest head of a request.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A running listener.
pub struct Running {
    /// The address on which it listens.
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

/// Starts to answer requests on `listener`, if they name this machine or one of `hosts`.
pub fn start(
    listener: TcpListener,
    metrics: PrometheusHandle,
    hosts: &[HostName],
    tasks: &Tasks,
) -> io::Result<Running> {
    let address = listener.local_addr()?;
    let hosts = Arc::new(Hosts { address: address.ip(), names: hosts.to_vec() });
    let router = Router::new().route("/metrics", get(render_metrics)).with_state(metrics);
    let router = router.layer(middleware::from_fn_with_state(hosts, check_host));
    Ok(Running { address, server: tasks.spawn("admin", accept_all(listener, router)) })
}

impl Running {
    /// How this is shut down: it stops at once, and closes open connections.
    pub fn into_part(self) -> Part {
        Part::of_task("the admin listener", self.server)
    }
}

async fn accept_all(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(timeout(CONNECTION_TIMEOUT, serve(stream, router.clone())))),
            Err(_) => sleep(ACCEPT_AGAIN_AFTER).await,
        }
    }
}

async fn serve(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // An error here concerns only this connection.
    let _ = connection.await;
}

async fn render_metrics(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}

/// A name by which operators reach the listener, without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let authority: Option<Authority> = text.parse().ok();
        match authority {
            Some(authority) if authority.host() == text => Ok(Self(text.into())),
            _ => Err("write a name without a port, such as \"metrics.internal\""),
        }
    }
}

/// The hosts that requests may name. An attacker's web page can let its own name resolve to this machine, and an
/// operator's browser would then let that page read the answers. But the browser names the attacker's host in its
/// requests.
struct Hosts {
    address: IpAddr,
    names: Vec<HostName>,
}

impl Hosts {
    fn allow(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(HOST).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Ok(authority) = Authority::try_from(value.as_bytes()) else { return false };
        let host = authority.host();
        let address: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        host.eq_ignore_ascii_case("localhost")
            || address.is_some_and(|address| address.is_loopback() || address == self.address)
            || self.names.iter().any(|name| name.0.eq_ignore_ascii_case(host))
    }
}

async fn check_host(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    if hosts.allow(request.headers()) {
        return next.run(request).await;
    }
    let problem = "This host is not allowed here. `hosts` in `[admin]` allows further names.\n";
    (StatusCode::MISDIRECTED_REQUEST, problem).into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn this_machine_and_the_names_of_the_configuration_are_allowed() {
        let names = vec!["metrics.internal".parse().expect("a name")];
        let hosts = Hosts { address: IpAddr::from([127, 0, 0, 1]), names };
        let allows = |values: &[&str]| {
            let values = values.iter().map(|value| (HOST, HeaderValue::from_str(value).expect("legal")));
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.append(name, value);
            }
            hosts.allow(&headers)
        };
        for host in ["localhost", "LOCALHOST:8081", "127.0.0.1", "127.0.0.1:8081", "127.9.9.9", "[::1]:8081", "[::1]"] {
            assert!(allows(&[host]), "{host}");
        }
        assert!(allows(&["Metrics.internal:80"]));
        for host in [
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "10.0.0.1",
            "[fe80::1]",
            "",
            "a b",
            "internal",
        ] {
            assert!(!allows(&[host]), "{host}");
        }
        assert!(!allows(&[]), "a browser always names a host");
        assert!(!allows(&["localhost", "evil.example"]));
    }

    #[test]
    fn a_name_has_neither_port_nor_scheme_nor_user() {
        for name in ["metrics", "metrics.internal", "10.0.0.7", "[::2]"] {
            assert!(name.parse::<HostName>().is_ok(), "{name}");
        }
        for name in ["", "metrics:8081", "http://metrics", "user@metrics", "a b", "a/b"] {
            assert!(name.parse::<HostName>().is_err(), "{name}");
        }
    }
}

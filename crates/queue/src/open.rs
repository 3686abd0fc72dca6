//! Opens the queue that a URL names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use hookfast_parts::Tasks;
use hookfast_webhook::HandlerName;
use percent_encoding::percent_decode_str;

use crate::jetstream::JetStreamQueue;
use crate::{MemoryQueue, Queue, QueueError};

/// How to reach the queue, and how large it may get.
#[derive(Debug, Clone)]
pub struct Config {
    /// The queue to open.
    pub url: QueueUrl,
    /// The most hints of one handler that the queue holds. Jobs without a hint wait in the store.
    pub capacity: usize,
    /// JetStream: the beginning of the names of all streams and subjects. Gateways with the same prefix share their
    /// jobs.
    pub prefix: String,
    /// JetStream: the time after which a hint that was not acknowledged goes to another worker. Must not be shorter
    /// than a lease.
    pub ack_wait: Duration,
    /// JetStream: the most unacknowledged hints of one handler and priority, over all workers.
    pub max_ack_pending: u32,
    /// JetStream: the number of servers of a cluster that keep a copy of each stream.
    pub replicas: usize,
    /// JetStream: a file with a user's credentials, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
}

impl Config {
    /// The default settings.
    pub fn new(url: QueueUrl) -> Self {
        Self {
            url,
            capacity: 100_000,
            prefix: "hookfast".into(),
            ack_wait: Duration::from_secs(30),
            max_ack_pending: 10_000,
            replicas: 1,
            credentials: None,
        }
    }
}

/// Where the queue is.
#[derive(Debug, Clone)]
pub enum QueueUrl {
    /// The memory of this process.
    Memory,
    /// NATS servers with JetStream.
    Nats(Servers),
}

/// NATS servers of one cluster, and how to log in there.
#[derive(Clone)]
pub struct Servers {
    /// The addresses without user and password, because the client prints them in its log.
    pub(crate) addresses: Vec<ServerAddr>,
    login: Option<Login>,
}

#[derive(Clone)]
enum Login {
    Password { user: String, password: String },
    Token(String),
}

impl Servers {
    pub(crate) fn log_in(&self, options: ConnectOptions) -> ConnectOptions {
        match self.login.clone() {
            Some(Login::Password { user, password }) => options.user_and_password(user, password),
            Some(Login::Token(token)) => options.token(token),
            None => options,
        }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(ServerAddr::as_url_str).collect();
        f.write_str(&addresses.join(","))
    }
}

/// Leaves out user and password.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.to_string()).finish()
    }
}

impl FromStr for QueueUrl {
    type Err = QueueError;

    fn from_str(url: &str) -> Result<Self, QueueError> {
        if url == "memory:" {
            return Ok(Self::Memory);
        }
        let mut servers = Servers { addresses: Vec::new(), login: None };
        for server in url.split(',') {
            let (address, login) = read_server(server.trim())?;
            servers.addresses.push(address);
            servers.login = servers.login.or(login);
        }
        Ok(Self::Nats(servers))
    }
}

fn read_server(url: &str) -> Result<(ServerAddr, Option<Login>), QueueError> {
    let not_usable = || {
        let allowed = "`memory:`, `nats://HOST:4222` and `tls://HOST:4222`, with `USER:PASSWORD@` or `TOKEN@` before the \
                       host, and several servers with commas between them";
        QueueError::Url(format!("allowed are {allowed}"))
    };
    if !url.starts_with("nats://") && !url.starts_with("tls://") {
        return Err(not_usable());
    }
    let address = ServerAddr::from_str(url).map_err(|_| not_usable())?;
    let login = login(&address).map_err(|()| not_usable())?;
    let mut url = address.into_inner();
    let path = url.path();
    if url.host_str().is_none_or(str::is_empty) || !matches!(path, "" | "/") || url.query().is_some() {
        return Err(not_usable());
    }
    url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| not_usable())?;
    Ok((ServerAddr::from_url(url).map_err(|_| not_usable())?, login))
}

fn login(address: &ServerAddr) -> Result<Option<Login>, ()> {
    let decode = |text: &str| percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| ());
    Ok(match (address.username(), address.password()) {
        (Some(user), Some(password)) => Some(Login::Password { user: decode(user)?, password: decode(password)? }),
        (Some(token), None) => Some(Login::Token(decode(token)?)),
        (None, _) => None,
    })
}

/// Opens the queue and serves these handlers; one of `tasks` looks after the streams of a server. It is no error if the servers
/// cannot be reached: hints get through as soon as they are back.
pub async fn open(config: &Config, handlers: Vec<HandlerName>, tasks: &Tasks) -> Result<Arc<dyn Queue>, QueueError> {
    Ok(match &config.url {
        QueueUrl::Memory => {
            let queue = MemoryQueue::new(config.capacity);
            queue.serve(&handlers).await;
            Arc::new(queue)
        }
        QueueUrl::Nats(servers) => Arc::new(JetStreamQueue::connect(servers, config, handlers, tasks).await?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    fn servers(url: &str) -> Servers {
        match url.parse() {
            Ok(QueueUrl::Nats(servers)) => servers,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_name_memory_or_servers_and_nothing_else() {
        assert!(matches!("memory:".parse(), Ok(QueueUrl::Memory)));
        assert_eq!(servers("nats://a:4222, tls://b:1").to_string(), "nats://a:4222,tls://b:1");
        assert_eq!(servers("nats://[::1]:4222").addresses[0].host(), "::1");
        for bad in
            ["", "memory", "memory:x", "localhost:4222", "http://h", "ws://h", "nats://", "nats://h/x", "nats://h,"]
        {
            assert!(bad.parse::<QueueUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_taken_out_of_the_url_and_never_shown() {
        let url: QueueUrl = "nats://ann:s%40cret@a:4222,nats://b:4222".parse().unwrap();
        assert_eq!(format!("{url:?}"), r#"Nats(Servers("nats://a:4222,nats://b:4222"))"#);
        let QueueUrl::Nats(servers) = url else { panic!("these are servers") };
        assert!(
            matches!(servers.login, Some(Login::Password { user, password }) if user == "ann" && password == "s@cret")
        );
    }

    #[test]
    fn a_user_without_a_password_is_a_token() {
        assert!(matches!(servers("tls://t0ken@a").login, Some(Login::Token(token)) if token == "t0ken"));
        assert!(servers("nats://a").login.is_none());
    }
}

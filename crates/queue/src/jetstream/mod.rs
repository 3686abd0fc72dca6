//! NATS JetStream: a work-queue stream for each handler. Every waiting job has a subject of its own, and each subject
//! holds one message. So the server itself refuses to queue a job twice, and a backlog does not multiply.
//!
//! | part | what it does |
//! | --- | --- |
//! | [`link`] | knows whether hints can get through, and wakes the keeper |
//! | [`keeper`] | makes streams and consumers, at the start and whenever they are missing |
//! | [`publish`] | sends hints |
//! | [`lanes`], [`lane`] | fetch hints, for one handler and for one priority of it |
//!
//! The store decides about retries. So these features of JetStream are not used: NAK, TERM, back-off, delivery limits
//! and message ids.

mod keeper;
mod lane;
mod lanes;
mod link;
mod names;
mod publish;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, Event, Subject, SubscribeError, connection};
use async_trait::async_trait;
use hookfast_parts::Tasks;
use hookfast_webhook::{HandlerName, Priority, is_name};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::{Config, Dispatched, Hint, Pulled, Queue, QueueError, Servers};
use keeper::Keeper;
use lanes::Lanes;
use link::Link;
use names::Names;
use publish::Publisher;

/// How long a request may take before the server counts as unreachable.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// How long sending an acknowledgement may take.
const ACKNOWLEDGE_PATIENCE: Duration = Duration::from_secs(1);

/// A server that hangs is noticed after two or three of these. The client's default would take minutes.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// More publications than can be under way at once. Our own batches are limited already, and a lower limit in the
/// client would let one batch wait for the end of another.
const PUBLICATIONS_UNDER_WAY: usize = 1_000_000;

pub(crate) struct JetStreamQueue {
    client: Client,
    context: Context,
    names: Arc<Names>,
    link: Arc<Link>,
    publisher: Publisher,
    handlers: Handlers,
    /// Wakes pulls for handlers that were not served, when `handlers` changes.
    served: Notify,
    lanes: tokio::sync::Mutex<HashMap<HandlerName, Arc<tokio::sync::Mutex<Lanes>>>>,
    emptied: Arc<Notify>,
    keeper: AbortOnDropHandle<()>,
}

/// The handlers that are served.
type Handlers = Arc<Mutex<BTreeSet<HandlerName>>>;

impl JetStreamQueue {
    pub(crate) async fn connect(
        servers: &Servers,
        config: &Config,
        handlers: Vec<HandlerName>,
        tasks: &Tasks,
    ) -> Result<Self, QueueError> {
        if !is_name(&config.prefix) {
            return Err(QueueError::Setting(format!("`{}` cannot be the prefix of the queue's names", config.prefix)));
        }
        let link = Arc::new(Link::new(servers));
        let client = connect(servers, config, &link).await?;
        let context = ContextBuilder::new()
            .max_ack_inflight(PUBLICATIONS_UNDER_WAY)
            .ack_timeout(REQUEST_PATIENCE)
            .timeout(REQUEST_PATIENCE)
            .build(client.clone());
        let names = Arc::new(Names::new(&config.prefix));
        let handlers: Handlers = Arc::new(Mutex::new(handlers.into_iter().collect()));
        let publisher = Publisher::new(context.clone(), Arc::clone(&names), Arc::clone(&link), Arc::clone(&handlers));
        let emptied = Arc::new(Notify::new());
        let mut keeper = Keeper {
            context: context.clone(),
            link: Arc::clone(&link),
            names: Arc::clone(&names),
            config: config.clone(),
            handlers: Arc::clone(&handlers),
            last_sequences: publisher.last_sequences(),
            emptied: Arc::clone(&emptied),
            streams_created: HashMap::new(),
            consumers_created: HashMap::new(),
            refused: None,
            tidied_for: None,
        };
        keeper.begin().await?;
        let keeper = AbortOnDropHandle::new(tasks.spawn("queue", keeper.run()));
        let (served, lanes) = Default::default();
        Ok(Self { client, context, names, link, publisher, handlers, served, lanes, emptied, keeper })
    }

    /// Waits until the handler is served. A pull alone does not make it served, because it may just have been paused.
    async fn until_served(&self, handler: &HandlerName) {
        loop {
            let changed = self.served.notified();
            if self.handlers.lock().unwrap_or_else(PoisonError::into_inner).contains(handler) {
                return;
            }
            changed.await;
        }
    }

    /// The lanes of a handler. The keeper soon makes the consumers of a new one.
    async fn lanes(&self, handler: &HandlerName) -> Result<Arc<tokio::sync::Mutex<Lanes>>, SubscribeError> {
        let mut all = self.lanes.lock().await;
        if let Some(lanes) = all.get(handler) {
            return Ok(Arc::clone(lanes));
        }
        let lanes = Lanes::new(&self.context, &self.names, Arc::clone(&self.link), handler).await?;
        let lanes = Arc::new(tokio::sync::Mutex::new(lanes));
        all.insert(handler.clone(), Arc::clone(&lanes));
        Ok(lanes)
    }

    async fn waiting_in(&self, priority: Priority, handler: &HandlerName) -> Option<u64> {
        let name = self.names.consumer(priority);
        let found = self.context.get_consumer_from_stream(name, self.names.stream(handler)).await;
        found.ok().map(|consumer: PullConsumer| consumer.cached_info().num_pending)
    }
}

#[async_trait]
impl Queue for JetStreamQueue {
    async fn serve(&self, handlers: &[HandlerName]) {
        *self.handlers.lock().unwrap_or_else(PoisonError::into_inner) = handlers.iter().cloned().collect();
        self.lanes.lock().await.retain(|handler, _| handlers.contains(handler));
        self.served.notify_waiters();
        self.link.look();
    }

    async fn dispatch(&self, hints: &[Hint]) -> Dispatched {
        self.publisher.dispatch(hints).await
    }

    async fn pull(&self, handler: &HandlerName, max: usize) -> Vec<Pulled> {
        if max == 0 {
            return Vec::new();
        }
        self.until_served(handler).await;
        match self.lanes(handler).await {
            Ok(lanes) => lanes.lock().await.pull(max).await,
            // The queue was closed.
            Err(_) => std::future::pending().await,
        }
    }

    async fn waiting(&self, handler: &HandlerName) -> Option<u64> {
        if !self.link.is_up() {
            return None;
        }
        let mut waiting = 0;
        for priority in Priority::ALL {
            waiting += self.waiting_in(priority, handler).await?;
        }
        Some(waiting)
    }

    fn room(&self, _: &HandlerName) -> usize {
        // The server refuses what does not fit. Only the server knows what other processes have sent.
        if self.link.is_up() { usize::MAX } else { 0 }
    }

    async fn check(&self) -> Result<(), QueueError> {
        self.link.check()?;
        self.publisher.check()
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn emptied(&self) {
        self.emptied.notified().await;
    }

    async fn close(&self) {
        self.keeper.abort();
        self.link.close();
        // The last acknowledgements may not have been sent yet.
        let _ = timeout(ACKNOWLEDGE_PATIENCE, self.client.flush()).await;
        let _ = timeout(ACKNOWLEDGE_PATIENCE, self.client.drain()).await;
    }
}

/// Starts to connect. The client keeps trying until it succeeds.
async fn connect(servers: &Servers, config: &Config, link: &Arc<Link>) -> Result<Client, QueueError> {
    let events = Arc::clone(link);
    let options = ConnectOptions::new()
        .name("hookfast")
        .retry_on_initial_connect()
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_PATIENCE))
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            heed(&events, &event);
            std::future::ready(())
        });
    let mut options = servers.log_in(options);
    if let Some(file) = &config.credentials {
        let unreadable =
            |error| QueueError::Setting(format!("cannot use the credentials in {}: {error}", file.display()));
        options = options.credentials_file(file).await.map_err(unreadable)?;
    }
    let connected = options.connect(&servers.addresses[..]).await;
    connected.map_err(|error| QueueError::Unreachable { servers: servers.to_string(), problem: error.to_string() })
}

fn heed(link: &Link, event: &Event) {
    match event {
        Event::Connected => link.look(),
        Event::Disconnected => link.down("the connection was lost".into()),
        Event::ClientError(error) if !link.is_up() => link.down(error.to_string()),
        _ => tracing::debug!(%event, "NATS client event"),
    }
}

/// At most half a second, so that hints get through soon after an outage, and random, so that gateways do not reconnect
/// at once.
fn reconnect_delay(attempt: usize) -> Duration {
    let most = 10 << attempt.min(6);
    Duration::from_millis(fastrand::u64(most / 2..=most))
}

fn is_connected(client: &Client) -> bool {
    client.connection_state() == connection::State::Connected
}

/// The subject on which the server expects the acknowledgement of a message.
#[derive(Debug)]
pub(crate) struct Receipt {
    client: Client,
    reply: Subject,
}

impl Receipt {
    pub(crate) async fn acknowledge(&self) {
        self.say("+ACK").await;
    }

    pub(crate) async fn in_progress(&self) {
        self.say("+WPI").await;
    }

    /// Sends nothing while there is no connection: the client would store the message for the next connection, and
    /// later make its caller wait.
    async fn say(&self, word: &'static str) {
        if is_connected(&self.client) {
            let _ = timeout(ACKNOWLEDGE_PATIENCE, self.client.publish(self.reply.clone(), word.into())).await;
        }
    }
}

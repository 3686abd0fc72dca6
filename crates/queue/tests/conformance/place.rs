//! Where a test has its queue, and what tests wait for.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use hookfast_harness::{NatsVersion, PrivateNats};
use hookfast_parts::{MustEnd, Tasks};
use hookfast_queue::{Config, Dispatched, Hint, Pulled, Queue, QueueError, QueueUrl, open};
use hookfast_webhook::{EventId, HandlerName, Priority};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// The queue of one test, and its server if it has one.
pub(crate) struct Place {
    pub(crate) nats: Option<PrivateNats>,
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self { nats: None }
    }

    pub(crate) fn nats(version: NatsVersion) -> Self {
        Self { nats: Some(PrivateNats::start(version)) }
    }

    pub(crate) fn server(&mut self) -> &mut PrivateNats {
        self.nats.as_mut().expect("there is a server")
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(match &self.nats {
            None => QueueUrl::Memory,
            Some(nats) => nats.url().parse().unwrap(),
        })
    }

    pub(crate) async fn open(&self) -> Arc<dyn Queue> {
        self.open_with(|_| {}).await
    }

    pub(crate) async fn open_with(&self, change: impl FnOnce(&mut Config)) -> Arc<dyn Queue> {
        self.try_open(change).await.expect("the queue opens")
    }

    pub(crate) async fn try_open(&self, change: impl FnOnce(&mut Config)) -> Result<Arc<dyn Queue>, QueueError> {
        let mut config = self.config();
        change(&mut config);
        open(&config, vec![ledger()], &tasks()).await
    }

    /// The names of the streams on the server, and the subjects of each.
    pub(crate) async fn streams(&self) -> BTreeMap<String, Vec<String>> {
        let context = self.jetstream().await;
        let infos: Vec<_> = context.streams().map(|info| info.unwrap()).collect().await;
        infos.into_iter().map(|info| (info.config.name, info.config.subjects)).collect()
    }

    /// Waits until the server has the streams of these handlers, and of no others.
    pub(crate) async fn until_streams_are(&self, handlers: &[&str]) {
        let expected: Vec<_> = handlers.iter().map(|handler| format!("hookfast-hints-{handler}")).collect();
        let are_so = async {
            while self.streams().await.into_keys().filter(|name| name.contains("hookfast")).ne(expected.iter().cloned())
            {
                sleep(Duration::from_millis(20)).await;
            }
        };
        soon(&format!("the streams are {expected:?}"), are_so).await;
    }

    /// A connection of another client to the server.
    pub(crate) async fn jetstream(&self) -> Context {
        jetstream::new(async_nats::connect(self.nats.as_ref().expect("there is a server").url()).await.unwrap())
    }

    pub(crate) async fn messages(&self) -> u64 {
        let stream = self.jetstream().await.get_stream(LEDGERS_STREAM).await.unwrap();
        stream.cached_info().state.messages
    }
}

pub(crate) const LEDGERS_STREAM: &str = "hookfast-hints-ledger";

pub(crate) fn mail() -> HandlerName {
    HandlerName::new("mail").unwrap()
}

pub(crate) fn tasks() -> Tasks {
    Tasks::new(&Handle::current(), &MustEnd::default())
}

pub(crate) fn ledger() -> HandlerName {
    HandlerName::new("ledger").unwrap()
}

pub(crate) fn hint(priority: Priority) -> Hint {
    Hint { event: EventId::new(), handler: ledger(), priority }
}

pub(crate) fn hints(count: usize) -> Vec<Hint> {
    std::iter::repeat_with(|| hint(Priority::Normal)).take(count).collect()
}

pub(crate) fn hints_for_mail(count: usize) -> Vec<Hint> {
    hints(count).into_iter().map(|hint| Hint { handler: mail(), ..hint }).collect()
}

pub(crate) fn queued(queued: usize) -> Dispatched {
    Dispatched { queued, ..Default::default() }
}

/// Waits for `future`, and fails the test if it takes too long.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.unwrap_or_else(|_| panic!("waited 30 s in vain: {what}"))
}

pub(crate) async fn pull(queue: &Arc<dyn Queue>, max: usize) -> Vec<Pulled> {
    soon("a hint", queue.pull(&ledger(), max)).await
}

/// Pulls and acknowledges this number of hints.
pub(crate) async fn finish(queue: &Arc<dyn Queue>, count: usize) -> Vec<Hint> {
    finish_for(&ledger(), queue, count).await
}

pub(crate) async fn finish_for(handler: &HandlerName, queue: &Arc<dyn Queue>, count: usize) -> Vec<Hint> {
    let mut finished = Vec::new();
    while finished.len() < count {
        for pulled in soon("a hint", queue.pull(handler, count - finished.len())).await {
            finished.push(pulled.hint.clone());
            pulled.acknowledge().await;
        }
    }
    finished
}

/// Dispatches until all hints got through, as the sweeper does.
pub(crate) async fn dispatch_all(queue: &Arc<dyn Queue>, hints: &[Hint]) {
    let all = async {
        while queue.dispatch(hints).await.not_queued > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("all hints get through", all).await;
}

pub(crate) async fn until_usable(queue: &Arc<dyn Queue>) {
    let usable = async {
        while queue.check().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the queue can be used", usable).await;
}

pub(crate) async fn until_unusable(queue: &Arc<dyn Queue>) {
    let unusable = async {
        while queue.check().await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the queue cannot be used", unusable).await;
}

pub(crate) fn set(hints: &[Hint]) -> HashSet<Hint> {
    hints.iter().cloned().collect()
}

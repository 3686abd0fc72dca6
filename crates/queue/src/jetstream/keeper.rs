//! Makes the streams and their consumers, at the start and whenever they are missing: a server may come back empty
//! after a power cut, and an operator may remove a stream. Also removes the streams of handlers that are not served.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use futures_util::StreamExt;
use hookfast_webhook::{HandlerName, Priority};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::names::Names;
use super::publish::LastSequences;
use super::{Handlers, REQUEST_PATIENCE, is_connected};
use crate::{Config, QueueError};

/// Wait after a request that the server did not fulfil.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The largest message that a stream takes. Hints have no payload, and other clients must not fill the server's disk.
const MAX_HINT_BYTES: i32 = 1024;

pub(super) struct Keeper {
    pub(super) context: Context,
    pub(super) link: Arc<Link>,
    pub(super) names: Arc<Names>,
    pub(super) config: Config,
    pub(super) handlers: Handlers,
    pub(super) last_sequences: LastSequences,
    pub(super) emptied: Arc<Notify>,
    /// When each known stream was created. A different time means that the stream was removed and made again.
    pub(super) streams_created: HashMap<String, OffsetDateTime>,
    pub(super) consumers_created: HashMap<String, OffsetDateTime>,
    /// Why the server refuses the stream of a handler, if it refuses one.
    pub(super) refused: Option<QueueError>,
    /// The handlers that were served when left-over streams were last removed.
    pub(super) tidied_for: Option<BTreeSet<HandlerName>>,
}

impl Keeper {
    /// Makes streams and consumers, if the server can be reached. If not, that is no error: [`Keeper::run`] tries
    /// again.
    pub(super) async fn begin(&mut self) -> Result<(), QueueError> {
        let kept = timeout(REQUEST_PATIENCE, self.keep()).await;
        match kept.unwrap_or_else(|_| Err(self.link.unreachable("it does not answer".into()))) {
            Err(problem) => {
                tracing::warn!(%problem, "the queue cannot be used yet; jobs wait in the store");
                self.link.look();
                Ok(())
            }
            // When the process starts, a refused stream is a mistake that the operator should see at once.
            Ok(()) => self.refused.take().map_or(Ok(()), Err),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.link.asked_to_look().await;
            while let Err(problem) = self.keep().await {
                self.link.down(match problem {
                    QueueError::Unreachable { problem, .. } => problem,
                    other => other.to_string(),
                });
                if !is_connected(&self.context.client()) {
                    // The next connection wakes the keeper again.
                    break;
                }
                sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Makes sure that all streams and consumers exist with the right settings.
    async fn keep(&mut self) -> Result<(), QueueError> {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.tidied_for.as_ref() != Some(&handlers) {
            self.remove_others(&handlers).await?;
            self.tidied_for = Some(handlers.clone());
        }
        let mut repaired = false;
        self.refused = None;
        for handler in &handlers {
            match self.keep_stream(handler).await {
                // A problem with one handler's stream must not keep hints from the other handlers.
                Err(problem @ QueueError::OtherStream { .. }) => {
                    tracing::error!(%handler, %problem, "the jobs of this handler wait in the store");
                    self.refused = Some(problem);
                    continue;
                }
                kept => kept?,
            }
            for priority in Priority::ALL {
                repaired |= self.keep_consumer(priority, handler).await?;
            }
        }
        self.link.up(repaired);
        Ok(())
    }

    /// Removes the streams of handlers that are not served. Their jobs are in the store, and hints that no worker takes
    /// would stay for ever. A process that serves such a handler makes its stream again.
    async fn remove_others(&mut self, served: &BTreeSet<HandlerName>) -> Result<(), QueueError> {
        let mut names = self.context.stream_names();
        while let Some(name) = names.next().await {
            let name = name.map_err(|error| self.link.unreachable(format!("its streams cannot be listed: {error}")))?;
            if self.is_left_over(&name, served).await {
                tracing::info!(stream = name, "hints of a handler that is paused or not configured are removed");
                self.streams_created.remove(&name);
                self.last_sequences.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                let removed = self.context.delete_stream(&name).await;
                removed.map_err(|error| self.link.unreachable(format!("{name} cannot be removed: {error}")))?;
            }
        }
        Ok(())
    }

    /// Whether a stream belongs to this deployment and to no served handler. The subjects decide, because another
    /// deployment or program may have a stream with such a name.
    async fn is_left_over(&self, stream: &str, served: &BTreeSet<HandlerName>) -> bool {
        let ours = match stream.strip_prefix(&self.names.all_streams()) {
            Some(handler) if !served.contains(handler) => {
                [self.names.all_jobs(handler), self.names.former_jobs_of(handler)]
            }
            None if stream == self.names.former_stream() => [self.names.former_jobs(), Vec::new()],
            _ => return false,
        };
        let found = self.context.get_stream(stream).await;
        found.is_ok_and(|found| ours.contains(&found.cached_info().config.subjects))
    }

    async fn keep_stream(&mut self, handler: &HandlerName) -> Result<(), QueueError> {
        let name = self.names.stream(handler);
        // Read this before asking the server. Otherwise a hint published meanwhile would look lost.
        let last_sequence = self.last_sequence(&name);
        let info = self.stream(handler).await?;
        let known = self.streams_created.insert(name.clone(), info.created);
        let was_replaced = known.is_some_and(|created| created != info.created);
        let is_unused = known.is_none() && info.state.last_sequence == 0;
        let lost_messages = info.state.last_sequence < last_sequence;
        if was_replaced || is_unused || lost_messages {
            tracing::info!(stream = name, "the stream is new or has lost messages; its jobs are dispatched again");
            self.last_sequences.lock().unwrap_or_else(PoisonError::into_inner).insert(name, info.state.last_sequence);
            self.emptied.notify_one();
        }
        Ok(())
    }

    fn last_sequence(&self, stream: &str) -> u64 {
        let known = self.last_sequences.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(stream).copied().unwrap_or_default()
    }

    /// The stream as it is on the server. Makes or changes it if necessary.
    async fn stream(&self, handler: &HandlerName) -> Result<Info, QueueError> {
        match self.context.get_stream(self.names.stream(handler)).await {
            Ok(stream) => self.fitting(handler, stream.cached_info().clone()).await,
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    let made = self.context.create_stream(self.wanted_stream(handler)).await;
                    made.map(|stream| stream.cached_info().clone()).map_err(|error| self.not_made(handler, &error))
                }
                _ => Err(self.link.unreachable(format!("JetStream does not answer ({error}); is it enabled there?"))),
            },
        }
    }

    /// The stream, after its settings were changed to ours if they differed.
    async fn fitting(&self, handler: &HandlerName, found: Info) -> Result<Info, QueueError> {
        let wanted = self.wanted_stream(handler);
        // The server adds settings of its own, and those stay.
        let changed = stream::Config {
            subjects: wanted.subjects,
            retention: wanted.retention,
            storage: wanted.storage,
            discard: wanted.discard,
            discard_new_per_subject: wanted.discard_new_per_subject,
            max_messages: wanted.max_messages,
            max_messages_per_subject: wanted.max_messages_per_subject,
            max_message_size: wanted.max_message_size,
            num_replicas: wanted.num_replicas,
            ..found.config.clone()
        };
        if changed == found.config {
            return Ok(found);
        }
        self.context.update_stream(&changed).await.map_err(|error| self.not_made(handler, &error))
    }

    fn wanted_stream(&self, handler: &HandlerName) -> stream::Config {
        stream::Config {
            name: self.names.stream(handler),
            description: Some("Hints of Hookfast that jobs are ready. The jobs are in its database.".into()),
            subjects: self.names.all_jobs(handler.as_str()),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            max_messages: i64::try_from(self.config.capacity).unwrap_or(i64::MAX),
            max_messages_per_subject: 1,
            max_message_size: MAX_HINT_BYTES,
            num_replicas: self.config.replicas,
            ..Default::default()
        }
    }

    /// A refusal by the server is permanent. Every other error may be over soon.
    fn not_made(&self, handler: &HandlerName, error: &CreateStreamError) -> QueueError {
        match error.kind() {
            CreateStreamErrorKind::JetStream(refusal) if refusal.code() < 503 => {
                QueueError::OtherStream { stream: self.names.stream(handler), problem: refusal.to_string() }
            }
            _ => self.link.unreachable(error.to_string()),
        }
    }

    /// Makes the consumer if it is missing. Returns whether it was missing, as far as that is known.
    async fn keep_consumer(&mut self, priority: Priority, handler: &HandlerName) -> Result<bool, QueueError> {
        let (stream, name) = (self.names.stream(handler), self.names.consumer(priority));
        let wanted = consumer::pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.names.jobs(priority, handler.as_str()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.config.ack_wait,
            max_deliver: -1,
            max_ack_pending: i64::from(self.config.max_ack_pending),
            ..Default::default()
        };
        let made = self.context.create_consumer_on_stream(wanted, &stream).await;
        let no_consumer = |error| self.link.unreachable(format!("no consumer {name} of {stream}: {error}"));
        let created = made.map_err(no_consumer)?.cached_info().created;
        Ok(self.consumers_created.insert(format!("{stream} {name}"), created) != Some(created))
    }
}

//! Sends hints.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use tokio::time::timeout;

use super::is_connected;
use super::link::Link;
use super::names::Names;
use crate::{Dispatched, Hint, QueueError};

/// How long dispatching may take. What is late counts as not queued, though it may well have arrived.
const DISPATCH_PATIENCE: Duration = Duration::from_secs(2);

/// How many hints are sent before the first answer is waited for.
const SENT_AT_ONCE: usize = 1000;

pub(super) struct Publisher {
    context: Context,
    names: Arc<Names>,
    link: Arc<Link>,
    /// The highest number that the stream gave to a message of ours.
    last_sequence: Arc<AtomicU64>,
    /// Why the stream took nothing the last time.
    refusal: Mutex<Option<String>>,
}

/// Why a message was not taken.
enum Untaken {
    WaitingAlready,
    Refused(String),
}

impl Publisher {
    pub(super) fn new(context: Context, names: Arc<Names>, link: Arc<Link>) -> Self {
        Self { context, names, link, last_sequence: Arc::default(), refusal: Mutex::default() }
    }

    pub(super) fn last_sequence(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.last_sequence)
    }

    pub(super) fn check(&self) -> Result<(), QueueError> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        refusal.map_or(Ok(()), |refusal| Err(QueueError::Refused(refusal)))
    }

    pub(super) async fn dispatch(&self, hints: &[Hint]) -> Dispatched {
        let mut dispatched = Dispatched::default();
        // Without a connection the client would wait for the next one.
        if self.link.is_up() && is_connected(&self.context.client()) {
            let sent = timeout(DISPATCH_PATIENCE, self.send_all(hints, &mut dispatched)).await;
            if sent.is_err() {
                self.link.look();
            }
        }
        dispatched.not_queued = hints.len() - dispatched.queued - dispatched.waiting_already;
        dispatched
    }

    /// Sends in parts, and no further part when something was refused: what does not fit now waits in the store.
    async fn send_all(&self, hints: &[Hint], dispatched: &mut Dispatched) {
        for part in hints.chunks(SENT_AT_ONCE) {
            let refusal = match self.send(part).await {
                Ok(answers) => self.read(answers, dispatched).await,
                Err(error) => Some(error.to_string()),
            };
            let is_refused = refusal.is_some();
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
            if is_refused {
                return;
            }
        }
    }

    async fn send(&self, hints: &[Hint]) -> Result<Vec<PublishAckFuture>, PublishError> {
        let mut answers = Vec::with_capacity(hints.len());
        for hint in hints {
            let subject = self.names.job(hint.priority, &hint.handler, hint.event);
            answers.push(self.context.publish(subject, Bytes::new()).await?);
        }
        Ok(answers)
    }

    /// Counts the answers; says why something was refused, if so.
    async fn read(&self, answers: Vec<PublishAckFuture>, dispatched: &mut Dispatched) -> Option<String> {
        let mut refusal = None;
        for answer in answers {
            match answer.await.map_err(|error| self.untaken(&error)) {
                Ok(taken) => {
                    self.last_sequence.fetch_max(taken.sequence, Ordering::Relaxed);
                    dispatched.queued += 1;
                }
                Err(Untaken::WaitingAlready) => dispatched.waiting_already += 1,
                Err(Untaken::Refused(problem)) => refusal = Some(problem),
            }
        }
        refusal
    }

    fn untaken(&self, error: &PublishError) -> Untaken {
        let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
        if let Some(said) = said.filter(|said| said.error_code() == ErrorCode::STREAM_STORE_FAILED) {
            // One code for both: the subject has its message already, or the stream is full.
            let text = said.to_string();
            return if text.contains("per subject") { Untaken::WaitingAlready } else { Untaken::Refused(text) };
        }
        if error.kind() == PublishErrorKind::StreamNotFound {
            self.link.look();
        }
        Untaken::Refused(said.map_or_else(|| error.to_string(), ToString::to_string))
    }
}

//! Sends hints to the streams.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use hookfast_webhook::HandlerName;
use tokio::time::timeout;

use super::link::Link;
use super::names::Names;
use super::{Handlers, is_connected};
use crate::{Dispatched, Hint, QueueError};

/// How long dispatching may take. Hints without an answer by then count as not queued, although they may have arrived.
const DISPATCH_PATIENCE: Duration = Duration::from_secs(2);

/// How many hints are sent before waiting for the first answer.
const SENT_AT_ONCE: usize = 1000;

pub(super) struct Publisher {
    context: Context,
    names: Arc<Names>,
    link: Arc<Link>,
    /// The handlers to which hints are sent.
    served: Handlers,
    last_sequences: LastSequences,
    /// Why the server refused all hints the last time. A full stream of one handler does not count.
    refusal: Mutex<Option<String>>,
}

/// The highest sequence number that each stream gave to one of our messages.
pub(super) type LastSequences = Arc<Mutex<HashMap<String, u64>>>;

/// Why the server did not take a message.
enum Untaken {
    WaitingAlready,
    /// The handler's stream is full or missing.
    Full,
    Refused(String),
}

impl Publisher {
    pub(super) fn new(context: Context, names: Arc<Names>, link: Arc<Link>, served: Handlers) -> Self {
        Self { context, names, link, served, last_sequences: Arc::default(), refusal: Mutex::default() }
    }

    pub(super) fn last_sequences(&self) -> LastSequences {
        Arc::clone(&self.last_sequences)
    }

    pub(super) fn check(&self) -> Result<(), QueueError> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        refusal.map_or(Ok(()), |refusal| Err(QueueError::Refused(refusal)))
    }

    pub(super) async fn dispatch(&self, hints: &[Hint]) -> Dispatched {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hints: Vec<_> = hints.iter().filter(|hint| served.contains(&hint.handler)).collect();
        let mut dispatched = Dispatched::default();
        // Without a connection the client would wait for the next one.
        if self.link.is_up() && is_connected(&self.context.client()) {
            let sent = timeout(DISPATCH_PATIENCE, self.send_all(&hints, &mut dispatched)).await;
            if sent.is_err() {
                self.link.look();
            }
        }
        dispatched.not_queued = hints.len() - dispatched.queued - dispatched.waiting_already;
        dispatched
    }

    /// Sends the hints in parts. Sends no more to a stream that is full, and no further part after a refusal: the jobs
    /// of the remaining hints wait in the store.
    async fn send_all(&self, hints: &[&Hint], dispatched: &mut Dispatched) {
        let mut full = HashSet::new();
        for part in hints.chunks(SENT_AT_ONCE) {
            let part: Vec<_> = part.iter().copied().filter(|hint| !full.contains(&hint.handler)).collect();
            let refusal = match self.send(&part).await {
                Ok(answers) => self.read(&part, answers, dispatched, &mut full).await,
                Err(error) => Some(error.to_string()),
            };
            let is_refused = refusal.is_some();
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
            if is_refused {
                return;
            }
        }
    }

    async fn send(&self, hints: &[&Hint]) -> Result<Vec<PublishAckFuture>, PublishError> {
        let mut answers = Vec::with_capacity(hints.len());
        for hint in hints {
            let subject = self.names.job(hint.priority, &hint.handler, hint.event);
            answers.push(self.context.publish(subject, Bytes::new()).await?);
        }
        Ok(answers)
    }

    /// Reads the server's answers and counts them. Returns the reason of a refusal, if there was one.
    async fn read(
        &self,
        hints: &[&Hint],
        answers: Vec<PublishAckFuture>,
        dispatched: &mut Dispatched,
        full: &mut HashSet<HandlerName>,
    ) -> Option<String> {
        let mut refusal = None;
        let mut sequences: HashMap<String, u64> = HashMap::new();
        for (hint, answer) in hints.iter().zip(answers) {
            match answer.await.map_err(|error| self.untaken(&error)) {
                Ok(taken) => {
                    let highest = sequences.entry(taken.stream).or_default();
                    *highest = taken.sequence.max(*highest);
                    dispatched.queued += 1;
                }
                Err(Untaken::WaitingAlready) => dispatched.waiting_already += 1,
                Err(Untaken::Full) => drop(full.insert(hint.handler.clone())),
                Err(Untaken::Refused(problem)) => refusal = Some(problem),
            }
        }
        let mut highest = self.last_sequences.lock().unwrap_or_else(PoisonError::into_inner);
        for (stream, sequence) in sequences {
            let known = highest.entry(stream).or_default();
            *known = sequence.max(*known);
        }
        refusal
    }

    fn untaken(&self, error: &PublishError) -> Untaken {
        let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
        if let Some(said) = said.filter(|said| said.error_code() == ErrorCode::STREAM_STORE_FAILED) {
            // One error code has three meanings: the subject already has a message, the stream is full, or the disk is
            // full.
            let text = said.to_string();
            return match text.as_str() {
                text if text.contains("per subject") => Untaken::WaitingAlready,
                text if text.contains("maximum messages") => Untaken::Full,
                _ => Untaken::Refused(text),
            };
        }
        // The keeper makes the stream again. Until then only this handler gets no hints, so this is no general refusal.
        if error.kind() == PublishErrorKind::StreamNotFound {
            self.link.look();
            return Untaken::Full;
        }
        Untaken::Refused(said.map_or_else(|| error.to_string(), ToString::to_string))
    }
}

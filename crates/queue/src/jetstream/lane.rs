//! The hints of one handler and one priority.
//!
//! A lane has one request to its consumer under way at a time. While it knows of no further message, it *waits* for
//! one. Each message says how many more are on the server, and the lane *fetches* as many of these as its caller can
//! use. So a process takes no more hints than it can handle, except for one hint in each lane.
//!
//! Hints that arrive stay in the lane until a worker pulls them, so a dropped pull loses nothing.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Message, StatusCode, Subject, SubscribeError, Subscriber};
use futures_util::{FutureExt, StreamExt};
use hookfast_webhook::{EventId, HandlerName, Priority};
use tokio::time::{Instant, timeout_at};

use super::Receipt;
use super::names::{self, Names};

/// How long the server keeps a request that waits.
const WAIT: Duration = Duration::from_secs(15);

/// How much later the server may report the end of such a wait.
const WAIT_GRACE: Duration = Duration::from_secs(2);

/// How long the server may be silent during a fetch.
const FETCH_PATIENCE: Duration = Duration::from_millis(500);

/// Wait after a consumer refused a request. The consumer is probably missing and will soon be made again.
const REST: Duration = Duration::from_millis(250);

/// Shortest time between two log lines about messages that are no hints.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// The most of a foreign subject that the log shows.
const MAX_LOGGED_CHARACTERS: usize = 200;

pub(super) struct Lane {
    context: Context,
    /// The subject to which requests for messages are sent.
    next: String,
    /// The prefix of the subjects to which the server replies. Each request has its own subject below it, so that the
    /// ends of requests can be told apart.
    inbox: String,
    arrivals: Subscriber,
    arrived: VecDeque<Arrived>,
    /// How many more messages the server has, according to its last message.
    more: usize,
    request: Option<Request>,
    requests: u64,
    /// When the last log line about a message that is no hint was written, and how many were left out since.
    warned: Option<Instant>,
    left_out: u64,
}

/// A hint that has arrived.
pub(super) struct Arrived {
    pub(super) event: EventId,
    pub(super) receipt: Receipt,
}

struct Request {
    kind: Kind,
    /// The subject on which the server reports the end of the request.
    place: Subject,
    /// How many messages are still to come.
    left: usize,
    /// The latest time at which the server should send something.
    deadline: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wait,
    Fetch,
}

/// What a lane got from the server.
#[derive(PartialEq, Eq)]
pub(super) enum Heard {
    Something,
    /// Nothing until the deadline, so the keeper should check streams and consumers.
    Silence,
}

impl Lane {
    pub(super) async fn new(
        context: &Context,
        names: &Names,
        priority: Priority,
        handler: &HandlerName,
    ) -> Result<Self, SubscribeError> {
        let client = context.client();
        let inbox = client.new_inbox();
        let arrivals = client.subscribe(format!("{inbox}.*")).await?;
        Ok(Self {
            context: context.clone(),
            next: names.next(priority, handler),
            inbox,
            arrivals,
            arrived: VecDeque::new(),
            more: 0,
            request: None,
            requests: 0,
            warned: None,
            left_out: 0,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Takes up to `max` of the hints that have arrived.
    pub(super) fn take(&mut self, max: usize) -> impl Iterator<Item = Arrived> {
        self.arrived.drain(..max.min(self.arrived.len()))
    }

    /// How many more messages could be fetched now.
    pub(super) fn fetchable(&self) -> usize {
        if self.request.is_none() { self.more } else { 0 }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.kind == Kind::Fetch)
    }

    /// Forgets the request under way, because the server has forgotten it, too.
    pub(super) fn begin_anew(&mut self) {
        self.request = None;
        self.more = 0;
    }

    /// Fetches `share` of the messages on the server, or waits for one if none is known. Does nothing while a request
    /// is under way.
    pub(super) async fn ask(&mut self, share: usize) {
        if self.request.is_some() {
            return;
        }
        if self.more == 0 {
            let body = format!(r#"{{"batch":1,"expires":{}}}"#, WAIT.as_nanos());
            self.send(Kind::Wait, 1, body, WAIT + WAIT_GRACE).await;
        } else if share > 0 {
            let body = format!(r#"{{"batch":{share},"no_wait":true}}"#);
            self.send(Kind::Fetch, share, body, FETCH_PATIENCE).await;
        }
    }

    async fn send(&mut self, kind: Kind, left: usize, body: String, patience: Duration) {
        self.requests += 1;
        let place = Subject::from(format!("{}.{}", self.inbox, self.requests));
        // If this fails, the server stays silent, and the deadline below notices that.
        let _ = self.context.client().publish_with_reply(self.next.clone(), place.clone(), body.into()).await;
        self.request = Some(Request { kind, place, left, deadline: Instant::now() + patience });
    }

    /// Processes the messages that have arrived so far.
    pub(super) fn take_in(&mut self) {
        while let Some(Some(message)) = self.arrivals.next().now_or_never() {
            self.note(message);
        }
    }

    /// Waits for a message of the server, or for the deadline of the request under way.
    pub(super) async fn hear(&mut self) -> Heard {
        let next = self.arrivals.next();
        let heard = match &self.request {
            Some(request) => timeout_at(request.deadline, next).await,
            None => Ok(next.await),
        };
        match heard {
            Ok(Some(message)) => {
                self.note(message);
                Heard::Something
            }
            // The queue was closed.
            Ok(None) => std::future::pending().await,
            Err(_) => {
                self.begin_anew();
                Heard::Silence
            }
        }
    }

    fn note(&mut self, message: Message) {
        match message.status {
            // Any client can write a status into the headers of a message, but only messages of a stream have a reply
            // subject.
            Some(status) if message.reply.is_none() => self.note_end(&message.subject, status),
            _ => self.note_arrival(message),
        }
    }

    fn note_arrival(&mut self, message: Message) {
        if let Some(request) = &mut self.request {
            request.left = request.left.saturating_sub(1);
            request.deadline = request.deadline.max(Instant::now() + FETCH_PATIENCE);
            if request.left == 0 {
                self.request = None;
            }
        }
        let event = names::event(&message.subject);
        let message = jetstream::Message { message, context: self.context.clone() };
        // When the server delivers a message again, its count of further messages is not reliable.
        self.more =
            message.info().map_or(0, |info| if info.delivered > 1 { usize::MAX } else { info.pending as usize });
        let Some(reply) = message.message.reply else { return };
        let receipt = Receipt { client: self.context.client(), reply };
        match event {
            Some(event) => self.arrived.push_back(Arrived { event, receipt }),
            None => {
                self.warn_of_stranger(&message.message.subject);
                tokio::spawn(async move { receipt.acknowledge().await });
            }
        }
    }

    /// Logs at most once in `WARN_EVERY`, because another client can publish as fast as the network allows.
    fn warn_of_stranger(&mut self, subject: &Subject) {
        let now = Instant::now();
        if self.warned.is_some_and(|at| now - at < WARN_EVERY) {
            self.left_out += 1;
            return;
        }
        self.warned = Some(now);
        let left_out = std::mem::take(&mut self.left_out);
        let subject: String = subject.chars().take(MAX_LOGGED_CHARACTERS).collect();
        tracing::warn!(subject, left_out, "another client publishes messages to a stream of hints; they are ignored");
    }

    /// The server reports the end of a request, which may be an earlier one.
    fn note_end(&mut self, place: &Subject, status: StatusCode) {
        let Some(request) = self.request.as_mut().filter(|request| request.place == *place) else { return };
        match status {
            StatusCode::IDLE_HEARTBEAT => {}
            StatusCode::NOT_FOUND | StatusCode::TIMEOUT => self.begin_anew(),
            _ => {
                tracing::debug!(consumer = self.next, %status, "the consumer refuses a request");
                request.deadline = Instant::now() + REST;
            }
        }
    }
}

//! The hints of one handler and one priority.
//!
//! A lane has one request to its consumer under way at a time. As long as it knows of nothing, it *waits* for one message.
//! Each message says how many more there are; these are *fetched*, as many as the caller has use for. So a process takes
//! no more than it can handle, but for one hint in each lane.
//!
//! What arrives is kept here until a worker pulls it: a pull that is dropped loses nothing.

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

/// How much later it may say that the wait is over.
const WAIT_GRACE: Duration = Duration::from_secs(2);

/// How long the server may be silent while we fetch what it said was there.
const FETCH_PATIENCE: Duration = Duration::from_millis(500);

/// How long to leave a consumer alone that refused a request: it is probably gone and about to be made anew.
const REST: Duration = Duration::from_millis(250);

/// The log tells of messages that are no hints at most once in this time.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// The most of a foreign subject that the log shows.
const MAX_LOGGED_CHARACTERS: usize = 200;

pub(super) struct Lane {
    context: Context,
    /// Where messages are asked for.
    next: String,
    /// Where they are sent to; each request has a place of its own below, to tell its end from others'.
    inbox: String,
    arrivals: Subscriber,
    arrived: VecDeque<Arrived>,
    /// How many more there are, as far as the server said.
    more: usize,
    request: Option<Request>,
    requests: u64,
    /// When the log last told of a message that is no hint, and of how many it has not told since.
    warned: Option<Instant>,
    left_out: u64,
}

/// A hint that is here.
pub(super) struct Arrived {
    pub(super) event: EventId,
    pub(super) receipt: Receipt,
}

struct Request {
    kind: Kind,
    /// Where the server says that it is over.
    place: Subject,
    /// How many messages are to come.
    left: usize,
    /// When the server should have said something.
    deadline: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wait,
    Fetch,
}

/// What a lane heard.
#[derive(PartialEq, Eq)]
pub(super) enum Heard {
    Something,
    /// The server should have said something, or refused: the keeper should look.
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

    /// Hands out up to `max` of those that are here.
    pub(super) fn take(&mut self, max: usize) -> impl Iterator<Item = Arrived> {
        self.arrived.drain(..max.min(self.arrived.len()))
    }

    /// How many more could be fetched now.
    pub(super) fn fetchable(&self) -> usize {
        if self.request.is_none() { self.more } else { 0 }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.kind == Kind::Fetch)
    }

    /// Forgets what was asked for: the server has forgotten it, too.
    pub(super) fn begin_anew(&mut self) {
        self.request = None;
        self.more = 0;
    }

    /// Asks for `share` of what there is, or waits for something, unless a request is under way.
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
        // Should it fail, the silence will be noticed.
        let _ = self.context.client().publish_with_reply(self.next.clone(), place.clone(), body.into()).await;
        self.request = Some(Request { kind, place, left, deadline: Instant::now() + patience });
    }

    /// Takes in what has come so far.
    pub(super) fn take_in(&mut self) {
        while let Some(Some(message)) = self.arrivals.next().now_or_never() {
            self.note(message);
        }
    }

    /// Waits until the server says something, or should have.
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
            // Every client can write a status into the headers of its message, but only messages of the stream await a reply.
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
        // The server does not count what it delivers once more.
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

    /// At most once in `WARN_EVERY`: another client can publish as fast as the network allows.
    fn warn_of_stranger(&mut self, subject: &Subject) {
        let now = Instant::now();
        if self.warned.is_some_and(|at| now - at < WARN_EVERY) {
            self.left_out += 1;
            return;
        }
        self.warned = Some(now);
        let left_out = std::mem::take(&mut self.left_out);
        let subject: String = subject.chars().take(MAX_LOGGED_CHARACTERS).collect();
        tracing::warn!(subject, left_out, "another client publishes among the hints");
    }

    /// The server says that it sends no more for a request; that may be an earlier one.
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

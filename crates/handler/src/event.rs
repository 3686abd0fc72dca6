//! An event as a handler gets it, and how it is read from a claimed job.
//!
//! Before it, `AnyHandler::run` calls [`handle`] with a claimed job. After it, the team's `Handler::handle` runs with the
//! event, and writes through `Effects`. What it returns is the outcome, which `processor::run` passes on to
//! `processor::settle`.

use bytes::Bytes;
use hookfast_store::{Claimed, StoredHeaders};
use hookfast_webhook::{EventId, Failure, ProofKind};
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

use crate::{Effects, Handled, Handler, form};

/// An event as a handler gets it.
#[derive(Debug, Clone)]
pub struct Event<P> {
    /// Its id.
    pub id: EventId,
    /// The source it came to.
    pub source: String,
    /// What tells it from the other events of its source: the provider's id of it, where the provider gives one.
    pub dedupe_key: String,
    /// What happened, in the provider's words.
    pub event_type: String,
    /// Whose event it is.
    pub account: Option<String>,
    /// The thing that it is about, where the provider says so.
    pub object_id: Option<String>,
    /// When it happened by the provider's word, or else when it arrived.
    pub occurred_at: OffsetDateTime,
    /// When it arrived.
    pub received_at: OffsetDateTime,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// How the request was proved genuine. If only a part of it is signed, a handler may refuse to act on it.
    pub proof: ProofKind,
    /// The URL it came to.
    pub url: String,
    /// The headers it came with.
    pub headers: StoredHeaders,
    /// Its bytes as they came.
    pub body: Bytes,
    /// What the handler takes from them.
    pub payload: P,
}

/// A payload that accepts every body, and reads nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anything;

impl<'de> serde::Deserialize<'de> for Anything {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// A payload of this size or more takes long to read, in bytes.
pub const LARGE_BODY: usize = 256 * 1024;

/// Large payloads are read one at a time in the whole process: together they would take all cores from other jobs.
static READING_LARGE: Semaphore = Semaphore::const_new(1);

/// Runs a handler for a claimed job.
pub(crate) async fn handle<H: Handler>(handler: &H, claimed: Claimed, effects: &Effects) -> Handled {
    let event = if claimed.event.size_bytes < LARGE_BODY { read(claimed)? } else { read_large(claimed).await? };
    handler.handle(&event, effects).await
}

async fn read_large<P: DeserializeOwned>(claimed: Claimed) -> Result<Event<P>, Failure> {
    let _alone = READING_LARGE.acquire().await.expect("the semaphore is never closed");
    out_of_the_way(|| read(claimed))
}

/// Moves the other jobs of this thread to another thread meanwhile. A runtime of one thread has no other.
fn out_of_the_way<T>(read: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => block_in_place(read),
        _ => read(),
    }
}

fn read<P: DeserializeOwned>(claimed: Claimed) -> Result<Event<P>, Failure> {
    let Claimed { job, attempt, event, .. } = claimed;
    let body = event.body.unwrap_or_default();
    let payload = payload(&body, is_form(&event.headers)).map_err(Failure::bad_payload)?;
    Ok(Event {
        id: job.event,
        source: event.source,
        dedupe_key: event.dedupe_key,
        event_type: event.event_type,
        account: event.account,
        object_id: event.object_id,
        occurred_at: event.occurred_at.unwrap_or(event.received_at),
        received_at: event.received_at,
        attempt,
        proof: event.proof,
        url: event.url,
        headers: event.headers,
        body,
        payload,
    })
}

/// Reads a payload: the fields of a form, or else JSON.
pub(crate) fn payload<P: DeserializeOwned>(body: &[u8], is_form: bool) -> Result<P, String> {
    let read = match is_form {
        true => form::read(body).map_err(|error| error.to_string()),
        false => serde_json::from_slice(body).map_err(|error| error.to_string()),
    };
    // A handler that takes anything takes what is neither, too.
    read.or_else(|problem| serde_json::from_str("null").map_err(|_| problem))
}

const FORM: &str = "application/x-www-form-urlencoded";

/// Whether the content type is that of a form. Parameters may follow, such as the character set.
fn is_form(headers: &StoredHeaders) -> bool {
    let value = headers.iter().find(|(name, _)| *name == "content-type").map(|(_, value)| value);
    let essence = value.and_then(|value| value.split(|byte| *byte == b';').next());
    essence.is_some_and(|essence| essence.trim_ascii().eq_ignore_ascii_case(FORM.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::testing::{Idle, Kit, TestEvent, TestStore};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_go_on_while_a_large_payload_is_read() {
        let (other, heard) = mpsc::channel();
        let reading = tokio::spawn(async move {
            tokio::spawn(async move { other.send(()) });
            out_of_the_way(|| heard.recv_timeout(Duration::from_secs(30)))
        });
        reading.await.expect("no panic").expect("the other task ran meanwhile");
    }

    /// A payload that takes a while to be read, and counts how many are read at the same time.
    struct Slow;

    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static MOST_AT_ONCE: AtomicUsize = AtomicUsize::new(0);

    impl<'de> serde::Deserialize<'de> for Slow {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            MOST_AT_ONCE.fetch_max(AT_ONCE.fetch_add(1, SeqCst) + 1, SeqCst);
            thread::sleep(Duration::from_millis(5));
            AT_ONCE.fetch_sub(1, SeqCst);
            Anything::deserialize(deserializer).map(|_| Self)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn large_payloads_are_read_one_at_a_time() {
        let store = TestStore::new::<Idle>().await;
        let mut reading = Vec::new();
        for number in 0..8 {
            let body = format!("\"{number}{}\"", "x".repeat(LARGE_BODY));
            let job = store.record::<Idle>(&TestEvent::new("stripe", "t", body.clone())).await;
            let mut claimed = store.claim(&job).await.expect("it is new");
            claimed.event.body = Some(body.into());
            reading.push(tokio::spawn(read_large::<Slow>(claimed)));
        }
        for read in reading {
            assert!(read.await.expect("no panic").is_ok());
        }
        assert_eq!(MOST_AT_ONCE.load(SeqCst), 1);
    }

    /// Acts only on what is signed as a whole.
    struct Strict;

    impl Handler for Strict {
        const NAME: &'static str = "strict";
        const SUBSCRIBES: &'static [&'static str] = &["mail/*"];
        type Payload = Anything;

        async fn handle(&self, event: &Event<Anything>, _: &Effects) -> Handled {
            match event.proof {
                ProofKind::Signature => Ok(()),
                proof => Err(Failure::give_up(proof)),
            }
        }
    }

    #[tokio::test]
    async fn a_handler_sees_how_the_request_was_proved() {
        let kit = Kit::new(&Strict).await;
        for proof in ProofKind::ALL {
            let handled = kit.run(&Strict, &TestEvent::new("mail", "sent", "{}").proved_by(proof)).await;
            let refused_for = handled.err().map(|failure| failure.message);
            assert_eq!(refused_for, (proof != ProofKind::Signature).then(|| proof.to_string()));
        }
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_reads_it_in_place() {
        assert_eq!(out_of_the_way(|| 1), 1);
    }
}

//! Events that tests send, and what must become of them.

use std::io;
use std::net::SocketAddr;

use hookfast_webhook::Request;

use crate::{Answer, Client, sample, sample_key, signed};

/// An event that a test sends, and what must become of it if it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestEvent {
    /// Its id, which is its dedupe key.
    pub id: String,
    /// What is sent.
    pub body: String,
    /// The handler whose job must have this fate.
    pub handler: String,
    /// How many effects it has, each of which must be there once.
    pub effects: usize,
    /// What must become of its job.
    pub fate: Fate,
    /// Events with the same key must be done one at a time, in the order in which they were promised.
    pub ordering: Option<String>,
}

/// What must become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It succeeds.
    Succeeds,
    /// It becomes a dead letter.
    Dies,
    /// It stays pending.
    Waits,
}

impl Fate {
    /// The state of a job that has met its fate.
    pub(crate) fn state(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeded",
            Self::Dies => "dead_letter",
            Self::Waits => "pending",
        }
    }
}

impl TestEvent {
    /// An event for the handler `actor` of the test worker, which does what `act` says: a JSON object. It succeeds and has
    /// one effect.
    pub fn new(id: &str, act: &str) -> Self {
        Self::about(id, ("invoice.paid", "acct_1"), act)
    }

    /// The same with another type and account.
    pub fn about(id: &str, (event_type, account): (&str, &str), act: &str) -> Self {
        let body = format!(r#"{{"id":"{id}","type":"{event_type}","created":1,"account":"{account}","act":{act}}}"#);
        Self::with_body(id, body)
    }

    /// The sample of Stripe with this number.
    pub fn sample(serial: u64) -> Self {
        let body = String::from_utf8(sample(serial).body.to_vec()).expect("text");
        Self::with_body(&sample_key(serial), body)
    }

    /// The same with any other body that says its id.
    pub fn with_body(id: &str, body: String) -> Self {
        Self { id: id.into(), body, handler: "actor".into(), effects: 1, fate: Fate::Succeeds, ordering: None }
    }

    /// A request with this event, signed now.
    pub fn request(&self) -> Request {
        signed(&self.body)
    }

    /// Sends it once, over a connection of its own.
    pub fn send_to(&self, gateway: SocketAddr) -> io::Result<Answer> {
        Client::try_connect(gateway)?.send(&self.request())
    }
}

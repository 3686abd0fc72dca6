//! The path of a webhook: [`Visit::receive`] names its steps in their order.
//!
//! Before it, `http::service` reads the head of a request, finds its source, and calls [`Visit::run`]. After it, `http`
//! writes the answer. Each step turns the type of the step before into its own. Only verified data can become the type
//! that `record` takes.
//!
//! ```text
//! Visit ──admit──▶ Admitted ──read_body──▶ Received ──verify──▶ GenuineRequest ──read──▶ Events
//!                                             │                      └───▶ Refused, if the type must be signed and is not
//!                                             ├───▶ a handshake, which is answered at once
//!                                             └───▶ Refused, which keeps its request
//! Events ──route──▶ RoutedRequest ──record──▶ RecordedRequest ──answer──▶ Answered
//! ```
//!
//! Every step can end in a [`Rejection`]. The files of the steps: `admit`, `body`, `verify`, `read`, `route`, `record`,
//! `answer`. `shared` has what all requests use. The next station of the spine is `webhook::genuine`, which `verify` and
//! `read` call.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use hookfast_webhook::Answer;
use http::request::Parts;
use hyper::body::Body;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::Source;
use crate::answer::Answered;
use crate::observe::observe;
use crate::rejection::Rejection;
use crate::shared::{Caller, Ingest, Table};
use crate::verify::Verified;

/// Verifying or reading a body above this size would block the other requests of the thread for too long.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// One request to one source: its sender, and the table and state that apply to it. Every step passes it on.
#[derive(Clone, Copy)]
pub(crate) struct Visit<'a> {
    pub(crate) ingest: &'a Ingest,
    pub(crate) table: &'a Table,
    pub(crate) source: &'a Source,
    pub(crate) caller: &'a Caller<'a>,
}

impl<'a> Visit<'a> {
    /// Takes the request along its path. [`observe`] counts and logs how it ended. Before that, `verify` counts the proof,
    /// and `read` and `route` report an event that is unreadable or whose ordering key made the handler panic.
    pub(crate) async fn run<B: Body<Data = Bytes> + Unpin>(self, head: Parts, body: B) -> Result<Answer, Rejection> {
        let start = Instant::now();
        let outcome = self.receive(head, body).await;
        observe(self, start, &outcome);
        outcome.map(|answered| answered.answer)
    }

    /// The steps. `Ok` with events means that the events are durable.
    async fn receive<B: Body<Data = Bytes> + Unpin>(self, head: Parts, body: B) -> Result<Answered, Rejection> {
        let admitted = self.admit(head)?;
        let received = admitted.read_body(body).await?;
        let genuine = match received.verify()? {
            Verified::Genuine(genuine) => genuine,
            Verified::Handshake(answer) => return Ok(Answered::handshake(answer)),
        };
        let events = genuine.read()?;
        let recorded = events.route().record().await?;
        recorded.answer()
    }

    /// The client's address, if per-client limits apply to it. `None` for a trusted proxy that names no client: many
    /// clients share its address.
    pub(crate) fn known_client(self) -> Option<IpAddr> {
        let (address, trusted) = (self.caller.address, &self.ingest.config.trusted_proxies);
        let is_proxy = trusted.iter().any(|range| range.contains(address));
        (!is_proxy).then_some(address)
    }
}

/// Runs a provider's code on a body of `body_bytes`. A panic in it becomes a rejection, so that it ends no other
/// request of the connection and never leads to a 2xx.
pub(crate) fn guarded<T>(body_bytes: usize, work: impl FnOnce() -> T) -> Result<T, Rejection> {
    let work = || catch_unwind(AssertUnwindSafe(work));
    let done = if body_bytes > LARGE_BODY_BYTES && others_can_go_on() { block_in_place(work) } else { work() };
    done.map_err(|_| Rejection::Internal)
}

/// Whether the runtime has other threads, which run the other requests of this thread meanwhile.
fn others_can_go_on() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

#[cfg(test)]
mod tests;

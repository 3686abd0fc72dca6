//! The third step: [`Received::verify`] has the provider prove that a request is genuine.
//!
//! Before it, `body` has read the whole request. After it, `read` finds the events. A handshake is answered at once. A
//! request that is not genuine becomes a [`Refused`], which keeps its bytes for the log.

use std::sync::Arc;

use hookfast_webhook as webhook;
use hookfast_webhook::{Answer, Refusal, Request, explain};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::body::Received;
use crate::memory::MemoryShare;
use crate::rejection::{Refused, Rejection};
use crate::stages::{Visit, guarded};

/// What a request turned out to be.
pub(crate) enum Verified<'a> {
    /// It comes from its provider.
    Genuine(GenuineRequest<'a>),
    /// The provider only checks that the endpoint exists. This is the answer to that check.
    Handshake(Answer),
}

/// A request that its provider has proved. It may carry events.
pub(crate) struct GenuineRequest<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) genuine: webhook::Genuine,
    pub(crate) received_at: OffsetDateTime,
    pub(crate) memory: MemoryShare,
    pub(crate) deadline: Instant,
}

impl<'a> Received<'a> {
    /// Asks the provider for a proof, and refuses the request without one.
    pub(crate) fn verify(self) -> Result<Verified<'a>, Rejection> {
        let Self { visit, request, memory, deadline } = self;
        let (provider, secrets) = (visit.source.provider.as_ref(), &visit.source.secrets);
        let now = visit.ingest.clock.now();
        let prove = || webhook::verify(provider, Arc::clone(&request), secrets, now);
        match guarded(request.body.len(), prove)? {
            Ok(webhook::Verified::Handshake(answer)) => Ok(Verified::Handshake(answer)),
            Ok(webhook::Verified::Genuine(genuine)) => {
                visit.note_proof(genuine.proof());
                Ok(Verified::Genuine(GenuineRequest { visit, genuine, received_at: now, memory, deadline }))
            }
            Err(refusal) => Err(visit.refuse(refusal, request, memory)),
        }
    }
}

impl Visit<'_> {
    /// From now on the connection counts as a genuine sender's, and keeps its place longer.
    fn note_proof(self, proof: webhook::Proof) {
        self.caller.activity.prove();
        self.source.metrics.count_proof(proof);
    }

    /// A refusal, or a rate limit if there were too many refusals.
    pub(crate) fn refuse(self, refusal: Refusal, request: Arc<Request>, memory: MemoryShare) -> Rejection {
        match self.ingest.limits.note_refusal(self.source, self.known_client()) {
            Ok(()) => Rejection::Refused(Box::new(Refused { refusal, request, _memory: memory })),
            Err(limited) => limited,
        }
    }

    /// The probable cause of a refusal, if one can be found by trying. At most once a second for each source.
    pub(crate) fn explain(self, refused: &Refused) -> Option<String> {
        self.source.explanations.check().ok()?;
        let others = self.table.sources.values().filter(|other| other.name != self.source.name);
        let others: Vec<_> = others.map(|other| other.endpoint()).collect();
        let known: Vec<_> = self.ingest.known_providers.iter().map(AsRef::as_ref).collect();
        let (endpoint, now) = (self.source.endpoint(), self.ingest.clock.now());
        let explained = guarded(0, || explain(&refused.refusal, &refused.request, &endpoint, &others, &known, now));
        explained.ok().flatten()
    }
}

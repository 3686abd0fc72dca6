//! The third step: [`Received::verify`] has the provider prove that a request is genuine.
//!
//! Before it, `body` has read the request as a whole. After it, `read` finds the events. A handshake is answered at once. What is
//! not genuine becomes a [`Refused`], which keeps the request.

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
    /// It only asks whether we are there, and this is the answer.
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
    /// Tells genuine requests and handshakes from all others.
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
    /// From now on the connection counts as one of a genuine sender.
    fn note_proof(self, proof: webhook::Proof) {
        self.caller.activity.prove();
        self.source.metrics.count_proof(proof);
    }

    /// A refusal, or a rate limit if there were too many of them.
    pub(crate) fn refuse(self, refusal: Refusal, request: Arc<Request>, memory: MemoryShare) -> Rejection {
        match self.ingest.limits.note_refusal(self.source, self.known_client()) {
            Ok(()) => Rejection::Refused(Box::new(Refused { refusal, request, _memory: memory })),
            Err(limited) => limited,
        }
    }

    /// The probable cause of a refusal, where trying finds one. At most once a second for each source.
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

//! The last step: [`RecordedRequest::answer`] gives the answer that the provider expects.
//!
//! Before it, `record` has made the events durable. After it, `http` writes the answer, and `observe` notes what
//! happened.

use hookfast_store::Recorded;
use hookfast_webhook::Answer;

use crate::record::{Described, RecordedRequest};
use crate::rejection::Rejection;
use crate::stages::guarded;

/// An answer, and the kind of request that it answers.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) to: AnswerTo,
}

/// The kind of request that an answer is for.
pub(crate) enum AnswerTo {
    /// A request with which the provider only checks that the endpoint exists.
    Handshake,
    /// A genuine request whose events are durable. It may have none.
    Events {
        body_bytes: usize,
        /// For each event, whether it was new.
        recorded: Vec<Recorded>,
        /// The events as the log shows them; `None` if the log does not show accepted requests.
        described: Option<Vec<Described>>,
    },
}

impl Answered {
    pub(crate) fn handshake(answer: Answer) -> Self {
        Self { answer, to: AnswerTo::Handshake }
    }
}

impl RecordedRequest<'_> {
    /// Asks the provider for its answer.
    pub(crate) fn answer(self) -> Result<Answered, Rejection> {
        let Self { visit, request, recorded, described } = self;
        let body_bytes = request.body.len();
        // The size is 0 because making an answer does not read the body.
        let answer = guarded(0, || visit.source.provider.answer(&request))?;
        let events = AnswerTo::Events { body_bytes, recorded, described };
        Ok(Answered { answer, to: events })
    }
}

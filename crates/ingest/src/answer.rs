//! The last step: [`Recorded::answer`] says what the provider wants to hear.
//!
//! Before it, `record` has made the events durable. After it, `http` writes the answer, and `observe` notes what happened.

use hookfast_store::Recorded as Outcome;
use hookfast_webhook::Answer;

use crate::record::{Described, Recorded};
use crate::rejection::Rejection;
use crate::stages::guarded;

/// The answer, and what it answers.
pub(crate) struct Answered {
    pub(crate) answer: Answer,
    pub(crate) to: AnswerTo,
}

/// What an answer is given to.
pub(crate) enum AnswerTo {
    /// A request that only asks whether we are there.
    Handshake,
    /// Events that are durable; a genuine request may also have none.
    Events {
        body_bytes: usize,
        outcomes: Vec<Outcome>,
        /// For the log, if it has lines about accepted requests.
        described: Option<Vec<Described>>,
    },
}

impl Answered {
    pub(crate) fn handshake(answer: Answer) -> Self {
        Self { answer, to: AnswerTo::Handshake }
    }
}

impl Recorded<'_> {
    /// Asks the provider for its answer.
    pub(crate) fn answer(self) -> Result<Answered, Rejection> {
        let Self { visit, request, outcomes, described } = self;
        let body_bytes = request.body.len();
        // An answer takes no time, whatever the size of the body.
        let answer = guarded(0, || visit.source.provider.answer(&request))?;
        let events = AnswerTo::Events { body_bytes, outcomes, described };
        Ok(Answered { answer, to: events })
    }
}

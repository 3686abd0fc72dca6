//! The names of streams, consumers and subjects on the server.

use hookfast_webhook::{EventId, HandlerName, Priority};
use uuid::Uuid;

/// The names with one prefix. Each handler has a stream of its own, so that the backlog of one handler takes no room
/// from another.
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The stream of a handler.
    pub(super) fn stream(&self, handler: &HandlerName) -> String {
        format!("{}{handler}", self.all_streams())
    }

    /// The beginning of the names of all streams.
    pub(super) fn all_streams(&self) -> String {
        format!("{}-hints-", self.prefix)
    }

    /// The single stream for all handlers that earlier versions had.
    pub(super) fn former_stream(&self) -> String {
        format!("{}-jobs", self.prefix)
    }

    /// The subjects in the single stream of earlier versions.
    pub(super) fn former_jobs(&self) -> Vec<String> {
        vec![format!("{}.jobs.>", self.prefix)]
    }

    /// The subjects of a handler's jobs, and no others: a message that no consumer reads would take up room for ever.
    pub(super) fn all_jobs(&self, handler: &str) -> Vec<String> {
        Priority::ALL.into_iter().map(|priority| self.jobs(priority, handler)).collect()
    }

    /// The subjects that the stream of a handler had in earlier versions.
    pub(super) fn former_jobs_of(&self, handler: &str) -> Vec<String> {
        vec![format!("{}.hints.{handler}.>", self.prefix)]
    }

    /// The subject of one job.
    pub(super) fn job(&self, priority: Priority, handler: &HandlerName, event: EventId) -> String {
        format!("{}.hints.{handler}.{}.{event}", self.prefix, priority.as_str())
    }

    /// The subjects of a handler's jobs of one priority.
    pub(super) fn jobs(&self, priority: Priority, handler: &str) -> String {
        format!("{}.hints.{handler}.{}.*", self.prefix, priority.as_str())
    }

    /// The consumer of a handler's jobs of one priority.
    pub(super) fn consumer(&self, priority: Priority) -> String {
        priority.as_str().to_owned()
    }

    /// The subject for requests to that consumer.
    pub(super) fn next(&self, priority: Priority, handler: &HandlerName) -> String {
        format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream(handler), self.consumer(priority))
    }
}

/// The event of the job with this subject. Other spellings of its id are not accepted, because a job could then have
/// several hints.
pub(super) fn event(subject: &str) -> Option<EventId> {
    let (_, id) = subject.rsplit_once('.')?;
    Uuid::try_parse(id).ok().map(EventId).filter(|event| event.to_string() == id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    #[test]
    fn a_subject_tells_which_job_it_is_for() {
        let (names, handler, id) = (Names::new("hookfast"), HandlerName::new("ledger").unwrap(), EventId::new());
        let subject = names.job(Priority::High, &handler, id);
        assert_eq!(subject, format!("hookfast.hints.ledger.high.{id}"));
        assert_eq!(event(&subject), Some(id));
        assert_eq!(event("hookfast.hints.ledger.high.rubbish"), None);
        assert_eq!(event(&format!("hookfast.hints.ledger.high.{}", id.0.simple())), None);
    }
}

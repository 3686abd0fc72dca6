//! The jobs of a selection, page by page.

use hookfast_store::{AskError, Cursor, Found, Operate};
use hookfast_webhook::EventId;

use super::Selection;

/// A query asks for this many more jobs than wanted, so that all jobs of an event come in one page. An event has few
/// handlers.
const ROOM: u32 = 32;

/// Greater than every handler's name, as the databases compare them.
const AFTER_ALL_NAMES: &str = "~";

pub(super) struct Pages<'a> {
    store: &'a dyn Operate,
    selection: &'a Selection,
    cursor: Option<Cursor>,
    /// The last event whose jobs were all returned.
    complete: Option<EventId>,
}

/// Some jobs, and how far an act has come once they are done.
pub(super) struct Page {
    pub(super) found: Vec<Found>,
    pub(super) next_after: Option<EventId>,
    pub(super) is_last: bool,
}

impl Page {
    /// An empty page at the end.
    pub(super) fn last() -> Self {
        Self { found: Vec::new(), next_after: None, is_last: true }
    }
}

impl<'a> Pages<'a> {
    /// Starts at the first event, or after `complete`.
    pub(super) fn after(store: &'a dyn Operate, selection: &'a Selection, complete: Option<EventId>) -> Self {
        let cursor = complete.map(|event| Cursor { event, handler: AFTER_ALL_NAMES.into() });
        Self { store, selection, cursor, complete }
    }

    /// About `wanted` jobs, plus the remaining jobs of their last event, but never more than `at_most`.
    pub(super) async fn next(&mut self, wanted: u32, at_most: u64) -> Result<Page, AskError> {
        let Selection { which, filter, .. } = self.selection;
        let asked = wanted + ROOM;
        let mut found = self.store.find(*which, filter, self.cursor.as_ref(), asked).await?;
        let is_all = found.len() < asked as usize;
        let count = whole_events(&found, wanted as usize).min(usize::try_from(at_most).unwrap_or(usize::MAX));
        self.complete = last_complete(&found, count, is_all).or(self.complete);
        let is_last = is_all && count == found.len();
        found.truncate(count);
        if let Some(last) = found.last() {
            let handler = last.handler.as_ref().map_or("", |handler| handler.as_str());
            self.cursor = Some(Cursor { event: last.event, handler: handler.into() });
        }
        Ok(Page { found, next_after: self.complete, is_last })
    }
}

/// The number of jobs in a page: the wanted ones, plus the remaining jobs of their last event.
fn whole_events(found: &[Found], wanted: usize) -> usize {
    let ends = |count: &usize| match (found.get(count - 1), found.get(*count)) {
        (Some(last), Some(next)) => last.event != next.event,
        _ => true,
    };
    (wanted.max(1)..found.len()).find(ends).unwrap_or(found.len())
}

/// The last event whose jobs are all among the first `count`.
fn last_complete(found: &[Found], count: usize, is_all: bool) -> Option<EventId> {
    let unfinished = match found.get(count) {
        Some(next) => Some(next.event),
        None if is_all => None,
        None => found.last().map(|last| last.event),
    };
    found[..count].iter().rev().map(|found| found.event).find(|event| Some(*event) != unfinished)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use hookfast_webhook::{HandlerName, Priority};
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    /// One job for each number, of the event with that number.
    fn found(events: &[u128]) -> Vec<Found> {
        let found = |event: &u128| Found {
            event: EventId(Uuid::from_u128(*event)),
            handler: Some(HandlerName::new("ledger").unwrap()),
            state: None,
            reason: None,
            review: None,
            message: None,
            attempts: 0,
            due_at: None,
            claimed_at: None,
            finished_at: None,
            source: "stripe".into(),
            event_type: "x".into(),
            account: None,
            received_at: OffsetDateTime::UNIX_EPOCH,
            priority: Priority::Normal,
            ordering_key: None,
        };
        events.iter().map(found).collect()
    }

    #[test]
    fn the_jobs_of_an_event_stay_together() {
        assert_eq!(whole_events(&found(&[1, 1, 1, 2]), 1), 3);
        assert_eq!(whole_events(&found(&[1, 2, 3]), 2), 2);
        assert_eq!(whole_events(&found(&[1, 2, 2]), 2), 3);
        assert_eq!(whole_events(&found(&[1]), 5), 1);
        assert_eq!(whole_events(&[], 5), 0);
    }

    #[test]
    fn an_event_with_jobs_left_is_not_complete() {
        let complete = |events: &[u128], count, is_all| {
            last_complete(&found(events), count, is_all).map(|event| event.0.as_u128())
        };
        assert_eq!(complete(&[1, 2, 3], 2, true), Some(2));
        assert_eq!(complete(&[1, 2, 2], 2, true), Some(1));
        assert_eq!(complete(&[2, 2], 1, true), None);
        assert_eq!(complete(&[1, 2], 2, true), Some(2));
        assert_eq!(complete(&[1, 2], 2, false), Some(1));
        assert_eq!(complete(&[], 0, true), None);
    }
}

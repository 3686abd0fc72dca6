//! Which jobs or events an operator means.

use std::time::Duration;

use hookfast_webhook::{EventId, FailureKind, JobState, Priority};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Resolution;

/// In which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Jobs that gave up.
    DeadLetters,
    /// Jobs that are done.
    Succeeded,
    /// Dead letters, succeeded and resolved jobs.
    Finished,
    /// Jobs that are waiting, being run, or to be tried again.
    Unfinished,
    /// Events that no handler has a job for. None of them is of a handler or died of something.
    Unhandled,
}

/// Which jobs or events; all conditions that are set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of these events; all if there is none.
    pub events: Vec<EventId>,
    /// That came to this source.
    pub source: Option<String>,
    /// Of this handler.
    pub handler: Option<String>,
    /// Of this type, or of all that begin so if it ends in `*`.
    pub event_type: Option<String>,
    /// Of this account.
    pub account: Option<String>,
    /// That died of this.
    pub failure: Option<FailureKind>,
    /// Received at this time or later.
    pub since: Option<OffsetDateTime>,
    /// Received before this time.
    pub until: Option<OffsetDateTime>,
    /// In this state.
    pub state: Option<JobState>,
    /// With this dedupe key, or this id of the provider's own.
    pub key: Option<String>,
    /// About this thing.
    pub object_id: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// Of this priority.
    pub priority: Option<Priority>,
    /// Died at this time or later.
    pub died_since: Option<OffsetDateTime>,
    /// Died before this time.
    pub died_until: Option<OffsetDateTime>,
    /// About which an operator decided this.
    pub resolution: Option<Resolution>,
    /// As things stood at this moment: no event that came later, no job that ended later.
    pub as_of: Option<Moment>,
}

/// A moment by the store's own clock, with the newest event that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub at: OffsetDateTime,
    /// The last of the events; smaller than any if there was none.
    pub last_event: EventId,
}

impl Moment {
    /// A moment of which only the time is known.
    pub fn at(at: OffsetDateTime) -> Self {
        Self { at, last_event: EventId(last_id_of(at)) }
    }
}

/// How far the time in an event's id may be from the time of its arrival. Both are read from one clock, one after the other;
/// but when that clock is set back, ids go on from where they were.
const ID_SLACK: time::Duration = time::Duration::HOUR;

impl Filter {
    /// No event before this one is meant. An id begins with the time of the arrival, so a time is a bound for ids.
    pub(crate) fn first_id(&self, after: Option<&Cursor>) -> Uuid {
        let since = self.since.map(|since| first_id_of(since.saturating_sub(ID_SLACK)));
        let named = self.events.iter().min().map(|event| event.0);
        [since, named, after.map(|cursor| cursor.event.0)].into_iter().flatten().max().unwrap_or(Uuid::nil())
    }

    /// No event after this one is meant.
    pub(crate) fn last_id(&self) -> Uuid {
        let until = self.until.map(|until| last_id_of(until.saturating_add(ID_SLACK)));
        let named = self.events.iter().max().map(|event| event.0);
        let as_of = self.as_of.map(|moment| moment.last_event.0);
        [until, named, as_of].into_iter().flatten().min().unwrap_or(Uuid::max())
    }
}

/// Where a list goes on: after this event and handler (empty for an event without a handler).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The event.
    pub event: EventId,
    /// The handler.
    pub handler: String,
}

/// The bits of a UUIDv7 behind its milliseconds.
const BITS_BEHIND_TIME: u32 = 80;

fn first_id_of(time: OffsetDateTime) -> Uuid {
    first_id_of_unix((time - OffsetDateTime::UNIX_EPOCH).try_into().unwrap_or_default())
}

/// The smallest id of this time since 1970.
pub(crate) fn first_id_of_unix(time: Duration) -> Uuid {
    Uuid::from_u128(time.as_millis() << BITS_BEHIND_TIME)
}

fn last_id_of(time: OffsetDateTime) -> Uuid {
    Uuid::from_u128(first_id_of(time).as_u128() | ((1 << BITS_BEHIND_TIME) - 1))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Timestamp;

    use super::*;

    fn id_of(time: OffsetDateTime) -> Uuid {
        let seconds = time.unix_timestamp().unsigned_abs();
        Uuid::new_v7(Timestamp::from_unix(uuid::NoContext, seconds, time.nanosecond()))
    }

    #[test]
    fn a_time_is_a_bound_for_the_ids_of_that_time() {
        let time = datetime!(2026-07-10 12:00:00.123 UTC);
        let id = id_of(time);
        assert!(first_id_of(time) <= id && id <= last_id_of(time));
        let millisecond = time::Duration::MILLISECOND;
        assert!(last_id_of(time - millisecond) < id && id < first_id_of(time + millisecond));
        assert_eq!(Moment::at(time).last_event.0, last_id_of(time));
    }

    #[test]
    fn the_narrowest_of_all_bounds_counts() {
        let time = datetime!(2026-07-10 12:00 UTC);
        let all = Filter::default();
        assert_eq!((all.first_id(None), all.last_id()), (Uuid::nil(), Uuid::max()));
        let some = Filter { since: Some(time), until: Some(time + time::Duration::DAY), ..all };
        let early = EventId(id_of(time - time::Duration::DAY));
        let late = EventId(id_of(time + time::Duration::WEEK));
        assert_eq!(some.first_id(None), first_id_of(time - ID_SLACK));
        assert_eq!(some.last_id(), last_id_of(time + time::Duration::DAY + ID_SLACK));
        let named = Filter { events: vec![late, early], ..some.clone() };
        assert_eq!((named.first_id(None), named.last_id()), (some.first_id(None), some.last_id()));
        let cursor = Cursor { event: late, handler: String::new() };
        assert_eq!(some.first_id(Some(&cursor)), late.0);
        let then = Filter { as_of: Some(Moment { at: time, last_event: early }), ..some };
        assert_eq!(then.last_id(), early.0);
    }
}

//! Large bodies. Each is written in parts, in commits of their own, before the event that it belongs to: in one piece it would keep
//! everything else from being written for as long as the disk needs for all of it.
//!
//! The transaction that records the event also marks its body as recorded. A body without that mark belongs to nothing, as after a
//! crash or when the event turned out to be a resend; it is cleared when the next large body comes an hour later.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use hookfast_webhook::Event;
use uuid::Uuid;

use crate::Routed;
use crate::event_row::EventRow;

/// A body of more bytes than this is written in parts.
const LARGE_BYTES: usize = 1024 * 1024;

/// The size of a part. Everything else waits while one is written.
const PART_BYTES: usize = 512 * 1024;

/// After this time, a body that was begun will not be recorded any more: recording has far shorter time limits.
pub(crate) const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// The size of an event's body in bytes, in a statement that reads `events`. The body in the row is empty if it stands in parts.
macro_rules! size_bytes {
    () => {
        "CASE octet_length(events.body)
             WHEN 0 THEN coalesce((SELECT size_bytes FROM large_bodies WHERE event_id = events.id), 0)
             ELSE octet_length(events.body)
         END"
    };
}

pub(crate) use size_bytes;

pub(crate) const SIZE: &str = "SELECT size_bytes FROM large_bodies WHERE event_id = $1";

pub(crate) const PART: &str = "SELECT bytes FROM body_parts WHERE event_id = $1 AND part = $2";

/// The events of a batch whose bodies are large.
pub(crate) fn large(events: &[Routed]) -> impl Iterator<Item = &Event> {
    events.iter().map(|routed| &routed.event).filter(|event| event.body().len() > LARGE_BYTES)
}

/// The parts of a large body, each with its number.
pub(crate) fn parts(event: &Event) -> impl Iterator<Item = (i32, &[u8])> {
    (0..).zip(event.body().chunks(PART_BYTES))
}

/// The events of a batch whose bodies are written already.
#[derive(Debug, Default)]
pub(crate) struct WrittenBodies(HashSet<Uuid>);

impl WrittenBodies {
    pub(crate) fn add(&mut self, event: &Event) {
        self.0.insert(event.id().0);
    }

    pub(crate) fn contains(&self, id: Uuid) -> bool {
        self.0.contains(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The row of an event, without the body if that is written already.
    pub(crate) fn row<'a>(&self, routed: &'a Routed) -> EventRow<'a> {
        let row = EventRow::of(routed);
        if self.contains(row.id) { EventRow { body: Cow::Borrowed(&[]), ..row } } else { row }
    }
}

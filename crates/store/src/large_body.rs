//! Large bodies. Each is written in parts, in commits of their own, before the event that it belongs to: in one piece it would
//! keep everything else from being written for as long as the disk needs for all of it.
//!
//! The transaction that records the event also marks its body as recorded. A body without that mark belongs to nothing, as
//! after a crash or when the event turned out to be a resend; it is cleared when the next large body comes a day later.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use hookfast_webhook::Event;
use uuid::Uuid;

use crate::event_row::{EventRow, free_before};
use crate::{Recorded, Routed, StoreError};

/// A body of more bytes than this is written in parts.
pub const LARGE_BYTES: usize = 1024 * 1024;

/// The size of the first part, and the largest size. All other writes wait while a part is written, but each part costs a
/// flush of the disk.
const PART_BYTES: usize = 128 * 1024;
const PART_BYTES_MAX: usize = 512 * 1024;

/// If a part takes longer than this, the next part is twice as large: most of the time is the flush.
const SLOW: Duration = Duration::from_millis(2);

/// After this time, a body that was begun will not be recorded any more. Recording has far shorter time limits, but the age of a
/// body is the difference between the clocks of two gateways, and one of these may be wrong by hours.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

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
pub(crate) struct Parts<'a> {
    rest: &'a [u8],
    number: i32,
    size: usize,
}

impl<'a> Parts<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        Self { rest: event.body(), number: 0, size: PART_BYTES }
    }

    /// The next part, if there is one.
    pub(crate) fn next(&mut self) -> Option<(i32, &'a [u8])> {
        let (part, rest) = self.rest.split_at(self.size.min(self.rest.len()));
        let number = self.number;
        (self.rest, self.number) = (rest, number + 1);
        (!part.is_empty()).then_some((number, part))
    }

    /// Notes how long writing the last one took, without waiting for others.
    pub(crate) fn took(&mut self, time: Duration) {
        if time > SLOW {
            self.size = (2 * self.size).min(PART_BYTES_MAX);
        }
    }
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

    /// Those whose events turned out to be resends.
    pub(crate) fn of_resends(&self, events: &[Routed], recorded: &[Recorded]) -> Vec<Uuid> {
        let resends = events.iter().zip(recorded).filter(|(_, recorded)| **recorded != Recorded::New);
        resends.map(|(routed, _)| routed.event.id().0).filter(|id| self.contains(*id)).collect()
    }

    /// A body of an event with a smaller id is abandoned if it is not recorded.
    pub(crate) fn abandoned_before(&self) -> Option<Uuid> {
        self.0.iter().min().and_then(|id| free_before(*id, ABANDONED_AFTER))
    }

    /// The row of an event, without the body if that is written already.
    pub(crate) fn row<'a>(&self, routed: &'a Routed) -> EventRow<'a> {
        let row = EventRow::of(routed);
        if self.contains(row.id) { EventRow { body: Cow::Borrowed(&[]), ..row } } else { row }
    }
}

/// A clearing that fails fails nothing else.
pub(crate) fn note_clearing(cleared: Result<(), StoreError>) {
    if let Err(error) = cleared {
        tracing::warn!(%error, "a body without an event could not be cleared; this is tried again with the next large body");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole_body_and_grow_when_writing_is_slow() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        let mut parts = Parts { rest: &body, number: 0, size: PART_BYTES };
        let (mut read, mut sizes) = (Vec::new(), Vec::new());
        while let Some((number, part)) = parts.next() {
            assert_eq!(number as usize, sizes.len());
            sizes.push(part.len());
            read.extend_from_slice(part);
            parts.took(if number == 0 { SLOW } else { 2 * SLOW });
        }
        assert_eq!(read, body);
        assert_eq!(sizes[..5], [PART_BYTES, PART_BYTES, 2 * PART_BYTES, PART_BYTES_MAX, PART_BYTES_MAX]);
    }
}

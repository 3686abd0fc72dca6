//! Requests that are signed before they are needed: every one another event.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hookfast_harness::post;
use hookfast_stripe::sign;
use hookfast_webhook::Secret;
use time::OffsetDateTime;

/// More than any set-up can take in a second.
const MOST_PER_SECOND: usize = 60_000;

/// How much memory the requests of a second may take. A program that takes large bodies faster than this has none left before the
/// time is over, and is measured until then.
const MOST_BYTES_PER_SECOND: usize = 256 << 20;

pub(crate) const SECRET: &str = "whsec_bench_0123456789abcdef";

/// Requests as bytes, one after the other.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Requests {
    /// Enough for this many seconds of a closed loop.
    pub(crate) fn for_seconds(seconds: u64, body_bytes: usize, ids: Ids) -> anyhow::Result<Arc<Self>> {
        let per_second = MOST_PER_SECOND.min(MOST_BYTES_PER_SECOND / body_bytes.max(1));
        Self::sign(per_second * usize::try_from(seconds)?, body_bytes, ids)
    }

    /// So many requests, with other events each time.
    pub(crate) fn sign(count: usize, body_bytes: usize, ids: Ids) -> anyhow::Result<Arc<Self>> {
        Self::sign_all(count, body_bytes, ids, |id, serial, now| body(id, serial, now, body_bytes))
    }

    /// Events for the handler that is in trouble, each with what it shall do.
    pub(crate) fn of_trouble(count: usize, act: &str, filler_bytes: usize) -> anyhow::Result<Arc<Self>> {
        let filler = "x".repeat(filler_bytes);
        Self::sign_all(count, filler_bytes, Ids::Stripe, |id, _, now| {
            format!(r#"{{"id":"{id}","type":"trouble.came","created":{now},"act":{act},"filler":"{filler}"}}"#)
        })
    }

    fn sign_all(
        count: usize,
        body_bytes: usize,
        ids: Ids,
        body: impl Fn(&str, usize, i64) -> String,
    ) -> anyhow::Result<Arc<Self>> {
        static NEXT_SERIES: AtomicUsize = AtomicUsize::new(0);
        let series = NEXT_SERIES.fetch_add(1, Ordering::Relaxed);
        let secret = Secret::new(SECRET)?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let (mut bytes, mut ends) = (Vec::with_capacity(count * (body_bytes + 320)), Vec::with_capacity(count));
        for serial in 0..count {
            let request =
                sign("http://bench/webhooks/stripe", &secret, now, body(&ids.id(series, serial), serial, now));
            bytes.extend_from_slice(&post(&request));
            ends.push(bytes.len());
        }
        Ok(Arc::new(Self { bytes, ends }))
    }

    /// These and others in turns, one of each; the others begin anew when they are used up.
    pub(crate) fn in_turns_with(&self, others: &Self) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(self.len() * 2));
        for index in 0..self.len() {
            for request in [self.get(index), others.get(index % others.len())].into_iter().flatten() {
                bytes.extend_from_slice(request);
                ends.push(bytes.len());
            }
        }
        Self { bytes, ends }
    }

    /// The bodies alone.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        const BETWEEN: &[u8] = b"\r\n\r\n";
        (0..self.len()).filter_map(|index| {
            let request = self.get(index)?;
            let head = request.windows(BETWEEN.len()).position(|part| part == BETWEEN)?;
            Some(&request[head + BETWEEN.len()..])
        })
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// What the ids of events look like, which the index of dedupe keys feels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ids {
    /// As Stripe's own: the time, the account, and something random
    Stripe,
    /// Random from the first digit on, such as the UUIDs of other providers: the worst there is for an index
    Random,
}

impl Ids {
    fn id(self, series: usize, serial: usize) -> String {
        let scattered = (serial as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self {
            // Some thousand events have the same moment.
            Self::Stripe => format!("evt_1{series:03x}{:03x}Lt4dXK03v5{scattered:016x}", serial >> 12),
            Self::Random => format!("{scattered:016x}-evt-{series:03x}"),
        }
    }
}

fn body(id: &str, serial: usize, now: i64, body_bytes: usize) -> String {
    let start = format!(
        r#"{{"id":"{id}","object":"event","type":"invoice.paid","created":{now},"livemode":false,"data":{{"object":{{"id":"in_{serial}","object":"invoice","amount_paid":{serial},"filler":""#
    );
    let end = "\"}}}";
    let filler = "x".repeat(body_bytes.saturating_sub(start.len() + end.len()));
    start + &filler + end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    #[test]
    fn a_body_has_the_size_that_was_asked_for_and_is_json() {
        let requests = Requests::sign(3, 1024, Ids::Stripe).unwrap();
        let bodies: Vec<_> = requests.bodies().collect();
        assert_eq!(bodies.len(), 3);
        for body in bodies {
            assert_eq!(body.len(), 1024);
            assert!(serde_json::from_slice::<serde_json::Value>(body).is_ok());
        }
    }

    #[test]
    fn no_event_comes_twice_unless_asked_for() {
        for ids in [Ids::Stripe, Ids::Random] {
            let (one, other) = (Requests::sign(5000, 0, ids).unwrap(), Requests::sign(5000, 0, ids).unwrap());
            let mut all: Vec<_> = one.bodies().chain(other.bodies()).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 10_000);
        }
    }

    #[test]
    fn in_turns_every_second_request_is_one_of_the_others() {
        let (new, old) = (Requests::sign(3, 0, Ids::Stripe).unwrap(), Requests::sign(2, 0, Ids::Stripe).unwrap());
        let mixed = new.in_turns_with(&old);
        let sent: Vec<_> = (0..6).map(|index| mixed.get(index)).collect();
        let expected = [new.get(0), old.get(0), new.get(1), old.get(1), new.get(2), old.get(0)];
        assert_eq!(sent, expected);
        assert_eq!(mixed.get(6), None);
    }
}

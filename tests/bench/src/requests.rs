//! Requests that are signed before they are needed: every one another event.

use hookfast_harness::post;
use hookfast_stripe::sign;
use hookfast_webhook::Secret;
use time::OffsetDateTime;

pub(crate) const SECRET: &str = "whsec_bench_0123456789abcdef";

/// Requests as bytes, one after the other.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Requests {
    /// So many requests; another round gives other events.
    pub(crate) fn sign(count: usize, round: usize, body_bytes: usize, ids: Ids) -> anyhow::Result<Self> {
        let secret = Secret::new(SECRET)?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let (mut bytes, mut ends) = (Vec::with_capacity(count * (body_bytes + 320)), Vec::with_capacity(count));
        for serial in 0..count {
            let request = sign(
                "http://bench/webhooks/stripe",
                &secret,
                now,
                body(&ids.id(round, serial), serial, now, body_bytes),
            );
            bytes.extend_from_slice(&post(&request));
            ends.push(bytes.len());
        }
        Ok(Self { bytes, ends })
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
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Ids {
    /// As Stripe's own: the time, the account, and something random
    Stripe,
    /// Random from the first digit on, such as the UUIDs of other providers: the worst there is for an index
    Random,
}

impl Ids {
    fn id(self, round: usize, serial: usize) -> String {
        let scattered = (serial as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self {
            // Some thousand events have the same moment.
            Self::Stripe => format!("evt_1{round:02x}{:03x}Lt4dXK03v5{scattered:016x}", serial >> 12),
            Self::Random => format!("{scattered:016x}-evt-{round:02x}"),
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

//! The two steps every webhook takes: verify, then read.

use std::sync::Arc;

use time::OffsetDateTime;

use crate::{
    Arrival, DedupeKey, Delivery, Event, EventId, Label, Proof, Provider, Reading, Refusal, Request, Secrets,
    UNREADABLE, Unreadable, signature,
};

/// A request that is proved to come from its provider, as it left there.
#[derive(Debug)]
pub struct Genuine {
    request: Request,
    proof: Proof,
}

/// Verifies a request, or says why it is refused.
pub fn verify(
    provider: &dyn Provider,
    request: Request,
    secrets: &Secrets,
    now: OffsetDateTime,
) -> Result<Genuine, Refusal> {
    if secrets.is_empty() {
        return Err(Refusal::NoSecret);
    }
    refuse_repeated_headers(provider, &request)?;
    let proof = provider.prove(&request, secrets, now)?;
    Ok(Genuine { request, proof })
}

fn refuse_repeated_headers(provider: &dyn Provider, request: &Request) -> Result<(), Refusal> {
    let repeated = |name: &&&str| request.headers.get_all(**name).iter().nth(1).is_some();
    match provider.proof_headers().iter().find(repeated) {
        Some(name) => Err(Refusal::RepeatedHeader(name)),
        None => Ok(()),
    }
}

impl Genuine {
    /// The events in the request. One that cannot be read is kept whole, as an event of type [`UNREADABLE`], together
    /// with the reason.
    pub fn read(self, provider: &dyn Provider, arrival: Arrival) -> (Vec<Event>, Option<Unreadable>) {
        let (readings, problem) = match self.readings(provider) {
            Ok(readings) => (readings, None),
            Err(problem) => (vec![self.unreadable()], Some(problem)),
        };
        let delivery = Arc::new(Delivery { request: self.request, arrival, proof: self.proof });
        let events = readings.into_iter().map(|reading| event(reading, &delivery)).collect();
        (events, problem)
    }

    /// Why it is genuine.
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// What the provider finds in the request.
    pub fn readings(&self, provider: &dyn Provider) -> Result<Vec<Reading>, Unreadable> {
        provider.read(&self.request)
    }

    fn unreadable(&self) -> Reading {
        Reading {
            dedupe_key: format!("{UNREADABLE}:{}", signature::sha256_hex(&self.request.body)),
            event_type: UNREADABLE.into(),
            account: None,
            occurred_at: None,
            body: self.request.body.clone(),
        }
    }
}

fn event(reading: Reading, delivery: &Arc<Delivery>) -> Event {
    Event {
        id: EventId::new(),
        dedupe_key: DedupeKey::new(reading.dedupe_key),
        event_type: Label::new(reading.event_type),
        account: reading.account.map(Label::new),
        // No event is older than our calendar, and Postgres takes no time before 4713 BC.
        occurred_at: reading.occurred_at.filter(|time| time.year() > 0),
        body: reading.body,
        delivery: Arc::clone(delivery),
    }
}

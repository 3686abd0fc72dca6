//! What `hookfast verify` prints of one request: the verdict, and the events in it.

use hookfast_webhook::{Answer, Genuine, Priority, ProofKind, Provider, Reading, Refusal, Unreadable, Verified};
use serde::Serialize;
use time::OffsetDateTime;

use crate::commands::tables::{print_json, rfc3339};
use crate::printable::plain;

pub(super) fn print(provider: &dyn Provider, verdict: &Result<Verified, Refusal>, hint: Option<&str>, as_json: bool) {
    if as_json {
        print_json(&VerdictView::new(provider, verdict, hint));
        return;
    }
    match verdict {
        Err(refusal) => {
            outln!("refused: {}", plain(&refusal.to_string()));
            if let Some(hint) = hint {
                outln!("  probably: {}", plain(hint));
            }
        }
        Ok(Verified::Handshake(answer)) => outln!("handshake, answered: {}", plain(&in_words(answer))),
        Ok(Verified::Genuine(genuine)) => {
            outln!("{}", proof_in_words(genuine));
            match genuine.readings(provider) {
                Ok(readings) if readings.is_empty() => outln!("  no events in it"),
                Ok(readings) => readings.iter().for_each(print_reading),
                Err(Unreadable(problem)) => outln!("  unreadable, kept whole: {}", plain(&problem)),
            }
        }
    }
}

fn proof_in_words(genuine: &Genuine) -> String {
    let proof = genuine.proof();
    match (proof.kind(), proof.secret_index()) {
        (ProofKind::Signature, Some(index)) => format!("genuine: signed with secret number {}", index + 1),
        (ProofKind::PartialSignature, Some(index)) => {
            format!("genuine: signed with secret number {}, but the signature does not cover the events", index + 1)
        }
        (ProofKind::Token, Some(index)) => format!("genuine: it carries secret number {}", index + 1),
        _ => "taken as it is: nothing in it proves who sent it".into(),
    }
}

fn in_words(answer: &Answer) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    format!("{} {}", answer.status, if body.is_empty() { "without a body".into() } else { body })
}

fn print_reading(reading: &Reading) {
    outln!("  key       {}", plain(&reading.dedupe_key));
    outln!("  type      {}{}", plain(&reading.event_type), if reading.type_is_signed { "" } else { " (not signed)" });
    outln!("  account   {}", reading.account.as_deref().map_or("-".into(), plain));
    outln!("  occurred  {}", reading.occurred_at.map_or("-".into(), rfc3339));
    let further = [("id", &reading.event_id), ("object", &reading.object_id), ("delivery", &reading.delivery_id)];
    for (name, value) in further {
        if let Some(value) = value.as_ref().filter(|value| **value != reading.dedupe_key) {
            outln!("  {name:8}  {}", plain(value));
        }
    }
    if reading.priority != Priority::Normal {
        outln!("  priority  {}", reading.priority.as_str());
    }
    if reading.ping {
        outln!("  ping      its content must be fetched");
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct VerdictView<'a> {
    genuine: bool,
    #[serde(flatten)]
    details: Details<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Details<'a> {
    Refused {
        reason: &'static str,
        explanation: String,
        probably: Option<&'a str>,
    },
    Handshake {
        handshake: String,
    },
    Genuine {
        proof: ProofKind,
        /// Counted from 1.
        secret: Option<usize>,
        events: Option<Vec<ReadingView>>,
        unreadable: Option<String>,
    },
}

impl<'a> VerdictView<'a> {
    fn new(provider: &dyn Provider, verdict: &Result<Verified, Refusal>, hint: Option<&'a str>) -> Self {
        let details = match verdict {
            Err(refusal) => {
                Details::Refused { reason: refusal.reason(), explanation: refusal.to_string(), probably: hint }
            }
            Ok(Verified::Handshake(answer)) => Details::Handshake { handshake: in_words(answer) },
            Ok(Verified::Genuine(genuine)) => Details::of(provider, genuine),
        };
        Self { genuine: verdict.is_ok(), details }
    }
}

impl Details<'_> {
    fn of(provider: &dyn Provider, genuine: &Genuine) -> Self {
        let (events, unreadable) = match genuine.readings(provider) {
            Ok(readings) => (Some(readings.into_iter().map(ReadingView::from).collect()), None),
            Err(problem) => (None, Some(problem.to_string())),
        };
        let proof = genuine.proof();
        Self::Genuine { proof: proof.kind(), secret: proof.secret_index().map(|index| index + 1), events, unreadable }
    }
}

/// An event as its provider reads it.
#[derive(Serialize)]
struct ReadingView {
    dedupe_key: String,
    id: Option<String>,
    object: Option<String>,
    delivery: Option<String>,
    ping: bool,
    priority: Priority,
    #[serde(rename = "type")]
    event_type: String,
    type_is_signed: bool,
    account: Option<String>,
    #[serde(with = "time::serde::rfc3339::option")]
    occurred_at: Option<OffsetDateTime>,
}

impl From<Reading> for ReadingView {
    fn from(reading: Reading) -> Self {
        Self {
            dedupe_key: reading.dedupe_key,
            id: reading.event_id,
            object: reading.object_id,
            delivery: reading.delivery_id,
            ping: reading.ping,
            priority: reading.priority,
            event_type: reading.event_type,
            type_is_signed: reading.type_is_signed,
            account: reading.account,
            occurred_at: reading.occurred_at,
        }
    }
}

//! The JSON of each read model. Scripts rely on it, so fields may be added but never renamed.

use std::time::Duration;

use hookfast_store::{self as store, Found};
use hookfast_webhook::{EventId, HandlerName, JobState, Priority};
use serde_json::{json, to_value};
use time::macros::datetime;
use uuid::Uuid;

use super::*;

const ID: &str = "01a1ec6e-a5a7-7094-a7c3-043dd2eeac1e";

fn id() -> Uuid {
    ID.parse().expect("an id")
}

fn found() -> Found {
    Found {
        event: EventId(id()),
        handler: Some(HandlerName::new("ledger").expect("a name")),
        state: Some(JobState::DeadLetter),
        reason: Some("timeout".into()),
        review: None,
        message: Some("too slow".into()),
        attempts: 5,
        due_at: Some(datetime!(2026-07-01 08:00 UTC)),
        claimed_at: None,
        finished_at: Some(datetime!(2026-07-01 08:00:00.25 UTC)),
        source: "stripe".into(),
        event_type: "invoice.paid".into(),
        account: None,
        received_at: datetime!(2026-07-01 07:00 UTC),
        priority: Priority::High,
        ordering_key: Some("a".into()),
    }
}

#[test]
fn a_job() {
    let expected = json!({
        "event_id": ID, "handler": "ledger", "state": "dead_letter", "reason": "timeout", "review": null, "message": "too slow",
        "attempts": 5, "due_at": "2026-07-01T08:00:00Z", "claimed_at": null, "finished_at": "2026-07-01T08:00:00.25Z",
        "source": "stripe", "type": "invoice.paid", "account": null, "received_at": "2026-07-01T07:00:00Z",
        "priority": "high", "ordering_key": "a",
    });
    assert_eq!(to_value(JobView::from(&found())).expect("JSON"), expected);
    let mut listed = expected.clone();
    listed["configured"] = true.into();
    assert_eq!(to_value(ListedJobView { job: (&found()).into(), configured: true }).expect("JSON"), listed);
    let mut letter = expected;
    letter["history"] = json!([]);
    letter["effects"] = json!([]);
    let dead = DeadLetterView { job: (&found()).into(), history: Vec::new(), effects: Vec::new() };
    assert_eq!(to_value(dead).expect("JSON"), letter);
}

#[test]
fn an_attempt_and_an_effect() {
    let attempt = store::Attempt {
        number: 1,
        started_at: datetime!(2026-07-01 08:00 UTC),
        duration: Duration::from_micros(1500),
        failure: None,
        message: None,
        worker: "w".into(),
    };
    let expected = json!({
        "number": 1, "started_at": "2026-07-01T08:00:00Z", "duration_ms": 1.5, "failure": null, "message": null,
        "worker": "w",
    });
    assert_eq!(to_value(AttemptView::from(&attempt)).expect("JSON"), expected);
    let effect = store::Effect {
        key: "post".into(),
        id: id(),
        runs: 2,
        is_done: true,
        result: Some("{\"a\":1}".into()),
        done_at: Some(datetime!(2026-07-01 08:00 UTC)),
    };
    let expected = json!({
        "key": "post", "idempotency_key": ID, "runs": 2, "done": true, "done_at": "2026-07-01T08:00:00Z",
        "result": {"a": 1},
    });
    assert_eq!(to_value(EffectView::from(&effect)).expect("JSON"), expected);
}

#[test]
fn an_event_in_a_list() {
    let event = store::EventSummary {
        id: EventId(id()),
        source: "stripe".into(),
        dedupe_key: "evt_1".into(),
        event_type: "invoice.paid".into(),
        account: Some("acct".into()),
        object_id: None,
        occurred_at: None,
        received_at: datetime!(2026-07-01 07:00 UTC),
        size_bytes: 7,
        resends: 1,
        jobs: 2,
    };
    let expected = json!({
        "id": ID, "source": "stripe", "dedupe_key": "evt_1", "type": "invoice.paid", "account": "acct",
        "occurred_at": null, "received_at": "2026-07-01T07:00:00Z", "size_bytes": 7, "resends": 1, "job_count": 2,
    });
    assert_eq!(to_value(EventSummaryView::from(&event)).expect("JSON"), expected);
}

#[test]
fn an_act() {
    let audit = store::Audit {
        id: id(),
        at: datetime!(2026-07-01 07:00 UTC),
        who: "ann".into(),
        action: store::Action::Replay,
        why: None,
        filter: "{\"a\":1}".into(),
        jobs: 3,
        next_after: Some(EventId(id())),
        is_done: false,
    };
    let expected = json!({
        "id": ID, "at": "2026-07-01T07:00:00Z", "who": "ann", "action": "replay", "why": null, "filter": {"a": 1},
        "jobs": 3, "next_after": ID, "done": false,
    });
    assert_eq!(to_value(AuditView::from(&audit)).expect("JSON"), expected);
}

//! The JSON of each read model. Scripts rely on it, so fields may be added but never renamed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hookfast_store::{self as store, Found};
use hookfast_webhook::{EventId, HandlerName, JobState, Priority};
use serde_json::{json, to_value};
use time::macros::datetime;
use uuid::Uuid;

use super::*;
use crate::operate::{Count, HandlerJobs, Outcome, Preview, Progress};

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
fn the_jobs_of_a_handler() {
    let jobs = HandlerJobs {
        handler: "ledger".into(),
        is_configured: true,
        by_state: [(JobState::Pending, 2), (JobState::DeadLetter, 1)].into(),
    };
    let expected = json!({"handler": "ledger", "configured": true, "jobs": {"pending": 2, "dead_letter": 1}});
    assert_eq!(to_value(HandlerJobsView::from(&jobs)).expect("JSON"), expected);
    let letters = DeadLettersView { event_id: ID.into(), dead_letters: Vec::new() };
    assert_eq!(to_value(letters).expect("JSON"), json!({"event_id": ID, "dead_letters": []}));
}

#[test]
fn an_act_before_and_after() {
    let ones = |word: &str| BTreeMap::from([(word.to_owned(), 1)]);
    let seen = Preview {
        count: Count::MoreThan(9),
        looked_at: 1,
        skipped: 0,
        by_handler: ones("ledger"),
        by_reason: ones("timeout"),
        by_type: ones("invoice.paid"),
        sample: vec![found()],
    };
    let expected = json!({
        "dry_run": true, "found": 9, "found_is_exact": false, "looked_at": 1, "skipped": 0, "by_handler": {"ledger": 1},
        "by_reason": {"timeout": 1}, "by_type": {"invoice.paid": 1}, "sample": [JobView::from(&found())],
    });
    assert_eq!(to_value(PreviewView::from(&seen)).expect("JSON"), expected);
    let progress = Progress { found: 3, changed: 2, skipped: 1 };
    let outcome = OutcomeView::from(&Outcome { audit: id(), progress, is_done: true });
    let expected = json!({"audit": ID, "found": 3, "changed": 2, "skipped": 1, "done": true});
    assert_eq!(to_value(outcome).expect("JSON"), expected);
    let expected = json!({"audit": null, "found": 0, "changed": 0, "skipped": 0, "done": true});
    assert_eq!(to_value(OutcomeView::nothing_found()).expect("JSON"), expected);
}

#[test]
fn a_spool() {
    let time = datetime!(2026-07-01 08:00 UTC);
    let status = store::SpoolStatus { events: 2, refused: 1, oldest: Some(time), bytes: 4096 };
    let aside = store::SetAside {
        id: EventId(id()),
        source: "stripe".into(),
        received_at: time,
        size_bytes: 7,
        reason: "no".into(),
    };
    let expected = json!({
        "path": "s.db", "events": 2, "refused": 1, "oldest": "2026-07-01T08:00:00Z", "bytes": 4096, "max_bytes": 8192,
        "set_aside": [{
            "id": ID, "source": "stripe", "received_at": "2026-07-01T08:00:00Z", "size_bytes": 7, "reason": "no",
        }],
    });
    assert_eq!(to_value(SpoolView::new(Path::new("s.db"), 8192, &status, &[aside])).expect("JSON"), expected);
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

//! What is not recorded, and what its sender hears.

use hookfast_harness::{Answer, Database, post, sample, sample_at};

use crate::patient;

fn assert_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!(problem["status"], status);
    assert_eq!(problem["request_id"].as_str(), answer.header("x-request-id"));
}

fn what_is_not_genuine_is_refused_and_the_reason_is_in_the_log(database: Database) {
    let gateway = patient(database).start();
    let mut changed = sample(1);
    changed.body = [&changed.body[..], b" "].concat().into();
    let mut unsigned = sample(1);
    unsigned.headers.remove("stripe-signature");
    let stale = sample_at(1, time::Duration::minutes(6));
    let mut texts = Vec::new();
    for (request, reason) in [(changed, "wrong_signature"), (unsigned, "missing_header"), (stale, "stale")] {
        let answer = gateway.client().send(&request).unwrap();
        assert_problem(&answer, 401);
        let series = format!(r#"hookfast_verify_failures_total{{source="stripe",reason="{reason}"}}"#);
        assert_eq!(gateway.metric(&series), 1.0);
        let id = answer.header("x-request-id").unwrap().to_owned();
        let line = gateway.log().lines().find(|line| line.contains(&id)).expect("it is in the log").to_owned();
        assert!(line.contains(reason) && line.contains("127.0.0.1"), "{line}");
        texts.push(answer.text().replace(&id, ""));
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "the sender learns nothing about the reason");
    assert!(gateway.events().is_empty());
}

fn what_has_no_place_here_is_rejected(database: Database) {
    let gateway = patient(database).start();
    let bytes = |line: &str| {
        let request = String::from_utf8(post(&sample(1))).unwrap();
        request.replacen("POST /webhooks/stripe ", &format!("{line} "), 1).into_bytes()
    };
    for (line, status) in [
        ("POST /webhooks/other", 404),
        ("POST /webhooks/stripe/", 404),
        ("POST /metrics", 404),
        ("PUT /webhooks/stripe", 405),
        ("GET /webhooks/stripe", 405),
        ("POST /readyz", 405),
    ] {
        let answer = gateway.client().raw(&bytes(line)).unwrap();
        assert_problem(&answer, status);
        assert_eq!(answer.header("allow").is_some(), status == 405, "{line}");
    }
    assert!(gateway.events().is_empty());
}

fn a_body_beyond_the_limit_is_refused_whole(database: Database) {
    let gateway = patient(database).source("body_limit = \"300B\"").start();
    let fits = sample(1);
    assert!(fits.body.len() < 300);
    let mut larger = sample(2);
    larger.body = vec![b' '; 301].into();
    assert_problem(&gateway.client().send(&larger).unwrap(), 413);
    assert_problem(&gateway.client().raw(&chunked(&larger, 50)).unwrap(), 413);
    // Signed, and cut to the limit it would be readable: it must not be.
    let padded = hookfast_harness::signed(&format!("{}{}", String::from_utf8_lossy(&fits.body), " ".repeat(300)));
    assert_problem(&gateway.client().raw(&chunked(&padded, 50)).unwrap(), 413);
    assert!(gateway.events().is_empty());
    assert_eq!(gateway.client().raw(&chunked(&fits, 50)).unwrap().status, 200);
    assert_eq!(gateway.event(gateway.events()[0].id).body, fits.body);
}

/// The request in chunks, so that its length is not announced.
fn chunked(request: &hookfast_webhook::Request, chunk_bytes: usize) -> Vec<u8> {
    let whole = post(request);
    let head = String::from_utf8_lossy(&whole[..whole.len() - request.body.len()]).into_owned();
    let head = head.replace(&format!("content-length: {}", request.body.len()), "transfer-encoding: chunked");
    let mut bytes = head.into_bytes();
    for chunk in request.body.chunks(chunk_bytes) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn whoever_sends_too_much_is_told_when_to_come_again(database: Database) {
    let gateway = patient(database).source("rate = \"1/m\"").start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    let answer = gateway.client().send(&sample(2)).unwrap();
    assert_problem(&answer, 429);
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert_eq!(gateway.events().len(), 1);
}

fn only_allowed_addresses_may_send(database: Database) {
    let gateway = patient(database).source("allow_from = [\"127.0.0.2\"]").start();
    assert_problem(&gateway.client().send(&sample(1)).unwrap(), 403);
    assert!(gateway.events().is_empty());
    let mut allowed = hookfast_harness::Client::connect_from("127.0.0.2".parse().unwrap(), gateway.ingest);
    assert_eq!(allowed.send(&sample(1)).unwrap().status, 200);
}

on_both! {
    what_is_not_genuine_is_refused_and_the_reason_is_in_the_log
    what_has_no_place_here_is_rejected
    a_body_beyond_the_limit_is_refused_whole
    whoever_sends_too_much_is_told_when_to_come_again
    only_allowed_addresses_may_send
}

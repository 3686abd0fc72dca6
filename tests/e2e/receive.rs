//! What providers and operators see on an ordinary day.

use hookfast_harness::{Database, Gateway, post, sample, signed};
use hookfast_store::EventSummary;

use crate::patient;

/// The one event in the store.
fn only_event(gateway: &Gateway) -> EventSummary {
    let events = gateway.events();
    assert_eq!(events.len(), 1);
    events[0].clone()
}

fn a_signed_event_is_recorded_with_its_job(database: Database) {
    let gateway = patient(database).start();
    let request = sample(1);
    let answer = gateway.client().send(&request).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, ""));

    let event = only_event(&gateway);
    assert_eq!((event.source.as_str(), event.dedupe_key.as_str()), ("stripe", "evt_sample_1"));
    assert_eq!((event.event_type.as_str(), event.resends), ("invoice.paid", 0));
    assert!(event.occurred_at.is_some());
    assert_eq!(gateway.jobs(event.id), ["ledger"]);
    let stored = gateway.event(event.id);
    assert_eq!(stored.body, request.body);
    assert_eq!((stored.method.as_str(), stored.proof.as_str()), ("POST", "signature"));
    assert_eq!(stored.remote_address, "127.0.0.1");
    assert_eq!(answer.header("x-request-id"), Some(stored.request_id.to_string().as_str()));
    assert_eq!(gateway.metric(r#"hookfast_ingest_requests_total{source="stripe",outcome="accepted"}"#), 1.0);
    assert_eq!(gateway.metric(r#"hookfast_events_total{source="stripe"}"#), 1.0);
}

fn headers_are_kept_in_order_with_repeats_and_odd_bytes(database: Database) {
    let gateway = patient(database).start();
    let sent = post(&sample(1));
    let mut lines = sent.split(|byte| *byte == b'\n');
    let first_line = [lines.next().unwrap(), b"\n"].concat();
    let more = b"X-Tag: one\r\nX-Odd: \xff'\"\\\r\nX-Tag: two\r\nx-tag:  three  \r\n";
    let request = [&first_line, &more[..], &sent[first_line.len()..]].concat();
    assert_eq!(gateway.client().raw(&request).unwrap().status, 200);

    let stored = gateway.event(only_event(&gateway).id);
    let headers: Vec<_> = stored.headers.iter().collect();
    let of_name =
        |wanted: &str| headers.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| *value).collect::<Vec<_>>();
    assert_eq!(of_name("x-tag"), [&b"one"[..], b"two", b"three"]);
    assert_eq!(of_name("x-odd"), [b"\xff'\"\\"]);
    let mut names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
    names.dedup();
    assert_eq!(names, ["x-tag", "x-odd", "host", "content-type", "stripe-signature", "content-length"]);
}

fn the_url_is_the_public_one_with_path_and_query_as_sent(database: Database) {
    let gateway = patient(database).ingest("public_url = \"https://hooks.example.com\"").start();
    let request = post(&sample(1));
    let request = String::from_utf8(request).unwrap().replacen("/webhooks/stripe ", "/webhooks/stripe/in?a=%20b&a ", 1);
    assert_eq!(gateway.client().raw(request.as_bytes()).unwrap().status, 200);
    let stored = gateway.event(only_event(&gateway).id);
    assert_eq!(stored.url, "https://hooks.example.com/webhooks/stripe/in?a=%20b&a");
}

fn behind_a_trusted_proxy_the_client_is_whom_it_names(database: Database) {
    let gateway = patient(database).ingest("trusted_proxies = [\"127.0.0.0/8\"]").start();
    let mut request = sample(1);
    request.headers.insert("x-forwarded-for", "192.0.2.66, 203.0.113.9".parse().unwrap());
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    assert_eq!(gateway.event(only_event(&gateway).id).remote_address, "203.0.113.9");
}

fn each_handler_gets_a_job_for_what_it_wants(database: Database) {
    let handlers = "[handlers.mail]\nrun = \"log\"\nsource = \"stripe\"\ntypes = [\"charge.*\"]\n\
                    [handlers.paid]\nrun = \"log\"\ntypes = [\"invoice.paid\"]\n";
    let gateway = patient(database).sections(handlers).start();
    let mut client = gateway.client();
    for (id, event_type) in [("evt_1", "invoice.paid"), ("evt_2", "charge.refunded"), ("evt_3", "charge")] {
        let body = format!(r#"{{"id":"{id}","type":"{event_type}"}}"#);
        assert_eq!(client.send(&signed(&body)).unwrap().status, 200);
    }
    let jobs: Vec<_> = gateway.events().iter().map(|event| gateway.jobs(event.id)).collect();
    assert_eq!(jobs, [vec!["ledger"], vec!["ledger", "mail"], vec!["ledger", "paid"]], "newest first");
}

fn a_genuine_request_that_cannot_be_read_is_kept_whole(database: Database) {
    let gateway = patient(database).start();
    let bodies = ["this is not JSON", "", r#"{"id":7}"#];
    for body in bodies {
        for _ in 0..2 {
            assert_eq!(gateway.client().send(&signed(body)).unwrap().status, 200);
        }
    }
    let events = gateway.events();
    assert_eq!(events.len(), bodies.len(), "and a second time it is a resend like any other");
    for (event, body) in events.iter().zip(bodies.iter().rev()) {
        assert_eq!((event.event_type.as_str(), event.resends), ("unreadable", 1));
        assert_eq!(gateway.event(event.id).body, body.as_bytes());
        assert_eq!(gateway.jobs(event.id), ["ledger"]);
    }
    assert_eq!(gateway.metric(r#"hookfast_unreadable_total{source="stripe"}"#), 6.0);
    assert!(gateway.log().contains("genuine but unreadable"));
}

fn many_requests_share_a_connection(database: Database) {
    let gateway = patient(database).start();
    let mut client = gateway.client();
    for serial in 0..50 {
        assert_eq!(client.send(&sample(serial)).unwrap().status, 200);
    }
    assert_eq!(gateway.events().len(), 50);
    assert_eq!(gateway.metric("hookfast_connections"), 1.0);
}

on_both! {
    a_signed_event_is_recorded_with_its_job
    headers_are_kept_in_order_with_repeats_and_odd_bytes
    the_url_is_the_public_one_with_path_and_query_as_sent
    behind_a_trusted_proxy_the_client_is_whom_it_names
    each_handler_gets_a_job_for_what_it_wants
    a_genuine_request_that_cannot_be_read_is_kept_whole
    many_requests_share_a_connection
}

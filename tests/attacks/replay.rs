//! Sending again what was genuine once.

use std::thread;

use hookfast_harness::{Gateway, PrivatePostgres, SECRET, eventually, sample, sample_at, signed};
use hookfast_webhook::Request;
use time::Duration;

use super::{
    assert_each_refused, assert_recorded, assert_serves, assert_unharmed, gateway, now, setup, signature_of, signed_at,
    to_path, unproved, with_header,
};

/// The one event in the store came so often, and has its one job.
fn assert_came(gateway: &Gateway, times: i64) {
    let events = gateway.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((events[0].resends, gateway.jobs(events[0].id).len()), (times - 1, 1));
    let duplicates = gateway.metric(r#"hookfast_duplicates_total{source="stripe"}"#);
    assert!((duplicates - (times - 1) as f64).abs() < f64::EPSILON, "{duplicates} duplicates are counted");
}

#[test]
fn case_19_the_same_request_again_is_one_event_and_one_job() {
    let gateway = gateway();
    let request = sample(1);
    for _ in 0..3 {
        assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    }
    assert_came(&gateway, 3);
    assert_serves(&gateway);
}

#[test]
fn case_19_the_same_request_many_times_at_once_is_one_event_and_one_job() {
    let gateway = gateway();
    let request = sample(1);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(gateway.client().send(&request).unwrap().status, 200));
        }
    });
    assert_came(&gateway, 32);
    assert_serves(&gateway);
}

/// A recorded request can be sent without end.
#[test]
fn case_19_replays_do_not_make_the_database_grow() {
    let gateway = gateway();
    let request = sample(1);
    let mut client = gateway.client();
    for _ in 0..200 {
        assert_eq!(client.send(&request).unwrap().status, 200);
    }
    assert_came(&gateway, 200);
    let rows = "SELECT (SELECT count(*) FROM dedupe_keys), (SELECT count(*) FROM resend_arrivals), \
                (SELECT count(*) FROM resends)";
    assert_eq!(gateway.query(rows), [["1", "10", "0"]]);
    let shown = gateway.command(&["events", "show", &gateway.events()[0].id.to_string(), "--json"]).json();
    let numbers: Vec<_> =
        shown["came_again"].as_array().unwrap().iter().map(|again| again["number"].as_u64()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 195, 196, 197, 198, 199].map(Some));
}

/// While Postgres is away, a recorded request takes its room in the spool once.
#[test]
fn case_19_replays_do_not_fill_the_spool() {
    let mut postgres = PrivatePostgres::start(&[]);
    let gateway = setup().store(&postgres.database()).spool("spool_max = \"4MiB\"").start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
    postgres.kill();
    let body = format!(r#"{{"id":"evt_recorded","type":"t","data":"{}"}}"#, "x".repeat(300_000));
    let recorded = signed(&body);
    for _ in 0..50 {
        assert_eq!(gateway.client().send(&recorded).unwrap().status, 200);
    }
    for serial in 10..20 {
        assert_eq!(gateway.client().send(&sample(serial)).unwrap().status, 200, "there is room for others");
    }
    let status = gateway.command(&["spool", "--json"]).json();
    let waiting = status["events"].as_u64().unwrap();
    assert!((11..=12).contains(&waiting), "{waiting} wait; only one that was just being handed on can be there twice");
    postgres.restart();
    eventually("the spool is drained", || gateway.metric("hookfast_spooling") == 0.0);
    let events = gateway.events();
    let came = events.iter().find(|event| event.dedupe_key == "evt_recorded").unwrap();
    assert_eq!((events.len(), came.resends, came.jobs), (12, 49, 1));
    assert_serves(&gateway);
}

#[test]
fn case_20_an_old_request_is_refused_however_good_its_signature() {
    let gateway = gateway();
    let ages = [Duration::seconds(302), Duration::hours(1), Duration::days(365)];
    assert_each_refused(&gateway, ages.map(|age| (age.to_string(), sample_at(1, age))));
    // Making it look young breaks the signature: the timestamp is signed.
    let old = sample_at(1, Duration::hours(1));
    let signature = signature_of(SECRET, &(now() - 3600).to_string(), &old.body);
    assert_each_refused(
        &gateway,
        [("made younger".into(), unproved(&format!("t={},v1={signature}", now()), &old.body))],
    );
    assert_unharmed(&gateway);

    let still_young = sample_at(2, Duration::seconds(280));
    assert_eq!(gateway.client().send(&still_young).unwrap().status, 200, "a slow provider is no attacker");
}

/// Like Stripe's own packages we only ask how old a request is: a time in the future can be signed by Stripe alone, and
/// says that one of the clocks is wrong.
#[test]
fn case_21_a_timestamp_from_the_future_is_taken_only_with_the_secret() {
    let gateway = gateway();
    for (number, ahead) in [60, 86_400, i64::from(u32::MAX)].into_iter().enumerate() {
        let body = format!(r#"{{"id":"evt_{number}","type":"a"}}"#);
        let signed = signed_at(now() + ahead, body.as_bytes());
        let later = with_timestamp(&signed, &(now() + ahead + 1).to_string());
        assert_each_refused(&gateway, [(format!("{ahead} s ahead, unsigned"), later)]);
        assert_eq!(gateway.client().send(&signed).unwrap().status, 200);
    }
    assert_recorded(&gateway, &["evt_2", "evt_1", "evt_0"]);
    assert_serves(&gateway);
}

#[test]
fn case_21_odd_timestamps_are_refused() {
    let gateway = gateway();
    let milliseconds = (now() * 1000).to_string();
    let odd = [
        &*milliseconds,
        "-1",
        "0",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999999",
        "1e9",
        "0x7fffffff",
        "NaN",
        "Infinity",
        "1760000000.0",
        "\u{661}\u{667}",
    ];
    for timestamp in odd {
        assert_each_refused(&gateway, [(format!("{timestamp}, unsigned"), with_timestamp(&sample(1), timestamp))]);
    }
    // With the secret they are what they say: long ago.
    for old in [i64::MIN, -1, 0] {
        assert_each_refused(&gateway, [(format!("{old}, signed"), signed_at(old, b"{}"))]);
    }
    assert_unharmed(&gateway);
}

/// The request with another timestamp before its signature.
fn with_timestamp(request: &Request, timestamp: &str) -> Request {
    let value = String::from_utf8(super::signature_header(request)).unwrap();
    let (_, signature) = value.split_once(',').unwrap();
    with_header(request.clone(), super::SIGNATURE, format!("t={timestamp},{signature}").as_bytes())
}

/// Nothing outside the signed bytes can make a second event of the first.
#[test]
fn case_22_new_unsigned_parts_around_the_same_body_are_the_same_event() {
    let gateway = gateway();
    let request = sample(1);
    let send = |request: Request| assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    send(request.clone());
    let headers = ["x-request-id", "idempotency-key", "x-delivery-id", "webhook-id", "user-agent", "content-type"];
    for header in headers {
        send(with_header(request.clone(), header, b"another-1"));
    }
    send(to_path("/webhooks/stripe?delivery=2", request.clone()));
    send(to_path("/webhooks/stripe/another", request.clone()));
    // Stripe signs anew each time it tries again.
    send(signed_at(now() - 30, &request.body));
    assert_came(&gateway, 4 + headers.len() as i64);
    assert_serves(&gateway);
}

/// Its key is the body's hash: where the URL is not signed, it could be any.
#[test]
fn case_22_an_unreadable_body_sent_to_other_urls_is_the_same_event() {
    let gateway = gateway();
    let request = signed_at(now(), b"no JSON");
    for path in ["/webhooks/stripe", "/webhooks/stripe?x=1", "/webhooks/stripe/tail"] {
        assert_eq!(gateway.client().send(&to_path(path, request.clone())).unwrap().status, 200);
    }
    assert_came(&gateway, 3);
}

//! Sending again what was genuine once.

use std::thread;

use hookfast_harness::{Gateway, SECRET, sample, sample_at};
use hookfast_webhook::Request;
use time::Duration;

use super::{
    assert_each_refused, assert_recorded, assert_serves, assert_unharmed, gateway, now, signature_of, signed_at,
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

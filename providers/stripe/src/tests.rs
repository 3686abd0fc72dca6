use hookfast_webhook::{Secret, verify};
use http::HeaderValue;

use super::*;

hookfast_webhook::refusal_suite!(Stripe::new(&Config::default()), tolerance: Duration::seconds(300));

fn read(body: &str) -> Result<Reading, Unreadable> {
    let request = sign("https://hooks.example.com", &secret(), 1_760_000_000, body.into());
    Stripe::new(&Config::default()).read(&request).map(|mut readings| readings.remove(0))
}

fn secret() -> Secret {
    Secret::new("whsec_test").expect("not blank")
}

#[test]
fn an_entry_after_a_blank_does_not_save_a_bad_signature() {
    let mut request = sign("https://hooks.example.com", &secret(), 1_760_000_000, "{}".into());
    let value = request.headers[&SIGNATURE].to_str().expect("text").to_owned() + " x";
    request.headers.insert(SIGNATURE.clone(), HeaderValue::try_from(value).expect("legal"));
    let now = OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time");
    let verdict = verify(&Stripe::new(&Config::default()), request, &Secrets::new(vec![secret()]), now);
    assert_eq!(verdict.err(), Some(Refusal::WrongSignature));
}

#[test]
fn an_event_without_time_and_account_is_still_an_event() {
    let reading = read(r#"{"id":"evt_1","type":"payout.paid"}"#).expect("readable");
    assert_eq!((reading.dedupe_key.as_str(), reading.event_type.as_str()), ("evt_1", "payout.paid"));
    assert_eq!((reading.account, reading.occurred_at), (None, None));
}

#[test]
fn fields_of_a_new_form_do_not_lose_the_event() {
    let reading = read(r#"{"id":"evt_1","type":"t","created":{"new":1},"account":7,"context":null}"#);
    let reading = reading.expect("readable");
    assert_eq!((reading.account, reading.occurred_at), (None, None));
}

#[test]
fn escapes_in_id_and_type_are_decoded() {
    let reading = read(r#"{"id":"evt_\u0031","type":"a\/b"}"#).expect("readable");
    assert_eq!((reading.dedupe_key.as_str(), reading.event_type.as_str()), ("evt_1", "a/b"));
}

#[test]
fn what_has_no_single_id_and_type_is_unreadable() {
    for body in ["", "null", "[]", "{}", "{", r#"{"id":"evt_1"}"#, r#"{"type":"t"}"#, r#"{"id":7,"type":"t"}"#] {
        assert!(read(body).is_err(), "{body}");
    }
    assert!(read(r#"{"id":"","type":"t"}"#).is_err());
    assert!(read(r#"{"id":"evt_1","id":"evt_2","type":"t"}"#).is_err(), "either id could be meant");
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(read(&format!(r#"{{"id":"evt_1","type":"t","data":{deep}}}"#)).is_ok());
}

#[test]
fn a_timestamp_far_off_either_way_is_judged_without_overflow() {
    let judge = |timestamp| {
        let request = sign("https://hooks.example.com", &secret(), timestamp, "{}".into());
        let now = OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time");
        verify(&Stripe::new(&Config::default()), request, &Secrets::new(vec![secret()]), now)
    };
    assert!(matches!(judge(i64::MIN), Err(Refusal::Stale { .. })));
    assert!(matches!(judge(-1), Err(Refusal::Stale { .. })));
    assert!(judge(i64::MAX).is_ok(), "as in Stripe's packages, only age counts");
}

#[test]
fn the_reason_for_unreadability_quotes_nothing_of_the_payload() {
    let problem = read(r#"{"id":{"canary":1},"type":"canary"}"#).expect_err("unreadable").to_string();
    assert!(problem.contains("`id`") && !problem.contains("canary"), "{problem}");
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Ok(Stripe::new(config)));
}

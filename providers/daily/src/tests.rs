use hookfast_webhook::{Verified, verify};
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use sample::{KINDS, probe, sign};

const URL: &str = "https://hooks.example.com/webhooks/daily";
const NOW: i64 = 1_760_000_000;

hookfast_webhook::refusal_suite!(tolerating(300), tolerance: Duration::seconds(300));

fn provider() -> Daily {
    Daily::new(&Config::default())
}

fn tolerating(seconds: u32) -> Daily {
    Daily::new(&Config { tolerance_seconds: Some(seconds), ..Config::default() })
}

fn secret() -> Secret {
    Secret::new("dmVjdG9yLW9ubHktZGFpbHkta2V5LWFscGhhLTAwMDE=").expect("not blank")
}

fn signed(timestamp: &str, body: &str) -> Request {
    sign(URL, &secret(), timestamp, body.into()).expect("a key")
}

fn judge(provider: &Daily, request: Request) -> Result<Verified, Refusal> {
    let now = OffsetDateTime::from_unix_timestamp(NOW).expect("a time");
    verify(provider, request, &Secrets::new(vec![secret()]), now)
}

fn read(body: &str) -> Result<Reading, Unreadable> {
    provider().read(&signed("1", body)).map(|mut readings| readings.remove(0))
}

#[test]
fn the_probe_is_answered_with_and_without_a_signature_and_is_no_event() {
    let mut wrong = probe(URL);
    wrong.headers.insert(SIGNATURE, HeaderValue::from_static("wrong"));
    let blanks = Request { body: " {\n \"test\" : \"test\" }\n".into(), ..probe(URL) };
    for request in [probe(URL), wrong, blanks, signed("1760000000", r#"{"test":"test"}"#)] {
        let verdict = judge(&provider(), request);
        assert!(matches!(&verdict, Ok(Verified::Handshake(answer)) if *answer == Answer::EMPTY_OK), "{verdict:?}");
    }
}

#[test]
fn what_only_resembles_the_probe_needs_a_signature() {
    let padded = format!(r#"{{"test":"test"{}}}"#, " ".repeat(64));
    for body in [
        "",
        "{}",
        "null",
        r#""test""#,
        r#"[{"test":"test"}]"#,
        r#"{"test":"Test"}"#,
        r#"{"test":["test"]}"#,
        r#"{"test":"test","id":"1"}"#,
        r#"{"id":"1","test":"test"}"#,
        r#"{"test":"test","test":"test"}"#,
        r#"{"test":"test"}x"#,
        r#"{"test":"test""#,
        &padded,
    ] {
        let verdict = judge(&provider(), Request { body: body.to_owned().into(), ..probe(URL) });
        assert_eq!(verdict.err(), Some(Refusal::MissingHeader(TIMESTAMP.clone())), "{body}");
    }
}

#[test]
fn until_the_secret_is_known_only_the_probe_is_answered() {
    let unknown = Daily::new(&Config { hmac_known: false, ..Config::default() });
    assert!(!unknown.needs_secret() && provider().needs_secret());
    let judge = |request| verify(&unknown, request, &Secrets::default(), OffsetDateTime::UNIX_EPOCH);
    assert!(matches!(judge(probe(URL)), Ok(Verified::Handshake(_))));
    for request in [signed("1", "{}"), Request { body: "{}".into(), ..probe(URL) }] {
        assert_eq!(judge(request).err(), Some(Refusal::NoSecret));
    }
}

#[test]
fn the_time_is_judged_only_if_asked_for() {
    for timestamp in ["1", "1760000000000", "99999999999999999999999999"] {
        assert!(judge(&provider(), signed(timestamp, "{}")).is_ok(), "{timestamp}");
    }
}

#[test]
fn a_time_may_be_off_either_way_in_seconds_or_milliseconds() {
    for timestamp in ["1759999700", "1760000300", "1759999700000", "1760000300000", "1760000299.5", "01760000000"] {
        assert!(judge(&tolerating(300), signed(timestamp, "{}")).is_ok(), "{timestamp}");
    }
    for timestamp in ["1759999699", "1760000301", "1759999699999", "1760000300001", "1760000300.5", "0", "99999999999"]
    {
        let verdict = judge(&tolerating(300), signed(timestamp, "{}"));
        assert!(matches!(verdict, Err(Refusal::Stale { .. })), "{timestamp} {verdict:?}");
    }
    let verdict = judge(&tolerating(300), signed("99999999999999999999999999", "{}"));
    assert_eq!(verdict.err(), Some(malformed(TIMESTAMP, "it is not a time")));
}

#[test]
fn the_signature_is_judged_before_the_age() {
    let mut request = signed("1", "{}");
    request.body = "[]".into();
    assert_eq!(judge(&tolerating(300), request).err(), Some(Refusal::WrongSignature));
}

#[test]
fn nothing_of_a_signed_body_can_be_moved_into_the_timestamp() {
    let body = r#"{"version":"1.0.0","type":"t","id":"1"}"#;
    let request = signed("1760000000", body);
    for (place, _) in body.match_indices('.') {
        let mut moved = request.clone();
        let timestamp = HeaderValue::try_from(format!("1760000000.{}", &body[..place])).expect("legal");
        moved.headers.insert(TIMESTAMP, timestamp);
        moved.body = body[place + 1..].to_owned().into();
        assert_eq!(judge(&provider(), moved).err(), Some(malformed(TIMESTAMP, "it is not a number")));
    }
    for timestamp in ["-1", "+1", "1e9", "1.", ".5", "1.2.3", "1 ", "0x1", "inf", "2025-10-09T08:53:12Z"] {
        assert!(judge(&provider(), signed(timestamp, body)).is_err(), "{timestamp}");
    }
}

#[test]
fn there_is_one_way_to_write_a_signature() {
    let request = signed("1760000000", "{}");
    let good = request.headers[SIGNATURE].to_str().expect("text").to_owned();
    let hex = signature::to_hex(&Encoding::Base64.decode(&good).expect("base64"));
    let unpadded = good.trim_end_matches('=');
    for bad in [hex, unpadded.into(), format!("sha256={good}"), format!("{good},{good}"), format!("v1,{good}")] {
        let mut request = request.clone();
        request.headers.insert(SIGNATURE, HeaderValue::try_from(&bad).expect("legal"));
        assert!(matches!(judge(&provider(), request), Err(Refusal::MalformedHeader { .. })), "{bad}");
    }
}

#[test]
fn a_secret_that_is_not_base64_is_named_before_the_first_request() {
    assert_eq!(provider().check_secret(&secret()), Ok(()));
    for bad in ["whsec_1", "a key!", "====", "a-_b"] {
        let problem = provider().check_secret(&Secret::new(bad).expect("not blank"));
        assert!(problem.is_err_and(|problem| problem.contains("base64") && !problem.contains(bad)));
    }
    let key = Secret::new("a key!").expect("not blank");
    let order = SampleOrder { kind: None, url: URL, key: Some(&key), now: OffsetDateTime::UNIX_EPOCH, serial: 1 };
    assert!(provider().sample(&order).is_err());
}

#[test]
fn an_event_without_id_is_known_by_its_bytes() {
    let reading = |body| read(body).expect("readable");
    let first = reading(r#"{"type":"t","event_ts":1}"#);
    assert_eq!(first.event_id, None);
    assert!(first.dedupe_key.starts_with("body:"));
    assert_eq!(reading(r#"{"type":"t","event_ts":1}"#).dedupe_key, first.dedupe_key);
    assert_ne!(reading(r#"{"type":"t","event_ts":2}"#).dedupe_key, first.dedupe_key);
}

#[test]
fn fields_of_a_new_form_do_not_lose_the_event() {
    for payload in ["null", "7", "[]", r#""room""#, r#"{"room":{}}"#, r#"{"room":"a","room":"b"}"#] {
        let reading = read(&format!(r#"{{"id":"1","type":"new.type","payload":{payload},"event_ts":"soon"}}"#));
        let reading = reading.expect("readable");
        assert_eq!((reading.dedupe_key.as_str(), reading.event_type.as_str()), ("1", "new.type"), "{payload}");
        assert_eq!((reading.account, reading.occurred_at), (None, None), "{payload}");
    }
}

#[test]
fn the_room_has_two_names() {
    let room =
        |payload: &str| read(&format!(r#"{{"id":"1","type":"t","payload":{payload}}}"#)).expect("readable").account;
    assert_eq!(room(r#"{"room":"a"}"#).as_deref(), Some("a"));
    assert_eq!(room(r#"{"room_name":"b","room":"a"}"#).as_deref(), Some("b"));
    assert_eq!(room(r#"{"room_name":"","room":"a"}"#).as_deref(), Some("a"));
}

#[test]
fn what_has_no_type_is_unreadable_and_the_reason_quotes_nothing() {
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "{",
        r#"{"id":"canary"}"#,
        r#"{"type":""}"#,
        r#"{"type":{"canary":1}}"#,
        r#"{"type":"canary","type":"t"}"#,
    ] {
        let problem = read(body).expect_err("unreadable").to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(read(&format!(r#"{{"id":"1","type":"t","payload":{{"room":{deep}}}}}"#)).is_ok());
}

#[test]
fn samples_can_stand_in_a_shell_line() {
    for kind in KINDS {
        let now = OffsetDateTime::UNIX_EPOCH;
        let order = SampleOrder { kind: Some(kind), url: URL, key: Some(&secret()), now, serial: 1 };
        let request = provider().sample(&order).expect("it is one of the kinds");
        assert!(!request.body.contains(&b'\''), "{kind}");
    }
}

#[test]
fn an_unknown_setting_is_a_mistake() {
    assert!(serde_json::from_str::<Config>(r#"{"tolerance":1}"#).is_err());
    assert_eq!(serde_json::from_str::<Config>("{}").expect("all have defaults"), Config::default());
}

fn value(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

/// Random JSON that resembles what Daily sends.
fn disorder() -> impl Strategy<Value = Value> {
    let name = proptest::sample::select(vec!["id", "type", "payload", "event_ts", "room", "room_name", "test"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(Value::from("test")),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let object = proptest::collection::btree_map(name.clone(), inner, 0..6);
        let object =
            object.prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        prop_oneof![list, object.prop_map(Value::Object)]
    })
}

proptest! {
    #[test]
    fn no_request_makes_it_panic_and_none_is_taken_without_a_signature(
        timestamp in prop_oneof!["[0-9]{1,30}", "[0-9]{0,3}\\.[0-9]{0,3}", "[ -~]{0,20}"],
        signature in proptest::collection::vec(0x20..=0xff_u8, 0..60),
        body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let headers = HeaderMap::from_iter([
            (TIMESTAMP.clone(), value(timestamp.as_bytes())),
            (SIGNATURE.clone(), value(&signature)),
        ]);
        let request = Request { method: Method::POST, url: URL.into(), headers, body: body.into() };
        let _ = provider().read(&request);
        prop_assert!(judge(&tolerating(300), request).is_err());
    }

    #[test]
    fn any_number_is_a_timestamp_that_can_be_judged(timestamp in "[0-9]{1,40}(\\.[0-9]{1,10})?", tolerance in any::<u32>()) {
        let request = signed(&timestamp, "{}");
        prop_assert!(judge(&provider(), request.clone()).is_ok());
        let _ = judge(&tolerating(tolerance), request);
    }

    #[test]
    fn no_json_makes_it_panic(body in disorder()) {
        let body = body.to_string();
        let _ = is_probe(body.as_bytes());
        if let Ok(reading) = read(&body) {
            prop_assert!(!reading.dedupe_key.is_empty() && reading.body == body);
        }
    }
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Ok(Daily::new(config)));
}

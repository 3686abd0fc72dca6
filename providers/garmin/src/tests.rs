use hookfast_webhook::{Genuine, ProofKind, Verified, refusal_suite, verify};
use http::{HeaderMap, HeaderValue, Method};

use super::*;

const URL: &str = "https://hooks.example.com/webhooks/garmin";

// A source without a token accepts requests without one, so the suite's check of an empty list of secrets does not
// apply.
macro_rules! checks {
    ($($check:ident)*) => { $(#[test] fn $check() { refusal_suite::$check(&garmin()); })* };
}

checks! {
    a_flipped_byte_in_a_proof_header_is_refused
    a_truncated_or_overlong_proof_header_is_refused
    a_missing_or_empty_proof_header_is_refused
    a_doubled_proof_header_is_refused
    rotation_accepts_old_and_new_and_nothing_else
    samples_are_readable_and_distinct
    every_kind_of_sample_is_accepted
}

fn garmin() -> Garmin {
    Garmin::new(&Config { client_id: Some("client-1".into()) })
}

fn secrets(texts: &[&str]) -> Secrets {
    Secrets::new(texts.iter().map(|text| Secret::new(*text).expect("not blank")).collect())
}

fn request(url: &str, body: impl Into<Bytes>) -> Request {
    let headers = HeaderMap::from_iter([(CLIENT_ID.clone(), HeaderValue::from_static("client-1"))]);
    Request { method: Method::POST, url: url.into(), headers, body: body.into() }
}

fn judge(provider: &Garmin, request: Request, secrets: &Secrets) -> Result<Genuine, Refusal> {
    match verify(provider, request, secrets, OffsetDateTime::UNIX_EPOCH)? {
        Verified::Genuine(genuine) => Ok(genuine),
        Verified::Handshake(_) => panic!("Garmin has no handshake"),
    }
}

fn read(body: impl Into<Bytes>) -> Result<Vec<Reading>, Unreadable> {
    garmin().read(&request(URL, body))
}

fn read_one(body: &str) -> Reading {
    let mut readings = read(body.to_owned()).expect("readable");
    assert_eq!(readings.len(), 1, "{body}");
    readings.remove(0)
}

#[test]
fn the_first_segment_must_be_one_of_the_tokens() {
    let held = secrets(&["old-token", "new-token"]);
    let verdict = |tail: &str| {
        let genuine = judge(&garmin(), request(&format!("{URL}{tail}"), "{}"), &held)?;
        Ok((genuine.proof().kind(), genuine.proof().secret_index()))
    };
    assert_eq!(verdict("/old-token"), Ok((ProofKind::Token, Some(0))));
    assert_eq!(verdict("/new-token/sleeps"), Ok((ProofKind::Token, Some(1))));
    assert_eq!(verdict("/new-token?x=1"), Ok((ProofKind::Token, Some(1))));
    for missing in ["", "/", "?new-token", "#/new-token"] {
        assert_eq!(verdict(missing), Err(Refusal::Missing("path token".into())), "{missing}");
    }
    for wrong in ["/sleeps", "/sleeps/new-token", "/new-toke", "/new-tokenx", "/NEW-TOKEN", "/new%2Dtoken"] {
        assert_eq!(verdict(wrong), Err(Refusal::WrongToken), "{wrong}");
    }
}

#[test]
fn without_tokens_the_path_does_not_matter_and_nothing_is_proved() {
    for tail in ["", "/7f3c9a54e1", "/7f3c9a54e1/sleeps", "/a/b/c"] {
        let genuine = judge(&garmin(), request(&format!("{URL}{tail}"), "{}"), &Secrets::default());
        assert_eq!(genuine.map(|genuine| genuine.proof()), Ok(Proof::unsigned()), "{tail}");
    }
}

#[test]
fn the_client_id_counts_beside_the_token() {
    let mut other = request(&format!("{URL}/token"), "{}");
    other.headers.insert(CLIENT_ID.clone(), HeaderValue::from_static("client-2"));
    let verdict = judge(&garmin(), other.clone(), &secrets(&["token"]));
    assert_eq!(verdict.err(), Some(Refusal::NotOurs("garmin-client-id")));

    other.headers.remove(&CLIENT_ID);
    let verdict = judge(&garmin(), other.clone(), &secrets(&["token"]));
    assert_eq!(verdict.err(), Some(Refusal::MissingHeader(CLIENT_ID.clone())));
    assert!(judge(&Garmin::new(&Config::default()), other, &secrets(&["token"])).is_ok());
}

#[test]
fn addresses_are_all_there_is_without_token_and_client_id() {
    let open = Garmin::new(&Config::default());
    assert!(open.trusts_addresses_only(&Secrets::default()));
    assert!(!open.trusts_addresses_only(&secrets(&["token"])) && !garmin().trusts_addresses_only(&Secrets::default()));
}

#[test]
fn a_token_that_a_url_would_change_is_reported() {
    let check = |text: &str| garmin().check_secret(&Secret::new(text).expect("not blank"));
    assert!(check("7f3c9a54e1_-Z").is_ok());
    for bad in ["a/b", "a b", "a%20b", "é", "a?b", "..", "a#b", &"x".repeat(128)] {
        assert!(check(bad).is_err(), "{bad}");
    }
    assert!(garmin().check_secret(&garmin().key_pair(&[7; 32]).verifying).is_ok());
}

#[test]
fn records_are_parts_of_the_body_and_keep_their_order() {
    let whole = request(URL, r#" {"hrv" : [ {"userId":"a"} , {"userId":"b"}], "newType":[{"userId":"c"}],"mct":[]} "#);
    let readings = garmin().read(&whole).expect("readable");
    let found: Vec<_> = readings.iter().map(|reading| (&*reading.event_type, reading.account.as_deref())).collect();
    assert_eq!(found, [("hrv", Some("a")), ("hrv", Some("b")), ("newType", Some("c"))]);
    assert_eq!(readings[1].body, r#"{"userId":"b"}"#);
    let bytes = whole.body.as_ptr_range();
    assert!(readings.iter().all(|reading| bytes.contains(&reading.body.as_ptr())), "nothing is copied");
}

#[test]
fn an_exact_repeat_is_a_duplicate_and_an_update_is_not() {
    let sleep = |duration| {
        read_one(&format!(r#"{{"sleeps":[{{"userId":"u","summaryId":"s","durationInSeconds":{duration}}}]}}"#))
    };
    assert_eq!(sleep(1), sleep(1));
    assert_ne!(sleep(1).dedupe_key, sleep(2).dedupe_key);
    assert!(sleep(1).dedupe_key.starts_with("sleeps:u:s:"));
    assert_eq!((sleep(1).object_id, sleep(1).event_id), (sleep(2).object_id, sleep(2).event_id));
}

#[test]
fn users_and_types_do_not_mix() {
    let keys = |body: &str| (read_one(body).dedupe_key, read_one(body).object_id);
    let (key, object) = keys(r#"{"sleeps":[{"userId":"u","summaryId":"s"}]}"#);
    for other in [r#"{"sleeps":[{"userId":"v","summaryId":"s"}]}"#, r#"{"dailies":[{"userId":"u","summaryId":"s"}]}"#] {
        let (other_key, other_object) = keys(other);
        assert!(key != other_key && object != other_object, "{other}");
    }
}

#[test]
fn pings_differ_by_their_callback() {
    let ping =
        |token| read_one(&format!(r#"{{"epochs":[{{"userId":"u","callbackURL":"https://a/?token={token}"}}]}}"#));
    assert!(ping(1).ping && ping(1).event_id.is_none() && ping(1).object_id.is_none());
    assert_eq!(ping(1).dedupe_key, ping(1).dedupe_key);
    assert_ne!(ping(1).dedupe_key, ping(2).dedupe_key);
    assert!(!read_one(r#"{"epochs":[{"userId":"u","callbackURL":null}]}"#).ping);
}

#[test]
fn times_have_several_names_and_may_have_a_fraction() {
    let micros = |record: &str| {
        let time = read_one(&format!(r#"{{"t":[{record}]}}"#)).occurred_at;
        time.map(|time| time.unix_timestamp_nanos() / 1000)
    };
    assert_eq!(micros(r#"{"startTimeInSeconds":1759968000}"#), Some(1_759_968_000_000_000));
    assert_eq!(micros(r#"{"startTimeInSeconds":1759968000.5}"#), Some(1_759_968_000_500_000));
    assert_eq!(micros(r#"{"measurementTimeInSeconds":1759968001.0}"#), Some(1_759_968_001_000_000));
    assert_eq!(micros(r#"{"changeTimeInSeconds":1759968002}"#), Some(1_759_968_002_000_000));
    assert_eq!(micros(r#"{"summary":{"startTimeInSeconds":1759968003}}"#), Some(1_759_968_003_000_000));
    for none in [r#"{"calendarDate":"2025-10-09"}"#, r#"{"startTimeInSeconds":null}"#, r#"{"summary":[1]}"#] {
        assert_eq!(micros(none), None, "{none}");
    }
}

#[test]
fn a_record_of_an_unknown_form_is_still_an_event() {
    for record in ["7", "null", "[]", "{}", r#"{"userId":null}"#, r#"{"userId":"a","userId":"b"}"#, r#"{"userId":{}}"#]
    {
        let reading = read_one(&format!(r#"{{"sleeps":[{record}]}}"#));
        assert_eq!((reading.account, &*reading.body), (None, record.as_bytes()), "{record}");
        assert!(reading.dedupe_key.starts_with("sleeps:-:-:"), "{record}");
    }
    let numbers = read_one(r#"{"activities":[{"userId":5,"summaryId":5001968355}]}"#);
    assert_eq!((numbers.account.as_deref(), numbers.event_id.as_deref()), (Some("5"), Some("5001968355")));
}

#[test]
fn no_records_are_no_events() {
    for body in ["{}", r#"{"sleeps":[]}"#, r#"{"sleeps":[],"dailies":[ ]}"#] {
        assert_eq!(read(body), Ok(vec![]), "{body}");
    }
}

#[test]
fn what_is_no_object_of_arrays_is_kept_whole() {
    for body in ["", "null", "[]", "{", "[{\"userId\":\"u\"}]", "{} x", "\u{feff}{}"] {
        assert!(read(body).is_err(), "{body}");
    }
    for body in [r#"{"sleeps":{}}"#, r#"{"sleeps":null}"#, r#"{"sleeps":[1],"meta":1}"#, r#"{"sleeps":[1,]}"#] {
        assert!(read(body).is_err(), "{body}");
    }
}

#[test]
fn an_array_is_read_where_the_url_names_the_type() {
    let read_at = |tail: &str| garmin().read(&request(&format!("{URL}{tail}"), r#" [{"userId":"u"},{"userId":"v"}]"#));
    for tail in ["/sleeps", "/7f3c9a54e1/sleeps"] {
        let readings = read_at(tail).expect("readable");
        assert_eq!(readings.len(), 2);
        assert!(readings.iter().all(|reading| reading.event_type == "sleeps"));
    }
    for tail in ["", "/7f3c9a54e1"] {
        assert!(read_at(tail).is_err(), "{tail}: a token is no type");
    }
    let object = garmin().read(&request(&format!("{URL}/sleeps"), r#"{"dailies":[{"userId":"u"}]}"#));
    assert_eq!(object.map(|readings| readings[0].event_type.clone()), Ok("dailies".into()), "the body knows better");
}

#[test]
fn there_is_an_end_to_the_number_of_records_over_all_types() {
    let body = |last: usize| {
        let records = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        format!(r#"{{"a":{},"b":{}}}"#, records(json::EVENTS_MAX - 1), records(last))
    };
    assert_eq!(read(body(1)).map(|readings| readings.len()), Ok(json::EVENTS_MAX));
    assert!(read(body(2)).is_err());
}

#[test]
fn a_long_name_is_not_copied_to_thousands_of_records() {
    let body = |length| format!(r#"{{"{}":[0]}}"#, "x".repeat(length));
    assert!(read(body(TYPE_MAX_BYTES)).is_ok());
    assert!(read(body(TYPE_MAX_BYTES + 1)).is_err() && read(body(0)).is_err());
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(read(format!(r#"{{"sleeps":[{{"userId":"u","x":{deep}}},{deep}]}}"#)).is_ok());
}

#[test]
fn the_reason_for_unreadability_quotes_nothing_of_the_payload() {
    for body in [r#"{"canary":"canary"}"#, r#"{"sleeps":["canary"#, r#"["canary"]"#] {
        let problem = read(body).expect_err("unreadable").to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn a_sample_with_a_key_has_it_in_its_path_and_every_kind_is_distinct_by_serial() {
    let token = Secret::new("token").expect("not blank");
    for kind in garmin().sample_kinds() {
        let keys = |serial, key| {
            let order = SampleOrder { kind: Some(kind), url: URL, key, now: OffsetDateTime::UNIX_EPOCH, serial };
            let sample = garmin().sample(&order).expect("a sample");
            assert!(!sample.body.contains(&b'\''));
            assert_eq!(sample.url, if key.is_some() { format!("{URL}/token") } else { URL.into() });
            let readings = garmin().read(&sample).expect("readable");
            readings.into_iter().map(|reading| reading.dedupe_key).collect::<Vec<_>>()
        };
        let (one, two) = (keys(1, Some(&token)), keys(u64::MAX, None));
        assert!(!one.is_empty() && one.iter().all(|key| !two.contains(key)), "{kind}");
    }
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Ok(Garmin::new(config)));
}

#[test]
fn only_what_a_user_can_do_again_has_a_key_with_a_window() {
    let window = |body: &str| read_one(body).key_window;
    let gone = r#"{"deregistrations":[{"userId":"u1","userAccessToken":"t"}]}"#;
    let permissions = r#"{"userPermissionsChange":[{"userId":"u1","summaryId":"s","permissions":[]}]}"#;
    assert_eq!([gone, permissions].map(window), [Some(REPEATABLE_WINDOW); 2]);
    assert_eq!(window(r#"{"sleeps":[{"userId":"u1","summaryId":"s"}]}"#), None);
}

use hookfast_webhook::{Verified, verify};
use http::HeaderValue;
use serde_json::Value;

use super::*;

const URL: &str = "https://hooks.example.com/webhooks/strava";
const NOW: i64 = 1_760_000_000;

fn signed_mode() -> Config {
    Config { mode: Some(Mode::Signed), subscription_id: Some(7), ..Config::default() }
}

hookfast_webhook::refusal_suite!(strava(&signed_mode()), tolerance: Duration::seconds(300));

fn strava(config: &Config) -> Strava {
    Strava::new(config).expect("good settings")
}

fn secret(text: &str) -> Secret {
    Secret::new(text).expect("not blank")
}

fn secrets(texts: &[&str]) -> Secrets {
    Secrets::new(texts.iter().map(|text| secret(text)).collect())
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOW).expect("a valid time")
}

fn unsigned(body: &str) -> Request {
    let mut request = sign(URL, &secret("s"), NOW, body.into());
    request.headers.remove(&SIGNATURE);
    request
}

fn get(query: &str) -> Request {
    Request { method: Method::GET, url: format!("{URL}?{query}"), ..unsigned("") }
}

fn judge(config: &Config, request: Request, secrets: &Secrets) -> Result<&'static str, Refusal> {
    match verify(&strava(config), request, secrets, now())? {
        Verified::Genuine(genuine) => Ok(genuine.proof().kind().as_str()),
        Verified::Handshake(_) => Ok("handshake"),
    }
}

fn shake_hands(config: &Config, query: &str, secrets: &Secrets) -> Result<Answer, Refusal> {
    match verify(&strava(config), get(query), secrets, now())? {
        Verified::Handshake(answer) => Ok(answer),
        Verified::Genuine(_) => panic!("a GET is never an event"),
    }
}

fn read(body: &str) -> Result<Reading, Unreadable> {
    strava(&Config::default()).read(&unsigned(body)).map(|mut readings| readings.remove(0))
}

fn with_token() -> Config {
    Config { verify_token: Some("tok".into()), ..Config::default() }
}

#[test]
fn the_challenge_comes_back_as_json_whatever_is_in_it() {
    let query = "hub.mode=subscribe&hub.verify_token=tok&hub.challenge=a%22%5C%0A%3Cb%3E+%C3%A9";
    let answer = shake_hands(&with_token(), query, &Secrets::default()).expect("our token");
    assert_eq!((answer.status.as_u16(), answer.content_type.as_deref()), (200, Some("application/json")));
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(body, serde_json::json!({ "hub.challenge": "a\"\\\n<b> é" }));
}

#[test]
fn a_handshake_with_another_token_or_none_is_refused() {
    for query in [
        "hub.mode=subscribe&hub.challenge=c&hub.verify_token=other",
        "hub.mode=subscribe&hub.challenge=c&hub.verify_token=",
        "hub.mode=subscribe&hub.challenge=c&hub.verify_token=tok&hub.verify_token=tok",
        "hub.mode=subscribe&hub.challenge=c&hub.verify_token=TOK",
        "hub.mode=subscribe&hub.challenge=c&hub_verify_token=tok",
        "hub.mode=subscribe&hub.challenge=c",
        "",
    ] {
        let verdict = shake_hands(&with_token(), query, &secrets(&["other"]));
        assert_eq!(verdict, Err(Refusal::WrongVerifyToken), "{query}");
    }
}

#[test]
fn a_handshake_without_mode_or_challenge_is_refused() {
    for (query, missing) in [
        ("hub.verify_token=tok&hub.challenge=c", "hub.mode=subscribe"),
        ("hub.verify_token=tok&hub.challenge=c&hub.mode=unsubscribe", "hub.mode=subscribe"),
        ("hub.verify_token=tok&hub.mode=subscribe", "hub.challenge"),
        ("hub.verify_token=tok&hub.mode=subscribe&hub.challenge=", "hub.challenge"),
        ("hub.verify_token=tok&hub.mode=subscribe&hub.challenge=a&hub.challenge=b", "hub.challenge"),
    ] {
        let verdict = shake_hands(&with_token(), query, &Secrets::default());
        assert_eq!(verdict, Err(Refusal::Missing(missing.into())), "{query}");
    }
}

#[test]
fn without_a_verify_token_any_secret_is_one() {
    let query = "hub.mode=subscribe&hub.challenge=c&hub.verify_token=new";
    assert!(shake_hands(&Config::default(), query, &secrets(&["old", "new"])).is_ok());
    for held in [secrets(&["old"]), Secrets::default()] {
        assert_eq!(shake_hands(&Config::default(), query, &held), Err(Refusal::WrongVerifyToken));
    }
}

#[test]
fn a_blank_verify_token_is_a_wrong_setting() {
    for blank in ["", " "] {
        assert!(Strava::new(&Config { verify_token: Some(blank.into()), ..Config::default() }).is_err());
    }
    let shown = format!("{:?} {:?}", with_token(), strava(&with_token()));
    assert!(!shown.contains("\"tok\"") && !shown.contains("tok)"), "{shown}");
}

#[test]
fn the_settings_and_the_secrets_decide_whether_a_signature_is_needed() {
    let signed = || sign(URL, &secret("s"), NOW, "{}".into());
    let (none, held) = (Secrets::default(), secrets(&["s"]));
    let mode = |mode| Config { mode, ..Config::default() };

    assert_eq!(judge(&mode(None), signed(), &none), Ok("unsigned"), "the request does not decide");
    assert_eq!(judge(&mode(None), signed(), &held), Ok("signature"));
    assert_eq!(judge(&mode(None), unsigned("{}"), &held), Err(Refusal::MissingHeader(SIGNATURE.clone())));
    assert_eq!(judge(&mode(Some(Mode::Unsigned)), unsigned("{}"), &held), Ok("unsigned"));
    assert_eq!(judge(&mode(Some(Mode::Signed)), unsigned("{}"), &held), Err(Refusal::MissingHeader(SIGNATURE.clone())));
    assert_eq!(judge(&mode(Some(Mode::Signed)), signed(), &none), Err(Refusal::NoSecret));

    assert!(strava(&mode(Some(Mode::Signed))).needs_secret());
    assert!(!strava(&mode(Some(Mode::Unsigned))).needs_secret() && !strava(&mode(None)).needs_secret());
}

#[test]
fn a_configured_subscription_must_be_the_one_in_the_body() {
    let config = Config { subscription_id: Some(7), ..Config::default() };
    let verdict = |body: &str| judge(&config, unsigned(body), &Secrets::default());
    assert_eq!(verdict(r#"{"subscription_id":7}"#), Ok("unsigned"));
    assert_eq!(verdict(r#"{"subscription_id":"7"}"#), Ok("unsigned"));
    for other in [r#"{"subscription_id":8}"#, r#"{"subscription_id":7.0}"#, r#"{"subscription_id":"07"}"#] {
        assert_eq!(verdict(other), Err(Refusal::NotOurs("subscription_id")), "{other}");
    }
    let doubled = r#"{"subscription_id":7,"subscription_id":7}"#;
    for missing in ["", "hello", "{}", "[7]", r#"{"subscription_id":null}"#, r#"{"subscription_id":7"#, doubled] {
        assert_eq!(verdict(missing), Err(Refusal::Missing("subscription_id".into())), "{missing}");
    }
}

#[test]
fn a_signature_does_not_make_another_subscription_ours() {
    let request = sign(URL, &secret("s"), NOW, r#"{"subscription_id":8}"#.into());
    assert_eq!(judge(&signed_mode(), request, &secrets(&["s"])), Err(Refusal::NotOurs("subscription_id")));
}

#[test]
fn any_of_several_signatures_is_enough() {
    let mut request = sign(URL, &secret("s"), NOW, "{}".into());
    let value = request.headers[&SIGNATURE].to_str().expect("text").replace("v1=", "v1=00,v1=zz,v1=");
    request.headers.insert(SIGNATURE.clone(), HeaderValue::try_from(value).expect("legal"));
    assert_eq!(judge(&Config::default(), request, &secrets(&["s"])), Ok("signature"));
}

#[test]
fn a_timestamp_far_off_either_way_is_judged_without_overflow() {
    let judge =
        |timestamp| judge(&Config::default(), sign(URL, &secret("s"), timestamp, "{}".into()), &secrets(&["s"]));
    assert!(matches!(judge(0), Err(Refusal::Stale { .. })));
    assert!(matches!(judge(NOW - 301), Err(Refusal::Stale { .. })));
    assert!(judge(NOW - 300).is_ok() && judge(NOW + 301).is_ok() && judge(i64::MAX).is_ok());
    assert!(matches!(judge(-1), Err(Refusal::MalformedHeader { .. })));
}

#[test]
fn the_same_event_has_the_same_key_however_it_is_written() {
    let key = |body: &str| read(body).expect("readable").dedupe_key;
    let first = r#"{"object_type":"activity","aspect_type":"update","object_id":5,"event_time":9,"subscription_id":7,"updates":{"title":"à","type":"Ride"}}"#;
    let same = r#"{"updates": {"type":"Ride", "title":"\u00e0"}, "subscription_id":7,"event_time":9,"object_id":5,"aspect_type":"update","object_type":"activity","new":1}"#;
    assert_eq!(key(first), key(same));
    for (from, to) in [
        (r#""activity""#, r#""athlete""#),
        (r#""update""#, r#""create""#),
        (r#""object_id":5"#, r#""object_id":6"#),
        (r#""event_time":9"#, r#""event_time":10"#),
        (r#""subscription_id":7"#, r#""subscription_id":8"#),
        ("Ride", "Run"),
        (r#","type":"Ride""#, ""),
    ] {
        let other = first.replace(from, to);
        assert_ne!(other, first);
        assert_ne!(key(first), key(&other), "{to}");
    }
}

#[test]
fn only_an_athlete_can_revoke_access() {
    let event_type = |object: &str, aspect: &str, updates: &str| {
        let body = format!(
            r#"{{"object_type":"{object}","aspect_type":"{aspect}","object_id":5,"event_time":9,"updates":{updates}}}"#
        );
        read(&body).expect("readable").event_type
    };
    assert_eq!(event_type("athlete", "update", r#"{"authorized":"false"}"#), "athlete.deauthorize");
    assert_eq!(event_type("athlete", "update", r#"{"authorized":false}"#), "athlete.deauthorize");
    assert_eq!(event_type("athlete", "update", r#"{"authorized":"true"}"#), "athlete.update");
    assert_eq!(event_type("activity", "update", r#"{"authorized":"false"}"#), "activity.update");
    assert_eq!(event_type("athlete", "delete", r#"{"authorized":"false"}"#), "athlete.delete");
    assert_eq!(event_type("route", "share", "[1]"), "route.share");
}

#[test]
fn fields_of_a_new_form_do_not_lose_the_event() {
    let body = r#"{"object_type":"activity","aspect_type":"create","object_id":"x5","event_time":"soon","owner_id":{},"updates":7}"#;
    let reading = read(body).expect("readable");
    assert_eq!((reading.object_id.as_deref(), reading.account, reading.occurred_at), (Some("x5"), None, None));
    assert_eq!(reading.body, body);
}

#[test]
fn what_cannot_be_told_apart_from_another_event_is_kept_whole() {
    let whole = r#"{"object_type":"activity","aspect_type":"create","object_id":5,"event_time":9}"#;
    assert!(read(whole).is_ok());
    for spoiled in [
        whole.replace("object_type", "x"),
        whole.replace("aspect_type", "x"),
        whole.replace("object_id", "x"),
        whole.replace("event_time", "x"),
        whole.replace("create", ""),
        whole.replace("\"activity\"", "1"),
        whole.replace('{', r#"{"object_id":6,"#),
        "hello".into(),
        "[]".into(),
        String::new(),
    ] {
        assert!(read(&spoiled).is_err(), "{spoiled}");
    }
    let problem = read(r#"{"object_type":{"canary":1}}"#).expect_err("unreadable").to_string();
    assert!(!problem.contains("canary"), "{problem}");
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let fields = r#""object_type":"activity","aspect_type":"create","object_id":5,"event_time":9"#;
    for body in [format!(r#"{{{fields},"updates":{{"x":{deep}}}}}"#), format!(r#"{{{fields},"updates":{deep}}}"#)] {
        assert!(read(&body).is_ok());
    }
}

#[test]
fn samples_are_signed_where_the_mode_does_not_forbid_it() {
    let key = secret("s");
    let sample = |mode, key, kind| {
        let order = SampleOrder { kind: Some(kind), url: URL, key, now: now(), serial: 1 };
        strava(&Config { mode, ..Config::default() }).sample(&order)
    };
    let is_signed =
        |mode, key| sample(mode, key, "activity.create").map(|sample| sample.headers.contains_key(&SIGNATURE));
    assert_eq!(is_signed(None, Some(&key)), Ok(true));
    assert_eq!(is_signed(Some(Mode::Signed), Some(&key)), Ok(true));
    assert_eq!(is_signed(Some(Mode::Unsigned), Some(&key)), Ok(false));
    assert_eq!(is_signed(None, None), Ok(false));
    assert!(is_signed(Some(Mode::Signed), None).is_err());
    assert!(sample(None, None, "challenge").is_err(), "a handshake needs a token");
}

#[test]
fn every_kind_of_sample_is_distinct_by_serial_and_taken_in_every_mode() {
    let (key, held) = (secret("s+ &"), secrets(&["s+ &"]));
    for mode in [None, Some(Mode::Signed), Some(Mode::Unsigned)] {
        let config = Config { mode, subscription_id: Some(7), ..Config::default() };
        for kind in strava(&config).sample_kinds() {
            let sample = |serial| {
                let order = SampleOrder { kind: Some(kind), url: URL, key: Some(&key), now: now(), serial };
                strava(&config).sample(&order).expect("a sample")
            };
            for serial in [1, u64::MAX] {
                assert!(judge(&config, sample(serial), &held).is_ok(), "{kind}");
                assert!(!sample(serial).body.contains(&b'\''));
            }
            if kind == "challenge" {
                assert_ne!(sample(1).url, sample(2).url);
            } else {
                let reading = |serial| strava(&config).read(&sample(serial)).expect("readable").remove(0);
                assert_eq!(reading(1).event_type, kind);
                assert_ne!(reading(1).dedupe_key, reading(2).dedupe_key, "{kind}");
            }
        }
    }
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Strava::new(config));
}

use hookfast_webhook::{Verified, json, verify};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

mod reading;

const URL: &str = "https://hooks.example.com/webhooks/whatsapp";

hookfast_webhook::refusal_suite!(provider());

fn provider() -> WhatsApp {
    WhatsApp::new(&Config::default()).expect("nothing is set")
}

fn with_token(token: &str) -> Result<WhatsApp, String> {
    WhatsApp::new(&Config { verify_token: Some(token.into()) })
}

fn secrets(texts: &[&str]) -> Secrets {
    Secrets::new(texts.iter().map(|text| Secret::new(*text).expect("not blank")).collect())
}

fn get(query: &str) -> Request {
    let url = format!("{URL}?{query}");
    Request { method: Method::GET, url, headers: HeaderMap::new(), body: Default::default() }
}

fn handshake(provider: &WhatsApp, secrets: &Secrets, query: &str) -> Result<Answer, Refusal> {
    match verify(provider, get(query), secrets, OffsetDateTime::UNIX_EPOCH)? {
        Verified::Handshake(answer) => Ok(answer),
        Verified::Genuine(_) => panic!("a GET is never an event"),
    }
}

#[test]
fn the_challenge_comes_back_bare() {
    let provider = with_token("a b+c").expect("a token");
    let answer =
        handshake(&provider, &secrets(&[]), "hub.verify_token=a+b%2Bc&hub.challenge=115%20x&hub.mode=subscribe");
    assert_eq!(answer, Ok(Answer::ok("text/plain", "115 x")));
}

#[test]
fn without_a_token_any_secret_opens_the_handshake_and_with_one_none_does() {
    let held = secrets(&["old", "new"]);
    let query = |token: &str| format!("hub.mode=subscribe&hub.challenge=1&hub.verify_token={token}");
    for token in ["old", "new"] {
        assert!(handshake(&provider(), &held, &query(token)).is_ok(), "{token}");
        let verdict = handshake(&with_token("mine").expect("a token"), &held, &query(token));
        assert_eq!(verdict, Err(Refusal::WrongVerifyToken), "{token}");
    }
    assert_eq!(handshake(&provider(), &secrets(&[]), &query("")), Err(Refusal::WrongVerifyToken));
}

#[test]
fn a_handshake_that_is_not_for_us_gets_nothing_back() {
    let provider = with_token("mine").expect("a token");
    for query in [
        "",
        "hub.mode=subscribe&hub.challenge=1",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=Mine",
        "hub.mode=subscribe&hub.challenge=1&hub.verify_token=mine&hub.verify_token=mine",
        "hub.mode=subscribe&hub.mode=subscribe&hub.challenge=1&hub.verify_token=mine",
        "hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=mine",
        "hub.challenge=1&hub.verify_token=mine",
    ] {
        assert_eq!(handshake(&provider, &secrets(&["s"]), query), Err(Refusal::WrongVerifyToken), "{query}");
    }
}

#[test]
fn only_a_single_short_and_printable_challenge_is_echoed() {
    let provider = with_token("mine").expect("a token");
    let judge = |challenges: &str| {
        handshake(&provider, &secrets(&[]), &format!("hub.mode=subscribe&hub.verify_token=mine{challenges}"))
    };
    assert!(judge(&format!("&hub.challenge={}", "1".repeat(1024))).is_ok());
    let long = format!("&hub.challenge={}", "1".repeat(1025));
    for bad in [
        "",
        "&hub.challenge=",
        "&hub.challenge=1&hub.challenge=1",
        "&hub.challenge=1%0d%0a",
        "&hub.challenge=%00",
        &long,
    ] {
        assert_eq!(judge(bad), Err(Refusal::Missing("hub.challenge".into())), "{bad}");
    }
}

#[test]
fn a_handshake_by_post_needs_a_signature_like_any_other_request() {
    let request = Request { method: Method::POST, ..get("hub.mode=subscribe&hub.challenge=1&hub.verify_token=mine") };
    let verdict = verify(&with_token("mine").expect("a token"), request, &secrets(&["s"]), OffsetDateTime::UNIX_EPOCH);
    assert_eq!(verdict.err(), Some(Refusal::MissingHeader(SIGNATURE.clone())));
}

#[test]
fn the_sample_of_a_challenge_presents_the_token_of_the_source() {
    let key = Secret::new("k&=%").expect("not blank");
    for (provider, held) in [(provider(), secrets(&["k&=%"])), (with_token("t&=%").expect("a token"), secrets(&[]))] {
        let order = SampleOrder {
            kind: Some("challenge"),
            url: "https://hooks.example.com/x?y=1",
            key: Some(&key),
            now: OffsetDateTime::UNIX_EPOCH,
            serial: 42,
        };
        let request = provider.sample(&order).expect("there is one");
        let verdict = verify(&provider, request, &held, order.now);
        assert!(matches!(verdict, Ok(Verified::Handshake(answer)) if answer.body == "42"));
    }
}

#[test]
fn sha_1_and_other_ways_to_write_a_signature_are_refused() {
    let secret = Secret::new("s").expect("not blank");
    let request = sign(URL, &secret, "{}".into());
    let good = request.headers[&SIGNATURE].to_str().expect("text").to_owned();
    let judge = |name: &'static str, value: &str| {
        let mut request = request.clone();
        request.headers.remove(&SIGNATURE);
        request.headers.insert(name, HeaderValue::try_from(value).expect("legal"));
        verify(&provider(), request, &secrets(&["s"]), OffsetDateTime::UNIX_EPOCH).err()
    };
    assert_eq!(judge("x-hub-signature-256", &good), None);
    // The older header is ignored, whatever it contains.
    for value in ["sha1=33d4bea3f4f2a0dd7d9ae9fa6ba6b6bd0e2b2c0f", &good] {
        assert_eq!(judge("x-hub-signature", value), Some(Refusal::MissingHeader(SIGNATURE.clone())));
    }
    let hex = good.trim_start_matches("sha256=");
    for bad in [
        hex.into(),
        format!("sha256={}", hex.to_uppercase()),
        format!("SHA256={hex}"),
        format!("sha256= {hex}"),
        format!("sha1={hex}"),
        format!("sha256=sha256={hex}"),
        format!("{good},{good}"),
        "sha256=".into(),
    ] {
        let refusal = judge("x-hub-signature-256", &bad);
        assert!(matches!(refusal, Some(Refusal::MalformedHeader { .. })), "{bad}");
    }
}

#[test]
fn a_blank_token_is_a_mistake_and_a_token_is_never_printed() {
    assert!(with_token(" ").is_err_and(|problem| problem.contains("`verify_token`")));
    let config = Config { verify_token: Some("canary".into()) };
    assert!(!format!("{config:?} {:?}", WhatsApp::new(&config)).contains("canary"));
    let unknown = serde_json::from_str::<Config>(r#"{"verify_tokn":"x"}"#);
    assert!(unknown.is_err());
}

#[test]
fn samples_can_stand_in_a_shell_line() {
    let key = Secret::new("key").expect("not blank");
    for kind in sample::KINDS {
        let order =
            SampleOrder { kind: Some(kind), url: URL, key: Some(&key), now: OffsetDateTime::UNIX_EPOCH, serial: 1 };
        let request = provider().sample(&order).expect("it is one of the kinds");
        assert!(!request.body.contains(&b'\'') && !request.url.contains('\''), "{kind}");
    }
}

proptest! {
    #[test]
    fn no_request_makes_it_panic(
        is_get in any::<bool>(),
        query in "[ -~é]{0,80}",
        header in proptest::option::of(proptest::collection::vec(0x20..=0xff_u8, 0..90)),
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut request = get(&query);
        request.method = if is_get { Method::GET } else { Method::POST };
        request.body = body.into();
        if let Some(value) = header.and_then(|value| HeaderValue::from_bytes(&value).ok()) {
            request.headers.insert(SIGNATURE.clone(), value);
        }
        let _ = provider().read(&request);
        prop_assert!(verify(&provider(), request, &secrets(&["secret"]), OffsetDateTime::UNIX_EPOCH).is_err());
    }
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| WhatsApp::new(config));
}

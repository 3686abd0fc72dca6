//! Tests of the engine where the files of the catalog allow several ways.

use bytes::Bytes;
use hookfast_webhook::signature::{Algorithm, Encoding, KeyForm, Scheme};
use hookfast_webhook::{Answer, Priority, ProofKind, Proved, Provider, Refusal, Request, Secrets, Verified, verify};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use time::Duration;

use super::{described, embedded, now, sample, secret, secrets, with};
use crate::{CatalogProvider, Settings};

fn request(headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Request {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::try_from(*value).expect("a value"));
    }
    Request {
        method: Method::POST,
        url: "https://hooks.example.com/webhooks/test".into(),
        headers: map,
        body: body.into(),
    }
}

fn judge(provider: &CatalogProvider, request: Request, secrets: &Secrets) -> Result<Verified, Refusal> {
    verify(provider, request, secrets, now())
}

fn answer(verified: Result<Verified, Refusal>) -> Answer {
    match verified {
        Ok(Verified::Handshake(answer)) => answer,
        other => panic!("this is no handshake: {other:?}"),
    }
}

fn set(request: &mut Request, name: &'static str, value: &str) {
    request.headers.insert(name, HeaderValue::try_from(value).expect("a value"));
}

/// A request of Standard Webhooks with one signature of `version`.
fn standard(scheme: &Scheme, key: &str, id: &str, version: &str) -> Request {
    let body = br#"{"type":"t"}"#;
    let parts: [&[u8]; 3] = [id.as_bytes(), b".1760000000.", body];
    let signature = Encoding::Base64.encode(&scheme.sign(&secret(key), &parts).expect("a key"));
    let signature = format!("{version},{signature}");
    request(&[("webhook-id", id), ("webhook-timestamp", "1760000000"), ("webhook-signature", &signature)], &body[..])
}

const V1: Scheme = Scheme { algorithm: Algorithm::HmacSha256, key: KeyForm::BASE64 };
const V1A: Scheme = Scheme { algorithm: Algorithm::Ed25519, key: KeyForm::BASE64 };

#[test]
fn standard_webhooks_may_be_signed_with_ed25519() {
    let provider = embedded("standardwebhooks");
    let keys = V1A.key_pair(&[3; 32]);
    let public = format!("whpk_{}", keys.verifying.expose());
    assert_eq!(provider.check_secret(&secret(&public)), Ok(()));
    let signed = || standard(&V1A, keys.signing.expose(), "msg_1", "v1a");
    assert!(judge(&provider, signed(), &secrets(&public)).is_ok());
    let both = Secrets::new(vec![secret("whsec_AQID"), secret(&public)]);
    let genuine = judge(&provider, signed(), &both).expect("one matches").genuine().expect("no handshake");
    assert_eq!(genuine.proof().secret_index(), Some(1));
    assert!(judge(&provider, signed(), &secrets(keys.verifying.expose())).is_err(), "it needs its beginning");
}

#[test]
fn a_public_key_signs_nothing() {
    let public = V1A.key_pair(&[3; 32]).verifying;
    let forged = standard(&V1, public.expose(), "msg_1", "v1");
    let held = secrets(&format!("whpk_{}", public.expose()));
    assert_eq!(judge(&embedded("standardwebhooks"), forged, &held).err(), Some(Refusal::WrongSignature));
}

#[test]
fn a_secret_that_is_no_key_is_told_what_a_key_is() {
    let problem = embedded("standardwebhooks").check_secret(&secret("whpk_?")).expect_err("no key");
    let forms = "with or without `whsec_` before it, or the public key as base64 after `whpk_`";
    assert!(problem.contains(forms), "{problem}");
    assert!(
        embedded("discord").check_secret(&secret("00")).is_err()
            && embedded("sendgrid").check_secret(&secret("AQID")).is_err()
    );
}

#[test]
fn a_value_that_holds_its_own_end_is_refused() {
    let provider = embedded("standardwebhooks");
    assert!(judge(&provider, standard(&V1, "AQID", "msg_1", "v1"), &secrets("AQID")).is_ok());
    let verdict = judge(&provider, standard(&V1, "AQID", "msg.1", "v1"), &secrets("AQID"));
    assert!(matches!(verdict, Err(Refusal::MalformedHeader { .. })), "{verdict:?}");
}

#[test]
fn a_separator_of_two_characters_may_not_begin_inside_the_value() {
    let file = r#"
name = "acme"
title = "Acme"
documentation = "https://acme.example"
setup = ""
event = { type = "t", dedupe = "{hash}" }
sample = [{ kind = "a", headers = { id = "1", end = "2" }, body = "b" }]

[[signature]]
from = "header:sig"
encoding = "hex"
algorithm = "hmac-sha256"
signed = "{header:id}::{body}::{header:end}"
"#;
    let provider = described(file);
    let key = secret("k");
    let judge = |id: &str, end: &str| {
        let body = "a:::b";
        let text = format!("{id}::{body}::{end}");
        let signature = Encoding::Hex.encode(&Scheme::HMAC_SHA256.sign(&key, &[text.as_bytes()]).expect("a key"));
        judge(&provider, request(&[("id", id), ("end", end), ("sig", &signature)], body), &secrets("k"))
    };
    assert!(judge("1", "2").is_ok() && judge(":1", "2:").is_ok());
    for (id, end) in [("1:", "2"), ("1", ":2"), ("1::2", "3"), ("1", "2::3")] {
        assert!(matches!(judge(id, end), Err(Refusal::MalformedHeader { .. })), "{id} {end}");
    }
}

/// Each request moves a byte from one part to the next, so that the signed text stays the same.
#[test]
fn nothing_can_be_moved_between_a_time_and_the_body_beside_it() {
    for (name, header, time_first) in [
        ("discord", "x-signature-timestamp", true),
        ("sendgrid", "x-twilio-email-event-webhook-timestamp", true),
        ("hubspot", "x-hubspot-request-timestamp", false),
    ] {
        let provider = embedded(name);
        let keys = provider.key_pair(&[1; 32]);
        let held = Secrets::new(vec![keys.verifying]);
        let good = sample(&provider, None, &keys.signing);
        let (time, body) =
            (good.headers[header].to_str().expect("text"), std::str::from_utf8(&good.body).expect("text"));
        assert!(judge(&provider, good.clone(), &held).is_ok(), "{name}");
        let moved = if time_first {
            let (short, digit) = time.split_at(time.len() - 1);
            [(short.to_owned(), format!("{digit}{body}")), (format!("{time}{}", &body[..1]), body[1..].to_owned())]
        } else {
            let (digit, short) = time.split_at(1);
            let (rest, last) = body.split_at(body.len() - 1);
            [(short.to_owned(), format!("{body}{digit}")), (format!("{last}{time}"), rest.to_owned())]
        };
        for (time, body) in moved {
            let mut spoiled = Request { body: body.into(), ..good.clone() };
            set(&mut spoiled, header, &time);
            let verdict = judge(&provider, spoiled, &held);
            assert!(matches!(verdict, Err(Refusal::MalformedHeader { .. })), "{name}: {verdict:?}");
        }
    }
}

#[test]
fn mailgun_signs_a_time_and_a_token_and_nothing_else() {
    let provider = embedded("mailgun");
    let signature = Scheme::HMAC_SHA256.sign(&secret("k"), &[b"17600000007abc"]).expect("a key");
    let signature = Encoding::Hex.encode(&signature);
    let mail = |time: &str, token: &str, id: &str| {
        let signature = format!(r#"{{"timestamp":"{time}","token":"{token}","signature":"{signature}"}}"#);
        let body = format!(r#"{{"signature":{signature},"event-data":{{"id":"{id}","event":"opened"}}}}"#);
        judge(&provider, request(&[], body), &secrets("k"))
    };
    for id in ["a", "b"] {
        let genuine = mail("1760000000", "7abc", id).expect("the time is signed").genuine().expect("no handshake");
        assert_eq!(genuine.proof().kind(), ProofKind::PartialSignature);
    }
    assert!(matches!(mail("17600000007", "abc", "a"), Err(Refusal::Stale { .. })));
    assert!(matches!(mail("176000000", "07abc", "a"), Err(Refusal::Stale { .. })));
    assert_eq!(mail("1760000000", "8abc", "a").err(), Some(Refusal::WrongSignature));
}

#[test]
fn more_signatures_than_a_sender_has_are_refused() {
    let provider = embedded("standardwebhooks");
    let good = standard(&V1, "AQID", "msg_1", "v1");
    let signature = good.headers["webhook-signature"].to_str().expect("text").to_owned();
    for (others, taken) in [(15, true), (16, false)] {
        let mut many = good.clone();
        set(&mut many, "webhook-signature", &format!("{}{signature}", "v1,AA== ".repeat(others)));
        assert_eq!(judge(&provider, many, &secrets("AQID")).is_ok(), taken, "{others}");
    }
}

#[test]
fn what_is_no_signature_does_not_hide_one() {
    let mut mixed = standard(&V1, "AQID", "msg_1", "v1");
    let signature = mixed.headers["webhook-signature"].to_str().expect("text").to_owned();
    set(&mut mixed, "webhook-signature", &format!("v1,? v9 v2,AA== , {signature}"));
    assert!(judge(&embedded("standardwebhooks"), mixed, &secrets("AQID")).is_ok());
}

#[test]
fn a_doubled_time_in_a_header_or_in_json_is_refused() {
    let paddle = embedded("paddle");
    let keys = paddle.key_pair(&[1; 32]);
    let mut doubled = sample(&paddle, None, &keys.signing);
    let value = doubled.headers["paddle-signature"].to_str().expect("text").to_owned();
    set(&mut doubled, "paddle-signature", &format!("ts=1760000000;{value}"));
    let verdict = judge(&paddle, doubled, &Secrets::new(vec![keys.verifying]));
    assert_eq!(verdict.err(), Some(Refusal::Missing("entry:ts".into())));

    let body = r#"{"type":"Issue","webhookTimestamp":1760000000000,"webhookTimestamp":1}"#;
    let signature = Encoding::Hex.encode(&Scheme::HMAC_SHA256.sign(&secret("k"), &[body.as_bytes()]).expect("a key"));
    let verdict = judge(&embedded("linear"), request(&[("linear-signature", &signature)], body), &secrets("k"));
    assert_eq!(verdict.err(), Some(Refusal::Missing("json:webhookTimestamp".into())));
}

#[test]
fn a_form_is_not_looked_for_in_json() {
    let read = |body: &'static str| embedded("slack").read(&request(&[], body)).map(|mut all| all.remove(0).event_type);
    assert_eq!(read("a=1&command=%2Fship"), Ok("/ship".into()));
    assert_eq!(read("payload=%7B%22type%22%3A%22shortcut%22%7D"), Ok("shortcut".into()));
    assert!(read(r#"{"text":"a&command=ship&b"}"#).is_err());
    assert!(read("a=1&command=").is_err() && read("command=a&command=b").is_err());
}

#[test]
fn a_challenge_is_answered_only_when_it_is_signed() {
    for name in ["discord", "slack", "zoom"] {
        let provider = embedded(name);
        let keys = provider.key_pair(&[1; 32]);
        let held = Secrets::new(vec![keys.verifying]);
        let challenge = sample(&provider, Some("challenge"), &keys.signing);
        assert!(answer(judge(&provider, challenge.clone(), &held)).status.is_success(), "{name}");
        let other = Secrets::new(vec![provider.key_pair(&[2; 32]).verifying]);
        assert_eq!(judge(&provider, challenge, &other).err(), Some(Refusal::WrongSignature), "{name}");
    }
}

#[test]
fn discord_is_told_to_wait_and_autocomplete_gets_no_choices() {
    let provider = embedded("discord");
    let keys = provider.key_pair(&[1; 32]);
    let held = Secrets::new(vec![keys.verifying]);
    for kind in ["command", "component", "modal"] {
        let genuine =
            judge(&provider, sample(&provider, Some(kind), &keys.signing), &held).ok().and_then(Verified::genuine);
        let answer = genuine.expect("an event").answer(&provider);
        assert_eq!(answer, Answer::ok("application/json", r#"{"type":5}"#), "{kind}");
    }
    let autocomplete = answer(judge(&provider, sample(&provider, Some("autocomplete"), &keys.signing), &held));
    assert_eq!(autocomplete, Answer::ok("application/json", r#"{"data":{"choices":[]},"type":8}"#));
    // A webhook event, where type 1 does not mean ping, is recorded.
    let event = request(&[], r#"{"version":1,"application_id":"1","type":1,"event":{"type":"ENTITLEMENT_CREATE"}}"#);
    assert_eq!(provider.handshake(&provider.view(&event, &event.body), Some(&secret("k"))), Ok(None));
}

#[test]
fn an_overlong_echo_is_refused() {
    let provider = embedded("slack");
    let judge = |length: usize| {
        let body = format!(r#"{{"type":"url_verification","challenge":"{}"}}"#, "c".repeat(length));
        let text = format!("v0:1760000000:{body}");
        let signature =
            Encoding::Hex.encode(&Scheme::HMAC_SHA256.sign(&secret("k"), &[text.as_bytes()]).expect("a key"));
        let headers = [("x-slack-request-timestamp", "1760000000"), ("x-slack-signature", &format!("v0={signature}"))];
        judge(&provider, request(&headers, body), &secrets("k"))
    };
    assert_eq!(answer(judge(1024)).body.len(), 1024);
    assert!(matches!(judge(1025), Err(Refusal::Missing(_))));
}

#[test]
fn the_signed_url_is_the_configured_one_and_the_query_is_the_real_one() {
    let url = "https://shop.example/square?a=1";
    let provider = with("square", Settings { notification_url: Some(url.into()), ..Settings::default() });
    let body = r#"{"event_id":"e","type":"t"}"#;
    let sign = |url: &str| {
        let signature = Scheme::HMAC_SHA256.sign(&secret("k"), &[url.as_bytes(), body.as_bytes()]).expect("a key");
        request(&[("x-square-hmacsha256-signature", &Encoding::Base64.encode(&signature))], body)
    };
    assert!(judge(&provider, sign(url), &secrets("k")).is_ok());
    let ours = sign("https://hooks.example.com/webhooks/test");
    assert_eq!(judge(&provider, ours.clone(), &secrets("k")).err(), Some(Refusal::WrongSignature));
    assert!(judge(&embedded("square"), ours.clone(), &secrets("k")).is_ok());
    let found = provider.view(&ours, &ours.body).find(&"query:a".parse().expect("a place")).is_none();
    assert!(found, "it stands only in the configured URL");
}

#[test]
fn a_handshake_by_get_proves_nothing() {
    let provider = embedded("dropbox");
    let get = |query: &str| {
        let url = format!("https://hooks.example.com/webhooks/test{query}");
        provider.prove(&Request { method: Method::GET, url, ..request(&[], "") }, &secrets("k"), now())
    };
    assert!(matches!(get("?challenge=abc"), Ok(Proved::Handshake(answer)) if answer.body == "abc"));
    for query in ["", "?challenge=", "?challenge=a&challenge=b", "#?challenge=a"] {
        assert!(matches!(get(query), Err(Refusal::Missing(_))), "{query}");
    }
}

#[test]
fn the_future_is_judged_like_the_past() {
    for name in ["slack", "standardwebhooks", "paddle", "linear", "mailgun"] {
        let provider = embedded(name);
        let keys = provider.key_pair(&[1; 32]);
        let held = Secrets::new(vec![keys.verifying]);
        let tolerance = provider.description.freshness.as_ref().and_then(|freshness| freshness.tolerance_seconds);
        let limit = Duration::seconds(tolerance.expect("it has one").into());
        let judge = |now| verify(&provider, sample(&provider, None, &keys.signing), &held, now);
        assert!(judge(now() - limit).is_ok(), "{name}");
        assert!(matches!(judge(now() - limit - Duration::SECOND), Err(Refusal::Stale { .. })), "{name}");
    }
}

#[test]
fn a_file_says_how_urgent_events_are() {
    let shopify = embedded("shopify");
    let priority =
        |kind| shopify.read(&sample(&shopify, Some(kind), &secret("s"))).expect("it can be read")[0].priority;
    assert_eq!((priority("order"), priority("uninstalled")), (Priority::High, Priority::High));
    assert_eq!(priority("event"), Priority::Normal);
}

#[test]
fn a_signature_that_begins_otherwise_is_refused_with_what_was_expected() {
    let github = embedded("github");
    let mut request = sample(&github, None, &secret("s"));
    set(&mut request, "x-hub-signature-256", "sha1=00ff");
    let refusal = judge(&github, request, &secrets("s")).expect_err("it is not genuine");
    assert!(refusal.to_string().ends_with("it does not begin with `sha256=`"), "{refusal}");
}

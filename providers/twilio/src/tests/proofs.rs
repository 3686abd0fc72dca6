use hookfast_webhook::refusal_suite;
use hookfast_webhook::signature::sha256_hex;
use http::header::CONTENT_TYPE;

use super::*;
use crate::content::with_body_hash;
use crate::proof::{SETTINGS, SIGNATURE};

// The same parameters can be escaped in several ways, so the body of a form has a check of its own below.
hookfast_webhook::refusal_suite!(provider(), unprotected_body);

#[test]
fn a_longer_or_shorter_body_is_refused() {
    refusal_suite::a_longer_or_shorter_body_is_refused(&provider());
}

/// Every request that differs from `request` in one bit of the body.
fn flipped(request: &Request) -> impl Iterator<Item = Request> {
    (0..request.body.len() * 8).map(|bit| {
        let mut body = request.body.to_vec();
        body[bit / 8] ^= 1 << (bit % 8);
        Request { body: body.into(), ..request.clone() }
    })
}

fn pairs_of(form: &[u8]) -> Vec<(String, String)> {
    let parameters = Parameters::parse(form).expect("few parameters");
    parameters.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_flipped_bit_in_a_form_is_refused_or_changes_no_parameter() {
    let key = secret();
    for kind in ["message", "call", "message-status", "whatsapp"] {
        let request = provider().sample(&order(kind, &key)).expect("a kind");
        let pairs = pairs_of(&request.body);
        for spoiled in flipped(&request) {
            let same = pairs_of(&spoiled.body) == pairs;
            assert_eq!(judge(spoiled.clone()).is_ok(), same, "{:?}", spoiled.body);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_hashed_body_is_refused() {
    let request = provider().sample(&order("event-streams", &secret())).expect("a kind");
    for spoiled in flipped(&request) {
        assert!(matches!(judge(spoiled), Err(Refusal::UnprotectedBody(_))));
    }
}

#[test]
fn a_json_body_without_its_hash_is_refused_although_the_url_is_signed() {
    let mut request = signed(URL, "");
    request.body = r#"[{"id":"EZ1","type":"t"}]"#.into();
    for content_type in ["application/json", "application/x-www-form-urlencoded", "text/plain"] {
        set(&mut request, CONTENT_TYPE, content_type);
        assert!(matches!(judge(request.clone()), Err(Refusal::UnprotectedBody(_))), "{content_type}");
    }
}

#[test]
fn content_type_and_method_change_nothing() {
    let genuine = signed(URL, "MessageSid=SM1&Body=x");
    let expected = judge(genuine.clone()).expect("genuine");
    for content_type in ["application/json", "", "multipart/form-data; boundary=x"] {
        let mut changed = genuine.clone();
        set(&mut changed, CONTENT_TYPE, content_type);
        assert_eq!(judge(changed), Ok(expected.clone()), "{content_type}");
    }
    assert_eq!(judge(Request { method: Method::GET, ..genuine }), Ok(expected));

    let query = signed(&format!("{URL}?MessageSid=SM1"), "");
    assert_eq!(judge(query.clone()), judge(Request { method: Method::GET, ..query }));
}

#[test]
fn a_body_added_to_a_query_is_refused() {
    let mut request = Request { method: Method::GET, ..signed(&format!("{URL}?MessageSid=SM1"), "") };
    assert!(judge(request.clone()).is_ok());
    request.body = "MessageSid=SM2".into();
    assert!(matches!(judge(request), Err(Refusal::UnprotectedBody(_))));
}

#[test]
fn the_hash_of_the_body_stands_there_once_and_in_lower_case() {
    let hash = sha256_hex(b"{}");
    let verdict = |url: String| judge(signed(&url, "{}"));
    assert!(verdict(with_body_hash(URL, &hash)).is_ok());
    assert!(verdict(with_body_hash(&format!("{URL}?tenant=acme"), &hash)).is_ok());
    assert!(verdict(format!("{URL}?body%53HA256={hash}&tenant=acme")).is_ok(), "names are decoded");
    for bad in [
        with_body_hash(&with_body_hash(URL, &hash), &hash),
        with_body_hash(&with_body_hash(URL, &hash), ""),
        with_body_hash(URL, &hash.to_uppercase()),
        with_body_hash(URL, &hash[1..]),
        with_body_hash(URL, ""),
    ] {
        assert!(matches!(verdict(bad.clone()), Err(Refusal::UnprotectedBody(_))), "{bad}");
    }
}

#[test]
fn with_a_hash_in_the_url_parameters_are_not_signed() {
    let body = "MessageSid=SM1";
    let url = with_body_hash(URL, &sha256_hex(body.as_bytes()));
    let request = sample::sign(request(&url, body), &secret(), &Config::default()).expect("signed");
    let verdict = verify(&provider(), request, &Secrets::new(vec![secret()]), OffsetDateTime::UNIX_EPOCH);
    assert!(verdict.is_ok());

    let mut with_parameters = signed(URL, body);
    with_parameters.url = url;
    assert_eq!(judge(with_parameters), Err(Refusal::WrongSignature));
}

#[test]
fn either_url_may_be_signed_and_no_other() {
    let sent_to = |signed_url: &str, url: &str| {
        // The signature as the sender with exactly this URL makes it.
        let text = [signed_url, "MessageSidSM1"].concat();
        let signature = Config::default().algorithm.scheme().sign(&secret(), &[text.as_bytes()]).expect("a key");
        let mut request = request(url, "MessageSid=SM1");
        set(&mut request, SIGNATURE, &hookfast_webhook::signature::Encoding::Base64.encode(&signature));
        judge(request).is_ok()
    };
    assert!(sent_to("https://a.example/x", "https://a.example:443/x"));
    assert!(sent_to("https://a.example:443/x", "https://a.example/x"));
    assert!(sent_to("https://a.example:8443/x", "https://a.example:8443/x"));
    assert!(sent_to("https://a.example/x", "https://a.example:8443/x"));
    assert!(sent_to("https://a.example/x", "https://a.example/x#rc=2"));
    assert!(!sent_to("https://a.example:8443/x", "https://a.example/x"));
    assert!(!sent_to("https://a.example:80/x", "https://a.example/x"));
    assert!(!sent_to("https://a.example/x", "https://a.example/x/"));
    assert!(!sent_to("https://a.example/%7e", "https://a.example/~"));
}

#[test]
fn a_signature_that_is_not_base64_is_refused() {
    for bad in ["x", "====", "yJXFcJSolpeY2UUllj2Rg3vqsuc", "yJXFcJSolpeY2UUllj2Rg3vqsu-="] {
        let mut request = signed(URL, "a=b");
        set(&mut request, SIGNATURE, bad);
        assert!(matches!(judge(request), Err(Refusal::MalformedHeader { .. })), "{bad}");
    }
}

#[test]
fn the_settings_header_may_agree_but_never_choose() {
    let shared = Config {
        algorithm: SignatureAlgorithm::HmacSha256,
        key_id: Some("webhooks_sharedkey_1".into()),
        ..Config::default()
    };
    let any_key = Config { key_id: None, ..shared.clone() };
    let verdict = |config: &Config, signed_by: &Config, settings: Option<&str>| {
        let mut request = sample::sign(request(URL, "MessageSid=SM1"), &secret(), signed_by).expect("signed");
        match settings {
            Some(text) => set(&mut request, SETTINGS, text),
            None => drop(request.headers.remove(SETTINGS)),
        }
        judge_with(config, request).map(|_| ())
    };
    let agreeing = "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256";
    assert_eq!(verdict(&shared, &shared, Some(agreeing)), Ok(()));
    assert_eq!(verdict(&shared, &shared, Some("algorithm=HMAC_SHA256, key=webhooks_sharedkey_1")), Ok(()));
    assert_eq!(verdict(&shared, &shared, None), Ok(()), "the configuration decides");
    assert_eq!(verdict(&any_key, &shared, Some(agreeing)), Ok(()));
    assert_eq!(verdict(&any_key, &shared, Some("key=other,algorithm=HMAC_SHA256")), Ok(()));

    let plain = Config::default();
    assert_eq!(verdict(&plain, &plain, Some("")), Ok(()));
    assert_eq!(verdict(&plain, &plain, Some("algorithm=HMAC_SHA1")), Ok(()));
    assert_eq!(verdict(&plain, &plain, Some("key=k")), Ok(()), "without a word it is SHA-1");
    assert_eq!(verdict(&plain, &shared, None), Err(Refusal::WrongSignature));
    assert_eq!(verdict(&shared, &plain, None), Err(Refusal::WrongSignature));

    for (config, settings) in [
        (&plain, agreeing),
        (&plain, "algorithm=HMAC_SHA512"),
        (&plain, "algorithm=hmac_sha1"),
        (&shared, "key=webhooks_sharedkey_1"),
        (&shared, "key=webhooks_sharedkey_1,algorithm=HMAC_SHA1"),
        (&shared, "key=webhooks_sharedkey_2,algorithm=HMAC_SHA256"),
        (&shared, "algorithm=HMAC_SHA256"),
    ] {
        assert!(matches!(verdict(config, config, Some(settings)), Err(Refusal::NotOurs(_))), "{settings}");
    }
    let twice = "algorithm=HMAC_SHA1,algorithm=HMAC_SHA256";
    assert!(matches!(verdict(&plain, &plain, Some(twice)), Err(Refusal::MalformedHeader { .. })));
}

#[test]
fn a_doubled_settings_header_is_refused() {
    let mut request = signed(URL, "a=b");
    request.headers.append(SETTINGS, HeaderValue::from_static("algorithm=HMAC_SHA1"));
    request.headers.append(SETTINGS, HeaderValue::from_static("algorithm=HMAC_SHA1"));
    assert_eq!(judge(request), Err(Refusal::RepeatedHeader(SETTINGS)));
}

#[test]
fn samples_of_a_shared_key_are_accepted() {
    let config = Config { algorithm: SignatureAlgorithm::HmacSha256, ..Config::default() };
    let key = secret();
    for kind in sample::KINDS {
        let request = Twilio::new(&config).sample(&order(kind, &key)).expect("a kind");
        assert!(request.headers.contains_key(SETTINGS));
        assert!(judge_with(&config, request).is_ok(), "{kind}");
    }
}

#[test]
fn odd_bodies_and_urls_are_judged_without_a_panic() {
    for url in ["", "x", "://", "https://", "https://:", "https://a:b@:1?#", "?bodySHA256", "https://a.example/?&=&%"] {
        for body in ["", "&", "=", "%", "%zz=%&+", "\u{fffd}", "[", "{}"] {
            let mut request = signed(url, body);
            request.body = [body.as_bytes(), b"\xff%ff\0"].concat().into();
            let provider = provider();
            let verdict = provider.prove(&request, &Secrets::new(vec![secret()]), OffsetDateTime::UNIX_EPOCH);
            assert!(verdict.is_err(), "{url} {body}");
            let _ = (provider.read(&request), provider.answer(&request));
        }
    }
}

#[test]
fn a_body_of_more_parameters_than_twilio_sends_is_refused_without_looking_at_them() {
    let mut request = signed(URL, "a=1");
    request.body = "a=1&".repeat(10_001).into();
    assert!(matches!(judge(request), Err(Refusal::UnprotectedBody(problem)) if problem.contains("more parameters")));
}

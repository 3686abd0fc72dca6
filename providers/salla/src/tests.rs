use hookfast_webhook::{Secret, Verified, refusal_suite, verify};
use http::HeaderValue;

use super::*;

const SIGNATURE_STRATEGY: Config = Config { strategy: Strategy::Signature, allow_bearer: false };
const TOKEN_STRATEGY: Config = Config { strategy: Strategy::Token, allow_bearer: false };
const NO_STRATEGY: Config = Config { strategy: Strategy::None, allow_bearer: false };

mod signature_strategy {
    use super::*;

    hookfast_webhook::refusal_suite!(Salla::new(&SIGNATURE_STRATEGY));
}

mod token_strategy {
    use super::*;

    hookfast_webhook::refusal_suite!(Salla::new(&TOKEN_STRATEGY), unprotected_body);
}

mod no_strategy {
    use super::*;

    #[test]
    fn every_kind_of_sample_is_accepted() {
        refusal_suite::every_kind_of_sample_is_accepted(&Salla::new(&NO_STRATEGY));
        refusal_suite::samples_are_readable_and_distinct(&Salla::new(&NO_STRATEGY));
    }

    #[test]
    fn nothing_is_needed_and_nothing_is_claimed() {
        let provider = Salla::new(&NO_STRATEGY);
        let order =
            SampleOrder { kind: None, url: refusal_suite::URL, key: None, now: OffsetDateTime::UNIX_EPOCH, serial: 1 };
        let request = provider.sample(&order).expect("no key is needed");
        let verdict = verify(&provider, request, &Secrets::default(), OffsetDateTime::UNIX_EPOCH);
        assert!(matches!(verdict, Ok(Verified::Genuine(genuine)) if genuine.proof() == Proof::unsigned()));
        assert!(!provider.needs_secret());
    }
}

fn secrets() -> Secrets {
    Secrets::new(vec![secret()])
}

fn secret() -> Secret {
    Secret::new("salla-test-secret").expect("not blank")
}

fn sample(config: &Config) -> Request {
    let key = secret();
    let order = SampleOrder { kind: None, url: refusal_suite::URL, key: Some(&key), now: now(), serial: 1 };
    Salla::new(config).sample(&order).expect("a sample")
}

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time")
}

fn judge(config: &Config, request: Request) -> Result<Verified, Refusal> {
    verify(&Salla::new(config), request, &secrets(), now())
}

fn read(body: &str) -> Result<Reading, Unreadable> {
    let request = Request { body: body.to_owned().into(), ..sample(&SIGNATURE_STRATEGY) };
    Salla::new(&SIGNATURE_STRATEGY).read(&request).map(|mut readings| readings.remove(0))
}

fn with_authorization(value: &str) -> Request {
    let mut request = sample(&TOKEN_STRATEGY);
    request.headers.insert(AUTHORIZATION, HeaderValue::try_from(value).expect("legal"));
    request
}

#[test]
fn a_strategy_must_be_set_and_the_error_says_which_there_are() {
    let config = |text: &str| serde_json::from_str::<Config>(text).map_err(|error| error.to_string());
    assert_eq!(config(r#"{"strategy":"signature"}"#), Ok(Config::for_development()));
    assert_eq!(config(r#"{"strategy":"token","allow_bearer":true}"#).map(|config| config.allow_bearer), Ok(true));
    assert_eq!(config(r#"{"strategy":"none"}"#), Ok(NO_STRATEGY));
    for bad in ["{}", r#"{"allow_bearer":false}"#, r#"{"strategy":"Signature"}"#, r#"{"strategy":""}"#] {
        let problem = config(bad).expect_err("it is not complete");
        assert!(["signature", "token", "none"].iter().all(|word| problem.contains(word)), "{problem}");
    }
    assert!(config(r#"{"strategy":"none","allow_bearer":true}"#).is_err(), "the setting would have no effect");
    assert!(config(r#"{"strategy":"none","tolerance_seconds":1}"#).is_err());
}

#[test]
fn the_strategy_header_chooses_nothing() {
    for word in ["None", "none", "Token", "Signature", ""] {
        for config in [SIGNATURE_STRATEGY, TOKEN_STRATEGY] {
            let mut request = sample(&config);
            request.headers.insert("x-salla-security-strategy", HeaderValue::from_static(word));
            assert!(judge(&config, request.clone()).is_ok(), "{word}");
            request.headers.remove(&SIGNATURE);
            request.headers.remove(AUTHORIZATION);
            assert!(matches!(judge(&config, request), Err(Refusal::MissingHeader(_))), "{word}");
        }
    }
}

#[test]
fn the_proof_of_another_strategy_is_none() {
    assert!(judge(&SIGNATURE_STRATEGY, sample(&TOKEN_STRATEGY)).is_err());
    assert!(judge(&TOKEN_STRATEGY, sample(&SIGNATURE_STRATEGY)).is_err());
}

#[test]
fn a_signature_is_64_lower_case_hex_digits_and_nothing_else() {
    let request = sample(&SIGNATURE_STRATEGY);
    let good = request.headers[&SIGNATURE].to_str().expect("text").to_owned();
    for bad in [good.to_uppercase(), format!("sha256={good}"), format!("{good},{good}"), good[..62].to_owned()] {
        let mut request = request.clone();
        request.headers.insert(SIGNATURE.clone(), HeaderValue::try_from(&bad).expect("legal"));
        assert!(judge(&SIGNATURE_STRATEGY, request).is_err(), "{bad}");
    }
}

#[test]
fn bearer_is_taken_only_where_it_is_allowed() {
    let bearer = Config { allow_bearer: true, ..TOKEN_STRATEGY };
    assert!(judge(&TOKEN_STRATEGY, with_authorization("Bearer salla-test-secret")).is_err());
    for good in ["salla-test-secret", "Bearer salla-test-secret"] {
        assert!(judge(&bearer, with_authorization(good)).is_ok(), "{good}");
    }
    for bad in ["bearer salla-test-secret", "Bearer  salla-test-secret", "Bearer Bearer salla-test-secret", "Bearer "] {
        assert_eq!(judge(&bearer, with_authorization(bad)).err(), Some(Refusal::WrongToken), "{bad}");
    }
}

#[test]
fn a_secret_that_begins_with_bearer_is_still_a_secret() {
    let secrets = Secrets::new(vec![Secret::new("Bearer x").expect("not blank")]);
    for allow_bearer in [false, true] {
        let provider = Salla::new(&Config { allow_bearer, ..TOKEN_STRATEGY });
        assert!(verify(&provider, with_authorization("Bearer x"), &secrets, now()).is_ok());
    }
}

#[test]
fn the_three_forms_of_time_are_one_moment() {
    for text in [
        "2025-10-09 11:53:12",
        "Thu Oct 09 2025 11:53:12 GMT+0300",
        "Thu Oct 09 2025 11:53:12 GMT+0300 (Arabian Standard Time)",
        "2025-10-09T11:53:12+03:00",
        "2025-10-09T08:53:12.000Z",
    ] {
        let reading = read(&format!(r#"{{"event":"e","created_at":"{text}"}}"#)).expect("readable");
        assert_eq!(reading.occurred_at.map(OffsetDateTime::unix_timestamp), Some(1_759_999_992), "{text}");
    }
}

#[test]
fn an_event_is_its_merchant_its_name_and_its_bytes() {
    let body = r#"{"event":"order.created","merchant":7,"data":{"id":5}}"#;
    let reading = read(body).expect("readable");
    assert_eq!(reading.dedupe_key, format!("7:order.created:{}", signature::sha256_hex(body.as_bytes())));
    assert_eq!((reading.event_id, reading.object_id.as_deref()), (None, Some("5")));
    assert_eq!(reading.account.as_deref(), Some("7"));
    assert_eq!(reading.body, body);
    let later = read(r#"{"event":"order.created","merchant":7,"data":{"id":5,"x":1}}"#).expect("readable");
    assert_ne!(reading.dedupe_key, later.dedupe_key);
}

#[test]
fn orders_come_first() {
    let priority = |event: &str| read(&format!(r#"{{"event":"{event}"}}"#)).map(|reading| reading.priority);
    assert_eq!(priority("order.created"), Ok(Priority::High));
    assert_eq!(priority("order.status.updated"), Ok(Priority::High));
    for other in ["orders", "product.updated", "app.order.x"] {
        assert_eq!(priority(other), Ok(Priority::Normal), "{other}");
    }
}

#[test]
fn fields_of_a_new_form_do_not_lose_the_event() {
    for body in [
        r#"{"event":"e"}"#,
        r#"{"event":"e","merchant":{},"created_at":[],"data":[{"id":1}]}"#,
        r#"{"event":"e","merchant":null,"created_at":"soon","data":{"id":{"a":1}}}"#,
        r#"{"event":"e","merchant":"","created_at":"","data":{"id":1,"id":2}}"#,
    ] {
        let reading = read(body).expect("readable");
        assert_eq!((reading.account, reading.occurred_at, reading.object_id), (None, None, None), "{body}");
    }
}

#[test]
fn what_has_no_single_event_is_unreadable_and_not_quoted() {
    for body in ["", "null", "[]", "{}", "{", r#"{"event":""}"#, r#"{"event":7}"#, r#"{"event":"canary","event":"x"}"#]
    {
        let problem = read(body).expect_err("unreadable").to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Ok(Salla::new(config)));
}

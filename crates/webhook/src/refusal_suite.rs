//! What every provider must refuse. A provider's tests run the whole suite with [`refusal_suite!`](crate::refusal_suite!).
//!
//! Each check starts from [`Provider::sample`], shows that the sample is accepted, and then spoils one thing.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use time::{Duration, OffsetDateTime};

use crate::{Genuine, Provider, Refusal, Request, Secret, Secrets, verify};

const URL: &str = "https://hooks.example.com/webhooks/suite";
const SECRET: &str = "whsec_suite_current";
const OTHER_SECRET: &str = "whsec_suite_other";

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time")
}

fn secrets(texts: &[&str]) -> Secrets {
    Secrets::new(texts.iter().map(|text| Secret::new(*text).expect("not blank")).collect())
}

fn sample(provider: &dyn Provider) -> Request {
    let request = provider.sample(URL, &Secret::new(SECRET).expect("not blank"), now(), 1);
    judge(provider, request.clone()).expect("the untouched sample is accepted");
    request
}

fn judge(provider: &dyn Provider, request: Request) -> Result<Genuine, Refusal> {
    verify(provider, request, &secrets(&[SECRET]), now())
}

fn set(request: &mut Request, header: &'static str, value: &[u8]) {
    let value = HeaderValue::from_bytes(value).expect("a legal header value");
    request.headers.insert(HeaderName::from_static(header), value);
}

/// The suite's view of a header's value.
fn value_of(request: &Request, header: &str) -> Vec<u8> {
    request.headers.get(header).expect("the sample has every proof header").as_bytes().to_vec()
}

/// One changed byte in the body is refused, at whatever place.
pub fn a_flipped_byte_in_the_body_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    for place in 0..request.body.len() {
        for bit in 0..8 {
            let mut body = request.body.to_vec();
            body[place] ^= 1 << bit;
            let spoiled = Request { body: Bytes::from(body), ..request.clone() };
            assert!(judge(provider, spoiled).is_err(), "bit {bit} of byte {place} of the body");
        }
    }
}

/// One changed byte in a proof header is refused, at whatever place.
pub fn a_flipped_byte_in_a_proof_header_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    for header in provider.proof_headers() {
        let value = value_of(&request, header);
        for place in 0..value.len() {
            for bit in 0..7 {
                let mut spoiled_value = value.clone();
                spoiled_value[place] ^= 1 << bit;
                if HeaderValue::from_bytes(&spoiled_value).is_err() {
                    continue;
                }
                let mut spoiled = request.clone();
                set(&mut spoiled, header, &spoiled_value);
                assert!(judge(provider, spoiled).is_err(), "bit {bit} of byte {place} of {header}");
            }
        }
    }
}

/// A body that is longer or shorter than the signed one is refused.
pub fn a_longer_or_shorter_body_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    let longer = [&request.body[..], b" "].concat();
    let shorter = request.body.slice(..request.body.len() - 1);
    for body in [Bytes::from(longer), shorter, Bytes::new()] {
        assert!(judge(provider, Request { body, ..request.clone() }).is_err());
    }
}

/// A proof header that is cut at any place, or goes on, is refused.
pub fn a_truncated_or_overlong_proof_header_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    for header in provider.proof_headers() {
        let value = value_of(&request, header);
        for length in 0..value.len() {
            let mut spoiled = request.clone();
            set(&mut spoiled, header, &value[..length]);
            assert!(judge(provider, spoiled).is_err(), "{header} cut to {length} bytes");
        }
        for tail in ["0", "00", " x"] {
            let mut spoiled = request.clone();
            set(&mut spoiled, header, &[&value[..], tail.as_bytes()].concat());
            assert!(judge(provider, spoiled).is_err(), "{header} followed by {tail:?}");
        }
    }
}

/// A missing or empty proof header is refused.
pub fn a_missing_or_empty_proof_header_is_refused(provider: &dyn Provider) {
    for header in provider.proof_headers() {
        let mut missing = sample(provider);
        missing.headers.remove(*header);
        assert_eq!(judge(provider, missing).err(), Some(Refusal::MissingHeader(header)));

        let mut empty = sample(provider);
        set(&mut empty, header, b"");
        assert_eq!(judge(provider, empty).err(), Some(Refusal::MissingHeader(header)));
    }
}

/// A proof header that stands there twice is refused, also when both are the same or one is good.
pub fn a_doubled_proof_header_is_refused(provider: &dyn Provider) {
    for header in provider.proof_headers() {
        for second in [value_of(&sample(provider), header), b"x".to_vec()] {
            let mut doubled = sample(provider);
            let second = HeaderValue::from_bytes(&second).expect("a legal header value");
            doubled.headers.append(HeaderName::from_static(header), second);
            assert_eq!(judge(provider, doubled).err(), Some(Refusal::RepeatedHeader(header)));
        }
    }
}

/// A request signed with another secret is refused; so is one when the source has no secret.
pub fn another_secret_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    let verdict = verify(provider, request.clone(), &secrets(&[OTHER_SECRET]), now());
    assert_eq!(verdict.err(), Some(Refusal::WrongSignature));
    let verdict = verify(provider, request, &Secrets::default(), now());
    assert_eq!(verdict.err(), Some(Refusal::NoSecret));
}

/// While a secret is rotated, the old and the new one are both accepted, and a third one is not.
pub fn rotation_accepts_old_and_new_and_nothing_else(provider: &dyn Provider) {
    let request = sample(provider);
    for held in [[SECRET, OTHER_SECRET], [OTHER_SECRET, SECRET]] {
        assert!(verify(provider, request.clone(), &secrets(&held), now()).is_ok());
    }
    let neither = secrets(&[OTHER_SECRET, "whsec_suite_third"]);
    assert_eq!(verify(provider, request, &neither, now()).err(), Some(Refusal::WrongSignature));
}

/// A request is accepted up to its tolerance and refused one second later.
pub fn an_aged_request_is_refused(provider: &dyn Provider, tolerance: Duration) {
    let request = sample(provider);
    let judge_at = |now| verify(provider, request.clone(), &secrets(&[SECRET]), now);
    assert!(judge_at(now() + tolerance).is_ok());
    let verdict = judge_at(now() + tolerance + Duration::SECOND);
    assert!(matches!(verdict, Err(Refusal::Stale { .. })), "{verdict:?}");
}

/// Every part of the sample can be read, and another serial is another event.
pub fn samples_are_readable_and_distinct(provider: &dyn Provider) {
    let secret = Secret::new(SECRET).expect("not blank");
    let key = |serial| {
        let request = provider.sample(URL, &secret, now(), serial);
        let genuine = judge(provider, request).expect("samples are genuine");
        genuine.readings(provider).expect("samples are readable").remove(0).dedupe_key
    };
    assert_eq!(key(1), key(1));
    assert_ne!(key(1), key(2));
}

/// Makes one test of each check of the suite.
#[macro_export]
macro_rules! refusal_suite {
    ($provider:expr, tolerance: $tolerance:expr) => {
        $crate::refusal_suite!(
            @each $provider,
            a_flipped_byte_in_the_body_is_refused
            a_flipped_byte_in_a_proof_header_is_refused
            a_longer_or_shorter_body_is_refused
            a_truncated_or_overlong_proof_header_is_refused
            a_missing_or_empty_proof_header_is_refused
            a_doubled_proof_header_is_refused
            another_secret_is_refused
            rotation_accepts_old_and_new_and_nothing_else
            samples_are_readable_and_distinct
        );

        #[test]
        fn an_aged_request_is_refused() {
            $crate::refusal_suite::an_aged_request_is_refused(&$provider, $tolerance);
        }
    };
    (@each $provider:expr, $($check:ident)*) => {
        $(#[test]
        fn $check() {
            $crate::refusal_suite::$check(&$provider);
        })*
    };
}

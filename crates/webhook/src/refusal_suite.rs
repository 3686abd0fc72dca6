//! Tests of what every provider must refuse. A provider's tests run the whole suite with
//! [`refusal_suite!`](crate::refusal_suite!).
//!
//! Each check starts from [`Provider::sample`], shows that the sample is accepted, and then changes one thing.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use time::{Duration, OffsetDateTime};

use crate::signature::KeyPair;
use crate::{Genuine, Provider, Refusal, Request, SampleOrder, Secrets, Verified, verify};

/// The URL to which all samples are sent.
pub const URL: &str = "https://hooks.example.com/webhooks/suite";

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a valid time")
}

fn keys(provider: &dyn Provider, number: u8) -> KeyPair {
    provider.key_pair(&[number; 32])
}

/// The secrets of a source that has the keys with these numbers.
fn secrets(provider: &dyn Provider, numbers: &[u8]) -> Secrets {
    Secrets::new(numbers.iter().map(|number| keys(provider, *number).verifying).collect())
}

fn signed(provider: &dyn Provider, serial: u64) -> Request {
    let key = keys(provider, 1).signing;
    let order = SampleOrder { kind: None, url: URL, key: Some(&key), now: now(), serial };
    provider.sample(&order).expect("every provider has samples")
}

fn sample(provider: &dyn Provider) -> Request {
    let request = signed(provider, 1);
    judge(provider, request.clone()).expect("the untouched sample is accepted");
    request
}

fn judge(provider: &dyn Provider, request: Request) -> Result<Genuine, Refusal> {
    judge_with(provider, request, &secrets(provider, &[1]), now())
}

fn judge_with(
    provider: &dyn Provider,
    request: Request,
    secrets: &Secrets,
    now: OffsetDateTime,
) -> Result<Genuine, Refusal> {
    match verify(provider, request, secrets, now)? {
        Verified::Genuine(genuine) => Ok(genuine),
        Verified::Handshake(answer) => panic!("the sample is taken for a handshake: {answer:?}"),
    }
}

fn set(request: &mut Request, header: &HeaderName, value: &[u8]) {
    let value = HeaderValue::from_bytes(value).expect("a legal header value");
    request.headers.insert(header.clone(), value);
}

/// The proof headers that the sample has. Some providers have two sets, and a sample has one of them.
fn proof_headers(provider: &dyn Provider) -> Vec<(HeaderName, Vec<u8>)> {
    let request = sample(provider);
    let of = |name: &HeaderName| Some((name.clone(), request.headers.get(name)?.as_bytes().to_vec()));
    provider.proof_headers().iter().filter_map(of).collect()
}

/// A change of any bit of the body is refused.
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

/// A change of any bit of a proof header is refused.
pub fn a_flipped_byte_in_a_proof_header_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    for (header, value) in proof_headers(provider) {
        for place in 0..value.len() {
            for bit in 0..7 {
                let mut spoiled_value = value.clone();
                spoiled_value[place] ^= 1 << bit;
                if HeaderValue::from_bytes(&spoiled_value).is_err() {
                    continue;
                }
                let mut spoiled = request.clone();
                set(&mut spoiled, &header, &spoiled_value);
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

/// A proof header that is cut off at any place, or has more text at its end, is refused.
pub fn a_truncated_or_overlong_proof_header_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    for (header, value) in proof_headers(provider) {
        for length in 0..value.len() {
            let mut spoiled = request.clone();
            set(&mut spoiled, &header, &value[..length]);
            assert!(judge(provider, spoiled).is_err(), "{header} cut to {length} bytes");
        }
        for tail in ["0", "00", "x"] {
            let mut spoiled = request.clone();
            set(&mut spoiled, &header, &[&value[..], tail.as_bytes()].concat());
            assert!(judge(provider, spoiled).is_err(), "{header} followed by {tail:?}");
        }
    }
}

/// A missing or empty proof header is refused.
pub fn a_missing_or_empty_proof_header_is_refused(provider: &dyn Provider) {
    for (header, _) in proof_headers(provider) {
        let mut missing = sample(provider);
        missing.headers.remove(&header);
        assert!(judge(provider, missing).is_err(), "{header} is missing");

        let mut empty = sample(provider);
        set(&mut empty, &header, b"");
        assert!(judge(provider, empty).is_err(), "{header} is empty");
    }
}

/// A proof header that occurs twice is refused, even if both are the same or one is good.
pub fn a_doubled_proof_header_is_refused(provider: &dyn Provider) {
    for (header, value) in proof_headers(provider) {
        for second in [&value[..], b"x"] {
            let mut doubled = sample(provider);
            doubled.headers.append(&header, HeaderValue::from_bytes(second).expect("a legal header value"));
            assert_eq!(judge(provider, doubled).err(), Some(Refusal::RepeatedHeader(header.clone())));
        }
    }
}

/// A request signed with another secret is refused, and so is every request if the source has no secret.
pub fn another_secret_is_refused(provider: &dyn Provider) {
    let request = sample(provider);
    let verdict = judge_with(provider, request.clone(), &secrets(provider, &[2]), now());
    assert!(matches!(verdict, Err(Refusal::WrongSignature | Refusal::WrongToken)), "{verdict:?}");
    let verdict = judge_with(provider, request, &Secrets::default(), now());
    assert_eq!(verdict.err(), Some(Refusal::NoSecret));
}

/// While a secret is rotated, the old and the new one are both accepted, and a third one is not.
pub fn rotation_accepts_old_and_new_and_nothing_else(provider: &dyn Provider) {
    let request = sample(provider);
    for held in [[1, 2], [2, 1]] {
        let genuine = judge_with(provider, request.clone(), &secrets(provider, &held), now()).expect("one matches");
        assert_eq!(genuine.proof().secret_index(), held.iter().position(|number| *number == 1));
    }
    assert!(judge_with(provider, request, &secrets(provider, &[2, 3]), now()).is_err());
}

/// A request is accepted up to its tolerance and refused one second later.
pub fn an_aged_request_is_refused(provider: &dyn Provider, tolerance: Duration) {
    let request = sample(provider);
    let judge_at = |now| judge_with(provider, request.clone(), &secrets(provider, &[1]), now);
    assert!(judge_at(now() + tolerance).is_ok());
    let verdict = judge_at(now() + tolerance + Duration::SECOND);
    assert!(matches!(verdict, Err(Refusal::Stale { .. })), "{verdict:?}");
}

/// Every sample can be read, and samples with different serials are different events.
pub fn samples_are_readable_and_distinct(provider: &dyn Provider) {
    let key = |serial| {
        let genuine = judge(provider, signed(provider, serial)).expect("samples are genuine");
        genuine.readings(provider).expect("samples are readable").remove(0).dedupe_key
    };
    assert_eq!(key(1), key(1));
    assert_ne!(key(1), key(2));
}

/// Every kind of sample is accepted, and its events can be read.
pub fn every_kind_of_sample_is_accepted(provider: &dyn Provider) {
    let (key, secrets) = (keys(provider, 1).signing, secrets(provider, &[1]));
    for kind in provider.sample_kinds() {
        let order = SampleOrder { kind: Some(kind), url: URL, key: Some(&key), now: now(), serial: 1 };
        let request = provider.sample(&order).expect("it is one of the kinds");
        assert!(provider.methods().contains(&request.method), "{kind}");
        match verify(provider, request, &secrets, now()) {
            Ok(Verified::Genuine(genuine)) => assert!(genuine.readings(provider).is_ok(), "{kind}"),
            Ok(Verified::Handshake(answer)) => assert!(answer.status.is_success(), "{kind}"),
            Err(refusal) => panic!("{kind}: {refusal}"),
        }
    }
}

/// Makes a test of each check of the suite. `tolerance` is for providers that sign a time; `unprotected_body` is for
/// providers whose proof does not cover the body.
#[macro_export]
macro_rules! refusal_suite {
    ($provider:expr, tolerance: $tolerance:expr) => {
        $crate::refusal_suite!($provider);

        #[test]
        fn an_aged_request_is_refused() {
            $crate::refusal_suite::an_aged_request_is_refused(&$provider, $tolerance);
        }
    };
    ($provider:expr) => {
        $crate::refusal_suite!($provider, unprotected_body);
        $crate::refusal_suite!(
            @each $provider,
            a_flipped_byte_in_the_body_is_refused
            a_longer_or_shorter_body_is_refused
        );
    };
    ($provider:expr, unprotected_body) => {
        $crate::refusal_suite!(
            @each $provider,
            a_flipped_byte_in_a_proof_header_is_refused
            a_truncated_or_overlong_proof_header_is_refused
            a_missing_or_empty_proof_header_is_refused
            a_doubled_proof_header_is_refused
            another_secret_is_refused
            rotation_accepts_old_and_new_and_nothing_else
            samples_are_readable_and_distinct
            every_kind_of_sample_is_accepted
        );
    };
    (@each $provider:expr, $($check:ident)*) => {
        $(#[test]
        fn $check() {
            $crate::refusal_suite::$check(&$provider);
        })*
    };
}

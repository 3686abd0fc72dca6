//! A proved request is recorded, even if it looks like an unsigned handshake.

use hookfast_webhook::{Provider, SampleOrder, Secrets, Verified, verify};
use http::HeaderValue;
use time::OffsetDateTime;

use super::with;
use crate::Settings;

#[test]
fn a_signed_request_that_looks_like_an_unsigned_handshake_is_an_event() {
    let asana = with("asana", Settings::default());
    let keys = asana.key_pair(&[1; 32]);
    let now = OffsetDateTime::from_unix_timestamp(1_760_000_000).expect("a time");
    let url = "https://hooks.example.com/webhooks/asana";
    let order = SampleOrder { kind: None, url, key: Some(&keys.signing), now, serial: 1 };
    let mut request = asana.sample(&order).expect("there is a sample");
    request.headers.insert("x-hook-secret", HeaderValue::from_static("s"));
    let held = Secrets::new(vec![keys.verifying]);
    let verdict = verify(&asana, request.clone(), &held, now);
    assert!(matches!(verdict, Ok(Verified::Genuine(_))), "{verdict:?}");

    request.headers.remove("x-hook-signature");
    let verdict = verify(&asana, request, &held, now);
    assert!(matches!(verdict, Ok(Verified::Handshake(_))), "{verdict:?}");
}

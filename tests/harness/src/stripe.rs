//! Stripe's side: correctly signed requests.

use hookfast_stripe::{Config, Stripe};
use hookfast_webhook::{Provider, Request, SampleOrder, Secret};
use time::{Duration, OffsetDateTime};

/// The secret of the source `stripe` in every test gateway.
pub const SECRET: &str = "whsec_harness_0123456789";

const URL: &str = "http://hooks.example.com/webhooks/stripe";

/// A signed event; another serial is another event.
pub fn sample(serial: u64) -> Request {
    sample_at(serial, Duration::ZERO)
}

/// The dedupe key of a sample.
pub fn sample_key(serial: u64) -> String {
    format!("evt_sample_{serial}")
}

/// An event that was signed this long ago.
pub fn sample_at(serial: u64, age: Duration) -> Request {
    let secret = Secret::new(SECRET).unwrap();
    let order = SampleOrder { kind: None, url: URL, key: Some(&secret), now: OffsetDateTime::now_utc() - age, serial };
    Stripe::new(&Config::default()).sample(&order).expect("Stripe has samples")
}

/// A request with this body, signed now.
pub fn signed(body: &str) -> Request {
    let secret = Secret::new(SECRET).unwrap();
    hookfast_stripe::sign(URL, &secret, OffsetDateTime::now_utc().unix_timestamp(), body.into())
}

/// A request as the bytes on the wire.
pub fn post(request: &Request) -> Vec<u8> {
    crate::client::wire(request)
}

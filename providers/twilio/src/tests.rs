mod answers;
mod proofs;
mod readings;

use hookfast_webhook::{Secret, Verified, verify};
use http::{HeaderMap, HeaderValue};

use super::*;

const URL: &str = "https://hooks.example.com/webhooks/twilio";

fn provider() -> Twilio {
    Twilio::new(&Config::default())
}

fn secret() -> Secret {
    Secret::new("0123456789abcdef0123456789abcdef").expect("not blank")
}

fn request(url: &str, body: &str) -> Request {
    Request { method: Method::POST, url: url.into(), headers: HeaderMap::new(), body: body.to_owned().into() }
}

/// The request, signed as Twilio would sign it.
fn signed(url: &str, body: &str) -> Request {
    sample::sign(request(url, body), &secret(), &Config::default()).expect("it can be signed")
}

/// The readings of a genuine request, or why it was refused.
fn judge(request: Request) -> Result<Vec<Reading>, Refusal> {
    judge_with(&Config::default(), request)
}

fn judge_with(config: &Config, request: Request) -> Result<Vec<Reading>, Refusal> {
    let provider = Twilio::new(config);
    match verify(&provider, request, &Secrets::new(vec![secret()]), OffsetDateTime::UNIX_EPOCH)? {
        Verified::Genuine(genuine) => Ok(genuine.readings(&provider).expect("it is readable")),
        Verified::Handshake(answer) => panic!("Twilio has no handshake: {answer:?}"),
    }
}

fn order<'a>(kind: &'a str, key: &'a Secret) -> SampleOrder<'a> {
    SampleOrder { kind: Some(kind), url: URL, key: Some(key), now: OffsetDateTime::UNIX_EPOCH, serial: 7 }
}

fn set(request: &mut Request, name: HeaderName, value: &str) {
    request.headers.insert(name, HeaderValue::try_from(value).expect("legal"));
}

#[test]
fn every_vector_agrees() {
    let file = include_str!("../fixtures/vectors.json");
    hookfast_webhook::vectors::assert_agreement(file, |config: &Config| Ok(Twilio::new(config)));
}

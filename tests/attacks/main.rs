//! Attacks that must fail, by the numbers of `docs/threat-model.md`.
//!
//! Each test attacks the real binary, then asks two things: is anything in the store that should not be there, and is a
//! genuine request still served?
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod admin;
mod arsenal;
mod attackers;
mod forged_hints;
mod framing;
mod good_traffic;
mod hostile_answers;
mod http;
mod logs;
mod nightly;
mod payload;
mod providers;
mod proxy;
mod replay;
mod resources;
mod secrets;
mod siege;
mod signature;
mod slow;
mod strangers;
mod terminal;
mod unsigned;

use std::process::Output;

use bytes::Bytes;
use hookfast_harness::{Answer, Client, Database, Gateway, SECRET, Setup, hookfast, sample};
use hookfast_webhook::{Request, Secret, signature as mac};
use time::OffsetDateTime;

const BINARY: &str = env!("CARGO_BIN_EXE_hookfast");

/// The header that carries Stripe's proof.
const SIGNATURE: &str = "stripe-signature";

fn setup() -> Setup {
    setup_on(Database::Sqlite)
}

/// A gateway that may take its time to answer: the machine is busy with other tests.
fn setup_on(database: Database) -> Setup {
    Setup::new(BINARY, database).ingest("answer_deadline = \"20s\"")
}

fn gateway() -> Gateway {
    setup().start()
}

/// The end of an attack that must have left no trace: the store is empty, and a genuine request is served.
fn assert_unharmed(gateway: &Gateway) {
    assert_recorded(gateway, &[]);
    assert_serves(gateway);
}

fn assert_serves(gateway: &Gateway) {
    let genuine = sample(u64::MAX);
    assert_eq!(gateway.client().send(&genuine).unwrap().status, 200, "a genuine request is served");
    let recorded = gateway.events().iter().any(|event| event.dedupe_key == format!("evt_sample_{}", u64::MAX));
    assert!(recorded, "a genuine request is recorded");
}

/// These events are in the store, newest first, and no others.
fn assert_recorded(gateway: &Gateway, keys: &[&str]) {
    let found: Vec<_> = gateway.events().into_iter().map(|event| event.dedupe_key).collect();
    assert_eq!(found, keys, "the events in the store");
}

/// Sends each request on a connection of its own and expects each to be refused.
fn assert_each_refused(gateway: &Gateway, requests: impl IntoIterator<Item = (String, Request)>) {
    for (what, request) in requests {
        let status = gateway.client().send(&request).unwrap().status;
        // 400 is the HTTP parser's word for a header that is none.
        assert!(matches!(status, 400 | 401), "{what}: answered {status}");
    }
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

/// Stripe's signature over any bytes, with any secret and any timestamp, as hex.
fn signature_of(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let signed = [timestamp.as_bytes(), b".", body];
    mac::to_hex(&mac::Scheme::HMAC_SHA256.sign(&Secret::new(secret).unwrap(), &signed).expect("any text is a key"))
}

/// A request with this signature header and body, whatever they are worth.
fn unproved(signature: &str, body: &[u8]) -> Request {
    let request = with_header(sample(0), SIGNATURE, signature.as_bytes());
    Request { body: Bytes::copy_from_slice(body), ..request }
}

/// A request that only the holder of the secret can send, of any bytes.
fn signed_bytes(body: &[u8]) -> Request {
    signed_at(now(), body)
}

fn signed_at(timestamp: i64, body: &[u8]) -> Request {
    let signature = signature_of(SECRET, &timestamp.to_string(), body);
    unproved(&format!("t={timestamp},v1={signature}"), body)
}

/// The request with a header set.
fn with_header(mut request: Request, name: &'static str, value: &[u8]) -> Request {
    request.headers.insert(name, ::http::HeaderValue::from_bytes(value).unwrap());
    request
}

/// The request with another path and query.
fn to_path(path: &str, request: Request) -> Request {
    Request { url: format!("http://hooks.example.com{path}"), ..request }
}

/// The value of the request's signature header.
fn signature_header(request: &Request) -> Vec<u8> {
    request.headers[SIGNATURE].as_bytes().to_vec()
}

fn raw(gateway: &Gateway, bytes: &[u8]) -> Answer {
    gateway.client().raw(bytes).unwrap()
}

/// A connection from another address than the genuine client's.
fn stranger(gateway: &Gateway, number: u8) -> Client {
    Client::connect_from([127, 0, 0, number].into(), gateway.ingest)
}

/// Runs the command to its end. One that does not end, because it serves what it should refuse, ends with status 124.
fn run(folder: &std::path::Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = hookfast("timeout", folder);
    command.arg("20").arg(BINARY).args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap() + &String::from_utf8(output.stderr.clone()).unwrap()
}

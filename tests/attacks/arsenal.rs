//! The attacks of a siege: what each sends, how often, and on how many connections.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hookfast_harness::{post, sample};
use hookfast_webhook::Request;

use super::attackers::{Attack, Visit};
use super::{to_path, unproved, with_header};

const HEAD: &str = "POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\n";

/// The configuration that the batches of `arsenal` need: a source that anyone can send to.
pub(crate) const OPEN_SOURCE: &str = "[sources.garmin]\nprovider = \"garmin\"\nclient_id = \"c-1\"";

/// Serials of requests that attackers have recorded. Genuine requests have smaller ones.
pub(crate) const RECORDED: u64 = 5_000_000_000;

/// All attacks. Together they send about half of what attackers may.
pub(crate) fn arsenal() -> Vec<Attack> {
    let bad_signature = post(&unproved("t=1,v1=00", b"{}"));
    let unknown_source = post(&to_path("/webhooks/unknown", sample(0)));
    let attack =
        |name, connections, per_second, visit| Attack { name, connections, per_second, at_admin: false, visit };
    vec![
        attack("stalled uploads", 24, 1.0, hold(stalled_upload(4 << 20), b"")),
        attack("silence", 1_200, 400.0, hold(String::new(), b"")),
        attack("slow heads", 200, 50.0, hold(HEAD.to_owned() + "x: ", b"x")),
        attack("slow bodies", 200, 50.0, hold(HEAD.to_owned() + "content-length: 1000\r\n\r\n{", b" ")),
        attack("unread answers", 10, 1.0, Visit::NeverRead(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(500))),
        attack("tiny chunks", 2, 1.0, ask(|_| tiny_chunks())),
        attack("bad signatures", 8, 1_500.0, ask(move |_| bad_signature.clone())),
        attack("unknown sources", 4, 200.0, ask(move |_| unknown_source.clone())),
        attack("header bombs", 4, 20.0, ask(header_bomb)),
        attack("replays", 4, 100.0, replays()),
        attack("batches", 2, 1.0, ask(batch)),
        attack("churn", 20, 300.0, Visit::Leave),
        Attack { at_admin: true, ..attack("silence for metrics", 40, 10.0, hold(String::new(), b"")) },
    ]
}

fn hold(beginning: String, drip: &'static [u8]) -> Visit {
    Visit::Hold { beginning: beginning.into_bytes(), drip }
}

fn ask(request: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> Visit {
    Visit::Ask(Arc::new(request))
}

/// All of a body but its last byte.
fn stalled_upload(size: usize) -> String {
    format!("{HEAD}content-length: {}\r\n\r\n{}", size + 1, " ".repeat(size))
}

fn tiny_chunks() -> Vec<u8> {
    format!("{HEAD}transfer-encoding: chunked\r\n\r\n{}0\r\n\r\n", "1\r\n \r\n".repeat(20_000)).into_bytes()
}

/// Too many headers, or one that is too long.
fn header_bomb(number: u64) -> Vec<u8> {
    let headers = if number.is_multiple_of(2) {
        (0..200).map(|number| format!("x-{number}: {}\r\n", "y".repeat(300))).collect()
    } else {
        format!("x: {}\r\n", "y".repeat(70_000))
    };
    format!("{HEAD}{headers}content-length: 0\r\n\r\n").into_bytes()
}

/// A genuine request that was recorded, with other unsigned parts each time. Stripe takes it for some minutes only, so
/// another one is recorded in time.
fn replays() -> Visit {
    const RECORD_EVERY: Duration = Duration::from_secs(60);
    let recorded: Mutex<Option<(Instant, Request)>> = Mutex::default();
    ask(move |number| {
        let mut recorded = recorded.lock().unwrap();
        let is_fresh = recorded.as_ref().is_some_and(|(at, _)| at.elapsed() < RECORD_EVERY);
        if !is_fresh {
            *recorded = Some((Instant::now(), sample(RECORDED + number)));
        }
        let (_, request) = recorded.as_ref().unwrap();
        let changed = to_path(&format!("/webhooks/stripe?x={number}"), request.clone());
        post(&with_header(changed, "x-request-id", format!("{number}").as_bytes()))
    })
}

/// Very many records with large headers, or some records that came before.
fn batch(number: u64) -> Vec<u8> {
    let (records, padding) = if number.is_multiple_of(2) { (10_000, 60_000) } else { (100, 1_000) };
    let numbers = (0..records).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let (body, padding) = (format!(r#"{{"dailies":[{numbers}]}}"#), "x".repeat(padding));
    let head = format!("POST /webhooks/garmin HTTP/1.1\r\nhost: a\r\ngarmin-client-id: c-1\r\nx: {padding}\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

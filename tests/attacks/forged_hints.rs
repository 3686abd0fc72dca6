//! Messages of other clients on the NATS server, among the hints of the gateway.
//!
//! A hint names a job and says nothing more, so a forged one can do no more than have the gateway look at a job.

use hookfast_harness::{Database, Gateway, NatsVersion, PrivateNats, Setup, eventually, sample};
use serde_json::json;
use uuid::Uuid;

use super::setup_on;

/// The subjects of hints begin with this.
const HINTS: &str = "hookfast.hints.ledger";

fn working(nats: &PrivateNats) -> Setup {
    working_on(nats, Database::Sqlite)
}

fn working_on(nats: &PrivateNats, database: Database) -> Setup {
    setup_on(database).queue(&nats.url()).handlers("[handlers.ledger]\nrun = \"log\"")
}

/// A message without headers.
fn message(subject: &str, payload: &[u8]) -> Vec<u8> {
    [format!("PUB {subject} {}\r\n", payload.len()).as_bytes(), payload].concat()
}

/// A message with these headers and no payload.
fn with_headers(subject: &str, headers: &str) -> Vec<u8> {
    let length = headers.len();
    format!("HPUB {subject} {length} {length}\r\n{headers}").into_bytes()
}

fn send(gateway: &Gateway, serials: std::ops::Range<u64>) {
    let mut client = gateway.client();
    for serial in serials {
        assert_eq!(client.send(&sample(serial)).unwrap().status, 200);
    }
}

/// Every event has been handled, by one run each.
fn assert_each_handled_once(gateway: &Gateway, events: u64) {
    let count = |query: &str| gateway.query(&format!("SELECT count(*) FROM {query}"))[0][0].parse::<u64>().unwrap();
    eventually("the jobs are done", || count("jobs WHERE state = 'succeeded'") == events);
    assert_eq!((count("jobs"), count("attempts")), (events, events));
}

/// Ids that are none, wildcards, other depths, control characters, all of which end in places where hints are or could be.
fn garbage() -> Vec<Vec<u8>> {
    let long = "x".repeat(2_000);
    let ids = ["rubbish", "*", ">", "a.b.c", "..", "\u{1b}[2J", "\u{202e}drow", "'; DROP TABLE jobs; --", &long];
    let ids = ids.map(|id| id.replace(' ', "_"));
    let places = ["high", "normal", "low", "other", "high.x"].map(|priority| format!("{HINTS}.{priority}"));
    let subjects = places.iter().flat_map(|place| ids.iter().map(move |id| format!("{place}.{id}")));
    let elsewhere = [
        "hookfast.hints",
        "hookfast.hints.unknown.high.x",
        "hookfast.jobs.high.ledger.x",
        "_INBOX.x.1",
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.hookfast-hints-ledger.high",
        "$JS.EVENT.ADVISORY.API",
        "$JS.ACK.hookfast-hints-ledger.high.1.1.1.1.1",
        "$JS.API.CONSUMER.MSG.NEXT.hookfast-hints-ledger.high",
    ];
    let all = subjects.chain(elsewhere.map(str::to_owned));
    all.flat_map(|subject| [message(&subject, b""), message(&subject, b"{\"batch\":1}\0\xff")]).collect()
}

#[test]
fn case_83_forged_messages_run_nothing_and_do_not_stay() {
    let nats = PrivateNats::start(NatsVersion::Current);
    let gateway = working(&nats).start();
    send(&gateway, 0..20);
    assert_each_handled_once(&gateway, 20);

    nats.publish(garbage());
    // Of jobs that have ended, in every spelling, and of jobs that never were.
    let ended = gateway.events().into_iter().map(|event| event.id.0);
    let spelt = ended.flat_map(|id| [id.to_string(), id.to_string().to_uppercase(), id.simple().to_string()]);
    let unknown = (0..2_000).map(|_| Uuid::new_v4().to_string());
    nats.publish(spelt.chain(unknown).map(|id| message(&format!("{HINTS}.normal.{id}"), b"")));
    // As if the server had something to say.
    let statuses =
        ["NATS/1.0 404\r\n\r\n", "NATS/1.0 408\r\n\r\n", "NATS/1.0 409 Gone\r\n\r\n", "NATS/1.0 503\r\n\r\n"];
    nats.publish(statuses.map(|headers| with_headers(&format!("{HINTS}.high.{}", Uuid::new_v4()), headers)));

    send(&gateway, 20..40);
    assert_each_handled_once(&gateway, 40);
    // The server hands a subject that ends in a literal wildcard to no consumer. There is one for each priority.
    eventually("nothing else stays among the hints", || nats.messages() <= 3);
    assert_eq!(gateway.events().len(), 40);
}

#[test]
fn case_83_messages_that_are_no_hints_take_no_room_from_hints() {
    let nats = PrivateNats::start(NatsVersion::Current);
    let gateway = working(&nats).variable("HOOKFAST_QUEUE__CAPACITY", "50").start();
    let subjects = (0..200).map(|number| format!("{HINTS}.{number}.{}.{}", number % 7, Uuid::new_v4()));
    nats.publish(subjects.map(|subject| message(&subject, b"")));
    send(&gateway, 0..20);
    assert_each_handled_once(&gateway, 20);
}

#[test]
fn case_83_hints_have_no_room_for_payloads() {
    static PAYLOAD: [u8; 1 << 20] = [b'x'; 1 << 20];
    let nats = PrivateNats::start(NatsVersion::Current);
    let gateway = working_on(&nats, Database::Postgres).role("receive", &[]).start();
    nats.publish((0..20).map(|_| message(&format!("{HINTS}.normal.{}", Uuid::new_v4()), &PAYLOAD)));
    send(&gateway, 0..5);
    let kept = || nats.ask("$JS.API.STREAM.INFO.hookfast-hints-ledger", &json!({}))["state"].clone();
    eventually("our own hints are taken", || kept()["messages"].as_u64().unwrap() >= 5);
    assert!(kept()["bytes"].as_u64().unwrap() < PAYLOAD.len() as u64, "{}", kept());
}

#[test]
fn case_83_a_flood_of_messages_is_a_line_a_second_in_the_log() {
    let nats = PrivateNats::start(NatsVersion::Current);
    let gateway = working(&nats).start();
    let start = std::time::Instant::now();
    nats.publish((0..1_000).map(|number| message(&format!("{HINTS}.normal.rubbish-{number}"), b"")));
    let lines = || gateway.log().lines().filter(|line| line.contains("to a stream of hints")).count() as u64;
    // The server may not have stored the first message yet.
    eventually("the messages are noticed", || lines() > 0);
    eventually("nothing stays among the hints", || nats.messages() == 0);
    let (lines, seconds) = (lines(), start.elapsed().as_secs());
    assert!(lines <= seconds + 1, "{lines} lines in {seconds} s");
    send(&gateway, 0..5);
    assert_each_handled_once(&gateway, 5);
}

//! Experiment 23: five times as many requests as the database can take. Each is answered in time, with a promise that is
//! kept or with a plain refusal, and memory does not grow with what waits.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hookfast_harness::{
    Client, Database, Gateway, Link, PrivatePostgres, Proxy, Setup, eventually, query, sample, sample_key,
};

use crate::rig::BINARY;

/// As each of them waits for its answer, so many are five times as many as get a place in the queue.
const CLIENTS: u64 = 80;
const QUEUE: u64 = 16;

/// Far longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway whose database is far away.
struct Slow {
    gateway: Gateway,
    store: String,
    link: Proxy,
    _postgres: PrivatePostgres,
}

impl Slow {
    fn new(ingest: &str) -> Self {
        let postgres = PrivatePostgres::start(&[]);
        let store = postgres.database();
        let link = Proxy::to_server_of(&store);
        let gateway = Setup::new(BINARY, Database::Sqlite)
            .store(&link.through(&store))
            .ingest(&format!("{ingest}\nbatch_events = 1"))
            .handlers("[handlers.actor]\npaused = true")
            // It would take what the database cannot.
            .variable("HOOKFAST_STORE__SPOOL", "false")
            .start();
        link.set(Link::Delayed(Duration::from_millis(20)));
        Self { gateway, store, link, _postgres: postgres }
    }
}

/// What the clients were told.
#[derive(Debug, Default)]
struct Told {
    promised: BTreeSet<String>,
    refused: usize,
    /// No answer, or one that it should not be.
    wrong: Vec<String>,
}

fn send_for(gateway: &Gateway, time: Duration) -> Told {
    let is_over = AtomicBool::new(false);
    let mut told = Told::default();
    thread::scope(|scope| {
        let send = |client| {
            scope.spawn({
                let is_over = &is_over;
                move || send_until(gateway, client, is_over)
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(send).collect();
        thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            let Told { promised, refused, wrong } = client.join().unwrap();
            told.promised.extend(promised);
            told.refused += refused;
            told.wrong.extend(wrong);
        }
    });
    told
}

fn send_until(gateway: &Gateway, client: u64, is_over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for serial in client * 1_000_000.. {
        match send(gateway, serial) {
            Ok((200, _)) => drop(told.promised.insert(sample_key(serial))),
            Ok((503, true)) => told.refused += 1,
            other => told.wrong.push(format!("{other:?}")),
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
    }
    told
}

/// The status, and whether it says when to come again.
fn send(gateway: &Gateway, serial: u64) -> io::Result<(u16, bool)> {
    let answer = Client::try_connect(gateway.ingest)?.with_patience(PATIENCE).send(&sample(serial))?;
    Ok((answer.status, answer.header("retry-after").is_some()))
}

#[test]
#[ignore = "nightly: it lasts a minute"]
fn five_times_too_much_is_answered_in_time_and_keeps_its_promises() {
    let slow = Slow::new(&format!("queue_requests = {QUEUE}"));
    let before = slow.gateway.peak_memory_bytes();
    let told = send_for(&slow.gateway, Duration::from_secs(60));
    assert_eq!(told.wrong, Vec::<String>::new());
    assert!(told.refused > 4 * told.promised.len(), "{} refused, {} not", told.refused, told.promised.len());
    assert!(!told.promised.is_empty(), "somebody gets through");
    let grown = slow.gateway.peak_memory_bytes() - before;
    assert!(grown < 64 << 20, "it took {grown} bytes more");
    slow.link.heal();
    eventually("it takes everything again", || send(&slow.gateway, u64::MAX).is_ok_and(|(status, _)| status == 200));
    let stored: Vec<_> = query(&slow.store, "SELECT dedupe_key FROM events").concat();
    let once: BTreeSet<_> = stored.iter().cloned().collect();
    assert_eq!(once.len(), stored.len(), "nothing is there twice");
    assert_eq!(told.promised.difference(&once).collect::<Vec<_>>(), Vec::<&String>::new(), "promised and lost");
}

#[test]
fn without_a_deadline_and_a_short_queue_too_much_hangs() {
    let slow = Slow::new("queue_requests = 100000\nanswer_deadline = \"10m\"");
    slow.link.set(Link::Delayed(Duration::from_secs(1)));
    let told = send_for(&slow.gateway, Duration::from_secs(1));
    assert!(!told.wrong.is_empty(), "everybody was answered in time: {told:?}");
}

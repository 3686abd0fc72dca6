#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::requests::Ids;

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const REFUSED: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy";
const WRONG: &str = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";

const STALL: Duration = Duration::from_millis(400);

/// A server that gives the answer that the number of the request asks for.
fn server(answer: fn(usize) -> &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let seen = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().map_while(Result::ok) {
            let seen = Arc::clone(&seen);
            std::thread::spawn(move || answer_all(stream, &seen, answer));
        }
    });
    address
}

/// Each request comes in one piece, because it is small.
fn answer_all(mut stream: TcpStream, seen: &AtomicUsize, answer: fn(usize) -> &'static str) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
        let answer = answer(seen.fetch_add(1, Ordering::Relaxed));
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn requests(count: usize) -> Arc<Requests> {
    Requests::sign(count, 0, Ids::Stripe).unwrap()
}

#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    let address = server(|number| {
        if number == 0 {
            std::thread::sleep(STALL);
        }
        TAKEN
    });
    let seen = open(address, &requests(20), 1, 100.0).unwrap();
    assert_eq!((seen.latencies.len(), seen.refused), (20, 0));
    // All of them were due in the first 200 ms, and waited until the stall was over.
    let waited = seen.latencies.iter().filter(|latency| **latency >= 190_000).count();
    assert_eq!(waited, 20, "{:?}", seen.latencies);
}

#[test]
fn a_closed_loop_does_not_see_who_waits() {
    let address = server(|number| {
        if number == 0 {
            std::thread::sleep(STALL);
        }
        TAKEN
    });
    let seen = closed(address, &requests(20), 1, Duration::from_secs(60), false).unwrap();
    let mut latencies = seen.latencies;
    latencies.sort_unstable();
    assert!(latencies[19] >= 400_000, "the stall itself is seen: {latencies:?}");
    assert!(latencies[0] < 190_000, "and most know nothing of it: {latencies:?}");
}

#[test]
fn every_request_is_sent_once_in_an_open_loop() {
    let seen = open(server(|_| TAKEN), &requests(500), 8, 5000.0).unwrap();
    assert_eq!(seen.latencies.len(), 500);
    assert!(seen.elapsed >= Duration::from_millis(99), "not before they were due: {:?}", seen.elapsed);
}

#[test]
fn requests_are_sent_again_only_if_that_is_allowed() {
    let address = server(|_| TAKEN);
    let once = closed(address, &requests(3), 2, Duration::from_secs(60), false).unwrap();
    assert_eq!(once.latencies.len(), 3);
    let again = closed(address, &requests(3), 2, Duration::from_millis(500), true).unwrap();
    assert!(again.latencies.len() > 3, "{}", again.latencies.len());
}

#[test]
fn a_503_is_counted_apart_and_the_rest_goes_on() {
    let address = server(|number| if number % 2 == 0 { REFUSED } else { TAKEN });
    let seen = closed(address, &requests(10), 1, Duration::from_secs(60), false).unwrap();
    assert_eq!((seen.latencies.len(), seen.refused), (5, 5));
}

#[test]
fn any_other_answer_ends_the_measurement() {
    let seen = closed(server(|_| WRONG), &requests(10), 1, Duration::from_secs(60), false);
    assert!(seen.err().unwrap().to_string().contains("401"));
}

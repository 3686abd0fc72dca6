//! Holding connections: two thousand clients that are slow, in four ways, while a genuine one is served.
//!
//! In each test only the deadline that it is about is short, so that no other one can close the connections.

use std::io::{self, Write};
use std::net::TcpStream;

use hookfast_harness::{Client, Gateway, Setup, eventually, post, sample};

use super::{assert_unharmed, raw, setup, stranger, unproved};

const SLOW_CLIENTS: usize = 2_000;

/// A gateway whose deadlines are all long, but for this one.
fn impatient(deadline: &str) -> Gateway {
    let long =
        ["header_timeout", "body_timeout", "stall_timeout", "idle_timeout"].into_iter().filter(|key| *key != deadline);
    let setup = long.fold(setup(), |setup: Setup, key| setup.ingest(&format!("{key} = \"10m\"")));
    setup.ingest(&format!("{deadline} = \"2s\"")).start()
}

/// Many connections, each with the same beginning of a request. They come from four addresses, because one may have
/// only 1,024.
fn flood(gateway: &Gateway, beginning: &[u8]) -> Vec<Client> {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    (0..SLOW_CLIENTS)
        .map(|number| {
            let mut client = stranger(gateway, 2 + (number % 4) as u8);
            client.write(beginning).unwrap();
            client
        })
        .collect()
}

fn assert_all_closed(mut clients: Vec<Client>) {
    assert!(clients.iter_mut().all(Client::is_closed));
}

#[test]
fn case_27_slow_heads_are_cut_off() {
    let gateway = impatient("header_timeout");
    let clients = flood(&gateway, b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\nx: ");
    assert_unharmed(&gateway);
    assert_all_closed(clients);
    // Nor does it help to send a little now and then.
    let mut dripping = stranger(&gateway, 2);
    dripping.write(b"POST /webhooks/stripe HTTP/1.1\r\nx: ").unwrap();
    eventually("a dripping head is cut off", || dripping.write(b"x").is_err());
}

#[test]
fn case_27_slow_bodies_are_cut_off() {
    let gateway = impatient("body_timeout");
    let beginning = b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{";
    let clients = flood(&gateway, beginning);
    assert_unharmed(&gateway);
    for mut client in clients {
        assert_eq!(client.read_answer().unwrap().status, 408);
        assert!(client.is_closed());
    }
    let mut dripping = stranger(&gateway, 2);
    dripping.write(b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n").unwrap();
    eventually("a dripping body is cut off", || dripping.write(b"x").is_err());
}

#[test]
fn case_27_silent_connections_are_closed() {
    let gateway = impatient("idle_timeout");
    let clients = flood(&gateway, b"");
    assert_unharmed(&gateway);
    assert_all_closed(clients);

    let mut silent_after_a_request = gateway.client();
    assert_eq!(silent_after_a_request.send(&sample(1)).unwrap().status, 200);
    assert!(silent_after_a_request.is_closed());
    let mut silent_in_a_body = gateway.client();
    let half = post(&sample(2));
    assert_eq!(silent_in_a_body.raw(&half[..half.len() - 10]).unwrap().status, 408);
    assert!(silent_in_a_body.is_closed());
}

/// A client that asks and asks and never reads an answer. Some megabytes of answers fit into the buffers of the system
/// before the gateway notices, which takes thousands of requests for each client: ten of them have to do.
#[test]
fn case_27_clients_that_never_read_are_cut_off() {
    const SLOW_READERS: usize = 10;
    let gateway = impatient("idle_timeout");
    let mut readers: Vec<_> = (0..SLOW_READERS).map(|_| slow_reader(&gateway)).collect();
    let requests = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2_000);
    for reader in &mut readers {
        let _ = reader.write(&requests);
    }
    assert_unharmed(&gateway);
    eventually("all are cut off", || {
        readers.retain_mut(|reader| is_still_open(reader.write(&requests)));
        readers.is_empty()
    });
    assert_eq!(raw(&gateway, b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").status, 200);
}

fn is_still_open(written: io::Result<usize>) -> bool {
    written.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true)
}

/// A connection that takes in as little as the system allows.
fn slow_reader(gateway: &Gateway) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1).unwrap();
        socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
        // A stream of tokio's does not block, which is what this client needs: it would wait for itself.
        socket.connect(gateway.ingest).await.unwrap().into_std().unwrap()
    })
}

/// The deadline for a head begins with its first byte, not with the connection's.
#[test]
fn case_27_a_busy_connection_is_not_a_slow_one() {
    let gateway = setup().ingest("header_timeout = \"300ms\"").start();
    let (mut client, mut resting) = (gateway.client(), gateway.client());
    resting.send(&unproved("t=1,v1=00", b"{}")).unwrap();
    let start = std::time::Instant::now();
    while start.elapsed() < std::time::Duration::from_secs(1) {
        for request in [&b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"[..], b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
            client.raw(request).expect("the connection stays open");
        }
    }
    // Nor is one that rests between two requests.
    resting.send(&unproved("t=1,v1=00", b"{}")).expect("the connection stays open");
    assert_unharmed(&gateway);
}

//! What a hostile server answers to `hookfast simulate`, the only command that sends requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hookfast_harness::Ended;

use super::logs::{NASTY, deceives};
use super::setup;

/// How long one request may take at most, with time to spare for a busy machine. Its sender gives up after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server that does this with every connection.
fn server(answer: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 64 << 10]);
                answer(stream);
            });
        }
    });
    address
}

/// Sends this once the request is here.
fn answering(bytes: Vec<u8>) -> SocketAddr {
    server(move |mut stream| drop(stream.write_all(&bytes)))
}

/// Sends a beginning, and then more of the same until the other side has had enough.
fn endless(beginning: &'static [u8], more: &'static [u8], pause: Duration) -> SocketAddr {
    server(move |mut stream| {
        let mut written = stream.write_all(beginning);
        while written.is_ok() {
            thread::sleep(pause);
            written = stream.write_all(more);
        }
    })
}

/// Plays GitHub, which sends a request once, against this server.
fn simulate(server: SocketAddr, arguments: &[&str]) -> Ended {
    let url = format!("http://{server}");
    let github = "[sources.github]\nprovider = \"github\"\nsecrets = [\"0123456789abcdef\"]";
    setup().sections(github).command(&[&["simulate", "github", "--gateway", &url], arguments].concat())
}

#[test]
fn case_55_answers_without_an_end_are_given_up() {
    const AT_ONCE: Duration = Duration::ZERO;
    const SLOWLY: Duration = Duration::from_millis(200);
    let servers = [
        endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1000\r\n", AT_ONCE),
        endless(b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n", &[b' '; 1 << 16], AT_ONCE),
        endless(b"HTTP/1.1 200 OK\r\nx: ", &[b'x'; 1 << 16], AT_ONCE),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", AT_ONCE),
        endless(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", b" ", SLOWLY),
        endless(b"HTTP/1.1 200 OK\r\nx: ", b"x", SLOWLY),
        server(|_stream| thread::sleep(PATIENCE)),
    ];
    thread::scope(|scope| {
        for (number, server) in servers.into_iter().enumerate() {
            scope.spawn(move || {
                let start = Instant::now();
                let ended = simulate(server, &["--json"]);
                assert_eq!((ended.code, &ended.json()["answers"]["no answer"]), (1, &1.into()), "{number}: {ended:?}");
                assert!(start.elapsed() < PATIENCE, "{number}: {:?}", start.elapsed());
            });
        }
    });
}

#[test]
fn case_55_answers_that_are_no_http_are_no_answer() {
    for garbage in [
        &b""[..],
        b"\0\0\0\0",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 99999 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    ] {
        let ended = simulate(answering(garbage.to_vec()), &[]);
        assert_eq!(ended.code, 1, "{garbage:?}: {ended:?}");
        assert!(ended.errors.is_empty() && !ended.output.contains("panicked"), "{garbage:?}: {ended:?}");
    }
}

/// A wait of centuries, and text that a terminal obeys or that looks like a line of the report.
#[test]
fn case_55_answers_do_not_deceive_a_terminal() {
    for text in NASTY.into_iter().chain(["x\nanswers   1 x 200\nrate      9"]) {
        let printed_only: String = text.chars().filter(|character| !character.is_control()).collect();
        let head = format!("HTTP/1.1 400 {printed_only}\r\nretry-after: 18446744073709551615\r\nx: {printed_only}\r\n");
        let answer = format!("{head}content-length: {}\r\n\r\n{text}", text.len());
        let server = answering(answer.into_bytes());
        for form in [&[][..], &["--json"]] {
            let Ended { output, errors, code, .. } = simulate(server, form);
            assert_eq!(code, 1, "{output}{errors}");
            assert!(!(output.clone() + &errors).chars().any(|character| character != '\n' && deceives(character)));
            let lines = if form.is_empty() { 5 } else { 1 };
            assert_eq!(output.lines().count(), lines, "{output}");
        }
    }
}

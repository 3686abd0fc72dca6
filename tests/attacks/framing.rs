//! Where one request ends and the next begins.

use hookfast_harness::{Gateway, post, sample};
use hookfast_webhook::Request;

use super::{SIGNATURE, assert_recorded, assert_serves, assert_unharmed, gateway, raw, setup, to_path};

/// The request that an attacker tries to get past a proxy in the body of another one. It is genuine, so that it would be
/// recorded if it were ever taken for a request.
fn smuggled() -> String {
    String::from_utf8(post(&sample(666))).unwrap()
}

/// A gateway that closes connections soon, so that a test can read until the end.
fn brief_gateway() -> Gateway {
    setup().ingest("header_timeout = \"500ms\"\nidle_timeout = \"500ms\"\nbody_timeout = \"500ms\"").start()
}

/// The statuses of all answers on one connection.
fn statuses(gateway: &Gateway, bytes: &[u8]) -> Vec<u16> {
    let mut client = gateway.client();
    // The gateway may close before everything is written.
    let _ = client.write(bytes);
    let answers = String::from_utf8(client.read_rest()).unwrap();
    answers.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect()
}

/// What is sent ends with the smuggled request; whatever is answered, the smuggled one is not processed.
fn assert_not_smuggled(gateway: &Gateway, what: &str, bytes: &str) {
    let statuses = statuses(gateway, bytes.as_bytes());
    let accepted = statuses.iter().filter(|status| (200..300).contains(*status)).count();
    assert!(accepted <= 1 && statuses.len() <= 1, "{what}: {statuses:?}");
    assert_recorded(gateway, &[]);
}

#[test]
fn case_28_two_lengths_smuggle_nothing() {
    let gateway = brief_gateway();
    let smuggled = smuggled();
    let length = smuggled.len();
    // One side would take the first length and see two requests, the other the second and see one.
    for framing in [
        format!("content-length: 0\r\ncontent-length: {length}"),
        format!("content-length: {length}\r\ncontent-length: 0"),
        format!("content-length: 0, {length}"),
        format!("content-length: {length}\r\nContent-Length : 0"),
        "content-length: +0".into(),
        "content-length: 0x0".into(),
        "content-length: 0 0".into(),
        "content-length: -1".into(),
        "content-length:".into(),
        "content-length: 18446744073709551616".into(),
        "content-length: \u{b}0".into(),
    ] {
        let request = format!("POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{smuggled}");
        assert_not_smuggled(&gateway, &framing, &request);
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_28_a_length_beside_chunks_smuggles_nothing() {
    let gateway = brief_gateway();
    let smuggled = smuggled();
    let length = smuggled.len() + 5;
    for encoding in [
        "transfer-encoding: chunked",
        "Transfer-Encoding: CHUNKED",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunked;q=1",
        "transfer-encoding: \u{b}chunked",
        "transfer-encoding:\tchunked",
        "transfer-encoding : chunked",
        " transfer-encoding: chunked",
        "x: y\r\n transfer-encoding: chunked",
        "x: y\ntransfer-encoding: chunked",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding: \"chunked\"",
    ] {
        for framing in [format!("content-length: {length}\r\n{encoding}"), format!("{encoding}\r\ncontent-length: 5")] {
            let request = format!("POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n0\r\n\r\n{smuggled}");
            assert_not_smuggled(&gateway, &framing, &request);
        }
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_28_broken_heads_smuggle_nothing() {
    let gateway = brief_gateway();
    let smuggled = smuggled();
    let length = smuggled.len();
    for (what, head) in [
        ("a folded line", format!("host: a\r\nx: y\r\n content-length: 0\r\ncontent-length: {length}")),
        ("a folded length", format!("host: a\r\ncontent-length:\r\n {length}")),
        ("a bare LF that hides a length", format!("host: a\r\nx: y\ncontent-length: 0\r\ncontent-length: {length}")),
        ("a bare CR that hides a length", format!("host: a\r\nx: y\rcontent-length: 0\r\ncontent-length: {length}")),
        ("a blank before the colon", format!("host: a\r\ncontent-length : {length}")),
        ("a blank before the name", format!(" host: a\r\ncontent-length: {length}")),
        ("a NUL in a value", format!("host: a\r\nx: \0\r\ncontent-length: {length}")),
        ("a line without a colon", format!("host: a\r\nx\r\ncontent-length: {length}")),
        ("a nameless header", format!("host: a\r\n: x\r\ncontent-length: {length}")),
    ] {
        let request = format!("POST /webhooks/stripe HTTP/1.1\r\n{head}\r\n\r\n{smuggled}");
        assert_not_smuggled(&gateway, what, &request);
    }
    assert_not_smuggled(
        &gateway,
        "chunks in HTTP/1.0",
        &format!("POST /webhooks/stripe HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
    );
    assert_unharmed(&gateway);
}

#[test]
fn case_28_broken_chunks_smuggle_nothing() {
    let gateway = brief_gateway();
    let smuggled = smuggled();
    let length = smuggled.len();
    for (what, chunks) in [
        ("a signed size", "+0\r\n\r\n".to_owned()),
        ("a negative size", "-1\r\n\r\n".into()),
        ("a size with a prefix", "0x0\r\n\r\n".into()),
        ("a size that overflows", "10000000000000000\r\n\r\n".into()),
        ("a size that is none", "zz\r\n\r\n".into()),
        ("no size", "\r\n\r\n".into()),
        ("a size ended by a bare CR", "0\r\r\n\r\n".into()),
        ("a size ended by a bare LF", "1\nx\n0\n\n".into()),
        ("a bare LF in an extension", "1;x\n\r\nx\r\n0\r\n\r\n".into()),
        ("more data than the size says", "1\r\nxyz\r\n0\r\n\r\n".into()),
        ("less data than the size says", format!("{:x}\r\n0\r\n\r\n", length + 5)),
        ("a long extension", format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(20_000))),
        ("endless extensions", format!("{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "x".repeat(1000)).repeat(30))),
        ("a broken trailer", "0\r\nx y\r\n\r\n".into()),
        ("an endless trailer", format!("0\r\n{}\r\n", "x: y\r\n".repeat(20_000))),
    ] {
        let head = "POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_not_smuggled(&gateway, what, &format!("{head}{chunks}{smuggled}"));
    }
    assert_unharmed(&gateway);
}

/// A request that is answered before its body was read leaves a body behind, which is not the next request.
#[test]
fn case_28_an_unread_body_is_not_the_next_request() {
    let gateway = brief_gateway();
    let smuggled = smuggled();
    let length = smuggled.len();
    for line in ["GET /livez", "GET /webhooks/stripe", "POST /nowhere", "POST /webhooks/nobody", "POST /livez"] {
        let head = format!("{line} HTTP/1.1\r\nhost: a\r\n");
        assert_not_smuggled(&gateway, line, &format!("{head}content-length: {length}\r\n\r\n{smuggled}"));
        assert_not_smuggled(
            &gateway,
            line,
            &format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{smuggled}\r\n0\r\n\r\n"),
        );
    }
    assert_unharmed(&gateway);
}

/// The head of a request that wants to be asked for its body.
fn expecting(request: &Request, length: usize) -> Vec<u8> {
    let bytes = post(request);
    let head = String::from_utf8(bytes[..bytes.len() - request.body.len()].to_vec()).unwrap();
    let head = head.replace(&format!("content-length: {}", request.body.len()), &format!("content-length: {length}"));
    head.replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n").into_bytes()
}

#[test]
fn case_41_a_body_that_would_be_rejected_is_not_asked_for() {
    let gateway = setup().source("body_limit = \"1KiB\"").start();
    assert_eq!(raw(&gateway, &expecting(&sample(1), 1025)).status, 413);
    assert_eq!(raw(&gateway, &expecting(&to_path("/webhooks/nobody", sample(1)), 10)).status, 404);
    let get = Request { method: ::http::Method::GET, ..sample(1) };
    assert_eq!(raw(&gateway, &expecting(&get, 10)).status, 405);
    assert_unharmed(&gateway);
}

#[test]
fn case_41_what_follows_a_refused_expectation_is_not_a_request() {
    let gateway = brief_gateway();
    let refused = expecting(&to_path("/webhooks/nobody", sample(1)), 10);
    let statuses = statuses(&gateway, &[refused, smuggled().into_bytes()].concat());
    // What follows is taken for the body, as HTTP has it; the rest of it is no request.
    assert!(matches!(statuses[..], [404] | [404, 400]), "{statuses:?}");
    assert_unharmed(&gateway);
}

#[test]
fn case_41_a_genuine_request_is_asked_for_its_body() {
    let gateway = gateway();
    let request = sample(1);
    let mut client = gateway.client();
    assert_eq!(client.raw(&expecting(&request, request.body.len())).unwrap().status, 100);
    assert_eq!(client.raw(&request.body).unwrap().status, 200);
    assert_recorded(&gateway, &["evt_sample_1"]);

    // Asking for a forged one is no harm: it is refused when it is whole.
    let mut client = gateway.client();
    let forged = sample(2);
    assert_eq!(client.raw(&expecting(&forged, request.body.len())).unwrap().status, 100);
    assert_eq!(client.raw(&request.body).unwrap().status, 401);
    assert_recorded(&gateway, &["evt_sample_1"]);
}

#[test]
fn case_42_http_1_0_is_served_and_its_connection_closed() {
    let gateway = gateway();
    let old = |request: &Request| String::from_utf8(post(request)).unwrap().replace("HTTP/1.1", "HTTP/1.0");
    let mut client = gateway.client();
    assert_eq!(client.raw(old(&sample(1)).as_bytes()).unwrap().status, 200);
    assert!(client.is_closed());
    let without_host = old(&sample(2)).replace("host: hooks.example.com\r\n", "");
    assert_eq!(raw(&gateway, without_host.as_bytes()).status, 200);
    let unsigned = old(&sample(3)).replace(SIGNATURE, "x-signature");
    assert_eq!(raw(&gateway, unsigned.as_bytes()).status, 401);
    assert_recorded(&gateway, &["evt_sample_2", "evt_sample_1"]);
    assert_serves(&gateway);
}

#[test]
fn case_42_pipelined_requests_are_answered_in_order_and_each_is_judged_alone() {
    let gateway = gateway();
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for serial in 0..30 {
        let forged = Request { body: sample(1000).body, ..sample(serial) };
        bytes.extend(post(&sample(serial)));
        bytes.extend(post(&forged));
        bytes.extend(post(&to_path("/webhooks/nobody", sample(serial))));
        expected.extend([200, 401, 404]);
    }
    let mut client = gateway.client();
    client.write(&bytes).unwrap();
    let answers: Vec<_> = expected.iter().map(|_| client.read_answer().unwrap().status).collect();
    assert_eq!(answers, expected);
    let keys: Vec<_> = (0..30).rev().map(|serial| format!("evt_sample_{serial}")).collect();
    assert_recorded(&gateway, &keys.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn case_42_an_upgrade_is_ignored_and_another_protocol_refused() {
    let gateway = brief_gateway();
    for (serial, upgrade) in [(1, "h2c"), (2, "websocket"), (3, "TLS/1.0")] {
        let headers =
            format!("connection: upgrade, http2-settings\r\nupgrade: {upgrade}\r\nhttp2-settings: AAMAAABk\r\n");
        let request = String::from_utf8(post(&sample(serial))).unwrap().replace("host:", &format!("{headers}host:"));
        let statuses = statuses(&gateway, request.as_bytes());
        assert_eq!(statuses, [200], "{upgrade}: the request counts, the wish does not");
    }
    let preface = format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{}", smuggled());
    let statuses = statuses(&gateway, preface.as_bytes());
    assert!(statuses.iter().all(|status| *status == 400), "{statuses:?}");
    assert_recorded(&gateway, &["evt_sample_3", "evt_sample_2", "evt_sample_1"]);
    assert_serves(&gateway);
}

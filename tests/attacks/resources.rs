//! Taking more than one's share: of memory, of connections, of requests.

use hookfast_harness::{Answer, Client, Gateway, eventually, post, sample};

use super::{assert_recorded, assert_serves, assert_unharmed, setup, stranger, with_header};

/// A gateway that takes bodies of up to 64 KiB.
fn small_gateway() -> Gateway {
    setup().source("body_limit = \"64KiB\"").ingest("body_timeout = \"500ms\"").start()
}

fn head(framing: &str) -> Vec<u8> {
    format!("POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n").into_bytes()
}

#[test]
fn case_25_a_body_over_the_limit_is_refused_by_what_it_claims() {
    let gateway = small_gateway();
    for claimed in ["65537", "99999999999", "18446744073709551615"] {
        let mut client = gateway.client();
        // Not a byte of the body is sent: the answer does not wait for it.
        let answer = client.raw(&head(&format!("content-length: {claimed}"))).unwrap();
        assert!(matches!(answer.status, 413 | 431), "{claimed}: {}", answer.status);
        assert!(client.is_closed(), "what follows is not read");
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_25_a_chunked_body_is_cut_at_the_limit() {
    let gateway = small_gateway();
    let chunk = [b"2000\r\n", &[b' '; 0x2000][..], b"\r\n"].concat();
    let mut client = gateway.client();
    client.write(&head("transfer-encoding: chunked")).unwrap();
    // It would go on for ever.
    eventually("the gateway has had enough", || client.write(&chunk).is_err());
    let rejected = r#"hookfast_ingest_requests_total{source="stripe",outcome="too_large"}"#;
    assert!((gateway.metric(rejected) - 1.0).abs() < f64::EPSILON);

    let mut client = gateway.client();
    client.write(&[head("transfer-encoding: chunked"), chunk.repeat(8)].concat()).unwrap();
    assert_eq!(client.raw(b"1\r\n ").unwrap().status, 413, "it is refused at the first byte beyond");
    assert_unharmed(&gateway);
}

#[test]
fn case_25_a_length_that_lies_is_no_way_in() {
    let gateway = small_gateway();
    let request = sample(1);
    let claim = |length: usize| {
        let honest = format!("content-length: {}", request.body.len());
        String::from_utf8(post(&request)).unwrap().replace(&honest, &format!("content-length: {length}"))
    };
    // It claims more, and waits: the body never comes. Or it goes away.
    assert_eq!(gateway.client().raw(claim(request.body.len() + 1).as_bytes()).unwrap().status, 408);
    let mut client = gateway.client();
    client.write(claim(request.body.len() + 1).as_bytes()).unwrap();
    client.finish_writing();
    assert!(client.read_answer().map_or(true, |answer| answer.status == 400));
    // It claims less: what is read is not what was signed, and the rest is no request.
    let mut client = gateway.client();
    client.write(claim(request.body.len() - 1).as_bytes()).unwrap();
    assert_eq!(client.read_answer().unwrap().status, 401);
    assert_eq!(gateway.client().raw(claim(0).as_bytes()).unwrap().status, 401);
    assert_unharmed(&gateway);
}

#[test]
fn case_25_all_bodies_together_have_a_limit() {
    let gateway = setup().source("body_limit = \"512KiB\"").ingest("body_memory = \"1MiB\"").start();
    let claimed = head("content-length: 500000");
    let half_sent = || {
        let mut client = gateway.client();
        client.write(&[claimed.clone(), vec![b' '; 400_000]].concat()).unwrap();
        client
    };
    // Two fit. Whichever comes third is sent away.
    let mut clients: Vec<_> = (0..3).map(|_| half_sent()).collect();
    eventually("one is refused", || gateway.metric(OVERLOADED) > 0.0);
    // Small ones still find their place, and the memory comes back.
    assert_unharmed(&gateway);
    clients.clear();
    eventually("the memory comes back", || {
        let unsigned = [claimed.clone(), vec![b' '; 500_000]].concat();
        gateway.client().raw(&unsigned).unwrap().status == 401
    });
}

pub(crate) const OVERLOADED: &str = r#"hookfast_ingest_requests_total{source="stripe",outcome="overloaded"}"#;

pub(crate) fn refused_connections(gateway: &Gateway) -> f64 {
    gateway.metric("hookfast_connections_refused_total")
}

/// Asks for nothing but an answer.
fn knock(client: &mut Client) -> Option<Answer> {
    client.raw(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n").ok()
}

fn is_admitted(client: &mut Client) -> bool {
    knock(client).is_some_and(|answer| answer.status == 200)
}

#[test]
fn case_37_one_address_cannot_take_every_connection() {
    let gateway = setup().ingest("connections_per_address = 5").start();
    let mut greedy: Vec<_> = (0..5).map(|_| stranger(&gateway, 2)).collect();
    assert!(greedy.iter_mut().all(is_admitted));
    let mut one_more = stranger(&gateway, 2);
    // The refusal may be lost with the connection; what counts is that there is no place.
    assert!(knock(&mut one_more).is_none_or(|answer| answer.status == 503));
    assert!(one_more.is_closed());
    assert!((refused_connections(&gateway) - 1.0).abs() < f64::EPSILON);
    assert_unharmed(&gateway);

    greedy.pop();
    eventually("the place comes back", || is_admitted(&mut stranger(&gateway, 2)));
}

#[test]
fn case_37_all_connections_together_have_a_limit() {
    let gateway = setup().ingest("connections = 12\nconnections_per_address = 6").start();
    let mut strangers: Vec<_> = (0..12).map(|number| stranger(&gateway, 2 + number % 2)).collect();
    assert!(strangers.iter_mut().all(is_admitted));
    // The longest silent one gives way, and no other.
    assert!(is_admitted(&mut gateway.client()));
    assert!(strangers.remove(0).is_closed());
    assert!(strangers.iter_mut().all(is_admitted));
    assert!(gateway.metric("hookfast_connections") <= 12.0);
    strangers.clear();
    eventually("the places come back", || is_admitted(&mut gateway.client()));
    assert_unharmed(&gateway);
}

/// The addresses are those that a client may write into `X-Forwarded-For`; `2001:db8:0:1::/64` is one host that hops.
#[test]
fn case_38_a_forged_address_does_not_dodge_the_rate_limit() {
    let gateway = setup().ingest("rate_per_address = \"3/m\"").start();
    let statuses: Vec<_> = (1..=5)
        .map(|serial| {
            let forged = with_header(sample(serial), "x-forwarded-for", format!("198.51.100.{serial}").as_bytes());
            gateway.client().send(&with_header(forged, "x-real-ip", b"192.0.2.1")).unwrap().status
        })
        .collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_recorded(&gateway, &["evt_sample_3", "evt_sample_2", "evt_sample_1"]);
    // Others are not limited with it.
    assert_eq!(stranger(&gateway, 2).send(&sample(6)).unwrap().status, 200);
}

#[test]
fn case_38_hopping_behind_a_trusted_proxy_does_not_dodge_the_rate_limit() {
    let gateway = setup().ingest("rate_per_address = \"3/m\"\ntrusted_proxies = [\"127.0.0.1/32\"]").start();
    let send = |forwarded: String| {
        let answer = gateway.client().send(&with_header(sample(1), "x-forwarded-for", forwarded.as_bytes())).unwrap();
        (answer.status, answer.header("retry-after").is_some())
    };
    // What stands left of the address that the proxy wrote is the client's own invention.
    let invented: Vec<_> = (0..5).map(|number| send(format!("192.0.2.{number}, 198.51.100.7"))).collect();
    let hopping: Vec<_> = (0..5).map(|number| send(format!("2001:db8:0:1::{number}"))).collect();
    let mapped: Vec<_> = (0..5).map(|number| send(format!("[::ffff:198.51.100.8]:{}", 1024 + number))).collect();
    for answers in [invented, hopping, mapped] {
        assert_eq!(answers, [(200, false), (200, false), (200, false), (429, true), (429, true)]);
    }
    assert_eq!(send("2001:db8:0:2::1".into()).0, 200, "a neighbour is another client");
    assert_recorded(&gateway, &["evt_sample_1"]);
    assert_serves_others(&gateway);
}

fn assert_serves_others(gateway: &Gateway) {
    let other = with_header(sample(2), "x-forwarded-for", b"203.0.113.1");
    assert_eq!(gateway.client().send(&other).unwrap().status, 200);
    assert_serves(gateway);
}

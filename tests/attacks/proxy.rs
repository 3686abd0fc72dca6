//! Claiming another address: the headers that proxies write.

use hookfast_harness::{Gateway, Setup, sample};
use hookfast_webhook::Request;

use super::{assert_recorded, assert_serves, assert_unharmed, setup, stranger, with_header};

const ALLOWED: &str = "203.0.113.7";

/// A gateway that takes requests of one client only.
fn guarded() -> Setup {
    setup().source(&format!("allow_from = [\"{ALLOWED}\"]"))
}

/// The same behind a proxy on 127.0.0.1.
fn guarded_behind_proxy() -> Gateway {
    guarded().ingest("trusted_proxies = [\"127.0.0.1/32\", \"10.0.0.0/8\"]").start()
}

fn forwarded(serial: u64, addresses: &str) -> Request {
    with_header(sample(serial), "x-forwarded-for", addresses.as_bytes())
}

fn status(gateway: &Gateway, request: &Request) -> u16 {
    gateway.client().send(request).unwrap().status
}

#[test]
fn case_43_forwarded_headers_of_an_untrusted_peer_count_for_nothing() {
    let gateway = guarded().start();
    for header in ["x-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip", "x-forwarded"] {
        assert_eq!(status(&gateway, &with_header(sample(1), header, ALLOWED.as_bytes())), 403, "{header}");
    }
    let standard = with_header(sample(1), "forwarded", format!("for={ALLOWED};proto=https").as_bytes());
    assert_eq!(status(&gateway, &standard), 403);
    assert_recorded(&gateway, &[]);

    // A proxy is trusted by its own address; another machine is not, whatever it forwards.
    let behind_proxy = guarded_behind_proxy();
    assert_eq!(stranger(&behind_proxy, 2).send(&forwarded(1, ALLOWED)).unwrap().status, 403);
    assert_recorded(&behind_proxy, &[]);
    assert_eq!(status(&behind_proxy, &forwarded(1, ALLOWED)), 200);
}

#[test]
fn case_43_the_recorded_address_is_the_peers() {
    let gateway = setup().start();
    assert_eq!(stranger(&gateway, 3).send(&forwarded(1, ALLOWED)).unwrap().status, 200);
    assert_eq!(gateway.event(gateway.events()[0].id).remote_address, "127.0.0.3");
    assert_serves(&gateway);
}

#[test]
fn case_44_the_client_is_counted_from_the_right() {
    let gateway = guarded_behind_proxy();
    for invented in [
        format!("{ALLOWED}, 198.51.100.9"),
        format!("{ALLOWED}, {ALLOWED}, 198.51.100.9"),
        format!("{ALLOWED}, 198.51.100.9, 10.0.0.3"),
        format!("{ALLOWED},198.51.100.9,127.0.0.1"),
        format!("{ALLOWED}, unknown"),
        format!("{ALLOWED}, "),
        format!("{ALLOWED}\t198.51.100.9"),
        "unknown".into(),
        String::new(),
    ] {
        assert_eq!(status(&gateway, &forwarded(1, &invented)), 403, "{invented}");
    }
    // A second line is read as the end of the first one.
    let mut two_lines = forwarded(1, ALLOWED);
    two_lines.headers.append("x-forwarded-for", "198.51.100.9".parse().unwrap());
    assert_eq!(status(&gateway, &two_lines), 403);
    assert_recorded(&gateway, &[]);

    let genuine = forwarded(1, &format!("198.51.100.9, {ALLOWED}, 10.0.0.3"));
    assert_eq!(status(&gateway, &genuine), 200);
    assert_eq!(gateway.event(gateway.events()[0].id).remote_address, ALLOWED);
}

#[test]
fn case_45_only_the_configuration_decides_the_url() {
    const PUBLIC: &str = "https://hooks.example.com";
    for trust in ["", "trusted_proxies = [\"127.0.0.1/32\"]"] {
        let gateway = setup().ingest(&format!("public_url = \"{PUBLIC}\"\n{trust}")).start();
        let headers: [(&str, &[u8]); 8] = [
            ("x-forwarded-host", b"evil.example"),
            ("x-forwarded-proto", b"gopher"),
            ("x-forwarded-port", b"1"),
            ("x-forwarded-prefix", b"/evil"),
            ("forwarded", b"host=evil.example;proto=http"),
            ("x-original-url", b"/evil"),
            ("x-rewrite-url", b"/evil"),
            ("front-end-https", b"off"),
        ];
        let request = headers.into_iter().fold(sample(1), |request, (name, value)| with_header(request, name, value));
        assert_eq!(status(&gateway, &request), 200);
        assert_eq!(gateway.event(gateway.events()[0].id).url, format!("{PUBLIC}/webhooks/stripe"));
        assert_serves(&gateway);
    }
}

#[test]
fn case_46_an_address_is_the_same_in_every_spelling() {
    let gateway = guarded_behind_proxy();
    let spellings = [
        ALLOWED.to_owned(),
        format!("{ALLOWED}:4711"),
        format!("::ffff:{ALLOWED}"),
        format!("[::ffff:{ALLOWED}]"),
        format!("[::ffff:{ALLOWED}]:4711"),
        "::ffff:cb00:7107".into(),
        format!("{ALLOWED}, ::ffff:10.0.0.3"),
    ];
    for spelling in &spellings {
        assert_eq!(status(&gateway, &forwarded(1, spelling)), 200, "{spelling}");
    }
    assert_recorded(&gateway, &["evt_sample_1"]);
    // What only looks like the address is another one, or none.
    for other in ["203.0.113.07", "203.0.113.7.", "0xcb.0.113.7", "3405803783", "::203.0.113.7", "64:ff9b::203.0.113.7"]
        .map(String::from)
        .into_iter()
        .chain([format!("{ALLOWED}%eth0"), format!("[{ALLOWED}%eth0]:1"), format!("fe80::1%{ALLOWED}")])
    {
        assert_eq!(status(&gateway, &forwarded(2, &other)), 403, "{other}");
    }
    assert_recorded(&gateway, &["evt_sample_1"]);
}

#[test]
fn case_47_an_empty_allow_list_means_nobody() {
    let closed = setup().source("allow_from = []").start();
    assert_eq!(status(&closed, &sample(1)), 403);
    assert_eq!(status(&closed, &forwarded(1, ALLOWED)), 403);
    assert_recorded(&closed, &[]);

    let open = setup().source("allow_from = [\"127.0.0.0/8\"]").start();
    assert_unharmed(&open);
}

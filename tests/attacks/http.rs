//! Odd requests: too big, another method, another host, another path.

use hookfast_harness::{Gateway, post, sample};

use super::{assert_recorded, assert_serves, assert_unharmed, gateway, raw, setup, to_path, with_header};

/// A genuine request as text, to be spoiled in one place.
fn genuine() -> String {
    String::from_utf8(post(&sample(1))).unwrap()
}

fn status(gateway: &Gateway, request: &str) -> u16 {
    raw(gateway, request.as_bytes()).status
}

#[test]
fn case_30_a_head_that_is_too_big_is_refused() {
    let gateway = gateway();
    let with = |headers: &str| genuine().replace("host:", &format!("{headers}host:"));
    // The limit is 64 KiB, but a last read may go beyond it.
    let long_value = with(&format!("x: {}\r\n", "x".repeat(200_000)));
    let long_name = with(&format!("{}: x\r\n", "x".repeat(200_000)));
    let many_large = with(&format!("x: {}\r\n", "x".repeat(2_500)).repeat(80));
    let many_small = with(&"x: y\r\n".repeat(101));
    for request in [long_value, long_name, many_large, many_small] {
        assert_eq!(status(&gateway, &request), 431);
    }
    let long_url = genuine().replace("/stripe", &format!("/stripe?{}", "x".repeat(70_000)));
    assert!(matches!(status(&gateway, &long_url), 414 | 431));
    let long_method = format!("{}{}", "A".repeat(200_000), genuine());
    assert!(matches!(status(&gateway, &long_method), 400 | 431));
    assert_unharmed(&gateway);

    assert_eq!(status(&gateway, &with(&format!("x: {}\r\n", "x".repeat(200)).repeat(90))), 200, "much is not too much");
}

#[test]
fn case_31_only_the_providers_method_is_taken() {
    let gateway = gateway();
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post", "PoSt", "POSTX", "M-SEARCH"]
    {
        let answer = raw(&gateway, genuine().replacen("POST", method, 1).as_bytes());
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
        // TRACE would show a script the headers that it must not see.
        assert!(!answer.text().contains("v1="), "{method} echoes the request");
    }
    // The answer to HEAD has no body, whatever its length says.
    let mut client = gateway.client();
    client
        .write(genuine().replacen("POST", "HEAD", 1).replace("host:", "connection: close\r\nhost:").as_bytes())
        .unwrap();
    let answer = String::from_utf8(client.read_rest()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    let tunnel = genuine().replacen("POST /webhooks/stripe", "CONNECT hooks.example.com:80", 1);
    assert!(matches!(status(&gateway, &tunnel), 400 | 404 | 405));
    assert_unharmed(&gateway);
}

#[test]
fn case_31_a_header_cannot_override_the_method() {
    let gateway = gateway();
    for header in ["x-http-method-override", "x-http-method", "x-method-override"] {
        let get = hookfast_webhook::Request { method: ::http::Method::GET, ..with_header(sample(1), header, b"POST") };
        assert_eq!(
            gateway.client().send(&to_path("/webhooks/stripe?_method=POST", get)).unwrap().status,
            405,
            "{header}"
        );
    }
    assert_unharmed(&gateway);
    let post = with_header(sample(1), "x-http-method-override", b"DELETE");
    assert_eq!(gateway.client().send(&post).unwrap().status, 200, "and a POST stays one");
}

#[test]
fn case_32_a_host_that_is_missing_doubled_or_contradicted_is_refused() {
    let gateway = gateway();
    let host = |lines: &str| genuine().replace("host: hooks.example.com\r\n", lines);
    for (what, request) in [
        ("missing", host("")),
        ("empty", host("host:\r\n")),
        ("doubled", host("host: hooks.example.com\r\nhost: hooks.example.com\r\n")),
        ("two", host("host: hooks.example.com\r\nhost: evil.example\r\n")),
        ("a list", host("host: hooks.example.com, evil.example\r\n")),
        ("with a path", host("host: hooks.example.com/webhooks\r\n")),
        ("with a user", host("host: hooks.example.com@evil.example\r\n")),
        ("with a blank", host("host: hooks.example.com evil.example\r\n")),
        ("another one in the URL", genuine().replace("POST /", "POST http://evil.example/")),
    ] {
        assert_eq!(status(&gateway, &request), 400, "{what}");
    }
    assert_unharmed(&gateway);
    let absolute = genuine().replace("POST /", "POST http://hooks.example.com/");
    assert_eq!(status(&gateway, &absolute), 200, "the same host in both places is right");
}

/// Which host was asked for decides nothing, so there is nothing to gain by naming another one.
#[test]
fn case_32_another_host_does_not_change_the_stored_url() {
    let gateway = setup().ingest("public_url = \"https://hooks.example.com\"").start();
    assert_eq!(status(&gateway, &genuine().replace("host: hooks.example.com", "host: evil.example")), 200);
    assert_eq!(gateway.event(gateway.events()[0].id).url, "https://hooks.example.com/webhooks/stripe");
}

#[test]
fn case_33_a_path_leads_to_its_source_or_nowhere() {
    let gateway = gateway();
    for path in [
        "/",
        "//webhooks/stripe",
        "/webhooks//stripe",
        "/webhooks/",
        "/webhooks/stripe/",
        "/webhooks/./stripe",
        "/webhooks/x/../stripe",
        "/webhooks/../webhooks/stripe",
        "/webhooks/stripe/..",
        "/webhooks/stripe/../stripe",
        "/webhooks/stripe/a/b/c",
        "/webhooks/%73tripe",
        "/webhooks/stripe%00",
        "/webhooks/stripe%0a",
        "/webhooks/stripe%20",
        "/webhooks/stripe%2f",
        "/webhooks%2fstripe",
        "/webhooks/%2e%2e%2fwebhooks/stripe",
        "/webhooks/x/%2e%2e/stripe",
        "/webhooks/%252e%252e/stripe",
        "/webhooks/..%c0%afstripe",
        "/webhooks/stripe;x=y",
        "/webhooks;/stripe",
        "/webhooks\\stripe",
        "/webhooks/stripe\\..",
        "/Webhooks/stripe",
        "/webhooks/STRIPE",
        "/webhooks/stripé",
        "/webhooks/ｓtripe",
        "/webhooks/stripe.json",
        "/webhooks/stripe,stripe",
        "/x?/webhooks/stripe",
        "/webhooks/metrics",
        "/metrics",
        "/livez/../webhooks/stripe",
        "webhooks/stripe",
        "*",
    ] {
        let request = genuine().replacen("/webhooks/stripe", path, 1);
        assert!(matches!(status(&gateway, &request), 400 | 404 | 405), "{path}");
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_33_a_query_belongs_to_the_url_and_leads_nowhere_else() {
    let gateway = gateway();
    let request = to_path("/webhooks/stripe?source=other&x=../%00%0a", sample(1));
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    let event = gateway.event(gateway.events()[0].id);
    assert_eq!(event.summary.source, "stripe");
    assert!(event.url.ends_with("/webhooks/stripe?source=other&x=../%00%0a"), "{}", event.url);
    assert_recorded(&gateway, &["evt_sample_1"]);
    assert_serves(&gateway);
}

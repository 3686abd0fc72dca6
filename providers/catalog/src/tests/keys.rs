//! Dedupe keys of providers that sign only the body: a replayed request stays one event, and two real events with the
//! same bytes stay two.

use hookfast_webhook::{Provider, Request};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::embedded;

/// The key of a request with this body and these headers, and whether its type is signed.
fn read(name: &str, body: &str, headers: &[(&'static str, &'static str)]) -> (String, bool) {
    let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    let request = Request {
        method: Method::POST,
        url: "https://hooks.example.com/webhooks/test".into(),
        headers: HeaderMap::from_iter(headers),
        body: body.to_owned().into(),
    };
    let reading = embedded(name).read(&request).expect("readable").remove(0);
    (reading.dedupe_key, reading.type_is_signed)
}

fn key(name: &str, body: &str, headers: &[(&'static str, &'static str)]) -> String {
    read(name, body, headers).0
}

#[test]
fn a_github_body_with_a_time_is_one_event_under_any_header() {
    for body in [
        r#"{"ref":"refs/heads/main","after":"aa","repository":{"pushed_at":1760000000}}"#,
        r#"{"action":"opened","issue":{"number":1,"updated_at":"2025-10-09T08:53:20Z"}}"#,
        r#"{"action":"closed","pull_request":{"updated_at":"2025-10-09T08:53:20Z"}}"#,
        r#"{"action":"created","deployment":{"updated_at":"2025-10-09T08:53:20Z"}}"#,
    ] {
        let first = key("github", body, &[("x-github-event", "push"), ("x-github-delivery", "1")]);
        assert_eq!(first, key("github", body, &[("x-github-event", "release"), ("x-github-delivery", "2")]), "{body}");
        assert_eq!(first, key("github", body, &[]), "{body}");
    }
}

#[test]
fn honest_events_of_github_with_the_same_bytes_stay_two() {
    for body in [
        r#"{"action":"added","member":{"login":"sam"},"repository":{"updated_at":"2025-10-09T08:53:20Z","pushed_at":1}}"#,
        r#"{"action":"rerequested","check_run":{"id":1,"completed_at":"2025-10-09T08:53:20Z"}}"#,
        r#"{"action":"deploy","branch":"main","client_payload":{}}"#,
        r#"{"inputs":{},"ref":"refs/heads/main","workflow":".github/workflows/a.yml"}"#,
        r#"{"zen":"Keep it small.","hook_id":1}"#,
    ] {
        let delivered = |id| key("github", body, &[("x-github-event", "a"), ("x-github-delivery", id)]);
        assert_ne!(delivered("1"), delivered("2"), "{body}");
        assert_eq!(delivered("1"), delivered("1"), "{body}");
    }
}

#[test]
fn a_shopify_body_with_a_time_is_one_event_for_each_topic() {
    let delivered = |body, topic, id| key("shopify", body, &[("x-shopify-topic", topic), ("x-shopify-webhook-id", id)]);
    for body in [
        r#"{"id":1,"updated_at":"2025-10-09T08:53:20Z"}"#,
        r#"{"id":1,"order_id":2,"processed_at":"2025-10-09T08:53:20Z"}"#,
    ] {
        assert_eq!(delivered(body, "orders/create", "1"), delivered(body, "orders/create", "2"), "{body}");
        assert_ne!(delivered(body, "orders/create", "1"), delivered(body, "orders/paid", "2"), "{body}");
    }
    let of_action = |action| {
        key("shopify", r#"{"updated_at":"2025"}"#, &[("shopify-topic", "Product"), ("shopify-action", action)])
    };
    assert_ne!(of_action("create"), of_action("update"));
}

#[test]
fn honest_events_of_shopify_with_the_same_bytes_stay_two() {
    for body in [
        r#"{"id":1}"#,
        r#"{"shop_id":1,"shop_domain":"acme.myshopify.com"}"#,
        r#"{"id":1,"myshopify_domain":"acme.myshopify.com","updated_at":"2025-10-09T08:53:20Z"}"#,
    ] {
        let delivered = |id| key("shopify", body, &[("x-shopify-topic", "a/b"), ("x-shopify-webhook-id", id)]);
        assert_ne!(delivered("1"), delivered("2"), "{body}");
        assert_eq!(delivered("1"), delivered("1"), "{body}");
    }
}

#[test]
fn sentry_tells_errors_by_their_bytes_and_the_rest_by_the_request_too() {
    let sent = |body, id| key("sentry", body, &[("sentry-hook-resource", "a"), ("request-id", id)]);
    let error = r#"{"action":"created","data":{"error":{"event_id":"e1"}}}"#;
    assert_eq!(sent(error, "1"), sent(error, "2"));
    let issue = r#"{"action":"resolved","data":{"issue":{"id":"1"}}}"#;
    assert_ne!(sent(issue, "1"), sent(issue, "2"), "it may be resolved twice");
}

#[test]
fn linear_tells_events_by_what_is_signed_and_a_retry_is_the_same() {
    let sent = |created: &str, stamped: u32, id| {
        let body = format!(
            r#"{{"type":"Issue","action":"update","createdAt":"{created}","data":{{"id":"i1"}},"webhookTimestamp":{stamped}}}"#
        );
        key("linear", &body, &[("linear-delivery", id)])
    };
    let first = sent("2025-10-09T08:53:20.123Z", 1, "1");
    assert_eq!(first, sent("2025-10-09T08:53:20.123Z", 2, "2"));
    assert_ne!(first, sent("2025-10-09T08:53:20.124Z", 1, "1"));
    let other = r#"{"type":"OAuthApp","action":"revoked","webhookTimestamp":1}"#;
    assert_eq!(key("linear", other, &[("linear-delivery", "1")]), key("linear", other, &[]));
}

#[test]
fn honest_events_of_dropbox_with_the_same_bytes_stay_two() {
    assert_ne!(key("dropbox", "{}", &[]), key("dropbox", "{}", &[]));
}

#[test]
fn a_type_from_a_header_that_is_not_signed_is_marked() {
    assert!(!read("github", "{}", &[("x-github-event", "push")]).1);
    assert!(!read("github", "{}", &[]).1, "the word for no type is as little signed as the header that is missing");
    assert!(!read("shopify", "{}", &[("x-shopify-topic", "a")]).1 && !read("sentry", "{}", &[]).1);
    assert!(read("linear", r#"{"type":"Issue"}"#, &[]).1 && read("dropbox", "{}", &[]).1);
    assert!(read("standardwebhooks", "{}", &[("webhook-id", "1")]).1);
}

#[test]
fn the_contract_says_what_is_not_signed() {
    let contract = |name: &str| embedded(name).description.contract();
    assert!(contract("github").contains("Not signed: {header:x-github-event}"), "{}", contract("github"));
    assert!(contract("github").contains("Not signed: {header:x-github-delivery}"), "{}", contract("github"));
    for name in ["linear", "standardwebhooks", "slack", "square", "hubspot"] {
        assert!(!contract(name).contains("Not signed"), "{}", contract(name));
    }
}

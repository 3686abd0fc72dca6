use axum::Router;
use axum::body::Body;
use axum::http::{self, HeaderValue, Method, StatusCode};
use hookfast_webhook::{Clock, Request, SampleOrder, SystemClock};
use tower::ServiceExt;

use super::*;

const URL: &str = "https://hooks.example.com";

fn secret(text: &str) -> Secret {
    Secret::new(text).expect("not blank")
}

fn router() -> Router {
    let secrets = Secrets::new(vec![secret("new"), secret("old")]);
    let endpoint = |provider| Endpoint { provider, secrets: secrets.clone() };
    let github = github().expect("it is in the catalog");
    webhooks::router(Webhooks { public_url: URL.into(), stripe: endpoint(stripe()), github: endpoint(github) })
}

/// A request as the provider would send it.
fn sample(provider: &dyn Provider, key: &str) -> Request {
    let (url, key) = (format!("{URL}/webhooks/{}", provider.name()), secret(key));
    let order = SampleOrder { kind: None, url: &url, key: Some(&key), now: SystemClock.now(), serial: 1 };
    provider.sample(&order).expect("there are samples")
}

async fn status(request: Request) -> StatusCode {
    let mut sent = http::Request::builder().method(request.method).uri(request.url);
    sent.headers_mut().expect("it is a request").extend(request.headers);
    let sent = sent.body(Body::from(request.body)).expect("it is a request");
    router().oneshot(sent).await.expect("a router always answers").status()
}

fn providers() -> [Arc<dyn Provider>; 2] {
    [stripe(), github().expect("it is in the catalog")]
}

#[tokio::test]
async fn a_genuine_request_is_accepted_with_either_secret() {
    for provider in providers() {
        for key in ["new", "old"] {
            assert_eq!(status(sample(provider.as_ref(), key)).await, StatusCode::OK, "{}", provider.name());
        }
    }
}

#[tokio::test]
async fn a_changed_body_or_another_secret_is_refused() {
    for provider in providers() {
        let mut request = sample(provider.as_ref(), "new");
        request.body = [&request.body[..], b" "].concat().into();
        assert_eq!(status(request).await, StatusCode::UNAUTHORIZED, "{}", provider.name());
        assert_eq!(status(sample(provider.as_ref(), "guess")).await, StatusCode::UNAUTHORIZED, "{}", provider.name());
    }
}

#[tokio::test]
async fn a_doubled_signature_is_refused_though_both_are_good() {
    for provider in providers() {
        let mut request = sample(provider.as_ref(), "new");
        let header = &provider.proof_headers()[0];
        let value: HeaderValue = request.headers[header].clone();
        request.headers.append(header, value);
        assert_eq!(status(request).await, StatusCode::UNAUTHORIZED, "{}", provider.name());
    }
}

#[tokio::test]
async fn another_path_or_method_is_not_looked_at() {
    let mut request = sample(stripe().as_ref(), "new");
    request.method = Method::GET;
    assert_eq!(status(request).await, StatusCode::METHOD_NOT_ALLOWED);
    let mut request = sample(stripe().as_ref(), "new");
    request.url = format!("{URL}/webhooks/other");
    assert_eq!(status(request).await, StatusCode::NOT_FOUND);
}

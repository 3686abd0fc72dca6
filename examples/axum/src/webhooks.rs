//! From an HTTP request to events: the part to copy.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, OriginalUri, Path, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use hookfast_webhook::{Answer, Clock, Genuine, Provider, Request, Secrets, SystemClock, Verified, verify};

/// GitHub sends the largest bodies of the two.
const BODY_LIMIT_BYTES: usize = 25 * 1024 * 1024;

pub(crate) struct Webhooks {
    /// Scheme and host as the providers know them. Some sign the URL, and a request's own `Host` is not to be believed.
    pub(crate) public_url: String,
    pub(crate) stripe: Endpoint,
    pub(crate) github: Endpoint,
}

pub(crate) struct Endpoint {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) secrets: Secrets,
}

pub(crate) fn router(webhooks: Webhooks) -> Router {
    Router::new()
        // Not `post`: some providers shake hands with a GET or a HEAD.
        .route("/webhooks/{endpoint}", any(receive))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .with_state(Arc::new(webhooks))
}

/// `Bytes` and not `Json`: what is signed are the bytes as they came.
async fn receive(
    State(webhooks): State<Arc<Webhooks>>,
    Path(name): Path<String>,
    method: Method,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Endpoint { provider, secrets } = match name.as_str() {
        "stripe" => &webhooks.stripe,
        "github" => &webhooks.github,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    if !provider.methods().contains(&method) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let request = Request { method, url: format!("{}{path}", webhooks.public_url), headers, body };
    match verify(provider.as_ref(), request, secrets, SystemClock.now()) {
        Ok(Verified::Genuine(genuine)) => {
            handle(&genuine, provider.as_ref());
            respond(genuine.answer(provider.as_ref()))
        }
        Ok(Verified::Handshake(answer)) => respond(answer),
        Err(refusal) => {
            // The reason is for us. A sender that learned it could try until it fits.
            eprintln!("{name}: refused: {refusal}");
            StatusCode::UNAUTHORIZED.into_response()
        }
    }
}

/// Where your own code begins. Providers send again, so ask your store first whether it has the key already; and what you
/// could not keep is answered with a 500, so that they do.
#[expect(clippy::print_stdout, reason = "it is all that this example does with an event")]
fn handle(genuine: &Genuine, provider: &dyn Provider) {
    match genuine.readings(provider) {
        Ok(readings) => {
            for reading in readings {
                println!("{}: {} {}", provider.name(), reading.event_type, reading.dedupe_key);
            }
        }
        Err(problem) => eprintln!("{}: genuine, but not to be read: {problem}", provider.name()),
    }
}

fn respond(answer: Answer) -> Response {
    let mut headers = HeaderMap::new();
    headers.extend(answer.header);
    if let Some(content_type) = answer.content_type.and_then(|content_type| content_type.parse().ok()) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    (answer.status, headers, answer.body).into_response()
}

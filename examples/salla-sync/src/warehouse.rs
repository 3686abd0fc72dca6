//! The outside: a warehouse that wants to know of orders.

use std::time::Duration;

use bytes::Bytes;
use hookfast::{Failure, FailureKind, IdempotencyKey};
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::Change;

/// Who is told. A trait, so that tests need no warehouse.
pub trait Warehouse: Send + Sync + 'static {
    /// Tells of a change. Told again with the same key, a good warehouse does nothing and answers the same.
    fn tell(&self, key: IdempotencyKey, change: &Change) -> impl Future<Output = Result<Receipt, Failure>> + Send;
}

/// That the warehouse has taken note.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Its number for the order.
    pub receipt: String,
}

/// A warehouse in our own network: `POST /orders`, as JSON.
#[derive(Debug, Clone)]
pub struct HttpWarehouse {
    /// Its host and port.
    pub address: String,
}

const LARGEST_ANSWER: usize = 64 * 1024;

impl Warehouse for HttpWarehouse {
    async fn tell(&self, key: IdempotencyKey, change: &Change) -> Result<Receipt, Failure> {
        let request = Request::post("/orders")
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", key.to_string())
            .body(Full::new(Bytes::from(serde_json::to_vec(change)?)))?;
        let (status, headers, body) = self.send(request).await?;
        judge(status, &headers, &body)
    }
}

impl HttpWarehouse {
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, HeaderMap, Bytes), Failure> {
        let unreached = |error| Failure::network(format!("the warehouse was not reached: {error}"));
        let stream = TcpStream::connect(&self.address).await.map_err(unreached)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::network)?;
        // Ends when the answer is there and `sender` is gone.
        tokio::spawn(connection);
        let response: Response<_> = sender.send_request(request).await.map_err(Failure::network)?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER).collect().await.map_err(Failure::network)?;
        Ok((parts.status, parts.headers, body.to_bytes()))
    }
}

/// What an answer means: done, later, or never.
fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Receipt, Failure> {
    let said = || format!("the warehouse answered {status}: {}", String::from_utf8_lossy(body).trim());
    match status.as_u16() {
        200..=299 => Ok(serde_json::from_slice(body)?),
        429 => Err(Failure::retry_after(wait(headers), said())),
        408 | 425 | 500..=599 => Err(Failure::retry(FailureKind::Network, said())),
        _ => Err(Failure::give_up(said())),
    }
}

/// As long as it wishes, if it says so in seconds; Hookfast knows a good time otherwise.
fn wait(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use http::HeaderValue;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn judged(status: u16, body: &str) -> Result<Receipt, Failure> {
        judge(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn an_answer_means_done_later_or_never() {
        assert_eq!(judged(201, r#"{"receipt":"W-1"}"#).unwrap().receipt, "W-1");
        for (status, kind, is_permanent) in [
            (200, FailureKind::Internal, false),
            (429, FailureKind::RateLimited, false),
            (503, FailureKind::Network, false),
            (422, FailureKind::Refused, true),
        ] {
            let failure = judged(status, "no").unwrap_err();
            assert_eq!((failure.kind, failure.is_permanent), (kind, is_permanent), "{status}");
        }
    }

    #[test]
    fn the_warehouse_may_say_how_long_to_wait() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("120"))]);
        let failure = judge(StatusCode::TOO_MANY_REQUESTS, &headers, b"").unwrap_err();
        assert_eq!(failure.retry_after, Some(Duration::from_secs(120)));
    }

    #[tokio::test]
    async fn the_key_and_the_change_go_over_the_wire() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let warehouse = HttpWarehouse { address: listener.local_addr().unwrap().to_string() };
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0, "the request was broken off");
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"receipt\":\"W-7\"}";
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        let change = Change {
            merchant: "1".into(),
            order: "7".into(),
            state: "deleted",
            status: None,
            total: None,
            currency: None,
            changed_at: 1_760_000_000,
        };
        let key = IdempotencyKey(Default::default());
        assert_eq!(warehouse.tell(key, &change).await.unwrap().receipt, "W-7");
        let request = served.await.unwrap();
        assert!(request.starts_with("POST /orders "), "{request}");
        assert!(request.contains(&format!("idempotency-key: {key}\r\n")), "{request}");
        assert!(request.ends_with(&serde_json::to_string(&change).unwrap()), "{request}");
    }

    #[tokio::test]
    async fn a_warehouse_that_is_not_there_is_a_failure_of_the_network() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let warehouse = HttpWarehouse { address: listener.local_addr().unwrap().to_string() };
        drop(listener);
        let request = Request::post("/orders").body(Full::default()).unwrap();
        let failure = warehouse.send(request).await.unwrap_err();
        assert_eq!((failure.kind, failure.is_permanent), (FailureKind::Network, false));
    }
}

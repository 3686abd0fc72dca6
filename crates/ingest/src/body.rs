//! The second step: [`Admitted::read_body`] reads a body, whole or not at all.
//!
//! Before it, `admit` has checked the head. After it, `verify` looks at the content. A body is limited in size by its
//! source, in time, and by the `memory` that all bodies share.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookfast_webhook::Request;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Instant, timeout_at};

use crate::admit::Admitted;
use crate::memory::MemoryShare;
use crate::rejection::Rejection;
use crate::stages::Visit;
use crate::{Config, address};

/// A body in more chunks than this must have `LEAST_MEAN_BYTES` in each on average. Every chunk costs about as much
/// work as a kilobyte.
const MANY_CHUNKS: usize = 10_000;
const LEAST_MEAN_BYTES: usize = 64;

/// A request that has arrived completely. Its content is not verified yet.
pub(crate) struct Received<'a> {
    pub(crate) visit: Visit<'a>,
    pub(crate) request: Arc<Request>,
    /// Held until the commit.
    pub(crate) memory: MemoryShare,
    /// When the sender must have its answer.
    pub(crate) deadline: Instant,
}

impl<'a> Admitted<'a> {
    /// Reads the body. Until it ends, the connection counts as silent, because the gateway waits for the sender.
    pub(crate) async fn read_body<B>(self, body: B) -> Result<Received<'a>, Rejection>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let Self { visit, head } = self;
        let Visit { ingest, source, caller, .. } = visit;
        let limit = source.limits.body_limit;
        let share = ingest.body_memory.share(visit.known_client(), limit);
        caller.activity.set_at_work(false);
        let read = read(body, limit, share, BodyDeadlines::of(&ingest.config)).await;
        caller.activity.set_at_work(true);
        let (body, memory) = read?;
        let deadline = Instant::now() + source.limits.answer_deadline.unwrap_or(ingest.config.answer_deadline);
        let url = visit.url(&head);
        let request = Request { method: head.method, url, headers: head.headers, body };
        Ok(Received { visit, request: Arc::new(request), memory, deadline })
    }
}

impl Visit<'_> {
    /// The URL that the provider called. Scheme and host come from the configuration or from a trusted proxy.
    fn url(self, head: &Parts) -> String {
        let Config { forwarded_url, trusted_proxies, .. } = &self.ingest.config;
        let said = forwarded_url.then(|| address::forwarded_url(self.caller.peer, &head.headers, trusted_proxies));
        let said = said.flatten();
        let path_and_query = head.uri.path_and_query().map_or("/", |text| text.as_str());
        format!("{}{path_and_query}", said.as_ref().unwrap_or(&self.ingest.public_url))
    }
}

/// When a body must have arrived.
#[derive(Debug, Clone, Copy)]
struct BodyDeadlines {
    whole: Duration,
    between_pieces: Duration,
}

impl BodyDeadlines {
    fn of(config: &Config) -> Self {
        let Config { body_timeout, stall_timeout, idle_timeout, .. } = *config;
        Self { whole: body_timeout, between_pieces: stall_timeout.min(idle_timeout) }
    }
}

/// Reads the body. Its announced length allows an early refusal, and limits how much is allocated.
async fn read<B: Body<Data = Bytes> + Unpin>(
    mut body: B,
    limit: u64,
    mut share: MemoryShare,
    deadlines: BodyDeadlines,
) -> Result<(Bytes, MemoryShare), Rejection> {
    if body.size_hint().lower() > limit {
        return Err(Rejection::TooLarge);
    }
    let largest = usize::try_from(body.size_hint().exact().unwrap_or(limit)).unwrap_or(usize::MAX);
    let end = Instant::now() + deadlines.whole;
    let (mut collected, mut chunks) = (Collected::default(), 0);
    while let Some(piece) = next_piece(Pin::new(&mut body), end, deadlines.between_pieces).await? {
        let total = collected.len() + piece.len();
        if total as u64 > limit {
            return Err(Rejection::TooLarge);
        }
        chunks += 1;
        if chunks > MANY_CHUNKS && total / chunks < LEAST_MEAN_BYTES {
            return Err(Rejection::BadRequest("The body is in too many small chunks."));
        }
        let capacity = collected.capacity_for(piece.len(), largest);
        share.grow(capacity)?;
        collected.push(&piece, capacity);
    }
    Ok((collected.into_bytes(), share))
}

async fn next_piece<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    end: Instant,
    between_pieces: Duration,
) -> Result<Option<Bytes>, Rejection> {
    loop {
        let soon = end.min(Instant::now() + between_pieces);
        let frame = timeout_at(soon, body.as_mut().frame()).await.map_err(|_| Rejection::BodyTimeout)?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Rejection::BodyBroken),
            // A frame without data holds trailers, which no provider signs.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Collects the pieces of a body. A body that comes in one piece, as most do, is not copied.
#[derive(Default)]
enum Collected {
    #[default]
    Nothing,
    One(Bytes),
    Many(Vec<u8>),
}

impl Collected {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    /// The memory needed to hold `more` bytes. The buffer at least doubles each time, but never exceeds the largest
    /// size that the body can have.
    fn capacity_for(&self, more: usize, largest: usize) -> usize {
        let needed = self.len() + more;
        match self {
            Self::Nothing => needed,
            Self::Many(bytes) if bytes.capacity() >= needed => bytes.capacity(),
            Self::One(_) | Self::Many(_) => (2 * needed).min(largest).max(needed),
        }
    }

    fn push(&mut self, piece: &Bytes, capacity: usize) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(piece.clone()),
            Self::One(first) => {
                let mut bytes = Vec::with_capacity(capacity);
                bytes.extend_from_slice(&first);
                bytes.extend_from_slice(piece);
                Self::Many(bytes)
            }
            Self::Many(mut bytes) => {
                bytes.reserve_exact(capacity - bytes.len());
                bytes.extend_from_slice(piece);
                Self::Many(bytes)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_in_order() {
        for pieces in [vec![], vec!["a"], vec!["a", "b"], vec!["a", "", "b", "cd"]] {
            let mut collected = Collected::default();
            for piece in &pieces {
                let capacity = collected.capacity_for(piece.len(), 1_000);
                collected.push(&Bytes::from_static(piece.as_bytes()), capacity);
            }
            assert_eq!(collected.len(), pieces.concat().len());
            assert_eq!(collected.into_bytes(), pieces.concat());
        }
    }

    #[test]
    fn a_buffer_is_no_larger_than_what_is_counted() {
        let (mut collected, largest) = (Collected::default(), 100_000);
        let piece = Bytes::from(vec![0; 3_000]);
        for _ in 0..33 {
            let capacity = collected.capacity_for(piece.len(), largest);
            collected.push(&piece, capacity);
            assert!(capacity <= largest && collected.len() <= capacity);
            if let Collected::Many(bytes) = &collected {
                assert_eq!(bytes.capacity(), capacity);
            }
        }
    }
}

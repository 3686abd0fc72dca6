//! Reading a body: whole or not at all, within its limit, in time, and within the memory for all bodies together.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::answer::Rejection;

/// Memory for bodies is handed out in pieces of this size, so that small bodies are one cheap step.
const PIECE_BYTES: usize = 1024;

/// The memory that all bodies share, from their first byte to their commit.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory(Arc<Semaphore>);

/// A share of the memory; given back when dropped.
pub(crate) type MemoryShare = Option<OwnedSemaphorePermit>;

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let pieces = usize::try_from(bytes / PIECE_BYTES as u64).unwrap_or(usize::MAX);
        Self(Arc::new(Semaphore::new(pieces.min(Semaphore::MAX_PERMITS))))
    }

    /// Makes `share` large enough for `total_bytes`.
    fn grow(&self, share: &mut MemoryShare, total_bytes: usize) -> Result<(), Rejection> {
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = total_bytes.div_ceil(PIECE_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| Rejection::Overloaded)?;
        let more = Arc::clone(&self.0).try_acquire_many_owned(missing).map_err(|_| Rejection::Overloaded)?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }
}

/// When a body must be here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyDeadlines {
    pub(crate) whole: Duration,
    pub(crate) between_pieces: Duration,
}

/// Reads the body. What it claims about its length is used to refuse early, never to allocate.
pub(crate) async fn read(
    mut body: Incoming,
    limit: u64,
    memory: &BodyMemory,
    deadlines: BodyDeadlines,
) -> Result<(Bytes, MemoryShare), Rejection> {
    if body.size_hint().lower() > limit {
        return Err(Rejection::TooLarge);
    }
    let end = Instant::now() + deadlines.whole;
    let mut share = None;
    let mut collected = Collected::default();
    while let Some(piece) = next_piece(Pin::new(&mut body), end, deadlines.between_pieces).await? {
        let total = collected.len() + piece.len();
        if total as u64 > limit {
            return Err(Rejection::TooLarge);
        }
        memory.grow(&mut share, total)?;
        collected.push(piece);
    }
    Ok((collected.into_bytes(), share))
}

async fn next_piece(
    mut body: Pin<&mut Incoming>,
    end: Instant,
    between_pieces: Duration,
) -> Result<Option<Bytes>, Rejection> {
    loop {
        let soon = end.min(Instant::now() + between_pieces);
        let frame = timeout_at(soon, body.as_mut().frame()).await.map_err(|_| Rejection::BodyTimeout)?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Rejection::BodyBroken),
            // What is not data is a trailer: nobody signs those.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Most bodies come in one piece, which is then used as it is.
#[derive(Default)]
enum Collected {
    #[default]
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl Collected {
    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, piece: Bytes) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(piece),
            Self::One(first) => {
                let mut bytes = BytesMut::with_capacity(2 * (first.len() + piece.len()));
                bytes.extend_from_slice(&first);
                bytes.extend_from_slice(&piece);
                Self::Many(bytes)
            }
            Self::Many(mut bytes) => {
                bytes.extend_from_slice(&piece);
                Self::Many(bytes)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes.freeze(),
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
                collected.push(Bytes::from_static(piece.as_bytes()));
            }
            assert_eq!(collected.len(), pieces.concat().len());
            assert_eq!(collected.into_bytes(), pieces.concat());
        }
    }

    #[test]
    fn memory_is_refused_when_it_is_used_up_and_comes_back() {
        let memory = BodyMemory::new(10 * 1024);
        let (mut first, mut second) = (None, None);
        memory.grow(&mut first, 9 * 1024).expect("there is enough");
        memory.grow(&mut first, 9 * 1024).expect("it has that already");
        assert!(memory.grow(&mut second, 2 * 1024).is_err());
        drop(first);
        memory.grow(&mut second, 10 * 1024).expect("it was given back");
    }
}

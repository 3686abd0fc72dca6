//! The memory that all bodies share, from their first byte to their commit.
//!
//! A body takes memory before it is known to be genuine, so one sender must not be able to use up all of it. Each
//! client has a limited share, and large bodies leave a part to small ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address::network_of;
use crate::rejection::Rejection;

/// The unit in which memory is counted.
const PIECE_BYTES: usize = 1024;

/// A body of up to this many pieces is small: 64 KiB.
const SMALL_PIECES: usize = 64;

/// Large bodies leave the memory divided by this (a quarter) to small ones.
const RESERVE: usize = 4;

/// The memory divided by this (a sixteenth) is one client's share for bodies that are not yet known to be genuine. Ten
/// clients that use their whole share leave enough for others.
const SHARE: usize = 16;

/// Besides one body of the largest size, a client can always have the memory divided by this for other bodies.
const BESIDE_THE_LARGEST: usize = 64;

/// The memory that all bodies share, from their first byte to their commit.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    pieces: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    pieces: usize,
    /// Pieces used by large bodies.
    by_large: usize,
    /// Pieces used by bodies that are not yet known to be genuine, by client network.
    by_network: HashMap<IpAddr, usize>,
}

/// The memory of one body; given back when dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    pool: Arc<Pool>,
    /// The client whose share this counts against. `None` if the request is genuine, or if a trusted proxy names no
    /// client.
    network: Option<IpAddr>,
    /// The largest size of the body.
    limit_pieces: usize,
    held: usize,
}

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> Self {
        let pieces = usize::try_from(bytes / PIECE_BYTES as u64).unwrap_or(usize::MAX);
        Self(Arc::new(Pool { pieces, used: Mutex::default() }))
    }

    /// An empty share, for a body of up to `limit` bytes.
    pub(crate) fn share(&self, client: Option<IpAddr>, limit: u64) -> MemoryShare {
        let limit_pieces = usize::try_from(limit.div_ceil(PIECE_BYTES as u64)).unwrap_or(usize::MAX);
        MemoryShare { pool: Arc::clone(&self.0), network: client.map(network_of), limit_pieces, held: 0 }
    }
}

impl Pool {
    fn used(&self) -> MutexGuard<'_, Used> {
        // No code panics while it holds the lock.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more pieces are free for a body of this size.
    fn room(&self, used: &Used, share: &MemoryShare, pieces: usize) -> usize {
        let free = self.pieces - used.pieces;
        if pieces <= SMALL_PIECES {
            return free;
        }
        // One body may always become as large as its source allows, however little memory is configured.
        let for_large = (self.pieces - self.pieces / RESERVE).max(share.limit_pieces);
        let becomes_large = if share.is_large() { 0 } else { share.held };
        free.min(for_large.saturating_sub(used.by_large + becomes_large))
    }

    /// The share of one client. A body of the largest size always fits in.
    fn share_of_client(&self, limit_pieces: usize) -> usize {
        (self.pieces / SHARE).max(limit_pieces.saturating_add(self.pieces / BESIDE_THE_LARGEST))
    }
}

impl MemoryShare {
    fn is_large(&self) -> bool {
        self.held > SMALL_PIECES
    }

    /// Makes the share large enough for everything that is kept for a genuine request, which can be more than its body.
    /// From then on it does not count against the client's share: it ends with the commit, so the client cannot hold
    /// it. A request that needs more than the whole memory is refused for good.
    pub(crate) fn grow_for_genuine(&mut self, bytes: u64) -> Result<(), Rejection> {
        let bytes = usize::try_from(bytes).map_err(|_| Rejection::TooManyEvents)?;
        if bytes.div_ceil(PIECE_BYTES) > self.pool.pieces {
            return Err(Rejection::TooManyEvents);
        }
        self.limit_pieces = self.limit_pieces.max(bytes.div_ceil(PIECE_BYTES));
        let pool = Arc::clone(&self.pool);
        self.leave_client(&mut pool.used());
        self.grow(bytes)
    }

    /// From now on the memory does not count against the client's share.
    fn leave_client(&mut self, used: &mut Used) {
        if let Some(network) = self.network.take()
            && let Some(by_client) = used.by_network.get_mut(&network)
        {
            *by_client -= self.held;
            if *by_client == 0 {
                used.by_network.remove(&network);
            }
        }
    }

    /// Makes the share large enough for `bytes`.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Rejection> {
        let pieces = bytes.div_ceil(PIECE_BYTES);
        if pieces <= self.held {
            return Ok(());
        }
        let pool = Arc::clone(&self.pool);
        let mut used = pool.used();
        let missing = pieces - self.held;
        let by_client = self.network.and_then(|network| used.by_network.get(&network)).copied().unwrap_or(0);
        if missing > pool.room(&used, self, pieces) || by_client + missing > pool.share_of_client(self.limit_pieces) {
            return Err(Rejection::Overloaded);
        }
        used.pieces += missing;
        if pieces > SMALL_PIECES {
            used.by_large += if self.is_large() { missing } else { pieces };
        }
        if let Some(network) = self.network {
            *used.by_network.entry(network).or_default() += missing;
        }
        self.held = pieces;
        Ok(())
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if self.held == 0 {
            return;
        }
        let pool = Arc::clone(&self.pool);
        let mut used = pool.used();
        used.pieces -= self.held;
        if self.is_large() {
            used.by_large -= self.held;
        }
        self.leave_client(&mut used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn client(number: u8) -> Option<IpAddr> {
        Some([192, 0, 2, number].into())
    }

    #[test]
    fn memory_is_refused_when_it_is_used_up_and_comes_back() {
        let memory = BodyMemory::new(10 * 1024);
        let share = |number| memory.share(client(number), 10 * 1024);
        let (mut first, mut second) = (share(1), share(2));
        first.grow(9 * 1024).expect("there is enough");
        first.grow(9 * 1024).expect("it has that already");
        assert!(second.grow(2 * 1024).is_err());
        drop(first);
        second.grow(10 * 1024).expect("it was given back");
        drop(second);
        let used = memory.0.used();
        assert!(used.pieces == 0 && used.by_large == 0 && used.by_network.is_empty(), "{used:?}");
    }

    /// Bodies of this size, as many as the client gets.
    fn fill(memory: &BodyMemory, client: Option<IpAddr>, size: usize) -> Vec<MemoryShare> {
        std::iter::from_fn(|| {
            let mut share = memory.share(client, 10 * MIB as u64);
            share.grow(size).ok().map(|()| share)
        })
        .collect()
    }

    #[test]
    fn one_client_has_a_sixteenth() {
        let memory = BodyMemory::new(256 * MIB as u64);
        let _greedy: Vec<_> = [10 * MIB, 64 * 1024, 1].map(|size| fill(&memory, client(1), size)).into();
        assert_eq!(memory.0.used().pieces, 16 * 1024);
        assert_eq!(fill(&memory, client(2), 10 * MIB).len(), 1);
        // An address of the same IPv6 network is no other client.
        let memory = BodyMemory::new(256 * MIB as u64);
        let _greedy = fill(&memory, "2001:db8:7:1::1".parse().ok(), 10 * MIB);
        let mut other = memory.share("2001:db8:7:2::1".parse().ok(), 10 * MIB as u64);
        assert!(other.grow(10 * MIB).is_err());
    }

    #[test]
    fn a_genuine_request_does_not_count_as_its_clients() {
        let memory = BodyMemory::new(256 * MIB as u64);
        let mut waiting = fill(&memory, client(1), MIB);
        assert_eq!(waiting.len(), 16);
        for share in &mut waiting {
            share.grow_for_genuine(MIB as u64 + 2_000).expect("there is room");
        }
        let more = fill(&memory, client(1), MIB);
        assert_eq!(more.len(), 16);
        drop((waiting, more));
        let mut heavy = memory.share(client(1), 1);
        assert!(matches!(heavy.grow_for_genuine(257 * MIB as u64), Err(Rejection::TooManyEvents)));
        heavy.grow_for_genuine(256 * MIB as u64).expect("it may have all there is");
        drop(heavy);
        let used = memory.0.used();
        assert!(used.pieces == 0 && used.by_large == 0 && used.by_network.is_empty(), "{used:?}");
    }

    #[test]
    fn ten_clients_leave_something_to_large_and_small_bodies() {
        let memory = BodyMemory::new(256 * MIB as u64);
        let _greedy: Vec<_> = (1..=10)
            .flat_map(|number| [10 * MIB, 64 * 1024, 1].map(|size| fill(&memory, client(number), size)))
            .collect();
        assert!(!fill(&memory, client(11), 10 * MIB).is_empty());
        assert!(fill(&memory, client(12), 64 * 1024).len() > 10);
    }

    #[test]
    fn large_bodies_leave_a_quarter_to_small_ones() {
        let memory = BodyMemory::new(256 * MIB as u64);
        let _greedy: Vec<_> = (1..=100).map(|number| fill(&memory, client(number), 10 * MIB)).collect();
        assert!(fill(&memory, None, 64 * 1024).len() >= 1024);
    }

    #[test]
    fn a_client_that_is_not_known_has_no_share_of_its_own() {
        let memory = BodyMemory::new(256 * MIB as u64);
        assert_eq!(fill(&memory, None, 10 * MIB).len(), 19);
    }
}

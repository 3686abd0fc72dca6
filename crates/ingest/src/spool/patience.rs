//! How long the store has for a batch before the spool is used.

use std::time::Duration;

use hookfast_store::{LARGE_BYTES, Routed};

/// The store may use the time until a batch's first deadline divided by this. The rest is left for the spool.
const PART_FOR_THE_STORE: u32 = 3;

/// For large bodies the store has longer, as if it took this much of them in a second. A store that is slower is as good as away.
const LEAST_BYTES_A_SECOND: usize = 16 * 1024 * 1024;

/// The patience with the store, if so much time is left until the first deadline of a batch.
///
/// The store writes a large body in parts, each with a flush of its own. In the time of a small batch that can fail only because
/// the body is large, and then all later batches would go into the spool, too. But its sender does not wait beyond the
/// deadline, and the spool needs time for the same bytes: so there is twice the usual part for it at most.
pub(super) fn patience(events: &[Routed], left: Duration, after: Duration) -> Duration {
    let usual = (left / PART_FOR_THE_STORE).max(after);
    let bodies = events.iter().map(|routed| routed.event.body().len()).filter(|bytes| *bytes > LARGE_BYTES);
    let longer = Duration::from_secs_f64(bodies.sum::<usize>() as f64 / LEAST_BYTES_A_SECOND as f64);
    (usual + longer).min(2 * left / PART_FOR_THE_STORE).max(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::tests::event;

    #[test]
    fn the_patience_with_a_large_body_leaves_time_for_the_spool() {
        let ms = Duration::from_millis;
        let [small, large] = [event("evt_1"), event(&"x".repeat(2 << 20))];
        let patience = |events: &[Routed], left| patience(events, ms(left), ms(150)).as_millis();
        assert_eq!([patience(&small, 450), patience(&small, 20_000)], [150, 6666]);
        assert_eq!(patience(&large, 450), 275, "2 MiB have 125 ms more");
        assert_eq!(patience(&vec![large[0].clone(); 3], 450), 300, "but two thirds at most");
        assert_eq!([patience(&large, 240), patience(&large, 0)], [160, 150]);
    }
}

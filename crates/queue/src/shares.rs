//! How the priorities share the hints of a pull: urgent hints come first, but the others are never starved.

use hookfast_webhook::Priority;

/// Of ten hints, six have high priority, three normal and one low, as long as each priority has hints.
const ORDER: [usize; 10] = [HIGH, NORMAL, HIGH, HIGH, NORMAL, HIGH, LOW, HIGH, NORMAL, HIGH];

const HIGH: usize = lane(Priority::High);
const NORMAL: usize = lane(Priority::Normal);
const LOW: usize = lane(Priority::Low);

/// The number of lanes: one for each priority, the most urgent first.
pub(crate) const LANES: usize = Priority::ALL.len();

/// The lane of a priority.
pub(crate) const fn lane(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

/// A position in [`ORDER`], which is repeated for ever.
#[derive(Debug, Default)]
pub(crate) struct Shares(usize);

impl Shares {
    /// The lane of the next hint. The share of an empty lane goes to the most urgent lane that is not empty.
    pub(crate) fn next(&mut self, has_something: impl Fn(usize) -> bool) -> Option<usize> {
        let lane = ORDER[self.0];
        self.0 = (self.0 + 1) % ORDER.len();
        std::iter::once(lane).chain(0..LANES).find(|lane| has_something(*lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(hints: usize, has_something: [bool; LANES]) -> [usize; LANES] {
        let (mut next, mut shares) = (Shares::default(), [0; LANES]);
        for lane in std::iter::from_fn(|| next.next(|lane| has_something[lane])).take(hints) {
            shares[lane] += 1;
        }
        shares
    }

    #[test]
    fn of_ten_hints_six_are_high_three_normal_and_one_low() {
        assert_eq!(shares(100, [true, true, true]), [60, 30, 10]);
    }

    #[test]
    fn shares_of_empty_lanes_go_to_the_others() {
        assert_eq!(shares(100, [false, true, true]), [0, 90, 10]);
        assert_eq!(shares(100, [true, false, true]), [90, 0, 10]);
        assert_eq!(shares(100, [false, false, true]), [0, 0, 100]);
        assert_eq!(shares(100, [false, false, false]), [0, 0, 0]);
    }

    #[test]
    fn the_first_hint_is_the_most_urgent() {
        assert_eq!(shares(1, [true, true, true]), [1, 0, 0]);
        assert_eq!(shares(1, [false, true, true]), [0, 1, 0]);
    }
}

//! Whose turn it is: the urgent come first, and nobody waits for ever.

use hookfast_webhook::Priority;

/// Of ten turns, six are for high, three for normal and one for low.
const TURNS: [usize; 10] = [HIGH, NORMAL, HIGH, HIGH, NORMAL, HIGH, LOW, HIGH, NORMAL, HIGH];

const HIGH: usize = lane(Priority::High);
const NORMAL: usize = lane(Priority::Normal);
const LOW: usize = lane(Priority::Low);

/// How many lanes there are: one for each priority, the most urgent first.
pub(crate) const LANES: usize = Priority::ALL.len();

/// The lane of a priority.
pub(crate) const fn lane(priority: Priority) -> usize {
    match priority {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    }
}

/// Goes round the turns.
#[derive(Debug, Default)]
pub(crate) struct Turns(usize);

impl Turns {
    /// The lane whose turn it is. A lane that has nothing leaves its turn to the most urgent one that has.
    pub(crate) fn next(&mut self, has_something: impl Fn(usize) -> bool) -> Option<usize> {
        let turn = TURNS[self.0];
        self.0 = (self.0 + 1) % TURNS.len();
        std::iter::once(turn).chain(0..LANES).find(|lane| has_something(*lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(turns: usize, has_something: [bool; LANES]) -> [usize; LANES] {
        let (mut turn, mut shares) = (Turns::default(), [0; LANES]);
        for lane in std::iter::from_fn(|| turn.next(|lane| has_something[lane])).take(turns) {
            shares[lane] += 1;
        }
        shares
    }

    #[test]
    fn of_ten_turns_six_are_for_high_three_for_normal_and_one_for_low() {
        assert_eq!(shares(100, [true, true, true]), [60, 30, 10]);
    }

    #[test]
    fn turns_that_nobody_uses_go_to_the_others() {
        assert_eq!(shares(100, [false, true, true]), [0, 90, 10]);
        assert_eq!(shares(100, [true, false, true]), [90, 0, 10]);
        assert_eq!(shares(100, [false, false, true]), [0, 0, 100]);
        assert_eq!(shares(100, [false, false, false]), [0, 0, 0]);
    }

    #[test]
    fn the_first_turn_is_for_the_most_urgent() {
        assert_eq!(shares(1, [true, true, true]), [1, 0, 0]);
        assert_eq!(shares(1, [false, true, true]), [0, 1, 0]);
    }
}

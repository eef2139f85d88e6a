//! Chance that a seed repeats: numbers that depend on the seed, on what they are drawn for, and on how many
//! were drawn for that before. So one more draw in one place changes nothing in another.

use std::time::Duration;

use crate::hash::stable_64_of;

/// A row of numbers.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    key: u64,
    drawn: u64,
}

impl Dice {
    /// The numbers of that seed for that purpose.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        Self { key: stable_64_of(seed, purpose ^ 0x5eed), drawn: 0 }
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        stable_64_of(self.key, self.drawn)
    }

    /// From 0 to one less than that.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        assert!(count > 0, "there is something to choose from");
        let high = (u128::from(self.draw()) * u128::from(count)) >> 64;
        u64::try_from(high).expect("less than the count")
    }

    /// From the first to the last.
    pub(super) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// The same for sizes and counts.
    pub(super) fn count(&mut self, first: u32, last: u32) -> u32 {
        u32::try_from(self.between(u64::from(first), u64::from(last))).expect("both fit")
    }

    /// The same for places in a list.
    pub(super) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("less than the length")
    }

    /// Whether it happens, in so many of a hundred cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time from the first to the last, in microseconds.
    pub(super) fn span(&mut self, first: Duration, last: Duration) -> Duration {
        let micros = |span: Duration| u64::try_from(span.as_micros()).expect("a short time");
        Duration::from_micros(self.between(micros(first), micros(last)))
    }

    /// One of them.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.place(choices.len())]
    }
}

//! When Redrive was away: down, or unable to write. Such time counts against no window, hold or deadline.
//!
//! Deliveries on disk are not touched at a restart, however many there are; the absence is subtracted when
//! one is loaded, from when it was last written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::time::Timestamp;

/// The latest absences, oldest first, not overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Absences(Vec<(Timestamp, Timestamp)>);

impl Absences {
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an absence that has just ended; beyond the bound, the two oldest merge, with the time between
    /// them.
    pub fn add(&mut self, from: Timestamp, to: Timestamp) {
        let from = self.0.last().map_or(from, |(_, end)| from.max(*end));
        if from >= to {
            return;
        }
        self.0.push((from, to));
        if self.0.len() > limits::ABSENCES_MAX {
            let (_, end) = self.0.remove(1);
            self.0[0].1 = end;
        }
    }

    #[must_use]
    pub fn within(&self, from: Timestamp, to: Timestamp) -> Duration {
        let overlap = |(start, end): &(Timestamp, Timestamp)| to.min(*end).since(from.max(*start));
        self.0.iter().rev().take_while(|(_, end)| *end > from).map(overlap).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    #[test]
    fn only_what_lies_within_counts() {
        let mut absences = Absences::new();
        absences.add(at(10), at(20));
        absences.add(at(30), at(35));
        absences.add(at(33), at(40));
        absences.add(at(50), at(50));
        #[rustfmt::skip]
        let cases = [
            ("all of it",             0,  100, 20),
            ("before",                0,  10,  0),
            ("a part of the first",   15, 30,  5),
            ("what overlapped once",  32, 38,  6),
            ("after",                 40, 60,  0),
            ("nothing in no time",    12, 12,  0),
        ];
        for (name, from, to, expected) in cases {
            assert_eq!(absences.within(at(from), at(to)), Duration::from_secs(expected), "{name}");
        }
    }

    #[test]
    fn there_is_a_bound_and_nothing_recent_is_lost() {
        let mut absences = Absences::new();
        for n in 0..1_000 {
            absences.add(at(n * 10), at(n * 10 + 1));
        }
        assert_eq!(absences.0.len(), limits::ABSENCES_MAX);
        assert_eq!(absences.within(at(9_900), at(10_000)), Duration::from_secs(10));
    }
}

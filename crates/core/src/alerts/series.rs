//! Counts over a sliding window: the difference between two readings of a growing counter.
//!
//! Invariant: memory is bounded. A window keeps one count for each of [`limits::ALERT_WINDOW_STEPS`] steps, so
//! it is at most one step too long.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::value::{add, since};
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CountWindow {
    /// Total of earlier processes; every process counts from zero.
    before: Vec<u64>,
    /// Oldest first; never empty.
    steps: VecDeque<CountStep>,
    last: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CountStep {
    at: Timestamp,
    counts: Vec<u64>,
}

impl CountWindow {
    /// Starts with what was counted so far.
    pub(super) fn new(at: Timestamp, counts: Vec<u64>) -> Self {
        let steps = VecDeque::from([CountStep { at, counts: counts.clone() }]);
        Self { before: Vec::new(), steps, last: counts }
    }

    /// Continues in a process that counts from zero.
    pub(super) fn carry_over(&mut self) {
        self.before = self.last.clone();
    }

    /// Whether nothing was counted in this process, nor recently in an earlier one.
    pub(super) fn is_idle(&self) -> bool {
        let first = self.steps.front().map(|step| step.counts.as_slice()).unwrap_or_default();
        self.last == self.before && since(&self.last, first).iter().all(|count| *count == 0)
    }

    /// Takes the current count and returns what was counted within the window.
    pub(super) fn advance(&mut self, now: Timestamp, counts: &[u64], window: Duration) -> Vec<u64> {
        let mut counts = counts.to_vec();
        add(&mut counts, &self.before);
        let latest_at = self.steps.back().map_or(now, |step| step.at);
        if now < latest_at {
            // After the clock was set back, the window would never advance.
            self.steps.clear();
        }
        // Steps start at the same times for all subjects of this window.
        let step_nanos = (window / limits::ALERT_WINDOW_STEPS).as_nanos().max(1);
        let step_of = |at: Timestamp| u128::from(at.as_nanos()) / step_nanos;
        if self.steps.is_empty() || step_of(now) != step_of(latest_at) {
            self.steps.push_back(CountStep { at: now, counts: counts.clone() });
        }
        while self.steps.get(1).is_some_and(|next| next.at <= now - window) {
            self.steps.pop_front();
        }
        let within = since(&counts, &self.steps.front().expect("one was pushed if none was there").counts);
        self.last = counts;
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + secs * 1_000)
    }

    #[test]
    fn a_window_holds_what_came_within_it() {
        let window = Duration::from_mins(5);
        let mut series = CountWindow::new(at(0), vec![0]);
        // One a second for ten minutes, then nothing.
        for second in 1..=600 {
            let within = series.advance(at(second), &[second], window)[0];
            let least = second.min(300);
            assert!((least..=least + 10).contains(&within), "{second}: {within}");
            assert!(series.steps.len() <= limits::ALERT_WINDOW_STEPS as usize + 2);
        }
        assert_eq!(series.advance(at(2_000), &[600], window), [0]);
    }

    #[test]
    fn a_window_goes_on_in_another_process() {
        let window = Duration::from_mins(5);
        let mut series = CountWindow::new(at(0), vec![0]);
        assert_eq!(series.advance(at(100), &[40], window), [40]);
        series.carry_over();
        assert_eq!(series.advance(at(110), &[2], window), [42]);
        assert_eq!(
            series.advance(at(405), &[3], window),
            [3],
            "what came before is out of the window by now"
        );
        assert!(!series.is_idle());
        series.carry_over();
        assert_eq!(series.advance(at(410), &[], window), [1]);
        assert!(!series.is_idle());
        assert_eq!(series.advance(at(900), &[], window), [0]);
        assert!(series.is_idle());
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let window = Duration::from_mins(5);
        let mut series = CountWindow::new(at(10_000), vec![0]);
        series.advance(at(10_100), &[40], window);
        assert_eq!(series.advance(at(100), &[41], window), [0]);
        assert_eq!(series.advance(at(110), &[45], window), [4]);
    }
}

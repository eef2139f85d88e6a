//! Durations of attempts over a sliding window, in steps.
//!
//! Invariant: memory is bounded: a window has [`limits::ALERT_WINDOW_STEPS`] steps, each with at most as many
//! ranges as a [`Sketch`].

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figures::Sketch;
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LatencyWindow {
    steps: VecDeque<LatencyStep>,
    /// This process's count at the last evaluation; every process counts from zero.
    #[serde(skip)]
    last: Sketch,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LatencyStep {
    upto: Timestamp,
    added: Sketch,
}

impl LatencyWindow {
    /// Starts with what was counted so far.
    pub(super) const fn new(last: Sketch) -> Self {
        Self { steps: VecDeque::new(), last }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.last.is_empty() && self.steps.is_empty()
    }

    /// Takes the current count and returns what was counted within the window.
    pub(super) fn advance(&mut self, now: Timestamp, counted: &Sketch, window: Duration) -> Sketch {
        let added = counted.since(&self.last);
        self.last.clone_from(counted);
        let step_nanos = (window / limits::ALERT_WINDOW_STEPS).as_nanos().max(1);
        let step_of = |at: Timestamp| u128::from(at.as_nanos()) / step_nanos;
        if self.steps.back().is_some_and(|step| now < step.upto) {
            // After the clock was set back, the window would never advance.
            self.steps.clear();
        }
        if !added.is_empty() {
            match self.steps.back_mut().filter(|step| step_of(step.upto) == step_of(now)) {
                Some(step) => {
                    step.upto = now;
                    step.added.merge(&added);
                }
                None => self.steps.push_back(LatencyStep { upto: now, added }),
            }
        }
        while self.steps.front().is_some_and(|step| step.upto <= now - window) {
            self.steps.pop_front();
        }
        let mut within = Sketch::default();
        self.steps.iter().for_each(|step| within.merge(&step.added));
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_and_another_process_goes_on_with_it() {
        let at = |secs: u64| Timestamp::from_millis(1_000_000 + secs * 1_000);
        let window = Duration::from_secs(30);
        let (mut times, mut counted) = (LatencyWindow::default(), Sketch::default());
        for second in 1..=100 {
            counted.add(Duration::from_secs(second));
            let within = times.advance(at(second), &counted, window).count();
            let least = second.min(30);
            assert!((least..=least + 1).contains(&within), "{second}: {within}");
            assert!(times.steps.len() <= limits::ALERT_WINDOW_STEPS as usize + 1);
        }
        let saved = serde_json::to_string(&times).expect("numbers");
        let mut other: LatencyWindow = serde_json::from_str(&saved).expect("it was just written");
        assert_eq!(other.advance(at(110), &Sketch::default(), window).count(), 20);
        assert_eq!(other.advance(at(131), &Sketch::default(), window).count(), 0);
        assert!(other.is_idle() && !times.is_idle());
        assert_eq!(times.advance(at(5), &counted, window).count(), 0, "the clock was set back");
    }
}

//! Tracks incidents of a dependency, and how long after each the backlog drains.
//!
//! The level before an incident is the maximum of the last calm minute. An incident that begins before the previous
//! one has drained continues it: both are measured against the level before the first.

use std::collections::VecDeque;

use super::report::Incident;
use redrive_core::limits;

const SECOND: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct IncidentTracker {
    calm: CalmPeaks,
    lasting: u32,
    open: Option<OpenIncident>,
    over: Vec<Incident>,
}

#[derive(Debug)]
struct OpenIncident {
    began_at: u64,
    ended_at: Option<u64>,
    level: u64,
    peak: u64,
}

impl IncidentTracker {
    pub(super) fn waiting(&mut self, now: u64, waiting: u64) {
        if self.open.is_none() {
            self.calm.waiting(now, waiting);
        }
        let Some(open) = &mut self.open else { return };
        open.peak = open.peak.max(waiting);
        if open.ended_at.is_some_and(|ended_at| ended_at <= now) && waiting <= open.level && self.lasting == 0
        {
            self.drained(Some(now), waiting);
        }
    }

    pub(super) fn begins(&mut self, now: u64, waiting: u64) {
        self.lasting += 1;
        if let Some(open) = &mut self.open {
            open.ended_at = None;
        } else {
            self.calm.waiting(now, waiting);
            let level = self.calm.peak();
            self.open = Some(OpenIncident { began_at: now, ended_at: None, level, peak: waiting });
        }
    }

    pub(super) fn ends(&mut self, now: u64, waiting: u64) {
        self.lasting -= 1;
        if let Some(open) = self.open.as_mut().filter(|_| self.lasting == 0) {
            open.ended_at = Some(now);
        }
        self.waiting(now, waiting);
    }

    fn drained(&mut self, at: Option<u64>, waiting: u64) {
        let Some(OpenIncident { began_at, ended_at, level, peak }) = self.open.take() else { return };
        let millis = |nanos: u64| nanos / 1_000_000;
        let drain = at.zip(ended_at).map(|(at, ended_at)| at.saturating_sub(ended_at));
        self.over.push(Incident {
            began_at_ms: millis(began_at),
            ended_at_ms: ended_at.map(millis),
            waiting_before: level,
            waiting_max: peak,
            waiting_after: waiting,
            drain_ms: drain.map(millis),
        });
    }

    pub(super) fn finish(mut self, waiting: u64) -> Vec<Incident> {
        self.drained(None, waiting);
        self.over
    }
}

#[derive(Debug, Default)]
struct CalmPeaks {
    second: u64,
    waiting: u64,
    peaks: VecDeque<u64>,
}

impl CalmPeaks {
    fn waiting(&mut self, now: u64, waiting: u64) {
        let second = now / SECOND;
        let passed = (second - self.second.min(second)).min(limits::SIMULATION_CALM_SECONDS as u64);
        for _ in 0..passed {
            self.peaks.push_back(self.waiting);
        }
        if self.peaks.is_empty() {
            self.peaks.push_back(0);
        }
        while self.peaks.len() > limits::SIMULATION_CALM_SECONDS {
            self.peaks.pop_front();
        }
        self.second = second;
        self.waiting = waiting;
        if let Some(last) = self.peaks.back_mut() {
            *last = (*last).max(waiting);
        }
    }

    fn peak(&self) -> u64 {
        self.peaks.iter().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Act {
        Waiting(u64),
        Begins,
        Ends,
    }
    use Act::{Begins, Ends, Waiting};

    /// When it began and ended, what waited before it and at most, and how long it took to drain.
    type Told = (u64, Option<u64>, u64, u64, Option<u64>);

    fn finish(acts: &[(u64, Act)]) -> Vec<Told> {
        let mut troubles = IncidentTracker::default();
        let mut waiting = 0;
        for (second, act) in acts {
            let now = second * SECOND;
            match act {
                Waiting(count) => {
                    waiting = *count;
                    troubles.waiting(now, waiting);
                }
                Begins => troubles.begins(now, waiting),
                Ends => troubles.ends(now, waiting),
            }
        }
        let seconds = |millis: u64| millis / 1_000;
        let told = troubles.finish(waiting).into_iter();
        told.map(|t| {
            let (began_at, ended_at) = (seconds(t.began_at_ms), t.ended_at_ms.map(seconds));
            (began_at, ended_at, t.waiting_before, t.waiting_max, t.drain_ms)
        })
        .collect()
    }

    #[test]
    fn a_trouble_is_over_when_no_more_waits_than_before() {
        #[rustfmt::skip]
        let cases: [(&str, &[(u64, Act)], _); 8] = [
            ("a backlog that drains", &[(1, Waiting(5)), (2, Waiting(3)), (10, Begins), (15, Waiting(90)), (20, Ends), (25, Waiting(60)), (32, Waiting(5))],
                vec![(10, Some(20), 5, 90, Some(12_000))]),
            ("no backlog at all",     &[(1, Waiting(5)), (10, Begins), (20, Ends)],                      vec![(10, Some(20), 5, 5, Some(0))]),
            ("one that stays",        &[(10, Begins), (15, Waiting(90)), (20, Ends)],                    vec![(10, Some(20), 0, 90, None)]),
            ("the run ends before",   &[(10, Begins), (15, Waiting(9)), (16, Waiting(0))],               vec![(10, None, 0, 9, None)]),
            ("one that lasts",        &[(10, Begins), (15, Waiting(9))],                                 vec![(10, None, 0, 9, None)]),
            ("one upon the other",    &[(10, Begins), (12, Waiting(9)), (20, Ends), (21, Begins), (30, Ends), (33, Waiting(0))],
                vec![(10, Some(30), 0, 9, Some(3_000))]),
            ("what another left is no calm", &[(1, Waiting(2)), (10, Begins), (12, Waiting(90)), (20, Ends), (30, Waiting(2)), (40, Begins), (42, Waiting(50)), (50, Ends), (55, Waiting(30)), (60, Waiting(2))],
                vec![(10, Some(20), 2, 90, Some(10_000)), (40, Some(50), 2, 50, Some(10_000))]),
            ("what was long before is forgotten", &[(1, Waiting(500)), (2, Waiting(2)), (100, Begins), (101, Waiting(50)), (102, Ends), (104, Waiting(2))],
                vec![(100, Some(102), 2, 50, Some(2_000))]),
        ];
        for (name, acts, expected) in cases {
            assert_eq!(finish(acts), expected, "{name}");
        }
    }
}

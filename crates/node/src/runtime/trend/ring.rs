//! Rings of points in equal steps: 15 minutes in seconds, hours in minutes, a day in tens of minutes.
//!
//! Input are growing counters, sampled every [`LOOK_EVERY`]; a point is the difference of two samples.
//!
//! Invariant: a ring never has more points than its span has steps.

use std::collections::VecDeque;
use std::time::Duration;

use redrive_core::figures::{AttemptTally, Sketch};
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::time::Timestamp;

pub(in crate::runtime) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How far back a trend goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrendSpan {
    /// 15 minutes in steps of 5 seconds.
    Minutes,
    /// 3 hours in steps of 1 minute.
    Hours,
    /// 24 hours in steps of 10 minutes.
    Day,
}

impl TrendSpan {
    pub const ALL: [Self; 3] = [Self::Minutes, Self::Hours, Self::Day];

    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::Minutes => Duration::from_mins(15),
            Self::Hours => Duration::from_hours(3),
            Self::Day => Duration::from_hours(24),
        }
    }

    #[must_use]
    pub const fn step(self) -> Duration {
        match self {
            Self::Minutes => LOOK_EVERY,
            Self::Hours => Duration::from_mins(1),
            Self::Day => Duration::from_mins(10),
        }
    }

    const fn looks(self) -> u64 {
        self.step().as_secs() / LOOK_EVERY.as_secs()
    }

    fn points_max(self) -> usize {
        let steps = self.length().as_secs() / self.step().as_secs();
        usize::try_from(steps).expect("a few hundred")
    }
}

/// A sample: counters that only grow, and gauges.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::runtime) struct TrendSample {
    pub accepted: u64,
    pub tally: AttemptTally,
    pub took: Sketch,
    pub now: TrendGauges,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct TrendGauges {
    pub waiting: u64,
    pub dead_letters: u64,
    pub in_flight: u32,
    pub breaker: Option<BreakerPhase>,
}

/// Counts within a step, and gauges at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct TrendPoint {
    pub at: Timestamp,
    /// Events accepted; overall trend only.
    pub accepted: u64,
    pub attempts: u64,
    pub failed: u64,
    /// Attempts followed by another.
    pub retried: u64,
    pub delivered: u64,
    pub dead: u64,
    pub waiting: u64,
    pub dead_letters: u64,
    pub in_flight: u32,
    pub breaker: Option<BreakerPhase>,
    /// Median duration of attempts.
    pub p50: Option<Duration>,
    /// 99th percentile of their duration.
    pub p99: Option<Duration>,
}

impl TrendPoint {
    fn between(earlier: &TrendSample, later: &TrendSample, at: Timestamp) -> Self {
        let (tally, took) = (later.tally.since(&earlier.tally), later.took.since(&earlier.took));
        Self {
            at,
            accepted: later.accepted.saturating_sub(earlier.accepted),
            attempts: tally.attempts,
            failed: tally.failures(),
            retried: tally.retries,
            delivered: tally.delivered,
            dead: tally.dead,
            waiting: later.now.waiting,
            dead_letters: later.now.dead_letters,
            in_flight: later.now.in_flight,
            breaker: later.now.breaker,
            p50: took.quantile(0.5),
            p99: took.quantile(0.99),
        }
    }

    /// Adds another point of the same step. Of durations the longer is kept, since their distributions are
    /// gone.
    pub(in crate::runtime) fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.attempts += other.attempts;
        self.failed += other.failed;
        self.retried += other.retried;
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.waiting += other.waiting;
        self.dead_letters += other.dead_letters;
        self.in_flight += other.in_flight;
        self.p50 = self.p50.max(other.p50);
        self.p99 = self.p99.max(other.p99);
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::runtime) struct Rings {
    rings: [Ring; TrendSpan::ALL.len()],
    latest: Option<(Timestamp, TrendSample)>,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    points: VecDeque<TrendPoint>,
    /// The counters at the start of the current step.
    began: TrendSample,
}

impl Rings {
    /// Adds a sample; `number` counts from 1 for all rings alike.
    pub(in crate::runtime) fn look(&mut self, number: u64, known: TrendSample, at: Timestamp) {
        for (ring, span) in self.rings.iter_mut().zip(TrendSpan::ALL) {
            if number.is_multiple_of(span.looks()) {
                if ring.points.len() == span.points_max() {
                    ring.points.pop_front();
                }
                ring.points.push_back(TrendPoint::between(&ring.began, &known, at));
                ring.began = known.clone();
            }
        }
        self.latest = Some((at, known));
    }

    /// Oldest first; the last point may be of an unfinished step.
    pub(in crate::runtime) fn points(&self, span: TrendSpan) -> Vec<TrendPoint> {
        let ring = &self.rings[span as usize];
        let running =
            self.latest.as_ref().filter(|(at, _)| ring.points.back().is_none_or(|last| last.at < *at));
        let running = running.map(|(at, known)| TrendPoint::between(&ring.began, known, *at));
        ring.points.iter().cloned().chain(running).collect()
    }

    /// The latest points of the shortest steps, latest first.
    pub(in crate::runtime) fn recent(&self, within: Duration) -> impl Iterator<Item = &TrendPoint> {
        let steps = within.as_secs().div_ceil(LOOK_EVERY.as_secs());
        self.rings[TrendSpan::Minutes as usize]
            .points
            .iter()
            .rev()
            .take(usize::try_from(steps).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH + Duration::from_secs(seconds)
    }

    /// One attempt a second that arrives after 10 ms, as much as there is by then.
    fn known(seconds: u64) -> TrendSample {
        let mut took = Sketch::default();
        (0..seconds).for_each(|_| took.add(Duration::from_millis(10)));
        let tally = AttemptTally { attempts: seconds, delivered: seconds, ..AttemptTally::default() };
        let now = TrendGauges { waiting: seconds % 7, ..TrendGauges::default() };
        TrendSample { accepted: 2 * seconds, tally, took, now }
    }

    /// Rings after so many looks.
    fn after(looks: u64) -> Rings {
        let mut rings = Rings::default();
        for number in 1..=looks {
            let seconds = number * LOOK_EVERY.as_secs();
            rings.look(number, known(seconds), at(seconds));
        }
        rings
    }

    #[test]
    fn a_span_shows_what_happened_within_each_of_its_steps() {
        #[rustfmt::skip]
        let cases = [
            // after looks, span, points, attempts in the first and in the last, when the last ended
            ("nothing is known before the first look",    0,      TrendSpan::Minutes, 0,   0,   0,   0),
            ("a look is a point of 5 seconds",            1,      TrendSpan::Minutes, 1,   5,   5,   5),
            ("and the beginning of a minute",             1,      TrendSpan::Hours,   1,   5,   5,   5),
            ("which goes on",                             11,     TrendSpan::Hours,   1,   55,  55,  55),
            ("until it is over",                          12,     TrendSpan::Hours,   1,   60,  60,  60),
            ("and another begins",                        13,     TrendSpan::Hours,   2,   60,  5,   65),
            ("of ten minutes too",                        121,    TrendSpan::Day,     2,   600, 5,   605),
            ("a quarter of an hour has 180 points",       180,    TrendSpan::Minutes, 180, 5,   5,   900),
            ("and never more",                            1_000,  TrendSpan::Minutes, 180, 5,   5,   5_000),
            ("three hours have 180",                      12_000, TrendSpan::Hours,   180, 60,  60,  60_000),
            ("a day has 144",                             24_000, TrendSpan::Day,     144, 600, 600, 120_000),
        ];
        for (name, looks, span, count, first, last, ended) in cases {
            let points = after(looks).points(span);
            assert_eq!(points.len(), count, "{name}");
            assert_eq!(points.first().map_or(0, |point| point.attempts), first, "{name}");
            assert_eq!(points.last().map_or(0, |point| point.attempts), last, "{name}");
            assert_eq!(points.last().map_or(at(0), |point| point.at), at(ended), "{name}");
            assert!(points.iter().all(|point| point.accepted == 2 * point.attempts), "{name}");
        }
    }

    #[test]
    fn what_is_so_now_is_told_as_it_is_and_not_as_a_difference() {
        let rings = after(3);
        let waiting: Vec<u64> = rings.points(TrendSpan::Minutes).iter().map(|point| point.waiting).collect();
        assert_eq!(waiting, [5, 3, 1]);
        assert_eq!(rings.points(TrendSpan::Hours)[0].waiting, 1);
    }

    #[test]
    fn a_step_without_attempts_tells_no_times() {
        let mut rings = Rings::default();
        rings.look(1, known(5), at(5));
        rings.look(2, known(5), at(10));
        let points = rings.points(TrendSpan::Minutes);
        assert!(points[0].p50.is_some() && points[0].p99.is_some());
        assert_eq!((points[1].attempts, points[1].p50, points[1].p99), (0, None, None));
    }

    #[test]
    fn a_minute_is_the_last_twelve_looks() {
        let rings = after(100);
        let minute: Vec<_> = rings.recent(Duration::from_mins(1)).collect();
        assert_eq!(minute.len(), 12);
        assert_eq!(minute.iter().map(|point| point.attempts).sum::<u64>(), 60);
        assert_eq!(after(3).recent(Duration::from_mins(1)).count(), 3, "of a young server, what there is");
    }

    #[test]
    fn services_of_several_channels_are_put_together() {
        let mut rings = after(1).points(TrendSpan::Minutes);
        let other = TrendPoint { p99: Some(Duration::from_secs(1)), breaker: None, ..rings[0].clone() };
        rings[0].add(&other);
        assert_eq!((rings[0].attempts, rings[0].delivered), (10, 10));
        assert_eq!(rings[0].p99, Some(Duration::from_secs(1)));
    }
}

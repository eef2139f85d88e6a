//! Arrival times of the events of one type.

use std::collections::BTreeMap;

use super::chance::{Chance, gap_nanos, nanos_in};
use crate::scenario::{Arrival, ArrivalPattern, Spacing};
use redrive_core::event::attribute::EventType;
use redrive_core::hash::{stable_64, stable_64_of};
use redrive_core::policy::backoff::nanos;

#[derive(Debug)]
pub(super) struct Stream<'a> {
    arrival: &'a Arrival,
    /// Independent of the order of streams.
    key: u64,
    chance: Chance,
    sent: u64,
    moments: u64,
    from_nanos: u64,
    until_nanos: u64,
}

impl<'a> Stream<'a> {
    /// Each stream has its own draws by event type, so adding or reordering services does not change the events of
    /// others.
    pub(super) fn all(arrivals: &'a [Arrival], chance: Chance) -> Vec<Self> {
        let mut of_type: BTreeMap<&EventType, u64> = BTreeMap::new();
        let stream = |arrival: &'a Arrival| {
            let event_type = &arrival.event_type.value;
            let place = of_type.entry(event_type).or_default();
            *place += 1;
            let key = stable_64(event_type.as_str().as_bytes(), *place);
            Self::new(arrival, key, chance.of(key))
        };
        arrivals.iter().map(stream).collect()
    }

    fn new(arrival: &'a Arrival, key: u64, chance: Chance) -> Self {
        let (from_nanos, until_nanos) = (nanos(arrival.from), nanos(arrival.until));
        Self { arrival, key, chance, sent: 0, moments: 0, from_nanos, until_nanos }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.sent += 1;
        stable_64_of(self.key, self.sent)
    }

    pub(super) const fn at_once(&self) -> u32 {
        match self.arrival.flow {
            ArrivalPattern::Bursts { size, .. } => size,
            ArrivalPattern::Steady { .. } | ArrivalPattern::Wave { .. } | ArrivalPattern::Trace { .. } => 1,
        }
    }

    /// `now` is the previous arrival.
    pub(super) fn next(&mut self, now: Option<u64>) -> Option<u64> {
        let moment = self.moments;
        self.moments += 1;
        let start = now.unwrap_or(self.from_nanos);
        let at = match &self.arrival.flow {
            ArrivalPattern::Steady { rate, spacing: Spacing::Even } => {
                self.from_nanos.saturating_add(nanos_in(moment as f64 / rate.as_per_second()))
            }
            ArrivalPattern::Steady { rate, spacing: Spacing::Random } => {
                start.saturating_add(gap_nanos(self.chance.draw(moment), rate.as_per_second()))
            }
            ArrivalPattern::Wave { low, high, every, spacing } => {
                let wave =
                    RateWave { low: low.as_per_second(), high: high.as_per_second(), every: nanos(*every) };
                let share = match spacing {
                    Spacing::Random => gap_nanos(self.chance.draw(moment), 1.0) as f64 * 1e-9,
                    Spacing::Even => 1.0,
                };
                start.saturating_add(nanos_in(wave.seconds_until(start, share)))
            }
            ArrivalPattern::Bursts { every, .. } => match (now, every) {
                (None, _) => self.from_nanos,
                (Some(now), Some(every)) => now.saturating_add(nanos(*every)),
                (Some(_), None) => return None,
            },
            ArrivalPattern::Trace { times, .. } => {
                let at = times.get(usize::try_from(moment).ok()?)?;
                self.from_nanos.saturating_add(nanos(*at))
            }
        };
        (at < self.until_nanos).then_some(at)
    }
}

/// A triangular wave; rates per second, period in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct RateWave {
    low: f64,
    high: f64,
    every: u64,
}

impl RateWave {
    /// Integrates the rate: the rate at `start` alone would be wrong where it rises long before the next arrival.
    fn seconds_until(self, start: u64, count: f64) -> f64 {
        let every = self.every as f64 * 1e-9;
        let half = every / 2.0;
        let steep = (self.high - self.low) / half;
        let in_a_wave = f64::midpoint(self.low, self.high) * every;
        let waves = (count / in_a_wave).floor();
        let (mut left, mut passed) = (count - waves * in_a_wave, waves * every);
        let mut place = (start % self.every) as f64 * 1e-9;
        // Less than one period is left, so at most four half-waves.
        for _ in 0..4 {
            let (rate, steep, room) = if place < half {
                (self.low + steep * place, steep, half - place)
            } else {
                (self.high - steep * (place - half), -steep, every - place)
            };
            let within = room * (rate + steep * room / 2.0);
            if left <= within {
                let at_last = (rate * rate + 2.0 * steep * left).max(0.0).sqrt();
                return passed + 2.0 * left / (rate + at_last);
            }
            (left, passed) = (left - within, passed + room);
            place = if place < half { half } else { 0.0 };
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use redrive_core::book::model::At;
    use redrive_core::book::problem::BookSpan;
    use redrive_core::event::attribute::EventType;
    use redrive_core::text::{Rate, Share};

    fn moments(flow: ArrivalPattern, from: u64, until: u64) -> Vec<u64> {
        let event_type = At { value: EventType::new("a.b").expect("a type"), span: BookSpan::default() };
        let seconds = Duration::from_secs;
        let (from, until) = (seconds(from), seconds(until));
        let scope = crate::scenario::ArrivalScope::OneType;
        let arrival = Arrival { event_type, scope, sessions: None, poison: Share::NONE, from, until, flow };
        let mut stream = Stream::new(&arrival, 1, Chance::new(1, 1));
        let mut found = Vec::new();
        let mut now = None;
        while let Some(at) = stream.next(now) {
            found.push(at / 1_000_000);
            now = Some(at);
        }
        found
    }

    #[test]
    fn events_arrive_as_the_scenario_says() {
        let rate = |count| Rate::per_second(count).expect("a rate");
        let even = |count| ArrivalPattern::Steady { rate: rate(count), spacing: Spacing::Even };
        let bursts =
            |every: Option<u64>| ArrivalPattern::Bursts { size: 9, every: every.map(Duration::from_secs) };
        let file = At { value: "x.csv".to_owned(), span: BookSpan::default() };
        let trace =
            ArrivalPattern::Trace { file, times: vec![Duration::from_millis(10), Duration::from_secs(9)] };
        let wave = ArrivalPattern::Wave {
            low: rate(1.0),
            high: rate(3.0),
            every: Duration::from_secs(4),
            spacing: Spacing::Even,
        };
        let steep = ArrivalPattern::Wave {
            low: rate(1e-9),
            high: rate(0.3),
            every: Duration::from_secs(60),
            spacing: Spacing::Even,
        };
        #[rustfmt::skip]
        let cases = [
            ("evenly",                 even(2.0),        0, 2,  vec![0, 500, 1_000, 1_500]),
            ("from a time on",         even(1.0),        3, 5,  vec![3_000, 4_000]),
            ("a burst",                bursts(None),     1, 60, vec![1_000]),
            ("bursts",                 bursts(Some(10)), 0, 25, vec![0, 10_000, 20_000]),
            ("as recorded",            trace,            1, 5,  vec![1_010]),
            ("in waves",               wave,             0, 3,  vec![732, 1_236, 1_645, 1_999, 2_354, 2_763]),
            ("from next to nothing",   steep,            0, 50, vec![14_142, 19_999, 24_494, 28_284, 31_715, 35_505, 39_999, 45_857]),
        ];
        for (name, flow, from, until, expected) in cases {
            assert_eq!(moments(flow, from, until), expected, "{name}");
        }
        let by_chance = ArrivalPattern::Steady { rate: rate(100.0), spacing: Spacing::Random };
        let count = moments(by_chance, 0, 100).len();
        assert!((9_500..10_500).contains(&count), "{count}");
        for (low, every) in [(1e-6, 1), (1e-6, 10), (50.0, 1_000), (99.9, 3)] {
            let every = Duration::from_secs(every);
            let wave =
                ArrivalPattern::Wave { low: rate(low), high: rate(100.0), every, spacing: Spacing::Random };
            let (count, expected) =
                (moments(wave, 0, 1_000).len() as f64, f64::midpoint(low, 100.0) * 1_000.0);
            assert!((count / expected - 1.0).abs() < 0.02, "{count} and not {expected}");
        }
    }
}

//! Rates of a watched server, from consecutive readings.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::status::json::Status;
use crate::terminal::spark::spark;
use crate::terminal::style;

const SAMPLES_MAX: usize = 31;

/// Latest last.
#[derive(Default)]
pub(crate) struct StatusWatch(VecDeque<StatusSample>);

/// Monotonic counters at one moment.
struct StatusSample {
    at: Instant,
    /// `None` without server-wide figures.
    accepted: Option<u64>,
    dead: u64,
    delivered: BTreeMap<String, u64>,
}

impl StatusWatch {
    pub(crate) fn note(&mut self, status: &Status, at: Instant) {
        let sample = StatusSample {
            at,
            accepted: status.events,
            dead: status.services.iter().map(|service| service.dead).sum(),
            delivered: status.services.iter().map(|service| (service.name(), service.delivered)).collect(),
        };
        self.0.push_back(sample);
        if self.0.len() > SAMPLES_MAX {
            self.0.pop_front();
        }
    }

    pub(crate) fn line(&self) -> String {
        let part = |word: &str, count: &dyn Fn(&StatusSample) -> u64| {
            let (rate, trend) = self.show(count);
            format!("{rate}/s {word} {}", style::info(trend))
        };
        let has_events = self.0.back().is_some_and(|sample| sample.accepted.is_some());
        let accepted = has_events.then(|| part("accepted", &|sample| sample.accepted.unwrap_or_default()));
        let delivered = part("delivered", &|sample| sample.delivered.values().sum());
        let dead = part("dead", &|sample| sample.dead);
        accepted.into_iter().chain([delivered, dead]).collect::<Vec<_>>().join("   ")
    }

    pub(crate) fn of_service(&self, name: &str) -> (String, String) {
        self.show(&|sample| sample.delivered.get(name).copied().unwrap_or_default())
    }

    fn show(&self, count: &dyn Fn(&StatusSample) -> u64) -> (String, String) {
        // Retention lowers counts; such a step counts as zero.
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let steps: Vec<u64> =
            pairs.map(|(before, after)| count(after).saturating_sub(count(before))).collect();
        let span = match (self.0.len().checked_sub(2).map(|place| &self.0[place]), self.0.back()) {
            (Some(before), Some(after)) => after.at.duration_since(before.at).as_secs_f64(),
            _ => return ("–".to_owned(), String::new()),
        };
        let last = steps.last().copied().unwrap_or_default() as f64;
        let rate = if span > 0.0 { last / span } else { 0.0 };
        (rate_shown(rate), spark(&steps))
    }
}

fn rate_shown(rate: f64) -> String {
    if rate == 0.0 || rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn rates_are_those_between_the_last_two_looks() {
        let start = Instant::now();
        let sample = |seconds: u64, accepted: u64, delivered: u64| {
            let delivered = BTreeMap::from([("billing".to_owned(), delivered)]);
            StatusSample {
                at: start + Duration::from_secs(seconds),
                accepted: Some(accepted),
                dead: 0,
                delivered,
            }
        };
        #[rustfmt::skip]
        let cases = [
            ("nothing yet",       vec![],                                                 ("–", "")),
            ("one sample",          vec![sample(1, 0, 7)],                                    ("–", "")),
            ("two",               vec![sample(1, 0, 7), sample(3, 0, 10)],                    ("1.5", "█")),
            ("at rest",           vec![sample(1, 0, 7), sample(2, 0, 7)],                     ("0", "·")),
            ("many",              vec![sample(1, 0, 0), sample(2, 0, 50), sample(3, 0, 850)],   ("800", "▁█")),
            ("fewer than before", vec![sample(1, 0, 9), sample(2, 0, 4)],                     ("0", "·")),
            ("at the same time",  vec![sample(1, 0, 4), sample(1, 0, 9)],                     ("0", "█")),
        ];
        for (name, looks, (rate, trend)) in cases {
            let watch = StatusWatch(looks.into());
            assert_eq!(watch.of_service("billing"), (rate.to_owned(), trend.to_owned()), "{name}");
        }
    }
}

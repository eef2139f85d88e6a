//! Figures that conditions are compared with, and how people read them.

use std::cmp::Ordering;
use std::time::Duration;

use crate::book::expression::{Condition, Metric, Op, Quantity};
use crate::figures::Histogram;
use crate::limits;
use crate::text::{self, Rate};

/// The figure of a breaker that is open, and of one that has been of late.
pub(super) const BREAKER_OPEN: f64 = 2.0;
pub(super) const BREAKER_WAS_OPEN: f64 = 1.0;

/// What was found for one thing: counts that only grow, or something as it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// Counts since the process began: of a share its part and its whole, of times one count for each range.
    Counted(Vec<u64>),
    /// A number or an age in seconds.
    Stands(f64),
    /// A breaker: how often it has opened, and whether it is open.
    Breaker {
        /// How often it has opened.
        trips: u64,
        /// Whether it is.
        is_open: bool,
    },
}

impl Found {
    /// Adds what was found for something else that is not told apart from it.
    pub(super) fn merge(&mut self, other: &Self, metric: Metric) {
        match (self, other) {
            (Self::Counted(own), Self::Counted(other)) => add(own, other),
            (Self::Stands(own), Self::Stands(other)) => match metric {
                // Of two that wait, the older one counts.
                Metric::DeadLetterAge | Metric::OldestWaiting => *own = own.max(*other),
                _ => *own += *other,
            },
            (Self::Breaker { trips, is_open }, Self::Breaker { trips: more, is_open: also }) => {
                *trips += more;
                *is_open |= also;
            }
            _ => unreachable!("one metric is found in one way"),
        }
    }
}

/// Adds counts to counts.
pub(super) fn add(own: &mut Vec<u64>, other: &[u64]) {
    own.resize(own.len().max(other.len()), 0);
    for (own, other) in own.iter_mut().zip(other) {
        *own = own.saturating_add(*other);
    }
}

/// What was counted since.
pub(super) fn since(now: &[u64], earlier: &[u64]) -> Vec<u64> {
    let earlier = earlier.iter().copied().chain(std::iter::repeat(0));
    now.iter().zip(earlier).map(|(now, earlier)| now.saturating_sub(earlier)).collect()
}

/// What counts over a window come to, in the metric's own unit: a share from 0 to 1, a number, a number in a
/// second, or seconds. None if they say nothing.
pub(super) fn counted(condition: &Condition, counts: &[u64], window: Duration) -> Option<f64> {
    let at = |place: usize| counts.get(place).copied().unwrap_or_default();
    match condition.metric {
        Metric::ErrorRate
        | Metric::TransientRate
        | Metric::UnavailableRate
        | Metric::RetryRate
        | Metric::ExhaustedRate => {
            let (part, whole) = (at(0), at(1));
            let says_something = whole >= limits::ALERT_SHARE_OF_MIN || part >= limits::ALERT_SHARE_COUNT_MIN;
            (says_something && whole > 0).then(|| part as f64 / whole as f64)
        }
        Metric::DeadLetterInflow | Metric::AuthFailures => Some(at(0) as f64 / window.as_secs_f64()),
        Metric::LatencyP99 => {
            let mut histogram = Histogram::default();
            for (own, count) in histogram.counts.iter_mut().zip(counts) {
                *own = *count;
            }
            histogram.quantile(0.99).map(|time| time.as_secs_f64())
        }
        Metric::ConfigFailures
        | Metric::DeadLetters
        | Metric::DeadLetterAge
        | Metric::BreakerOpen
        | Metric::BreakerOpened
        | Metric::ConsumerLag
        | Metric::OldestWaiting => Some(at(0) as f64),
    }
}

/// Whether a figure is past the limit; a state is so when it is not 0.
pub(super) fn is_past(condition: &Condition, value: f64) -> bool {
    let Some(limit) = condition.limit else { return value > 0.0 };
    let bound = bound(limit.value);
    // Shares and rates are quotients: what differs by less than this is the same.
    let slack = 1e-9 * bound.abs().max(1e-9);
    match limit.op {
        Op::Above => value > bound + slack,
        Op::AtLeast => value >= bound - slack,
        Op::Below => value < bound - slack,
        Op::AtMost => value <= bound + slack,
    }
}

/// A limit in the metric's own unit.
pub(crate) fn bound(value: Quantity) -> f64 {
    match value {
        Quantity::Share(share) => share.get(),
        Quantity::Count(count) => count as f64,
        Quantity::Rate(rate) => rate.as_per_second(),
        Quantity::Duration(span) => span.as_secs_f64(),
    }
}

/// Orders figures by how bad they are.
pub(super) fn worst_first(condition: &Condition, one: f64, other: f64) -> Ordering {
    match condition.limit.map(|limit| limit.op) {
        None | Some(Op::Above | Op::AtLeast) => other.total_cmp(&one),
        Some(Op::Below | Op::AtMost) => one.total_cmp(&other),
    }
}

/// A figure as people read it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
pub(super) fn show(condition: &Condition, value: f64) -> String {
    match condition.metric {
        Metric::ErrorRate
        | Metric::TransientRate
        | Metric::UnavailableRate
        | Metric::RetryRate
        | Metric::ExhaustedRate => format!("{}%", (value * 1_000.0).round() / 10.0),
        Metric::DeadLetterInflow | Metric::AuthFailures => {
            let Some(rate) = Rate::per_second(value) else { return "0".to_owned() };
            // The unit is the one that the book uses.
            let window = condition.window().unwrap_or(Duration::from_mins(1));
            let (unit, seconds) = match window.as_secs() {
                0..=1 => ("s", 1.0),
                2..=600 => ("m", 60.0),
                _ => ("h", 3_600.0),
            };
            format!("{}/{unit}", (rate.as_per_second() * seconds * 10.0).round() / 10.0)
        }
        Metric::DeadLetterAge | Metric::OldestWaiting | Metric::LatencyP99 => {
            text::show_rounded(Duration::try_from_secs_f64(value).unwrap_or_default())
        }
        Metric::BreakerOpen => if value > 0.0 { "open" } else { "closed" }.to_owned(),
        // It may be closed again by now.
        Metric::BreakerOpened => {
            let within = text::show_duration(limits::BREAKER_OPENED_WITHIN);
            if value >= BREAKER_OPEN {
                "open".to_owned()
            } else if value > 0.0 {
                format!("opened within {within}")
            } else {
                "closed".to_owned()
            }
        }
        Metric::DeadLetters | Metric::ConfigFailures | Metric::ConsumerLag => (value as u64).to_string(),
    }
}

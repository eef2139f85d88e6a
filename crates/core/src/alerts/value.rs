//! Measurements compared with conditions, and their display.

use std::cmp::Ordering;
use std::time::Duration;

use super::incident::IncidentEnd;
use crate::book::expression::{AlertMetric, Condition, MetricUnit, Quantity, ThresholdOp};
use crate::figures::Sketch;
use crate::limits;
use crate::text::{self, Rate};

/// Values of a breaker that is open, and of one that was open recently.
pub(super) const BREAKER_OPEN: f64 = 2.0;
pub(super) const BREAKER_WAS_OPEN: f64 = 1.0;

/// A growing counter, or a current value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Measurement {
    /// Since process start; for a share, numerator and denominator.
    Counted(Vec<u64>),
    Timed(Sketch),
    /// A count, or an age in seconds.
    Current(f64),
    Breaker {
        trips: u64,
        is_open: bool,
    },
    Incident {
        count: u64,
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MetricReading {
    Value(f64),
    /// Past the threshold, but with too few samples.
    Hints,
    Silent,
}

impl MetricReading {
    fn of(condition: &Condition, value: f64, enough: SampleSize) -> Self {
        match enough {
            SampleSize::Few if is_past(condition, value) => Self::Hints,
            SampleSize::Few | SampleSize::Enough => Self::Value(value),
        }
    }
}

/// Whether there were enough samples to exclude chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleSize {
    Enough,
    Few,
}

impl Measurement {
    /// Merges a subject that is not distinguished from this one.
    pub(super) fn merge(&mut self, other: &Self, metric: AlertMetric) {
        match (self, other) {
            (Self::Counted(own), Self::Counted(other)) => add(own, other),
            (Self::Timed(own), Self::Timed(other)) => own.merge(other),
            (Self::Incident { count, .. }, Self::Incident { count: more, .. }) => *count += more,
            (Self::Current(own), Self::Current(other)) => match metric {
                // The older of two ages counts.
                AlertMetric::DeadLetterAge | AlertMetric::OldestWaiting => *own = own.max(*other),
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

pub(super) fn add(own: &mut Vec<u64>, other: &[u64]) {
    own.resize(own.len().max(other.len()), 0);
    for (own, other) in own.iter_mut().zip(other) {
        *own = own.saturating_add(*other);
    }
}

pub(super) fn since(now: &[u64], earlier: &[u64]) -> Vec<u64> {
    let earlier = earlier.iter().copied().chain(std::iter::repeat(0));
    now.iter().zip(earlier).map(|(now, earlier)| now.saturating_sub(earlier)).collect()
}

/// Counts of a window in the metric's unit: a share from 0 to 1, a count, or a rate per second.
pub(super) fn counted(condition: &Condition, counts: &[u64], window: Duration) -> MetricReading {
    let at = |place: usize| counts.get(place).copied().unwrap_or_default();
    match condition.metric.unit() {
        MetricUnit::Share => {
            let (part, whole) = (at(0), at(1));
            if whole == 0 {
                return MetricReading::Silent;
            }
            let is_enough = whole >= limits::ALERT_SHARE_OF_MIN || part >= limits::ALERT_SHARE_COUNT_MIN;
            let enough = if is_enough { SampleSize::Enough } else { SampleSize::Few };
            MetricReading::of(condition, part as f64 / whole as f64, enough)
        }
        MetricUnit::Rate => MetricReading::Value(at(0) as f64 / window.as_secs_f64()),
        MetricUnit::Count | MetricUnit::Duration | MetricUnit::State => MetricReading::Value(at(0) as f64),
    }
}

/// In seconds.
pub(super) fn timed(condition: &Condition, times: &Sketch) -> MetricReading {
    let Some(time) = times.quantile(0.99) else { return MetricReading::Silent };
    let is_enough = times.count() >= limits::ALERT_TIMES_OF_MIN;
    let enough = if is_enough { SampleSize::Enough } else { SampleSize::Few };
    MetricReading::of(condition, time.as_secs_f64(), enough)
}

/// Whether the metric may have no data, which neither raises nor resolves.
pub(super) fn may_be_silent(metric: AlertMetric) -> bool {
    metric.unit() == MetricUnit::Share || metric == AlertMetric::LatencyP99
}

/// A state is past its threshold when it is not 0.
pub(super) fn is_past(condition: &Condition, value: f64) -> bool {
    let Some(limit) = condition.limit else { return value > 0.0 };
    let bound = bound(limit.value);
    // Shares and rates are quotients: smaller differences are rounding errors.
    let slack = 1e-9 * bound.abs().max(1e-9);
    match limit.op {
        ThresholdOp::Above => value > bound + slack,
        ThresholdOp::AtLeast => value >= bound - slack,
        ThresholdOp::Below => value < bound - slack,
        ThresholdOp::AtMost => value <= bound + slack,
    }
}

/// The threshold in the metric's unit.
#[must_use]
pub fn bound(value: Quantity) -> f64 {
    match value {
        Quantity::Share(share) => share.get(),
        Quantity::Count(count) => count as f64,
        Quantity::Rate(rate) => rate.as_per_second(),
        Quantity::Duration(span) => span.as_secs_f64(),
    }
}

pub(super) fn worst_first(condition: &Condition, one: f64, other: f64) -> Ordering {
    match condition.limit.map(|limit| limit.op) {
        None | Some(ThresholdOp::Above | ThresholdOp::AtLeast) => other.total_cmp(&one),
        Some(ThresholdOp::Below | ThresholdOp::AtMost) => one.total_cmp(&other),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
pub(super) fn show(condition: &Condition, value: f64) -> String {
    match condition.metric {
        AlertMetric::ErrorRate
        | AlertMetric::TransientRate
        | AlertMetric::UnavailableRate
        | AlertMetric::RetryRate
        | AlertMetric::ExhaustedRate => format!("{}%", (value * 1_000.0).round() / 10.0),
        AlertMetric::DeadLetterInflow | AlertMetric::AuthFailures => {
            let Some(rate) = Rate::per_second(value) else { return "0".to_owned() };
            // In the unit of the book.
            let window = condition.window().unwrap_or(Duration::from_mins(1));
            let (unit, seconds) = match window.as_secs() {
                0..=1 => ("s", 1.0),
                2..=600 => ("m", 60.0),
                _ => ("h", 3_600.0),
            };
            format!("{}/{unit}", (rate.as_per_second() * seconds * 10.0).round() / 10.0)
        }
        AlertMetric::DeadLetterAge | AlertMetric::OldestWaiting => {
            text::show_rounded(Duration::try_from_secs_f64(value).unwrap_or_default())
        }
        AlertMetric::LatencyP99 => {
            text::show_measured(Duration::try_from_secs_f64(value).unwrap_or_default())
        }
        AlertMetric::BreakerOpen => if value > 0.0 { "open" } else { "closed" }.to_owned(),
        // It may be closed again by now.
        AlertMetric::BreakerOpened => {
            let within = text::show_duration(limits::BREAKER_OPENED_WITHIN);
            if value >= BREAKER_OPEN {
                "open".to_owned()
            } else if value > 0.0 {
                format!("opened within {within}")
            } else {
                "closed".to_owned()
            }
        }
        AlertMetric::Incident(incident) => incident.words().to_owned(),
        AlertMetric::DeadLetters | AlertMetric::ConfigFailures | AlertMetric::ConsumerLag => {
            (value as u64).to_string()
        }
    }
}

pub(super) fn show_with(condition: &Condition, value: f64, why: Option<&str>) -> String {
    let mut shown = show(condition, value);
    if let Some(why) = why.filter(|why| !why.is_empty()) {
        shown.push_str(&format!(": {why}"));
    }
    if matches!(condition.metric, AlertMetric::Incident(incident) if incident.lasts() == IncidentEnd::Expires)
        && value > 1.0
    {
        shown.push_str(&format!(", {value} times"));
    }
    shown
}

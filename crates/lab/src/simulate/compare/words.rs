//! The result of a comparison as text.

use std::time::Duration;

use super::{Advantage, BookComparison, BookSide, FigureComparison, RunFigures, Undecided, gains};
use crate::scenario::expectation::{MetricValue, RunMetric};
use crate::simulate::figures::FigureKey;
use redrive_core::text::{show_count, show_measured, show_per_second};

/// Figures that get a sentence, the most important first. Deliveries are covered by dead letters and waiting,
/// amplification by calls.
const METRICS: [RunMetric; 11] = [
    RunMetric::OrderViolations,
    RunMetric::DeadLetters,
    RunMetric::Waiting,
    RunMetric::Duplicates,
    RunMetric::Drain,
    RunMetric::Calls,
    RunMetric::Amplification,
    RunMetric::CallRate,
    RunMetric::QueueDepth,
    RunMetric::LatencyP99,
    RunMetric::LatencyP50,
];

pub(super) fn advantages(
    figures: &[(FigureKey, FigureComparison)],
    pairs: &[[RunFigures; 2]],
) -> Vec<Advantage> {
    let mut found: Vec<Advantage> = Vec::new();
    for metric in METRICS {
        let of_metric = figures.iter().filter(|(key, _)| key.metric == metric);
        for (key, compared) in of_metric {
            let Some(side) = compared.better else { continue };
            let is_same = |known: &Advantage| {
                known.metric == RunMetric::Calls.as_str() && (known.side, &known.of) == (side, &key.of)
            };
            let is_covered = metric == RunMetric::Amplification && found.iter().any(is_same);
            if is_covered {
                continue;
            }
            let pairs: Vec<(MetricValue, MetricValue)> = gains(key, side, pairs).collect();
            let text = phrase(key, &pairs);
            if found.iter().any(|known| (known.side, &known.text) == (side, &text)) {
                continue;
            }
            found.push(Advantage {
                side,
                metric: compared.metric,
                of: key.of.clone(),
                text,
                better_in: compared.better_in[side as usize],
            });
        }
    }
    found
}

fn phrase(key: &FigureKey, pairs: &[(MetricValue, MetricValue)]) -> String {
    let mut pairs = pairs.to_vec();
    pairs.sort_by(|one, other| gain(key.metric, *one).total_cmp(&gain(key.metric, *other)));
    let (least, most) = (pairs[0], pairs[pairs.len() - 1]);
    let middle = pairs[(pairs.len() - 1) / 2];
    let text = in_words(key, middle);
    let (from, to) = (shown_gain(key.metric, least), shown_gain(key.metric, most));
    if from == to { text } else { format!("{text} ({from} to {to})") }
}

fn gain(metric: RunMetric, (own, others): (MetricValue, MetricValue)) -> f64 {
    let (own, others) = (own.as_f64(), others.as_f64());
    if is_in_parts(metric) && others.is_finite() { (others - own) / others } else { others - own }
}

/// Whether the difference is shown in percent.
const fn is_in_parts(metric: RunMetric) -> bool {
    matches!(
        metric,
        RunMetric::Calls | RunMetric::Amplification | RunMetric::CallRate | RunMetric::QueueDepth
    )
}

fn shown_gain(metric: RunMetric, pair: (MetricValue, MetricValue)) -> String {
    let gain = gain(metric, pair);
    match pair.1 {
        MetricValue::Never => "from never".to_owned(),
        MetricValue::Nothing => "from nothing".to_owned(),
        _ if is_in_parts(metric) => format!("{:.0}%", gain * 100.0),
        MetricValue::Duration(_) => show_measured(Duration::from_secs_f64(gain.max(0.0))),
        MetricValue::Count(_)
        | MetricValue::Number(_)
        | MetricValue::PerSecond(_)
        | MetricValue::Share(_) => show_whole(gain),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is counted is not negative"
)]
fn show_whole(number: f64) -> String {
    show_count(number.round() as u64)
}

fn in_words(key: &FigureKey, pair: (MetricValue, MetricValue)) -> String {
    let by = shown_gain(key.metric, pair);
    let of = key.of.as_deref().unwrap_or("all");
    let one = |singular: &'static str, plural: &'static str| if by == "1" { singular } else { plural };
    match key.metric {
        RunMetric::OrderViolations => format!("{by} fewer {} out of order", one("call", "calls")),
        RunMetric::DeadLetters => format!("{by} fewer dead {}", one("letter", "letters")),
        RunMetric::Waiting => format!("{by} fewer left waiting"),
        RunMetric::Duplicates => format!("{by} fewer {}", one("duplicate", "duplicates")),
        RunMetric::Drain if pair.1 == MetricValue::Never => {
            format!("`{of}` drains after {} instead of never", pair.0)
        }
        RunMetric::Drain => format!("`{of}` drains {by} sooner"),
        RunMetric::Calls => format!("{by} fewer calls on `{of}`"),
        RunMetric::Amplification => format!("{by} fewer attempts per delivery on `{of}`"),
        RunMetric::CallRate => format!("peak call rate on `{of}` {by} lower"),
        RunMetric::QueueDepth => format!("{by} smaller backlog of `{of}`"),
        RunMetric::LatencyP99 | RunMetric::LatencyP50 if pair.1 == MetricValue::Nothing => {
            "something is delivered instead of nothing".to_owned()
        }
        RunMetric::LatencyP99 => format!("p99 latency of deliveries {by} lower"),
        RunMetric::LatencyP50 => format!("p50 latency of deliveries {by} lower"),
        RunMetric::AttemptsMax => format!("{by} fewer {} at most", one("attempt", "attempts")),
        RunMetric::Delivered => format!("{by} more delivered"),
        RunMetric::BreakerOpened => format!("{by} fewer breaker openings of `{of}`"),
    }
}

pub(super) fn signed(a: MetricValue, b: MetricValue) -> String {
    let apart = b.as_f64() - a.as_f64();
    let sign = if apart < 0.0 { "−" } else { "+" };
    let size = apart.abs();
    let shown = match (a, b) {
        (MetricValue::Count(_), _) => show_whole(size),
        (MetricValue::PerSecond(_), _) => show_per_second(size),
        (MetricValue::Share(_), _) => format!("{:.2}%", size * 100.0),
        (MetricValue::Duration(_), _) => show_measured(Duration::from_secs_f64(size)),
        (MetricValue::Number(_) | MetricValue::Never | MetricValue::Nothing, _) => format!("{size:.2}"),
    };
    if apart == 0.0 { "0".to_owned() } else { format!("{sign}{shown}") }
}

fn plain(metric: &str) -> String {
    metric.replace('_', " ")
}

impl BookComparison {
    #[must_use]
    pub fn undecided(&self) -> Undecided {
        let mut metrics: Vec<&'static str> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.is_judged) {
            if !metrics.contains(&figure.metric) {
                metrics.push(figure.metric);
            }
        }
        let mut undecided = Undecided::default();
        for metric in metrics {
            let of_metric = || self.figures.iter().filter(|figure| figure.metric == metric);
            if of_metric().any(|figure| figure.better.is_none() && figure.not_compared_in > 0) {
                undecided.not_compared.push(plain(metric));
                continue;
            }
            if of_metric().all(|figure| figure.better_in == [0, 0]) {
                undecided.same.push(plain(metric));
            }
            for figure in of_metric().filter(|it| it.better.is_none() && it.better_in != [0, 0]) {
                let of = figure.of.as_ref().map(|of| format!(" of `{of}`")).unwrap_or_default();
                undecided.by_chance.push(format!("{}{of}", plain(metric)));
            }
        }
        undecided
    }

    #[must_use]
    pub fn overall(&self, names: [&str; 2]) -> String {
        let at = BookSide::BOTH.map(|side| strengths(self, side));
        let [a, b] = names;
        let not_compared = match self.undecided().not_compared.as_slice() {
            [] => String::new(),
            some => format!(" Not compared: {}, because the books do not deliver the same.", listed(some)),
        };
        let judged = match at.each_ref().map(Vec::is_empty) {
            [true, true] => format!("No difference between {a} and {b} in this scenario."),
            [false, true] => format!("{a} is better in {} and worse in nothing.", listed(&at[0])),
            [true, false] => format!("{b} is better in {} and worse in nothing.", listed(&at[1])),
            [false, false] => {
                format!("Trade-off: {a} is better in {}; {b} in {}.", listed(&at[0]), listed(&at[1]))
            }
        };
        judged + &not_compared
    }
}

/// Names the dependency where the other side is better at the same figure elsewhere.
fn strengths(comparison: &BookComparison, side: BookSide) -> Vec<String> {
    let mut strengths: Vec<String> = Vec::new();
    for advantage in comparison.advantages.iter().filter(|advantage| advantage.side == side) {
        let is_torn = comparison.advantages.iter().any(|it| it.side != side && it.metric == advantage.metric);
        let of = advantage.of.as_ref().filter(|_| is_torn);
        let of = of.map(|of| format!(" of `{of}`")).unwrap_or_default();
        let name = format!("{}{of}", plain(advantage.metric));
        if !strengths.contains(&name) {
            strengths.push(name);
        }
    }
    strengths
}

pub(in crate::simulate) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

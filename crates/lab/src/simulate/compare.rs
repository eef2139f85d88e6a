//! Compares two rule books: same scenario, same seeds, same random draws.
//!
//! Runs are compared in pairs of one seed. A book is better at a figure only if it is so in at least 19 of 20 pairs
//! and by a relevant amount; what it is worse at is listed too.
//!
//! Latencies cover only what was delivered, so a book can be better at them only if it delivers as much as the other.

mod beside;
#[cfg(test)]
mod tests;
mod words;

use serde::Serialize;

pub use self::beside::{DependencyCurves, beside};
pub(super) use self::words::listed;
use super::figures::{FigureKey, FigureSpread, RunFigures};
use super::report::DeadLetterCause;
use crate::scenario::expectation::{Better, MetricValue, RunMetric};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BookSide {
    A,
    B,
}

impl BookSide {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BookComparison {
    pub runs: usize,
    pub seeds: (u64, u64),
    pub figures: Vec<FigureComparison>,
    pub dead_letters: Vec<CauseComparison>,
    /// The most important first.
    pub advantages: Vec<Advantage>,
    pub expectations: Vec<ExpectationComparison>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureComparison {
    pub metric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// `None` if the book does not know the dependency.
    pub a: Option<FigureSpread>,
    pub b: Option<FigureSpread>,
    /// Second minus first, over pairs of runs; `None` where one is infinite.
    pub difference: Option<FigureSpread>,
    pub better: Option<BookSide>,
    /// The number of runs, by book.
    pub better_in: [usize; 2],
    /// Runs in which a book has the better number only because it delivers less.
    pub not_compared_in: usize,
    #[serde(skip)]
    pub is_judged: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseComparison {
    pub queue: String,
    pub code: String,
    pub failure_code: String,
    pub a: FigureSpread,
    pub b: FigureSpread,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advantage {
    pub side: BookSide,
    pub metric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// For example "38% fewer calls on `ntfy`".
    pub text: String,
    pub better_in: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectationComparison {
    pub expectation: String,
    pub a: usize,
    pub b: usize,
    /// The median over the runs.
    pub shown: [String; 2],
}

/// Pairs of runs with the same seed; at least one.
#[must_use]
pub fn compare_runs(pairs: &[[RunFigures; 2]]) -> BookComparison {
    let (first, last) = (&pairs[0][0], &pairs[pairs.len() - 1][0]);
    let figures: Vec<(FigureKey, FigureComparison)> =
        keys(&pairs[0]).map(|key| compared(key, pairs)).collect();
    let advantages = words::advantages(&figures, pairs);
    BookComparison {
        runs: pairs.len(),
        seeds: (first.seed, last.seed),
        figures: figures.into_iter().map(|(_, compared)| compared).collect(),
        dead_letters: causes(pairs),
        advantages,
        expectations: expectations(pairs),
    }
}

fn keys(pair: &[RunFigures; 2]) -> impl Iterator<Item = FigureKey> {
    let [a, b] = pair;
    let more = b.figures.keys().filter(|key| a.value(key).is_none());
    a.figures.keys().chain(more).cloned()
}

fn compared(key: FigureKey, pairs: &[[RunFigures; 2]]) -> (FigureKey, FigureComparison) {
    let of = |side: BookSide| {
        let values: Vec<MetricValue> =
            pairs.iter().filter_map(|pair| pair[side as usize].value(&key)).collect();
        (!values.is_empty()).then(|| FigureSpread::of(values))
    };
    let better_in = BookSide::BOTH.map(|side| gains(&key, side, pairs).count());
    let better = BookSide::BOTH.into_iter().find(|side| is_most(better_in[*side as usize], pairs.len()));
    let compared = FigureComparison {
        metric: key.metric.as_str(),
        of: key.of.clone(),
        a: of(BookSide::A),
        b: of(BookSide::B),
        difference: difference(&key, pairs),
        better,
        better_in,
        not_compared_in: pairs.iter().filter(|pair| is_not_compared(&key, pair)).count(),
        is_judged: key.metric.info().better != Better::Neither,
    };
    (key, compared)
}

/// At least 95 %.
const fn is_most(part: usize, whole: usize) -> bool {
    part * 20 >= whole * 19
}

/// The pairs in which that side is better: its own value, and the other's.
fn gains<'a>(
    key: &'a FigureKey,
    side: BookSide,
    pairs: &'a [[RunFigures; 2]],
) -> impl Iterator<Item = (MetricValue, MetricValue)> + 'a {
    let ordered = pairs.iter().map(move |pair| (&pair[side as usize], &pair[side.other() as usize]));
    let may_be =
        ordered.filter(|(own, others)| may_be_better(key.metric, own.delivered(), others.delivered()));
    let values = may_be.filter_map(|(own, others)| Some((own.value(key)?, others.value(key)?)));
    values.filter(|(own, others)| is_better(key.metric, *own, *others))
}

fn is_not_compared(key: &FigureKey, [a, b]: &[RunFigures; 2]) -> bool {
    let (Some(of_a), Some(of_b)) = (a.value(key), b.value(key)) else { return false };
    let [by_a, by_b] = [a, b].map(RunFigures::delivered);
    (is_better(key.metric, of_a, of_b) && !may_be_better(key.metric, by_a, by_b))
        || (is_better(key.metric, of_b, of_a) && !may_be_better(key.metric, by_b, by_a))
}

/// A book that delivers less than this share fewer may still be called faster.
const DELIVERED_LESS_MAX: f64 = 0.001;

pub(in crate::simulate) fn may_be_better(metric: RunMetric, own: f64, others: f64) -> bool {
    !matches!(metric, RunMetric::LatencyP50 | RunMetric::LatencyP99) || own + DELIVERED_LESS_MAX >= others
}

pub(super) fn is_better(metric: RunMetric, own: MetricValue, others: MetricValue) -> bool {
    let info = metric.info();
    let is_ahead = match info.better {
        Better::Less => own.as_f64() < others.as_f64(),
        Better::More => own.as_f64() > others.as_f64(),
        Better::Neither => false,
    };
    is_ahead && info.apart.is_between(own, others)
}

fn difference(key: &FigureKey, pairs: &[[RunFigures; 2]]) -> Option<FigureSpread> {
    let apart = |[a, b]: &[RunFigures; 2]| {
        let (a, b) = (a.value(key)?, b.value(key)?);
        (a.as_f64().is_finite() && b.as_f64().is_finite()).then_some((a, b))
    };
    let mut both: Vec<(MetricValue, MetricValue)> = pairs.iter().map(apart).collect::<Option<_>>()?;
    both.sort_by(|one, other| apart_by(*one).total_cmp(&apart_by(*other)));
    let at = |place: usize| both[place];
    let (min, median, max) = (at(0), at((both.len() - 1) / 2), at(both.len() - 1));
    let shown = |(a, b)| words::signed(a, b);
    Some(FigureSpread {
        min: Some(apart_by(min)),
        median: Some(apart_by(median)),
        max: Some(apart_by(max)),
        shown: (shown(min), shown(median), shown(max)),
    })
}

fn apart_by((a, b): (MetricValue, MetricValue)) -> f64 {
    super::report::rounded(b.as_f64() - a.as_f64())
}

fn causes(pairs: &[[RunFigures; 2]]) -> Vec<CauseComparison> {
    let mut known: Vec<&DeadLetterCause> = Vec::new();
    for cause in pairs.iter().flatten().flat_map(|run| &run.causes) {
        if !known.iter().any(|it| is_same(it, cause)) {
            known.push(cause);
        }
    }
    let count = |run: &RunFigures, cause: &DeadLetterCause| {
        let same = run.causes.iter().filter(|it| is_same(it, cause));
        MetricValue::Count(same.map(|it| it.count).sum())
    };
    let causes = known.iter().map(|cause| {
        let of = |side: BookSide| {
            FigureSpread::of(pairs.iter().map(|pair| count(&pair[side as usize], cause)).collect())
        };
        CauseComparison {
            queue: cause.queue.clone(),
            code: cause.code.clone(),
            failure_code: cause.failure_code.clone(),
            a: of(BookSide::A),
            b: of(BookSide::B),
        }
    });
    causes.collect()
}

fn is_same(one: &DeadLetterCause, other: &DeadLetterCause) -> bool {
    (&one.queue, &one.code, &one.failure_code) == (&other.queue, &other.code, &other.failure_code)
}

fn expectations(pairs: &[[RunFigures; 2]]) -> Vec<ExpectationComparison> {
    let met = |side: BookSide, place: usize| {
        let runs = pairs.iter().map(|pair| &pair[side as usize]);
        runs.filter(|run| run.expectations.get(place).is_some_and(|expected| expected.met)).count()
    };
    let middle = &pairs[(pairs.len() - 1) / 2];
    let shown = |side: BookSide, place: usize| {
        let expected = middle[side as usize].expectations.get(place);
        expected.map(|expected| expected.value.to_string()).unwrap_or_default()
    };
    let compared =
        pairs[0][0].expectations.iter().enumerate().map(|(place, expected)| ExpectationComparison {
            expectation: expected.expectation.clone(),
            a: met(BookSide::A, place),
            b: met(BookSide::B, place),
            shown: BookSide::BOTH.map(|side| shown(side, place)),
        });
    compared.collect()
}

impl BookComparison {
    #[must_use]
    pub fn is_as_expected(&self) -> bool {
        self.expectations.iter().all(|expected| expected.a == self.runs && expected.b == self.runs)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undecided {
    pub same: Vec<String>,
    pub by_chance: Vec<String>,
    pub not_compared: Vec<String>,
}

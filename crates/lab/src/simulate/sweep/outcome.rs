//! The result of a sweep: one row per book, one column per figure that differs, and sentences about trade-offs.

use serde::Serialize;

use super::Sweep;
use crate::scenario::expectation::{Better, MetricValue, RunMetric};
use crate::simulate::compare::{self, BookComparison, BookSide, listed};
use crate::simulate::figures::{FigureKey, RunFigures};
use crate::simulate::runs::RunRanges;
use redrive_core::text;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepResult {
    pub paths: Vec<String>,
    pub rows: Vec<SweepRow>,
    /// The position of each row on the axis of the first path.
    pub places: Vec<f64>,
    pub columns: Vec<SweepColumn>,
    pub words: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepRow {
    pub values: Vec<String>,
    /// A row that is at least as good in everything and better in something.
    pub beaten_by: Option<usize>,
    pub as_expected: bool,
    #[serde(flatten)]
    pub ranges: RunRanges,
}

/// Medians over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepColumn {
    pub metric: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// `None` for never.
    pub values: Vec<Option<f64>>,
    pub shown: Vec<String>,
    pub is_best: Vec<bool>,
    #[serde(skip)]
    key: FigureKey,
    #[serde(skip)]
    middles: Vec<MetricValue>,
    #[serde(skip)]
    delivered: Vec<f64>,
}

/// One run per seed, for each row of the [grid](super::grid).
#[must_use]
pub fn swept(sweeps: &[Sweep], grid: &[Vec<String>], runs: &[Vec<RunFigures>]) -> SweepResult {
    let keys = runs[0][0].figures.keys();
    let mut columns: Vec<SweepColumn> = keys.filter_map(|key| column(key, runs)).collect();
    // Delivered follows from dead letters and waiting.
    if columns.iter().any(|column| matches!(column.key.metric, RunMetric::DeadLetters | RunMetric::Waiting)) {
        columns.retain(|column| column.key.metric != RunMetric::Delivered);
    }
    let rows = grid.iter().zip(runs).enumerate().map(|(place, (values, runs))| SweepRow {
        values: values.clone(),
        beaten_by: (0..grid.len()).find(|other| is_beaten(&columns, place, *other)),
        as_expected: runs.iter().all(RunFigures::is_as_expected),
        ranges: RunRanges::of(runs),
    });
    let rows: Vec<SweepRow> = rows.collect();
    let words = words(sweeps, &rows, &columns, runs);
    let firsts: Vec<&str> = rows.iter().map(|row| row.values[0].as_str()).collect();
    SweepResult {
        paths: sweeps.iter().map(|sweep| sweep.path().to_owned()).collect(),
        places: places(&firsts),
        rows,
        columns,
        words,
    }
}

/// Points closer than this share of the axis would overlap.
const APART_MIN: f64 = 0.08;

/// By size if all values have the same unit and are far enough apart, else evenly spaced.
fn places(values: &[&str]) -> Vec<f64> {
    let sizes = values.iter().map(|value| sized(value)).collect::<Option<Vec<_>>>();
    let sizes = sizes.filter(|sizes| sizes.iter().all(|(_, of)| *of == sizes[0].1));
    let Some(sizes) = sizes else { return (0..values.len()).map(|place| place as f64).collect() };
    let sizes: Vec<f64> = sizes.into_iter().map(|(size, _)| size).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|one, other| sizes[*one].total_cmp(&sizes[*other]));
    let whole = order.first().zip(order.last()).map_or(0.0, |(first, last)| sizes[*last] - sizes[*first]);
    if order.windows(2).all(|pair| sizes[pair[1]] - sizes[pair[0]] >= APART_MIN * whole) {
        return sizes;
    }
    let mut places = vec![0.0; sizes.len()];
    for (place, value) in order.into_iter().enumerate() {
        places[value] = place as f64;
    }
    places
}

fn column(key: &FigureKey, runs: &[Vec<RunFigures>]) -> Option<SweepColumn> {
    let middle = |runs: &Vec<RunFigures>| {
        let mut values: Vec<MetricValue> = runs.iter().filter_map(|run| run.value(key)).collect();
        values.sort_by(|one, other| one.as_f64().total_cmp(&other.as_f64()));
        values.get(values.len().saturating_sub(1) / 2).copied()
    };
    let middles: Vec<MetricValue> = runs.iter().map(middle).collect::<Option<_>>()?;
    let (metric, apart) = (key.metric, key.metric.info().apart);
    let differs = middles.iter().any(|one| middles.iter().any(|other| apart.is_between(*one, *other)));
    if !differs {
        return None;
    }
    let delivered: Vec<f64> = runs.iter().map(|runs| middle_delivered(runs)).collect();
    // A row that gives up early is faster only for what it still delivers.
    let may_be_best = |own: usize| {
        delivered.iter().all(|others| compare::may_be_better(metric, delivered[own], *others))
            && metric.info().better != Better::Neither
    };
    let is_beaten = |own: usize| {
        let others = (0..middles.len()).filter(|other| may_be_best(*other));
        others.into_iter().any(|other| compare::is_better(metric, middles[other], middles[own]))
    };
    let is_best = (0..middles.len()).map(|own| may_be_best(own) && !is_beaten(own)).collect();
    Some(SweepColumn {
        metric: metric.as_str(),
        of: key.of.clone(),
        values: middles.iter().map(|it| Some(it.as_f64()).filter(|it| it.is_finite())).collect(),
        shown: middles.iter().map(ToString::to_string).collect(),
        is_best,
        key: key.clone(),
        middles,
        delivered,
    })
}

fn middle_delivered(runs: &[RunFigures]) -> f64 {
    let mut shares: Vec<f64> = runs.iter().map(RunFigures::delivered).collect();
    shares.sort_by(f64::total_cmp);
    shares[(shares.len() - 1) / 2]
}

fn is_beaten(columns: &[SweepColumn], own: usize, other: usize) -> bool {
    let is_better = |column: &SweepColumn, one: usize, than: usize| {
        let metric = column.key.metric;
        compare::may_be_better(metric, column.delivered[one], column.delivered[than])
            && compare::is_better(metric, column.middles[one], column.middles[than])
    };
    columns.iter().any(|column| is_better(column, other, own))
        && !columns.iter().any(|column| is_better(column, own, other))
}

fn words(
    sweeps: &[Sweep],
    rows: &[SweepRow],
    columns: &[SweepColumn],
    runs: &[Vec<RunFigures>],
) -> Vec<String> {
    let paths: Vec<String> = sweeps.iter().map(|sweep| format!("`{}`", sweep.path())).collect();
    if rows.len() < 2 {
        return vec![format!("{} has only one value: name several to compare them", listed(&paths))];
    }
    if columns.is_empty() {
        return vec![format!("{} makes no difference in this scenario", listed(&paths))];
    }
    let mut sentences = Vec::new();
    if let [sweep] = sweeps {
        sentences.extend(between_ends(sweep, runs));
        sentences.extend(columns.iter().filter_map(|column| best_within(sweep, column)));
    }
    let name = |row: &SweepRow| row.values.join(", ");
    let beaten: Vec<(&SweepRow, &SweepRow)> =
        rows.iter().filter_map(|row| Some((row, &rows[row.beaten_by?]))).collect();
    let choices: Vec<String> =
        rows.iter().filter(|row| row.beaten_by.is_none()).map(|row| format!("`{}`", name(row))).collect();
    match (beaten.as_slice(), choices.as_slice()) {
        ([], _) => {}
        (_, [one]) => sentences.push(format!("{one} is best in everything measured")),
        ([(row, by)], _) => {
            sentences.push(format!(
                "`{}` is never better than `{}` and worse in something",
                name(row),
                name(by)
            ));
        }
        (_, choices) => {
            sentences.push(format!(
                "candidates: {}; every other value is worse than one of them",
                listed(choices)
            ));
        }
    }
    sentences
}

fn between_ends(sweep: &Sweep, runs: &[Vec<RunFigures>]) -> Vec<String> {
    let values = sweep.values();
    let size = |value: &String| sized(value).map(|(size, _)| size);
    let sizes: Option<Vec<f64>> = values.iter().map(size).collect();
    let (least, most) = match &sizes {
        Some(sizes) => {
            let order = |one: &usize, other: &usize| sizes[*one].total_cmp(&sizes[*other]);
            ((0..sizes.len()).min_by(order).unwrap_or(0), (0..sizes.len()).max_by(order).unwrap_or(0))
        }
        None => (0, values.len() - 1),
    };
    if least == most {
        return Vec::new();
    }
    let pairs: Vec<[RunFigures; 2]> =
        runs[least].iter().zip(&runs[most]).map(|(one, other)| [one.clone(), other.clone()]).collect();
    let comparison = compare::compare_runs(&pairs);
    let ends = [(BookSide::B, most, least), (BookSide::A, least, most)];
    let sentences = ends.into_iter().filter_map(|(side, own, others)| {
        let better = advantages(&comparison, side)?;
        let (own_value, others_value) = (&values[own], &values[others]);
        let unit = sizes.as_ref().and_then(|_| sized(own_value)).map(|(_, unit)| unit);
        let how = match (unit, side) {
            (Some(SizeOf::Time), BookSide::B) => format!("a longer `{}`, ", sweep.key()),
            (Some(SizeOf::Time), BookSide::A) => format!("a shorter `{}`, ", sweep.key()),
            (Some(SizeOf::Number), BookSide::B) => format!("a higher `{}`, ", sweep.key()),
            (Some(SizeOf::Number), BookSide::A) => format!("a lower `{}`, ", sweep.key()),
            (None, _) => String::new(),
        };
        Some(format!("{how}{own_value} instead of {others_value}: {better}"))
    });
    sentences.collect()
}

const ADVANTAGES_MAX: usize = 5;

fn advantages(comparison: &BookComparison, side: BookSide) -> Option<String> {
    let all: Vec<&str> =
        comparison.advantages.iter().filter(|it| it.side == side).map(|it| it.text.as_str()).collect();
    let shown: Vec<&str> = all.iter().take(ADVANTAGES_MAX).copied().collect();
    let more = match all.len().saturating_sub(ADVANTAGES_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!all.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

/// Mentioned because a reader would look at the ends.
fn best_within(sweep: &Sweep, column: &SweepColumn) -> Option<String> {
    let ends = [column.is_best.first()?, column.is_best.last()?];
    let place = column.is_best.iter().position(|is_best| *is_best)?;
    let is_within = ends == [&false, &false];
    let of = column.of.as_ref().map(|of| format!(" of `{of}`")).unwrap_or_default();
    is_within.then(|| {
        format!(
            "{}{of} is best between the ends, at {}: {}",
            column.metric.replace('_', " "),
            sweep.values()[place],
            column.shown[place]
        )
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SizeOf {
    Time,
    Number,
}

fn sized(value: &str) -> Option<(f64, SizeOf)> {
    let number = |number: f64| (number, SizeOf::Number);
    let time = text::parse_duration(value).ok().map(|time| (time.as_secs_f64(), SizeOf::Time));
    time.or_else(|| value.parse().ok().filter(|number: &f64| number.is_finite()).map(number))
        .or_else(|| text::parse_share(value).ok().map(|share| number(share.get())))
        .or_else(|| text::parse_rate(value).ok().map(|rate| number(rate.as_per_second())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_at_their_sizes_unless_they_would_stand_upon_each_other() {
        #[rustfmt::skip]
        let cases: [(&str, &[&str], &[f64]); 8] = [
            ("numbers",           &["1", "3", "9"],                &[1.0, 3.0, 9.0]),
            ("times",             &["30s", "1m", "500ms"],         &[30.0, 60.0, 0.5]),
            ("shares",            &["10%", "50%"],                 &[0.1, 0.5]),
            ("rates",             &["60/m", "20/s"],               &[1.0, 20.0]),
            ("far apart",         &["1", "3", "9", "1000"],        &[0.0, 1.0, 2.0, 3.0]),
            ("and out of order",  &["1h", "1s", "2s"],             &[2.0, 0.0, 1.0]),
            ("words",             &["none", "externalBreaker"],    &[0.0, 1.0]),
            ("one",               &["7"],                          &[7.0]),
        ];
        for (name, values, expected) in cases {
            let found = places(values);
            let is_near = |(one, other): (&f64, &f64)| (one - other).abs() < 1e-9;
            assert!(
                found.len() == expected.len() && found.iter().zip(expected).all(is_near),
                "{name}: {found:?}"
            );
        }
    }
}

//! Where an axis has its marks, and what stands beside them: few, evenly spaced, and at numbers that people count by.
//!
//! Only additions, products and quotients are used, so that a picture has the same bytes on every machine.

use std::time::Duration;

use redrive_core::text::show_rounded;

use super::Unit;

/// Seconds between marks of time: what clocks have.
#[rustfmt::skip]
const SECONDS: [f64; 27] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0,
    3_600.0, 7_200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0,
];
const DAY_SECONDS: f64 = 86_400.0;

/// The marks of an axis from 0 to the first that no value is above.
pub(super) fn from_zero(unit: &Unit, top: f64, steps: u32) -> Vec<f64> {
    let least = match unit {
        Unit::Count(_) => f64::from(steps),
        Unit::Time | Unit::Number(_) if top > 0.0 => 0.0,
        Unit::Time | Unit::Number(_) => 1.0,
    };
    let top = top.max(least);
    let step = step(unit, top / f64::from(steps));
    let mut marks = vec![0.0];
    while marks.last().is_some_and(|last| *last < top) {
        marks.push(step * marks.len() as f64);
    }
    marks
}

/// The marks between two ends, at most so many steps.
pub(super) fn between(unit: &Unit, from: f64, to: f64, steps: u32) -> Vec<f64> {
    let step = step(unit, (to - from) / f64::from(steps));
    let first = (from / step).ceil();
    // A little is forgiven at the far end: sums of fractions are not exact.
    let is_within = |mark: &f64| *mark <= to + step / 1_000.0;
    (0..=steps).map(|number| (first + f64::from(number)) * step).take_while(is_within).collect()
}

/// The next step that people count by.
fn step(unit: &Unit, at_least: f64) -> f64 {
    match unit {
        Unit::Time => {
            let clock = SECONDS.into_iter().find(|step| *step >= at_least);
            clock.unwrap_or_else(|| DAY_SECONDS * round(at_least / DAY_SECONDS))
        }
        Unit::Count(_) => round(at_least.max(1.0)),
        Unit::Number(_) => round(at_least),
    }
}

/// The next of 1, 2, 5, 10, 20, …
fn round(at_least: f64) -> f64 {
    // A power and its share are kept as whole numbers of tens, because a tenth of a tenth is not exact.
    let mut power = 1.0;
    while power < at_least {
        power *= 10.0;
    }
    let mut parts = 1.0;
    while power / (parts * 10.0) >= at_least && parts < 1e12 {
        parts *= 10.0;
    }
    let tried = [5.0, 2.0].map(|share| power / (parts * share));
    let smallest = tried.into_iter().find(|step| *step >= at_least);
    smallest.unwrap_or(power / parts)
}

/// What stands beside a mark.
pub(super) fn label(unit: &Unit, value: f64) -> String {
    match unit {
        Unit::Time => time(value),
        Unit::Count(_) | Unit::Number(_) => compact(value),
    }
}

/// Seconds in the unit that suits them.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds <= 0.0 => "0".to_owned(),
        _ if seconds < 0.999_5 => format!("{}ms", trimmed(seconds * 1_000.0, 0)),
        _ if seconds < 59.95 => format!("{}s", trimmed(seconds, 1)),
        _ => show_rounded(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    }
}

/// A number in a few characters.
pub(super) fn compact(value: f64) -> String {
    let size = value.abs();
    #[rustfmt::skip]
    let (divisor, suffix, digits) = match size {
        _ if size >= 999.5e9 => return format!("{value:.1e}"),
        _ if size >= 999.5e6 => (1e9, "G", 2),
        _ if size >= 999_500.0 => (1e6, "M", 2),
        _ if size >= 1_000.0 => (1e3, "k", 2),
        _ if size >= 100.0 => (1.0, "", 0),
        _ if size >= 1.0 || size == 0.0 => (1.0, "", 2),
        _ if size >= 0.001 => (1.0, "", 3),
        _ => return format!("{value:.0e}"),
    };
    format!("{}{suffix}", trimmed(value / divisor, digits))
}

/// A number with at most so many digits behind the point, and none that say nothing.
pub(super) fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> Unit {
        Unit::Count(String::new())
    }

    fn number() -> Unit {
        Unit::Number(String::new())
    }

    #[test]
    fn an_axis_has_few_marks_at_numbers_that_people_count_by() {
        #[rustfmt::skip]
        let cases = [
            ("nothing at all",         number(),   0.0,         "0 0.5 1"),
            ("no counts",              count(),    0.0,         "0 1 2 3 4"),
            ("one",                    count(),    1.0,         "0 1 2 3 4"),
            ("a few",                  count(),    7.0,         "0 2 4 6 8"),
            ("exactly at a mark",      count(),    80.0,        "0 20 40 60 80"),
            ("hundreds",               number(),   317.0,       "0 100 200 300 400"),
            ("thousands",              count(),    5_300.0,     "0 2k 4k 6k"),
            ("millions",               count(),    1_900_000.0, "0 500k 1M 1.5M 2M"),
            ("parts of one",           number(),   0.37,        "0 0.1 0.2 0.3 0.4"),
            ("parts of a hundredth",   number(),   0.004,       "0 0.001 0.002 0.003 0.004"),
            ("a huge number",          number(),   3e30,        "0 1.0e30 2.0e30 3.0e30"),
            ("milliseconds",           Unit::Time, 0.35,        "0 100ms 200ms 300ms 400ms"),
            ("seconds",                Unit::Time, 40.0,        "0 10s 20s 30s 40s"),
            ("minutes",                Unit::Time, 1_800.0,     "0 10m 20m 30m"),
            ("days",                   Unit::Time, 864_000.0,   "0 5d 10d"),
        ];
        for (name, unit, top, expected) in cases {
            let marks: Vec<String> =
                from_zero(&unit, top, 4).into_iter().map(|mark| label(&unit, mark)).collect();
            assert_eq!(marks.join(" "), expected, "{name}");
        }
    }

    #[test]
    fn marks_lie_between_the_ends() {
        #[rustfmt::skip]
        let cases = [
            ("half an hour",     Unit::Time, 0.0,     1_800.0,   "0 5m 10m 15m 20m 25m 30m"),
            ("a little more",    Unit::Time, 0.0,     1_937.0,   "0 10m 20m 30m"),
            ("three minutes",    Unit::Time, 0.0,     180.0,     "0 30s 1m 90s 2m 2m30s 3m"),
            ("a day",            Unit::Time, 0.0,     86_400.0,  "0 6h 12h 18h 1d"),
            ("two seconds",      Unit::Time, 0.0,     2.0,       "0 500ms 1s 1.5s 2s"),
            ("not from zero",    number(),   37.0,    93.0,      "40 50 60 70 80 90"),
            ("fractions",        number(),   0.0,     0.6,       "0 0.1 0.2 0.3 0.4 0.5 0.6"),
            ("below zero",       number(),   -2.0,    2.0,       "-2 -1 0 1 2"),
            ("one and the next", count(),    3.0,     4.0,       "3 4"),
        ];
        for (name, unit, from, to, expected) in cases {
            let marks: Vec<String> =
                between(&unit, from, to, 6).into_iter().map(|mark| label(&unit, mark)).collect();
            assert_eq!(marks.join(" "), expected, "{name}");
        }
    }

    #[test]
    fn numbers_are_short() {
        #[rustfmt::skip]
        let cases = [
            (0.0, "0"), (-0.0, "0"), (1.0, "1"), (1.5, "1.5"), (99.94, "99.94"), (120.4, "120"), (999.0, "999"),
            (1_250.0, "1.25k"), (999_499.0, "999.5k"), (999_999.0, "1M"), (2e9, "2G"), (0.25, "0.25"),
            (0.001_2, "0.001"), (0.000_04, "4e-5"),
        ];
        for (value, expected) in cases {
            assert_eq!(compact(value), expected);
        }
    }
}

//! Dapr durations: Go syntax, or a bare number of milliseconds.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GoDuration {
    /// Negative durations are zero, as in Dapr.
    pub(super) span: Duration,
    pub(super) unit: DurationUnit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DurationUnit {
    Given,
    /// Dapr assumes milliseconds.
    Missing,
}

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

pub(super) fn parse(text: &str) -> Option<GoDuration> {
    if let Ok(millis) = text.parse::<i64>() {
        let nanos = i128::from(millis).checked_mul(1_000_000)?;
        let unit = if millis == 0 { DurationUnit::Given } else { DurationUnit::Missing };
        return Some(GoDuration { span: span(nanos)?, unit });
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1 } else { 1 };
    if unsigned.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, unit_nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(nanos(number, unit_nanos)?)?;
        rest = tail;
    }
    Some(GoDuration { span: span(sign * total)?, unit: DurationUnit::Given })
}

/// Truncated to nanoseconds.
fn nanos(number: &str, unit_nanos: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let fraction = &fraction[..fraction.len().min(12)];
    let scale = 10_i128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let below = digits(fraction)?.checked_mul(unit_nanos)? / scale;
    digits(whole)?.checked_mul(unit_nanos)?.checked_add(below)
}

/// Go refuses what does not fit into 64 bits of nanoseconds.
fn span(nanos: i128) -> Option<Duration> {
    let nanos = i64::try_from(nanos).ok()?;
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

pub(super) fn bounded(span: Duration) -> Duration {
    span.min(limits::DURATION_MAX)
}

/// Exact, without days: readable by Dapr and by rule books.
pub(super) fn show(span: Duration) -> String {
    let mut shown = String::new();
    let mut secs = span.as_secs();
    // Seconds up to ten minutes, as people write them.
    let units: &[(&str, u64)] = if secs < 600 { &[("s", 1)] } else { &[("h", 3_600), ("m", 60), ("s", 1)] };
    for (unit, unit_secs) in units {
        if secs >= *unit_secs {
            write!(shown, "{}{unit}", secs / unit_secs).expect("a string takes all that is written");
            secs %= unit_secs;
        }
    }
    let nanos = span.subsec_nanos();
    if nanos > 0 {
        let fraction = format!("{:06}", nanos % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        write!(shown, "{}{dot}{fraction}ms", nanos / 1_000_000).expect("a string takes all that is written");
    }
    if shown.is_empty() { "0s".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redrive_core::text;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let ns = Duration::from_nanos;
        let secs = Duration::from_secs;
        #[rustfmt::skip]
        let cases = [
            ("seconds",                "5s",        Some((secs(5), DurationUnit::Given))),
            ("a sum",                  "1h30m",     Some((secs(5_400), DurationUnit::Given))),
            ("a unit twice",           "5s5s",      Some((secs(10), DurationUnit::Given))),
            ("a fraction",             "1.5s",      Some((Duration::from_millis(1_500), DurationUnit::Given))),
            ("no digit before",        ".5s",       Some((Duration::from_millis(500), DurationUnit::Given))),
            ("no digit after",         "5.s",       Some((secs(5), DurationUnit::Given))),
            ("microseconds",           "7µs",       Some((ns(7_000), DurationUnit::Given))),
            ("the other mu",           "7μs",       Some((ns(7_000), DurationUnit::Given))),
            ("a nanosecond",           "1ns",       Some((ns(1), DurationUnit::Given))),
            ("a bare number",          "250",       Some((Duration::from_millis(250), DurationUnit::Missing))),
            ("nothing",                "0",         Some((Duration::ZERO, DurationUnit::Given))),
            ("less than nothing",      "-5s",       Some((Duration::ZERO, DurationUnit::Given))),
            ("a plus",                 "+5s",       Some((secs(5), DurationUnit::Given))),
            ("days",                   "1d",        None),
            ("no unit in a fraction",  "1.5",       None),
            ("a space",                "5 s",       None),
            ("only a dot",             ".s",        None),
            ("two dots",               "1.2.3s",    None),
            ("only a sign",            "-",         None),
            ("no text",                "",          None),
            ("more than Go counts",    "9999999h",  None),
            ("far more",               "99999999999999999999999999999999999999999999h", None),
        ];
        for (name, text, expected) in cases {
            assert_eq!(parse(text).map(|go| (go.span, go.unit)), expected, "{name}");
        }
    }

    #[test]
    fn durations_are_shown_with_a_unit_and_without_days() {
        #[rustfmt::skip]
        let cases = [
            (Duration::ZERO,                    "0s"),
            (Duration::from_millis(500),        "500ms"),
            (Duration::from_secs(60),           "60s"),
            (Duration::from_secs(120),          "120s"),
            (Duration::from_millis(1_500),      "1s500ms"),
            (Duration::from_mins(15),           "15m"),
            (Duration::from_secs(3_723),        "1h2m3s"),
            (Duration::from_hours(48),          "48h"),
            (Duration::from_nanos(1_500_000),   "1.5ms"),
            (Duration::from_nanos(1),           "0.000001ms"),
        ];
        for (span, expected) in cases {
            assert_eq!(show(span), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back_by_both(nanos in 0..2_000_000_000_000_000_u64) {
            let span = Duration::from_nanos(nanos);
            let shown = show(span);
            prop_assert_eq!(parse(&shown).map(|go| (go.span, go.unit)), Some((span, DurationUnit::Given)));
            prop_assert_eq!(text::parse_duration(&shown), Ok(span));
        }

        #[test]
        fn any_text_is_read_or_not(text in "\\PC*|[0-9a-zµ.+-]{0,12}") {
            let _ = parse(&text);
        }
    }
}

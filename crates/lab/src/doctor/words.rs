//! Formats numbers for findings, and rounds durations to values one would write in a book.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::policy::category::FailureCode;
pub(super) use redrive_core::text::counted;

const CODES_SHOWN_MAX: usize = 3;

pub(super) fn percent(part: u64, of: u64) -> String {
    let share = if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 };
    if share > 0.0 && share < 1.0 { "less than 1%".to_owned() } else { format!("{share:.0}%") }
}

pub(super) const fn exceeds(part: u64, of: u64, hundredths: u64) -> bool {
    part.saturating_mul(100) > of.saturating_mul(hundredths)
}

pub(super) fn waiting(number: u64) -> String {
    format!("{} {}", counted(number, "delivery"), if number == 1 { "waits" } else { "wait" })
}

pub(super) fn tally<'a>(codes: impl Iterator<Item = &'a FailureCode>) -> Vec<(&'a str, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for code in codes {
        *counts.entry(code.as_str()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

pub(super) fn said(counts: &[(&str, u64)]) -> String {
    let times = |(code, count): &(&str, u64)| match count {
        1 => format!("{code} once"),
        count => format!("{code} {count} times"),
    };
    let mut shown: Vec<String> = counts.iter().take(CODES_SHOWN_MAX).map(times).collect();
    if counts.len() > CODES_SHOWN_MAX {
        shown.push(counted((counts.len() - CODES_SHOWN_MAX) as u64, "other"));
    }
    shown.join(", ")
}

pub(super) fn rounded_up(span: Duration) -> Duration {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    let step = match millis {
        0..1_000 => 100,
        1_000..10_000 => 500,
        10_000..60_000 => 5_000,
        60_000..600_000 => 30_000,
        600_000..7_200_000 => 300_000,
        7_200_000..172_800_000 => 3_600_000,
        _ => 86_400_000,
    };
    Duration::from_millis(millis.div_ceil(step).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::text::show_duration;

    #[test]
    fn spans_are_rounded_to_what_one_would_write() {
        #[rustfmt::skip]
        let cases = [
            (1, "100ms"), (100, "100ms"), (301, "400ms"), (1_001, "1s500ms"), (4_500, "4s500ms"), (9_600, "10s"),
            (12_001, "15s"), (61_000, "90s"), (700_000, "15m"), (8_000_000, "3h"), (200_000_000, "3d"),
        ];
        for (millis, expected) in cases {
            assert_eq!(show_duration(rounded_up(Duration::from_millis(millis))), expected, "{millis}");
        }
    }

    #[test]
    fn counts_read_well() {
        assert_eq!(counted(1, "delivery"), "1 delivery");
        assert_eq!(counted(2, "delivery"), "2 deliveries");
        assert_eq!(counted(3, "replay"), "3 replays");
        assert_eq!(percent(1, 3), "33%");
        assert_eq!(percent(1, 1_000), "less than 1%");
        assert_eq!(said(&[("A", 3), ("B", 1), ("C", 1), ("D", 1)]), "A 3 times, B once, C once, 1 other");
        let five = [("A", 3), ("B", 1), ("C", 1), ("D", 1), ("E", 1)];
        assert_eq!(said(&five), "A 3 times, B once, C once, 2 others");
    }
}

//! Points in time and durations for people.
//!
//! All times are in UTC, as in logs and responses.

use std::time::Duration;

use redrive_core::text::show_rounded;
use redrive_core::time::Timestamp;

/// To the millisecond.
pub(crate) fn moment(at: Timestamp) -> String {
    Timestamp::from_millis(at.as_millis()).to_string()
}

/// To the millisecond, with fixed width.
pub(crate) fn time_of_day(at: Timestamp) -> String {
    let millis = at.as_millis();
    let seconds = millis / 1_000;
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:03}", millis % 1_000)
}

/// `in 12s`, or `now`.
pub(crate) fn coming(at: Timestamp, now: Timestamp) -> String {
    if at.since(now) < Duration::from_millis(500) {
        "now".to_owned()
    } else {
        format!("in {}", rough(at.since(now)))
    }
}

pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", rough(now.since(at)))
}

/// To the millisecond below a minute, else to the second.
pub(crate) fn show_wait(span: Duration) -> String {
    let millis = span.as_millis();
    let rounded = if millis >= 60_000 {
        Duration::from_secs(u64::try_from((millis + 500) / 1_000).unwrap_or(u64::MAX))
    } else {
        return match millis {
            0 => "0s".to_owned(),
            1..1_000 => format!("{millis}ms"),
            _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
            _ => format!("{:.2}s", span.as_secs_f64()),
        };
    };
    show_rounded(rounded)
}

/// In its two largest units, in whole seconds: clocks of two machines agree no better.
pub(crate) fn rough(span: Duration) -> String {
    let seconds = (span + Duration::from_millis(500)).as_secs();
    let unit = match seconds {
        0..600 => 1,
        600..86_400 => 60,
        _ => 3_600,
    };
    show_rounded(Duration::from_secs(seconds / unit * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_as_exact_as_people_read_them() {
        #[rustfmt::skip]
        let cases = [
            ("nothing",      0,               "0s",    "0s"),
            ("milliseconds", 352,             "352ms", "0s"),
            ("seconds",      2_450,           "2.45s", "2s"),
            ("nearly",       59_770,          "59.77s", "1m"),
            ("a minute",     66_000,          "66s",   "66s"),
            ("minutes",      125_400,         "2m5s",  "2m5s"),
            ("an hour",      3_725_000,       "1h2m5s", "1h2m"),
            ("days",         273_725_000,     "3d4h2m5s", "3d4h"),
        ];
        for (name, millis, wait, about) in cases {
            assert_eq!(show_wait(Duration::from_millis(millis)), wait, "{name}");
            assert_eq!(rough(Duration::from_millis(millis)), about, "{name}");
        }
    }

    #[test]
    fn points_are_told_to_the_millisecond() {
        let at = Timestamp::from_nanos(1_761_057_000_250_999_999);
        assert_eq!(moment(at), "2025-10-21T14:30:00.25Z");
        assert_eq!(time_of_day(at), "14:30:00.250");
        assert_eq!(coming(at, at), "now");
        assert_eq!(coming(at, at - Duration::from_secs(12)), "in 12s");
        assert_eq!(ago(at, at + Duration::from_mins(3)), "3m ago");
    }
}

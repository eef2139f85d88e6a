//! Recorded arrivals: a text with one time in each line, as logs and databases export them.
//!
//! A line begins with seconds since the start (`12.5`) or a timestamp (`2026-01-31T12:00:00Z`); the rest after a comma
//! is ignored, and so are empty lines, comments (`#`) and a header line at the top.

use std::time::Duration;

use redrive_core::limits;
use redrive_core::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrace {
    #[error("line {line}: {text:?} is neither seconds since the start nor a timestamp")]
    Line { line: usize, text: String },
    #[error("line {line}: seconds and timestamps are mixed")]
    Mixed { line: usize },
    #[error("the trace has no arrivals")]
    Empty,
    #[error("the trace has more than {max} arrivals", max = limits::SIMULATION_TRACE_MAX)]
    TooLong,
}

/// The arrivals since the start, sorted.
pub fn parse(text: &str) -> Result<Vec<Duration>, InvalidTrace> {
    let mut times = Vec::new();
    let mut format = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, text) in (1..).zip(text.lines()) {
        let first = text.split(',').next().unwrap_or_default().trim();
        if first.is_empty() || first.starts_with('#') {
            continue;
        }
        let Some((read, nanos)) = time_of(first) else {
            let is_title =
                first.parse::<f64>().is_err() && !first.starts_with(|it: char| it.is_ascii_digit());
            if times.is_empty() && line == 1 && is_title {
                continue;
            }
            return Err(InvalidTrace::Line { line, text: first.to_owned() });
        };
        if *format.get_or_insert(read) != read {
            return Err(InvalidTrace::Mixed { line });
        }
        if times.len() == limits::SIMULATION_TRACE_MAX {
            return Err(InvalidTrace::TooLong);
        }
        times.push(nanos);
    }
    times.sort_unstable();
    let start = match (format, times.first()) {
        (Some(TimeFormat::Timestamp), Some(first)) => *first,
        (Some(TimeFormat::Seconds), Some(_)) => 0,
        (_, None) | (None, _) => return Err(InvalidTrace::Empty),
    };
    Ok(times.into_iter().map(|nanos| Duration::from_nanos(nanos - start)).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeFormat {
    Seconds,
    Timestamp,
}

fn time_of(text: &str) -> Option<(TimeFormat, u64)> {
    if let Ok(point) = text.parse::<Timestamp>() {
        return Some((TimeFormat::Timestamp, point.as_nanos()));
    }
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0)?;
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    Some((TimeFormat::Seconds, u64::try_from(span.as_nanos()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_first_column() {
        let ms = |millis: &[u64]| Ok(millis.iter().copied().map(Duration::from_millis).collect());
        let wrong = |line, text: &str| Err(InvalidTrace::Line { line, text: text.to_owned() });
        #[rustfmt::skip]
        let cases = [
            ("seconds",             "0\n1.5\n3\n",                                    ms(&[0, 1_500, 3_000])),
            ("they keep their start", "2\n3\n",                                       ms(&[2_000, 3_000])),
            ("points in time begin at the first", "2026-01-01T00:00:01Z\n2026-01-01T00:00:03Z\n", ms(&[0, 2_000])),
            ("titles and comments", "time,id\n# a comment\n\n1, abc\n",               ms(&[1_000])),
            ("in any order",        "3\n1\n",                                         ms(&[1_000, 3_000])),
            ("a byte order mark",   "\u{feff}1\r\n2.5\r\n",                          ms(&[1_000, 2_500])),
            ("a time that is no title", "-1\n2\n",                                    wrong(1, "-1")),
            ("nor this",            "2026-13-01T00:00:00Z\n2\n",                     wrong(1, "2026-13-01T00:00:00Z")),
            ("no time",             "1\nsoon\n",                                      wrong(2, "soon")),
            ("before the start",    "1\n-1\n",                                        wrong(2, "-1")),
            ("no number",           "1\nNaN\n",                                       wrong(2, "NaN")),
            ("both forms",          "1\n2026-01-01T00:00:01Z\n",                      Err(InvalidTrace::Mixed { line: 2 })),
            ("nothing",             "time\n",                                         Err(InvalidTrace::Empty)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(parse(text), expected, "{name}");
        }
    }
}

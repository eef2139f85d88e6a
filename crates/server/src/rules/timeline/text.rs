//! A retry policy as a table with a plot: the certain part of each delay, the delay before jitter, and the
//! jitter range.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::policy::backoff::{self, Backoff, RetryStep};
use redrive_core::text::{show_duration, show_rounded};

use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{self, style};

const ROWS_MAX: usize = 32;

/// Bounds of the plot, which fills what the table leaves.
const PLOT_COLUMNS_MIN: usize = 10;

const PLOT_COLUMNS_MAX: usize = 60;

pub(crate) fn render(name: &str, backoff: &Backoff, origin: &str) -> String {
    let mut page = format!("{}  {}\n", style::bold(name), style::dim(origin));
    if backoff.retries() == 0 {
        page.push_str("\nNo retries: the first failure makes a dead letter.\n");
        return page;
    }
    page.push_str(&numbers(backoff));
    let steps = backoff::timeline(backoff);
    let shown = &steps[..steps.len().min(ROWS_MAX)];
    page.push('\n');
    for line in table(shown, backoff, terminal::columns()) {
        page.push_str(&line);
        page.push('\n');
    }
    page.push('\n');
    page.push_str(&closing(shown, backoff));
    page
}

/// `initial 100ms · factor 2 · …`
fn numbers(backoff: &Backoff) -> String {
    let pair = |what: &str, value: String| format!("{} {value}", style::dim(what));
    let mut parts = match (backoff.listed(), backoff.factor()) {
        (Some(delays), _) => {
            let delays: Vec<_> = delays.iter().copied().map(show).collect();
            vec![pair("delays", format!("{}, and so on", delays.join(", ")))]
        }
        (None, factor) => vec![
            pair("initial", show(backoff.initial())),
            pair("factor", factor.unwrap_or(1.0).to_string()),
            pair("max", show(backoff.max())),
        ],
    };
    let retries = if backoff.is_unlimited() { "unlimited".to_owned() } else { backoff.retries().to_string() };
    parts.push(pair("retries", retries));
    parts.push(pair("window", backoff.window().map_or_else(|| "none".to_owned(), show)));
    parts.push(pair("jitter", backoff.jitter().to_string()));
    parts.join(" · ") + "\n"
}

fn table(steps: &[RetryStep], backoff: &Backoff, columns: usize) -> Vec<String> {
    let delays = TimeUnit::of(steps.iter().flat_map(|step| [step.min, step.nominal, step.max]));
    let sums = TimeUnit::of(steps.iter().map(|step| step.cumulative));
    let mut table = Table::new(&[CellAlign::Right, CellAlign::Right, CellAlign::Right, CellAlign::Right]);
    table.head(&["retry", "delay", "range", "starts after"]);
    for step in steps {
        let cells = [
            step.retry.to_string(),
            delays.show(step.nominal),
            delays.range(step.min, step.max),
            sums.show(step.cumulative),
        ];
        let paint = match fate(steps, step, backoff.window()) {
            RetryFate::Made | RetryFate::AtTimes => Cell::plain,
            RetryFate::Cut => Cell::dim,
        };
        table.push(cells.into_iter().map(paint).collect());
    }
    let mut lines = table.lines();
    let table_width = anstream::adapter::strip_str(&lines[0]).to_string().chars().count() + 2;
    let plot = columns.saturating_sub(table_width).clamp(PLOT_COLUMNS_MIN, PLOT_COLUMNS_MAX);
    let longest = steps.iter().map(|step| step.max).max().unwrap_or_default();
    for (line, step) in lines[1..].iter_mut().zip(steps) {
        let mark = match fate(steps, step, backoff.window()) {
            RetryFate::Made => style::info(bar(step, longest, plot)),
            RetryFate::AtTimes => style::warning(bar(step, longest, plot)),
            RetryFate::Cut => style::dim("✗ past the window"),
        };
        line.push_str("  ");
        line.push_str(&mark);
    }
    lines
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryFate {
    Made,
    /// Made unless the jitter is long.
    AtTimes,
    /// Starts past the window even before jitter.
    Cut,
}

fn fate(steps: &[RetryStep], step: &RetryStep, window: Option<Duration>) -> RetryFate {
    let Some(window) = window else { return RetryFate::Made };
    let latest: Duration = steps.iter().take_while(|s| s.retry <= step.retry).map(|s| s.max).sum();
    if step.cumulative > window {
        RetryFate::Cut
    } else if latest > window {
        RetryFate::AtTimes
    } else {
        RetryFate::Made
    }
}

/// `███░│░`: solid for the certain part, a stroke for the delay before jitter, light for the jitter range.
fn bar(step: &RetryStep, longest: Duration, columns: usize) -> String {
    let scale = longest.as_secs_f64().max(f64::MIN_POSITIVE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a few columns")]
    let column = |span: Duration| (span.as_secs_f64() / scale * columns as f64).round() as usize;
    let stroke = column(step.nominal).max(1) - 1;
    let (min, max) = (column(step.min), column(step.max).max(stroke + 1));
    let cell = |index: usize| match index {
        _ if step.min == step.max => '█',
        _ if index == stroke => '│',
        _ if index < min => '█',
        _ => '░',
    };
    (0..max).map(cell).collect()
}

fn closing(shown: &[RetryStep], backoff: &Backoff) -> String {
    let mut lines = String::new();
    let has_range = shown.iter().any(|step| step.min != step.max);
    if has_range {
        lines.push_str(&style::dim("█ certain   │ before jitter   ░ jitter range"));
        lines.push('\n');
    }
    let count =
        |fate_wanted| shown.iter().filter(|step| fate(shown, step, backoff.window()) == fate_wanted).count();
    let (at_times, cut) = (count(RetryFate::AtTimes), count(RetryFate::Cut));
    if let (Some(window), true) = (backoff.window(), at_times + cut > 0) {
        let window = show(window);
        if cut > 0 {
            let _ = writeln!(
                lines,
                "{} the window of {window} cuts off {cut} of these retries",
                style::warning("!")
            );
        }
        if at_times > 0 {
            let _ = writeln!(
                lines,
                "{} {at_times} more may start past the window of {window} with long jitter",
                style::warning("!")
            );
        }
    }
    let more = backoff.retries().saturating_sub(u32::try_from(shown.len()).unwrap_or(u32::MAX));
    if backoff.is_unlimited() {
        let end = match backoff.window() {
            Some(window) => format!("until the window of {} ends", show(window)),
            None => "without end".to_owned(),
        };
        let _ = writeln!(lines, "… and so on, {end}");
    } else if more > 0 {
        let _ = write!(lines, "… and {more} more\n{}", total(backoff));
    } else {
        lines.push_str(&total(backoff));
    }
    lines
}

fn total(backoff: &Backoff) -> String {
    let within = |span: Duration| backoff.window().map_or(span, |window| span.min(window));
    let (least, most) = (within(backoff.wait_min_total()), within(backoff.wait_max_total()));
    let waiting = TimeUnit::of([least, most].into_iter()).range(least, most);
    format!("Total delay: {waiting}.\n")
}

/// From here on times are shown in minutes.
const MINUTES_FROM: Duration = Duration::from_secs(120);

/// One unit for a whole column, so that its times can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeUnit {
    Millis,
    /// Minutes and seconds from [`MINUTES_FROM`] on.
    Seconds,
}

impl TimeUnit {
    /// Milliseconds if all times are short and one is not a whole second.
    fn of(mut spans: impl Iterator<Item = Duration> + Clone) -> Self {
        let is_short = spans.clone().all(|span| span < Duration::from_secs(10));
        if is_short && spans.any(|span| span.subsec_nanos() != 0) { Self::Millis } else { Self::Seconds }
    }

    fn show(self, span: Duration) -> String {
        match self.number(span) {
            Some(number) => number + self.suffix(),
            None => show_rounded(span),
        }
    }

    fn range(self, min: Duration, max: Duration) -> String {
        match (self.number(min), self.number(max)) {
            _ if min == max => self.show(min),
            (Some(min), Some(max)) => format!("{min}-{max}{}", self.suffix()),
            (Some(_), None) | (None, _) => format!("{}-{}", self.show(min), self.show(max)),
        }
    }

    /// `None` if shown in minutes.
    fn number(self, span: Duration) -> Option<String> {
        let rounded = |number: f64| ((number * 1_000.0).round() / 1_000.0).to_string();
        match self {
            Self::Millis => Some(rounded(span.as_secs_f64() * 1_000.0)),
            Self::Seconds if span < MINUTES_FROM => Some(rounded(span.as_secs_f64())),
            Self::Seconds => None,
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Seconds => "s",
        }
    }
}

fn show(span: Duration) -> String {
    if span < MINUTES_FROM { show_duration(span) } else { show_rounded(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_tells_its_times_in_one_way() {
        #[rustfmt::skip]
        let cases: [(&str, &[u64], &[&str]); 7] = [
            ("short, with fractions",  &[100, 1_600],                 &["100ms", "1600ms"]),
            ("short and whole",        &[1_000, 5_000],               &["1s", "5s"]),
            ("ten seconds are long",   &[500, 10_000],                &["0.5s", "10s"]),
            ("minutes from two on",    &[63_000, 119_000, 120_000],   &["63s", "119s", "2m"]),
            ("and on",                 &[127_000, 487_000, 607_000],  &["2m7s", "8m7s", "10m7s"]),
            ("to the second",          &[120_400, 120_500],           &["2m", "2m1s"]),
            ("hours",                  &[1_000, 3_600_000, 5_400_000], &["1s", "1h", "1h30m"]),
        ];
        for (name, millis, expected) in cases {
            let spans = millis.iter().copied().map(Duration::from_millis);
            let unit = TimeUnit::of(spans.clone());
            assert_eq!(spans.map(|span| unit.show(span)).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn a_range_has_one_unit_if_both_ends_do() {
        #[rustfmt::skip]
        let cases = [
            ("milliseconds", 75,      125,     "75-125ms"),
            ("seconds",      500,     11_500,  "0.5-11.5s"),
            ("both kinds",   60_000,  180_000, "60s-3m"),
            ("minutes",      150_000, 450_000, "2m30s-7m30s"),
            ("no range",     180_000, 180_000, "3m"),
        ];
        for (name, min, max, expected) in cases {
            let ends = [min, max].map(Duration::from_millis);
            assert_eq!(TimeUnit::of(ends.into_iter()).range(ends[0], ends[1]), expected, "{name}");
        }
    }
}

//! Simulation report: totals, each dependency over time, the verdict, and the expectations.

pub(crate) mod compare;
pub(crate) mod sweep;

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::text::{counted, show_count, show_measured, show_per_second, show_rounded};
use redrive_lab::simulate::SimulationReport;
use redrive_lab::simulate::report::{DependencyReport, ExpectationResult};
use redrive_lab::simulate::runs::RunRanges;
use redrive_lab::simulate::verdict::{SimulationFinding, Weight};
use unicode_width::UnicodeWidthStr;

use crate::terminal::spark::{spark, spark_up_to};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{hanging, style};

const SPARK_COLUMNS_MAX: usize = 60;

const SPARK_COLUMNS_MIN: usize = 8;

const LABEL_COLUMNS: usize = 13;

const GAP_COLUMNS: usize = 2;

pub(crate) fn page(
    report: &SimulationReport,
    findings: &[SimulationFinding],
    width: Option<usize>,
) -> String {
    let mut out = heading(report, width);
    out.push_str(&totals(report));
    let called = report.dependencies.iter().filter(|dependency| dependency.calls > 0);
    let rows: Vec<(&DependencyReport, Vec<TotalsRow<'_>>)> =
        called.map(|it| (it, rows_of(it, report))).collect();
    let words = rows.iter().flat_map(|(_, rows)| rows).map(|row| row.words.width()).max().unwrap_or(0);
    let columns =
        PlotColumns::of(report, width.map(|width| width.saturating_sub(LABEL_COLUMNS + GAP_COLUMNS + words)));
    for (dependency, rows) in &rows {
        out.push_str(&of_dependency(dependency, rows, columns));
    }
    let _ = writeln!(out, "{}", style::dim(format!("each column is {}", show(columns.each_ms))));
    out.push('\n');
    for finding in findings {
        out.push_str(&of_finding(finding, width));
    }
    if let Some(proven) = findings.iter().flat_map(|finding| &finding.advice).next() {
        let words = format!("changes verified with each of {} seeds", proven.seeds);
        let _ = writeln!(out, "    {}", style::dim(words));
    }
    if !report.expectations.is_empty() {
        out.push('\n');
        for expected in &report.expectations {
            out.push_str(&of_expectation(expected));
        }
    }
    out
}

fn show(millis: u64) -> String {
    show_rounded(Duration::from_millis(millis))
}

fn took(millis: u64) -> String {
    show_measured(Duration::from_millis(millis))
}

fn heading(report: &SimulationReport, width: Option<usize>) -> String {
    let about = report.about.as_deref().unwrap_or("A scenario");
    let more = report.ended_at_ms.saturating_sub(report.duration_ms);
    let until = match (more, report.waiting) {
        (0, _) => String::new(),
        (more, 0) => format!(" and {} more until the last delivery ended", show(more)),
        (more, waiting) => {
            format!(" and {} more; {} still waiting", show(more), show_count(waiting))
        }
    };
    let nodes = counted(u64::from(report.nodes), "node");
    let played = format!("{} of events{until} · {nodes} · seed {}", show(report.duration_ms), report.seed);
    hanging("", &style::bold(about), width) + &hanging("", &style::dim(played), width) + "\n"
}

fn totals(report: &SimulationReport) -> String {
    let mut out = String::new();
    let mut parts = vec![format!("{} delivered", show_count(report.delivered))];
    if report.dead > 0 {
        parts.push(style::error(format!("{} dead", show_count(report.dead))));
    }
    if report.waiting > 0 {
        parts.push(style::warning(format!("{} still waiting", show_count(report.waiting))));
    }
    let _ = writeln!(out, "{}: {}", counted(report.deliveries, "delivery"), parts.join(", "));
    let _ = writeln!(out, "  {}  {}", label("latency"), latencies(report));
    let _ = writeln!(out, "  {}  {}", label("attempts"), attempts(report));
    let (again, late) = (show_count(report.duplicates), show_count(report.order_violations));
    let _ = writeln!(out, "  {}  {again} duplicate side effects, {late} out of order", label("repeats"));
    out.push('\n');
    out
}

fn latencies(report: &SimulationReport) -> String {
    let Some(latency) = report.latency else { return "no deliveries".to_owned() };
    let all =
        [("p50", latency.p50_ms), ("p90", latency.p90_ms), ("p99", latency.p99_ms), ("max", latency.max_ms)];
    all.map(|(name, millis)| format!("{} {}", style::dim(name), took(millis))).join("  ")
}

fn label(text: &str) -> String {
    style::dim(format!("{text:<9}"))
}

const ATTEMPTS_SHOWN_MAX: usize = 6;

fn attempts(report: &SimulationReport) -> String {
    let all = &report.attempts_per_delivery;
    let shown = all.iter().take(ATTEMPTS_SHOWN_MAX);
    let mut parts: Vec<String> = shown
        .map(|count| {
            format!("{} {}", style::dim(format!("{}×", count.attempts)), show_count(count.deliveries))
        })
        .collect();
    let rest: u64 = all.iter().skip(ATTEMPTS_SHOWN_MAX).map(|count| count.deliveries).sum();
    if rest > 0 {
        parts.push(format!("{} {}", style::dim(format!("up to {}×", report.attempts_max)), show_count(rest)));
    }
    let waiting: u64 = all.iter().map(|count| count.waiting).sum();
    if waiting > 0 {
        parts.push(style::dim(format!("({} still waiting)", show_count(waiting))));
    }
    parts.join("  ")
}

#[derive(Clone, Copy)]
struct PlotColumns {
    steps_each: usize,
    each_ms: u64,
}

impl PlotColumns {
    fn of(report: &SimulationReport, room: Option<usize>) -> Self {
        let steps = report.dependencies.first().map_or(1, |dependency| dependency.series.calls.len());
        Self::over(steps, report.step_ms, room)
    }

    fn over(steps: usize, step_ms: u64, room: Option<usize>) -> Self {
        let most = room.unwrap_or(SPARK_COLUMNS_MAX).clamp(SPARK_COLUMNS_MIN, SPARK_COLUMNS_MAX);
        let steps_each = steps.div_ceil(most).max(1);
        Self { steps_each, each_ms: step_ms * steps_each as u64 }
    }

    fn peaks(self, steps: &[u64]) -> Vec<u64> {
        steps.chunks(self.steps_each).map(|chunk| chunk.iter().copied().max().unwrap_or(0)).collect()
    }

    fn spark(self, steps: &[u64]) -> String {
        spark(&self.peaks(steps))
    }

    fn spark_up_to(self, steps: &[u64], most: u64) -> String {
        spark_up_to(&self.peaks(steps), most)
    }

    fn most(self, both: &[Vec<u64>; 2]) -> u64 {
        both.iter().flat_map(|steps| self.peaks(steps)).max().unwrap_or(0)
    }
}

struct TotalsRow<'a> {
    name: &'static str,
    steps: &'a [u64],
    words: String,
}

fn rows_of<'a>(dependency: &'a DependencyReport, report: &SimulationReport) -> Vec<TotalsRow<'a>> {
    let series = &dependency.series;
    let row = |name: &'static str, steps: &'a [u64], words: String| TotalsRow { name, steps, words };
    let rate = show_per_second(dependency.call_rate_max);
    // A dependency that others call has calls that are not attempts.
    let what = if dependency.behind.is_empty() { "attempts" } else { "calls" };
    let rate = format!("up to {rate}/s, {:.2} {what} each", dependency.amplification);
    let mut rows = vec![row("calls", &series.calls, rate)];
    if dependency.calls_failed + dependency.calls_failed_partly > 0 {
        let share = 100.0 * dependency.calls_failed as f64 / dependency.calls as f64;
        let partly = match dependency.calls_failed_partly {
            0 => String::new(),
            partly => format!(", and {} in part", show_count(partly)),
        };
        let failed = format!("{} ({share:.1}%){partly}", show_count(dependency.calls_failed));
        rows.push(row("failed", &series.failed, failed));
    }
    rows.push(row("waiting", &series.waiting, format!("up to {}", show_count(dependency.waiting_max))));
    let in_flight = series.in_flight.iter().max().copied().unwrap_or(0);
    rows.push(row("in flight", &series.in_flight, format!("up to {}", show_count(in_flight))));
    let latency = dependency.call_latency;
    let quantiles = format!("p50 {}, p99 {}", took(latency.p50_ms), took(latency.p99_ms));
    rows.push(row("call time", &series.latency_ms, quantiles));
    if dependency.breaker_opened > 0 {
        let opened = counted(dependency.breaker_opened, "time");
        let nodes = if report.nodes > 1 { ", over all nodes" } else { "" };
        let not_closed = show(dependency.breaker_not_closed_ms);
        let words = format!("opened {opened}, not closed for {not_closed}{nodes}");
        rows.push(row("breaker", &series.breaker_not_closed, words));
    }
    rows
}

fn of_dependency(dependency: &DependencyReport, rows: &[TotalsRow<'_>], columns: PlotColumns) -> String {
    let capacity = dependency.capacity_per_second;
    let capacity = capacity.map(|rate| format!("  can take {}/s", show_per_second(rate))).unwrap_or_default();
    let behind = match dependency.behind.as_slice() {
        [] => String::new(),
        callers => format!("  behind {}", callers.join(", ")),
    };
    let mut out = format!("{}{}\n", style::bold(&dependency.name), style::dim(behind + &capacity));
    for TotalsRow { name, steps, words } in rows {
        let _ = writeln!(out, "  {}  {}  {words}", label(name), columns.spark(steps));
    }
    out.push('\n');
    out
}

fn of_finding(finding: &SimulationFinding, width: Option<usize>) -> String {
    let sign = match finding.weight {
        Weight::Bad => style::error("✗"),
        Weight::Fair => style::warning("!"),
        Weight::Good => style::good("✓"),
    };
    let mut out = hanging(&format!("{sign} "), &finding.text, width);
    for proven in &finding.advice {
        let price = if proven.price.is_empty() { String::new() } else { format!(", {}", proven.price) };
        let text = format!(
            "{} {}: {} {} → {}{price}",
            style::dim("with"),
            proven.words,
            proven.metric,
            proven.before,
            style::bold(proven.after)
        );
        out.push_str(&hanging("    ", &text, width));
    }
    out
}

fn of_expectation(expected: &ExpectationResult) -> String {
    format!(
        "{} expected {}: {}\n",
        sign(usize::from(expected.met), 1),
        style::bold(&expected.expectation),
        expected.value
    )
}

fn sign(met: usize, runs: usize) -> String {
    if met == runs { style::good("✓") } else { style::error("✗") }
}

pub(crate) fn ranges(about: Option<&str>, ranges: &RunRanges) -> String {
    let (from, to) = ranges.seeds;
    let runs = format!("{}, seeds {from} to {to}", counted(ranges.runs as u64, "run"));
    let mut out = format!("{}\n{}\n\n", style::bold(about.unwrap_or("A scenario")), style::dim(runs));
    let mut table = Table::new(&[CellAlign::Whole, CellAlign::Right, CellAlign::Right, CellAlign::Right]);
    table.head(&["", "least", "middle", "most"]);
    for range in &ranges.figures {
        let name = match &range.of {
            Some(of) => format!("{} of {of}", range.metric),
            None => range.metric.to_owned(),
        };
        let (least, middle, most) = range.shown.clone();
        table.push(vec![Cell::plain(name), Cell::plain(least), Cell::bold(middle), Cell::plain(most)]);
    }
    for row in table.lines() {
        let _ = writeln!(out, "{row}");
    }
    if !ranges.expectations.is_empty() {
        out.push('\n');
        for often in &ranges.expectations {
            let (sign, expected) = (sign(often.met, ranges.runs), style::bold(&often.expectation));
            let _ = writeln!(out, "{sign} expected {expected}: in {} of {} runs", often.met, ranges.runs);
        }
    }
    out
}

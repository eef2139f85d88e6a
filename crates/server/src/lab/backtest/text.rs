//! Backtest report: one sentence, then changed outcomes, calls and times before and after, and what is
//! unknown.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::text::{counted, show_count, show_measured};
use redrive_lab::backtest::Certainty;
use redrive_lab::backtest::report::{BacktestReport, DurationComparison, EndName, Ends, OutcomeChange, Pair};

use crate::deliveries::text::short_id;
use crate::terminal::moment::rough;
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{hanging, next_steps, plain, style};

/// Text lines are no longer than this, however wide the terminal is.
const WIDTH_MAX: usize = 100;

const ROWS_SHOWN_MAX: usize = 12;

pub(crate) fn page(report: &BacktestReport, data: &str, rules: &str, columns: usize) -> String {
    let width = columns.min(WIDTH_MAX);
    let mut out = heading(report, data, rules);
    out.push_str(&hanging("", &sentence(report), Some(width)));
    out.push_str(&style::dim(hanging("", &trust(report), Some(width))));
    out.push('\n');
    out.push_str(&ends(report));
    changes(&mut out, "Different outcome", &report.changes, report.changes_left_off);
    changes(&mut out, "Unknown outcome", &report.unknown, 0);
    out.push_str(&newly_routed(report));
    out.push_str(&calls(report));
    out.push_str(&times(report));
    out.push_str(&hidden_rows(report, width));
    out.push_str(&steps(report));
    out
}

fn heading(report: &BacktestReport, data: &str, rules: &str) -> String {
    let what = format!("{} with the rules of {}", plain(data), plain(rules));
    let span = report.accepted.map(|(first, _)| report.until.since(first));
    let span = span.map(|span| format!(" of the last {}", rough(span))).unwrap_or_default();
    let looked = format!("{}{span}", counted(report.deliveries, "delivery"));
    format!("{}\n{}\n\n", style::bold(what), style::dim(looked))
}

fn sentence(report: &BacktestReport) -> String {
    let all = counted(report.deliveries, "delivery");
    let known = match report.changed {
        0 if report.certainty.unknown == report.deliveries => {
            return format!("The outcome of all {all} is unknown.");
        }
        0 => format!("None of {all} would have ended differently"),
        changed => {
            format!(
                "{} of {all} would have ended differently: {}",
                show_count(changed),
                kinds(&report.changes)
            )
        }
    };
    match report.certainty.unknown {
        0 => format!("{known}."),
        unknown => format!("{known}; {} unknown.", show_count(unknown)),
    }
}

fn kinds(changes: &[OutcomeChange]) -> String {
    let mut kinds: Vec<((EndName, EndName), u64)> = Vec::new();
    for change in changes {
        let kind = (change.from, change.to);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += change.deliveries,
            None => kinds.push((kind, change.deliveries)),
        }
    }
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let words = kinds.iter().map(|((from, to), count)| {
        format!("{} {} instead of {}", show_count(*count), word(*to), word(*from))
    });
    words.collect::<Vec<_>>().join(", ")
}

const fn word(end: EndName) -> &'static str {
    match end {
        EndName::Delivered => "delivered",
        EndName::Dead => "dead",
        EndName::Waiting => "waiting",
        EndName::Paused => "paused",
        EndName::NotSent => "not sent",
    }
}

fn trust(report: &BacktestReport) -> String {
    let certainty = report.certainty;
    let parts = [
        (certainty.certain, "certain", ""),
        (certainty.likely, "likely", " (from other answers at about that time)"),
        (certainty.unknown, "unknown", ""),
    ];
    let words = parts.iter().filter(|(count, ..)| *count > 0);
    let words = words.map(|(count, before, after)| format!("{} {before}{after}", show_count(*count)));
    format!("Certainty: {}.", words.collect::<Vec<_>>().join("; "))
}

fn ends(report: &BacktestReport) -> String {
    let mut table = Table::new(&[CellAlign::Whole, CellAlign::Right, CellAlign::Right]);
    table.head(&["", "then", "by the new rules"]);
    let of =
        |ends: &Ends| [ends.delivered, ends.dead, ends.waiting, ends.paused, ends.not_sent, ends.unknown];
    let words = ["delivered", "dead", "waiting", "paused", "not sent", "unknown"];
    for ((word, before), after) in words.iter().zip(of(&report.before)).zip(of(&report.after)) {
        if before + after > 0 {
            let paint = if before == after { Cell::plain } else { Cell::bold };
            table.push(vec![Cell::plain(*word), Cell::plain(show_count(before)), paint(show_count(after))]);
        }
    }
    lines(table) + "\n"
}

fn lines(table: Table) -> String {
    table.lines().iter().fold(String::new(), |out, line| out + line.trim_end() + "\n")
}

fn changes(out: &mut String, title: &str, changes: &[OutcomeChange], left_off: u64) {
    if changes.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", style::bold(title));
    let mut table = Table::new(&[
        CellAlign::Right,
        CellAlign::Whole,
        CellAlign::Whole,
        CellAlign::Whole,
        CellAlign::Whole,
    ]);
    for change in changes.iter().take(ROWS_SHOWN_MAX) {
        let how = format!("{} → {}", word(change.from), word(change.to));
        let certainty = certainty_word(change.certainty);
        let ids: Vec<String> = change.examples.iter().map(|id| short_id(id)).collect();
        table.push(vec![
            Cell::plain(show_count(change.deliveries)),
            Cell::plain(plain(&change.service)),
            painted(change, how),
            Cell::plain(because(change)),
            Cell::dim(format!("{certainty}: {}", ids.join(" "))),
        ]);
    }
    out.push_str(&lines(table));
    let more = left_off + changes.len().saturating_sub(ROWS_SHOWN_MAX) as u64;
    if more > 0 {
        let _ = writeln!(out, "{}", style::dim(format!("and {}", counted(more, "further row"))));
    }
    out.push('\n');
}

const fn certainty_word(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Certain => "certain",
        Certainty::Likely => "likely",
        Certainty::Unknown => "unknown",
    }
}

fn certain_or_not(figure: String, certainty: Certainty) -> String {
    match certainty {
        Certainty::Certain => figure,
        Certainty::Likely | Certainty::Unknown => format!("{figure} ({})", certainty_word(certainty)),
    }
}

fn painted(change: &OutcomeChange, how: String) -> Cell {
    match (change.certainty, change.to) {
        (Certainty::Unknown, _) => Cell::plain(word(change.from).to_owned() + " → ?"),
        (_, EndName::Delivered) => Cell::painted(how, style::good),
        (_, EndName::Dead | EndName::NotSent) => Cell::painted(how, style::error),
        (_, EndName::Waiting | EndName::Paused) => Cell::painted(how, style::warning),
    }
}

fn because(change: &OutcomeChange) -> String {
    match (change.code.as_str(), change.failure.as_str()) {
        ("", _) => String::new(),
        (code, failure) if failure.is_empty() || failure == code => plain(code),
        (code, failure) => format!("{} after {}", plain(code), plain(failure)),
    }
}

fn newly_routed(report: &BacktestReport) -> String {
    if report.newly_routed.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", style::bold("Newly routed"));
    let mut table = Table::new(&[CellAlign::Right, CellAlign::Whole, CellAlign::Whole]);
    for route in report.newly_routed.iter().take(ROWS_SHOWN_MAX) {
        table.push(vec![
            Cell::plain(counted(route.events, "event")),
            Cell::plain(plain(&route.event_type)),
            Cell::plain(format!("to {}", plain(&route.service))),
        ]);
    }
    out.push_str(&lines(table));
    out.push('\n');
    out
}

fn calls(report: &BacktestReport) -> String {
    let mut table = Table::new(&[
        CellAlign::Whole,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Whole,
    ]);
    table.head(&["calls to", "then", "new", "", "retries", ""]);
    for load in &report.dependencies {
        let mut notes = Vec::new();
        if load.guessed > 0 {
            notes.push(format!("{} with unknown answers", show_count(load.guessed)));
        }
        let doubted = load.certainty.likely + load.certainty.unknown;
        if doubted > 0 {
            let all = counted(doubted + load.certainty.certain, "delivery");
            notes.push(format!("uncertain for {} of {all}", show_count(doubted)));
        }
        table.push(vec![
            Cell::plain(plain(&load.name)),
            Cell::plain(show_count(load.calls.before)),
            Cell::bold(show_count(load.calls.after)),
            Cell::dim(certain_or_not(difference(load.calls), load.certainty.worst())),
            Cell::plain(pair(load.retries)),
            Cell::dim(notes.join("; ")),
        ]);
    }
    let futile = report.futile_retries;
    let mut out = lines(table);
    if futile.before + futile.after > 0 {
        let _ = writeln!(out, "{} {}", style::dim("retries of dead letters:"), pair(futile));
    }
    out.push('\n');
    out
}

fn pair(pair: Pair) -> String {
    format!("{} → {}", show_count(pair.before), show_count(pair.after))
}

fn difference(pair: Pair) -> String {
    if pair.before == pair.after {
        return "same".to_owned();
    }
    let sign = if pair.after > pair.before { '+' } else { '−' };
    let much = pair.before.abs_diff(pair.after);
    match pair.before {
        0 => format!("{sign}{}", show_count(much)),
        before => format!("{sign}{:.1}%", 100.0 * much as f64 / before as f64),
    }
}

fn times(report: &BacktestReport) -> String {
    let mut table = Table::new(&[CellAlign::Whole, CellAlign::Right, CellAlign::Right, CellAlign::Right]);
    table.head(&["time until", "p50", "p99", "total"]);
    for (name, times) in [("delivered", &report.until_delivered), ("given up", &report.until_dead)] {
        if times.deliveries > 0 {
            table.push(time_row(name, times));
        }
    }
    if report.until_delivered.deliveries + report.until_dead.deliveries == 0 {
        return String::new();
    }
    let which = "of deliveries with the same known outcome in both";
    lines(table) + &format!("{}\n\n", style::dim(which))
}

fn time_row(name: &str, times: &DurationComparison) -> Vec<Cell> {
    let show = |millis: u64| show_measured(Duration::from_millis(millis));
    let both = |before: u64, after: u64| {
        if before == after {
            Cell::plain(show(before))
        } else {
            Cell::bold(format!("{} → {}", show(before), show(after)))
        }
    };
    vec![
        Cell::plain(name),
        both(times.before.p50_ms, times.after.p50_ms),
        both(times.before.p99_ms, times.after.p99_ms),
        both(times.sum_ms.before, times.sum_ms.after),
    ]
}

fn hidden_rows(report: &BacktestReport, width: usize) -> String {
    if report.untold.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", style::bold("Unknown"));
    for hidden_rows in &report.untold {
        let text = format!("{} {}", show_count(hidden_rows.count), hidden_rows.text);
        out.push_str(&hanging("  • ", &text, Some(width)));
    }
    out
}

fn steps(report: &BacktestReport) -> String {
    let example = report.changes.iter().chain(&report.unknown).find_map(|change| change.examples.first());
    match example {
        Some(id) => {
            next_steps(&[(format!("redrive why {}", short_id(id)), "why the delivery ended as it did")])
        }
        None => String::new(),
    }
}

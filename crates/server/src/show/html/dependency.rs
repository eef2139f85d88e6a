//! A dependency over time: its calls against what it can take, what waited for it, and what its breaker did.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use redrive_core::limits;
use redrive_core::policy::breaker::Phase;
use redrive_core::text::show_per_second;
use redrive_lab::simulate::Report;
use redrive_lab::simulate::report::{DependencyReport, Trouble};

use super::parts::{Cell, Column, card, percent, show, table};
use crate::show::markup::escape;
use crate::show::plot::{Band, Limit, Line, Look, Plot, Strip, Tone, Unit, figure};
use crate::show::{counted, thousands};

/// Drawn are at most so many, so that a browser can hold the page.
const DRAWN_MAX: usize = 24;

/// All that were called: a table of them where there are several, and the plots of each.
pub(crate) fn all(report: &Report) -> String {
    let called: Vec<&DependencyReport> =
        report.dependencies.iter().filter(|dependency| dependency.calls > 0).collect();
    let mut out = String::new();
    if called.len() > 1 {
        out.push_str(&list(&called));
    }
    let drawn = most_troubled(&called);
    for dependency in called.iter().filter(|dependency| drawn.contains(&dependency.name.as_str())) {
        out.push_str(&one(dependency, report));
    }
    out
}

fn most_troubled<'a>(called: &[&'a DependencyReport]) -> Vec<&'a str> {
    let mut sorted = called.to_vec();
    sorted.sort_by_key(|dependency| {
        std::cmp::Reverse((dependency.dead, dependency.waiting_max, dependency.calls))
    });
    sorted.truncate(DRAWN_MAX);
    sorted.into_iter().map(|dependency| dependency.name.as_str()).collect()
}

fn list(called: &[&DependencyReport]) -> String {
    let columns = [
        Column::wide("Dependency"),
        Column::end("Calls"),
        Column::end("Failed"),
        Column::end("Attempts for each delivery"),
        Column::end("Most in a second"),
        Column::end("Most waiting"),
        Column::end("Drained after"),
        Column::end("Breaker opened"),
        Column::end("Dead"),
    ];
    let row = |dependency: &&DependencyReport| {
        vec![
            name_of(dependency),
            Cell::text(&thousands(dependency.calls)),
            Cell::text(&percent(dependency.calls_failed, dependency.calls)),
            Cell::text(&format!("{:.2}", dependency.amplification)),
            Cell::text(&show_per_second(dependency.call_rate_max)),
            Cell::text(&thousands(dependency.waiting_max)),
            Cell::text(&drained(dependency)),
            Cell::text(&thousands(dependency.breaker_opened)),
            Cell::count(dependency.dead, Tone::Bad),
        ]
    };
    let rows: Vec<Vec<Cell>> = called.iter().map(row).collect();
    let more = if called.len() > DRAWN_MAX {
        format!("the {DRAWN_MAX} most troubled are drawn below")
    } else {
        format!("{} are called", called.len())
    };
    card("Dependencies", &more, &table("Dependencies", &columns, &rows))
}

fn name_of(dependency: &DependencyReport) -> Cell {
    let Some(behind) = behind(dependency) else { return Cell::text(&dependency.name) };
    let (name, behind) = (escape(&dependency.name), escape(&behind));
    Cell::html(format!("{name} <span class=\"dim\">{behind}</span>"))
}

/// Which others call it, of those that rules do not call themselves.
fn behind(dependency: &DependencyReport) -> Option<String> {
    (!dependency.behind.is_empty()).then(|| format!("behind {}", dependency.behind.join(", ")))
}

/// The longest that it took to drain.
fn drained(dependency: &DependencyReport) -> String {
    let mut over = dependency.troubles.iter().filter(|trouble| trouble.ended_at_ms.is_some());
    if over.clone().any(|trouble| trouble.drain_ms.is_none()) {
        return "never".to_owned();
    }
    let longest = over.by_ref().filter_map(|trouble| trouble.drain_ms).max();
    longest.map_or_else(|| "–".to_owned(), show)
}

/// One of them.
pub(crate) fn one(dependency: &DependencyReport, report: &Report) -> String {
    let capacity = dependency.capacity_per_second.map(|rate| format!("can take {}/s", show_per_second(rate)));
    let more: Vec<String> = behind(dependency).into_iter().chain(capacity).collect();
    let mut content = words(dependency, report);
    content.push_str("<div class=\"plots\">\n");
    for plot in plots(dependency, report) {
        content.push_str(&figure(&plot));
    }
    content.push_str("</div>\n");
    card(&dependency.name, &more.join(" · "), &content)
}

fn words(dependency: &DependencyReport, report: &Report) -> String {
    let what = if dependency.behind.is_empty() { "attempts" } else { "calls" };
    let partly = match dependency.calls_failed_partly {
        0 => String::new(),
        partly => format!(", and {} in part", thousands(partly)),
    };
    let mut said = vec![
        format!(
            "<b>{}</b>, <b>{:.2}</b> {what} for each delivery, up to <b>{}</b> in a second",
            counted(dependency.calls, "call"),
            dependency.amplification,
            show_per_second(dependency.call_rate_max)
        ),
        format!(
            "{} failed ({}){partly}",
            thousands(dependency.calls_failed),
            percent(dependency.calls_failed, dependency.calls)
        ),
    ];
    if dependency.breaker_opened > 0 {
        let nodes = if report.nodes > 1 { ", over all nodes" } else { "" };
        let not_closed = show(dependency.breaker_not_closed_ms);
        let opened = counted(dependency.breaker_opened, "time");
        said.push(format!("breaker opened {opened}, not closed for {not_closed}{nodes}"));
    }
    said.extend(dependency.troubles.iter().map(of_trouble));
    let mut out = String::from("<ul class=\"said\">");
    for words in said {
        let _ = write!(out, "<li>{words}</li>");
    }
    out.push_str("</ul>\n");
    out
}

fn of_trouble(trouble: &Trouble) -> String {
    let (began_at, most) = (show(trouble.began_at_ms), thousands(trouble.waiting_max));
    let Some(ended_at_ms) = trouble.ended_at_ms else {
        return format!("trouble from {began_at} on, longer than the run: up to {most} waiting");
    };
    let drain = match trouble.drain_ms {
        Some(drain) => format!("drained {} after", show(drain)),
        None => "<b class=\"tinted bad\">never drained</b>".to_owned(),
    };
    format!("trouble from {began_at} to {}: up to {most} waiting, {drain}", show(ended_at_ms))
}

/// Its plots, the calls first.
pub(crate) fn plots(dependency: &DependencyReport, report: &Report) -> Vec<Plot> {
    let series = &dependency.series;
    let step_s = report.step_ms as f64 / 1_000.0;
    let rate = |counts: &[u64]| points(counts, step_s, |count| count as f64 / step_s);
    let level = |counts: &[u64]| points(counts, step_s, |count| count as f64);
    // What the line is above the area is what retries add.
    let mut calls = vec![line("first attempts", Tone::Hold, Look::Filled, rate(&series.first_attempts))];
    if dependency.calls_failed > 0 {
        calls.push(line("failed", Tone::Bad, Look::Filled, where_there_is_any(&rate(&series.failed))));
    }
    calls.push(line("all calls", Tone::Info, Look::Solid, rate(&series.calls)));
    let capacity = dependency.capacity_per_second.map(|at| Limit { name: "capacity".to_owned(), at });
    let opened = (dependency.breaker_opened > 0)
        .then(|| Strip { name: "Breaker".to_owned(), spans: breaker_spans(dependency, report) });
    let call_time = points(&series.latency_ms, step_s, |millis| millis as f64 / 1_000.0);
    // Where nothing was called, nothing took any time.
    let called = call_time.into_iter().zip(&series.calls);
    let call_time = called.map(|((x, y), count)| (x, if *count > 0 { y } else { f64::NAN })).collect();
    let bands = bands(dependency, report);
    // The legend of the first holds for all.
    let unnamed: Vec<Band> = bands.iter().map(|band| Band { name: String::new(), ..band.clone() }).collect();
    let plot = |title: &str, unit_y: Unit, series: Vec<Line>| Plot {
        title: title.to_owned(),
        unit_x: Unit::Time,
        unit_y,
        series,
        bands: unnamed.clone(),
        limits: Vec::new(),
        strip: None,
        places: Vec::new(),
    };
    let each = format!("per second, in steps of {}", show(report.step_ms));
    let deliveries = Unit::Count("deliveries".to_owned());
    vec![
        Plot {
            bands,
            limits: capacity.into_iter().collect(),
            strip: opened,
            ..plot("Calls", Unit::Number(each), calls)
        },
        plot("Waiting", deliveries, vec![line("waiting", Tone::Hold, Look::Filled, level(&series.waiting))]),
        plot(
            "In flight",
            Unit::Count("calls at once".to_owned()),
            vec![line("in flight", Tone::Info, Look::Filled, level(&series.in_flight))],
        ),
        plot("Call time", Unit::Time, vec![line("on average", Tone::Good, Look::Solid, call_time)]),
    ]
}

fn line(name: &str, tone: Tone, look: Look, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.to_owned(), tone, look, points }
}

fn points(counts: &[u64], step_s: f64, value: impl Fn(u64) -> f64) -> Vec<(f64, f64)> {
    counts.iter().enumerate().map(|(at, count)| (at as f64 * step_s, value(*count))).collect()
}

/// Without the long line at zero that says nothing, but with the first point of it on each side.
fn where_there_is_any(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let is_any = |at: Option<usize>| at.and_then(|at| points.get(at)).is_some_and(|(_, y)| *y > 0.0);
    let near = |at: usize| is_any(at.checked_sub(1)) || is_any(Some(at)) || is_any(Some(at + 1));
    let seen = |(at, (x, y)): (usize, &(f64, f64))| (*x, if near(at) { *y } else { f64::NAN });
    points.iter().enumerate().map(seen).collect()
}

/// Troubles, and how long each took to drain.
fn bands(dependency: &DependencyReport, report: &Report) -> Vec<Band> {
    let mut bands = Vec::new();
    for trouble in &dependency.troubles {
        let ended_at_ms = trouble.ended_at_ms.unwrap_or(report.ended_at_ms);
        bands.push(band("trouble", Tone::Bad, trouble.began_at_ms, ended_at_ms));
        if let Some(drain) = trouble.drain_ms.filter(|drain| *drain > 0) {
            bands.push(band("draining", Tone::Warn, ended_at_ms, ended_at_ms + drain));
        }
    }
    bands
}

fn band(name: &str, tone: Tone, from_ms: u64, to_ms: u64) -> Band {
    Band { name: name.to_owned(), tone, from: from_ms as f64 / 1_000.0, to: to_ms as f64 / 1_000.0 }
}

/// When its breaker was not closed; of several nodes, the one that was least so.
fn breaker_spans(dependency: &DependencyReport, report: &Report) -> Vec<Band> {
    let mut by_node: BTreeMap<u32, Phase> = BTreeMap::new();
    let mut spans: Vec<Band> = Vec::new();
    let mut since = 0;
    for change in &dependency.transitions {
        spans.extend(breaker_span(least_closed(&by_node), since, change.at_ms));
        by_node.insert(change.node, change.to);
        since = change.at_ms;
    }
    if dependency.transitions.len() < limits::SIMULATION_TRANSITIONS_MAX {
        spans.extend(breaker_span(least_closed(&by_node), since, report.ended_at_ms));
        return joined(spans);
    }
    // Of very many changes only the first are told; the rest is known by the step.
    for (at, count) in dependency.series.breaker_not_closed.iter().enumerate() {
        let from = at as u64 * report.step_ms;
        if *count > 0 && from >= since {
            spans.push(band("breaker not closed", Tone::Warn, from, from + report.step_ms));
        }
    }
    joined(spans)
}

fn least_closed(by_node: &BTreeMap<u32, Phase>) -> Phase {
    by_node.values().copied().max().unwrap_or(Phase::Closed)
}

fn breaker_span(phase: Phase, from_ms: u64, to_ms: u64) -> Option<Band> {
    let (name, tone) = match phase {
        Phase::Closed => return None,
        Phase::Open => ("breaker open", Tone::Bad),
        Phase::HalfOpen => ("breaker half open", Tone::Warn),
    };
    (to_ms > from_ms).then(|| band(name, tone, from_ms, to_ms))
}

/// Spans of the same state that follow each other are one.
#[expect(clippy::float_cmp, reason = "both were made of the same number")]
fn joined(spans: Vec<Band>) -> Vec<Band> {
    let mut out: Vec<Band> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if last.to == span.from && last.name == span.name => last.to = span.to,
            _ => out.push(span),
        }
    }
    out
}

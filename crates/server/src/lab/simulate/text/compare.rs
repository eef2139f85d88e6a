//! Two rule books side by side: every figure, the load over time on the same scale, and which is better at
//! what.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use redrive_core::text::counted;
use redrive_lab::simulate::SimulationReport;
use redrive_lab::simulate::compare::{
    Advantage, BookComparison, BookSide, DependencyCurves, FigureComparison,
};
use redrive_lab::simulate::figures::FigureSpread;
use unicode_width::UnicodeWidthStr;

use crate::lab::simulate::text::{GAP_COLUMNS, LABEL_COLUMNS, PlotColumns, label, show, sign};
use crate::terminal::table::{Cell, CellAlign as Edge, Table};
use crate::terminal::{hanging, style, terminal_columns};

/// `first` is the first book's run with the first seed.
pub(crate) fn page(
    first: &SimulationReport,
    names: [&str; 2],
    comparison: &BookComparison,
    over_time: &[DependencyCurves],
) -> String {
    let about = first.about.as_deref().unwrap_or("A scenario");
    let (from, to) = comparison.seeds;
    let seeds = match comparison.runs {
        1 => format!("seed {from}"),
        runs => format!("{} each, seeds {from} to {to}", counted(runs as u64, "run")),
    };
    let [a, b] = names;
    let played = format!("{} of events · {a} against {b} · {seeds}", show(first.duration_ms));
    let mut out = hanging("", &style::bold(about), terminal_columns());
    out.push_str(&hanging("", &style::dim(played), terminal_columns()));
    out.push('\n');
    out.push_str(&figures(names, comparison));
    out.push_str(&causes(names, comparison));
    out.push_str(&sparks(names, comparison.runs, over_time));
    out.push_str(&words(names, comparison));
    out.push_str(&expectations(names, comparison));
    out
}

fn figures(names: [&str; 2], comparison: &BookComparison) -> String {
    let [a, b] = names;
    let mut table = Table::new(&[Edge::Whole, Edge::Right, Edge::Right, Edge::Right, Edge::Whole]);
    table.head(&["", a, b, "difference", "better"]);
    let mut of = None;
    let called = called(comparison);
    let is_told =
        |figure: &&FigureComparison| figure.of.as_ref().is_none_or(|of| called.contains(of.as_str()));
    for figure in comparison.figures.iter().filter(is_told) {
        if figure.of != of {
            of.clone_from(&figure.of);
            let name = figure.of.as_deref().unwrap_or_default();
            table.push(vec![Cell::bold(name)]);
        }
        let indent = if figure.of.is_some() { "  " } else { "" };
        let better = better(figure, names, comparison.runs);
        table.push(vec![
            Cell::plain(format!("{indent}{}", figure.metric)),
            cell(BookSide::A, figure, comparison.runs),
            cell(BookSide::B, figure, comparison.runs),
            Cell::plain(
                figure.difference.as_ref().map_or_else(String::new, |it| spread(it, comparison.runs)),
            ),
            Cell::painted(better, style::good),
        ]);
    }
    lines(table)
}

fn called(comparison: &BookComparison) -> BTreeSet<&str> {
    let most = |spread: &Option<FigureSpread>| spread.as_ref().and_then(|spread| spread.max).unwrap_or(0.0);
    let calls = comparison.figures.iter().filter(|figure| figure.metric == "calls");
    let called = calls.filter(|calls| most(&calls.a) + most(&calls.b) > 0.0);
    called.filter_map(|figure| figure.of.as_deref()).collect()
}

fn lines(table: Table) -> String {
    let mut out = table.lines().join("\n");
    out.push_str("\n\n");
    out
}

fn cell(side: BookSide, figure: &FigureComparison, runs: usize) -> Cell {
    let value = [&figure.a, &figure.b][side as usize].as_ref();
    let text = value.map_or_else(|| "–".to_owned(), |value| spread(value, runs));
    if figure.better == Some(side) { Cell::bold(text) } else { Cell::plain(text) }
}

fn spread(value: &FigureSpread, runs: usize) -> String {
    let (least, middle, most) = &value.shown;
    if runs == 1 || least == most { middle.clone() } else { format!("{middle} ({least} to {most})") }
}

fn better(figure: &FigureComparison, names: [&str; 2], runs: usize) -> String {
    let Some(side) = figure.better else { return String::new() };
    let name = names[side as usize];
    if runs == 1 {
        name.to_owned()
    } else {
        format!("{name} in {} of {runs}", figure.better_in[side as usize])
    }
}

fn causes(names: [&str; 2], comparison: &BookComparison) -> String {
    if comparison.dead_letters.is_empty() {
        return String::new();
    }
    let [a, b] = names;
    let mut table = Table::new(&[Edge::Whole, Edge::Right, Edge::Right]);
    table.head(&["dead letters", a, b]);
    for cause in &comparison.dead_letters {
        let after = if cause.failure_code == cause.code {
            String::new()
        } else {
            format!(" after {}", cause.failure_code)
        };
        table.push(vec![
            Cell::plain(format!("{} {}{after}", cause.queue, cause.code)),
            Cell::plain(spread(&cause.a, comparison.runs)),
            Cell::plain(spread(&cause.b, comparison.runs)),
        ]);
    }
    lines(table)
}

fn sparks(names: [&str; 2], runs: usize, over_time: &[DependencyCurves]) -> String {
    let mut out = String::new();
    let Some(any) = over_time.first() else { return out };
    let steps = over_time.iter().flat_map(|it| it.calls.iter().map(Vec::len)).max().unwrap_or(1);
    let width = names.map(UnicodeWidthStr::width).into_iter().max().unwrap_or(0);
    let room = terminal_columns().map(|columns| columns.saturating_sub(LABEL_COLUMNS + GAP_COLUMNS + width));
    let columns = PlotColumns::over(steps, any.step_ms, room);
    for dependency in over_time {
        let _ = writeln!(out, "{}", style::bold(&dependency.name));
        for (what, series) in [("calls", &dependency.calls), ("waiting", &dependency.waiting)] {
            let most = columns.most(series);
            for side in BookSide::BOTH {
                let title = if side == BookSide::A { what } else { "" };
                let name = names[side as usize];
                let blanks = " ".repeat(width - name.width());
                let spark = columns.spark_up_to(&series[side as usize], most);
                let _ = writeln!(out, "  {}  {}{blanks}  {spark}", label(title), style::dim(name));
            }
        }
    }
    let of = if runs > 1 { ", of the first seed" } else { "" };
    let _ = writeln!(out, "{}\n", style::dim(format!("each column is {}{of}", show(columns.each_ms))));
    out
}

const ALIKE_MAX: usize = 3;

fn words(names: [&str; 2], comparison: &BookComparison) -> String {
    let mut out = String::new();
    for side in BookSide::BOTH {
        let own: Vec<&Advantage> = comparison.advantages.iter().filter(|it| it.side == side).collect();
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(out, "{}", style::bold(format!("{}:", names[side as usize])));
        for same in own.chunk_by(|one, other| one.metric == other.metric) {
            for advantage in same.iter().take(ALIKE_MAX) {
                let text = format!("{}{}", advantage.text, often(advantage, comparison.runs));
                out.push_str(&hanging(&format!("  {} ", style::good("✓")), &text, terminal_columns()));
            }
            if same.len() > ALIKE_MAX {
                let more = counted((same.len() - ALIKE_MAX) as u64, "other");
                let _ = writeln!(out, "    {}", style::dim(format!("and likewise on {more}")));
            }
        }
    }
    let undecided = comparison.undecided();
    let rows = [("equal:", &undecided.same), ("within chance:", &undecided.by_chance)];
    for (lead, figures) in rows.into_iter().filter(|(_, figures)| !figures.is_empty()) {
        let text = format!("{} {}", style::dim(lead), figures.join(", "));
        out.push_str(&hanging("", &text, terminal_columns()));
    }
    out.push('\n');
    out.push_str(&hanging("", &style::bold(comparison.overall(names)), terminal_columns()));
    out
}

fn often(advantage: &Advantage, runs: usize) -> String {
    if runs == 1 {
        return String::new();
    }
    style::dim(format!(", better in {} of {runs} runs", advantage.better_in))
}

fn expectations(names: [&str; 2], comparison: &BookComparison) -> String {
    let mut out = String::new();
    let runs = comparison.runs;
    for expected in &comparison.expectations {
        let lead = if out.is_empty() { "\n" } else { "" };
        let met = [expected.a, expected.b];
        let each = BookSide::BOTH.map(|side| {
            let sign = sign(met[side as usize], runs);
            let value = match runs {
                1 => expected.shown[side as usize].clone(),
                runs => format!("in {} of {runs} runs", met[side as usize]),
            };
            format!("{sign} {} {value}", names[side as usize])
        });
        let (sign, expected) = (sign(expected.a.min(expected.b), runs), style::bold(&expected.expectation));
        let _ = writeln!(out, "{lead}{sign} expected {expected}: {}", each.join(", "));
    }
    out
}

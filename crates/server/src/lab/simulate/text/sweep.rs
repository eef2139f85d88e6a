//! Sweep report: a row per value, a column per figure that differs, the best of each marked, and a curve
//! below each column.

use std::fmt::Write as _;

use redrive_core::book::problem::Problem;
use redrive_core::text::{counted, show_rounded};
use redrive_lab::scenario::Scenario;
use redrive_lab::simulate::sweep::{SweepColumn, SweepResult};

use crate::terminal::spark::spark;
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{hanging, style, terminal_columns};

pub(crate) fn page(scenario: &Scenario, runs: u32, seed: u64, swept: &SweepResult) -> String {
    let about = scenario.about.as_deref().unwrap_or("A scenario");
    let runs_shown = match runs {
        1 => format!("seed {seed}"),
        runs => format!("{} each from seed {seed}, median", counted(u64::from(runs), "run")),
    };
    let books = counted(swept.rows.len() as u64, "rule book");
    let played = format!("{} of events · {books} · {runs_shown}", show_rounded(scenario.duration));
    let mut out = format!("{}\n{}\n\n", style::bold(about), style::dim(played));
    let mut groups: Vec<Vec<&SweepColumn>> = Vec::new();
    for column in &swept.columns {
        match groups.last_mut() {
            Some(group) if group[0].of == column.of => group.push(column),
            _ => groups.push(vec![column]),
        }
    }
    for group in &groups {
        if let Some(of) = &group[0].of {
            let _ = writeln!(out, "{}", style::bold(of));
        }
        out.push_str(&table(swept, group));
        out.push('\n');
    }
    for words in &swept.words {
        out.push_str(&hanging("", words, terminal_columns()));
    }
    out.push_str(&expectations(swept, runs));
    out
}

fn table(swept: &SweepResult, columns: &[&SweepColumn]) -> String {
    let sides = swept.paths.iter().map(|_| CellAlign::Right).chain(columns.iter().map(|_| CellAlign::Right));
    let mut table = Table::new(&sides.collect::<Vec<_>>());
    let heads = columns.iter().map(|column| column.metric);
    table.head(&swept.paths.iter().map(String::as_str).chain(heads).collect::<Vec<_>>());
    for (place, row) in swept.rows.iter().enumerate() {
        let values = row.values.iter().map(|value| Cell::bold(value.as_str()));
        let figures = columns.iter().map(|column| {
            let shown = &column.shown[place];
            if column.is_best[place] {
                Cell::painted(format!("✓ {shown}"), style::good)
            } else {
                Cell::plain(shown.as_str())
            }
        });
        table.push(values.chain(figures).collect());
    }
    if let [_] = swept.paths.as_slice() {
        let curves = columns.iter().map(|column| Cell::dim(curve(column)));
        table.push(std::iter::once(Cell::plain("")).chain(curves).collect());
    }
    table.lines().join("\n") + "\n"
}

const CURVE_STEPS: f64 = 1_000.0;

/// From row to row; a missing value is as high as the highest.
fn curve(column: &SweepColumn) -> String {
    let most = column.values.iter().flatten().copied().fold(0.0, f64::max);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to a thousand")]
    let height = |value: &Option<f64>| match value {
        Some(value) if most > 0.0 => (value / most * CURVE_STEPS).ceil() as u64,
        Some(_) => 0,
        None => CURVE_STEPS as u64,
    };
    spark(&column.values.iter().map(height).collect::<Vec<_>>())
}

fn expectations(swept: &SweepResult, runs: u32) -> String {
    let mut out = String::new();
    let runs = runs as usize;
    for row in &swept.rows {
        for often in row.ranges.expectations.iter().filter(|often| often.met < runs) {
            let lead = if out.is_empty() { "\n" } else { "" };
            let values = row.values.join(", ");
            let when =
                if runs == 1 { String::new() } else { format!(", met in {} of {runs} runs", often.met) };
            let expected = style::bold(&often.expectation);
            let _ = writeln!(out, "{lead}{} {values}: expected {expected}{when}", style::error("✗"));
        }
    }
    out
}

/// Problems of a book that is in no file, so that there is no line to show.
pub(crate) fn problems(problems: &[Problem]) -> String {
    let listed = problems.iter().map(|problem| {
        let help =
            if problem.help.is_empty() { String::new() } else { format!("\n    help: {}", problem.help) };
        format!("  {}: {}{help}", problem.code, problem.message)
    });
    listed.collect::<Vec<_>>().join("\n")
}

//! Many runs: each figure as the range that it had.

use std::fmt::Write as _;

use redrive_lab::simulate::runs::{Often, Range, Ranges};

use super::Head;
use super::parts::{Cell, Column, badge, card, table};
use crate::show::counted;
use crate::show::markup::escape;
use crate::show::plot::Tone;

/// What stands above many runs by the rules of that name.
pub(crate) fn head(about: Option<&str>, ranges: &Ranges, rules: &str) -> Head {
    let (from, to) = ranges.seeds;
    let runs = counted(ranges.runs as u64, "run");
    Head {
        title: about.unwrap_or("A scenario").to_owned(),
        says: vec![rules.to_owned(), runs, format!("seeds {from} to {to}")],
    }
}

/// What many runs came to.
pub(crate) fn body(ranges: &Ranges) -> String {
    let mut out = String::from("<div class=\"simulated\">\n");
    out.push_str(&expectations(&ranges.expectations, ranges.runs));
    let of_all: Vec<&Range> = ranges.figures.iter().filter(|range| range.of.is_none()).collect();
    out.push_str(&figures("All deliveries", &of_all));
    let mut rest: Vec<&Range> = ranges.figures.iter().filter(|range| range.of.is_some()).collect();
    while let Some(of) = rest.first().and_then(|range| range.of.clone()) {
        let (mine, others) = rest.into_iter().partition(|range| range.of.as_ref() == Some(&of));
        rest = others;
        out.push_str(&figures(&of, &mine));
    }
    out.push_str("</div>\n");
    out
}

fn expectations(all: &[Often], runs: usize) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut items = String::from("<ul class=\"verdict\">\n");
    for often in all {
        let mark = if often.met == runs { badge(Tone::Good, "met") } else { badge(Tone::Bad, "failed") };
        let expectation = escape(&often.expectation);
        let _ = writeln!(
            items,
            "<li>{mark}<p><code>{expectation}</code> <span class=\"dim\">came so in</span> {} of {}</p></li>",
            often.met,
            counted(runs as u64, "run")
        );
    }
    items.push_str("</ul>\n");
    card("Expected", "", &items)
}

fn figures(title: &str, ranges: &[&Range]) -> String {
    const COLUMNS: [Column<'static>; 5] = [
        Column::start("Figure"),
        Column::end("Least"),
        Column::end("Middle"),
        Column::end("Most"),
        Column::wide("From zero to the most"),
    ];
    let row = |range: &&Range| {
        let (least, middle, most) = &range.shown;
        vec![
            Cell::text(&range.metric.replace('_', " ")),
            Cell::text(least),
            Cell::html(format!("<b>{}</b>", escape(middle))),
            Cell::text(most),
            Cell::html(bar(range)),
        ]
    };
    let rows: Vec<Vec<Cell>> = ranges.iter().map(row).collect();
    card(title, "", &table(&format!("Ranges of {title}"), &COLUMNS, &rows))
}

/// The range as a bar: light from the least to the most, dark to 19 of 20, and a mark in the middle. What never came
/// is at the far end.
fn bar(range: &Range) -> String {
    let told = [range.min, range.median, range.p95, range.max];
    let most = told.into_iter().flatten().filter(|value| value.is_finite()).fold(0.0, f64::max);
    // Something beyond all that came needs room of its own.
    let whole = if range.max.is_some() { most } else { most * 1.25 };
    let whole = if whole > 0.0 { whole } else { 1.0 };
    let place = |value: Option<f64>| {
        let share = value.filter(|value| value.is_finite()).map_or(1.0, |value| value / whole);
        100.0 * share.clamp(0.0, 1.0)
    };
    let [min, median, p95, max] = told.map(place);
    let tone = if range.max.is_some() { Tone::Info } else { Tone::Bad };
    format!(
        "<svg class=\"range {}\" aria-hidden=\"true\"><rect class=\"rest\" width=\"100%\" y=\"45%\" height=\"10%\"/>\
         <rect class=\"whole\" x=\"{min:.2}%\" width=\"{:.2}%\" y=\"15%\" height=\"70%\" rx=\"2\"/>\
         <rect class=\"most\" x=\"{min:.2}%\" width=\"{:.2}%\" y=\"15%\" height=\"70%\" rx=\"2\"/>\
         <line class=\"middle\" x1=\"{median:.2}%\" x2=\"{median:.2}%\" y1=\"0\" y2=\"100%\"/></svg>",
        tone.as_str(),
        (max - min).max(0.4),
        (p95 - min).max(0.4),
    )
}

//! Two rule books side by side: which is better at what, their load on the same axes, and every figure of both.

use redrive_lab::simulate::Report;
use redrive_lab::simulate::compare::{Beside, Compared, Comparison, Side};
use redrive_lab::simulate::figures::Spread;

use super::Head;
use super::parts::{Cell, Column, badge, card, show, table};
use crate::show::counted;
use crate::show::markup::{escape, spoken};
use crate::show::plot::{Line, Look, Plot, Tone, Unit, figure};

/// What stands above two books; `first` is the first book's run with the first seed.
pub(crate) fn head(first: &Report, names: [&str; 2], comparison: &Comparison) -> Head {
    let [a, b] = names;
    let (from, to) = comparison.seeds;
    let seeds = match comparison.runs {
        1 => format!("seed {from}"),
        runs => format!("{} each, seeds {from} to {to}", counted(runs as u64, "run")),
    };
    Head {
        title: first.about.clone().unwrap_or_else(|| "A scenario".to_owned()),
        says: vec![format!("{a} against {b}"), format!("{} of events", show(first.duration_ms)), seeds],
    }
}

/// Drawn are at most so many, so that a browser can hold the page.
const DRAWN_MAX: usize = 24;

/// What two books came to.
pub(crate) fn body(names: [&str; 2], comparison: &Comparison, over_time: &[Beside]) -> String {
    let mut out = String::from("<div class=\"simulated\">\n");
    out.push_str(&verdict(names, comparison));
    out.push_str(&expectations(names, comparison));
    out.push_str(&figures(None, "", names, comparison));
    for (place, dependency) in over_time.iter().enumerate() {
        let drawn = if place < DRAWN_MAX {
            plots(dependency, names).iter().map(figure).collect()
        } else {
            String::new()
        };
        out.push_str(&figures(Some(&dependency.name), &drawn, names, comparison));
    }
    out.push_str(&causes(names, comparison));
    out.push_str("</div>\n");
    out
}

fn verdict(names: [&str; 2], comparison: &Comparison) -> String {
    let runs = comparison.runs;
    let mut items = String::new();
    for side in Side::BOTH {
        for advantage in comparison.advantages.iter().filter(|it| it.side == side) {
            let often = match runs {
                1 => String::new(),
                runs => format!(" <span class=\"dim\">in {} of {runs} runs</span>", advantage.better_in),
            };
            let mark = badge(Tone::Good, side.of(names));
            items.push_str(&format!("<li>{mark}<p>{}{often}</p></li>\n", spoken(&advantage.text)));
        }
    }
    let undecided = comparison.undecided();
    let told =
        [("no difference", Tone::Info, undecided.same), ("chance decides", Tone::Warn, undecided.by_chance)];
    for (word, tone, what) in told.into_iter().filter(|(.., what)| !what.is_empty()) {
        items.push_str(&format!("<li>{}<p>{}</p></li>\n", badge(tone, word), spoken(&what.join(", "))));
    }
    let overall = format!(
        "<li>{}<p><b>{}</b></p></li>\n",
        badge(Tone::Info, "overall"),
        spoken(&comparison.overall(names))
    );
    card("Verdict", "", &format!("<ul class=\"verdict\">\n{overall}{items}</ul>\n"))
}

fn expectations(names: [&str; 2], comparison: &Comparison) -> String {
    if comparison.expectations.is_empty() {
        return String::new();
    }
    let runs = comparison.runs;
    let mut items = String::new();
    for expected in &comparison.expectations {
        let met = [expected.a, expected.b];
        let mark = if met == [runs, runs] { badge(Tone::Good, "met") } else { badge(Tone::Bad, "failed") };
        let came = Side::BOTH.map(|side| {
            let tone = if side.of(met) == runs { Tone::Good } else { Tone::Bad };
            let value = match runs {
                1 => escape(side.of(expected.shown.each_ref().map(String::as_str))),
                runs => format!("{} of {runs} runs", side.of(met)),
            };
            let name = escape(side.of(names));
            format!("<b class=\"tinted {}\">{value}</b> <span class=\"dim\">by {name}</span>", tone.as_str())
        });
        items.push_str(&format!(
            "<li>{mark}<p><code>{}</code> <span class=\"dim\">came to</span> {}</p></li>\n",
            escape(&expected.expectation),
            came.join(", ")
        ));
    }
    card("Expected", "", &format!("<ul class=\"verdict\">\n{items}</ul>\n"))
}

/// The figures of all or of a dependency, below its plots.
fn figures(of: Option<&str>, drawn: &str, names: [&str; 2], comparison: &Comparison) -> String {
    let title = of.unwrap_or("All deliveries");
    let [a, b] = names;
    let columns = [
        Column::wide("Figure"),
        Column::end(a),
        Column::end(b),
        Column::end("Difference"),
        Column::start("Better"),
    ];
    let row = |figure: &Compared| {
        let shown = |side: Side| {
            let value = side.of([&figure.a, &figure.b]).as_ref();
            let text = value.map_or_else(|| "–".to_owned(), |value| spread(value, comparison.runs));
            let is_better = figure.better == Some(side);
            if is_better { Cell::html(format!("<b>{}</b>", escape(&text))) } else { Cell::text(&text) }
        };
        let difference = figure.difference.as_ref().map(|it| spread(it, comparison.runs)).unwrap_or_default();
        let better = figure.better.map(|side| side.of(names)).unwrap_or_default();
        vec![
            Cell::text(&figure.metric.replace('_', " ")),
            shown(Side::A),
            shown(Side::B),
            Cell::text(&difference),
            Cell::text(better),
        ]
    };
    let rows: Vec<Vec<Cell>> =
        comparison.figures.iter().filter(|figure| figure.of.as_deref() == of).map(row).collect();
    let mut content = String::new();
    if !drawn.is_empty() {
        content.push_str(&format!("<div class=\"plots\">\n{drawn}</div>\n"));
    }
    content.push_str(&table(&format!("Figures of {title}"), &columns, &rows));
    card(title, "", &content)
}

fn spread(value: &Spread, runs: usize) -> String {
    let (least, middle, most) = &value.shown;
    if runs == 1 || least == most { middle.clone() } else { format!("{middle} ({least} to {most})") }
}

/// Calls in a second, and what waits.
fn plots(of: &Beside, names: [&str; 2]) -> [Plot; 2] {
    let step = of.step_ms.max(1) as f64 / 1_000.0;
    let plot = |title: &str, unit: &str, series: &[Vec<u64>; 2], each: f64| {
        let line = |side: Side| {
            let (tone, look) = side.of([(Tone::Info, Look::Solid), (Tone::Warn, Look::Dashed)]);
            let steps = side.of([&series[0], &series[1]]);
            let point = |(at, count): (usize, &u64)| (at as f64 * step, *count as f64 / each);
            let points = steps.iter().enumerate().map(point).collect();
            Line { name: side.of(names).to_owned(), tone, look, points }
        };
        Plot {
            title: format!("{title} {}", of.name),
            unit_x: Unit::Time,
            unit_y: Unit::Number(unit.to_owned()),
            series: Side::BOTH.map(line).to_vec(),
            bands: Vec::new(),
            limits: Vec::new(),
            strip: None,
            places: Vec::new(),
        }
    };
    [plot("Calls on", "calls/s", &of.calls, step), plot("Waiting for", "deliveries", &of.waiting, 1.0)]
}

fn causes(names: [&str; 2], comparison: &Comparison) -> String {
    if comparison.dead_letters.is_empty() {
        return String::new();
    }
    let [a, b] = names;
    let columns = [Column::wide("Cause"), Column::start("Of"), Column::end(a), Column::end(b)];
    let rows: Vec<Vec<Cell>> = comparison
        .dead_letters
        .iter()
        .map(|cause| {
            vec![
                Cell::text(&format!("{} after {}", cause.code, cause.failure_code)),
                Cell::text(&cause.queue),
                Cell::text(&spread(&cause.a, comparison.runs)),
                Cell::text(&spread(&cause.b, comparison.runs)),
            ]
        })
        .collect();
    card("Dead letters", "", &table("Dead letters by cause", &columns, &rows))
}

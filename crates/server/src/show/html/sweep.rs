//! One setting over several values: what is traded, as words, as a curve for each figure, and as a table.

use redrive::core::scenario::Scenario;
use redrive::core::simulate::sweep::{Column as Figure, Row, Swept};
use redrive::core::text::{parse_duration, show_rounded};

use super::Head;
use super::parts::{Cell, Column, badge, card, table};
use crate::show::counted;
use crate::show::markup::{escape, spoken};
use crate::show::plot::{Line, Look, Plot, Tone, Unit, figure};

/// What stands above a sweep of the rules of that name.
pub(crate) fn head(scenario: &Scenario, swept: &Swept, rules: &str) -> Head {
    let runs = swept.rows.first().map_or(1, |row| row.ranges.runs as u64);
    Head {
        title: scenario.about.clone().unwrap_or_else(|| "A scenario".to_owned()),
        says: vec![
            format!("{rules} over {}", swept.paths.join(" and ")),
            format!("{} of events", show_rounded(scenario.duration)),
            format!("{}, {} each", counted(swept.rows.len() as u64, "rule book"), counted(runs, "run")),
        ],
    }
}

/// What a sweep came to.
pub(crate) fn body(swept: &Swept) -> String {
    let mut out = String::from("<div class=\"simulated\">\n");
    let mut items = String::new();
    for words in &swept.words {
        items.push_str(&format!("<li>{}<p>{}</p></li>\n", badge(Tone::Info, "trade"), spoken(words)));
    }
    out.push_str(&card("Verdict", "", &format!("<ul class=\"verdict\">\n{items}</ul>\n")));
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for column in &swept.columns {
        match groups.last_mut() {
            Some(group) if group[0].of == column.of => group.push(column),
            _ => groups.push(vec![column]),
        }
    }
    for group in &groups {
        out.push_str(&figures(swept, group));
    }
    out.push_str(&expectations(&swept.rows));
    out.push_str("</div>\n");
    out
}

fn figures(swept: &Swept, group: &[&Figure]) -> String {
    let title = group[0].of.as_deref().unwrap_or("All deliveries");
    let mut content = String::new();
    if let [path] = swept.paths.as_slice() {
        let curves: String = group.iter().map(|column| figure(&curve(swept, path, column))).collect();
        content.push_str(&format!("<div class=\"plots\">\n{curves}</div>\n"));
    }
    let names: Vec<String> = group.iter().map(|column| column.metric.replace('_', " ")).collect();
    let values = swept.paths.iter().map(|path| Column::start(path));
    let columns: Vec<Column<'_>> = values.chain(names.iter().map(|name| Column::end(name))).collect();
    let row = |(place, row): (usize, &Row)| {
        let values = row.values.iter().map(|value| Cell::html(format!("<code>{}</code>", escape(value))));
        let figures = group.iter().map(|column| {
            let shown = &column.shown[place];
            if column.is_best[place] {
                Cell::html(format!("<b class=\"tinted good\">✓ {}</b>", escape(shown)))
            } else {
                Cell::text(shown)
            }
        });
        values.chain(figures).collect()
    };
    let rows: Vec<Vec<Cell>> = swept.rows.iter().enumerate().map(row).collect();
    content.push_str(&table(&format!("Figures of {title}"), &columns, &rows));
    card(title, "", &content)
}

/// The figure over the values: at their place if they are times or numbers, else one after the other.
fn curve(swept: &Swept, path: &str, column: &Figure) -> Plot {
    let values = || swept.rows.iter().filter_map(|row| row.values.first());
    let times: Option<Vec<f64>> = values().map(|it| Some(parse_duration(it).ok()?.as_secs_f64())).collect();
    let numbers: Option<Vec<f64>> = values().map(|value| value.trim_end_matches('%').parse().ok()).collect();
    let (unit_x, places) = match (times, numbers) {
        (Some(times), _) => (Unit::Time, times),
        (None, Some(numbers)) if numbers.iter().all(|it| *it >= 0.0) => {
            (Unit::Number(path.to_owned()), numbers)
        }
        (None, _) => {
            let all: Vec<&str> = values().map(String::as_str).collect();
            (
                Unit::Count(format!("{path}: {}", all.join(", "))),
                (1..=all.len()).map(|it| it as f64).collect(),
            )
        }
    };
    let mut points: Vec<(f64, f64)> = places
        .into_iter()
        .zip(&column.values)
        // What never came is a gap.
        .map(|(place, value)| (place, value.unwrap_or(f64::NAN)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let name = column.metric.replace('_', " ");
    let is_time = ["drain", "latency_p50", "latency_p99"].contains(&column.metric);
    Plot {
        title: format!("{name} by {path}"),
        unit_x,
        unit_y: if is_time { Unit::Number("seconds".to_owned()) } else { Unit::Number(name.clone()) },
        series: vec![Line { name, tone: Tone::Info, look: Look::Solid, points }],
        bands: Vec::new(),
        limits: Vec::new(),
        strip: None,
    }
}

fn expectations(rows: &[Row]) -> String {
    let mut items = String::new();
    for row in rows {
        for often in &row.ranges.expectations {
            let is_met = often.met == row.ranges.runs;
            let mark = if is_met { badge(Tone::Good, "met") } else { badge(Tone::Bad, "failed") };
            items.push_str(&format!(
                "<li>{mark}<p><code>{}</code> <span class=\"dim\">with</span> <code>{}</code> \
                 <span class=\"dim\">in {} of {}</span></p></li>\n",
                escape(&often.expectation),
                escape(&row.values.join(", ")),
                often.met,
                counted(row.ranges.runs as u64, "run")
            ));
        }
    }
    if items.is_empty() {
        items
    } else {
        card("Expected", "", &format!("<ul class=\"verdict\">\n{items}</ul>\n"))
    }
}

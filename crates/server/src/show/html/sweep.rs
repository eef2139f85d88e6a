//! One setting over several values: what is traded, as words, as a curve for each figure, and as a table.

use redrive_core::text::{Rate, parse_duration, parse_rate, show_rounded};
use redrive_lab::scenario::Scenario;
use redrive_lab::simulate::sweep::{Column as Figure, Row, Swept};

use super::Head;
use super::parts::{Cell, Column, badge, card, table};
use crate::show::counted;
use crate::show::markup::{escape, spoken};
use crate::show::plot::{Line, Look, Place, Plot, Tone, Unit, figure};

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

/// The figure over the values, each of which is marked.
fn curve(swept: &Swept, path: &str, column: &Figure) -> Plot {
    let values: Vec<&str> =
        swept.rows.iter().filter_map(|row| row.values.first()).map(String::as_str).collect();
    let mut places: Vec<(f64, usize)> = places(&values).into_iter().zip(0..).collect();
    places.sort_by(|one, other| one.0.total_cmp(&other.0));
    // What never came is a gap.
    let point = |(at, row): &(f64, usize)| (*at, column.values[*row].unwrap_or(f64::NAN));
    let named = |(at, row): &(f64, usize)| Place { at: *at, name: values[*row].to_owned() };
    let name = column.metric.replace('_', " ");
    let is_time = ["drain", "latency_p50", "latency_p99"].contains(&column.metric);
    Plot {
        title: format!("{name} by {path}"),
        unit_x: Unit::Number(path.to_owned()),
        // The title says what is counted.
        unit_y: if is_time { Unit::Time } else { Unit::Number(String::new()) },
        series: vec![Line {
            name,
            tone: Tone::Info,
            look: Look::Solid,
            points: places.iter().map(point).collect(),
        }],
        bands: Vec::new(),
        limits: Vec::new(),
        strip: None,
        places: places.iter().map(named).collect(),
    }
}

/// Two values that lie nearer to each other than this part of the whole could not be told apart.
const APART_MIN: f64 = 0.08;

/// Where each value stands: at its size if all have one and none stand too near to each other, else one after the
/// other, in the order of their sizes or else in their own.
fn places(values: &[&str]) -> Vec<f64> {
    let number = |value: &str| value.trim_end_matches('%').parse().ok().filter(|it: &f64| it.is_finite());
    let time = |value: &str| parse_duration(value).ok().map(|time| time.as_secs_f64());
    let rate = |value: &str| parse_rate(value).ok().map(Rate::as_per_second);
    let all =
        |size: &dyn Fn(&str) -> Option<f64>| values.iter().map(|it| size(it)).collect::<Option<Vec<f64>>>();
    let Some(sizes) = all(&time).or_else(|| all(&number)).or_else(|| all(&rate)) else {
        return (0..values.len()).map(|place| place as f64).collect();
    };
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|one, other| sizes[*one].total_cmp(&sizes[*other]));
    let whole = order.first().zip(order.last()).map_or(0.0, |(first, last)| sizes[*last] - sizes[*first]);
    if order.windows(2).all(|pair| sizes[pair[1]] - sizes[pair[0]] >= APART_MIN * whole) {
        return sizes;
    }
    let mut places = vec![0.0; sizes.len()];
    for (place, value) in order.into_iter().enumerate() {
        places[value] = place as f64;
    }
    places
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_at_their_sizes_unless_they_would_stand_upon_each_other() {
        #[rustfmt::skip]
        let cases: [(&str, &[&str], &[f64]); 8] = [
            ("numbers",           &["1", "3", "9"],                &[1.0, 3.0, 9.0]),
            ("times",             &["30s", "1m", "500ms"],         &[30.0, 60.0, 0.5]),
            ("shares",            &["10%", "50%"],                 &[10.0, 50.0]),
            ("rates",             &["60/m", "20/s"],               &[1.0, 20.0]),
            ("far apart",         &["1", "3", "9", "1000"],        &[0.0, 1.0, 2.0, 3.0]),
            ("and out of order",  &["1h", "1s", "2s"],             &[2.0, 0.0, 1.0]),
            ("words",             &["none", "externalBreaker"],    &[0.0, 1.0]),
            ("one",               &["7"],                          &[7.0]),
        ];
        for (name, values, expected) in cases {
            let found = places(values);
            assert!(
                found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-9),
                "{name}: {found:?}"
            );
            assert_eq!(found.len(), expected.len(), "{name}");
        }
    }
}

//! The parts that pages of simulations are made of: cards, tiles, badges, tables and bars, in the page's own classes.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::text::show_measured;

use crate::show::markup::escape;
use crate::show::plot::Tone;
use crate::show::thousands;

/// A section with its heading; `more` stands at the right.
pub(crate) fn card(title: &str, more: &str, content: &str) -> String {
    let more = match more {
        "" => String::new(),
        more => format!("<div class=\"more dim\">{}</div>", escape(more)),
    };
    format!(
        "<section class=\"card\">\n<header><h2>{}</h2>{more}</header>\n{content}</section>\n",
        escape(title)
    )
}

/// A figure with its name.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) note: String,
    /// Only what stands out has one.
    pub(crate) tone: Option<Tone>,
}

/// Figures beside each other.
pub(crate) fn tiles(tiles: &[Tile]) -> String {
    let mut out = String::from("<div class=\"tiles\">\n");
    for Tile { name, value, note, tone } in tiles {
        let tone = tone.map_or("plain", Tone::as_str);
        let (name, value, note) = (escape(name), escape(value), escape(note));
        let _ = writeln!(
            out,
            "<div class=\"tile {tone}\"><span class=\"name\">{name}</span><span class=\"value\">{value}</span>\
             <span class=\"note\">{note}</span></div>"
        );
    }
    out.push_str("</div>\n");
    out
}

/// A word with its colour and its shape.
pub(crate) fn badge(tone: Tone, word: &str) -> String {
    let strokes = match tone {
        Tone::Good => "m3 8.500 3.200 3.200L13 4.800",
        Tone::Bad => "m4 4 8 8m0-8-8 8",
        Tone::Hold => "M5.500 3.500v9m5-9v9",
        Tone::Warn | Tone::Info | Tone::Ink => "M8 3v6m0 3.500v.01",
    };
    format!(
        "<span class=\"badge {}\"><svg class=\"icon\" viewBox=\"0 0 16 16\" aria-hidden=\"true\">\
         <path d=\"{strokes}\"/></svg>{}</span>",
        tone.as_str(),
        escape(word)
    )
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    name: &'a str,
    class: &'static str,
}

impl<'a> Column<'a> {
    /// Of words.
    pub(crate) const fn start(name: &'a str) -> Self {
        Self { name, class: "" }
    }

    /// Of words, which takes the room that there is.
    pub(crate) const fn wide(name: &'a str) -> Self {
        Self { name, class: "wide" }
    }

    /// Of numbers.
    pub(crate) const fn end(name: &'a str) -> Self {
        Self { name, class: "end" }
    }
}

/// What stands in a table, as HTML.
#[derive(Clone, Debug)]
pub(crate) struct Cell(String);

impl Cell {
    pub(crate) fn text(text: &str) -> Self {
        Self(escape(text))
    }

    /// A count that has a colour unless it is none.
    pub(crate) fn count(count: u64, tone: Tone) -> Self {
        let shown = thousands(count);
        if count == 0 {
            Self(shown)
        } else {
            Self(format!("<b class=\"tinted {}\">{shown}</b>", tone.as_str()))
        }
    }

    /// What is HTML already.
    pub(crate) fn html(html: String) -> Self {
        Self(html)
    }
}

/// A table, which a narrow screen shows row by row.
pub(crate) fn table(label: &str, columns: &[Column<'_>], rows: &[Vec<Cell>]) -> String {
    let class = |column: &Column<'_>| match column.class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    let mut out = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>\n<thead><tr>",
        escape(label)
    );
    for column in columns {
        let _ = write!(out, "<th scope=\"col\"{}>{}</th>", class(column), escape(column.name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (column, Cell(content)) in columns.iter().zip(row) {
            let name = escape(column.name);
            let _ = write!(out, "<td data-name=\"{name}\"{}>{content}</td>", class(column));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A bar of a histogram.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) tone: Tone,
}

/// A histogram; whatever there is of can be seen.
pub(crate) fn bars(bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    let sum: u64 = bars.iter().map(|bar| bar.count).sum();
    let mut out = String::from("<ul class=\"bars\">\n");
    for Bar { name, count, tone } in bars {
        let least = if *count > 0 { 0.5 } else { 0.0 };
        let width = (100.0 * *count as f64 / most as f64).max(least);
        let _ = writeln!(
            out,
            "<li class=\"{}\"><span>{}</span><svg aria-hidden=\"true\"><rect width=\"{width:.2}%\" height=\"100%\" rx=\"2\"/></svg>\
             <span class=\"end\">{} <small class=\"dim\">{}</small></span></li>",
            tone.as_str(),
            escape(name),
            thousands(*count),
            percent(*count, sum)
        );
    }
    out.push_str("</ul>\n");
    out
}

/// A time that was measured.
pub(crate) fn show(millis: u64) -> String {
    show_measured(Duration::from_millis(millis))
}

/// A part of a whole; only all of it is 100 %, and only nothing is 0 %.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) | (0, _) => "0%".to_owned(),
        (part, whole) if part >= whole => "100%".to_owned(),
        (part, whole) => {
            let percent = (100.0 * part as f64 / whole as f64).clamp(0.01, 99.99);
            let digits = if (0.1..=99.9).contains(&percent) { 1 } else { 2 };
            format!("{percent:.digits$}%")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_whole_are_not_rounded_to_all_or_nothing() {
        #[rustfmt::skip]
        let cases = [
            ("nothing of nothing",  0,         0,         "0%"),
            ("nothing",             0,         10,        "0%"),
            ("all",                 10,        10,        "100%"),
            ("half",                5,         10,        "50.0%"),
            ("one in a million",    1,         1_000_000, "0.01%"),
            ("all but one",         999_999,   1_000_000, "99.99%"),
        ];
        for (name, part, whole, expected) in cases {
            assert_eq!(percent(part, whole), expected, "{name}");
        }
    }
}

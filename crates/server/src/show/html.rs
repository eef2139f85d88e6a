//! What a simulation came to, as HTML: a part of the web page, or a document of its own.
//!
//! [`body`] makes the part, which the page's content policy lets in: it has no style, no script and no address.
//! [`document`] puts one together with the page's own styles, so that a file shows all of it wherever it is opened,
//! and asks nobody for anything.
//!
//! Invariants:
//! - whatever names a book or a scenario has, they are text (`markup.rs`);
//! - the same report gives the same bytes;
//! - a report of many dependencies makes a page that a browser can hold: only so many are drawn, the most troubled.

pub(crate) mod compare;
pub(crate) mod dependency;
pub(crate) mod parts;
pub(crate) mod ranges;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use redrive_lab::simulate::advice::{Advised, Proven};
use redrive_lab::simulate::report::{AttemptCount, Expected, QueueReport};
use redrive_lab::simulate::verdict::Weight;
use redrive_lab::simulate::{Quantiles, Report};

use self::parts::{Bar, Cell, Column, Tile, badge, bars, card, percent, show, table, tiles};
use super::markup::{escape, escape_lines, spoken};
use super::plot::Tone;
use super::{counted, thousands};

/// What stands above everything.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// What it is about.
    pub(crate) title: String,
    /// How it was played, each a few words.
    pub(crate) says: Vec<String>,
}

impl Head {
    /// Of one run by the rules of that name.
    pub(crate) fn of(report: &Report, rules: &str) -> Self {
        let mut says = vec![rules.to_owned(), format!("{} of events", show(report.duration_ms))];
        let more = report.ended_at_ms.saturating_sub(report.duration_ms);
        match (more, report.waiting) {
            (0, _) => {}
            (more, 0) => says.push(format!("{} more until the last has ended", show(more))),
            (more, waiting) => {
                says.push(format!("{} more, after which {} still wait", show(more), thousands(waiting)));
            }
        }
        says.push(counted(u64::from(report.nodes), "node"));
        says.push(format!("seed {}", report.seed));
        Self { title: report.about.clone().unwrap_or_else(|| "A scenario".to_owned()), says }
    }
}

/// The styles of a document: those of the page that its parts need.
const STYLES: [&str; 4] = [
    include_str!("../../page/css/base.css"),
    include_str!("../../page/css/parts.css"),
    include_str!("../../page/css/figures.css"),
    include_str!("../../page/css/simulated.css"),
];

/// A document of its own.
pub(crate) fn document(head: &Head, body: &str) -> String {
    let title = escape(&head.title);
    let said: Vec<String> = head.says.iter().map(|words| format!("<span>{}</span>", escape(words))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;\">\n\
         <style>\n{}</style>\n</head>\n<body class=\"document\">\n<main>\n<div class=\"heading\">\n<h1>{title}</h1>\n\
         <p class=\"dim\">{}</p>\n</div>\n{body}</main>\n\
         <footer><p class=\"dim small\">Played by redrive {} in virtual time, with the engine of the server.</p></footer>\n\
         </body>\n</html>\n",
        STYLES.concat(),
        said.join(" · "),
        env!("CARGO_PKG_VERSION"),
    )
}

/// What one run came to.
pub(crate) fn body(report: &Report, findings: &[Advised]) -> String {
    let mut out = String::from("<div class=\"simulated\">\n");
    out.push_str(&verdict(findings));
    out.push_str(&totals(report));
    out.push_str(&expectations(&report.expectations));
    out.push_str(&dependency::all(report));
    out.push_str("<div class=\"columns even\">\n");
    out.push_str(&attempts(report));
    out.push_str(&dead_letters(report));
    out.push_str("</div>\n");
    out.push_str(&services(report));
    out.push_str("</div>\n");
    out
}

// --- The verdict ------------------------------------------------------------------------------------

/// What it shows, with what would help.
pub(crate) fn verdict(findings: &[Advised]) -> String {
    let items: String = findings.iter().map(finding).collect();
    card("Verdict", "", &format!("<ul class=\"verdict\">\n{items}</ul>\n"))
}

fn finding(advised: &Advised) -> String {
    let (tone, word) = match advised.finding.weight {
        Weight::Bad => (Tone::Bad, "hurts"),
        Weight::Fair => (Tone::Warn, "worth a look"),
        Weight::Good => (Tone::Good, "as it should be"),
    };
    let advice: String = advised.advice.iter().map(proven).collect();
    let text = spoken(&advised.finding.text);
    format!("<li>{}<div><p>{text}</p>{advice}</div></li>\n", badge(tone, word))
}

fn proven(proven: &Proven) -> String {
    let price = if proven.price.is_empty() { String::new() } else { format!(", {}", escape(&proven.price)) };
    format!(
        "<div class=\"proven\"><p>Played again with {}: {} {} → <b>{}</b>{price} <span class=\"dim\">(less with each of {} seeds)</span></p>\
         <details><summary>What to write</summary><pre tabindex=\"0\"><code>{}</code></pre></details></div>",
        spoken(&proven.words),
        escape(&proven.metric.replace('_', " ")),
        escape(&proven.before.to_string()),
        escape(&proven.after.to_string()),
        proven.seeds,
        escape_lines(&proven.change),
    )
}

/// What was expected, and what came.
pub(crate) fn expectations(expected: &[Expected]) -> String {
    if expected.is_empty() {
        return String::new();
    }
    let item = |one: &Expected| {
        let mark = if one.met { badge(Tone::Good, "met") } else { badge(Tone::Bad, "failed") };
        let (expectation, value) = (escape(&one.expectation), escape(&one.value.to_string()));
        format!(
            "<li>{mark}<p><code>{expectation}</code> <span class=\"dim\">came to</span> {value}</p></li>\n"
        )
    };
    let items: String = expected.iter().map(item).collect();
    let met = expected.iter().filter(|one| one.met).count();
    let more = format!("{met} of {} met", expected.len());
    card("Expected", &more, &format!("<ul class=\"verdict\">\n{items}</ul>\n"))
}

// --- The whole --------------------------------------------------------------------------------------

/// The figures of all deliveries.
pub(crate) fn totals(report: &Report) -> String {
    let tone_of = |count: u64, tone: Tone| if count > 0 { Some(tone) } else { None };
    let (median, p90) = within(report, |latency| latency.p50_ms, |latency| latency.p90_ms);
    let (p99, longest) = within(report, |latency| latency.p99_ms, |latency| latency.max_ms);
    let per_delivery = format!("{:.2} for each delivery", report.amplification);
    #[rustfmt::skip]
    let all = [
        Tile { name: "Delivered",         value: thousands(report.delivered),        note: format!("{} of {}", percent(report.delivered, report.deliveries), counted(report.deliveries, "delivery")), tone: None },
        Tile { name: "Dead",              value: thousands(report.dead),             note: percent(report.dead, report.deliveries),      tone: tone_of(report.dead, Tone::Bad) },
        Tile { name: "Still waiting",     value: thousands(report.waiting),          note: "when it was over".to_owned(),                tone: tone_of(report.waiting, Tone::Warn) },
        Tile { name: "Attempts",          value: thousands(report.attempts),         note: per_delivery,                                 tone: None },
        Tile { name: "Took effect again", value: thousands(report.duplicates),       note: "duplicates".to_owned(),                      tone: tone_of(report.duplicates, Tone::Warn) },
        Tile { name: "Out of order",      value: thousands(report.order_violations), note: "within a session".to_owned(),                tone: tone_of(report.order_violations, Tone::Bad) },
        Tile { name: "Latency, median",   value: median,                              note: p90.map_or_else(|| NOTHING.to_owned(), |p90| format!("9 of 10 within {p90}")), tone: None },
        Tile { name: "Latency, p99",      value: p99,                                 note: longest.map_or_else(|| NOTHING.to_owned(), |longest| format!("at most {longest}")), tone: None },
    ];
    tiles(&all)
}

/// What is said of the latency where there is none.
const NOTHING: &str = "nothing arrived";

/// A latency and a second one beside it, as people read them.
fn within(
    report: &Report,
    one: fn(Quantiles) -> u64,
    beside: fn(Quantiles) -> u64,
) -> (String, Option<String>) {
    let shown = |of: fn(Quantiles) -> u64| report.latency.map(|latency| show(of(latency)));
    (shown(one).unwrap_or_else(|| "–".to_owned()), shown(beside))
}

/// More attempts than so many are told together.
const ATTEMPTS_ALONE: u32 = 5;
/// How: up to so many, and all that are above.
const ATTEMPTS_TOGETHER: [u32; 4] = [10, 20, 50, 100];

/// How many deliveries took how many attempts.
fn attempts(report: &Report) -> String {
    let mut most = format!("at most {}", counted(u64::from(report.attempts_max), "attempt"));
    if report.waiting > 0 {
        let _ = write!(most, ", {} of them not ended", thousands(report.waiting));
    }
    card("Attempts of each delivery", &most, &bars(&attempt_bars(&report.attempts_per_delivery)))
}

fn attempt_bars(counts: &[AttemptCount]) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for count in counts {
        let (name, tone) = attempts_named(count.attempts);
        match bars.last_mut() {
            Some(bar) if bar.name == name => bar.count += count.deliveries,
            _ => bars.push(Bar { name, count: count.deliveries, tone }),
        }
    }
    bars
}

fn attempts_named(attempts: u32) -> (String, Tone) {
    if attempts <= ATTEMPTS_ALONE {
        let tone = if attempts == 1 { Tone::Good } else { Tone::Warn };
        return (counted(u64::from(attempts), "attempt"), tone);
    }
    let mut above = ATTEMPTS_ALONE;
    for up_to in ATTEMPTS_TOGETHER {
        if attempts <= up_to {
            return (format!("{} to {up_to}", above + 1), Tone::Warn);
        }
        above = up_to;
    }
    (format!("more than {above}"), Tone::Bad)
}

fn dead_letters(report: &Report) -> String {
    if report.dead_letters.is_empty() {
        let nothing = "<div class=\"empty\"><p class=\"title\">Nothing died</p><p>No delivery failed for good.</p></div>\n";
        return card("Dead letters", "", nothing);
    }
    let columns = [Column::wide("Cause"), Column::start("Of"), Column::end("Deliveries")];
    let rows: Vec<Vec<Cell>> = report
        .dead_letters
        .iter()
        .map(|cause| {
            let why = format!("{} after {}, {}", cause.code, cause.failure_code, cause.category);
            let of = if cause.queue == cause.dependency {
                cause.queue.clone()
            } else {
                format!("{} at {}", cause.queue, cause.dependency)
            };
            vec![Cell::text(&why), Cell::text(&of), Cell::text(&thousands(cause.count))]
        })
        .collect();
    let more = counted(report.dead, "delivery");
    card("Dead letters", &more, &table("Dead letters by cause", &columns, &rows))
}

/// Services and channels, and those that were paused.
fn services(report: &Report) -> String {
    let columns = [
        Column::wide("Service"),
        Column::end("Deliveries"),
        Column::end("Delivered"),
        Column::end("Dead"),
        Column::end("Most waiting"),
        Column::end("Median"),
        Column::end("p99"),
    ];
    let row = |queue: &QueueReport| {
        let waiting = queue.waiting.iter().max().copied().unwrap_or(0);
        let mut cells = vec![Cell::text(&queue.name)];
        cells.extend([queue.deliveries, queue.delivered].map(|count| Cell::text(&thousands(count))));
        cells.push(Cell::count(queue.dead, Tone::Bad));
        cells.push(Cell::text(&thousands(waiting)));
        let latencies =
            [queue.latency.map(|latency| latency.p50_ms), queue.latency.map(|latency| latency.p99_ms)];
        let shown = |millis: Option<u64>| millis.map_or_else(|| "–".to_owned(), show);
        cells.extend(latencies.map(|millis| Cell::text(&shown(millis))));
        cells
    };
    let rows: Vec<Vec<Cell>> = report.queues.iter().map(row).collect();
    let mut content = String::new();
    for paused in &report.paused {
        let _ = writeln!(
            content,
            "<p class=\"sum\">{} <b>{}</b> was paused by its rule at {}</p>",
            badge(Tone::Hold, "paused"),
            escape(&paused.service),
            show(paused.at_ms)
        );
    }
    content.push_str(&table("Services", &columns, &rows));
    card("Services", &counted(report.queues.len() as u64, "queue"), &content)
}

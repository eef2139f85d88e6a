//! Refused webhook calls and sources in a terminal.

use std::fmt::Write as _;

use redrive_core::text::{counted, show_count};
use redrive_core::time::Timestamp;
use redrive_node::webhook::WebhookCounts;

use crate::terminal::moment::{ago, moment};
use crate::terminal::table::{Cell, CellAlign, Table};
use crate::terminal::{cut, next_steps, plain, size, style};
use crate::webhooks::json::{RefusedCallJson, SourceStatus};

const REASON_COLUMNS_MAX: usize = 100;

const BODY_BYTES_SHOWN_MAX: usize = 4_096;

pub(crate) fn list(refused: &[RefusedCallJson], now: Timestamp) -> String {
    let Some(latest) = refused.first() else {
        return format!("{} no refused webhook calls\n", style::good("✓"));
    };
    let mut table =
        Table::new(&[CellAlign::Right, CellAlign::Left, CellAlign::Left, CellAlign::Right, CellAlign::Left]);
    table.head(&["NUMBER", "AT", "SOURCE", "SIZE", "WHY"]);
    for one in refused {
        table.push(vec![
            Cell::bold(one.number.to_string()),
            Cell::plain(ago(one.at, now)),
            Cell::plain(plain(&one.source)),
            Cell::plain(size(one.body_bytes)),
            Cell::plain(cut(&plain(&one.reason), REASON_COLUMNS_MAX)),
        ]);
    }
    let steps =
        [(format!("redrive hooks show {}", latest.number), "shows the latest with its headers and body")];
    table.text() + &next_steps(&steps)
}

pub(crate) fn page(refused: &RefusedCallJson, body: &[u8], now: Timestamp) -> String {
    let mut out = format!(
        "{}  {}\n{} {}\n",
        style::bold(format!("refused call {} of {}", refused.number, plain(&refused.source))),
        style::dim(format!("{}, {}", moment(refused.at), ago(refused.at, now))),
        style::error("✗"),
        plain(&refused.reason),
    );
    let _ = writeln!(out, "\n{}", style::bold("headers"));
    for (name, value) in &refused.headers {
        let _ = writeln!(out, "  {} {}", style::dim(format!("{}:", plain(name))), plain(value));
    }
    let _ = writeln!(out, "\n{}  {}", style::bold("body"), style::dim(size(refused.body_bytes)));
    let shown = &body[..body.len().min(BODY_BYTES_SHOWN_MAX)];
    for line in String::from_utf8_lossy(shown).lines() {
        let _ = writeln!(out, "  {}", plain(line));
    }
    if shown.len() < body.len() {
        let _ = writeln!(out, "  {}", style::dim("…"));
    }
    let mut good_for = "prints the raw body".to_owned();
    if (body.len() as u64) < refused.body_bytes {
        good_for = format!("prints the stored part: {}", size(body.len() as u64));
    }
    out.push_str(&next_steps(&[(format!("redrive hooks show {} --raw", refused.number), good_for.as_str())]));
    out
}

const TOO_LARGE_BY_SHOWN_MAX: usize = 3;

pub(crate) fn table(sources: &[SourceStatus]) -> Table {
    let mut table = Table::new(&[
        CellAlign::Left,
        CellAlign::Left,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Right,
        CellAlign::Left,
    ]);
    table.head(&["SOURCE", "KIND", "ACCEPTED", "AGAIN", "UNAUTHORIZED", "MALFORMED", ""]);
    for source in sources {
        let count = |count: u64, paint: fn(String) -> String| match count {
            0 => Cell::plain("0"),
            count => Cell::painted(show_count(count), paint),
        };
        table.push(vec![
            Cell::bold(plain(&source.name)),
            Cell::plain(plain(&source.kind)),
            Cell::plain(show_count(source.counts.accepted)),
            Cell::plain(show_count(source.counts.duplicates)),
            count(source.counts.unauthorized, style::error),
            count(source.counts.malformed, style::warning),
            Cell::dim(
                reading(source).into_iter().chain(remarks(&source.counts)).collect::<Vec<_>>().join(", "),
            ),
        ]);
    }
    table
}

/// Lag, and why it is not read.
fn reading(source: &SourceStatus) -> Option<String> {
    let reading = source.reading.as_ref()?;
    let lag = reading.lag.map_or_else(|| "lag unknown".to_owned(), |lag| format!("lag {}", show_count(lag)));
    Some(match &reading.why {
        Some(why) => format!("{lag}, {}: {}", plain(&reading.state), plain(why)),
        None => lag,
    })
}

fn remarks(counts: &WebhookCounts) -> Vec<String> {
    let some = |count: u64, words: String| (count > 0).then_some(words);
    let by = &counts.too_large_by;
    let named: Vec<String> = by
        .iter()
        .take(TOO_LARGE_BY_SHOWN_MAX)
        .map(|(who, count)| format!("{}: {count}", plain(who)))
        .collect();
    let more = if by.len() > TOO_LARGE_BY_SHOWN_MAX { ", …" } else { "" };
    let by = if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) };
    let remarks = [
        some(counts.conflicts, format!("{} with a used id", counted(counts.conflicts, "conflict"))),
        some(counts.too_large, format!("{} too large{by}", show_count(counts.too_large))),
        some(counts.too_slow, format!("{} too slow", show_count(counts.too_slow))),
        some(counts.rate_limited, format!("{} rate limited", show_count(counts.rate_limited))),
        some(counts.unavailable, format!("{} unavailable", show_count(counts.unavailable))),
        some(counts.no_session, format!("{} without a session", show_count(counts.no_session))),
    ];
    remarks.into_iter().flatten().collect()
}

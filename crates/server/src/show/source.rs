//! How the calls of sources were answered: a line for each.

use redrive_node::hook::Counts;

use super::table::{Cell, Side, Table};
use super::{counted, plain, style, thousands};
use crate::api::shape::hooks::SourceStatus;

/// Installations whose bodies were too large that are named.
const TOO_LARGE_BY_SHOWN_MAX: usize = 3;

/// A table of all of them.
pub(crate) fn table(sources: &[SourceStatus]) -> Table {
    let mut table =
        Table::new(&[Side::Left, Side::Left, Side::Right, Side::Right, Side::Right, Side::Right, Side::Left]);
    table.head(&["SOURCE", "KIND", "ACCEPTED", "AGAIN", "UNAUTHORIZED", "MALFORMED", ""]);
    for source in sources {
        let count = |count: u64, paint: fn(String) -> String| match count {
            0 => Cell::plain("0"),
            count => Cell::painted(thousands(count), paint),
        };
        table.push(vec![
            Cell::bold(plain(&source.name)),
            Cell::plain(plain(&source.kind)),
            Cell::plain(thousands(source.counts.accepted)),
            Cell::plain(thousands(source.counts.duplicates)),
            count(source.counts.unauthorized, style::error),
            count(source.counts.malformed, style::warning),
            Cell::dim(
                reading(source).into_iter().chain(remarks(&source.counts)).collect::<Vec<_>>().join(", "),
            ),
        ]);
    }
    table
}

/// Of a source that is read: its lag, and why it is not read if it is not.
fn reading(source: &SourceStatus) -> Option<String> {
    let reading = source.reading.as_ref()?;
    let lag = reading.lag.map_or_else(|| "lag unknown".to_owned(), |lag| format!("lag {}", thousands(lag)));
    Some(match &reading.why {
        Some(why) => format!("{lag}, {}: {}", plain(&reading.state), plain(why)),
        None => lag,
    })
}

/// What else there was, in words.
fn remarks(counts: &Counts) -> Vec<String> {
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
        some(counts.conflicts, format!("{} of one id", counted(counts.conflicts, "conflict"))),
        some(counts.too_large, format!("{} too large{by}", thousands(counts.too_large))),
        some(counts.too_slow, format!("{} too slow", thousands(counts.too_slow))),
        some(counts.rate_limited, format!("{} too many", thousands(counts.rate_limited))),
        some(counts.unavailable, format!("{} not served", thousands(counts.unavailable))),
        some(counts.no_session, format!("{} without a session", thousands(counts.no_session))),
    ];
    remarks.into_iter().flatten().collect()
}

//! What came by a webhook with a good signature and could not be taken.

use std::fmt::Write as _;

use redrive_core::time::Timestamp;

use super::moment::{ago, moment};
use super::table::{Cell, Side, Table};
use super::{cut, next_steps, plain, size, style};
use crate::api::shape::hooks::RefusedShown;

/// Longer reasons are cut in a list.
const REASON_COLUMNS_MAX: usize = 100;
/// How much of a body is shown.
const BODY_BYTES_SHOWN_MAX: usize = 4_096;

/// A list, the latest first.
pub(crate) fn list(refused: &[RefusedShown], now: Timestamp) -> String {
    let Some(latest) = refused.first() else {
        return format!("{} nothing that was signed well had to be refused\n", style::good("✓"));
    };
    let mut table = Table::new(&[Side::Right, Side::Left, Side::Left, Side::Right, Side::Left]);
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
        [(format!("redrive hooks show {}", latest.number), "shows the latest with its headers and its body")];
    table.text() + &next_steps(&steps)
}

/// One with its headers and the beginning of its body.
pub(crate) fn page(refused: &RefusedShown, body: &[u8], now: Timestamp) -> String {
    let mut out = format!(
        "{}  {}\n{} {}\n",
        style::bold(format!("refused body {} of {}", refused.number, plain(&refused.source))),
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
    let mut good_for = "prints the body as it came".to_owned();
    if (body.len() as u64) < refused.body_bytes {
        good_for = format!("prints what is kept of it: {}", size(body.len() as u64));
    }
    out.push_str(&next_steps(&[(format!("redrive hooks show {} --raw", refused.number), good_for.as_str())]));
    out
}

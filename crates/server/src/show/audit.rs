//! What was done, by hand or by rule.

use redrive_core::time::Timestamp;
use redrive_node::store::letter::AuditRecord;

use super::moment::{ago, moment};
use super::table::{Cell, Side, Table};
use super::{plain, style, thousands};

/// The records, the latest first.
pub(crate) fn page(records: &[AuditRecord], now: Timestamp, room: Option<usize>) -> String {
    if records.is_empty() {
        return format!("{} nothing is on record yet\n", style::good("✓"));
    }
    // Where nobody is asked for a key, nobody is known by name.
    let names_doers = records.iter().any(|record| record.by.is_some());
    let left = Side::Left;
    let sides = [Side::Whole, left, left, Side::Right, left, left, left];
    let heads = ["AT", "", "ACT", "LETTERS", "WHAT", "NOTE", "BY"];
    let columns = if names_doers { heads.len() } else { heads.len() - 1 };
    let mut table = Table::new(&sides[..columns]);
    table.head(&heads[..columns]);
    for record in records {
        let mut cells = vec![
            Cell::plain(moment(record.at)),
            Cell::dim(ago(record.at, now)),
            Cell::bold(plain(&record.act)),
            // What is done elsewhere than with letters touches none.
            Cell::plain(if record.letters == 0 { String::new() } else { thousands(record.letters) }),
            Cell::plain(plain(&record.what)),
            Cell::dim(record.note.as_deref().map(plain).unwrap_or_default()),
            Cell::plain(record.by.as_deref().map(plain).unwrap_or_default()),
        ];
        cells.truncate(columns);
        table.push(cells);
    }
    table.within(room).text()
}

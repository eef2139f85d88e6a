//! What was done with dead letters, by hand or by rule.

use redrive::core::time::Timestamp;
use redrive::store::letter::AuditRecord;

use super::moment::{ago, moment};
use super::table::{Cell, Side, Table};
use super::{plain, style, thousands};

/// The records, the latest first.
pub(crate) fn page(records: &[AuditRecord], now: Timestamp) -> String {
    if records.is_empty() {
        return format!("{} nothing was done with dead letters yet\n", style::good("✓"));
    }
    let mut table = Table::new(&[Side::Left, Side::Left, Side::Left, Side::Right, Side::Left, Side::Left]);
    table.head(&["AT", "", "ACT", "LETTERS", "WHAT", "NOTE"]);
    for record in records {
        table.push(vec![
            Cell::plain(moment(record.at)),
            Cell::dim(ago(record.at, now)),
            Cell::bold(plain(&record.act)),
            Cell::plain(thousands(record.letters)),
            Cell::plain(plain(&record.what)),
            Cell::dim(record.note.as_deref().map(plain).unwrap_or_default()),
        ]);
    }
    table.lines().into_iter().map(|line| line + "\n").collect()
}

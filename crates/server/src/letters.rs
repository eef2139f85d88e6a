//! Dead letters as they are asked for and shown, the same whether a server answers or a data folder is read.

mod browse;
pub(crate) mod bulk;
pub(crate) mod command;
mod edit;
pub(crate) mod filter;
mod find;
pub(crate) mod handlers;
mod import;
pub(crate) mod json;
mod purge;
pub(crate) mod refusal;
mod text;

use redrive_core::time::Timestamp;
use redrive_node::store::letter::{LetterFilter, Poison, Selection};

/// Letters in one list, at most and unless asked otherwise.
pub(crate) const LIST_MAX: usize = 500;

pub(crate) const LIST_DEFAULT: usize = 50;

/// Causes in one answer; the most frequent come first.
pub(crate) const GROUPS_MAX: usize = 500;

/// Letters that are read at once for an export: their data may be large.
pub(crate) const EXPORT_PAGE: usize = 100;

/// All letters that the filter finds, poison among them, and none that dies later.
pub(crate) fn everything(filter: LetterFilter, now: Timestamp) -> Selection {
    Selection { filter, letters: None, poison: Poison::Included, died_until: now }
}

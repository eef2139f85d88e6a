//! Dead letters: queries, JSON and terminal output, the same from a server and from a data folder.

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

/// Maximum and default page size.
pub(crate) const LIST_MAX: usize = 500;

pub(crate) const LIST_DEFAULT: usize = 50;

/// Groups in one answer; the most frequent first.
pub(crate) const GROUPS_MAX: usize = 500;

/// Small, since the data of letters may be large.
pub(crate) const EXPORT_PAGE: usize = 100;

/// All matching letters, poison included, that died before `now`.
pub(crate) fn everything(filter: LetterFilter, now: Timestamp) -> Selection {
    Selection { filter, letters: None, poison: Poison::Included, died_until: now }
}

//! Dapr resiliency files, both ways, with a word on all that does not carry over.
//!
//! A book becomes a `model` of what Dapr can hold (`export`, which collects what is lost on the way)
//! and then text (`write`); a file becomes the same model (`read`, which applies and names every
//! default that Dapr applies in silence) and then a book (`import`).
//!
//! Invariants: importing what was exported, and exporting what was imported, keeps the meaning of
//! every field that Dapr has; what Dapr would refuse is refused; an imported book is read without an
//! error; any bytes end in a book or in problems, never in a panic.

mod duration;
mod export;
mod import;
mod losses;
mod matching;
mod model;
mod read;
#[cfg(test)]
mod tests;
mod trip;
mod write;

use std::collections::BTreeMap;

pub use self::export::{DaprExport, Matching, export};
pub use self::import::{DaprImport, import};

/// Something that does not carry over, or that was decided on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What it is about: names and keys.
    pub what: String,
    /// What became of it, and why.
    pub why: String,
}

/// Names that one remark lists before it only counts them.
const LISTED_MAX: usize = 12;

/// Remarks in the order in which they came up; what has the same reason is one remark.
#[derive(Debug, Default)]
struct Remarks {
    by_reason: BTreeMap<String, usize>,
    found: Vec<(String, Vec<String>)>,
}

impl Remarks {
    fn add(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let (what, why) = (what.into(), why.into());
        let next = self.found.len();
        let index = *self.by_reason.entry(why.clone()).or_insert(next);
        match self.found.get_mut(index) {
            None => self.found.push((why, vec![what])),
            // The same thing may be met on several ways, mostly one after the other.
            Some((_, names)) if names.last() == Some(&what) => {}
            Some((_, names)) => names.push(what),
        }
    }

    fn into_list(self) -> Vec<Remark> {
        self.found.into_iter().map(|(why, names)| Remark { what: listed(names), why }).collect()
    }
}

fn listed(mut names: Vec<String>) -> String {
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let more = names.len().saturating_sub(LISTED_MAX);
    names.truncate(LISTED_MAX);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

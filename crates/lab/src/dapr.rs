//! Imports and exports Dapr resiliency files, with remarks on everything that does not carry over.
//!
//! Export: book → `model` (`export`, which collects losses) → text (`write`). Import: text → `model` (`read`, which
//! applies and names Dapr's silent defaults) → book (`import`).
//!
//! Invariants: a round trip in either direction keeps the meaning of every Dapr field; what Dapr refuses is refused;
//! an imported book has no errors; no input panics.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub what: String,
    pub why: String,
}

const LISTED_MAX: usize = 12;

/// Remarks with the same reason are merged; in order of appearance.
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
            // Usually met twice in a row.
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

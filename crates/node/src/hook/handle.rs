//! The webhook sources of the rule book that holds: one handle for as long as the server runs.
//!
//! Invariant: there are as many counts as the book has sources; one that is still there after a change of
//! the book keeps its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use redrive_core::book::RuleBook;

use super::Hook;
use super::tally::{Counts, Tally};
use crate::runtime::Switch;

/// A source and how its calls were answered.
#[derive(Debug)]
pub struct Opened {
    /// The source.
    pub hook: Hook,
    /// How its calls were answered.
    pub tally: Arc<Tally>,
}

type All = BTreeMap<String, Arc<Opened>>;

/// The sources of the book that holds; clones are the same.
#[derive(Clone, Debug)]
pub struct Hooks(Arc<ArcSwap<All>>);

impl Hooks {
    /// The sources of a book.
    #[must_use]
    pub fn new(book: &Arc<RuleBook>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(opened(book, &All::new()))))
    }

    /// Builds the sources of another book; they are open once the switch is made.
    #[must_use]
    pub fn prepare(&self, book: &Arc<RuleBook>) -> Switch {
        let (hooks, next) = (Arc::clone(&self.0), Arc::new(opened(book, &self.0.load())));
        Box::new(move || hooks.store(next))
    }

    /// The source of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Opened>> {
        self.0.load().get(name).cloned()
    }

    /// Every source with its counts, by name.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, Counts)> {
        self.0.load().iter().map(|(name, opened)| (name.clone(), opened.tally.counts())).collect()
    }
}

fn opened(book: &RuleBook, before: &All) -> All {
    let hooks = book.sections().sources.iter().filter_map(|(name, source)| Hook::new(name, &source.value));
    let open = |hook: Hook| {
        let known = before.get(hook.name()).map(|opened| Arc::clone(&opened.tally));
        (hook.name().to_owned(), Arc::new(Opened { hook, tally: known.unwrap_or_default() }))
    };
    hooks.map(open).collect()
}

//! The webhook sources of the active rule book.
//!
//! Invariant: there is one set of counts per source of the book; it survives a reload that keeps the source.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use redrive_core::book::RuleBook;

use super::WebhookSource;
use super::tally::{WebhookCounts, WebhookTally};
use crate::runtime::BookSwitch;

#[derive(Debug)]
pub struct OpenWebhook {
    pub hook: WebhookSource,
    pub tally: Arc<WebhookTally>,
}

type WebhooksByName = BTreeMap<String, Arc<OpenWebhook>>;

/// Clones share one list.
#[derive(Clone, Debug)]
pub struct WebhookSources(Arc<ArcSwap<WebhooksByName>>);

impl WebhookSources {
    #[must_use]
    pub fn new(book: &Arc<RuleBook>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(opened(book, &WebhooksByName::new()))))
    }

    /// Prepares the sources of another book; the switch activates them.
    #[must_use]
    pub fn prepare(&self, book: &Arc<RuleBook>) -> BookSwitch {
        let (hooks, next) = (Arc::clone(&self.0), Arc::new(opened(book, &self.0.load())));
        Box::new(move || hooks.store(next))
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<OpenWebhook>> {
        self.0.load().get(name).cloned()
    }

    #[must_use]
    pub fn counts(&self) -> Vec<(String, WebhookCounts)> {
        self.0.load().iter().map(|(name, opened)| (name.clone(), opened.tally.counts())).collect()
    }
}

fn opened(book: &RuleBook, before: &WebhooksByName) -> WebhooksByName {
    let hooks =
        book.sections().sources.iter().filter_map(|(name, source)| WebhookSource::new(name, &source.value));
    let open = |hook: WebhookSource| {
        let known = before.get(hook.name()).map(|opened| Arc::clone(&opened.tally));
        (hook.name().to_owned(), Arc::new(OpenWebhook { hook, tally: known.unwrap_or_default() }))
    };
    hooks.map(open).collect()
}

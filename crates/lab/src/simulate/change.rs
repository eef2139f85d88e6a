//! Keys that must accompany a change so that the changed entry keeps its other settings: `from` for a policy or
//! breaker of the catalog, `kind` for an undeclared dependency.

use std::sync::Arc;

use redrive_core::book::RuleBook;
use redrive_core::book::patch::{self, Patch};
use redrive_core::policy::catalog::{self, DependencyKind};

type KeyValue = (&'static str, String);

/// `None` if the changed text is no valid book.
pub(crate) fn changed(book: &RuleBook, text: &str, change: &Patch) -> Option<Arc<RuleBook>> {
    let text = patch::laid_over(text, &change.to_string()).ok()?;
    book.read_changed(&text).book.map(Arc::new)
}

/// For example `from: standard`.
pub(super) fn beside_change(book: &RuleBook, section: &str, name: &str) -> Option<KeyValue> {
    beside_change_of(book, section, name, || {
        let mut rows = book.sections().resolved();
        rows.find(|resolved| resolved.dependency.value.as_str() == name).map(|caller| caller.kind)
    })
}

/// Like [`beside_change`], for callers that know the kind already.
pub(super) fn beside_change_of(
    book: &RuleBook,
    section: &str,
    name: &str,
    kind: impl FnOnce() -> Option<DependencyKind>,
) -> Option<KeyValue> {
    let sections = book.sections();
    match section {
        "retry_policies" => {
            let is_from_catalog = !sections.policies.contains_key(name) && catalog::policy(name).is_some();
            is_from_catalog.then(|| ("from", name.to_owned()))
        }
        "breakers" => {
            let is_from_catalog = !sections.breakers.contains_key(name) && catalog::breaker(name).is_some();
            is_from_catalog.then(|| ("from", name.to_owned()))
        }
        "dependencies" if !sections.dependencies.contains_key(name) => {
            kind().map(|kind| ("kind", kind.to_string()))
        }
        _ => None,
    }
}

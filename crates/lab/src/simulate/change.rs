//! What a changed part of a rule book must say beside the change, so that a thing which the book does not define
//! itself stays what it was: a policy or breaker of the catalog is extended, a dependency is declared with its kind.

use std::sync::Arc;

use redrive_core::book::RuleBook;
use redrive_core::book::patch::{self, Patch};
use redrive_core::policy::catalog::{self, Kind};

/// A key and its value.
type KeyValue = (&'static str, String);

/// The book with a change; none if that makes no book.
pub(crate) fn changed(book: &RuleBook, text: &str, change: &Patch) -> Option<Arc<RuleBook>> {
    let text = patch::laid_over(text, &change.to_string()).ok()?;
    book.read_changed(&text).book.map(Arc::new)
}

/// The key that goes before a change of something with that name, such as `from: standard`.
pub(super) fn beside_change(book: &RuleBook, section: &str, name: &str) -> Option<KeyValue> {
    beside_change_of(book, section, name, || {
        let mut rows = book.sections().resolved();
        rows.find(|resolved| resolved.dependency.value.as_str() == name).map(|caller| caller.kind)
    })
}

/// The same for somebody who knows what kind of dependency those take it for who call it.
pub(super) fn beside_change_of(
    book: &RuleBook,
    section: &str,
    name: &str,
    kind: impl FnOnce() -> Option<Kind>,
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

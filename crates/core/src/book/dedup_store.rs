//! Which idempotency stores exist.

use super::RuleBook;
use super::model::At;
use super::problem::{Problem, ProblemSeverity};

/// The only store that is built in: the data folder.
pub const EMBEDDED: &str = "embedded";

impl RuleBook {
    /// One error for each place that names a store that is not built in.
    pub(super) fn dedup_stores_beyond(&self) -> Vec<Problem> {
        let layers = self.sections.layers();
        let mut stated: Vec<&At<String>> =
            layers.into_iter().filter_map(|layer| layer.idempotency.store.as_ref()).collect();
        stated.retain(|at| at.value != EMBEDDED);
        stated.sort_by_key(|at| at.span.position);
        stated.dedup_by_key(|at| at.span.position);
        let problem = |at: &At<String>| Problem {
            severity: ProblemSeverity::Error,
            code: "not-built-in",
            span: at.span,
            message: format!("an idempotency store `{}` is not available in this version", at.value),
            help: "remove `store`, or write `store: embedded`: ids and keys are kept in the data folder"
                .to_owned(),
        };
        stated.into_iter().map(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::read;

    #[test]
    fn a_store_that_is_not_built_in_is_an_error_where_it_stands() {
        let book = |defaults: &str, row: &str| {
            let text = format!(
                "version: 1\ndefaults: {{ {defaults} }}\nservices:\n  s:\n    target: {{ log: stdout }}\n    events: [a, {{ type: b, {row} }}]\n"
            );
            let found = read(&text, built_in()).book.expect("a book").dedup_stores_beyond();
            found.iter().map(|one| format!("{} {}", one.span.position.line, one.message)).collect::<Vec<_>>()
        };
        let told = |line: u32, store: &str| {
            format!("{line} an idempotency store `{store}` is not available in this version")
        };
        let store = |store: &str| format!("idempotency: {{ store: {store} }}");
        assert_eq!(book("", "idempotency: { ttl: 1h }"), [""; 0]);
        assert_eq!(book(&store("embedded"), &store("embedded")), [""; 0]);
        for word in ["redis", "postgres", "memory"] {
            assert_eq!(book("", &store(word)), [told(6, word)]);
            assert_eq!(book(&store(word), ""), [told(2, word)], "once, however many rows it holds for");
        }
        assert_eq!(book(&store("redis"), &store("memory")), [told(2, "redis"), told(6, "memory")]);
        let unused = format!("version: 1\ndependencies:\n  d: {{ kind: webhook, {} }}\n", store("redis"));
        let found = read(&unused, built_in()).book.expect("a book").dedup_stores_beyond();
        assert_eq!(found.len(), 1, "a dependency that no service names: {found:?}");
    }
}

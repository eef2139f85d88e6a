//! The kinds of target, source and secret that this build can serve: one table for `check` and `serve`.

use redrive_core::book::BuiltIn;

/// What this build has. No feature brings further kinds yet.
pub const BUILT_IN: BuiltIn<'static> = BuiltIn {
    targets: &["exec", "http", "log"],
    sources: &["schedule", "webhook"],
    secrets: &["command", "env", "file"],
    features: &[],
};

#[cfg(test)]
mod tests {
    use redrive_core::book::problem::Severity;
    use redrive_core::book::schema::{BOOK, Object, Type};
    use redrive_lab::lint::{all, check_for};

    use super::*;

    /// The map that stands at that key, or in the map of names there.
    fn at(object: &'static Object, key: &str) -> &'static Object {
        match &object.field(key).expect("there is such a key").takes {
            Type::Object(object) | Type::MapOf(Type::Object(object)) => object,
            other => panic!("{key} takes {other:?}"),
        }
    }

    #[test]
    fn the_reference_says_which_kinds_are_not_available() {
        let edges = [
            (at(at(&BOOK, "services"), "target"), BUILT_IN.targets),
            (at(&BOOK, "sources"), BUILT_IN.sources),
            (at(&BOOK, "secrets"), BUILT_IN.secrets),
        ];
        for (object, built_in) in edges {
            for kind in object.one_of {
                let about = object.field(kind).expect("a kind is a key").about;
                let is_missing = about.ends_with("Not available in this version.");
                assert_eq!(is_missing, !built_in.contains(kind), "{}: {kind}", object.name);
            }
            assert!(built_in.iter().all(|kind| object.one_of.contains(kind)), "{}", object.name);
        }
    }
    #[test]
    fn the_advice_of_every_lint_is_a_book_that_can_be_served() {
        for lint in all() {
            let mut problems = check_for(lint.mended.as_bytes(), &BUILT_IN).problems;
            problems.retain(|problem| problem.severity == Severity::Error);
            assert!(problems.is_empty(), "{}: {problems:?}", lint.code);
        }
    }
}

//! Lints about the book itself: what is defined and never used, what hides something else.

use super::{Findings, Lint, Run};
use crate::book::model::{ReactionName, Sections};
use crate::book::problem::Severity;

pub(super) const LINTS: &[Lint] = &[Lint {
    code: "unused-definition",
    severity: Severity::Warning,
    summary: "a policy, breaker, timeout, throttle, dependency, secret or receiver that nothing refers to",
    explanation: "Something is defined and never named. Often a service was meant to use it and names \
                  something else, or nothing at all, and so runs under another policy than its author \
                  believes. Refer to it where it was meant, or remove it.",
    bad: "version: 1\nretry_policies:\n  mine: { from: standard, retries: 2 }\n",
    mended: "version: 1\nretry_policies:\n  mine: { from: standard, retries: 2 }\ndefaults: { retry: mine }\n",
    run: Run::Book(unused_definition),
}];

fn unused_definition(book: &Sections, findings: &mut Findings<'_>) {
    let layers = book.layers();
    let reactions = || layers.iter().flat_map(|layer| layer.reactions.iter().map(|(_, at)| &at.value));
    for (name, entry) in &book.policies {
        let named = reactions().any(|reaction| *reaction == ReactionName::Policy(name.clone()));
        let extended = book.policies.values().any(|other| other.value.from.as_ref() == Some(name));
        if !named && !extended {
            findings.report(
                entry.span,
                format!("the retry policy `{name}` is never used"),
                "use it or remove it",
            );
        }
    }
}

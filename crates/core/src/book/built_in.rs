//! Which kinds of target, source and secret a build can serve, and what a book asks for beyond them.
//!
//! The table is an argument: `check` and `serve` of one build ask the same one.

use super::RuleBook;
use super::problem::{Problem, Severity, Span};

/// The kinds that a build can serve.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn<'a> {
    /// Kinds of target.
    pub targets: &'a [&'a str],
    /// Kinds of source.
    pub sources: &'a [&'a str],
    /// Kinds of secret.
    pub secrets: &'a [&'a str],
    /// Kinds that another build has: the kind, and the feature that brings it.
    pub features: &'a [(&'a str, &'a str)],
}

/// What a kind is a kind of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Where events go.
    Target,
    /// Where events come from.
    Source,
    /// Where a secret comes from.
    Secret,
}

impl Edge {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Source => "source",
            Self::Secret => "secret",
        }
    }
}

impl BuiltIn<'_> {
    /// The error for a kind at that place, if this build does not have it.
    #[must_use]
    pub fn problem(&self, edge: Edge, kind: &str, span: Span) -> Option<Problem> {
        let kinds = match edge {
            Edge::Target => self.targets,
            Edge::Source => self.sources,
            Edge::Secret => self.secrets,
        };
        if kinds.contains(&kind) {
            return None;
        }
        let edge = edge.as_str();
        let feature = self.features.iter().find(|(of, _)| *of == kind);
        let message = match feature {
            Some((_, feature)) => {
                format!("{edge} kind `{kind}` is not in this build; it comes with the feature `{feature}`")
            }
            None => format!("{edge} kind `{kind}` is not available in this version"),
        };
        let available: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
        Some(Problem {
            severity: Severity::Error,
            code: "not-built-in",
            span,
            message,
            help: format!("available {edge} kinds: {}", available.join(", ")),
        })
    }
}

impl RuleBook {
    /// What the book needs that a build does not have: one error for each target, source,
    /// secret and idempotency store.
    #[must_use]
    pub fn needs_beyond(&self, built_in: &BuiltIn<'_>) -> Vec<Problem> {
        let sections = self.sections();
        let targets = sections.services.iter().flat_map(|service| {
            let channels = service.channels.iter().filter_map(|channel| channel.target.as_ref());
            std::iter::once(&service.target).chain(channels)
        });
        let targets = targets.map(|target| (Edge::Target, target.kind.as_str(), target.span));
        let sources = sections.sources.values();
        let sources = sources.map(|source| (Edge::Source, source.value.kind.as_str(), source.span));
        let secrets = sections.secrets.values();
        let secrets = secrets.map(|secret| (Edge::Secret, secret.value.from.as_str(), secret.span));
        let all = targets.chain(sources).chain(secrets);
        let kinds = all.filter_map(|(edge, kind, span)| built_in.problem(edge, kind, span));
        kinds.chain(self.dedup_stores_beyond()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::read;

    const BOOK: &str = r#"version: 1
secrets: { hooks: { key-vault: "https://vault.test/hooks" } }
sources:
  in: { kafka: { brokers: ["b:9092"], topics: [t] }, type: a.b }
services:
  shop:
    target: { http: "http://h.test/" }
    events: [a.b]
    channels:
      mail: { target: { smtp: "a@example.test" }, events: [a.b] }
      same: { events: [a.b] }
"#;

    #[test]
    fn a_build_says_which_kinds_it_lacks_and_what_brings_them() {
        let told = |built_in: &BuiltIn<'_>| {
            let book = read(BOOK).book.expect("a book");
            let missing = book.needs_beyond(built_in);
            missing
                .iter()
                .map(|one| format!("{} {}", one.span.position.line, one.message))
                .collect::<Vec<_>>()
        };
        let all = BuiltIn {
            targets: &["http", "smtp"],
            sources: &["kafka"],
            secrets: &["key-vault"],
            features: &[],
        };
        assert_eq!(told(&all), [""; 0]);
        let none =
            BuiltIn { targets: &["http"], sources: &[], secrets: &["env"], features: &[("smtp", "mail")] };
        assert_eq!(
            told(&none),
            [
                "10 target kind `smtp` is not in this build; it comes with the feature `mail`",
                "4 source kind `kafka` is not available in this version",
                "2 secret kind `key-vault` is not available in this version",
            ]
        );
        let problem = none.problem(Edge::Target, "sqs", Span::default()).expect("it lacks");
        assert_eq!((problem.code, problem.help.as_str()), ("not-built-in", "available target kinds: `http`"));
    }
}

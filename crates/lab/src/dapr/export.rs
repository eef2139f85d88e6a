//! Exports a rule book as a Dapr resiliency file, and collects what Dapr cannot express.
//!
//! A target is a dependency with `dapr:`. Its policies are resolved as for a delivery without settings of its own.
//!
//! Invariants: the same book gives the same text; every policy that the book uses or defines is in the file;
//! everything rounded or left out is a loss.

mod guards;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::losses;
use super::model::{Resiliency, Retry, TargetPolicies};
use super::read::is_reserved;
use super::{Remark, Remarks, matching, write};
use redrive_core::book::RuleBook;
use redrive_core::book::model::{
    At, DaprTarget, DependencyEntry, EventRow, Layer, ReactionName, Sections, ServiceEntry, TargetEntry,
    WaitingEntry,
};
use redrive_core::book::pattern::EventPattern;
use redrive_core::book::problem::BookSpan;
use redrive_core::book::resolve::Resolved;
use redrive_core::ids::{PolicyName, ServiceName};
use redrive_core::policy::answer::{AnswerKind, TargetAnswer};
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::rule::{FailureMatch, Reaction, StatusRange};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaprExport {
    pub yaml: String,
    pub losses: Vec<Remark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    AsStated,
    /// Dapr then does not retry what the book would not.
    Always,
}

#[must_use]
pub fn export(book: &RuleBook, matching: Matching) -> DaprExport {
    let sections = book.sections();
    let mut exporter = DaprExporter {
        sections,
        matching,
        losses: Remarks::default(),
        names: UsedNames::default(),
        variants: BTreeMap::new(),
        resiliency: Resiliency {
            name: sections.dapr.name.clone(),
            namespace: sections.dapr.namespace.clone(),
            scopes: sections.dapr.scopes.clone(),
            ..Resiliency::default()
        },
    };
    exporter.policies();
    exporter.targets();
    losses::of_book(sections, &mut exporter.losses);
    DaprExport { yaml: write::write(&exporter.resiliency), losses: exporter.losses.into_list() }
}

struct DaprExporter<'a> {
    sections: &'a Sections,
    matching: Matching,
    losses: Remarks,
    names: UsedNames,
    /// By the failures they retry.
    variants: BTreeMap<PolicyName, Vec<Variant>>,
    resiliency: Resiliency,
}

struct Variant {
    name: String,
    statuses: Option<Vec<StatusRange>>,
}

#[derive(Default)]
struct UsedNames {
    retries: BTreeSet<String>,
    breakers: BTreeSet<String>,
    timeouts: BTreeSet<String>,
}

impl DaprExporter<'_> {
    fn targets(&mut self) {
        let mut entries: Vec<&DependencyEntry> = self.sections.dependencies.values().collect();
        entries.sort_by_key(|entry| entry.span);
        let mut seen: Vec<&DaprTarget> = Vec::new();
        let mut breakers: BTreeMap<String, String> = BTreeMap::new();
        for entry in entries {
            let label = format!("dependency {}", entry.name);
            let Some(target) = &entry.dapr else {
                let why = "without `dapr:` it is not a Dapr target";
                self.losses.add(label, why);
                continue;
            };
            if seen.contains(&&target.value) {
                let why =
                    "another dependency is the same Dapr target; only the first in the book is exported";
                self.losses.add(label, why);
                continue;
            }
            seen.push(&target.value);
            let guards = self.target(entry, &label);
            if let (DaprTarget::Component { name, .. }, Some(breaker)) = (&target.value, &guards.breaker)
                && let Some(other) = breakers.insert(name.clone(), breaker.clone())
            {
                let why = if other == *breaker {
                    "Dapr has one breaker for both directions of a component; the book has one for each"
                } else {
                    "the directions have different breakers, and Dapr takes the first that is used for both"
                };
                self.losses.add(format!("component {name}"), why);
            }
            self.resiliency.targets.push((target.value.clone(), guards));
        }
        if self.resiliency.targets.is_empty() {
            let why = "no dependency has `dapr:`, so the file applies to nothing; add `dapr: { component: NAME }` or `{ app: ID }`";
            self.losses.add("targets", why);
        }
    }

    fn target(&mut self, entry: &DependencyEntry, label: &str) -> TargetPolicies {
        let service = probe(entry);
        let row = Arc::clone(&service.rows[0]);
        let resolved = self.sections.resolve(&service, None, &row);
        let retry = self.retry_of(entry, &resolved, label);
        let breaker = resolved.rule.breaker.as_ref().map(|breaker| self.breaker_of(entry, breaker));
        if retry.is_some() {
            self.losses.add("Retry-After", "Dapr ignores it and waits as the policy says");
            let on_500 = resolved.rule.reactions.to(Category::Unknown, Some(500)).value;
            if matches!(on_500, Reaction::RetryCautiously(_)) {
                let why = "Redrive stops after 2 retries of category `unknown`; Dapr continues";
                self.losses.add("unexplained failures, such as 500", why);
            }
        }
        if breaker.is_some() {
            let why = "while a breaker is open Dapr fails calls and ends their retries; Redrive holds deliveries \
                       and uses no retries";
            self.losses.add("holding while a breaker is open", why);
            let why = "each Dapr sidecar counts separately, for apps by method, and resets when it stops";
            self.losses.add("breakers shared by all callers", why);
        }
        TargetPolicies { timeout: self.timeout_of(entry, &resolved), retry, breaker }
    }

    fn retry_of(&mut self, entry: &DependencyEntry, resolved: &Resolved<'_>, label: &str) -> Option<String> {
        let reactions = &resolved.rule.reactions;
        let name = match reactions.to(Category::Transient, None).value {
            Reaction::Retry(index) | Reaction::RetryCautiously(index) => {
                reactions.policies()[usize::from(index.0)].name.clone()
            }
            Reaction::DeadLetter => return None,
            Reaction::Pause => {
                self.losses
                    .add(label, "it pauses on transient failures; Dapr cannot pause and does not retry them");
                return None;
            }
        };
        if is_never(&self.sections.policy(&name)?.backoff) {
            return None;
        }
        let retried = retried_statuses(resolved);
        let states_statuses = [&entry.layer, &self.sections.defaults]
            .into_iter()
            .any(|layer| layer.reactions.iter().any(|(kind, _)| matches!(kind, FailureMatch::Status(_))));
        if self.matching == Matching::Always || states_statuses {
            return self.variant(&name, Some(retried));
        }
        let why = format!(
            "Dapr retries every failure; to keep the book's meaning export with --with-matching, or add `matching: {{ httpStatusCodes: \"{}\" }}` to the policies",
            matching::show(&retried)
        );
        self.losses.add("permanent failures, such as 400", why);
        self.variant(&name, None)
    }

    /// Adds a remark if the name is reserved.
    fn give_name(&mut self, name: &str, given: fn(&mut UsedNames) -> &mut BTreeSet<String>) -> String {
        if is_reserved(name) {
            let why = "Dapr reserves the name and applies the policy to targets without one; rename it in the \
                       book if that is not intended";
            self.losses.add(format!("the name {name}"), why);
        }
        unique(given(&mut self.names), name)
    }

    fn variant(&mut self, policy: &PolicyName, statuses: Option<Vec<StatusRange>>) -> Option<String> {
        let variants = self.variants.get_mut(policy)?;
        if let Some(variant) = variants.iter().find(|variant| variant.statuses == statuses) {
            return Some(variant.name.clone());
        }
        let first = variants.first()?.name.clone();
        let index = self.resiliency.retries.iter().position(|(name, _)| *name == first)?;
        // The first variant may be changed until a target uses it.
        if let [only] = variants.as_mut_slice()
            && !self.resiliency.targets.iter().any(|(_, guards)| guards.retry.as_ref() == Some(&only.name))
        {
            only.statuses.clone_from(&statuses);
            self.resiliency.retries[index].1.statuses = statuses;
            return Some(first);
        }
        let retry = Retry { statuses: statuses.clone(), ..self.resiliency.retries[index].1.clone() };
        let name = unique(&mut self.names.retries, &first);
        let why =
            format!("targets retry different failures, so the policy is exported a second time, as `{name}`");
        self.losses.add(format!("retries.{first}"), why);
        self.variants.get_mut(policy)?.push(Variant { name: name.clone(), statuses });
        self.resiliency.retries.push((name.clone(), retry));
        Some(name)
    }
}

/// A service that only depends on it.
fn probe(entry: &DependencyEntry) -> ServiceEntry {
    let span = BookSpan::default();
    let pattern = EventPattern::parse("any").expect("a word is a pattern");
    let row = EventRow::plain(span, At { value: pattern, span });
    ServiceEntry {
        name: ServiceName::new("any").expect("a word is a name"),
        span,
        title: None,
        target: TargetEntry::stdout(span),
        depends_on: Some(At { value: entry.name.clone(), span }),
        order: None,
        waiting: WaitingEntry::default(),
        rows: vec![Arc::new(row)],
        channels: Vec::new(),
        layer: Layer::default(),
    }
}

fn retried_statuses(resolved: &Resolved<'_>) -> Vec<StatusRange> {
    let reactions = &resolved.rule.reactions;
    let of_target = reactions.to(Category::Transient, None).value.policy();
    matching::of_failures(|status| {
        let what = AnswerKind::Http { status, headers: &(), body: "" };
        let answer = TargetAnswer { what, message: "", retry_after: None };
        let Outcome::Failed(failure) = classify(&answer, &resolved.rule.classify, Category::Transient) else {
            return false;
        };
        let policy = reactions.to(failure.category, Some(status)).value.policy();
        // A policy without retries counts only if the target names it.
        policy.is_some_and(|index| {
            policy == of_target || reactions.policies()[usize::from(index.0)].backoff.retries() > 0
        })
    })
}

fn is_never(backoff: &Backoff) -> bool {
    backoff.factor().is_none() && backoff.listed().is_none()
}

fn named_policies(layer: &Layer) -> impl Iterator<Item = &PolicyName> {
    layer.reactions.iter().filter_map(|(_, at)| match &at.value {
        ReactionName::Policy(name) => Some(name),
        ReactionName::DeadLetter | ReactionName::Pause => None,
    })
}

fn unique(given: &mut BTreeSet<String>, wanted: &str) -> String {
    let mut name = wanted.to_owned();
    let mut number = 2;
    while !given.insert(name.clone()) {
        name = format!("{wanted}-{number}");
        number += 1;
    }
    name
}

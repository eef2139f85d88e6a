//! Builds the smallest rule-book change for a row, so that no other row is affected.

use std::fmt::Display;

use super::evidence::DoctorEvidence;
use redrive_core::book::model::{At, BreakerEntry, Layer, ReactionName, Sections};
pub(super) use redrive_core::book::patch::{Patch, PatchStep, keys, scalar};
use redrive_core::book::resolve::{Resolved, RuleLevel};
use redrive_core::ids::{BreakerName, DependencyName};
use redrive_core::policy::breaker::{BreakerSettings, Trip};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::NamedPolicy;
use redrive_core::text::show_duration;

/// Settings above all services are repeated at the service, so that others keep theirs.
pub(super) fn place_of(rule: &Resolved<'_>, level: RuleLevel) -> Vec<PatchStep> {
    let mut path = keys(&["services", rule.service.name.as_str()]);
    let channel = rule.channel.map(|channel| channel.name.as_str());
    match level {
        RuleLevel::Row => {
            path.extend(channel.into_iter().flat_map(|channel| keys(&["channels", channel])));
            path.extend(keys(&["events"]));
            path.push(PatchStep::Row(rule.row.pattern.value.as_str().to_owned()));
        }
        RuleLevel::Channel => {
            path.extend(channel.into_iter().flat_map(|channel| keys(&["channels", channel])));
        }
        RuleLevel::Dependency => return keys(&["dependencies", rule.dependency.value.as_str()]),
        RuleLevel::Service | RuleLevel::Kind | RuleLevel::Defaults | RuleLevel::BuiltIn => {}
    }
    path
}

pub(super) fn of_dependency(
    evidence: &DoctorEvidence,
    rule: &Resolved<'_>,
    key: &str,
    value: impl Display,
) -> Patch {
    let name = &rule.dependency.value;
    let declared = evidence.book.sections().dependencies.contains_key(name);
    let (path, change) = match (declared, rule.channel) {
        (false, Some(channel)) if name.as_str().contains('/') => {
            // The target's default name, which a book cannot declare.
            let new = fit(name);
            let place = keys(&["services", rule.service.name.as_str(), "channels", channel.name.as_str()]);
            (keys(&["dependencies", &new]), Patch::new().set(&place, "depends_on", scalar(&new)))
        }
        _ => (keys(&["dependencies", name.as_str()]), Patch::new()),
    };
    let change = if declared { change } else { change.set(&path, "kind", rule.kind) };
    change.set(&path, key, value)
}

/// In place if the book defines the policy, else as a new policy of the service that extends it.
pub(super) fn of_policy(
    evidence: &DoctorEvidence,
    rule: &Resolved<'_>,
    policy: &NamedPolicy,
    values: &[(&str, String)],
) -> Patch {
    let is_own = evidence.book.sections().policies.contains_key(&policy.name);
    let name = if is_own { policy.name.to_string() } else { format!("{}-retry", rule.service.name) };
    let place = keys(&["retry_policies", &name]);
    let mut change = Patch::new();
    if !is_own {
        change = change.set(&place, "from", policy.name.as_str());
    }
    change = set_all(change, &place, values);
    if is_own {
        return change;
    }
    let reaction = rule.reaction_to(Category::Transient);
    let mut place = place_of(rule, reaction.origin.level);
    let is_by_policy = matches!(reaction.value, ReactionName::Policy(_));
    let span = reaction.origin.span.filter(|_| reaction.origin.level < RuleLevel::Kind);
    let is_short = span.is_none_or(|span| is_written_as(evidence, span.start, "retry"));
    if !is_by_policy || is_short {
        return change.set(&place, "retry", scalar(&name));
    }
    place.extend(keys(&["on_failure"]));
    change.set(&place, "transient", scalar(&name))
}

/// In place if the book defines the breaker and no other dependency uses it, else as a new one.
pub(super) fn of_breaker(evidence: &DoctorEvidence, rule: &Resolved<'_>, values: &[(&str, String)]) -> Patch {
    if let Some((name, _)) = sole_breaker(evidence, rule) {
        return set_all(Patch::new(), &keys(&["breakers", name.as_str()]), values);
    }
    let sections = evidence.book.sections();
    let name = new_breaker(sections, &rule.dependency.value);
    let place = keys(&["breakers", &name]);
    let base = rule.rule.breaker.as_ref();
    let shared =
        base.and_then(|base| base.name.as_ref()).filter(|name| sections.breakers.contains_key(*name));
    let mut change = Patch::new();
    if let Some(shared) = shared {
        change = change.set(&place, "from", scalar(shared.as_str()));
    } else if let Some(base) = base {
        let kept = settings(&base.settings).into_iter();
        let kept = kept.filter(|(key, _)| values.iter().all(|(changed, _)| changed != key));
        change = kept.fold(change, |change, (key, value)| change.keep(&place, key, value));
    }
    let change = set_all(change, &place, values);
    let declared = sections.dependencies.contains_key(&rule.dependency.value);
    let level = match rule.breaker_origin.level {
        RuleLevel::Row | RuleLevel::Channel | RuleLevel::Service => rule.breaker_origin.level,
        _ if declared => RuleLevel::Dependency,
        _ => RuleLevel::Service,
    };
    change.set(&place_of(rule, level), "breaker", scalar(&name))
}

fn set_all(patch: Patch, place: &[PatchStep], values: &[(&str, String)]) -> Patch {
    values.iter().fold(patch, |patch, (key, value)| patch.set(place, key, value))
}

/// Where the breaker is defined if it is changed in place, else where it is named.
pub(super) fn breaker_line(evidence: &DoctorEvidence, rule: &Resolved<'_>) -> Option<u32> {
    match sole_breaker(evidence, rule) {
        Some((_, entry)) => Some(entry.span.position.line),
        None => rule.breaker_origin.position().map(|position| position.line),
    }
}

fn sole_breaker<'a>(
    evidence: &'a DoctorEvidence,
    rule: &Resolved<'_>,
) -> Option<(&'a BreakerName, &'a At<BreakerEntry>)> {
    let sections = evidence.book.sections();
    let own = rule.rule.breaker.as_ref()?.name.as_ref()?;
    let (name, entry) = sections.breakers.get_key_value(own)?;
    let is_extended = sections.breakers.values().any(|other| other.value.from.as_ref() == Some(name));
    let of_others = sections.dependencies.iter().filter(|(other, _)| **other != rule.dependency.value);
    let is_named = |layer: &Layer| layer.breaker.as_ref().is_some_and(|at| at.value.as_ref() == Some(name));
    let is_of_others = of_others.into_iter().any(|(_, other)| is_named(&other.layer));
    let is_met_elsewhere = sections.resolved().any(|other| {
        let breaker = other.rule.breaker.as_ref().and_then(|breaker| breaker.name.as_ref());
        other.dependency.value != rule.dependency.value && breaker == Some(name)
    });
    (!is_extended && !is_of_others && !is_met_elsewhere).then_some((name, entry))
}

fn new_breaker(sections: &Sections, dependency: &DependencyName) -> String {
    let name = format!("{}-breaker", fit(dependency));
    let is_free = |name: &String| !sections.breakers.keys().any(|known| known.as_str() == name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
}

fn settings(settings: &BreakerSettings) -> Vec<(&'static str, String)> {
    vec![
        ("trip", trip(settings.trip())),
        ("open", show_duration(settings.open())),
        ("probes", settings.probes().to_string()),
        ("close_after", settings.close_after().to_string()),
    ]
}

pub(super) fn trip(trip: Trip) -> String {
    match trip {
        Trip::Consecutive(failures) => format!("{{ consecutive: {failures} }}"),
        Trip::Failures { count, within } => {
            format!("{{ failures: {count}, within: {} }}", show_duration(within))
        }
        Trip::FailureRate { share, of_at_least, within } => format!(
            "{{ failure_rate: {share}, of_at_least: {of_at_least}, within: {} }}",
            show_duration(within)
        ),
    }
}

fn fit(name: &DependencyName) -> String {
    name.as_str().replace('/', "-")
}

/// Whether the value at that offset of the text belongs to `key`.
fn is_written_as(evidence: &DoctorEvidence, start: u32, key: &str) -> bool {
    let before = evidence.text.as_deref().and_then(|text| text.get(..start as usize));
    before.is_none_or(|before| {
        let before = before.trim_end_matches([' ', '"', '\'']);
        before.strip_suffix(':').is_some_and(|before| before.trim_end().ends_with(key))
    })
}

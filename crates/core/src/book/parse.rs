//! Turns validated nodes into the types of [`super::model`], and checks relations between keys: mutually
//! exclusive keys, contradicting numbers, circular `from`.
//!
//! Invariant: a value that validation reported is skipped silently, so no mistake is reported twice.

mod alerting;
mod edge;
mod guards;
mod layer;
mod services;

use std::time::Duration;

use super::connectors::Connectors;
use super::keywords::Keyword;
use super::model::{Allow, At, DaprFile, Machine, Permits, Sections};
use super::problem::{BookSpan, Problems};
use super::yaml::{YamlNode, YamlValue};
use crate::ids::Name;
use crate::policy::budget::BudgetSettings;
use crate::text;

use guards::GuardSections;

pub fn parse(book: &YamlNode, connectors: &Connectors, problems: &mut Problems) -> Sections {
    let section = |name| book.get(name).map(YamlNode::entries).unwrap_or_default();
    let mut guards = GuardSections::default();
    guards.read(book, problems);
    let mut parser = BookParser { guards: &guards, connectors, problems, patterns: 0 };
    let defaults = book.get("defaults").map(|node| parser.layer(node)).unwrap_or_default();
    let throttles = section("throttles")
        .iter()
        .filter_map(|(key, node)| Some((key.text()?.to_owned(), At { value: permits(node), span: key.span })))
        .collect();
    let sections = Sections {
        machine: Machine::default(),
        waiting: parser.waiting(book.get("defaults")),
        keep_delivered: book.get("defaults").and_then(|node| duration_at(node, "keep_delivered")),
        retry_budget: book.get("defaults").and_then(retry_budget),
        defaults,
        throttles,
        dependencies: parser.dependencies(section("dependencies")),
        secrets: parser.secrets(section("secrets")),
        sources: parser.sources(section("sources")),
        access: book.get("access").map(BookParser::access).unwrap_or_default(),
        archive: book.get("archive").and_then(|node| parser.archive(node)),
        event_types: services::event_types(section("event_types")),
        services: parser.services(section("services")),
        alerts: book.get("alerts").map(|node| parser.alerts(node)).unwrap_or_default(),
        receivers: parser.receivers(section("receivers")),
        dapr: book.get("dapr").map(dapr_file).unwrap_or_default(),
        allow: book.get("allow").map(allow_rows).unwrap_or_default(),
        policies: guards.policies,
        breakers: guards.breakers,
        timeouts: guards.timeouts,
    };
    alerting::check_levels(&sections, problems);
    sections
}

struct BookParser<'a> {
    guards: &'a GuardSections,
    connectors: &'a Connectors,
    problems: &'a mut Problems,
    patterns: usize,
}

fn permits(node: &YamlNode) -> Permits {
    Permits {
        in_flight: count_at(node, "in_flight"),
        rate: rate_at(node, "rate"),
        ramp: duration_at(node, "ramp"),
        rate_growth: node.get("rate_growth").and_then(|n| at(n, |text| text::parse_share(text).ok())),
        rate_memory: duration_at(node, "rate_memory"),
    }
}

/// A share alone, or a share and a minimum.
fn retry_budget(node: &YamlNode) -> Option<At<BudgetSettings>> {
    let stated = node.get("retry_budget")?;
    let share = |node: &YamlNode| at(node, |text| text::parse_share(text).ok());
    let usual = BudgetSettings::with_share(share(stated.get("share").unwrap_or(stated))?.value);
    let at_least = rate_at(stated, "at_least").map_or(usual.at_least, |at| at.value);
    Some(At { value: BudgetSettings { at_least, ..usual }, span: stated.span })
}

fn dapr_file(node: &YamlNode) -> DaprFile {
    DaprFile {
        name: text_of(node, "name"),
        namespace: text_of(node, "namespace"),
        scopes: node.get("scopes").map(texts).unwrap_or_default(),
    }
}

fn allow_rows(node: &YamlNode) -> Vec<Allow> {
    let row =
        |node: &YamlNode| Some(Allow { lint: text_at(node, "lint")?, because: text_of(node, "because")? });
    node.items().iter().filter_map(row).collect()
}

/// A scalar with its position; `None` if it cannot be read.
pub fn at<T>(node: &YamlNode, read: impl FnOnce(&str) -> Option<T>) -> Option<At<T>> {
    Some(At { value: read(node.text()?)?, span: node.span })
}

pub(super) fn duration_at(node: &YamlNode, key: &str) -> Option<At<Duration>> {
    at(node.get(key)?, |text| text::parse_duration(text).ok())
}

#[must_use]
pub fn duration_of(node: &YamlNode, key: &str) -> Option<Duration> {
    duration_at(node, key).map(|at| at.value)
}

pub(super) fn count_at<T: std::str::FromStr>(node: &YamlNode, key: &str) -> Option<At<T>> {
    Some(At { value: number_of(node, key)?, span: node.get(key)?.span })
}

#[must_use]
pub fn number_of<T: std::str::FromStr>(node: &YamlNode, key: &str) -> Option<T> {
    node.get(key)?.text()?.parse().ok()
}

pub fn text_of(node: &YamlNode, key: &str) -> Option<String> {
    node.get(key)?.text().map(str::to_owned)
}

pub(super) fn texts(node: &YamlNode) -> Vec<String> {
    node.items().iter().filter_map(|node| node.text().map(str::to_owned)).collect()
}

pub(super) fn text_at(node: &YamlNode, key: &str) -> Option<At<String>> {
    at(node.get(key)?, |text| Some(text.to_owned()))
}

pub(super) fn rate_at(node: &YamlNode, key: &str) -> Option<At<text::Rate>> {
    at(node.get(key)?, |text| text::parse_rate(text).ok())
}

pub(super) fn word_at<T: Keyword>(node: &YamlNode, key: &str) -> Option<At<T>> {
    at(node.get(key)?, T::from_word)
}

fn name_at<Of>(node: &YamlNode, key: &str) -> Option<At<Name<Of>>> {
    at(node.get(key)?, |text| Name::new(text).ok())
}

/// Whether every scalar below could be read; only then is a missing part a mistake.
pub(crate) fn is_whole(node: &YamlNode) -> bool {
    match &node.value {
        YamlValue::Refused => false,
        YamlValue::Null | YamlValue::Scalar { .. } => true,
        YamlValue::Map(entries) => entries.iter().all(|(key, value)| is_whole(key) && is_whole(value)),
        YamlValue::List(items) => items.iter().all(is_whole),
    }
}

/// Reports keys that another key excludes.
pub(super) fn excluded(node: &YamlNode, keys: &[&str], because: &str, problems: &mut Problems) {
    for (key, _) in node.entries() {
        if let Some(text) = key.text().filter(|text| keys.contains(text)) {
            let message = format!("`{text}` is not allowed here: {because}");
            problems.error("excluded-key", key.span, message, format!("remove `{text}`"));
        }
    }
}

#[must_use]
pub fn key_span(node: &YamlNode, key: &str) -> BookSpan {
    node.get(key).map_or(node.span, |value| value.span)
}

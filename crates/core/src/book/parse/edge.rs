//! Parses targets, sources, secrets and the archive.

use std::collections::BTreeMap;

use super::layer::facts;
use super::{BookParser, duration_at, duration_of, excluded, name_at, rate_at, text_of};
use crate::book::connectors::Edge;
use crate::book::model::{
    AccessEntry, ArchiveEntry, At, Jwt, JwtKeys, SecretEntry, SourceEntry, TargetEntry,
};
use crate::book::pattern::EventPattern;
use crate::book::source_template::SourceTemplate;
use crate::book::yaml::YamlNode;
use crate::limits;

impl BookParser<'_> {
    pub(super) fn target(&mut self, node: &YamlNode, owner: &YamlNode) -> Option<TargetEntry> {
        let endpoint = self.connectors.read(Edge::Target, node, node.span, self.problems)?;
        let states_whole = |timeout: &&YamlNode| {
            timeout.text().is_some() || ["whole", "first"].iter().any(|key| timeout.get(key).is_some())
        };
        let limit = endpoint.profile.run.as_ref().and_then(|run| run.time_limit.as_ref());
        if let (Some(_), Some(timeout)) = (limit, owner.get("timeout").filter(states_whole)) {
            let message = "the target's `time_limit` already limits a run";
            let help = "keep one of them; a row may still set its own `timeout`";
            self.problems.error("said-twice", timeout.span, message, help);
        }
        Some(TargetEntry { span: node.span, endpoint })
    }

    pub(super) fn sources(&mut self, section: &[(YamlNode, YamlNode)]) -> BTreeMap<String, At<SourceEntry>> {
        if let Some((one_too_many, _)) = section.get(limits::SOURCES_MAX) {
            let message = format!("more than {} sources", limits::SOURCES_MAX);
            self.problems.error("too-many-sources", one_too_many.span, message, "split the book");
            return BTreeMap::new();
        }
        let entries = section.iter().filter_map(|(key, node)| {
            let endpoint = self.connectors.read(Edge::Source, node, key.span, self.problems)?;
            self.check_event_type(node);
            if endpoint.connector.dependency.is_none() {
                let reason = "webhooks and schedules call no dependency and have no breaker; remove it";
                excluded(node, &["depends_on"], reason, self.problems);
            }
            let source = SourceEntry {
                endpoint,
                event_type: text_of(node, "type"),
                subject: text_of(node, "subject"),
                session: text_of(node, "session"),
                id: text_of(node, "id"),
                depends_on: name_at(node, "depends_on"),
                facts: node.get("facts").map(facts).unwrap_or_default(),
            };
            Some((key.text()?.to_owned(), At { value: source, span: key.span }))
        });
        entries.collect()
    }

    /// Reports a `type` that cannot be an event type.
    fn check_event_type(&mut self, node: &YamlNode) {
        let Some(value) = node.get("type") else { return };
        let Some(template) = value.text().and_then(|text| SourceTemplate::parse(text).ok()) else { return };
        let fits = |text: &str| {
            text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':' | '/' | '.'))
        };
        let wrong = match template.literal() {
            Some(text) => EventPattern::parse(text).map_or_else(
                |error| Some(error.to_string()),
                |pattern| {
                    (!pattern.is_exact()).then(|| format!("`{text}` is a pattern; expected one event type"))
                },
            ),
            None if !template.texts().all(fits) => {
                Some(format!("`{template}` does not produce an event type"))
            }
            None => None,
        };
        if let Some(message) = wrong {
            self.problems.error(
                "bad-event-type",
                value.span,
                message,
                "such as report.daily or \"github.{data.action}\"",
            );
        }
    }

    pub(super) fn access(node: &YamlNode) -> AccessEntry {
        let jwt = node.get("jwt").and_then(|node| {
            let keys = text_of(node, "jwks")
                .map(JwtKeys::Jwks)
                .or_else(|| text_of(node, "secret").map(JwtKeys::Secret))?;
            Some(Jwt {
                keys,
                issuer: text_of(node, "issuer")?,
                audience: text_of(node, "audience")?,
                role_claim: text_of(node, "role_claim").unwrap_or_else(|| "role".to_owned()),
            })
        });
        let jwt_at = node.get("jwt").map(|node| node.span);
        AccessEntry { rate: rate_at(node, "rate").map(|at| at.value), jwt, jwt_at }
    }

    pub(super) fn archive(&mut self, node: &YamlNode) -> Option<ArchiveEntry> {
        Some(ArchiveEntry {
            span: node.span,
            endpoint: self.connectors.read(Edge::Archive, node, node.span, self.problems)?,
            timeout: duration_of(node, "timeout"),
            breaker: name_at(node, "breaker"),
            retention: duration_of(node, "retention"),
        })
    }

    pub(super) fn secrets(&mut self, section: &[(YamlNode, YamlNode)]) -> BTreeMap<String, At<SecretEntry>> {
        let entries = section.iter().filter_map(|(key, node)| {
            let secret = SecretEntry {
                endpoint: self.connectors.read(Edge::Secret, node, key.span, self.problems)?,
                cached: duration_at(node, "cached"),
                kept: duration_at(node, "kept"),
            };
            Some((key.text()?.to_owned(), At { value: secret, span: key.span }))
        });
        entries.collect()
    }
}

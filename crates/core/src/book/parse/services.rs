//! Parses services with their rows and channels, and dependencies.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{BookParser, at, count_at, name_at, permits, retry_budget, text_at, text_of, word_at};
use crate::book::event_condition;
use crate::book::event_schema::EventSchema;
use crate::book::model::{
    At, ChannelEntry, DaprTarget, DependencyEntry, Direction, EventRow, EventTypeEntry, ServiceEntry,
    ViolationAction, WaitingEntry,
};
use crate::book::pattern::{EventPattern, Relation};
use crate::book::yaml::{YamlNode, YamlValue};
use crate::ids::{ChannelName, DependencyName, ServiceName};
use crate::limits;
use crate::policy::catalog::DependencyKind;
use crate::text;

impl BookParser<'_> {
    pub(super) fn services(&mut self, section: &[(YamlNode, YamlNode)]) -> Vec<ServiceEntry> {
        section.iter().filter_map(|(key, node)| self.service(key, node)).collect()
    }

    fn service(&mut self, key: &YamlNode, node: &YamlNode) -> Option<ServiceEntry> {
        let rows = self.rows(node);
        let channels = node.get("channels").map(YamlNode::entries).unwrap_or_default();
        let channels: Vec<_> = channels.iter().filter_map(|(key, node)| self.channel(key, node)).collect();
        let takes_none = node
            .get("events")
            .is_none_or(|events| matches!(&events.value, YamlValue::List(items) if items.is_empty()));
        if takes_none && channels.is_empty() {
            let help = "add `events:` with at least one row, such as `- { type: todo.task.created }`";
            self.problems.error("no-events", key.span, "this service has no events", help);
        }
        Some(ServiceEntry {
            name: ServiceName::new(key.text()?).ok()?,
            span: key.span,
            title: text_of(node, "title"),
            target: self.target(node.get("target")?, node)?,
            depends_on: name_at(node, "depends_on"),
            order: word_at(node, "order"),
            waiting: self.waiting(Some(node)),
            rows,
            channels,
            layer: self.layer(node),
        })
    }

    /// From a service or the defaults.
    pub(super) fn waiting(&mut self, owner: Option<&YamlNode>) -> WaitingEntry {
        let Some(node) = owner.and_then(|owner| owner.get("waiting")) else { return WaitingEntry::default() };
        let size_bytes = node.get("size").and_then(|n| at(n, |text| text::parse_size(text).ok()));
        if let Some(At { value: 0, span }) = size_bytes {
            let help = "set a size such as 1GiB; `when_full` sets what happens beyond it";
            self.problems.error("out-of-range", span, "the size must be greater than zero", help);
        }
        WaitingEntry {
            events: count_at(node, "events"),
            size_bytes,
            per_session: count_at(node, "per_session"),
            when_full: word_at(node, "when_full"),
        }
    }

    fn channel(&mut self, key: &YamlNode, node: &YamlNode) -> Option<ChannelEntry> {
        Some(ChannelEntry {
            name: ChannelName::new(key.text()?).ok()?,
            span: key.span,
            title: text_of(node, "title"),
            target: node.get("target").and_then(|target| self.target(target, node)),
            depends_on: name_at(node, "depends_on"),
            rows: self.rows(node),
            layer: self.layer(node),
        })
    }

    fn rows(&mut self, node: &YamlNode) -> Vec<Arc<EventRow>> {
        let items = node.get("events").map(YamlNode::items).unwrap_or_default();
        let rows: Vec<_> = items.iter().filter_map(|item| self.row(item).map(Arc::new)).collect();
        self.refuse_ambiguity(&rows);
        rows
    }

    fn row(&mut self, node: &YamlNode) -> Option<EventRow> {
        let read = |node: &YamlNode| at(node, |text| EventPattern::parse(text).ok());
        if node.text().is_some() {
            return Some(EventRow::plain(node.span, read(node)?));
        }
        Some(EventRow {
            span: node.span,
            pattern: read(node.get("type")?)?,
            title: text_of(node, "title"),
            subscription: text_of(node, "subscription"),
            condition: node.get("where").and_then(|node| at(node, |text| event_condition::parse(text).ok())),
            depends_on: name_at(node, "depends_on"),
            layer: self.layer(node),
        })
    }

    /// Reports rows that match the same events while neither is more specific.
    fn refuse_ambiguity(&mut self, rows: &[Arc<EventRow>]) {
        let mut exact: BTreeMap<&str, &At<EventPattern>> = BTreeMap::new();
        let mut wild: Vec<&At<EventPattern>> = Vec::new();
        for row in rows {
            let pattern = &row.pattern;
            if pattern.value.is_exact() {
                if let Some(first) = exact.insert(pattern.value.as_str(), pattern) {
                    self.claimed_twice(first, pattern, "matches the same events as");
                }
                continue;
            }
            if wild.len() >= limits::WILDCARDS_MAX {
                let message = format!("more than {} patterns with wildcards", limits::WILDCARDS_MAX);
                self.problems.error("too-many-wildcards", pattern.span, message, "name the types instead");
                return;
            }
            for earlier in &wild {
                match pattern.value.relation(&earlier.value) {
                    Relation::Same => self.claimed_twice(earlier, pattern, "matches the same events as"),
                    Relation::Ambiguous => {
                        self.claimed_twice(earlier, pattern, "matches some of the same events as");
                    }
                    Relation::Narrower | Relation::Wider | Relation::Apart => {}
                }
            }
            wild.push(pattern);
        }
    }

    fn claimed_twice(&mut self, first: &At<EventPattern>, second: &At<EventPattern>, how: &str) {
        let (line, first) = (first.span.position.line, &first.value);
        let message =
            format!("`{}` {how} `{first}` on line {line}, and neither is more specific", second.value);
        let help = "narrow one pattern, or list the shared types in their own row and drop one pattern";
        self.problems.error("ambiguous-pattern", second.span, message, help);
    }

    pub(super) fn dependencies(
        &mut self,
        section: &[(YamlNode, YamlNode)],
    ) -> BTreeMap<DependencyName, DependencyEntry> {
        let entries = section.iter().filter_map(|(key, node)| {
            let name = DependencyName::new(key.text()?).ok()?;
            let entry = DependencyEntry {
                name: name.clone(),
                span: key.span,
                kind: node.get("kind").and_then(YamlNode::text).and_then(DependencyKind::from_word)?,
                throttle: text_at(node, "throttle"),
                permits: permits(node),
                retry_budget: retry_budget(node),
                dapr: node.get("dapr").and_then(dapr_target),
                layer: self.layer(node),
            };
            Some((name, entry))
        });
        entries.collect()
    }
}

pub(super) fn event_types(section: &[(YamlNode, YamlNode)]) -> BTreeMap<String, EventTypeEntry> {
    let entries = section.iter().filter_map(|(key, node)| {
        let schema = EventSchema::parse(node.get("schema")?.to_json()?).ok()?;
        let on_violation = word_at(node, "on_violation").map_or(ViolationAction::Refuse, |at| at.value);
        Some((key.text()?.to_owned(), EventTypeEntry { span: key.span, schema, on_violation }))
    });
    entries.collect()
}

fn dapr_target(node: &YamlNode) -> Option<At<DaprTarget>> {
    let direction = word_at(node, "direction").map_or(Direction::Outbound, |at| at.value);
    let component = text_of(node, "component").map(|name| DaprTarget::Component { name, direction });
    let value = component
        .or_else(|| text_of(node, "app").map(DaprTarget::App))
        .or_else(|| text_of(node, "actor").map(DaprTarget::Actor))?;
    Some(At { value, span: node.span })
}

//! Parses the keys of a rule, which every level may set.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::{BookParser, allow_rows, at, count_at, duration_at, rate_at, text_at, text_of, word_at};
use crate::book::keywords::Keyword;
use crate::book::model::{
    At, ConsumerPattern, DeadLetter, DeclaredFacts, Idempotency, IdempotentBy, Layer, ReactionName,
};
use crate::book::validate::{parse_failure_kind, parse_statuses};
use crate::book::yaml::YamlNode;
use crate::event::copy_rule::CopyKey;
use crate::ids::{BreakerName, PolicyName};
use crate::letters::name_template::NameTemplate;
use crate::limits;
use crate::policy::category::{Category, FailureCode};
use crate::policy::rule::{FailureMatch, HeaderMatch, Matcher, Override, OverrideMeaning};
use crate::schedule::Cron;

impl BookParser<'_> {
    pub(super) fn layer(&mut self, node: &YamlNode) -> Layer {
        Layer {
            reactions: self.reactions(node),
            classify: self.classify(node),
            timeout: node
                .get("timeout")
                .map(|value| At { value: self.guards.timeout(value, self.problems), span: value.span }),
            breaker: node.get("breaker").and_then(|n| {
                at(n, |text| match text {
                    "none" => Some(None),
                    name => BreakerName::new(name).ok().map(Some),
                })
            }),
            when_open: word_at(node, "when_open"),
            hold_max: duration_at(node, "hold_max"),
            deadline: duration_at(node, "deadline"),
            fatal_after: duration_at(node, "fatal_after"),
            idempotency: node.get("idempotency").map(idempotency).unwrap_or_default(),
            dead_letter: node.get("dead_letter").map(dead_letter).unwrap_or_default(),
            criticality: word_at(node, "criticality"),
            data_loss: word_at(node, "data_loss"),
            consumer_group: text_at(node, "consumer_group"),
            alerts: node.get("alerts").map(|node| self.alerts(node)).unwrap_or_default(),
            facts: node.get("facts").map(facts).unwrap_or_default(),
            allow: node.get("allow").map(allow_rows).unwrap_or_default(),
        }
    }

    fn reactions(&mut self, node: &YamlNode) -> Vec<(FailureMatch, At<ReactionName>)> {
        let mut reactions: Vec<(FailureMatch, At<ReactionName>)> = Vec::new();
        for (key, value) in node.get("on_failure").map(YamlNode::entries).unwrap_or_default() {
            let kind = key.text().and_then(parse_failure_kind);
            if let (Some(kind), Some(reaction)) = (kind, at(value, reaction_name)) {
                if reactions.iter().any(|(known, _)| *known == kind) {
                    let message = "duplicate failure";
                    self.problems.error("said-twice", key.span, message, "keep one of them");
                }
                reactions.push((kind, reaction));
            }
        }
        if let Some(retry) = node.get("retry").and_then(|value| at(value, reaction_name)) {
            let transient = FailureMatch::Category(Category::Transient);
            if reactions.iter().any(|(kind, _)| *kind == transient) {
                let help = "keep one of them: `retry: X` is short for `on_failure: { transient: X }`";
                self.problems.error("said-twice", retry.span, "`on_failure` sets `transient` too", help);
            }
            reactions.insert(0, (transient, retry));
        }
        // Narrower ranges win.
        reactions.sort_by_key(|(kind, _)| match kind {
            FailureMatch::Status(range) => range.last - range.first,
            FailureMatch::Category(_) => 0,
        });
        reactions
    }

    fn classify(&mut self, node: &YamlNode) -> Vec<At<Override>> {
        let Some(list) = node.get("classify") else { return Vec::new() };
        if list.items().len() > limits::OVERRIDES_MAX {
            let message =
                format!("{} overrides; the maximum is {}", list.items().len(), limits::OVERRIDES_MAX);
            self.problems.error(
                "too-many-overrides",
                list.span,
                message,
                "combine statuses into ranges and messages into one expression",
            );
            return Vec::new();
        }
        let rows = list.items().iter().filter_map(|row| {
            let looks_at = ["status", "code", "header", "message"];
            if looks_at.iter().all(|key| row.get(key).is_none()) {
                let help = "add `status`, `code`, `header` or `message`";
                self.problems.error("missing-key", row.span, "this override matches nothing", help);
            }
            Some(At { value: self.classify_row(row)?, span: row.span })
        });
        rows.collect()
    }

    fn classify_row(&mut self, node: &YamlNode) -> Option<Override> {
        let statuses = node.get("status").map(|value| match value.items() {
            [] => value.text().and_then(parse_statuses).into_iter().collect(),
            items => items.iter().filter_map(|item| item.text().and_then(parse_statuses)).collect(),
        });
        let header = text_of(node, "header").map(|text| match text.split_once(':') {
            Some((name, value)) => {
                HeaderMatch { name: name.trim().to_owned(), value: Some(value.trim().to_owned()) }
            }
            None => HeaderMatch { name: text.trim().to_owned(), value: None },
        });
        let message = match node.get("message") {
            Some(node) => Some(self.pattern(node)?),
            None => None,
        };
        let meaning = match text_of(node, "as")?.as_str() {
            "delivered" => OverrideMeaning::Delivered,
            word => OverrideMeaning::Failure(Category::from_word(word)?),
        };
        Some(Override {
            when: Arc::new(Matcher {
                statuses: statuses.unwrap_or_default(),
                code: text_of(node, "code").map(|text| FailureCode::reported(&text)),
                header,
                message,
            }),
            meaning,
            code: text_of(node, "give_code").map(|text| FailureCode::reported(&text)),
            because: text_of(node, "because").map(Arc::from),
            position: node.span.position,
        })
    }

    /// Reports expressions that are invalid, too large or too many.
    fn pattern(&mut self, node: &YamlNode) -> Option<Regex> {
        let text = node.text()?;
        self.patterns += 1;
        if self.patterns > limits::PATTERNS_MAX {
            if self.patterns == limits::PATTERNS_MAX + 1 {
                let message = format!("more than {} regular expressions", limits::PATTERNS_MAX);
                self.problems.error(
                    "too-many-patterns",
                    node.span,
                    message,
                    "combine them, or match codes and statuses",
                );
            }
            return None;
        }
        if text.len() > limits::PATTERN_BYTES_MAX {
            let message = format!("regular expression is too long: {} bytes", text.len());
            let help = format!("the maximum is {} bytes", limits::PATTERN_BYTES_MAX);
            self.problems.error("bad-regex", node.span, message, help);
            return None;
        }
        match RegexBuilder::new(text).size_limit(limits::PATTERN_MEMORY_MAX).nest_limit(50).build() {
            Ok(regex) => Some(regex),
            Err(error) => {
                // The error contains a drawing; its last line is enough.
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
                let message = format!("invalid regular expression: {reason}");
                self.problems.error("bad-regex", node.span, message, "");
                None
            }
        }
    }
}

fn reaction_name(text: &str) -> Option<ReactionName> {
    match text {
        "dead-letter" => Some(ReactionName::DeadLetter),
        "pause" => Some(ReactionName::Pause),
        name => PolicyName::new(name).ok().map(ReactionName::Policy),
    }
}

fn idempotency(node: &YamlNode) -> Idempotency {
    Idempotency {
        by: word_at(node, "by"),
        store: text_at(node, "store"),
        key: node.get("key").and_then(|n| at(n, |text| CopyKey::parse(text).ok().map(Arc::new))),
        ttl: duration_at(node, "ttl"),
    }
}

fn dead_letter(node: &YamlNode) -> DeadLetter {
    let categories = node.get("reprocess_categories").map(|list| At {
        value: list.items().iter().filter_map(|n| n.text().and_then(Category::from_word)).collect(),
        span: list.span,
    });
    DeadLetter {
        name: node.get("name").and_then(|n| at(n, |text| NameTemplate::parse(text).ok())),
        queue: text_at(node, "queue"),
        stage: text_at(node, "stage"),
        form: word_at(node, "form"),
        retention: duration_at(node, "retention"),
        alert: rate_at(node, "alert"),
        reprocess: word_at(node, "reprocess"),
        categories,
        reprocess_max: count_at(node, "reprocess_max"),
        reprocess_cron: node.get("reprocess_cron").and_then(|n| at(n, |text| Cron::parse(text).ok())),
    }
}

pub(super) fn facts(node: &YamlNode) -> DeclaredFacts {
    let uses = node.get("uses").map(YamlNode::items).unwrap_or_default();
    DeclaredFacts {
        rate: rate_at(node, "rate"),
        p99: duration_at(node, "p99"),
        sla: duration_at(node, "sla"),
        lease: duration_at(node, "lease"),
        heartbeat: duration_at(node, "heartbeat"),
        redelivery: duration_at(node, "redelivery"),
        poll_limit: duration_at(node, "poll_limit"),
        callers: count_at(node, "callers"),
        caller_timeout: duration_at(node, "caller_timeout"),
        instances: count_at(node, "instances"),
        rate_limit_window: duration_at(node, "rate_limit_window"),
        broker_attempts: count_at(node, "broker_attempts"),
        uses: uses.iter().filter_map(|n| at(n, |text| crate::ids::Name::new(text).ok())).collect(),
        idempotent_by: node.get("idempotent_by").and_then(idempotent_by),
    }
}

fn idempotent_by(node: &YamlNode) -> Option<At<IdempotentBy>> {
    let pattern = ConsumerPattern::from_word(node.get("pattern").unwrap_or(node).text()?)?;
    Some(At { value: IdempotentBy { pattern, store: text_of(node, "store") }, span: node.span })
}

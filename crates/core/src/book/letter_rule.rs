//! The dead-letter settings of a row.

use std::collections::BTreeMap;
use std::time::Duration;

use super::model::{DeliveryOrder, LetterForm, Reprocess};
use super::resolve::Resolved;
use super::{RowRules, RuleBook};
use crate::ids::{ChannelName, DependencyName, ServiceName};
use crate::letters::name_template::{NameParts, NameTemplate};
use crate::policy::category::Category;
use crate::schedule::Cron;

#[derive(Clone, Debug, PartialEq)]
pub struct LetterRule {
    service: ServiceName,
    channel: Option<ChannelName>,
    template: NameTemplate,
    queue: Option<String>,
    stage: Option<String>,
    /// Defaults to the service.
    pub consumer_group: String,
    pub form: LetterForm,
    pub retention: Duration,
    pub reprocess: Reprocess,
    pub categories: Vec<Category>,
    /// Automatic replays per dead letter.
    pub reprocess_max: u32,
    /// Beside replays when a breaker closes; `None` without automatic replay.
    pub reprocess_cron: Option<Cron>,
    /// Whether sessions keep their order, and whether a dead letter blocks its session.
    pub order: DeliveryOrder,
}

impl LetterRule {
    pub(super) fn of(resolved: &Resolved<'_>) -> Self {
        let letter = &resolved.dead_letter;
        Self {
            service: resolved.service.name.clone(),
            channel: resolved.channel.map(|channel| channel.name.clone()),
            template: letter.template.value.clone(),
            queue: letter.queue.clone(),
            stage: letter.stage.clone(),
            consumer_group: resolved.consumer_group.value.clone(),
            form: letter.form.value,
            retention: letter.retention.value,
            reprocess: letter.reprocess.value,
            categories: letter.categories.clone(),
            reprocess_max: letter.reprocess_max.value,
            reprocess_cron: letter
                .reprocess_cron
                .as_ref()
                .filter(|_| letter.reprocess.value != Reprocess::Manual)
                .map(|known| known.value.clone()),
            order: resolved.order.value,
        }
    }

    /// The dead-letter queue of this event type; the raw template if a part is missing.
    #[must_use]
    pub fn name(&self, event_type: &str) -> String {
        let parts = NameParts {
            service: &self.service,
            channel: self.channel.as_ref(),
            queue: self.queue.as_deref(),
            stage: self.stage.as_deref(),
            event: Some(event_type),
        };
        self.template.render(&parts).unwrap_or_else(|_| self.template.to_string())
    }

    /// Whether dead letters of this category are replayed automatically.
    #[must_use]
    pub fn comes_back(&self, category: Category) -> bool {
        match self.reprocess {
            Reprocess::Manual => false,
            Reprocess::Automatic => true,
            Reprocess::Filtered => self.categories.contains(&category),
        }
    }
}

impl RuleBook {
    /// `None` without a subscription to the event type.
    #[must_use]
    pub fn letter_rule(&self, service: &str, channel: Option<&str>, event_type: &str) -> Option<&LetterRule> {
        Some(&self.claim(service, channel, event_type)?.letter)
    }

    /// Whether dead letters are replayed automatically when this dependency recovers.
    #[must_use]
    pub fn reprocesses(&self, dependency: &DependencyName) -> bool {
        self.claims()
            .any(|claim| claim.rule.dependency == *dependency && claim.letter.reprocess != Reprocess::Manual)
    }

    /// The distinct times of automatic replays.
    #[must_use]
    pub fn reprocess_crons(&self) -> BTreeMap<&str, &Cron> {
        let crons = self.claims().filter_map(|claim| claim.letter.reprocess_cron.as_ref());
        crons.map(|cron| (cron.as_str(), cron)).collect()
    }

    fn claims(&self) -> impl Iterator<Item = &RowRules> {
        self.services.values().flat_map(|service| {
            let rows = std::iter::once(&service.own).chain(service.channels.values());
            rows.flat_map(super::Rows::claims)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::read;

    #[test]
    fn a_letter_is_named_after_its_own_event() {
        let name = |template: &str, more: &str| {
            let letter = format!("dead_letter: {{ name: \"{template}\"{more} }}");
            let text = format!(
                "version: 1\nservices: {{ s: {{ target: {{ log: stdout }}, events: [\"a.*\"], {letter} }} }}\n"
            );
            let reading = read(&text, built_in());
            let book = reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems));
            book.letter_rule("s", None, "a.b").expect("it is wanted").name("a.b")
        };
        #[rustfmt::skip]
        let cases = [
            ("_{service}.deadletter[.{channel}]", "",                               "_s.deadletter"),
            ("{queue}-dlq-{stage}",               ", queue: orders, stage: prod",   "orders-dlq-prod"),
            ("{queue}:dlq",                       ", queue: orders",                "orders:dlq"),
            ("{service}/{event}",                 "",                               "s/a.b"),
        ];
        for (template, more, expected) in cases {
            assert_eq!(name(template, more), expected, "{template}");
        }
    }
}

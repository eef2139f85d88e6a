//! Settings of a book that Dapr cannot express.

use super::Remarks;
use redrive_core::book::model::{
    DeadLetter, Idempotency, Layer, Permits, ReactionName, Sections, WaitingEntry,
};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;

const NO_MEMORY: &str = "Dapr does not deduplicate deliveries";
const NO_DEAD_LETTERS: &str = "Dapr has no dead letters here: a permanent failure is an error to the caller, or \
                               goes to the dead-letter topic of the subscription";

pub(super) fn layers(sections: &Sections) -> Vec<(String, &Layer)> {
    let mut all = vec![("defaults".to_owned(), &sections.defaults)];
    for entry in sections.dependencies.values() {
        all.push((format!("dependency {}", entry.name), &entry.layer));
    }
    for service in &sections.services {
        all.push((format!("service {}", service.name), &service.layer));
        for channel in &service.channels {
            all.push((format!("channel {}.{}", service.name, channel.name), &channel.layer));
        }
    }
    for (service, _, row) in sections.rows() {
        all.push((format!("{} {}", service.name, row.pattern.value), &row.layer));
    }
    all
}

pub(super) fn of_book(sections: &Sections, losses: &mut Remarks) {
    let layers = layers(sections);
    for (label, layer) in &layers {
        of_layer(label, layer, losses);
    }
    for entry in sections.dependencies.values() {
        if entry.throttle.is_some() || entry.permits != Permits::default() {
            losses.add(
                format!("dependency {}", entry.name),
                "Dapr has no throttle: neither concurrency nor rate is limited",
            );
        }
    }
    let rows = sections.rows().count();
    if rows > 0 {
        let what =
            if rows == 1 { "1 row of a service".to_owned() } else { format!("{rows} rows of services") };
        let why = "Dapr has no event types: only dependencies with `dapr:` are targets";
        losses.add(what, why);
        // Rows always have both; explicit settings were reported above.
        if layers.iter().all(|(_, layer)| layer.idempotency == Idempotency::default()) {
            losses.add("idempotency", NO_MEMORY);
        }
        if layers.iter().all(|(_, layer)| layer.dead_letter == DeadLetter::default()) {
            losses.add("dead letters", NO_DEAD_LETTERS);
        }
    }
    let of_defaults = [("defaults".to_owned(), &sections.waiting)].into_iter();
    let of_services = sections.services.iter().map(|s| (format!("service {}", s.name), &s.waiting));
    for (label, _) in
        of_defaults.chain(of_services).filter(|(_, waiting)| **waiting != WaitingEntry::default())
    {
        losses.add(label, "`waiting`: Dapr stores no waiting events");
    }
    if sections.keep_delivered.is_some() {
        losses.add("defaults", "`keep_delivered`: Dapr stores no events");
    }
    let budgets = sections.dependencies.values().filter(|entry| entry.retry_budget.is_some());
    let labels = budgets.map(|entry| format!("dependency {}", entry.name));
    for label in labels.chain(sections.retry_budget.as_ref().map(|_| "defaults".to_owned())) {
        losses.add(label, "`retry_budget`: Dapr limits the retries of each call, not of all calls together");
    }
    if !sections.alerts.is_empty() {
        losses.add("alerts", "Dapr has no alerts");
    }
}

fn of_layer(label: &str, layer: &Layer, losses: &mut Remarks) {
    let mut lose = |why: &str| losses.add(label, why);
    if layer.deadline.is_some() {
        lose("`deadline`: Dapr limits single attempts, not all of them together");
    }
    if layer.fatal_after.is_some() {
        lose("`fatal_after`: Dapr does not distinguish long connection failures");
    }
    if layer.when_open.is_some() || layer.hold_max.is_some() {
        lose("`when_open` and `hold_max`: while a breaker is open Dapr fails calls at once");
    }
    if layer.idempotency != Idempotency::default() {
        lose(&format!("`idempotency`: {NO_MEMORY}"));
    }
    if layer.dead_letter != DeadLetter::default() {
        lose(&format!("`dead_letter`: {NO_DEAD_LETTERS}"));
    }
    if !layer.classify.is_empty() {
        lose("`classify`: Dapr treats every failure alike, except for the statuses in `matching`");
    }
    if !layer.alerts.is_empty() {
        lose("`alerts`: Dapr has none");
    }
    if reacts_differently(layer) {
        lose("`on_failure`: Dapr has one policy for all failures of a target");
    }
}

fn reacts_differently(layer: &Layer) -> bool {
    let transient = layer
        .reactions
        .iter()
        .find(|(kind, _)| *kind == FailureMatch::Category(Category::Transient))
        .map(|(_, at)| &at.value);
    layer.reactions.iter().any(|(kind, at)| match (kind, &at.value) {
        (_, ReactionName::Pause) => true,
        (FailureMatch::Status(_) | FailureMatch::Category(_), ReactionName::Policy(_)) => {
            transient != Some(&at.value)
        }
        (FailureMatch::Status(_), ReactionName::DeadLetter) => false,
        (FailureMatch::Category(category), ReactionName::DeadLetter) => match category {
            Category::Permanent | Category::Invalid | Category::Fatal => false,
            Category::Transient | Category::RateLimited | Category::Unknown | Category::Internal => true,
        },
    })
}

//! From what the store knows of letters and replays to what is shown.

use std::collections::BTreeMap;

use redrive_core::book::RuleBook;
use redrive_core::book::model::LetterForm;
use redrive_core::engine::QueueName;
use redrive_core::ids::ChannelName;
use redrive_core::letters::envelope::RedisLetter;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_node::letter::envelope;
use redrive_node::store::letter::{
    GroupView, HeldSession, LetterFilter, LetterPage, LetterQuery, LetterView, Survey, TREND_SPAN,
};
use redrive_node::store::{DeliveryView, Reader, StoreError};
use serde_json::Value;

use crate::letters::filter::cursor;
use crate::letters::json::{
    FailureGroupJson, GroupTrend, HeldSessionJson, LetterFormat, LetterJson, LettersResponse, QueueCount,
    TypeCount,
};

/// Causes of a survey that are told with a message.
const MESSAGES_MAX: usize = 20;

fn service_of(queue: &QueueName) -> (String, Option<String>) {
    (queue.service.to_string(), queue.channel.as_ref().map(ToString::to_string))
}

pub(crate) fn letter(view: &LetterView) -> LetterJson {
    let LetterView { delivery, death, .. } = view;
    let (service, channel) = service_of(&delivery.queue);
    LetterJson {
        id: delivery.id.to_string(),
        service,
        channel,
        subscription: delivery.subscription.clone(),
        name: death.name.clone(),
        event_id: delivery.event_id.clone(),
        event_type: delivery.event_type.clone(),
        event_source: delivery.event_source.clone(),
        session: delivery.session.clone(),
        correlation_id: delivery.correlation_id.clone(),
        category: death.category.to_string(),
        failure_category: death.category.envelope_word().to_owned(),
        code: death.code.to_string(),
        failure_code: death.failure_code.to_string(),
        message: death.message.clone(),
        tier: death.tier.to_string(),
        fingerprint: death.fingerprint.to_string(),
        attempts: delivery.attempts,
        replays: view.replays,
        died_at: view.died_at,
        accepted_at: delivery.accepted_at,
        claimed_by: view.claimed_by.map(|replay| replay.0),
        holds: view.holds,
        imported_as: view.imported_as.clone(),
    }
}

pub(crate) fn letters(page: &LetterPage) -> LettersResponse {
    LettersResponse { dead_letters: page.letters.iter().map(letter).collect(), next: page.next.map(cursor) }
}

/// The form that the rule book has for a letter; the envelope if it does not know the letter's row.
pub(crate) fn form_by(book: &RuleBook, view: &LetterView) -> LetterFormat {
    let DeliveryView { queue, event_type, .. } = &view.delivery;
    let channel = queue.channel.as_ref().map(ChannelName::as_str);
    let rule = book.letter_rule(queue.service.as_str(), channel, event_type);
    match rule.map_or(LetterForm::Envelope, |rule| rule.form) {
        LetterForm::Envelope => LetterFormat::Envelope,
        LetterForm::Redis => LetterFormat::Redis,
    }
}

/// A letter for other systems.
pub(crate) fn written(view: &LetterView, form: LetterFormat) -> Value {
    let envelope = envelope(view);
    match form {
        LetterFormat::Envelope => serde_json::to_value(envelope),
        LetterFormat::Redis => serde_json::to_value(RedisLetter::from(&envelope)),
    }
    .expect("texts, numbers and JSON are JSON")
}

pub(crate) fn group(view: &GroupView) -> FailureGroupJson {
    FailureGroupJson {
        fingerprint: view.fingerprint.to_string(),
        count: view.count,
        poison: view.poison,
        first_seen: view.first_at,
        last_seen: view.last_at,
        category: view.category.to_string(),
        code: view.code.to_string(),
        message: view.sample.death.message.clone(),
        sample: view.sample.delivery.id.to_string(),
        services: view.queues.iter().map(|(queue, count)| queue_count(queue, *count)).collect(),
        event_types: view
            .event_types
            .iter()
            .map(|(event_type, count)| TypeCount { event_type: event_type.clone(), count: *count })
            .collect(),
        trend: GroupTrend { span_seconds: TREND_SPAN.as_secs(), counts: view.trend.clone() },
    }
}

pub(crate) fn queue_count(queue: &QueueName, count: u64) -> QueueCount {
    let (service, channel) = service_of(queue);
    QueueCount { service, channel, count }
}

pub(crate) fn held_session(held: &HeldSession) -> HeldSessionJson {
    let (service, channel) = service_of(&held.queue);
    HeldSessionJson {
        service,
        channel,
        session: held.session.clone(),
        letter: held.letter.to_string(),
        event_type: held.event_type.clone(),
        since: held.since,
        behind: held.behind,
    }
}

/// A message for each of the most frequent causes, so that people see what they are.
pub(crate) fn messages(
    reader: &dyn Reader,
    survey: &Survey,
) -> Result<BTreeMap<Fingerprint, String>, StoreError> {
    let mut causes: BTreeMap<Fingerprint, (u64, &QueueName)> = BTreeMap::new();
    for ((fingerprint, queue), count) in &survey.by_cause {
        causes.entry(*fingerprint).or_insert((0, queue)).0 += count;
    }
    let mut causes: Vec<(Fingerprint, (u64, &QueueName))> = causes.into_iter().collect();
    causes.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let mut messages = BTreeMap::new();
    for (fingerprint, (_, queue)) in causes.into_iter().take(MESSAGES_MAX) {
        // Of a service that was asked for: others are none of the business of whoever asks, perhaps.
        let service = Some(queue.service.to_string());
        let filter = LetterFilter { fingerprint: Some(fingerprint), service, ..LetterFilter::default() };
        let page = reader.letters(&LetterQuery { filter, before: None, rows_max: 1 })?;
        messages.extend(page.letters.first().map(|view| (fingerprint, view.death.message.clone())));
    }
    Ok(messages)
}

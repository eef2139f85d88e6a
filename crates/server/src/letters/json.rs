//! The JSON of dead letters and failure groups, and how it is made from stored ones.

use std::collections::BTreeMap;

use clap::ValueEnum;
use redrive_core::book::RuleBook;
use redrive_core::book::model::LetterForm;
use redrive_core::engine::QueueName;
use redrive_core::ids::ChannelName;
use redrive_core::letters::envelope::{Envelope, RedisLetter};
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::time::Timestamp;
use redrive_node::letters::envelope;
use redrive_node::store::letter::{
    GroupView, HeldSession, LetterFilter, LetterPage, LetterQuery, LetterView, SelectionSurvey, TREND_SPAN,
};
use redrive_node::store::{DeliveryView, StoreError, StoreReader};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::letters::filter::cursor;

/// A dead letter in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LetterJson {
    pub id: String,
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub subscription: String,
    /// The dead-letter queue that it belongs to.
    pub name: String,
    pub event_id: String,
    pub event_type: String,
    pub event_source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub category: String,
    /// One of the four words of envelopes.
    pub failure_category: String,
    /// Why it was given up.
    pub code: String,
    /// The last failure's own code.
    pub failure_code: String,
    pub message: String,
    pub tier: String,
    pub fingerprint: String,
    pub attempts: u32,
    pub replays: u32,
    pub died_at: Timestamp,
    pub accepted_at: Timestamp,
    /// The open replay that has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<u64>,
    /// How many wait behind it, if it holds its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// The id that it had elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_as: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LettersResponse {
    pub dead_letters: Vec<LetterJson>,
    /// To go on with; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// In which form letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LetterFormat {
    /// The whole envelope
    Envelope,
    /// The short form of Redis streams
    Redis,
}

impl LetterFormat {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Redis => "redis",
        }
    }
}

/// Letters of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupJson {
    pub fingerprint: String,
    pub count: u64,
    /// Those of them that are poison.
    pub poison: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub category: String,
    pub code: String,
    /// The latest letter's.
    pub message: String,
    /// The latest letter.
    pub sample: String,
    pub services: Vec<QueueCount>,
    pub event_types: Vec<TypeCount>,
    pub trend: GroupTrend,
}

/// How many letters a service or a channel has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueCount {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub count: u64,
}

/// How many letters an event type has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TypeCount {
    #[serde(rename = "type")]
    pub event_type: String,
    pub count: u64,
}

/// Deaths over the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupTrend {
    /// The span of one count.
    pub span_seconds: u64,
    /// The oldest first; the last one still goes on.
    pub counts: Vec<u64>,
}

/// The causes there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupsResponse {
    pub groups: Vec<FailureGroupJson>,
}

/// A letter that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SkipResponse {
    pub id: String,
    /// How many waited behind it and go on now.
    pub released: u64,
}

/// A letter that was sent with other content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EditResponse {
    /// The new event.
    pub event_id: String,
    pub receipt: String,
    pub delivery: String,
    /// The letter whose place it takes.
    pub supersedes: String,
}

/// What a purge came to so far, or would come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeResponse {
    /// Letters that are gone, or would be.
    pub deleted: u64,
    /// Letters that stay since a replay has claimed them.
    pub claimed: u64,
    pub dry_run: bool,
    /// Of a dry run: sessions that would go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<u64>,
    /// Of a dry run: the moment that it looked at. A purge that says it leaves alone what died since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_until: Option<Timestamp>,
    /// Whether that is all; a long purge tells how far it is.
    pub done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Letters that were taken from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportResponse {
    pub imported: u64,
    /// Those that were there already.
    pub known: u64,
}

/// A session that a dead letter holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub session: String,
    /// The letter that holds it, dead or being replayed.
    pub letter: String,
    pub event_type: String,
    pub since: Timestamp,
    /// How many wait behind it.
    pub behind: u64,
}

/// The sessions that are held, those held for longest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionsResponse {
    pub held_sessions: Vec<HeldSessionJson>,
}

/// A dead letter in one of its forms.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what the store writes")]
pub(crate) enum LetterDocument {
    Envelope(Box<Envelope>),
    Redis(RedisLetter),
}

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
    reader: &dyn StoreReader,
    survey: &SelectionSurvey,
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

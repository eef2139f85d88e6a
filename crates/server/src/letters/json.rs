//! JSON of dead letters and failure groups, built from stored records.

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
    /// Its dead-letter queue.
    pub name: String,
    pub event_id: String,
    pub event_type: String,
    pub event_source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    pub category: String,
    /// One of the four categories of envelopes.
    pub failure_category: String,
    /// Why it was dead-lettered.
    pub code: String,
    /// Code of the last failure.
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
    /// Deliveries waiting behind it, if it blocks its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<u64>,
    /// Its original id, if imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_as: Option<String>,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LettersResponse {
    pub dead_letters: Vec<LetterJson>,
    /// Cursor of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Forms of an exported letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LetterFormat {
    /// The full envelope
    Envelope,
    /// The short form for Redis streams
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

/// Dead letters with the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupJson {
    pub fingerprint: String,
    pub count: u64,
    /// Number that are poison.
    pub poison: u64,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub category: String,
    pub code: String,
    /// Message of the latest letter.
    pub message: String,
    /// Id of the latest letter.
    pub sample: String,
    pub services: Vec<QueueCount>,
    pub event_types: Vec<TypeCount>,
    pub trend: GroupTrend,
}

/// Letters per service or channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueCount {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub count: u64,
}

/// Letters per event type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct TypeCount {
    #[serde(rename = "type")]
    pub event_type: String,
    pub count: u64,
}

/// New dead letters over the last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct GroupTrend {
    /// Length of one step.
    pub span_seconds: u64,
    /// Oldest first; the last step is incomplete.
    pub counts: Vec<u64>,
}

/// Failure groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FailureGroupsResponse {
    pub groups: Vec<FailureGroupJson>,
}

/// A discarded letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SkipResponse {
    pub id: String,
    /// Deliveries behind it that resume.
    pub released: u64,
}

/// An edited and resent letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EditResponse {
    /// The new event.
    pub event_id: String,
    pub receipt: String,
    pub delivery: String,
    /// The letter that it replaces.
    pub supersedes: String,
}

/// Progress of a purge, or its preview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PurgeResponse {
    /// Letters deleted, or to be deleted.
    pub deleted: u64,
    /// Letters kept because a replay has claimed them.
    pub claimed: u64,
    pub dry_run: bool,
    /// Dry run: sessions that would resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<u64>,
    /// Dry run: its time. Pass it to the purge to keep letters that died later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_until: Option<Timestamp>,
    /// Whether the purge is complete.
    pub done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Imported letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImportResponse {
    pub imported: u64,
    /// Letters that existed already.
    pub known: u64,
}

/// A session blocked by a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionJson {
    pub service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    pub session: String,
    /// The letter that blocks it, dead or being replayed.
    pub letter: String,
    pub event_type: String,
    pub since: Timestamp,
    /// Deliveries waiting behind it.
    pub behind: u64,
}

/// Blocked sessions, the longest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct HeldSessionsResponse {
    pub held_sessions: Vec<HeldSessionJson>,
}

/// A dead letter in one of its forms.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what the store writes")]
pub(crate) enum LetterDocument {
    Envelope(Box<Envelope>),
    Redis(RedisLetter),
}

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

/// The envelope if the rule book no longer has the letter's row.
pub(crate) fn form_by(book: &RuleBook, view: &LetterView) -> LetterFormat {
    let DeliveryView { queue, event_type, .. } = &view.delivery;
    let channel = queue.channel.as_ref().map(ChannelName::as_str);
    let rule = book.letter_rule(queue.service.as_str(), channel, event_type);
    match rule.map_or(LetterForm::Envelope, |rule| rule.form) {
        LetterForm::Envelope => LetterFormat::Envelope,
        LetterForm::Redis => LetterFormat::Redis,
    }
}

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

/// A sample message for each of the most frequent causes.
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
        // Samples only from the requested service: the caller may not see others.
        let service = Some(queue.service.to_string());
        let filter = LetterFilter { fingerprint: Some(fingerprint), service, ..LetterFilter::default() };
        let page = reader.letters(&LetterQuery { filter, before: None, rows_max: 1 })?;
        messages.extend(page.letters.first().map(|view| (fingerprint, view.death.message.clone())));
    }
    Ok(messages)
}

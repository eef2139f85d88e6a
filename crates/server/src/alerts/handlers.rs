//! Handlers of alerts: state of each, receivers, recent notifications, and test messages.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive_core::alerts::{AlertState, AlertView};
use redrive_core::book::alert_rules::OWN_SERVICE;
use redrive_core::book::model::Receiver;
use redrive_core::engine::QueueName;
use redrive_core::engine::attempt_record::AttemptEnd;
use redrive_core::ids::{ChannelName, IdPrefix, ServiceName};
use redrive_core::time::Timestamp;
use redrive_node::activity::{Activity, ActivityLine, DeliveryFacts};
use redrive_node::runtime::{Node, NotifyError};
use redrive_node::store::{
    DeliveryFilter, DeliveryState, DeliveryView, StoreCounts, StoreError, StoreReader,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::alerts::json::{AlertsResponse, ReceiverJson, ReceiverTestOutcome, ReceiverTestResponse};
use crate::api::App;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};

/// How long a test is watched: below the response timeout.
const TEST_WATCHED: Duration = Duration::from_secs(12);

/// Messages searched for the last error of each receiver.
const MESSAGES_SEEN_MAX: usize = 100;

/// Alerts, receivers and recent notifications.
#[utoipa::path(
    get, path = "/v1/alerts", operation_id = "listAlerts", tag = "operating",
    responses((status = 200, description = "alerts, receivers and recent notifications", body = AlertsResponse))
)]
pub(crate) async fn list(app: App, caller: ApiCaller) -> ApiResult {
    let (book, now) = (app.node.book(), app.node.now());
    let (counts, troubles) = app.node.read(|reader| Ok((reader.counts()?, troubles(reader)?))).await?;
    let alerts = app.node.alerts();
    let receivers = book.sections().receivers.iter();
    let found = AlertsResponse {
        evaluated_at: alerts.looked_at,
        alerts: alerts.alerts.clone(),
        receivers: receivers
            .map(|(name, at)| receiver_json(name, &at.value, &counts, &troubles, now))
            .collect(),
        recent: alerts.recent.clone(),
    };
    VisibleAddresses::for_caller(&caller, &book).ok(&found)
}

pub(crate) fn firing(node: &Node) -> Vec<AlertView> {
    let alerts = node.alerts();
    let firing = alerts.alerts.iter().filter(|alert| alert.state == AlertState::Firing);
    firing.cloned().collect()
}

/// Sends a test message to a receiver and waits for the outcome.
#[utoipa::path(
    post, path = "/v1/receivers/{name}/test", operation_id = "testReceiver", tag = "operating",
    params(("name" = String, Path, description = "a receiver of the rule book", example = "on-call")),
    responses((status = 200, description = "the outcome so far; a failed message is retried", body = ReceiverTestResponse))
)]
pub(crate) async fn test(app: App, caller: ApiCaller, PathName(name): PathName) -> ApiResult {
    // Subscribed before sending, so that nothing is missed.
    let activities = app.node.activities();
    let event = app.node.test_receiver(&name, &caller.by()).await.map_err(|error| match error {
        NotifyError::NoReceiver(_) => {
            let book = app.node.book();
            let names: Vec<String> = book.sections().receivers.keys().cloned().collect();
            ApiError::new(ApiCode::ReceiverNotFound, error.to_string()).with("receivers", names)
        }
        NotifyError::NotWritten(error) => error.into(),
    })?;
    let event = event.to_string();
    let seen = tokio::time::timeout(TEST_WATCHED, outcome_of(activities, &event)).await;
    let (outcome, facts) = seen.ok().flatten().unzip();
    let facts = facts.as_ref();
    let tested = ReceiverTestResponse {
        receiver: name,
        event,
        outcome: outcome.unwrap_or(ReceiverTestOutcome::Waiting),
        delivery: facts.map(|facts| facts.delivery.clone()),
        code: facts.and_then(|facts| facts.code.clone()),
        message: facts.and_then(|facts| facts.message.clone()),
        due_at: facts.and_then(|facts| facts.due_at),
        took_ms: facts.and_then(|facts| facts.took_ms),
    };
    VisibleAddresses::for_caller(&caller, &app.node.book()).ok(&tested)
}

/// Outcome of an event's delivery; `None` if the activity stream ended.
async fn outcome_of(
    mut activities: broadcast::Receiver<std::sync::Arc<ActivityLine>>,
    event: &str,
) -> Option<(ReceiverTestOutcome, DeliveryFacts)> {
    loop {
        let line = match activities.recv().await {
            Ok(line) => line,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return None,
        };
        let (outcome, facts) = match &line.activity {
            Activity::Delivered(facts) => (ReceiverTestOutcome::Delivered, facts),
            Activity::Retrying(facts) => (ReceiverTestOutcome::Retrying, facts),
            Activity::Dead(facts) => (ReceiverTestOutcome::Dead, facts),
            // Acceptance and holds behind a breaker are not outcomes.
            _ => continue,
        };
        if facts.event.event_id == event {
            return Some((outcome, facts.clone()));
        }
    }
}

fn receiver_json(
    name: &str,
    receiver: &Receiver,
    counts: &StoreCounts,
    troubles: &BTreeMap<String, String>,
    now: Timestamp,
) -> ReceiverJson {
    let queue = ServiceName::new(OWN_SERVICE).ok().zip(ChannelName::new(name).ok());
    let queue = queue.map(|(service, channel)| QueueName { service, channel: Some(channel) });
    let counts = queue.and_then(|queue| counts.queues.get(&queue).copied()).unwrap_or_default();
    ReceiverJson {
        name: name.to_owned(),
        kind: receiver.endpoint.key().to_owned(),
        address: receiver.endpoint.profile.shown.clone(),
        hours: receiver.hours.as_ref().map(ToString::to_string),
        severity: receiver.severity.map(|severity| severity.as_str().to_owned()),
        open_now: receiver.hours.as_ref().is_none_or(|hours| hours.contain(now)),
        waiting: counts.waiting,
        dead: counts.dead,
        last_trouble: troubles.get(name).cloned(),
    }
}

fn troubles(reader: &dyn StoreReader) -> Result<BTreeMap<String, String>, StoreError> {
    let filter = DeliveryFilter {
        service: Some(OWN_SERVICE.to_owned()),
        rows_max: MESSAGES_SEEN_MAX,
        ..DeliveryFilter::default()
    };
    let mut latest: BTreeMap<String, DeliveryView> = BTreeMap::new();
    for view in reader.list(&filter)?.deliveries.into_iter().filter(|view| view.attempts > 0) {
        let Some(channel) = &view.queue.channel else { continue };
        let is_later = |known: &DeliveryView| known.written_at >= view.written_at;
        if !latest.get(channel.as_str()).is_some_and(is_later) {
            latest.insert(channel.to_string(), view);
        }
    }
    let mut troubles = BTreeMap::new();
    for (receiver, view) in latest {
        if matches!(view.state, DeliveryState::Delivered { .. }) {
            continue;
        }
        let Some(prefix) = IdPrefix::parse(&view.id.to_string()) else { continue };
        let stories = reader.deliveries(&prefix, 1)?.into_iter().flat_map(|view| view.stories);
        if let Some(AttemptEnd::Failed { message, .. }) = stories.last().map(|story| story.end) {
            troubles.insert(receiver, message);
        }
    }
    Ok(troubles)
}

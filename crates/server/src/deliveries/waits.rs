//! What deliveries wait for: the engine's answer in words, shown by every view.

use std::collections::BTreeMap;

use redrive_core::engine::{QueueName, StoredState, Wait, WaitQuery};
use redrive_core::ids::DeliveryId;
use redrive_core::text::Rate;
use redrive_node::runtime::Node;
use redrive_node::store::{DeliveryState, DeliveryView};

use crate::deliveries::json::{WaitCause, WaitJson};

/// Blocked sessions scanned for the letters that block them.
const SESSIONS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct DeliveryWaits {
    of: BTreeMap<DeliveryId, Wait>,
    /// Letters that block sessions.
    letters: BTreeMap<(QueueName, String), DeliveryId>,
}

impl DeliveryWaits {
    pub(crate) async fn of<'a>(node: &Node, views: impl IntoIterator<Item = &'a DeliveryView>) -> Self {
        let asked: Vec<WaitQuery> = views.into_iter().filter_map(asked).collect();
        if asked.is_empty() {
            return Self::default();
        }
        let ids: Vec<DeliveryId> = asked.iter().map(|asked| asked.id).collect();
        let letters = if asked.iter().any(|asked| asked.state == StoredState::Behind) {
            // Best effort: the rest of the answer does not need it.
            let held = node.read(|reader| reader.held_sessions(SESSIONS_MAX)).await.unwrap_or_default();
            held.into_iter().map(|held| ((held.queue, held.session), held.letter)).collect()
        } else {
            BTreeMap::new()
        };
        let waits = node.waits(asked).await.unwrap_or_default();
        Self { of: ids.into_iter().zip(waits).collect(), letters }
    }

    pub(crate) fn letter_before(&self, view: &DeliveryView) -> Option<DeliveryId> {
        let session = view.session.clone().filter(|_| view.state == DeliveryState::Behind)?;
        self.letters.get(&(view.queue.clone(), session)).copied()
    }

    /// `None` if the delivery has ended.
    pub(crate) fn shown(&self, view: &DeliveryView) -> Option<(WaitJson, QueueHold)> {
        let wait = self.of.get(&view.id)?;
        if let Some(letter) = self.letter_before(view) {
            let because = format!(
                "the dead letter {letter} blocks its session until it is replayed, edited, skipped or purged"
            );
            return Some((WaitJson::new(WaitCause::Letter, because), QueueHold::Yes));
        }
        let shown = shown(wait, view.session.as_deref());
        Some((shown, if wait.is_hold() { QueueHold::Yes } else { QueueHold::No }))
    }
}

/// Whether something outside the queue must change before the delivery starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueHold {
    Yes,
    No,
}

fn asked(view: &DeliveryView) -> Option<WaitQuery> {
    let stands = match view.state {
        DeliveryState::Ready => StoredState::Ready,
        DeliveryState::Due { at } => StoredState::Due { at },
        DeliveryState::Behind => StoredState::Behind,
        DeliveryState::Delivered { .. } | DeliveryState::Dead { .. } | DeliveryState::Closed { .. } => {
            return None;
        }
    };
    let event_type = view.event_type.clone();
    Some(WaitQuery { id: view.id, queue: view.queue.clone(), event_type, state: stands })
}

/// Times are separate fields, so that each view shows them in its own time zone.
pub(crate) fn shown(wait: &Wait, session: Option<&str>) -> WaitJson {
    let (on, because) = match wait {
        Wait::Running => (WaitCause::Running, "an attempt is running".to_owned()),
        Wait::Settling => (WaitCause::Settling, "an attempt has ended and is being stored".to_owned()),
        Wait::StoreFailing { .. } => (WaitCause::Store, "the store accepts no writes".to_owned()),
        Wait::Stopping => (WaitCause::Shutdown, "the server is shutting down".to_owned()),
        Wait::ServiceRemoved => {
            (WaitCause::ServiceRemoved, "SERVICE_REMOVED: the service is not in the rule book".to_owned())
        }
        Wait::RuleRemoved => {
            (WaitCause::RuleRemoved, "RULE_REMOVED: no row of the service matches this event".to_owned())
        }
        Wait::Paused { .. } => (WaitCause::Pause, "the service is paused".to_owned()),
        Wait::Session => {
            let session = session.map(|session| format!("session `{session}`"));
            let session = session.unwrap_or_else(|| "its session".to_owned());
            (WaitCause::Session, format!("another event of {session} comes first"))
        }
        Wait::RetryAfter { dependency, .. } => {
            (WaitCause::RetryAfter, format!("{dependency} asked callers to wait"))
        }
        Wait::BreakerOpen { dependency, .. } => {
            (WaitCause::Breaker, format!("the circuit breaker of {dependency} is open"))
        }
        Wait::Probes { dependency } => {
            let because = "is half-open and lets only probes pass";
            (WaitCause::Breaker, format!("the circuit breaker of {dependency} {because}"))
        }
        Wait::Due { .. } => (WaitCause::Retry, "waiting for the next attempt".to_owned()),
        Wait::RetryBudget { dependency, .. } => {
            (WaitCause::RetryBudget, format!("the retry budget of {dependency} is used up"))
        }
        Wait::RampUp { dependency } => {
            (WaitCause::RampUp, format!("calls to {dependency} ramp up after a start or an outage"))
        }
        Wait::Rate { dependency, rate } => {
            (WaitCause::Rate, format!("calls to {dependency} are limited to {}", rate_words(*rate)))
        }
        Wait::InFlight { dependency, most } => {
            (WaitCause::InFlight, format!("{dependency} has {most} of {most} calls in flight"))
        }
        Wait::Share => {
            (WaitCause::Share, "the service uses its full share of all calls in flight".to_owned())
        }
        Wait::Alone => (WaitCause::CrashCheck, "deliveries are tried one by one after a crash".to_owned()),
        Wait::Turn => (WaitCause::Turn, "queued".to_owned()),
    };
    let mut shown = WaitJson::new(on, because);
    if let Wait::StoreFailing { since } | Wait::Paused { since } = wait {
        shown.since = Some(*since);
    }
    if let Wait::RetryAfter { until, .. }
    | Wait::BreakerOpen { until, .. }
    | Wait::RetryBudget { until, .. }
    | Wait::Due { at: until } = wait
    {
        shown.until = Some(*until);
    }
    if let Wait::RetryAfter { dependency, .. }
    | Wait::BreakerOpen { dependency, .. }
    | Wait::Probes { dependency }
    | Wait::RetryBudget { dependency, .. }
    | Wait::RampUp { dependency }
    | Wait::Rate { dependency, .. }
    | Wait::InFlight { dependency, .. } = wait
    {
        shown.dependency = Some(dependency.to_string());
    }
    shown
}

fn rate_words(rate: Rate) -> String {
    let per_second = rate.as_per_second();
    if per_second >= 1.0 {
        format!("{per_second:.0} calls/s")
    } else {
        format!("{:.1} calls/min", per_second * 60.0)
    }
}

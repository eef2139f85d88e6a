//! Evaluates the alerts of the rule book and sends notifications.
//!
//! Each second all alerts are evaluated. A notice becomes an event in the queue of each receiver, so the
//! engine delivers and retries it like any event.
//!
//! The alert state is stored together with the notices still to be sent, and only then are they sent, under
//! stable ids. A crash before that sends nothing and finds the alerts again; a crash after it sends the
//! stored notices, and duplicates are absorbed.
//!
//! Invariants: alerts are not evaluated while notices are waiting, so the backlog is bounded and nothing is
//! lost while the store fails; failing notifications raise no alerts.

mod ledger;
mod sampler;

use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::alerts::notice::{AlertNotice, AlertStage};
use redrive_core::alerts::{AlertState, AlertView};
use redrive_core::event::Event;
use redrive_core::event::attribute::{
    ContentType, EventId, EventSource, EventSubject, EventType, SessionKey,
};
use redrive_core::time::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};

use self::ledger::AlertLedger;
pub use self::ledger::SentNotice;
use self::sampler::AlertSampler;
use super::access::recall;
use super::active_book::ActiveBooks;
use super::inbox::SubmitJob;
use super::{HandOverResult, Node, NodeShared, SubmitError};
use crate::activity::Activity;
use crate::store::access_store::{AuditActor, AuditEntry};
use crate::store::{StateChange, Submission, SubmittedEvent};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the state is stored without new notices: what a restart may forget.
const SAVE_EVERY: Duration = Duration::from_secs(10);
const TRY_MAX: Duration = Duration::from_secs(30);
const MEMO: &str = "alerts";
const SOURCE: &str = "redrive:alerts";

#[derive(Clone, Debug, Default)]
pub struct AlertsView {
    /// When they were last evaluated; none if the book has none.
    pub looked_at: Option<Timestamp>,
    pub alerts: Vec<AlertView>,
    pub recent: Vec<SentNotice>,
}

pub(super) struct Alerting {
    alerts: watch::Receiver<Arc<AlertsView>>,
}

pub(super) struct AlertRunner {
    books: ActiveBooks,
    alerts: watch::Sender<Arc<AlertsView>>,
}

impl Alerting {
    pub(super) fn new(books: ActiveBooks) -> (Self, AlertRunner) {
        let (alerts, alerts_seen) = watch::channel(Arc::default());
        (Self { alerts: alerts_seen }, AlertRunner { books, alerts })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    #[error("the rule book has no receiver `{0}`")]
    NoReceiver(String),
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
}

impl Node {
    #[must_use]
    pub fn alerts(&self) -> Arc<AlertsView> {
        Arc::clone(&self.shared.alerting.alerts.borrow())
    }

    /// Sends a test notice and returns its event's id. It is audited, since it disturbs people.
    pub async fn test_receiver(&self, receiver: &str, by: &AuditActor) -> Result<EventId, NotifyError> {
        let now = self.now();
        let notice = AlertNotice {
            alert: "test".to_owned(),
            covers: None,
            severity: "warning".to_owned(),
            stage: AlertStage::Test,
            receiver: receiver.to_owned(),
            since: now,
            at: now,
            told_before: 0,
            summary: "test notification, nothing is wrong".to_owned(),
            condition: "receiver test".to_owned(),
            subjects: Vec::new(),
            more: 0,
            ended: Vec::new(),
            action: None,
        };
        let event = event(&notice);
        let id = event.id.clone();
        self.send_notice(&notice.receiver, event).await?;
        let deed = AuditEntry { act: "test-receiver", what: notice.receiver, by: by.clone(), note: None };
        self.note(StateChange::Audit(Box::new(deed)), None).await?;
        Ok(id)
    }

    /// Has the engine deliver a notice; duplicates are absorbed.
    async fn send_notice(&self, receiver: &str, event: Event) -> Result<(), NotifyError> {
        let addressee = self.active_book().to_receiver(receiver, event.event_type.as_str());
        let addressee = addressee.ok_or_else(|| NotifyError::NoReceiver(receiver.to_owned()))?;
        let submitted = SubmittedEvent { event: Arc::new(event), routes: vec![addressee] };
        let (reply, answer) = oneshot::channel();
        self.shared.inbox.submit(SubmitJob { submission: Submission { events: vec![submitted] }, reply })?;
        match answer.await.unwrap_or(Err(SubmitError::Stopping)).map(|taken| taken[0]).into() {
            // Another book may have changed the text, but the receiver has been notified.
            HandOverResult::Durable(_)
            | HandOverResult::Duplicate(_)
            | HandOverResult::Refused { .. }
            | HandOverResult::Invalid(_) => Ok(()),
            HandOverResult::Busy(error) => Err(error.into()),
        }
    }

    /// Stores all pending notices, sends them, then removes them.
    async fn send_pending(&self, ledger: &mut AlertLedger) -> Result<(), SubmitError> {
        self.save(ledger).await?;
        while let Some(notice) = ledger.pending() {
            match self.send_notice(&notice.receiver, event(notice)).await {
                Ok(()) => {}
                Err(NotifyError::NoReceiver(receiver)) => {
                    tracing::info!(receiver, alert = notice.alert, "notification not sent, receiver removed");
                }
                Err(NotifyError::NotWritten(error)) => return Err(error),
            }
            ledger.sent();
        }
        self.save(ledger).await
    }

    async fn save(&self, ledger: &mut AlertLedger) -> Result<(), SubmitError> {
        let Some(memo) = ledger.memo() else { return Ok(()) };
        self.set_memo(MEMO, Some(memo.clone())).await?;
        ledger.written(memo);
        Ok(())
    }
}

/// Notices of one alert keep their order.
fn event(notice: &AlertNotice) -> Event {
    let name = match &notice.covers {
        Some(covers) => format!("{} of {covers}", notice.alert),
        None => notice.alert.clone(),
    };
    Event {
        id: EventId::new(&notice.id()).expect("some digits"),
        source: EventSource::new(SOURCE).expect("a source of our own"),
        event_type: EventType::new(notice.stage.event_type()).expect("types of our own"),
        // A name that is too long is left out.
        subject: EventSubject::new(&name).ok(),
        time: Some(notice.at),
        content_type: Some(ContentType::new("application/json").expect("a content type of our own")),
        session: SessionKey::new(&name).ok(),
        correlation_id: None,
        traceparent: None,
        extensions: std::collections::BTreeMap::new(),
        data: serde_json::to_vec(notice).expect("texts and numbers").into(),
    }
}

pub(super) async fn run(node: Weak<NodeShared>, mut runner: AlertRunner) {
    let Some(memo) = recall(&node, MEMO).await else { return };
    let Some(shared) = node.upgrade() else { return };
    let followers = Arc::clone(&shared.followers);
    let now = Node { shared }.now();
    let active = Arc::clone(&runner.books.borrow_and_update());
    let mut ledger = AlertLedger::new(Arc::clone(&active.book), memo.as_deref(), now);
    followers.reach("alerts", active.generation);
    let mut sampler = AlertSampler::default();
    let mut saved_at = Instant::now();
    let mut is_failing = false;
    let mut tick = tokio::time::interval(LOOK_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        runner.alerts.send_replace(Arc::new(ledger.view()));
        tokio::select! {
            biased;
            changed = runner.books.changed() => {
                if changed.is_err() {
                    return;
                }
                let active = Arc::clone(&runner.books.borrow_and_update());
                ledger.change(Arc::clone(&active.book));
                followers.reach("alerts", active.generation);
                continue;
            }
            _ = tick.tick() => {}
        }
        let Some(shared) = node.upgrade() else { return };
        let node = Node { shared };
        if ledger.is_idle() {
            continue;
        }
        if ledger.pending().is_none()
            && let Some(seen) = sampler.look(&node, ledger.wants()).await
        {
            let before = ledger.firing();
            ledger.look(&seen);
            announce(&node, &before, &ledger.firing());
        }
        if ledger.pending().is_none() && saved_at.elapsed() < SAVE_EVERY {
            continue;
        }
        match tokio::time::timeout(TRY_MAX, node.send_pending(&mut ledger)).await {
            Ok(Ok(())) => {
                is_failing = false;
                saved_at = Instant::now();
            }
            Ok(Err(error)) => log_once(&mut is_failing, &error.to_string()),
            Err(_) => log_once(&mut is_failing, "write timed out"),
        }
    }
}

/// Logs the first of a series of failures.
fn log_once(is_failing: &mut bool, error: &str) {
    if !std::mem::replace(is_failing, true) {
        tracing::warn!(error, "notifications not stored, retrying");
    }
}

fn announce(node: &Node, before: &[AlertView], now: &[AlertView]) {
    let is_in = |list: &[AlertView], one: &AlertView| {
        list.iter().any(|other| other.name == one.name && other.covers == one.covers)
    };
    for alert in now.iter().filter(|alert| !is_in(before, alert)) {
        let AlertView { name, severity, covers, value, .. } = alert;
        let value = value.as_deref().unwrap_or_default();
        tracing::warn!(alert = name, severity, covers, value, "alert firing");
        node.publish_logged(Activity::alert(format!("alert {name} ({severity}) is firing: {value}")));
    }
    for alert in before.iter().filter(|alert| !is_in(now, alert)) {
        let AlertView { name, severity, covers, .. } = alert;
        tracing::info!(alert = name, severity, covers, "alert resolved");
        node.publish_logged(Activity::alert(format!("alert {name} ({severity}) is resolved")));
    }
}

fn is_firing(view: &AlertView) -> bool {
    view.state == AlertState::Firing
}

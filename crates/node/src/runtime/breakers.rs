//! The history of circuit breakers: recent transitions of each, kept over a restart, with the operator who
//! caused them.
//!
//! One task owns the history. The engine task sends it every transition, an operator's note follows on the
//! same channel, and readers get the last published history.
//!
//! Invariants: at most [`CHANGES_MAX`] transitions per breaker and [`CHANGES_KEPT_MAX`] in all are kept; the
//! history is stored at most once per [`SAVE_EVERY`], or when an operator waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::engine::{Input, OperatorCommand};
use redrive_core::ids::{DeliveryId, DependencyName};
use redrive_core::policy::breaker::{BreakerPhase, Transition};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{Node, NodeShared, SubmitError};
use crate::store::access_store::{AuditActor, AuditEntry};
use crate::store::{StateChange, StoreError, StoreReader};

const CHANGES_MAX: usize = 50;
/// Transitions kept in all; breakers with the most lose their oldest first.
const CHANGES_KEPT_MAX: usize = 2_000;
/// How often the history is stored at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);
const NEWS_MAX: usize = 256;
const MEMO: &str = "breakers";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerChange {
    pub at: Timestamp,
    pub from: BreakerPhase,
    pub to: BreakerPhase,
    pub failures: u32,
    /// The delivery whose attempt caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The operator who caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand: Option<OperatorNote>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorNote {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Transitions of every breaker, latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BreakerHistory(BTreeMap<String, VecDeque<BreakerChange>>);

impl BreakerHistory {
    /// As stored, for commands that read a data folder without its node.
    pub fn remembered_by(reader: &dyn StoreReader) -> Result<Self, StoreError> {
        Ok(Self::read(reader.memo(MEMO)?))
    }

    /// A history from another version that cannot be read starts empty: it is a view, not an audit log.
    fn read(text: Option<String>) -> Self {
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    pub fn dependencies(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Latest first.
    pub fn of(&self, dependency: &str) -> impl Iterator<Item = &BreakerChange> {
        self.0.get(dependency).into_iter().flatten()
    }

    /// Whether an operator opened it and nothing has closed it since.
    #[must_use]
    pub fn is_tripped_by_hand(&self, dependency: &str) -> bool {
        let opened = self.of(dependency).take_while(|turn| turn.to != BreakerPhase::Closed);
        opened.filter(|turn| turn.to == BreakerPhase::Open).any(|turn| turn.hand.is_some())
    }

    fn add(&mut self, dependency: &DependencyName, turn: BreakerChange) {
        let turns = self.0.entry(dependency.to_string()).or_default();
        turns.push_front(turn);
        turns.truncate(CHANGES_MAX);
        while self.0.values().map(VecDeque::len).sum::<usize>() > CHANGES_KEPT_MAX {
            let Some(most) = self.0.values_mut().max_by_key(|turns| turns.len()) else { return };
            most.pop_back();
        }
    }

    /// Attributes the latest transition to an operator.
    fn sign(&mut self, dependency: &DependencyName, hand: OperatorNote) {
        let latest = self.0.get_mut(dependency.as_str()).and_then(VecDeque::front_mut);
        if let Some(turn) = latest.filter(|turn| turn.delivery.is_none() && turn.hand.is_none()) {
            turn.hand = Some(hand);
        }
    }
}

pub(super) enum HistoryMessage {
    Turned(DependencyName, BreakerChange),
    /// The last transition was an operator's, who waits until it is durable.
    ByHand(DependencyName, OperatorNote, oneshot::Sender<Result<(), SubmitError>>),
}

impl HistoryMessage {
    pub(super) fn turned(
        dependency: &DependencyName,
        transition: &Transition,
        by: Option<DeliveryId>,
    ) -> Self {
        let Transition { from, to, at, failures, generation: _ } = *transition;
        let delivery = by.map(|delivery| delivery.to_string());
        Self::Turned(dependency.clone(), BreakerChange { at, from, to, failures, delivery, hand: None })
    }
}

pub(super) struct HistoryHandle {
    news: mpsc::Sender<HistoryMessage>,
    turns: watch::Receiver<Arc<BreakerHistory>>,
}

pub(super) struct HistoryTask {
    news: mpsc::Receiver<HistoryMessage>,
    turns: watch::Sender<Arc<BreakerHistory>>,
}

pub(super) fn desk() -> (HistoryHandle, HistoryTask) {
    let (news, heard) = mpsc::channel(NEWS_MAX);
    let (published, turns) = watch::channel(Arc::default());
    (HistoryHandle { news, turns }, HistoryTask { news: heard, turns: published })
}

impl HistoryHandle {
    pub(super) fn news(&self) -> mpsc::Sender<HistoryMessage> {
        self.news.clone()
    }
}

impl Node {
    /// Opens a dependency's breaker, durably. Does nothing if the book has no breaker for it.
    pub async fn trip(
        &self,
        dependency: DependencyName,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<(), SubmitError> {
        self.turn("trip", OperatorCommand::Trip(dependency.clone()), dependency, note, by).await
    }

    /// Closes it and forgets its failures.
    pub async fn reset(
        &self,
        dependency: DependencyName,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<(), SubmitError> {
        self.turn("reset", OperatorCommand::Reset(dependency.clone()), dependency, note, by).await
    }

    async fn turn(
        &self,
        act: &'static str,
        command: OperatorCommand,
        dependency: DependencyName,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<(), SubmitError> {
        let deed = AuditEntry { act, what: dependency.to_string(), by: by.clone(), note: note.clone() };
        self.note(StateChange::Audit(Box::new(deed)), Some(Input::Operator(command))).await?;
        let hand = OperatorNote { by: by.name().map(ToOwned::to_owned), note };
        let (reply, written) = oneshot::channel();
        // The engine reported the transition before it completed the command, so this message follows it. The
        // stored breaker state precedes the history on its way to the store.
        let sent = self.shared.breakers.news.send(HistoryMessage::ByHand(dependency, hand, reply)).await;
        sent.map_err(|_| SubmitError::Stopping)?;
        written.await.unwrap_or(Err(SubmitError::Stopping))
    }

    #[must_use]
    pub fn breaker_history(&self) -> Arc<BreakerHistory> {
        Arc::clone(&self.shared.breakers.turns.borrow())
    }
}

pub(super) async fn keep(shared: Weak<NodeShared>, keeper: HistoryTask) {
    let HistoryTask { mut news, turns: published } = keeper;
    let Some(mut turns) = remembered(&shared).await else { return };
    published.send_replace(Arc::new(turns.clone()));
    let mut is_saved = true;
    let mut last_save: Option<Instant> = None;
    loop {
        let save_at = last_save.map_or_else(Instant::now, |last| last + SAVE_EVERY);
        let waiting = tokio::select! {
            biased;
            heard = news.recv() => match heard {
                None => return,
                Some(HistoryMessage::Turned(dependency, turn)) => {
                    turns.add(&dependency, turn);
                    None
                }
                Some(HistoryMessage::ByHand(dependency, hand, reply)) => {
                    turns.sign(&dependency, hand);
                    Some(reply)
                }
            },
            () = tokio::time::sleep_until(save_at), if !is_saved => {
                is_saved = save(&shared, &turns).await.is_ok();
                last_save = Some(Instant::now());
                continue;
            }
        };
        published.send_replace(Arc::new(turns.clone()));
        is_saved = false;
        if let Some(reply) = waiting {
            let written = save(&shared, &turns).await;
            is_saved = written.is_ok();
            last_save = Some(Instant::now());
            let _ = reply.send(written);
        }
    }
}

async fn remembered(shared: &Weak<NodeShared>) -> Option<BreakerHistory> {
    let node = Node { shared: shared.upgrade()? };
    let text = node.memo(MEMO).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "breaker history not read");
        None
    });
    Some(BreakerHistory::read(text))
}

async fn save(shared: &Weak<NodeShared>, turns: &BreakerHistory) -> Result<(), SubmitError> {
    let Some(shared) = shared.upgrade() else { return Err(SubmitError::Stopping) };
    let text = serde_json::to_string(turns).expect("names, numbers and texts are always JSON");
    Node { shared }.set_memo(MEMO, Some(text)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DependencyName {
        DependencyName::new(text).expect("a name")
    }

    fn turn(at_s: u64, from: BreakerPhase, to: BreakerPhase) -> BreakerChange {
        let at = Timestamp::EPOCH + Duration::from_secs(at_s);
        BreakerChange { at, from, to, failures: 0, delivery: None, hand: None }
    }

    #[test]
    fn a_breaker_is_tripped_by_hand_until_something_closes_it() {
        use BreakerPhase::{Closed, HalfOpen, Open};
        // From what, to what, and whether by hand.
        type Change = (BreakerPhase, BreakerPhase, bool);
        #[rustfmt::skip]
        let cases: [(&str, &[Change], bool); 6] = [
            ("one that never changed",        &[],                                                         false),
            ("opened by failures",            &[(Closed, Open, false)],                                    false),
            ("opened by a person",            &[(Closed, Open, true)],                                     true),
            ("and probed in vain since",      &[(Closed, Open, true), (Open, HalfOpen, false), (HalfOpen, Open, false)], true),
            ("and closed by its probes",      &[(Closed, Open, true), (Open, HalfOpen, false), (HalfOpen, Closed, false)], false),
            ("closed by a person, and failed", &[(Open, Closed, true), (Closed, Open, false)],             false),
        ];
        for (case, changes, expected) in cases {
            let mut turns = BreakerHistory::default();
            for (second, (from, to, by_hand)) in (0..).zip(changes) {
                turns.add(&name("db"), turn(second, *from, *to));
                if *by_hand {
                    turns.sign(&name("db"), OperatorNote::default());
                }
            }
            assert_eq!(turns.is_tripped_by_hand("db"), expected, "{case}");
        }
    }

    #[test]
    fn only_the_latest_changes_are_kept() {
        let mut turns = BreakerHistory::default();
        for second in 0..200 {
            turns.add(&name("a"), turn(second, BreakerPhase::Closed, BreakerPhase::Open));
        }
        let kept: Vec<_> = turns.of("a").map(|turn| turn.at).collect();
        assert_eq!(kept.len(), CHANGES_MAX);
        assert!(kept.is_sorted_by(|later, earlier| later > earlier), "the latest first");
        for dependency in 0..100 {
            for second in 0..CHANGES_MAX as u64 {
                turns.add(
                    &name(&format!("d{dependency}")),
                    turn(second, BreakerPhase::Closed, BreakerPhase::Open),
                );
            }
        }
        assert_eq!(turns.0.values().map(VecDeque::len).sum::<usize>(), CHANGES_KEPT_MAX);
        assert!(turns.0.values().all(|turns| !turns.is_empty()), "nobody is forgotten for others");
    }

    #[test]
    fn a_person_signs_only_what_no_delivery_did() {
        let mut turns = BreakerHistory::default();
        let hand = OperatorNote { by: Some("ops".to_owned()), note: None };
        turns.sign(&name("a"), hand.clone());
        assert_eq!(turns, BreakerHistory::default(), "there is nothing to sign");
        let by_delivery = BreakerChange {
            delivery: Some("3c".to_owned()),
            ..turn(1, BreakerPhase::Closed, BreakerPhase::Open)
        };
        turns.add(&name("a"), by_delivery.clone());
        turns.sign(&name("a"), hand);
        assert_eq!(turns.of("a").next(), Some(&by_delivery));
    }

    #[test]
    fn the_record_reads_back_what_it_wrote() {
        let mut turns = BreakerHistory::default();
        turns.add(&name("a"), turn(1, BreakerPhase::Closed, BreakerPhase::Open));
        turns.sign(&name("a"), OperatorNote { by: None, note: Some("maintenance".to_owned()) });
        turns.add(&name("a"), turn(2, BreakerPhase::Open, BreakerPhase::HalfOpen));
        let text = serde_json::to_string(&turns).expect("JSON");
        assert_eq!(serde_json::from_str::<BreakerHistory>(&text).expect("it reads"), turns);
    }
}

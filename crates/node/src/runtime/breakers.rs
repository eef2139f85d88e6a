//! What breakers have been through: the latest changes of each, kept over a restart, with who made those that
//! people make.
//!
//! One task owns the record. The engine's shell tells it of every change, a person's word follows on the same
//! way, and whoever asks gets the record as it was last published.
//!
//! Invariants: at most [`TURNS_MAX`] changes of one breaker and [`TURNS_KEPT_MAX`] in all are kept; the record
//! is written at most once in [`SAVE_EVERY`], or when a person waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::engine::{Command, Input};
use redrive_core::ids::{DeliveryId, DependencyName};
use redrive_core::policy::breaker::{Phase, Transition};
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::{Node, Shared, SubmitError};
use crate::store::door::{By, Deed};
use crate::store::{Note, Reader, StoreError};

/// Changes of one breaker that are kept.
const TURNS_MAX: usize = 50;
/// Changes of all breakers that are kept; of those with the most, the oldest go first.
const TURNS_KEPT_MAX: usize = 2_000;
/// How often the record is written at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Changes that may wait to be put on the record.
const NEWS_MAX: usize = 256;
/// What the store knows the record by.
const MEMO: &str = "breakers";

/// A change of a breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// When.
    pub at: Timestamp,
    /// What it was.
    pub from: Phase,
    /// What it became.
    pub to: Phase,
    /// The failures that were counted by then.
    pub failures: u32,
    /// The delivery whose attempt did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The person who did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hand: Option<Hand>,
}

/// A person's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hand {
    /// Whose, if they are known by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The changes of every breaker, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Turns(BTreeMap<String, VecDeque<Turn>>);

impl Turns {
    /// What a store remembers of them, for whoever reads a folder without its node.
    pub fn remembered_by(reader: &dyn Reader) -> Result<Self, StoreError> {
        Ok(Self::read(reader.memo(MEMO)?))
    }

    /// What another version wrote and this one cannot read is begun anew: it is a view, not a record of acts.
    fn read(text: Option<String>) -> Self {
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Everyone whose breaker has changed.
    pub fn dependencies(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Those of one, the latest first.
    pub fn of(&self, dependency: &str) -> impl Iterator<Item = &Turn> {
        self.0.get(dependency).into_iter().flatten()
    }

    /// Whether a person has opened it, and nothing has closed it since.
    #[must_use]
    pub fn is_tripped_by_hand(&self, dependency: &str) -> bool {
        let opened = self.of(dependency).take_while(|turn| turn.to != Phase::Closed);
        opened.filter(|turn| turn.to == Phase::Open).any(|turn| turn.hand.is_some())
    }

    fn add(&mut self, dependency: &DependencyName, turn: Turn) {
        let turns = self.0.entry(dependency.to_string()).or_default();
        turns.push_front(turn);
        turns.truncate(TURNS_MAX);
        while self.0.values().map(VecDeque::len).sum::<usize>() > TURNS_KEPT_MAX {
            let Some(most) = self.0.values_mut().max_by_key(|turns| turns.len()) else { return };
            most.pop_back();
        }
    }

    /// The latest change was a person's.
    fn sign(&mut self, dependency: &DependencyName, hand: Hand) {
        let latest = self.0.get_mut(dependency.as_str()).and_then(VecDeque::front_mut);
        if let Some(turn) = latest.filter(|turn| turn.delivery.is_none() && turn.hand.is_none()) {
            turn.hand = Some(hand);
        }
    }
}

/// What the record hears of.
pub(super) enum News {
    /// A breaker has changed.
    Turned(DependencyName, Turn),
    /// The last change was a person's, who waits until it is durable.
    ByHand(DependencyName, Hand, oneshot::Sender<Result<(), SubmitError>>),
}

impl News {
    /// That a breaker has changed.
    pub(super) fn turned(
        dependency: &DependencyName,
        transition: &Transition,
        by: Option<DeliveryId>,
    ) -> Self {
        let Transition { from, to, at, failures, generation: _ } = *transition;
        let delivery = by.map(|delivery| delivery.to_string());
        Self::Turned(dependency.clone(), Turn { at, from, to, failures, delivery, hand: None })
    }
}

/// Where the record is told and asked.
pub(super) struct Desk {
    news: mpsc::Sender<News>,
    turns: watch::Receiver<Arc<Turns>>,
}

/// The record's own side of it.
pub(super) struct Keeper {
    news: mpsc::Receiver<News>,
    turns: watch::Sender<Arc<Turns>>,
}

pub(super) fn desk() -> (Desk, Keeper) {
    let (news, heard) = mpsc::channel(NEWS_MAX);
    let (published, turns) = watch::channel(Arc::default());
    (Desk { news, turns }, Keeper { news: heard, turns: published })
}

impl Desk {
    /// For whoever tells of changes.
    pub(super) fn news(&self) -> mpsc::Sender<News> {
        self.news.clone()
    }
}

impl Node {
    /// Opens the breaker of a dependency; it is durable when this returns. The book has the dependency, with a
    /// breaker: else nothing happens.
    pub async fn trip(
        &self,
        dependency: DependencyName,
        note: Option<String>,
        by: &By,
    ) -> Result<(), SubmitError> {
        self.turn("trip", Command::Trip(dependency.clone()), dependency, note, by).await
    }

    /// Closes it, and forgets the failures so far.
    pub async fn reset(
        &self,
        dependency: DependencyName,
        note: Option<String>,
        by: &By,
    ) -> Result<(), SubmitError> {
        self.turn("reset", Command::Reset(dependency.clone()), dependency, note, by).await
    }

    async fn turn(
        &self,
        act: &'static str,
        command: Command,
        dependency: DependencyName,
        note: Option<String>,
        by: &By,
    ) -> Result<(), SubmitError> {
        let deed = Deed { act, what: dependency.to_string(), by: by.clone(), note: note.clone() };
        self.note(Note::Deed(Box::new(deed)), Some(Input::Operator(command))).await?;
        let hand = Hand { by: by.name().map(ToOwned::to_owned), note };
        let (reply, written) = oneshot::channel();
        // The engine has told of the change before it let us go on, so this word comes after it. What it had
        // written of the breaker is ahead of the record on the way to the store.
        let sent = self.shared.breakers.news.send(News::ByHand(dependency, hand, reply)).await;
        sent.map_err(|_| SubmitError::Stopping)?;
        written.await.unwrap_or(Err(SubmitError::Stopping))
    }

    /// What breakers have been through.
    #[must_use]
    pub fn turns(&self) -> Arc<Turns> {
        Arc::clone(&self.shared.breakers.turns.borrow())
    }
}

/// Keeps the record until the node is gone.
pub(super) async fn keep(shared: Weak<Shared>, keeper: Keeper) {
    let Keeper { mut news, turns: published } = keeper;
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
                Some(News::Turned(dependency, turn)) => {
                    turns.add(&dependency, turn);
                    None
                }
                Some(News::ByHand(dependency, hand, reply)) => {
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
            // Whoever waited may have gone.
            let _ = reply.send(written);
        }
    }
}

/// What was kept; none when the node is gone.
async fn remembered(shared: &Weak<Shared>) -> Option<Turns> {
    let node = Node { shared: shared.upgrade()? };
    let text = node.memo(MEMO).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "what breakers have been through could not be read");
        None
    });
    Some(Turns::read(text))
}

async fn save(shared: &Weak<Shared>, turns: &Turns) -> Result<(), SubmitError> {
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

    fn turn(at_s: u64, from: Phase, to: Phase) -> Turn {
        let at = Timestamp::EPOCH + Duration::from_secs(at_s);
        Turn { at, from, to, failures: 0, delivery: None, hand: None }
    }

    #[test]
    fn a_breaker_is_tripped_by_hand_until_something_closes_it() {
        use Phase::{Closed, HalfOpen, Open};
        // From what, to what, and whether by hand.
        type Change = (Phase, Phase, bool);
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
            let mut turns = Turns::default();
            for (second, (from, to, by_hand)) in (0..).zip(changes) {
                turns.add(&name("db"), turn(second, *from, *to));
                if *by_hand {
                    turns.sign(&name("db"), Hand::default());
                }
            }
            assert_eq!(turns.is_tripped_by_hand("db"), expected, "{case}");
        }
    }

    #[test]
    fn only_the_latest_changes_are_kept() {
        let mut turns = Turns::default();
        for second in 0..200 {
            turns.add(&name("a"), turn(second, Phase::Closed, Phase::Open));
        }
        let kept: Vec<_> = turns.of("a").map(|turn| turn.at).collect();
        assert_eq!(kept.len(), TURNS_MAX);
        assert!(kept.is_sorted_by(|later, earlier| later > earlier), "the latest first");
        for dependency in 0..100 {
            for second in 0..TURNS_MAX as u64 {
                turns.add(&name(&format!("d{dependency}")), turn(second, Phase::Closed, Phase::Open));
            }
        }
        assert_eq!(turns.0.values().map(VecDeque::len).sum::<usize>(), TURNS_KEPT_MAX);
        assert!(turns.0.values().all(|turns| !turns.is_empty()), "nobody is forgotten for others");
    }

    #[test]
    fn a_person_signs_only_what_no_delivery_did() {
        let mut turns = Turns::default();
        let hand = Hand { by: Some("ops".to_owned()), note: None };
        turns.sign(&name("a"), hand.clone());
        assert_eq!(turns, Turns::default(), "there is nothing to sign");
        let by_delivery = Turn { delivery: Some("3c".to_owned()), ..turn(1, Phase::Closed, Phase::Open) };
        turns.add(&name("a"), by_delivery.clone());
        turns.sign(&name("a"), hand);
        assert_eq!(turns.of("a").next(), Some(&by_delivery));
    }

    #[test]
    fn the_record_reads_back_what_it_wrote() {
        let mut turns = Turns::default();
        turns.add(&name("a"), turn(1, Phase::Closed, Phase::Open));
        turns.sign(&name("a"), Hand { by: None, note: Some("maintenance".to_owned()) });
        turns.add(&name("a"), turn(2, Phase::Open, Phase::HalfOpen));
        let text = serde_json::to_string(&turns).expect("JSON");
        assert_eq!(serde_json::from_str::<Turns>(&text).expect("it reads"), turns);
    }
}

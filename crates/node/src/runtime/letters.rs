//! What people and the rule book do with dead letters: replay, skip, purge, edit, import.
//!
//! Command line, API and page all come through here; each act is one [`LetterCommand`] of the store, refused
//! as a whole or durable when it is answered.
//!
//! Invariant: no letter is sent where the rule book has nobody who wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::model;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::ids::{ChannelName, DeliveryId, DependencyName, Receipt};
use redrive_core::letters::replay::{Manner, Origin, Pace, ReplayId};
use redrive_core::letters::reprocess;
use redrive_core::letters::reprocess::Occasion;
use redrive_core::limits;
use redrive_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::inbox::CommandJob;
use super::{Node, ReadError, Shared, SubmitError};
use crate::activity::{Activity, ReplayFacts};
use crate::store::Note;
use crate::store::door::By;
use crate::store::letter::{
    CommandAnswer, Edit, GivenCommand, HeldSession, ImportCounts, ImportedLetter, LetterCommand,
    LetterFilter, NewReplay, OrderRefusal, Poison, Purge, Redirect, ReplayAct, ReplayView, Selection, Survey,
};

/// Letters that one step of a purge looks at: whoever writes waits for it.
const PURGE_STEP: usize = 500;
/// How long to wait before letters are brought back that could not be.
const BRING_BACK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often held sessions are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// A session that is still held is told of again after this long.
const ALERT_AGAIN_AFTER: Duration = Duration::from_hours(1);
/// Held sessions that are read at once.
const SESSIONS_PER_LOOK: usize = 500;
/// Sessions that are told of in one look.
const SESSIONS_TOLD_MAX: usize = 1_000;

/// A replay that somebody wants.
#[derive(Clone, Debug)]
pub struct ReplayWish {
    /// Which letters.
    pub selection: Selection,
    /// The filter in words.
    pub what: String,
    /// How fast.
    pub pace: Pace,
    /// Where they go, if not where they came from.
    pub to: Option<QueueName>,
    /// Why.
    pub note: Option<String>,
}

/// What a purge came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Letters deleted.
    pub deleted: u64,
    /// Letters left alone since a replay has claimed them.
    pub claimed: u64,
}

/// Why an order was not carried out. Nothing has changed, unless the store itself does not know whether it
/// wrote: then it says so.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The store says no.
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    /// The rule book says no.
    #[error(transparent)]
    Unwanted(#[from] SelectError),
    /// It could not be written.
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
    /// What it depends on could not be read.
    #[error(transparent)]
    NotRead(#[from] ReadError),
}

/// Why letters cannot go where they would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The rule book does not have the service or channel.
    #[error(
        "the rule book has no service `{queue}`: {} would have nowhere to go; send them elsewhere with `--to SERVICE`, or bring the service back",
        many(*letters)
    )]
    NoService {
        /// Which.
        queue: QueueName,
        /// How many letters.
        letters: u64,
    },
    /// The service does not want such events.
    #[error(
        "`{queue}` does not want events of type `{event_type}`: {} would wait for ever; add a row to the rule book, or leave them out with a filter",
        many(*letters)
    )]
    NoRow {
        /// Who.
        queue: QueueName,
        /// Of which type.
        event_type: String,
        /// How many letters.
        letters: u64,
    },
    /// The queue whose deliveries are to be taken out is in the rule book.
    #[error(
        "the rule book has `{queue}`: only what waits for a removed service, or what none of its rows takes, can be taken out; remove it first, or pause it"
    )]
    InBook {
        /// Which.
        queue: QueueName,
    },
    /// The queue that deliveries are to go to is not in the rule book.
    #[error("the rule book has no service `{queue}` to send deliveries to")]
    NoDestination {
        /// Which.
        queue: QueueName,
    },
    /// Poison needs a word of why.
    #[error("poison letters have failed a replay before: say with a note why they should go again")]
    NoNote,
}

/// A replay that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// How it stands.
    pub replay: ReplayView,
    /// Letters that match, and are left alone for being poison.
    pub poison_left: u64,
}

impl Node {
    /// What a replay would come to, and whether it could begin.
    pub async fn survey(&self, selection: Selection) -> Result<Survey, ReadError> {
        self.read(move |reader| reader.survey(&selection)).await
    }

    /// Whether letters could go where they would.
    pub fn check_wanted(&self, survey: &Survey, to: Option<&QueueName>) -> Result<(), SelectError> {
        let book = self.book();
        for ((queue, event_type), letters) in &survey.by_type {
            let (queue, letters) = (to.unwrap_or(queue), *letters);
            let channel = queue.channel.as_ref().map(ChannelName::as_str);
            if book.batch_max(queue.service.as_str(), channel).is_none() {
                return Err(SelectError::NoService { queue: queue.clone(), letters });
            }
            if book.rule(queue.service.as_str(), channel, event_type).is_none() {
                let event_type = event_type.clone();
                return Err(SelectError::NoRow { queue: queue.clone(), event_type, letters });
            }
        }
        Ok(())
    }

    /// Begins a replay.
    pub async fn replay(&self, wish: ReplayWish, by: &By) -> Result<Begun, OrderError> {
        let ReplayWish { selection, what, pace, to, note } = wish;
        if selection.poison == Poison::Included && note.is_none() {
            return Err(SelectError::NoNote.into());
        }
        let survey = self.survey(selection.clone()).await?;
        // A letter that is named and not to be had is told of by name.
        if survey.letters == 0 && selection.letters.is_none() {
            let Survey { claimed, poison_left, .. } = survey;
            return Err(OrderRefusal::NothingMatches { claimed, poison: poison_left }.into());
        }
        self.check_wanted(&survey, to.as_ref())?;
        let to = to.map(|queue| {
            let order = order_of(&self.book(), &queue);
            Arc::new(Redirect { queue: Arc::new(queue), order })
        });
        let new = NewReplay { selection, what, pace, origin: Origin::Operator, to, note };
        let replay = self.begin(new, by).await?;
        Ok(Begun { replay, poison_left: survey.poison_left })
    }

    async fn begin(&self, new: NewReplay, by: &By) -> Result<ReplayView, OrderError> {
        let view = self.command(by, |answer| LetterCommand::Replay(Box::new(new), answer)).await?;
        self.publish(Activity::ReplayBegan(facts(&view)));
        Ok(view)
    }

    /// Halts a replay, lets it go on, or ends it.
    pub async fn change_replay(
        &self,
        replay: ReplayId,
        act: ReplayAct,
        by: &By,
    ) -> Result<ReplayView, OrderError> {
        let view = self.command(by, |answer| LetterCommand::Change { replay, act, answer }).await?;
        self.publish(Activity::ReplayChanged(facts(&view)));
        Ok(view)
    }

    /// Gives up a letter; says how many waited behind it.
    pub async fn skip(&self, letter: DeliveryId, note: Option<String>, by: &By) -> Result<u64, OrderError> {
        self.command(by, |answer| LetterCommand::Skip { letter, note, answer }).await
    }

    /// Deletes letters, step by step; each step is told.
    pub async fn purge(
        &self,
        selection: Selection,
        what: String,
        note: Option<String>,
        by: &By,
        mut told: impl FnMut(Purged),
    ) -> Result<Purged, OrderError> {
        let mut purged = Purged::default();
        let mut after = None;
        loop {
            let step = Purge {
                selection: selection.clone(),
                what: what.clone(),
                rows_max: PURGE_STEP,
                after,
                note: note.clone(),
            };
            let done = self.command(by, |answer| LetterCommand::Purge(Box::new(step), answer)).await?;
            purged.deleted += done.deleted;
            purged.claimed += done.claimed;
            told(purged);
            after = done.next;
            if after.is_none() {
                return Ok(purged);
            }
        }
    }

    /// Sends a letter again with other content, as an event of its own.
    pub async fn edit(
        &self,
        letter: DeliveryId,
        event: Event,
        note: Option<String>,
        by: &By,
    ) -> Result<(Receipt, DeliveryId), OrderError> {
        let edit = Edit { letter, event: Arc::new(event), note };
        self.command(by, |answer| LetterCommand::Edit(Box::new(edit), answer)).await
    }

    /// Takes letters from elsewhere.
    pub async fn import(&self, letters: Vec<ImportedLetter>, by: &By) -> Result<ImportCounts, OrderError> {
        self.command(by, |answer| LetterCommand::Import(letters, answer)).await
    }

    /// Has the store carry out a command; gives its result once it is durable and the engine knows of it.
    pub(super) async fn command<T>(
        &self,
        by: &By,
        command: impl FnOnce(CommandAnswer<T>) -> LetterCommand,
    ) -> Result<T, OrderError> {
        let answer = CommandAnswer::default();
        let (reply, done) = oneshot::channel();
        let given = GivenCommand { command: command(answer.clone()), by: by.clone() };
        self.shared.inbox.command(CommandJob { given, reply })?;
        done.await.unwrap_or(Err(SubmitError::Stopping))?;
        Ok(answer.take()?)
    }

    /// Replays what the book brings back by itself, now that the dependency is well.
    async fn reprocess(&self, dependency: &DependencyName) -> Result<(), OrderError> {
        self.bring_letters_back(Occasion::WellAgain(dependency)).await?;
        self.pay(dependency).await
    }

    /// Replays what the book brings back by itself on that occasion, if there is anything.
    pub(super) async fn bring_letters_back(&self, occasion: Occasion<'_>) -> Result<(), OrderError> {
        let kinds = self.read(|reader| reader.kinds(&LetterFilter::default())).await?;
        let book = self.book();
        // One replay for all of them, or letters of one session could overtake each other.
        let (mut chosen, mut times_max) = (BTreeSet::new(), 0);
        for kind in kinds.into_iter().filter(|kind| kind.count > 0) {
            let subject = reprocess::Subject {
                queue: &kind.queue,
                event_type: &kind.event_type,
                category: kind.category,
                tier: kind.tier,
            };
            if let Some(times) = reprocess::times_max(&book, occasion, &subject) {
                chosen.insert(kind.id);
                times_max = times_max.max(times);
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let filter =
            LetterFilter { kinds: Some(chosen), replays_below: Some(times_max), ..LetterFilter::default() };
        let pace =
            Pace { rate: None, concurrency: limits::REPLAY_CONCURRENCY_DEFAULT, manner: Manner::Canary };
        let new = NewReplay {
            selection: Selection { filter, letters: None, poison: Poison::Left, died_until: self.now() },
            what: format!("letters that the book brings back, {occasion}"),
            pace,
            origin: Origin::Automatic { times_max },
            to: None,
            note: None,
        };
        match self.begin(new, &By::nobody()).await {
            Ok(_)
            | Err(OrderError::Refused(OrderRefusal::NothingMatches { .. } | OrderRefusal::Damaged(_))) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing is owed any more to those whose dependency is well again.
    async fn pay(&self, dependency: &DependencyName) -> Result<(), OrderError> {
        Ok(self.note(Note::Paid(dependency.clone()), None).await?)
    }

    /// Tells of sessions that a dead letter holds, and lets go those that the book does not hold any more.
    async fn look_at_sessions(&self, told: &mut BTreeMap<DeliveryId, Timestamp>) -> Result<(), OrderError> {
        let (book, now) = (self.book(), self.now());
        let (mut seen, mut news) = (BTreeSet::new(), 0);
        let mut after = None;
        loop {
            let page = self.read(move |reader| reader.held_page(after, SESSIONS_PER_LOOK)).await?;
            for session in page.sessions {
                if is_let_go(&book, &session) {
                    self.let_go(session.letter).await?;
                    continue;
                }
                seen.insert(session.letter);
                let is_news = told.get(&session.letter).is_none_or(|at| now.since(*at) >= ALERT_AGAIN_AFTER);
                // Those that are too many for one look are told of in the next.
                if is_news && news < SESSIONS_TOLD_MAX {
                    news += 1;
                    told.insert(session.letter, now);
                    self.tell_held(&session, now);
                }
            }
            after = page.next;
            if after.is_none() {
                told.retain(|letter, _| seen.contains(letter));
                return Ok(());
            }
        }
    }

    /// Lets those behind a letter go on. More letters than one command frees may hold the session one after
    /// the other: the next look finds them.
    pub(super) async fn let_go(&self, letter: DeliveryId) -> Result<(), OrderError> {
        match self.command(&By::nobody(), |answer| LetterCommand::LetGo { letter, answer }).await {
            // One that is refused is being replayed, or somebody was quicker: it goes on by itself.
            Ok(_) | Err(OrderError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn tell_held(&self, session: &HeldSession, now: Timestamp) {
        let HeldSession { queue, session: key, letter, event_type, since: _, behind } = session;
        let message = format!("{behind} wait behind this dead letter; replay, edit, skip or purge it");
        let activity = Activity::SessionHeld {
            service: queue.to_string(),
            delivery: letter.to_string(),
            event_type: event_type.clone(),
            session: key.clone(),
            message,
        };
        self.shared.feed.publish(now, activity);
    }
}

fn facts(view: &ReplayView) -> ReplayFacts {
    let message = format!("replay {} is {}: {}", view.id, view.state, view.what);
    ReplayFacts { message, replay: view.id.0 }
}

fn many(letters: u64) -> String {
    if letters == 1 { "1 letter".to_owned() } else { format!("{letters} letters") }
}

/// Whether the book has the service, and its dead letters hold nobody any more.
fn is_let_go(book: &RuleBook, session: &HeldSession) -> bool {
    book.service(session.queue.service.as_str()).is_some()
        && order_of(book, &session.queue) != model::Order::SessionStrict
}

pub(super) fn order_of(book: &RuleBook, queue: &QueueName) -> model::Order {
    book.service(queue.service.as_str())
        .and_then(|service| service.order.as_ref())
        .map_or(model::Order::None, |at| at.value)
}

/// Brings letters back whenever a dependency is well again, for as long as the node lives.
pub(super) async fn bring_back(node: Weak<Shared>, mut well_again: mpsc::Receiver<DependencyName>) {
    while let Some(dependency) = well_again.recv().await {
        loop {
            let Some(shared) = node.upgrade() else { return };
            let Err(error) = (Node { shared }).reprocess(&dependency).await else { break };
            tracing::warn!(%dependency, %error, "letters could not be brought back; it is tried again");
            tokio::time::sleep(BRING_BACK_AGAIN_AFTER).await;
        }
    }
}

/// Looks at held sessions now and then, for as long as the node lives.
pub(super) async fn watch_sessions(node: Weak<Shared>) {
    let mut told = BTreeMap::new();
    loop {
        let Some(shared) = node.upgrade() else { return };
        if let Err(error) = (Node { shared }).look_at_sessions(&mut told).await {
            tracing::debug!(%error, "held sessions could not be looked at");
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

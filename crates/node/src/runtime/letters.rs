//! Operations on dead letters: replay, skip, purge, edit, import.
//!
//! CLI, API and page all use these; each is one [`LetterCommand`] of the store, refused as a whole or durable
//! when it returns.
//!
//! Invariant: no letter is sent to a queue that the rule book does not route it to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::model;
use redrive_core::engine::QueueName;
use redrive_core::event::Event;
use redrive_core::ids::{ChannelName, DeliveryId, DependencyName, Receipt};
use redrive_core::letters::replay::{Manner, ReplayId, ReplayOrigin, ReplayPace};
use redrive_core::letters::reprocess;
use redrive_core::letters::reprocess::Occasion;
use redrive_core::limits;
use redrive_core::text::counted;
use redrive_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::inbox::CommandJob;
use super::{Node, NodeShared, ReadError, SubmitError};
use crate::activity::{Activity, ReplayFacts};
use crate::store::StateChange;
use crate::store::access_store::AuditActor;
use crate::store::letter::{
    CommandAnswer, CommandRefusal, CommandRequest, EditCommand, HeldSession, ImportCounts, ImportedLetter,
    LetterCommand, LetterFilter, NewReplay, Poison, PurgeCommand, Redirect, ReplayAct, ReplayView, Selection,
    SelectionSurvey,
};

/// Letters per step of a purge; writes wait for a step.
const PURGE_STEP: usize = 500;
const BRING_BACK_AGAIN_AFTER: Duration = Duration::from_secs(5);
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// A session that is still held is reported again after this time.
const ALERT_AGAIN_AFTER: Duration = Duration::from_hours(1);
const SESSIONS_PER_LOOK: usize = 500;
const SESSIONS_REPORTED_MAX: usize = 1_000;

#[derive(Clone, Debug)]
pub struct ReplayRequest {
    pub selection: Selection,
    pub what: String,
    pub pace: ReplayPace,
    /// Another queue than the original one.
    pub to: Option<QueueName>,
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeResult {
    pub deleted: u64,
    /// Letters skipped because a replay has claimed them.
    pub claimed: u64,
}

/// Why a command failed. Nothing has changed, unless the store cannot tell whether it committed.
#[derive(Debug, thiserror::Error)]
pub enum LetterCommandError {
    #[error(transparent)]
    Refused(#[from] CommandRefusal),
    #[error(transparent)]
    Unwanted(#[from] SelectError),
    #[error(transparent)]
    NotWritten(#[from] SubmitError),
    #[error(transparent)]
    NotRead(#[from] ReadError),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// Service or channel missing in the rule book.
    #[error(
        "the rule book has no service `{queue}` for {}: send them elsewhere with `--to SERVICE`, or add the service again",
        counted(*letters, "letter")
    )]
    NoService { queue: QueueName, letters: u64 },
    /// No row for this event type.
    #[error(
        "`{queue}` has no row for events of type `{event_type}` of {}: add a row to the rule book, or exclude them with a filter",
        counted(*letters, "letter")
    )]
    NoRow { queue: QueueName, event_type: String, letters: u64 },
    /// The queue is still in the rule book.
    #[error(
        "`{queue}` is in the rule book: only deliveries of a removed service or without a matching row can be moved; remove or pause it first"
    )]
    InBook { queue: QueueName },
    #[error("destination `{queue}` is not in the rule book")]
    NoDestination { queue: QueueName },
    #[error("poison letters have failed a replay before: add a note with the reason to replay them")]
    NoNote,
}

#[derive(Clone, Debug)]
pub struct StartedReplay {
    pub replay: ReplayView,
    /// Matching letters skipped as poison.
    pub poison_left: u64,
}

impl Node {
    pub async fn survey(&self, selection: Selection) -> Result<SelectionSurvey, ReadError> {
        self.read(move |reader| reader.survey(&selection)).await
    }

    pub fn check_wanted(&self, survey: &SelectionSurvey, to: Option<&QueueName>) -> Result<(), SelectError> {
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

    pub async fn replay(
        &self,
        wish: ReplayRequest,
        by: &AuditActor,
    ) -> Result<StartedReplay, LetterCommandError> {
        let ReplayRequest { selection, what, pace, to, note } = wish;
        if selection.poison == Poison::Included && note.is_none() {
            return Err(SelectError::NoNote.into());
        }
        let survey = self.survey(selection.clone()).await?;
        // An explicitly named letter that is missing is refused by name.
        if survey.letters == 0 && selection.letters.is_none() {
            let SelectionSurvey { claimed, poison_left, .. } = survey;
            return Err(CommandRefusal::NothingMatches { claimed, poison: poison_left }.into());
        }
        self.check_wanted(&survey, to.as_ref())?;
        let to = to.map(|queue| {
            let order = order_of(&self.book(), &queue);
            Arc::new(Redirect { queue: Arc::new(queue), order })
        });
        let new = NewReplay { selection, what, pace, origin: ReplayOrigin::Operator, to, note };
        let replay = self.begin(new, by).await?;
        Ok(StartedReplay { replay, poison_left: survey.poison_left })
    }

    async fn begin(&self, new: NewReplay, by: &AuditActor) -> Result<ReplayView, LetterCommandError> {
        let view = self.command(by, |answer| LetterCommand::Replay(Box::new(new), answer)).await?;
        self.publish(Activity::ReplayBegan(facts(&view)));
        Ok(view)
    }

    pub async fn change_replay(
        &self,
        replay: ReplayId,
        act: ReplayAct,
        by: &AuditActor,
    ) -> Result<ReplayView, LetterCommandError> {
        let view = self.command(by, |answer| LetterCommand::Change { replay, act, answer }).await?;
        self.publish(Activity::ReplayChanged(facts(&view)));
        Ok(view)
    }

    /// Gives up a letter; returns how many deliveries waited behind it.
    pub async fn skip(
        &self,
        letter: DeliveryId,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<u64, LetterCommandError> {
        self.command(by, |answer| LetterCommand::Skip { letter, note, answer }).await
    }

    /// Deletes letters step by step, reporting progress.
    pub async fn purge(
        &self,
        selection: Selection,
        what: String,
        note: Option<String>,
        by: &AuditActor,
        mut reported: impl FnMut(PurgeResult),
    ) -> Result<PurgeResult, LetterCommandError> {
        let mut purged = PurgeResult::default();
        let mut after = None;
        loop {
            let step = PurgeCommand {
                selection: selection.clone(),
                what: what.clone(),
                rows_max: PURGE_STEP,
                after,
                note: note.clone(),
            };
            let done = self.command(by, |answer| LetterCommand::Purge(Box::new(step), answer)).await?;
            purged.deleted += done.deleted;
            purged.claimed += done.claimed;
            reported(purged);
            after = done.next;
            if after.is_none() {
                return Ok(purged);
            }
        }
    }

    /// Sends a letter again with other content, as a new event.
    pub async fn edit(
        &self,
        letter: DeliveryId,
        event: Event,
        note: Option<String>,
        by: &AuditActor,
    ) -> Result<(Receipt, DeliveryId), LetterCommandError> {
        let edit = EditCommand { letter, event: Arc::new(event), note };
        self.command(by, |answer| LetterCommand::Edit(Box::new(edit), answer)).await
    }

    pub async fn import(
        &self,
        letters: Vec<ImportedLetter>,
        by: &AuditActor,
    ) -> Result<ImportCounts, LetterCommandError> {
        self.command(by, |answer| LetterCommand::Import(letters, answer)).await
    }

    /// Runs a command; the result is durable and known to the engine.
    pub(super) async fn command<T>(
        &self,
        by: &AuditActor,
        command: impl FnOnce(CommandAnswer<T>) -> LetterCommand,
    ) -> Result<T, LetterCommandError> {
        let answer = CommandAnswer::default();
        let (reply, done) = oneshot::channel();
        let given = CommandRequest { command: command(answer.clone()), by: by.clone() };
        self.shared.inbox.command(CommandJob { given, reply })?;
        done.await.unwrap_or(Err(SubmitError::Stopping))?;
        Ok(answer.take()?)
    }

    /// Replays the letters that the book reprocesses when this dependency recovers.
    async fn reprocess(&self, dependency: &DependencyName) -> Result<(), LetterCommandError> {
        self.bring_letters_back(Occasion::Recovered(dependency)).await?;
        self.pay(dependency).await
    }

    /// Replays the letters that the book reprocesses on this occasion, if any.
    pub(super) async fn bring_letters_back(&self, occasion: Occasion<'_>) -> Result<(), LetterCommandError> {
        let kinds = self.read(|reader| reader.kinds(&LetterFilter::default())).await?;
        let book = self.book();
        // One replay for all, or letters of one session could overtake each other.
        let (mut chosen, mut times_max) = (BTreeSet::new(), 0);
        for kind in kinds.into_iter().filter(|kind| kind.count > 0) {
            let subject = reprocess::LetterSubject {
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
        let pace = ReplayPace {
            rate: None,
            concurrency: limits::REPLAY_CONCURRENCY_DEFAULT,
            manner: Manner::Canary,
        };
        let new = NewReplay {
            selection: Selection { filter, letters: None, poison: Poison::Left, died_until: self.now() },
            what: format!("letters reprocessed by the rule book, {occasion}"),
            pace,
            origin: ReplayOrigin::Automatic { times_max },
            to: None,
            note: None,
        };
        match self.begin(new, &AuditActor::unknown()).await {
            Ok(_)
            | Err(LetterCommandError::Refused(
                CommandRefusal::NothingMatches { .. } | CommandRefusal::Damaged(_),
            )) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn pay(&self, dependency: &DependencyName) -> Result<(), LetterCommandError> {
        Ok(self.note(StateChange::AutoReplayDone(dependency.clone()), None).await?)
    }

    /// Reports sessions held by a dead letter, and releases those that the book no longer holds.
    async fn look_at_sessions(
        &self,
        reported: &mut BTreeMap<DeliveryId, Timestamp>,
    ) -> Result<(), LetterCommandError> {
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
                let is_news =
                    reported.get(&session.letter).is_none_or(|at| now.since(*at) >= ALERT_AGAIN_AFTER);
                // The rest is reported by the next check.
                if is_news && news < SESSIONS_REPORTED_MAX {
                    news += 1;
                    reported.insert(session.letter, now);
                    self.report_held(&session, now);
                }
            }
            after = page.next;
            if after.is_none() {
                reported.retain(|letter, _| seen.contains(letter));
                return Ok(());
            }
        }
    }

    /// Releases the deliveries behind a letter. If further letters hold the session, the next check finds
    /// them.
    pub(super) async fn let_go(&self, letter: DeliveryId) -> Result<(), LetterCommandError> {
        match self
            .command(&AuditActor::unknown(), |answer| LetterCommand::ReleaseSession { letter, answer })
            .await
        {
            // Refused means that it is being replayed or was already released.
            Ok(_) | Err(LetterCommandError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn report_held(&self, session: &HeldSession, now: Timestamp) {
        let HeldSession { queue, session: key, letter, event_type, since: _, behind } = session;
        let message = format!(
            "{behind} deliveries deliveries wait behind this dead letter; replay, edit, skip or purge it"
        );
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

/// Whether the book has the service but no longer holds its sessions.
fn is_let_go(book: &RuleBook, session: &HeldSession) -> bool {
    book.service(session.queue.service.as_str()).is_some()
        && order_of(book, &session.queue) != model::DeliveryOrder::SessionStrict
}

pub(super) fn order_of(book: &RuleBook, queue: &QueueName) -> model::DeliveryOrder {
    book.service(queue.service.as_str())
        .and_then(|service| service.order.as_ref())
        .map_or(model::DeliveryOrder::None, |at| at.value)
}

pub(super) async fn bring_back(node: Weak<NodeShared>, mut well_again: mpsc::Receiver<DependencyName>) {
    while let Some(dependency) = well_again.recv().await {
        loop {
            let Some(shared) = node.upgrade() else { return };
            let Err(error) = (Node { shared }).reprocess(&dependency).await else { break };
            tracing::warn!(%dependency, %error, "reprocessing failed, retrying");
            tokio::time::sleep(BRING_BACK_AGAIN_AFTER).await;
        }
    }
}

pub(super) async fn watch_sessions(node: Weak<NodeShared>) {
    let mut reported = BTreeMap::new();
    loop {
        let Some(shared) = node.upgrade() else { return };
        if let Err(error) = (Node { shared }).look_at_sessions(&mut reported).await {
            tracing::debug!(%error, "held sessions not read");
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

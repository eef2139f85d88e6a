//! Runs the rule book's schedules: emits their events and reprocesses dead letters.
//!
//! An event has an id made of schedule and fire time, and the fire is recorded as done only when the event is
//! durable. A crash in between emits it again, and the duplicate is absorbed. Schedules use the machine's
//! clock, not the node's monotonic one: a cron expression means wall-clock time.
//!
//! Invariant: a wait is never longer than [`WAIT_MAX`], so a changed clock or a suspended machine is noticed.

mod plans;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::letters::reprocess::Occasion;
use redrive_core::schedule::plan::{ScheduledAction, ScheduledJob, plans};
use redrive_core::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::plans::{REGISTER, ScheduleJob, ScheduleStates, ScheduleTask};
use super::access::recall;
use super::active_book::ActiveBooks;
use super::{HandOverResult, IntakeKind, Node, NodeShared};
use redrive::clock::wall_clock;

/// How often the machine's clock is checked at least.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The limit of one attempt to make a fire durable, which is then retried under the same id.
const TRY_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct ScheduleView {
    pub plan: Arc<ScheduledJob>,
    pub last_fire: Option<Timestamp>,
    pub next_fire: Option<Timestamp>,
    /// Fires due and not yet durable.
    pub waiting: u64,
    pub caught_up: u64,
    pub lost: u64,
    pub trouble: Option<String>,
}

pub(super) struct Schedules {
    views: watch::Receiver<Arc<[ScheduleView]>>,
}

pub(super) struct ScheduleRunner {
    books: ActiveBooks,
    views: watch::Sender<Arc<[ScheduleView]>>,
    wall: WallClock,
}

pub(super) enum WallClock {
    Machine,
    #[cfg(test)]
    Set(watch::Receiver<Timestamp>),
}

impl Schedules {
    pub(super) fn new(books: ActiveBooks, wall: WallClock) -> (Self, ScheduleRunner) {
        let (views, views_seen) = watch::channel(Arc::default());
        (Self { views: views_seen }, ScheduleRunner { books, views, wall })
    }
}

impl WallClock {
    fn now(&self) -> Timestamp {
        match self {
            Self::Machine => wall_clock(),
            #[cfg(test)]
            Self::Set(clock) => *clock.borrow(),
        }
    }

    /// Or until a test sets the clock.
    async fn wait(&mut self, span: Duration) {
        match self {
            Self::Machine => tokio::time::sleep(span).await,
            #[cfg(test)]
            Self::Set(clock) => {
                tokio::select! { biased; _ = clock.changed() => {} () = tokio::time::sleep(span) => {} }
            }
        }
    }
}

impl Node {
    #[must_use]
    pub fn schedules(&self) -> Arc<[ScheduleView]> {
        Arc::clone(&self.shared.schedules.views.borrow())
    }

    async fn fire(&self, plan: &ScheduledJob, fire: Timestamp) -> Result<(), String> {
        match &plan.act {
            ScheduledAction::Emit(emission) => {
                match self.hand_over(emission.event(fire), IntakeKind::Usual).await {
                    HandOverResult::Durable(_) | HandOverResult::Duplicate(_) => Ok(()),
                    HandOverResult::Refused { first } => {
                        let schedule = emission.name.as_str();
                        tracing::info!(schedule, %fire, %first, "schedule fire already emitted with different content");
                        Ok(())
                    }
                    HandOverResult::Invalid(violation) => {
                        let schedule = emission.name.as_str();
                        tracing::error!(schedule, %fire, %violation, "schedule event refused");
                        Ok(())
                    }
                    HandOverResult::Busy(error) => Err(error.to_string()),
                }
            }
            ScheduledAction::BringBack => {
                let cron = plan.schedule.cron();
                self.bring_letters_back(Occasion::Cron(cron)).await.map_err(|error| error.to_string())
            }
        }
    }

    async fn do_job(&self, name: &str, task: ScheduleTask) -> Result<(), String> {
        let memo = match task {
            ScheduleTask::Fire { plan, fire, memo } => {
                self.fire(&plan, fire).await?;
                Some(memo)
            }
            ScheduleTask::Remember(memo) => memo,
        };
        self.set_memo(name, memo).await.map_err(|error| error.to_string())
    }
}

pub(super) async fn run(node: Weak<NodeShared>, mut runner: ScheduleRunner) {
    let Some(register) = recall(&node, REGISTER).await else { return };
    let mut desk = ScheduleStates::new(register.as_deref());
    let mut jobs: JoinSet<(String, Result<(), String>)> = JoinSet::new();
    // First, plans that left the book are forgotten.
    if change(&node, &mut desk, &mut runner).await.is_none() {
        return;
    }
    loop {
        desk.look(runner.wall.now());
        for job in desk.jobs(Instant::now()) {
            let Some(shared) = node.upgrade() else { return };
            jobs.spawn(attempt(Node { shared }, job));
        }
        runner.views.send_replace(desk.views());
        let wait = wait(&desk, runner.wall.now());
        tokio::select! {
            biased;
            changed = runner.books.changed() => {
                if changed.is_err() {
                    return;
                }
                // Running jobs end first, or they could be recorded after they are forgotten.
                while let Some(ended) = jobs.join_next().await {
                    end(&mut desk, ended);
                }
                if change(&node, &mut desk, &mut runner).await.is_none() {
                    return;
                }
            }
            Some(ended) = jobs.join_next() => end(&mut desk, ended),
            () = runner.wall.wait(wait) => {}
        }
    }
}

async fn attempt(node: Node, ScheduleJob { name, task }: ScheduleJob) -> (String, Result<(), String>) {
    let outcome = tokio::time::timeout(TRY_MAX, node.do_job(&name, task)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("no write within {TRY_MAX:?}")));
    (name, outcome)
}

fn end(desk: &mut ScheduleStates, ended: Result<(String, Result<(), String>), tokio::task::JoinError>) {
    match ended {
        Ok((name, outcome)) => desk.ended(&name, outcome, Instant::now()),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // An aborted task belongs to a runtime that is shutting down.
        Err(_) => {}
    }
}

fn wait(desk: &ScheduleStates, now: Timestamp) -> Duration {
    let (fire, again) = desk.wakes();
    let fire = fire.map(|at| at.since(now));
    let again = again.map(|at| at.saturating_duration_since(Instant::now()));
    [fire, again].into_iter().flatten().fold(WAIT_MAX, Duration::min)
}

/// Switches to the newest book; none when the node is gone.
async fn change(
    node: &Weak<NodeShared>,
    desk: &mut ScheduleStates,
    runner: &mut ScheduleRunner,
) -> Option<()> {
    let active = Arc::clone(&runner.books.borrow_and_update());
    let mut remembered = Vec::new();
    for plan in plans(&active.book) {
        let name = plan.memo_name();
        let memo = if desk.knows(&name) { None } else { recall(node, &name).await? };
        remembered.push((plan, memo));
    }
    desk.take(remembered, runner.wall.now());
    node.upgrade()?.followers.reach("schedules", active.generation);
    Some(())
}

//! Does what the rule book wants done at times: emits the events of schedules, and brings dead letters back.
//!
//! An event goes the way of every other, under an id made of schedule and fire time; only when it is durable
//! is it remembered that the fire is dealt with. A crash in between emits it again, and it is known for the
//! same event. The time is that of the machine's clock, not the node's, which goes on as before when that is
//! set: what a schedule names is what clocks show.
//!
//! Invariant: a wait is never longer than [`WAIT_MAX`], so that a clock that was set, or a machine that slept,
//! is noticed.

mod desk;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use redrive_core::letters::reprocess::Occasion;
use redrive_core::schedule::plan::{Act, Plan, plans};
use redrive_core::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::desk::{Desk, Job, REGISTER, Task};
use super::active_book::ActiveBooks;
use super::{Handed, Node, Shared, Way};
use redrive::clock::wall_clock;

/// The longest wait before the machine's clock is looked at again.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// How long one try to make a fire durable may take; one that takes longer is tried again under the same id.
const TRY_MAX: Duration = Duration::from_secs(30);
/// How long to wait before memos are read again that could not be.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How a schedule stands.
#[derive(Clone, Debug)]
pub struct ScheduleView {
    /// What is done, and when.
    pub plan: Arc<Plan>,
    /// The latest fire that is durable.
    pub last_fire: Option<Timestamp>,
    /// The next one; none if there is none.
    pub next_fire: Option<Timestamp>,
    /// Fires that are due and not durable.
    pub waiting: u64,
    /// Missed fires that were caught up.
    pub caught_up: u64,
    /// Missed fires that were not.
    pub lost: u64,
    /// Why the last try failed, if it did.
    pub trouble: Option<String>,
}

/// The node's side: sees how schedules stand.
pub(super) struct Schedules {
    views: watch::Receiver<Arc<[ScheduleView]>>,
}

/// The other side, which runs.
pub(super) struct Runner {
    books: ActiveBooks,
    views: watch::Sender<Arc<[ScheduleView]>>,
    wall: Wall,
}

/// The clock that schedules go by.
pub(super) enum Wall {
    /// The machine's.
    Machine,
    /// One that a test sets.
    #[cfg(test)]
    Set(watch::Receiver<Timestamp>),
}

impl Schedules {
    pub(super) fn new(books: ActiveBooks, wall: Wall) -> (Self, Runner) {
        let (views, views_seen) = watch::channel(Arc::default());
        (Self { views: views_seen }, Runner { books, views, wall })
    }
}

impl Wall {
    fn now(&self) -> Timestamp {
        match self {
            Self::Machine => wall_clock(),
            #[cfg(test)]
            Self::Set(clock) => *clock.borrow(),
        }
    }

    /// Waits for that long, or until somebody has set the clock and can tell.
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
    /// How the schedules of the rule book stand.
    #[must_use]
    pub fn schedules(&self) -> Arc<[ScheduleView]> {
        Arc::clone(&self.shared.schedules.views.borrow())
    }

    async fn fire(&self, plan: &Plan, fire: Timestamp) -> Result<(), String> {
        match &plan.act {
            Act::Emit(emission) => match self.hand_over(emission.event(fire), Way::Usual).await {
                Handed::Durable(_) | Handed::Duplicate(_) => Ok(()),
                Handed::Refused { first } => {
                    let schedule = emission.name.as_str();
                    tracing::info!(schedule, %fire, %first, "a fire was emitted before, with other content");
                    Ok(())
                }
                Handed::Busy(error) => Err(error.to_string()),
            },
            Act::BringBack => {
                let cron = plan.schedule.cron();
                self.bring_letters_back(Occasion::Cron(cron)).await.map_err(|error| error.to_string())
            }
        }
    }

    async fn do_job(&self, name: &str, task: Task) -> Result<(), String> {
        let memo = match task {
            Task::Fire { plan, fire, memo } => {
                self.fire(&plan, fire).await?;
                Some(memo)
            }
            Task::Remember(memo) => memo,
        };
        self.set_memo(name, memo).await.map_err(|error| error.to_string())
    }
}

/// Carries out plans for as long as the node lives.
pub(super) async fn run(node: Weak<Shared>, mut runner: Runner) {
    let Some(register) = recall(&node, REGISTER).await else { return };
    let mut desk = Desk::new(register.as_deref());
    let mut jobs: JoinSet<(String, Result<(), String>)> = JoinSet::new();
    // Before anything is done: what is not in the book is forgotten.
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
                // What is on its way ends first, or it could be remembered after it is forgotten.
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

async fn attempt(node: Node, Job { name, task }: Job) -> (String, Result<(), String>) {
    let outcome = tokio::time::timeout(TRY_MAX, node.do_job(&name, task)).await;
    let outcome = outcome.unwrap_or_else(|_| Err(format!("nothing was written within {TRY_MAX:?}")));
    (name, outcome)
}

fn end(desk: &mut Desk, ended: Result<(String, Result<(), String>), tokio::task::JoinError>) {
    match ended {
        Ok((name, outcome)) => desk.ended(&name, outcome, Instant::now()),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // An aborted task belongs to a runtime that is going away.
        Err(_) => {}
    }
}

/// How long nothing can happen.
fn wait(desk: &Desk, now: Timestamp) -> Duration {
    let (fire, again) = desk.wakes();
    let fire = fire.map(|at| at.since(now));
    let again = again.map(|at| at.saturating_duration_since(Instant::now()));
    [fire, again].into_iter().flatten().fold(WAIT_MAX, Duration::min)
}

/// Goes by the newest book from now on; none when the node is gone.
async fn change(node: &Weak<Shared>, desk: &mut Desk, runner: &mut Runner) -> Option<()> {
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

/// What is remembered under a name, however long it takes to read; none when the node is gone.
async fn recall(node: &Weak<Shared>, name: &str) -> Option<Option<String>> {
    loop {
        match (Node { shared: node.upgrade()? }).memo(name).await {
            Ok(memo) => return Some(memo),
            Err(error) => {
                tracing::warn!(%error, "what is known of schedules could not be read; it is tried again");
            }
        }
        tokio::time::sleep(READ_AGAIN_AFTER).await;
    }
}

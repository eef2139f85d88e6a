//! The state of every schedule and its next job; pure, with the time passed in.
//!
//! Invariants: a due fire stays due until it is durable or counted as lost; each plan runs one job at a time,
//! oldest fire first; the stored state never runs ahead of what is durable.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::limits;
use redrive_core::schedule::CronSchedule;
use redrive_core::schedule::plan::ScheduledJob;
use redrive_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::ScheduleView;
use redrive::clock::STEP_MIN;

/// The memo with the names of all plans, so that plans removed while the server is down are forgotten too.
pub(super) const REGISTER: &str = "schedules";
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct ScheduleStates {
    entries: BTreeMap<String, PlanEntry>,
    register: PlanRegister,
}

struct PlanEntry {
    state: PlanState,
    turn: JobSlot,
}

enum PlanState {
    Watched(Box<ActivePlan>),
    /// Not in the book any more, and to be forgotten.
    Leaving,
}

struct ActivePlan {
    plan: Arc<ScheduledJob>,
    /// Up to when the due fires are known.
    decided_until: Timestamp,
    /// Due fires that are not durable, oldest first.
    queue: VecDeque<QueuedFire>,
    next: Option<Timestamp>,
    figures: PlanFigures,
    /// Whether the memo is out of date.
    memory: MemoState,
}

#[derive(Clone, Copy)]
struct QueuedFire {
    at: Timestamp,
    kind: FireKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FireKind {
    OnTime,
    CaughtUp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoState {
    Fresh,
    Stale,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanFigures {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_fire: Option<Timestamp>,
    #[serde(default)]
    pub(super) caught_up: u64,
    #[serde(default)]
    pub(super) lost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlanMemo {
    /// Another cron or zone starts anew.
    pub(super) cron: String,
    pub(super) zone: String,
    /// Every fire up to then is durable or lost.
    pub(super) until: Timestamp,
    #[serde(flatten)]
    pub(super) figures: PlanFigures,
}

#[derive(Default)]
struct PlanRegister {
    written: BTreeSet<String>,
    turn: JobSlot,
}

/// The running job, and when to retry.
#[derive(Default)]
struct JobSlot {
    doing: RunningJob,
    failures: u32,
    not_before: Option<Instant>,
    trouble: Option<String>,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum RunningJob {
    #[default]
    Nothing,
    Fire,
    /// The memo being written.
    Remember(Option<String>),
}

pub(super) struct ScheduleJob {
    pub(super) name: String,
    pub(super) task: ScheduleTask,
}

pub(super) enum ScheduleTask {
    Fire {
        plan: Arc<ScheduledJob>,
        fire: Timestamp,
        memo: String,
    },
    /// Store the memo; none deletes it.
    Remember(Option<String>),
}

impl ScheduleStates {
    /// With the names that an earlier run stored.
    pub(super) fn new(register: Option<&str>) -> Self {
        let known = register.and_then(|text| serde_json::from_str::<BTreeSet<String>>(text).ok());
        let written = known.unwrap_or_default();
        let leaving =
            |name: &String| (name.clone(), PlanEntry { state: PlanState::Leaving, turn: JobSlot::default() });
        Self {
            entries: written.iter().map(leaving).collect(),
            register: PlanRegister { written, turn: JobSlot::default() },
        }
    }

    /// The plans of a new book, each with its memo if it is not known yet.
    pub(super) fn take(&mut self, plans: Vec<(ScheduledJob, Option<String>)>, now: Timestamp) {
        let mut before = std::mem::take(&mut self.entries);
        for (plan, memo) in plans {
            let name = plan.memo_name();
            let entry = match before.remove(&name) {
                Some(PlanEntry { state: PlanState::Watched(watched), turn }) => {
                    PlanEntry { state: PlanState::Watched(Box::new(watched.changed(plan, now))), turn }
                }
                Some(PlanEntry { state: PlanState::Leaving, .. }) | None => {
                    let memo = memo.and_then(|text| serde_json::from_str(&text).ok());
                    let watched = Box::new(ActivePlan::new(plan, memo, now));
                    PlanEntry { state: PlanState::Watched(watched), turn: JobSlot::default() }
                }
            };
            self.entries.insert(name, entry);
        }
        for (name, entry) in before {
            self.entries.insert(name, PlanEntry { state: PlanState::Leaving, turn: entry.turn });
        }
    }

    /// Whether the plan is known, so its memo need not be read.
    pub(super) fn knows(&self, name: &str) -> bool {
        matches!(self.entries.get(name), Some(PlanEntry { state: PlanState::Watched(_), .. }))
    }

    pub(super) fn look(&mut self, now: Timestamp) {
        for (name, entry) in &mut self.entries {
            if let PlanState::Watched(watched) = &mut entry.state {
                watched.look(name, &entry.turn, now);
            }
        }
    }

    /// The jobs that can run now; they count as running.
    pub(super) fn jobs(&mut self, now: Instant) -> Vec<ScheduleJob> {
        let mut jobs = Vec::new();
        for (name, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.turn.is_free(now)) {
            let task = match &mut entry.state {
                PlanState::Watched(watched) => watched.task(),
                PlanState::Leaving => Some(ScheduleTask::Remember(None)),
            };
            if let Some(task) = task {
                entry.turn.doing = RunningJob::of(&task);
                jobs.push(ScheduleJob { name: name.clone(), task });
            }
        }
        let names = || self.entries.keys().cloned().collect::<BTreeSet<_>>();
        if self.register.turn.is_free(now) && !self.register.written.iter().eq(self.entries.keys()) {
            let text = serde_json::to_string(&names()).expect("names are always JSON");
            let task = ScheduleTask::Remember(Some(text));
            self.register.turn.doing = RunningJob::of(&task);
            jobs.push(ScheduleJob { name: REGISTER.to_owned(), task });
        }
        jobs
    }

    pub(super) fn ended(&mut self, name: &str, outcome: Result<(), String>, now: Instant) {
        if name == REGISTER {
            if let Some(RunningJob::Remember(Some(text))) = self.register.turn.end(name, outcome, now) {
                self.register.written = serde_json::from_str(&text).unwrap_or_default();
            }
            return;
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(done) = entry.turn.end(name, outcome, now) else { return };
        match (&mut entry.state, done) {
            (PlanState::Watched(watched), RunningJob::Fire) => watched.fired(),
            (PlanState::Watched(watched), RunningJob::Remember(Some(memo))) if memo == watched.memo() => {
                watched.memory = MemoState::Fresh;
            }
            (PlanState::Leaving, RunningJob::Remember(None)) => {
                self.entries.remove(name);
            }
            // The plan has changed since, so the result does not apply.
            (
                PlanState::Watched(_) | PlanState::Leaving,
                RunningJob::Remember(_) | RunningJob::Fire | RunningJob::Nothing,
            ) => {}
        }
    }

    /// The next fire by the machine's clock, and the next retry.
    pub(super) fn wakes(&self) -> (Option<Timestamp>, Option<Instant>) {
        let watched = self.entries.values().filter_map(|entry| match &entry.state {
            PlanState::Watched(watched) => watched.next,
            PlanState::Leaving => None,
        });
        let turns = self.entries.values().map(|entry| &entry.turn).chain([&self.register.turn]);
        (watched.min(), turns.filter_map(|turn| turn.not_before).min())
    }

    pub(super) fn views(&self) -> Arc<[ScheduleView]> {
        let views = self.entries.values().filter_map(|entry| match &entry.state {
            PlanState::Watched(watched) => Some(ScheduleView {
                plan: Arc::clone(&watched.plan),
                last_fire: watched.figures.last_fire,
                next_fire: watched.next,
                waiting: watched.queue.len() as u64,
                caught_up: watched.figures.caught_up,
                lost: watched.figures.lost,
                trouble: entry.turn.trouble.clone(),
            }),
            PlanState::Leaving => None,
        });
        views.collect()
    }
}

impl ActivePlan {
    fn new(plan: ScheduledJob, memo: Option<PlanMemo>, now: Timestamp) -> Self {
        let memo = memo.filter(|memo| is_of(memo, &plan.schedule));
        // A new plan has missed nothing.
        let memory = if memo.is_some() { MemoState::Fresh } else { MemoState::Stale };
        let decided_until = memo.as_ref().map_or(now, |memo| memo.until);
        Self {
            next: plan.schedule.next_after(decided_until),
            plan: Arc::new(plan),
            decided_until,
            queue: VecDeque::new(),
            figures: memo.map(|memo| memo.figures).unwrap_or_default(),
            memory,
        }
    }

    /// The plan as a new book states it. Another cron starts now; due fires stay due.
    fn changed(mut self, plan: ScheduledJob, now: Timestamp) -> Self {
        if plan.schedule != self.plan.schedule {
            self.decided_until = now;
            self.memory = MemoState::Stale;
            self.next = plan.schedule.next_after(now);
        }
        self.plan = Arc::new(plan);
        self
    }

    fn look(&mut self, name: &str, turn: &JobSlot, now: Timestamp) {
        if now + STEP_MIN < self.decided_until {
            // Repeated fires have the same ids, so they are absorbed.
            tracing::warn!(plan = name, "system clock moved back, schedule continues from there");
            self.decided_until = now;
            self.memory = MemoState::Stale;
        } else if self.next.is_none_or(|next| now < next) {
            return;
        }
        let due = self.plan.schedule.due(self.decided_until, now, self.plan.catch_up);
        if due.lost > 0 || due.caught_up > 0 {
            let (caught_up, lost) = (due.caught_up, due.lost);
            tracing::warn!(plan = name, caught_up, lost, "schedule fires missed");
        }
        self.figures.lost += due.lost;
        if due.lost > 0 {
            self.memory = MemoState::Stale;
        }
        for (place, at) in (0..).zip(due.fires) {
            let kind = if place < due.caught_up { FireKind::CaughtUp } else { FireKind::OnTime };
            self.queue.push_back(QueuedFire { at, kind });
        }
        self.decided_until = self.decided_until.max(now);
        self.next = self.plan.schedule.next_after(self.decided_until);
        self.bound(name, turn);
    }

    /// Bounds the queue: the oldest fires are lost, except one that is running.
    fn bound(&mut self, name: &str, turn: &JobSlot) {
        let too_many = self.queue.len().saturating_sub(limits::FIRES_CAUGHT_UP_MAX);
        if too_many > 0 {
            tracing::warn!(plan = name, lost = too_many, "too many schedule fires waiting, oldest dropped");
            let oldest = usize::from(turn.doing == RunningJob::Fire);
            self.queue.drain(oldest..oldest + too_many);
            self.figures.lost += too_many as u64;
        }
    }

    fn task(&self) -> Option<ScheduleTask> {
        match self.queue.front() {
            Some(fire) => {
                let memo = self.memo_after(*fire);
                Some(ScheduleTask::Fire { plan: Arc::clone(&self.plan), fire: fire.at, memo: text_of(&memo) })
            }
            None if self.memory == MemoState::Stale => Some(ScheduleTask::Remember(Some(self.memo()))),
            None => None,
        }
    }

    fn memo(&self) -> String {
        text_of(&self.memo_until(self.decided_until, self.figures))
    }

    fn memo_until(&self, until: Timestamp, figures: PlanFigures) -> PlanMemo {
        let schedule = &self.plan.schedule;
        PlanMemo { cron: schedule.cron().to_owned(), zone: schedule.zone().to_owned(), until, figures }
    }

    /// The memo once the first fire is durable.
    fn memo_after(&self, fire: QueuedFire) -> PlanMemo {
        // Fires behind it are not done.
        let until = if self.queue.len() == 1 { self.decided_until } else { fire.at };
        self.memo_until(until, self.figures_after(fire))
    }

    fn figures_after(&self, fire: QueuedFire) -> PlanFigures {
        let PlanFigures { last_fire, caught_up, lost } = self.figures;
        PlanFigures {
            last_fire: last_fire.max(Some(fire.at)),
            caught_up: caught_up + u64::from(fire.kind == FireKind::CaughtUp),
            lost,
        }
    }

    /// The first fire and its memo are durable.
    fn fired(&mut self) {
        let Some(fire) = self.queue.front().copied() else { return };
        self.figures = self.figures_after(fire);
        self.queue.pop_front();
    }
}

fn is_of(memo: &PlanMemo, schedule: &CronSchedule) -> bool {
    memo.cron == schedule.cron() && memo.zone == schedule.zone()
}

fn text_of(memo: &PlanMemo) -> String {
    serde_json::to_string(memo).expect("texts and numbers are always JSON")
}

impl RunningJob {
    fn of(task: &ScheduleTask) -> Self {
        match task {
            ScheduleTask::Fire { .. } => Self::Fire,
            ScheduleTask::Remember(text) => Self::Remember(text.clone()),
        }
    }
}

impl JobSlot {
    fn is_free(&self, now: Instant) -> bool {
        self.doing == RunningJob::Nothing && self.not_before.is_none_or(|at| at <= now)
    }

    /// The finished job; none if it failed and will be retried.
    fn end(&mut self, name: &str, outcome: Result<(), String>, now: Instant) -> Option<RunningJob> {
        let doing = std::mem::take(&mut self.doing);
        match outcome {
            Ok(()) => {
                *self = Self::default();
                Some(doing)
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(plan = name, error, "schedule failed, retrying");
                }
                let wait = AGAIN_AFTER.saturating_mul(1 << self.failures.min(10)).min(AGAIN_AFTER_MAX);
                self.failures += 1;
                self.not_before = Some(now + wait);
                self.trouble = Some(error);
                None
            }
        }
    }
}

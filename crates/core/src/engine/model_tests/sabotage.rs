//! Ways to break the engine on purpose: a checker that does not notice them proves nothing.
//!
//! The engine itself has no branch for them. A [`SabotagedEngine`] stands around it, tampers with what goes in,
//! with what is kept inside and with what comes out. Where the logic lives in the model store, the store
//! is broken instead.

use std::sync::Arc;

use crate::engine::dependency::EngineDependency;
use crate::engine::replays::NEVER_SENT;
use crate::engine::{
    Absences, CallId, DependencyPlace, Effect, Ending, Engine, Input, LoadScope, LoadedPage, NextState,
    PendingDelivery, QueuePlace, SessionFollowers, Settlement, SettlementResult, SettlingStage, Setup,
};
use crate::letters::envelope::Tier;
use crate::letters::replay::{Manner, ReplayJob, ReplayState};
use crate::limits;
use crate::policy::breaker::BreakerState;
use crate::policy::rule::Rule;
use crate::time::Timestamp;

/// One way to break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// What comes from a page or from the writer is taken though it is in memory already.
    TakesTwice,
    /// A delivery is let go of when its call is over, not when that is durable.
    SettlesEarly,
    /// A half-open breaker lets more than its probes through.
    ProbesTwice,
    /// An open breaker lets calls through.
    IgnoresBreaker,
    /// A paused service goes on.
    IgnoresPause,
    /// Who comes next in a session is forgotten.
    ForgetsSession,
    /// What did not fit into memory is forgotten.
    ForgetsBacklog,
    /// What waits for its time on disk is forgotten.
    ForgetsDue,
    /// A retry starts at once.
    RetriesAtOnce,
    /// What has used up its retries gets another.
    RetriesForEver,
    /// Calls start while the store takes no writes.
    StartsUnsettled,
    /// A wait that the other side asked for is not kept.
    IgnoresRetryAfter,
    /// One service may take all calls.
    SharesNothing,
    /// What is in memory is lost when a book is read.
    ForgetsOnReload,
    /// Time in which Redrive was away uses up windows.
    CountsAbsence,
    /// After the store was away nothing is loaded again.
    ForgetsHealing,
    /// An outcome is never written.
    LosesOutcome,
    /// What waited for a rule is not looked for when it is released.
    ForgetsReleased,
    /// A replay that is halted goes on; the store lets it.
    ReplaysThroughPause,
    /// A canary goes on though its letters fail.
    NeverStopsCanary,
    /// A canary begins with the rest.
    SkipsWaves,
    /// A replay goes as fast as it can.
    IgnoresRate,
    /// A replay has any number of letters on their way.
    IgnoresConcurrency,
    /// A letter that fails a replay is no poison.
    KeepsTier,
    /// A step whose answer was lost is taken again; the store lets it.
    RepeatsSteps,
    /// What a replay came to while the store was away is not looked up.
    ForgetsReplays,
    /// A dead letter that should hold its session does not.
    LetsFollowersGo,
    /// The store has a letter start beside the head of its session.
    OvertakesHead,
    /// The store sends letters of a session after one of them has failed.
    GoesOnInFailedSession,
    /// The store forgets who waited behind a letter that is purged.
    ForgetsToPromote,
    /// The store has an edited letter wait behind its followers.
    EditsGoLast,
    /// The store gives a letter to two replays.
    IgnoresClaims,
}

impl Sabotage {
    /// All of them.
    pub(super) const ALL: [Self; 32] = [
        Self::TakesTwice,
        Self::SettlesEarly,
        Self::ProbesTwice,
        Self::IgnoresBreaker,
        Self::IgnoresPause,
        Self::ForgetsSession,
        Self::ForgetsBacklog,
        Self::ForgetsDue,
        Self::RetriesAtOnce,
        Self::RetriesForEver,
        Self::StartsUnsettled,
        Self::IgnoresRetryAfter,
        Self::SharesNothing,
        Self::ForgetsOnReload,
        Self::CountsAbsence,
        Self::ForgetsHealing,
        Self::LosesOutcome,
        Self::ForgetsReleased,
        Self::ReplaysThroughPause,
        Self::NeverStopsCanary,
        Self::SkipsWaves,
        Self::IgnoresRate,
        Self::IgnoresConcurrency,
        Self::KeepsTier,
        Self::RepeatsSteps,
        Self::ForgetsReplays,
        Self::LetsFollowersGo,
        Self::OvertakesHead,
        Self::GoesOnInFailedSession,
        Self::ForgetsToPromote,
        Self::EditsGoLast,
        Self::IgnoresClaims,
    ];
}

/// The engine, broken in one way or in none.
pub(super) struct SabotagedEngine {
    engine: Engine,
    way: Option<Sabotage>,
}

impl SabotagedEngine {
    pub(super) fn new(mut setup: Setup, way: Option<Sabotage>) -> Self {
        if let Some(way) = way {
            setup.replays.iter_mut().for_each(|job| alter_replay(way, job));
        }
        Self { engine: Engine::new(setup), way }
    }

    /// See [`Engine::handle`].
    pub(super) fn handle(&mut self, mut input: Input, now: Timestamp) {
        let Some(way) = self.way else { return self.engine.handle(input, now) };
        self.alter_engine(way, now);
        self.prepare_for(way, &input, now);
        alter_input(way, &mut input);
        match (way, input) {
            (Sabotage::SettlesEarly, Input::Ended { call, ending: ending @ Ending::Reply(_) }) => {
                self.end_and_settle(call, ending, now);
            }
            (Sabotage::StartsUnsettled, input)
                if !matches!(input, Input::StoreFailing | Input::StoreHealed) =>
            {
                let failing_since = self.engine.store_failing_since.take();
                self.engine.handle(input, now);
                self.engine.store_failing_since = failing_since;
            }
            (Sabotage::ForgetsHealing, Input::StoreHealed) => self.heal_without_a_look(now),
            (_, input) => self.engine.handle(input, now),
        }
    }

    /// See [`Engine::next_effect`].
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        let effect = self.engine.next_effect()?;
        let Some(way) = self.way else { return Some(effect) };
        match effect {
            Effect::Settle(settlement)
                if way == Sabotage::LosesOutcome && settlement.delivery.content().is_multiple_of(64) =>
            {
                self.next_effect()
            }
            Effect::Settle(settlement) => Some(Effect::Settle(self.alter_settlement(way, settlement))),
            Effect::Advance(advance)
                if way == Sabotage::ForgetsReplays && advance.sent_before == NEVER_SENT =>
            {
                self.next_effect()
            }
            Effect::Advance(mut advance) if way == Sabotage::RepeatsSteps => {
                advance.letters_max = advance.letters_max.max(1);
                Some(Effect::Advance(advance))
            }
            effect => Some(effect),
        }
    }

    /// Changes what the engine remembers, whatever comes next.
    fn alter_engine(&mut self, way: Sabotage, now: Timestamp) {
        match way {
            Sabotage::ProbesTwice => {
                self.pass_breakers(now, |state| matches!(state, BreakerState::HalfOpen { .. }));
            }
            Sabotage::IgnoresBreaker => {
                self.pass_breakers(now, |state| !matches!(state, BreakerState::Closed { .. }));
            }
            Sabotage::IgnoresPause => self.resume_all(),
            Sabotage::SharesNothing => self.engine.shares.lend_all(self.engine.bounds.calls),
            Sabotage::CountsAbsence => self.engine.absences = Absences::new(),
            _ => {}
        }
    }

    /// Changes what the engine remembers of what the input is about.
    fn prepare_for(&mut self, way: Sabotage, input: &Input, now: Timestamp) {
        match (way, input) {
            (Sabotage::TakesTwice, Input::Accepted(rows) | Input::Loaded(LoadedPage { rows, .. })) => {
                self.forget_known(rows);
            }
            (Sabotage::TakesTwice, Input::Settled { promoted: Some(row), .. }) => {
                self.forget_known(std::slice::from_ref(row));
            }
            (Sabotage::RetriesAtOnce, Input::Settled { delivery, .. }) => {
                let settling = self.engine.settling.get_mut(&delivery.seq());
                if let Some(settling) = settling
                    && matches!(settling.settlement.next, NextState::Due { at } if at < Timestamp::NEVER)
                {
                    Arc::make_mut(&mut settling.settlement).next = NextState::Due { at: now };
                }
            }
            (Sabotage::ForgetsOnReload, Input::Book(book)) if book.hash() != self.engine.book.hash() => {
                // Timers may still need the lines.
                self.engine.fire_timers(now);
                for queue in &mut self.engine.queues {
                    queue.take_all();
                }
            }
            _ => {}
        }
    }

    /// Takes the breaker out of the rules of all that waits behind one in such a state.
    fn pass_breakers(&mut self, now: Timestamp, is_meant: fn(BreakerState) -> bool) {
        let open_to_all = |dependency: &EngineDependency| is_meant(dependency.control.breaker().state(now));
        let passed: Vec<bool> = self.engine.dependencies.iter().map(open_to_all).collect();
        let lines = self.engine.queues.iter_mut().flat_map(|queue| &mut queue.lines);
        for line in lines.filter(|line| passed[line.dependency.0]) {
            for ready in &mut line.ready {
                ready.rule = Arc::new(Rule { breaker: None, ..(*ready.rule).clone() });
            }
        }
        for place in (0..passed.len()).filter(|place| passed[*place]) {
            self.engine.wake_all(DependencyPlace(place));
        }
    }

    fn resume_all(&mut self) {
        for service in &mut self.engine.services {
            service.pauses.retain(|(_, until)| until.is_some());
        }
        for place in (0..self.engine.queues.len()).map(QueuePlace) {
            self.engine.wake_lines(place);
        }
    }

    fn forget_known(&mut self, rows: &[PendingDelivery]) {
        for row in rows {
            let place = self.engine.queue(&row.queue);
            self.engine.forget(place, row.id.seq());
        }
    }

    /// The engine hears that what the call carried is settled before the store has it.
    fn end_and_settle(&mut self, call: CallId, ending: Ending, now: Timestamp) {
        let carried = self.engine.calls.get(&call).map(|in_flight| Arc::clone(&in_flight.call));
        self.engine.handle(Input::Ended { call, ending }, now);
        for row in carried.iter().flat_map(|call| &call.deliveries) {
            let settled =
                Input::Settled { delivery: row.id, fate: SettlementResult::Written, promoted: None };
            self.engine.handle(settled, now);
        }
    }

    /// As the engine does it, but no queue is explored.
    fn heal_without_a_look(&mut self, now: Timestamp) {
        self.engine.fire_timers(now);
        if let Some(since) = self.engine.store_failing_since.take() {
            self.engine.absences.add(since, now);
        }
        self.engine.replays.store_healed();
        for place in (0..self.engine.queues.len()).map(QueuePlace) {
            self.engine.look_for_more(place, now);
            self.engine.wake_lines(place);
        }
        self.engine.finish(now);
    }

    /// Changes a settlement on its way to the store, and the engine's own copy of it.
    fn alter_settlement(&mut self, way: Sabotage, mut settlement: Arc<Settlement>) -> Arc<Settlement> {
        let Some(settling) = self.engine.settling.get_mut(&settlement.delivery.seq()) else {
            return settlement;
        };
        let Settlement { next, stop, at, .. } = Arc::make_mut(&mut settlement);
        match (way, next) {
            (Sabotage::RetriesForEver, next @ NextState::Dead(_))
                if matches!(settling.stage, SettlingStage::Over { .. }) =>
            {
                (*next, *stop) = (NextState::Due { at: *at }, None);
            }
            (Sabotage::NeverStopsCanary, _) => *stop = None,
            (Sabotage::KeepsTier, NextState::Dead(info)) if settling.waiting.replaying.is_some() => {
                info.tier = Tier::Dead;
            }
            (Sabotage::LetsFollowersGo, NextState::Dead(info)) => info.followers = SessionFollowers::Continue,
            _ => {}
        }
        settling.settlement = Arc::clone(&settlement);
        settlement
    }
}

/// Changes what the engine hears.
fn alter_input(way: Sabotage, input: &mut Input) {
    match (way, &mut *input) {
        (_, Input::Replay(job) | Input::Advanced { job, .. }) => alter_replay(way, job),
        (Sabotage::ForgetsSession, Input::Settled { promoted, .. }) => *promoted = None,
        (Sabotage::ForgetsReleased, Input::Released(_)) => *input = Input::Tick,
        (Sabotage::IgnoresRetryAfter, Input::Ended { ending: Ending::Reply(reply), .. }) => {
            reply.retry_after = None;
        }
        (Sabotage::ForgetsBacklog, Input::Loaded(page)) if matches!(page.wanted, LoadScope::Ready { .. }) => {
            page.more = false;
        }
        (Sabotage::ForgetsDue, Input::Loaded(page)) if matches!(page.wanted, LoadScope::Due { .. }) => {
            (page.more, page.next_due_at) = (false, None);
        }
        _ => {}
    }
}

/// Changes what the engine hears of a replay.
fn alter_replay(way: Sabotage, job: &mut ReplayJob) {
    match way {
        Sabotage::ReplaysThroughPause if matches!(job.state, ReplayState::Paused | ReplayState::Stopped) => {
            job.state = ReplayState::Running;
        }
        Sabotage::SkipsWaves => job.pace.manner = Manner::Straight,
        Sabotage::IgnoresRate => job.pace.rate = None,
        Sabotage::IgnoresConcurrency => job.pace.concurrency = limits::REPLAY_CONCURRENCY_DEFAULT,
        _ => {}
    }
}

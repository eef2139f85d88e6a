//! Ways to break the engine on purpose, or the simulated store where the logic lives there. Only tests can
//! ask for one: a checker that does not notice them proves nothing.

use super::Engine;

/// One way to break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests ask for one"))]
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
    /// After the store was away nobody looks what it has.
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

#[cfg(test)]
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

    /// Whether it lets a call through though the breaker is in that state.
    pub(super) const fn passes(self, state: crate::policy::breaker::State) -> bool {
        use crate::policy::breaker::State;
        match (self, state) {
            (Self::IgnoresBreaker, _) | (Self::ProbesTwice, State::HalfOpen { .. }) => true,
            (_, _) => false,
        }
    }
}

impl Engine {
    /// Breaks it.
    #[cfg(test)]
    pub(super) fn sabotage(&mut self, way: Sabotage) {
        self.sabotage = Some(way);
        self.divide_shares();
    }

    #[cfg(test)]
    pub(super) fn sabotaged_by(&self, way: Sabotage) -> bool {
        self.sabotage == Some(way)
    }

    #[cfg(not(test))]
    #[inline]
    #[expect(clippy::unused_self, reason = "the tests' own looks at it")]
    pub(super) const fn sabotaged_by(&self, _way: Sabotage) -> bool {
        false
    }
}

//! When to reconnect: by the delays and the breaker of the source's rule, without an end.
//!
//! Delays grow with each failure until a message is read: a connection that breaks at once is no better than
//! none. A failure that the rule would not retry waits by [`WAITS_LIKE`], since a source has no dead letters:
//! its messages wait upstream.

use redrive_core::limits;
use redrive_core::policy::breaker::{
    Admission, Breaker, BreakerPhase, CallEnd, Observation, Permit, Transition,
};
use redrive_core::policy::catalog;
use redrive_core::policy::category::Category;
use redrive_core::policy::classify::{Outcome, classify};
use redrive_core::policy::decide::is_counted_by_breakers;
use redrive_core::policy::rule::Rule;
use redrive_core::time::Timestamp;

use super::SourceError;

/// The catalog policy used where the rule has no delays.
const WAITS_LIKE: &str = "webhook";

#[derive(Debug, Default)]
pub(super) struct Reconnect {
    breaker: Breaker,
    /// Since the last message.
    failures: u32,
    wait_until: Option<Timestamp>,
}

#[derive(Debug)]
pub(super) enum ReconnectStep {
    Connect(Option<Permit>),
    Wait(Timestamp),
}

impl Reconnect {
    pub(super) fn turn(&mut self, rule: &Rule, now: Timestamp) -> ReconnectStep {
        if let Some(until) = self.wait_until.filter(|until| now < *until) {
            return ReconnectStep::Wait(until);
        }
        let Some(named) = &rule.breaker else { return ReconnectStep::Connect(None) };
        match self.breaker.admit(&named.settings, rule.timeouts.whole.first, now) {
            Admission::Allowed(permit) => ReconnectStep::Connect(Some(permit)),
            Admission::WaitUntil(until) => ReconnectStep::Wait(until),
        }
    }

    pub(super) fn connected(
        &mut self,
        permit: Option<Permit>,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<Transition> {
        self.settle(permit, Observation::Success, rule, now)
    }

    pub(super) const fn read(&mut self) {
        self.failures = 0;
    }

    pub(super) fn failed(
        &mut self,
        permit: Option<Permit>,
        error: &SourceError,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<Transition> {
        let permit = permit.or_else(|| match self.turn(rule, now) {
            ReconnectStep::Connect(permit) => permit,
            ReconnectStep::Wait(_) => None,
        });
        let failure = match classify(&error.as_answer(), &rule.classify, rule.timeouts.category) {
            Outcome::Failed(failure) => Some(failure),
            // A row of the book calls it a success: handled as an unknown failure.
            Outcome::Delivered { .. } => None,
        };
        let (category, status) =
            failure.as_ref().map_or((Category::Unknown, None), |failure| (failure.category, failure.status));
        let policy = rule.reactions.to(category, status).value.policy();
        let policy = policy.map(|index| &rule.reactions.policies()[usize::from(index.0)].backoff);
        let waits_like = || &catalog::policy(WAITS_LIKE).expect("the catalog has it").backoff;
        let backoff = policy.filter(|backoff| backoff.retries() > 0).unwrap_or_else(waits_like);
        let asked_for = error.retry_after.unwrap_or_default().min(limits::RETRY_AFTER_MAX);
        self.wait_until = Some(now + backoff.nominal(self.failures).max(asked_for));
        self.failures = self.failures.saturating_add(1);
        let is_counted = failure.is_some_and(|failure| is_counted_by_breakers(rule, &failure));
        let seen = if is_counted { Observation::Failure(CallEnd::Final) } else { Observation::Silent };
        self.settle(permit, seen, rule, now)
    }

    fn settle(
        &mut self,
        permit: Option<Permit>,
        seen: Observation,
        rule: &Rule,
        now: Timestamp,
    ) -> Option<Transition> {
        let (permit, named) = permit.zip(rule.breaker.as_ref())?;
        let transition = self.breaker.settle(permit, seen, &named.settings, now)?;
        (transition.to == BreakerPhase::Closed || transition.from == BreakerPhase::Closed)
            .then_some(transition)
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::read;
    use redrive_core::policy::answer::{BrokerError, ReplyKind};

    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn rule(book: &str) -> Rule {
        let book = read(&format!("version: 1\n{book}"), built_in()).book.expect("a book");
        book.source_rule("in").expect("a source")
    }

    fn failure(seen: BrokerError) -> SourceError {
        SourceError::new(ReplyKind::Broker(seen), String::new())
    }

    /// Each row: a time, the result of connecting, and the expected step.
    fn play(rule: &Rule, steps: &[(u64, Option<BrokerError>, &str)]) {
        let mut reconnect = Reconnect::default();
        for (number, (millis, outcome, expected)) in steps.iter().enumerate() {
            let now = at(*millis);
            let came_to = match reconnect.turn(rule, now) {
                ReconnectStep::Wait(until) => format!("wait {}", until.since(now).as_millis()),
                ReconnectStep::Connect(permit) => match outcome {
                    None => {
                        reconnect.connected(permit, rule, now);
                        reconnect.read();
                        "reads".to_owned()
                    }
                    Some(error) => {
                        reconnect.failed(permit, &failure(*error), rule, now);
                        "fails".to_owned()
                    }
                },
            };
            assert_eq!(came_to, *expected, "step {number}");
        }
    }

    const AWAY: Option<BrokerError> = Some(BrokerError::Unavailable);

    #[test]
    fn delays_and_breaker_are_those_of_the_dependency() {
        let stated = rule(
            "retry_policies: { few: { delays: [1s, 3s], retries: 2, jitter: none } }\nbreakers: { b: { trip: { consecutive: 3 }, open: 60s } }\ndependencies: { d: { kind: blob, retry: few, breaker: b } }\nsources: { in: { folder: /f, depends_on: d } }\n",
        );
        #[rustfmt::skip]
        play(&stated, &[
            (0,      AWAY, "fails"),
            (500,    AWAY, "wait 500"),
            (1_000,  AWAY, "fails"),
            (1_000,  AWAY, "wait 3000"),
            (4_000,  AWAY, "fails"),
            (10_000, AWAY, "wait 54000"),
            (64_000, None, "reads"),
            (65_000, AWAY, "fails"),
            (65_000, AWAY, "wait 1000"),
        ]);
    }

    #[test]
    fn what_the_rule_would_not_retry_is_waited_for_all_the_same() {
        let none = rule(
            "breakers: { b: { trip: { consecutive: 3 }, open: 60s } }\ndependencies: { d: { kind: blob, retry: none, breaker: none } }\nsources: { in: { folder: /f, depends_on: d } }\n",
        );
        let locked_out = Some(BrokerError::Unauthorized);
        #[rustfmt::skip]
        play(&none, &[
            (0,   AWAY,       "fails"),
            (0,   AWAY,       "wait 100"),
            (100, locked_out, "fails"),
            (100, AWAY,       "wait 200"),
            (300, None,       "reads"),
            (400, AWAY,       "fails"),
            (400, AWAY,       "wait 100"),
        ]);
    }
}

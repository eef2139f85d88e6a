//! How long the retries of a rule may take.
//!
//! Invariant: nothing here allocates, since it runs for every row; sums saturate instead of overflowing.

use std::time::Duration;

use redrive_core::book::resolve::{Resolved, RuleLevel, ValueOrigin};
use redrive_core::ids::Attempt;
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::catalog;
use redrive_core::policy::rule::{FailureMatch, GrowingTimeout, NamedPolicy, PolicyIndex, Reaction};

#[derive(Clone, Copy)]
pub(super) struct UsedPolicy<'r> {
    pub policy: &'r NamedPolicy,
    index: PolicyIndex,
    pub origin: ValueOrigin,
}

impl<'r> UsedPolicy<'r> {
    pub(super) const fn backoff(&self) -> &'r Backoff {
        &self.policy.backoff
    }
}

pub(super) fn is_of_the_catalog(used: &UsedPolicy<'_>) -> bool {
    catalog::policy(used.policy.name.as_str()).is_some_and(|entry| entry.backoff == used.policy.backoff)
}

/// The policies that a rule retries by, each once.
pub(super) fn policies<'r>(rule: &'r Resolved<'_>) -> impl Iterator<Item = UsedPolicy<'r>> {
    each_once(named(rule))
}

/// The same without built-in ones, except that for transient failures.
pub(super) fn chosen_policies<'r>(rule: &'r Resolved<'_>) -> impl Iterator<Item = UsedPolicy<'r>> {
    let transient = rule.retry_policy().map(|policy| &policy.name);
    let is_chosen = move |used: &UsedPolicy<'r>| {
        used.origin.level != RuleLevel::BuiltIn || Some(&used.policy.name) == transient
    };
    each_once(named(rule).filter(is_chosen))
}

/// Without unstated ones for `unknown` and `internal` failures: those get few retries whatever the policy says.
fn named<'r>(rule: &'r Resolved<'_>) -> impl Iterator<Item = UsedPolicy<'r>> {
    rule.reactions.iter().filter_map(|(on, known)| {
        let reactions = &rule.rule.reactions;
        let reaction = match *on {
            FailureMatch::Category(category) => reactions.to(category, None).value,
            FailureMatch::Status(range) => reactions
                .by_status()
                .iter()
                .find(|(known, _)| *known == range)
                .map(|(_, found)| found.value)?,
        };
        let index = match reaction {
            Reaction::Retry(index) => index,
            Reaction::RetryCautiously(_) | Reaction::DeadLetter | Reaction::Pause => return None,
        };
        let policy = reactions.policies().get(usize::from(index.0))?;
        (policy.backoff.retries() > 0).then_some(UsedPolicy { policy, index, origin: known.origin })
    })
}

const _: () = assert!(limits::POLICIES_PER_RULE_MAX <= u32::BITS as usize, "a bit for each policy of a rule");

fn each_once<'r>(used: impl Iterator<Item = UsedPolicy<'r>>) -> impl Iterator<Item = UsedPolicy<'r>> {
    let mut seen = 0_u32;
    used.filter(move |used| {
        let bit = 1 << used.index.0;
        let is_new = seen & bit == 0;
        seen |= bit;
        is_new
    })
}

/// From the start of the first attempt to the end of the last, if every attempt times out and jitter is longest.
pub(super) fn worst_case(backoff: &Backoff, timeout: &GrowingTimeout) -> Duration {
    let last = Attempt::new(backoff.retries().saturating_add(1)).unwrap_or(Attempt::FIRST);
    latest_start(backoff, timeout).saturating_add(timeout.limit(last))
}

/// From the start of the first attempt to the start of the last, in the same case.
pub(super) fn latest_start(backoff: &Backoff, timeout: &GrowingTimeout) -> Duration {
    let by_count = backoff.wait_max_total().saturating_add(limits_total(timeout, backoff.retries()));
    match backoff.window() {
        // The window runs from the first failure.
        Some(window) => by_count.min(timeout.first.saturating_add(window)),
        None => by_count,
    }
}

/// From the start of the first attempt to the start of the last, if every attempt fails at once and jitter is shortest.
pub(super) fn earliest_last_start(backoff: &Backoff) -> Duration {
    let by_count = backoff.wait_min_total();
    backoff.window().map_or(by_count, |window| by_count.min(window))
}

/// The longest delays of all retries together, if every attempt fails at once.
pub(super) fn wait_max(backoff: &Backoff) -> Duration {
    let by_count = backoff.wait_max_total();
    backoff.window().map_or(by_count, |window| by_count.min(window))
}

pub(super) fn longest_delay(backoff: &Backoff) -> Duration {
    let retries = usize::try_from(backoff.retries()).unwrap_or(usize::MAX);
    match backoff.listed() {
        Some(delays) => delays.iter().take(retries).copied().max().unwrap_or_default(),
        None if retries == 0 => Duration::ZERO,
        None => backoff.nominal(backoff.retries() - 1),
    }
}

/// So many attempts are summed one by one; after them a growing timeout counts as fully grown.
const ATTEMPTS_SUMMED: u32 = 64;

fn limits_total(timeout: &GrowingTimeout, attempts: u32) -> Duration {
    if timeout.first == timeout.max {
        return timeout.first.saturating_mul(attempts);
    }
    let summed = attempts.min(ATTEMPTS_SUMMED);
    let limits = (1..=summed).filter_map(Attempt::new).map(|attempt| timeout.limit(attempt));
    let sum = limits.fold(Duration::ZERO, Duration::saturating_add);
    sum.saturating_add(timeout.max.saturating_mul(attempts - summed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_pen_and_paper() {
        let secs = Duration::from_secs;
        let fixed = GrowingTimeout::fixed(secs(10));
        let growing = GrowingTimeout { first: secs(5), factor: 2.0, max: secs(15) };
        #[rustfmt::skip]
        let cases = [
            // name,                                          timeout, best, latest start, worst
            ("standard",   "1+2+4+8+16, five attempts before", fixed,   15_500, 31_000 + 50_000,    31_000 + 60_000),
            ("standard",   "5+10+15+15+15 of timeouts",        growing, 15_500, 31_000 + 60_000,    31_000 + 75_000),
            ("aggressive", "the window ends it first",         fixed,   1_750,  10_000 + 15_000,    10_000 + 15_000 + 10_000),
            ("worker",     "1+2+4, each 100ms off",            fixed,   6_700,  7_300 + 30_000,     7_300 + 40_000),
            ("none",       "one attempt",                      fixed,   0,      0,                  10_000),
        ];
        for (policy, name, timeout, best, latest, worst) in cases {
            let backoff = &catalog::policy(policy).expect("it is in the catalog").backoff;
            let ms = Duration::from_millis;
            assert_eq!(earliest_last_start(backoff), ms(best), "{policy}: {name}");
            assert_eq!(latest_start(backoff, &timeout), ms(latest), "{policy}: {name}");
            assert_eq!(worst_case(backoff, &timeout), ms(worst), "{policy}: {name}");
        }
    }
}

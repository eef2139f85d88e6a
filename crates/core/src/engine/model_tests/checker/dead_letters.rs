//! Whether a delivery may die yet: each reason to give one up has a bound that must have been reached.
//!
//! What the engine may excuse beyond what is seen here (holds, pauses of an earlier run) only makes it more
//! patient, so a dead letter that comes too early even without them is wrong in any case.

use std::sync::Arc;
use std::time::Duration;

use super::super::books::{Claim, Reached, Spec, WhenOpen};
use super::super::targets::Means;
use super::{CallEnd, CallSeen, Checker, Delivery};
use crate::engine::DeadLetterInfo;
use crate::limits;
use crate::policy::category::codes;
use crate::time::Timestamp;

impl Checker {
    /// Why the delivery should have been given more time; none if the dead letter is in order.
    pub(super) fn dead_letter_is_early(
        &self,
        delivery: &Delivery,
        info: &DeadLetterInfo,
        at: Timestamp,
    ) -> Option<String> {
        let last = delivery.last_end();
        // A start on record whose end is not counts as a failure of our own, though perhaps no call was made.
        if info.failure_code.as_str() == codes::INTERRUPTED
            && self.crashes.len() >= self.crashes_min(delivery)
        {
            return None;
        }
        match info.code.as_str() {
            codes::MAX_RETRIES_EXCEEDED => self.retries_left(delivery),
            codes::RETRY_WINDOW_EXCEEDED => {
                let (call, _, means) = last?;
                let policy = self.policy(call, means)?;
                let used = self.since_first_failure(delivery, at)? + policy.max;
                let Some(window) = policy.window else { return Some("there is no window".to_owned()) };
                (used <= window).then(|| format!("{used:?} at most of a window of {window:?}"))
            }
            codes::DEADLINE_EXCEEDED => {
                let Some(deadline) = self.claims(delivery).filter_map(|claim| claim.deadline).min() else {
                    return Some("there is no deadline".to_owned());
                };
                let first = delivery.calls.first()?;
                let wait = self.longest_wait(delivery);
                let age = self.patience_used(first.started_at, at) + wait;
                (age < deadline).then(|| format!("{age:?} at most of a deadline of {deadline:?}"))
            }
            // Only a letter that is replayed dies of it; anything else waits for a book that wants it.
            codes::RULE_REMOVED => {
                let lacks = |spec: &Arc<Spec>| spec.claim(&delivery.queue, &delivery.event_type).is_none();
                let may = delivery.times > 0 && self.books.iter().any(lacks);
                (!may).then(|| "its rule is there".to_owned())
            }
            codes::HOLD_EXPIRED | codes::CIRCUIT_BREAKER_OPEN => self.hold_left(delivery, info, at),
            _ => match last {
                Some((_, _, Means::Permanent | Means::Fatal)) => None,
                _ => Some(format!("the last answer was {:?}", last.map(|(_, _, means)| means))),
            },
        }
    }

    fn claims<'a>(&'a self, delivery: &'a Delivery) -> impl Iterator<Item = &'a Claim> {
        let of = |spec: &'a Arc<Spec>| spec.claim(&delivery.queue, &delivery.event_type);
        self.books.iter().filter_map(of).map(|claim| &**claim)
    }

    /// After how many crashes a start of it may be on record: those of workers always are.
    fn crashes_min(&self, delivery: &Delivery) -> usize {
        let takers = self.books.iter().flat_map(|spec| &spec.takers);
        let mut own = takers.filter(|taker| taker.queue.service == delivery.queue.service);
        if own.any(|taker| taker.reached == Reached::ByWorker) { 1 } else { limits::CRASHES_MAX }
    }

    fn retries_left(&self, delivery: &Delivery) -> Option<String> {
        let failures = |wanted: fn(Means) -> bool| {
            let is_one = |call: &&CallSeen| match call.end {
                CallEnd::At(_, means) => wanted(means),
                // It may have ended, or been counted as a failure of our own.
                CallEnd::Unknown => true,
                CallEnd::Running => false,
            };
            delivery.calls.iter().filter(is_one).count()
        };
        // Of starts on record there may be more than calls.
        let attempts = (delivery.attempts - delivery.attempts_before) as usize;
        let recorded = if self.crashes.len() >= self.crashes_min(delivery) { attempts } else { 0 };
        let unknown = failures(|means| means == Means::Unknown);
        let all = failures(|means| means != Means::Delivered).max(recorded);
        let (call, _, means) = delivery.last_end()?;
        let policy = self.policy(call, means)?;
        let by_policy = all > policy.retries as usize;
        let by_category = unknown > limits::UNKNOWN_RETRIES_MAX as usize;
        // A book that came in between may have been less patient.
        let elsewhere = self.books.len() > 1;
        (!by_policy && !by_category && !elsewhere)
            .then(|| format!("{all} failures in all, with {} retries", policy.retries))
    }

    fn since_first_failure(&self, delivery: &Delivery, at: Timestamp) -> Option<Duration> {
        let first = delivery.calls.iter().find_map(|call| match call.end {
            CallEnd::At(ended_at, means) => (means != Means::Delivered).then_some(ended_at),
            CallEnd::Unknown => Some(call.started_at),
            CallEnd::Running => None,
        });
        Some(self.patience_used(first?, at))
    }

    /// The time that may have been used up at most.
    fn patience_used(&self, from: Timestamp, to: Timestamp) -> Duration {
        to.since(from).saturating_sub(self.excused(from, to))
    }

    /// The longest time that its next attempt may have been put off.
    fn longest_wait(&self, delivery: &Delivery) -> Duration {
        let Some(call) = delivery.calls.last() else { return Duration::ZERO };
        let policies = &self.books[call.book].policies;
        match call.end {
            CallEnd::At(_, Means::RateLimited(asked)) => {
                policies[call.claim.rate_limited].max.max(asked.unwrap_or_default())
            }
            CallEnd::At(_, Means::Delivered | Means::Permanent | Means::Fatal) | CallEnd::Running => {
                Duration::ZERO
            }
            // A start on record whose end is not counts as a failure of our own.
            CallEnd::At(_, Means::Transient | Means::Unknown) | CallEnd::Unknown => {
                policies[call.claim.transient].max
            }
        }
    }

    /// Held from when it was accepted at the earliest.
    fn hold_left(&self, delivery: &Delivery, info: &DeadLetterInfo, at: Timestamp) -> Option<String> {
        let breaker_open = info.code.as_str() == codes::CIRCUIT_BREAKER_OPEN;
        if breaker_open && !self.may_have_tripped(delivery) {
            return Some("no breaker of it can be open".to_owned());
        }
        let may_not_wait = self.claims(delivery).any(|claim| claim.when_open == WhenOpen::DeadLetter);
        if breaker_open && may_not_wait {
            return None;
        }
        let hold_max = self.claims(delivery).map(|claim| claim.hold_max).min()?;
        let wait = self.longest_wait(delivery);
        // An absence and a pause may be the same time.
        let excused = self.excused(delivery.accepted_at, at);
        let paused = self.paused_within(delivery, delivery.accepted_at, at);
        let used = at.since(delivery.accepted_at).saturating_sub(excused.max(paused)) + wait;
        let since = delivery.accepted_at;
        (used < hold_max).then(|| {
            format!("{used:?} at most of a hold of {hold_max:?} since {since}, excused {excused:?}, paused {paused:?}")
        })
    }

    fn paused_within(&self, delivery: &Delivery, from: Timestamp, to: Timestamp) -> Duration {
        let ours = self.pauses.iter().filter(|(service, _, _)| *service == delivery.queue.service);
        ours.map(|(_, start, end)| end.unwrap_or(to).min(to).since(from.max(*start))).sum()
    }

    fn may_have_tripped(&self, delivery: &Delivery) -> bool {
        let may_be_open = |spec: &Arc<Spec>| {
            let claim = spec.claim(&delivery.queue, &delivery.event_type);
            claim.is_some_and(|claim| {
                spec.dependencies[claim.dependency].breaker.is_some()
                    && self.ailing.contains(&claim.dependency)
            })
        };
        self.books.iter().any(may_be_open)
    }
}

//! Sums over all deliveries, recorded and with the new rules.
//!
//! Invariant: the order of reading changes nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::report::{
    BacktestReport, DependencyLoad, DurationComparison, EndName, Ends, NewRoute, OutcomeChange, Pair,
    UnknownItem, UnknownKind, UnknownWhole,
};
use super::walk::WalkResult;
use super::{BacktestDoubt, BacktestPlan, Certainty, EventCounts, Finish};
use crate::simulate;
use redrive_core::engine::QueueName;
use redrive_core::ids::{DeliveryId, DependencyName};
use redrive_core::limits;
use redrive_core::policy::category::FailureCode;
use redrive_core::text::of_deliveries;
use redrive_core::time::Timestamp;

#[derive(Debug)]
pub(super) struct ComparedDelivery<'a> {
    pub id: DeliveryId,
    pub queue: &'a QueueName,
    pub dependency: &'a DependencyName,
    pub accepted_at: Timestamp,
    pub before: Finish,
    pub calls_before: u32,
    pub walked: WalkResult,
}

#[derive(Debug, Default)]
pub(super) struct BacktestSums {
    /// Filled as far as it can be counted directly.
    report: BacktestReport,
    changes: BTreeMap<CaseKey, Cases>,
    unknown: BTreeMap<CaseKey, Cases>,
    loads: BTreeMap<DependencyName, DependencyLoad>,
    until_delivered: TimePair,
    until_dead: TimePair,
    doubts: BTreeMap<BacktestDoubt, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CaseKey {
    from: EndName,
    to: EndName,
    queue: QueueName,
    code: FailureCode,
    failure: FailureCode,
}

#[derive(Debug)]
struct Cases {
    count: u64,
    certainty: Certainty,
    first: BTreeSet<(Timestamp, DeliveryId)>,
}

#[derive(Debug, Default)]
struct TimePair {
    deliveries: u64,
    sum: (Duration, Duration),
    before: simulate::LatencySketch,
    after: simulate::LatencySketch,
}

impl TimePair {
    fn add(&mut self, before: Duration, after: Duration) {
        self.deliveries += 1;
        self.sum = (self.sum.0.saturating_add(before), self.sum.1.saturating_add(after));
        self.before.add(before);
        self.after.add(after);
    }

    fn summary(&self) -> DurationComparison {
        let millis = |sum: Duration| u64::try_from(sum.as_millis()).unwrap_or(u64::MAX);
        DurationComparison {
            deliveries: self.deliveries,
            sum_ms: Pair { before: millis(self.sum.0), after: millis(self.sum.1) },
            before: self.before.quantiles().unwrap_or_default(),
            after: self.after.quantiles().unwrap_or_default(),
        }
    }
}

impl BacktestSums {
    pub(super) fn add(&mut self, compared: &ComparedDelivery<'_>) {
        let ComparedDelivery { accepted_at, before, walked, .. } = compared;
        let report = &mut self.report;
        report.deliveries += 1;
        report.accepted = Some(match report.accepted {
            Some((first, last)) => (first.min(*accepted_at), last.max(*accepted_at)),
            None => (*accepted_at, *accepted_at),
        });
        *count_in(&mut report.before, name(before)) += 1;
        for doubt in &walked.doubts {
            *self.doubts.entry(*doubt).or_default() += 1;
        }
        self.add_calls(compared);
        self.report.certainty.add(walked.certainty);
        if walked.certainty == Certainty::Unknown {
            self.report.after.unknown += 1;
            return add_case(&mut self.unknown, compared);
        }
        *count_in(&mut self.report.after, name(&walked.finish)) += 1;
        if name(before) != name(&walked.finish) {
            self.report.changed += 1;
            add_case(&mut self.changes, compared);
        }
        self.add_times(compared);
    }

    fn add_calls(&mut self, compared: &ComparedDelivery<'_>) {
        let ComparedDelivery { calls_before, walked, before, .. } = compared;
        let known = self.loads.entry(compared.dependency.clone()).or_default();
        let (before_calls, after_calls) = (u64::from(*calls_before), u64::from(walked.calls));
        let retries = |calls: u64| calls.saturating_sub(1);
        known.calls.before += before_calls;
        known.calls.after += after_calls;
        known.retries.before += retries(before_calls);
        known.retries.after += retries(after_calls);
        known.guessed += u64::from(walked.guessed);
        known.certainty.add(walked.certainty);
        if matches!(before, Finish::Dead { .. }) {
            self.report.futile_retries.before += retries(before_calls);
        }
        if matches!(walked.finish, Finish::Dead { .. }) {
            self.report.futile_retries.after += retries(after_calls);
        }
    }

    fn add_times(&mut self, compared: &ComparedDelivery<'_>) {
        // Without attempts the time of death is meaningless.
        let has_no_attempts =
            |doubt: &BacktestDoubt| matches!(doubt, BacktestDoubt::Imported | BacktestDoubt::NeverTried);
        if compared.walked.doubts.iter().any(has_no_attempts) {
            return;
        }
        let since = |at: Timestamp| at.since(compared.accepted_at);
        match (&compared.before, &compared.walked.finish) {
            (Finish::Delivered { at: then }, Finish::Delivered { at: now }) => {
                self.until_delivered.add(since(*then), since(*now));
            }
            (Finish::Dead { at: then, .. }, Finish::Dead { at: now, .. }) => {
                self.until_dead.add(since(*then), since(*now));
            }
            _ => {}
        }
    }

    pub(super) fn into_report(self, plan: &BacktestPlan<'_>, seen: &EventCounts) -> BacktestReport {
        let newly_routed = newly_routed(plan, seen);
        let untold = self.unknown_items(&newly_routed);
        let mut changes = cases(self.changes);
        let changes_left_off = changes.len().saturating_sub(limits::BACKTEST_ROWS_MAX) as u64;
        changes.truncate(limits::BACKTEST_ROWS_MAX);
        let mut unknown = cases(self.unknown);
        unknown.truncate(limits::BACKTEST_ROWS_MAX);
        let loads =
            self.loads.into_iter().map(|(name, known)| DependencyLoad { name: name.to_string(), ..known });
        BacktestReport {
            since: plan.since,
            until: plan.until,
            changes,
            changes_left_off,
            unknown,
            dependencies: loads.collect(),
            until_delivered: self.until_delivered.summary(),
            until_dead: self.until_dead.summary(),
            newly_routed,
            untold,
            near_ms: u64::try_from(limits::BACKTEST_NEAR.as_millis()).expect("a minute"),
            ..self.report
        }
    }

    fn unknown_items(&self, newly_routed: &[NewRoute]) -> Vec<UnknownItem> {
        let mut untold: Vec<UnknownItem> = self
            .doubts
            .iter()
            .map(|(doubt, count)| UnknownItem {
                doubt: UnknownKind::Delivery(*doubt),
                count: *count,
                text: of_deliveries(*count, words(*doubt)),
            })
            .collect();
        let more: u64 = self.loads.values().map(|known| known.calls.before.abs_diff(known.calls.after)).sum();
        let mut add = |whole: UnknownWhole, count: u64, text: String| {
            untold.push(UnknownItem { doubt: UnknownKind::Whole(whole), count, text });
        };
        if more > 0 {
            let text = "more or fewer calls: the effect on dependencies, breakers and limits";
            add(UnknownWhole::Load, more, text.to_owned());
        }
        let events: u64 = newly_routed.iter().map(|route| route.events).sum();
        if events > 0 {
            let text = "events for services that did not get them before: their answers";
            add(UnknownWhole::NewRoutes, events, text.to_owned());
        }
        untold
    }
}

fn add_case(all: &mut BTreeMap<CaseKey, Cases>, compared: &ComparedDelivery<'_>) {
    let ComparedDelivery { before, walked, .. } = compared;
    let (code, failure) = cause(before, &walked.finish);
    let cause = CaseKey {
        from: name(before),
        to: name(&walked.finish),
        queue: compared.queue.clone(),
        code,
        failure,
    };
    let cases = all.entry(cause).or_insert_with(|| Cases {
        count: 0,
        certainty: Certainty::Certain,
        first: BTreeSet::new(),
    });
    cases.count += 1;
    cases.certainty = cases.certainty.max(walked.certainty);
    cases.first.insert((compared.accepted_at, compared.id));
    if cases.first.len() > limits::BACKTEST_EXAMPLES_MAX {
        cases.first.pop_last();
    }
}

/// With the new rules if it dies there, else as recorded.
fn cause(before: &Finish, after: &Finish) -> (FailureCode, FailureCode) {
    match (before, after) {
        (_, Finish::Dead { code, failure, .. }) | (Finish::Dead { code, failure, .. }, _) => {
            (code.clone(), failure.clone().unwrap_or(FailureCode::of("")))
        }
        _ => (FailureCode::of(""), FailureCode::of("")),
    }
}

fn cases(all: BTreeMap<CaseKey, Cases>) -> Vec<OutcomeChange> {
    let mut changes: Vec<OutcomeChange> = all
        .into_iter()
        .map(|(cause, cases)| OutcomeChange {
            from: cause.from,
            to: cause.to,
            service: cause.queue.to_string(),
            code: cause.code.to_string(),
            failure: cause.failure.to_string(),
            deliveries: cases.count,
            certainty: cases.certainty,
            examples: cases.first.iter().map(|(_, id)| id.to_string()).collect(),
        })
        .collect();
    changes.sort_by_key(|change| Reverse(change.deliveries));
    changes
}

const fn name(finish: &Finish) -> EndName {
    match finish {
        Finish::Delivered { .. } => EndName::Delivered,
        Finish::Dead { .. } => EndName::Dead,
        Finish::Waiting => EndName::Waiting,
        Finish::Paused { .. } => EndName::Paused,
        Finish::NotSent => EndName::NotSent,
    }
}

const fn count_in(ends: &mut Ends, end: EndName) -> &mut u64 {
    match end {
        EndName::Delivered => &mut ends.delivered,
        EndName::Dead => &mut ends.dead,
        EndName::Waiting => &mut ends.waiting,
        EndName::Paused => &mut ends.paused,
        EndName::NotSent => &mut ends.not_sent,
    }
}

fn newly_routed(plan: &BacktestPlan<'_>, seen: &EventCounts) -> Vec<NewRoute> {
    let mut found = Vec::new();
    let types: BTreeSet<&String> = seen.by_type.keys().chain(seen.unrouted.keys()).collect();
    for event_type in types {
        let got = seen.by_type.get(event_type);
        // Each event has at most one delivery per queue, so the largest count is the number of events.
        let routed = got.and_then(|queues| queues.values().max().copied()).unwrap_or(0);
        let unrouted = seen.unrouted.get(event_type).copied().unwrap_or(0);
        for route in plan.book.route(event_type) {
            let channel = route.channel.map(|channel| channel.name.clone());
            let queue = QueueName { service: route.service.name.clone(), channel };
            let is_new = got.is_none_or(|queues| !queues.contains_key(&queue));
            let events = if is_new { routed + unrouted } else { unrouted };
            if events > 0 {
                let (service, event_type) = (queue.to_string(), event_type.clone());
                found.push(NewRoute { service, event_type, events });
            }
        }
    }
    found
}

const fn words(doubt: BacktestDoubt) -> &'static str {
    match doubt {
        BacktestDoubt::NothingNear => "deliveries with attempts at a time without calls: the answer",
        BacktestDoubt::Mixed => {
            "deliveries with attempts at a time when some calls failed: whether this one would have"
        }
        BacktestDoubt::Message => {
            "deliveries failed while others succeeded: whether a later attempt with the same data would have \
             succeeded"
        }
        BacktestDoubt::LongerTimeout => {
            "deliveries timed out with a shorter limit: whether an answer would have come"
        }
        BacktestDoubt::Headers => {
            "deliveries had answers with headers that `classify` now matches: their values"
        }
        BacktestDoubt::BookForgotten => {
            "deliveries were classified by a rule book that is gone: the original \
                                         answer"
        }
        BacktestDoubt::Target => "deliveries have another target now: its answers",
        BacktestDoubt::Breaker => {
            "deliveries have another breaker now: when it would have opened; the record only has the old one"
        }
        BacktestDoubt::Holds => {
            "deliveries have other hold settings now: the effect on everything held with them"
        }
        BacktestDoubt::Shared => {
            "deliveries share a failing dependency with others that have another breaker, other hold settings or \
             other limits now: how the dependency would have behaved"
        }
        BacktestDoubt::Replayed => {
            "deliveries were replayed after becoming dead letters: only the time before \
                                    is compared"
        }
        BacktestDoubt::Session => {
            "deliveries would have unblocked their session at another time: the effect on it"
        }
        BacktestDoubt::Retention => {
            "deliveries are older than the retention of delivered events: answers to others at that time"
        }
        BacktestDoubt::Paused => {
            "deliveries came after their service would have paused itself: when it would have been resumed, and \
             the answers then"
        }
        BacktestDoubt::NeverTried => "deliveries became dead letters without a recorded attempt",
        BacktestDoubt::NotYetTried => "deliveries are waiting without an attempt: the answer",
        BacktestDoubt::Imported => {
            "deliveries were imported as dead letters: they do not change, and their attempts are not counted as \
             calls"
        }
        BacktestDoubt::Limits => {
            "deliveries have other call limits now (`in_flight`, `rate`, `retry_budget`): when a call would have \
             started"
        }
        BacktestDoubt::Ramp => {
            "deliveries waited for a dependency to recover: when their turn would have come, which depends on \
             `ramp` and on all others waiting"
        }
    }
}

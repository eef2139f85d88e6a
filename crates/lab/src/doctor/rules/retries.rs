//! Diagnoses for retry policies: too few retries, useless retries, wrong delays.

use std::time::Duration;

use crate::doctor::change::{self, Patch, place_of};
use crate::doctor::evidence::{EvidenceChart, ExaminedDelivery, ExaminedState, RowEvidence};
use crate::doctor::proof::{ProofMeasure, ProofWorld, ProposedChange};
use crate::doctor::words::{counted, exceeds, percent, rounded_up, said, tally};
use crate::doctor::{Diagnosis, DiagnosisCheck, DiagnosisSign, Harm};
use crate::scenario::{CallFailure, FailureMode};
use redrive_core::engine::attempt_record::{AttemptEnd, HoldReason};
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::category::{Category, codes};
use redrive_core::policy::rule::{NamedPolicy, WhenOpen};
use redrive_core::text::{Share, show_duration, show_rounded};

const EXHAUSTED_MIN: u64 = 5;
const EXHAUSTED_PERCENT: u64 = 2;
/// Additional retries, factor of the longest delay, factor of the window: tried in order.
const MORE: [(u32, f64, u32); 3] = [(2, 1.5, 2), (4, 3.0, 6), (7, 6.0, 20)];
const RETRIES_ADVISED_MAX: u32 = 12;
const RETRY_MADE_MIN: u64 = 20;
const RETRIES_TO_SPARE: u32 = 3;
const FIRST_HELPS_PERCENT: u64 = 90;
const LONG_FIRST_DELAY: Duration = Duration::from_secs(5);
const SHORT_FIRST_DELAY: Duration = Duration::from_secs(1);
const HELD_MIN: u64 = 20;
const HELD_PERCENT: u64 = 50;
const RETRIED_MIN: u64 = 50;
const ENDLESS_MIN: usize = 3;
/// Shorter policies are not reported.
const LASTS_MIN: Duration = Duration::from_secs(60 * 60);
const NEEDED_TIMES: u32 = 10;
const PATIENCE_MIN: Duration = Duration::from_secs(15 * 60);
const HOLD_EXPIRED_MIN: u64 = 3;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "retries-exhausted",
        harm: Harm::High,
        summary: "deliveries run out of retries although later retries would have succeeded",
        explanation: "Deliveries become dead letters because the policy gave up, while others succeeded with one \
                      of the last retries: outages of the target are slightly longer than the policy. One or two \
                      more retries and a longer maximum delay bridge them. First check that the failures are \
                      really transient: if no late retry ever succeeds, more will not either.",
        needs: "5 deliveries that ran out of retries, and one that succeeded with a late retry",
        look: DiagnosisCheck::Row(exhausted),
    },
    Diagnosis {
        code: "retries-never-help",
        harm: Harm::Low,
        summary: "the later retries of a policy never succeed",
        explanation: "No delivery ever succeeded with the later retries of the policy. They are wasted calls, \
                      and they delay the dead letter. Give up earlier: the dead letter can be replayed when the \
                      cause is fixed.",
        needs: "20 deliveries that made a retry without success",
        look: DiagnosisCheck::Row(never_help),
    },
    Diagnosis {
        code: "policy-never-exhausted",
        harm: Harm::Low,
        summary: "a policy retries for hours and no delivery ever used it up",
        explanation: "Deliveries that succeed do so soon, but the policy retries many times longer. A delivery \
                      that can never succeed is retried for hours or days, blocks its session, and does not show \
                      up as a dead letter. The finding weighs more if such deliveries exist already. End the \
                      policy some time after the latest retry that ever helped: dead letters can be replayed \
                      when the cause is fixed. A policy made for long outages that have not happened yet may \
                      stay as it is.",
        needs: "50 retried deliveries, or 3 that have been retried for more than an hour; and none that ran out \
                of retries",
        look: DiagnosisCheck::Row(never_exhausted),
    },
    Diagnosis {
        code: "first-retry-too-late",
        harm: Harm::Low,
        summary: "the first retry nearly always succeeds but comes late",
        explanation: "Failures here are short: nine of ten deliveries succeed with the first retry. Until then \
                      each waits for seconds, and so does everything behind it in its session. A short first \
                      delay costs nothing, since later delays still grow.",
        needs: "20 deliveries that made a retry",
        look: DiagnosisCheck::Row(first_too_late),
    },
    Diagnosis {
        code: "retries-meet-open-breaker",
        harm: Harm::Medium,
        summary: "most retries come while the breaker is open",
        explanation: "All delays of the policy together are shorter than the breaker's open time, so retries \
                      come while the breaker is open and are held again and again. With delays longer than the \
                      open time each retry can be made.",
        needs: "20 held retries",
        look: DiagnosisCheck::Row(meet_open_breaker),
    },
    Diagnosis {
        code: "holds-expire",
        harm: Harm::High,
        summary: "deliveries become dead letters while waiting for a breaker or a Retry-After",
        explanation: "These deliveries became dead letters without using up their retries: the breaker was open, \
                      or the target had sent a Retry-After, for longer than they may be held. Such outages do \
                      happen here. Raise `hold_max`, or set `when_open: hold`, so that deliveries wait until the \
                      outage ends.",
        needs: "3 deliveries that became dead letters while held",
        look: DiagnosisCheck::Row(holds_expire),
    },
];

/// Deliveries retried under the current policy.
struct RetryRecord<'a> {
    policy: &'a NamedPolicy,
    /// By number of retries; index 0 is the first retry.
    made: Vec<u64>,
    helped: Vec<u64>,
    exhausted: Vec<&'a ExaminedDelivery>,
    waiting: Vec<&'a ExaminedDelivery>,
    /// From the first attempt to delivery, the longest.
    needed: Duration,
    ended: u64,
}

impl<'a> RetryRecord<'a> {
    fn of(member: &'a RowEvidence<'_>) -> Option<Self> {
        let policy = member.rule.retry_policy().filter(|policy| policy.backoff.retries() > 0)?;
        let mut record = Self {
            policy,
            made: Vec::new(),
            helped: Vec::new(),
            exhausted: Vec::new(),
            waiting: Vec::new(),
            needed: Duration::ZERO,
            ended: 0,
        };
        for delivery in &member.deliveries {
            record.count(delivery);
        }
        Some(record)
    }

    fn count(&mut self, delivery: &'a ExaminedDelivery) {
        let ran_out = delivery.death().is_some_and(|(_, code)| {
            matches!(code.as_str(), codes::MAX_RETRIES_EXCEEDED | codes::RETRY_WINDOW_EXCEEDED)
        });
        self.ended += u64::from(delivery.arrived() || delivery.death().is_some());
        let weighed = delivery.stories.iter().rev().find_map(|story| story.retry.as_ref());
        // Retries by another policy or another number of retries prove nothing.
        let is_by_it = weighed.is_some_and(|weighed| {
            weighed.policy == self.policy.name.as_str()
                && weighed.by_policy.1 == self.policy.backoff.retries()
        });
        if !is_by_it {
            return;
        }
        let retries = retries_of(delivery);
        if self.made.len() < retries {
            self.made.resize(retries, 0);
            self.helped.resize(retries, 0);
        }
        self.made[..retries].iter_mut().for_each(|made| *made += 1);
        if delivery.arrived() && retries > 0 {
            self.helped[retries - 1] += 1;
            self.needed = self.needed.max(retried_for(delivery));
        }
        if ran_out {
            self.exhausted.push(delivery);
        }
        if delivery.state == ExaminedState::Waiting {
            self.waiting.push(delivery);
        }
    }

    /// 0 if none did.
    fn last_that_helped(&self) -> usize {
        self.helped.iter().rposition(|helped| *helped > 0).map_or(0, |place| place + 1)
    }
}

fn retries_of(delivery: &ExaminedDelivery) -> usize {
    delivery.attempts().count().saturating_sub(1)
}

fn retried_for(delivery: &ExaminedDelivery) -> Duration {
    let first = delivery.attempts().next().map(|story| story.started_at);
    let last = delivery.attempts().last().map(|story| story.started_at);
    first.zip(last).map_or(Duration::ZERO, |(first, last)| last.since(first))
}

fn exhausted(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let record = RetryRecord::of(member)?;
    let (count, ended) = (record.exhausted.len() as u64, record.ended);
    let retries = record.policy.backoff.retries();
    let last = record.last_that_helped();
    let saved_late = last > 0 && last + 2 > retries as usize;
    let is_much = count >= EXHAUSTED_MIN && exceeds(count, ended, EXHAUSTED_PERCENT);
    if !is_much || !saved_late || retries >= RETRIES_ADVISED_MAX {
        return None;
    }
    let last_failure = |delivery: &ExaminedDelivery| match &delivery.attempts().last()?.end {
        AttemptEnd::Failed { code, .. } => Some(code.clone()),
        AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
    };
    let failures: Vec<_> = record.exhausted.iter().filter_map(|delivery| last_failure(delivery)).collect();
    let name = &record.policy.name;
    let (all, share) = (counted(ended, "delivery"), percent(count, ended));
    Some(DiagnosisSign {
        title: match retries {
            1 => format!("`{}` gives up too early: the only retry of `{name}` fails", member.queue),
            _ => format!("`{}` gives up too early: the {retries} retries of `{name}` run out", member.queue),
        },
        touched: count,
        evidence: vec![
            format!("{count} of {all} that ended ({share}) ran out of retries"),
            format!("{} succeeded with retry {last}", counted(record.helped[last - 1], "delivery")),
            format!("last failures: {}", said(&tally(failures.iter()))),
        ],
        advice: more_of(record.policy, MORE[0]).1,
        change: Some(more_retries(chart, member, record.policy)),
        line: reaction_line(member),
        ..DiagnosisSign::default()
    })
}

fn more_of(
    policy: &NamedPolicy,
    (retries, max, window): (u32, f64, u32),
) -> (Vec<(&'static str, String)>, String) {
    let backoff = &policy.backoff;
    let more = (backoff.retries() + retries).min(RETRIES_ADVISED_MAX);
    let mut values = vec![("retries", more.to_string())];
    let mut longest = backoff.max();
    if backoff.listed().is_none() {
        longest = rounded_up(backoff.max().mul_f64(max)).max(longest);
        values.push(("max", show_duration(longest)));
    }
    let wider = backoff.window().map(|known| ("window", show_duration(rounded_up(known * window))));
    values.extend(wider);
    let (retries, known, longest) =
        (counted(u64::from(more), "retry"), backoff.retries(), show_duration(longest));
    let words = format!(
        "make {retries} instead of {known}, with delays of up to {longest}; `redrive timeline` shows the schedule"
    );
    (values, words)
}

fn more_retries(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>, policy: &NamedPolicy) -> ProposedChange {
    let change = |values: &[_]| change::of_policy(chart.evidence, &member.rule, policy, values);
    let first =
        ProposedChange::new(change(&more_of(policy, MORE[0]).0), ProofMeasure::Dead, ProofWorld::AsSeen);
    MORE[1..].iter().fold(first, |proposed, more| {
        let (values, words) = more_of(policy, *more);
        proposed.or(change(&values), words)
    })
}

fn never_help(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let record = RetryRecord::of(member)?;
    let retries = record.policy.backoff.retries();
    let enough = record.last_that_helped().max(1);
    let in_vain = *record.made.get(enough)?;
    if never_exhausted(chart, member).is_some() {
        // The other finding says more.
        return None;
    }
    let to_spare = retries.saturating_sub(u32::try_from(enough).unwrap_or(u32::MAX));
    if in_vain < RETRY_MADE_MIN || retries < RETRIES_TO_SPARE || to_spare < 2 {
        return None;
    }
    let calls: u64 = record.made[enough..].iter().sum();
    let name = &record.policy.name;
    let change =
        change::of_policy(chart.evidence, &member.rule, record.policy, &[("retries", enough.to_string())]);
    Some(DiagnosisSign {
        title: format!("retries of `{}` after number {enough} never help", member.queue),
        touched: calls,
        evidence: vec![
            format!("{} made retry {} or more by `{name}`", counted(in_vain, "delivery"), enough + 1),
            format!("none of them succeeded: {} wasted", counted(calls, "call")),
            match record.last_that_helped() {
                0 => "no retry has ever succeeded here".to_owned(),
                last => format!("the last retry that succeeded was number {last}"),
            },
        ],
        advice: format!(
            "give up after {}: dead letters appear sooner and can be replayed when the cause is fixed",
            counted(enough as u64, "retry")
        ),
        change: Some(ProposedChange::new(change, ProofMeasure::Calls, ProofWorld::Alike(never_well()))),
        line: reaction_line(member),
        ..DiagnosisSign::default()
    })
}

fn never_exhausted(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let record = RetryRecord::of(member)?;
    let backoff = &record.policy.backoff;
    let lasts = [backoff.window(), member.rule.rule.deadline].into_iter().flatten();
    let lasts = lasts.fold(backoff.wait_max_total(), Duration::min);
    let patience = record.needed.saturating_mul(NEEDED_TIMES).max(PATIENCE_MIN);
    let enough = retries_within(backoff, patience).max(u32::try_from(record.last_that_helped()).ok()?);
    let is_long = lasts >= LASTS_MIN && lasts > patience && enough < backoff.retries();
    if !record.exhausted.is_empty() || !is_long {
        return None;
    }
    let beyond = record.waiting.iter().filter(|delivery| retries_of(delivery) > record.last_that_helped());
    let endless: Vec<_> =
        beyond.filter(|delivery| tried_since(chart, delivery) > LASTS_MIN).copied().collect();
    let sign = if endless.len() >= ENDLESS_MIN {
        endless_sign(chart, member, &record, &endless, lasts)
    } else if endless.is_empty() && record.needed > Duration::ZERO && record.made[0] >= RETRIED_MIN {
        unused_sign(member, &record, lasts)
    } else {
        return None;
    };
    let PolicySign { title, touched, evidence, harm } = sign;
    let values = [("retries", enough.to_string())];
    let change = change::of_policy(chart.evidence, &member.rule, record.policy, &values);
    Some(DiagnosisSign {
        title,
        touched,
        evidence,
        advice: format!(
            "end it after {}, about {}: deliveries that cannot succeed then become dead letters, which can be \
             replayed when the cause is fixed",
            counted(u64::from(enough), "retry"),
            show_rounded(patience)
        ),
        change: Some(ProposedChange::new(change, ProofMeasure::Calls, ProofWorld::Alike(never_well()))),
        line: reaction_line(member),
        harm,
    })
}

struct PolicySign {
    title: String,
    touched: u64,
    evidence: Vec<String>,
    harm: Option<Harm>,
}

fn endless_sign(
    chart: &EvidenceChart<'_>,
    member: &RowEvidence<'_>,
    record: &RetryRecord<'_>,
    endless: &[&ExaminedDelivery],
    lasts: Duration,
) -> PolicySign {
    let name = &record.policy.name;
    let fewest = endless.iter().map(|delivery| retries_of(delivery) as u64).min().unwrap_or_default();
    let longest = endless.iter().map(|delivery| tried_since(chart, delivery)).max().unwrap_or_default();
    let (all, fewest) = (counted(endless.len() as u64, "delivery"), counted(fewest, "retry"));
    let (longest, lasts) = (show_rounded(longest), show_duration(rounded_up(lasts)));
    PolicySign {
        title: format!("`{}` retries without end: no delivery has used up `{name}` yet", member.queue),
        touched: endless.len() as u64,
        evidence: vec![
            format!("{all} are still retried after {fewest} or more, the oldest for {longest}"),
            format!("`{name}` lasts up to {lasts}, and no delivery has reached its end"),
            match record.last_that_helped() {
                0 => "no retry has ever succeeded".to_owned(),
                last => format!("no retry after number {last} has succeeded"),
            },
        ],
        harm: Some(Harm::Medium),
    }
}

fn unused_sign(member: &RowEvidence<'_>, record: &RetryRecord<'_>, lasts: Duration) -> PolicySign {
    let name = &record.policy.name;
    let (retried, lasts) = (record.made[0], show_duration(rounded_up(lasts)));
    PolicySign {
        title: format!("`{name}` of `{}` lasts {lasts} and was never used up", member.queue),
        touched: retried,
        evidence: vec![
            format!(
                "{} were retried and none ran out of retries: successes came within {}, by retry {} at the latest",
                counted(retried, "delivery"),
                show_rounded(record.needed),
                record.last_that_helped()
            ),
            format!(
                "`{name}` lasts up to {lasts}: a delivery that cannot succeed stays unnoticed for that long"
            ),
        ],
        harm: None,
    }
}

fn tried_since(chart: &EvidenceChart<'_>, delivery: &ExaminedDelivery) -> Duration {
    delivery.attempts().next().map_or(Duration::ZERO, |first| chart.ago(first.started_at))
}

/// Nominal delays, without jitter.
fn retries_within(backoff: &Backoff, span: Duration) -> u32 {
    let mut waited = Duration::ZERO;
    let is_short = |retry: &u32| {
        waited = waited.saturating_add(backoff.nominal(*retry));
        waited < span
    };
    let most = backoff.retries().min(limits::RETRIES_MAX);
    u32::try_from((0..most).take_while(is_short).count()).map_or(most, |short| (short + 1).min(most))
}

fn first_too_late(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let record = RetryRecord::of(member)?;
    let (made, helped) = (*record.made.first()?, record.helped[0]);
    let delay = record.policy.backoff.initial();
    let is_sure = made >= RETRY_MADE_MIN && exceeds(helped, made, FIRST_HELPS_PERCENT);
    if !is_sure || delay < LONG_FIRST_DELAY {
        return None;
    }
    let short = show_duration(SHORT_FIRST_DELAY);
    let value = match record.policy.backoff.listed() {
        Some(delays) => {
            let rest = delays.iter().map(|delay| show_duration(*delay));
            let all: Vec<String> = [short.clone()].into_iter().chain(rest).collect();
            ("delays", format!("[{}]", all.join(", ")))
        }
        None => ("initial", short.clone()),
    };
    let (delay, all, share) = (show_duration(delay), counted(made, "delivery"), percent(helped, made));
    let change = change::of_policy(chart.evidence, &member.rule, record.policy, &[value]);
    Some(DiagnosisSign {
        title: format!("`{}` waits {delay} for a retry that could come sooner", member.queue),
        touched: helped,
        evidence: vec![
            format!("{helped} of {all} that were retried ({share}) succeeded with the first retry"),
            format!("`{}` waits {delay} before it", record.policy.name),
        ],
        advice: format!("wait {short} before the first retry; later delays still grow"),
        change: Some(ProposedChange::new(change, ProofMeasure::Latency, ProofWorld::AsSeen)),
        line: reaction_line(member),
        ..DiagnosisSign::default()
    })
}

fn meet_open_breaker(chart: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let policy = member.rule.retry_policy()?;
    let open = member.rule.rule.breaker.as_ref()?.settings.open();
    let total = policy.backoff.wait_max_total();
    if policy.backoff.retries() == 0 || total >= open {
        return None;
    }
    let (mut held, mut made) = (0_u64, 0_u64);
    for story in member.deliveries.iter().flat_map(|delivery| &delivery.stories) {
        if story.attempt.get() > 1 {
            held += u64::from(story.end == AttemptEnd::Held { by: HoldReason::Breaker });
            made += u64::from(story.is_attempt());
        }
    }
    if held < HELD_MIN || !exceeds(held, held + made, HELD_PERCENT) {
        return None;
    }
    let (initial, longest) = (rounded_up(open / 2), rounded_up(open * 2));
    let values = match policy.backoff.listed() {
        Some(_) => vec![("delays", format!("[{}, {}]", show_duration(initial), show_duration(longest)))],
        None => vec![("initial", show_duration(initial)), ("max", show_duration(longest))],
    };
    let window = policy.backoff.window().filter(|window| *window < longest * 4);
    let window = window.map(|_| ("window", show_duration(rounded_up(longest * 4))));
    let values: Vec<_> = values.into_iter().chain(window).collect();
    let [total, open, longest] = [total, open, longest].map(show_duration);
    let change = change::of_policy(chart.evidence, &member.rule, policy, &values);
    Some(DiagnosisSign {
        title: format!("retries of `{}` come while the breaker is open", member.queue),
        touched: held,
        evidence: vec![
            format!("{held} of {} found the breaker open", counted(held + made, "retry")),
            format!(
                "all delays of `{}` together are at most {total}, and the breaker stays open for {open}",
                policy.name
            ),
        ],
        advice: format!("let delays grow to {longest}, longer than the breaker stays open"),
        change: Some(ProposedChange::new(change, ProofMeasure::FailedCalls, ProofWorld::AsSeen)),
        line: reaction_line(member),
        ..DiagnosisSign::default()
    })
}

fn holds_expire(_: &EvidenceChart<'_>, member: &RowEvidence<'_>) -> Option<DiagnosisSign> {
    let died = |wanted: &str| {
        let of_code =
            |delivery: &&&ExaminedDelivery| delivery.death().is_some_and(|(_, code)| code.as_str() == wanted);
        member.deliveries.iter().filter(of_code).count() as u64
    };
    let (at_breaker, of_patience) = (died(codes::CIRCUIT_BREAKER_OPEN), died(codes::HOLD_EXPIRED));
    let count = at_breaker + of_patience;
    if count < HOLD_EXPIRED_MIN {
        return None;
    }
    let rule = &member.rule;
    let hold_max = rule.hold_max.value;
    let (advice, change, origin) = if rule.when_open.value == WhenOpen::DeadLetter && at_breaker > of_patience
    {
        let change = Patch::new().set(&place_of(rule, rule.when_open.origin.level), "when_open", "hold");
        let advice = "hold deliveries while the breaker is open instead of giving up at once".to_owned();
        (advice, change, rule.when_open.origin)
    } else {
        let wanted = show_duration(rounded_up(hold_max * 2));
        let change = Patch::new().set(&place_of(rule, rule.hold_max.origin.level), "hold_max", &wanted);
        (
            format!("hold deliveries for {wanted} instead of {}", show_duration(hold_max)),
            change,
            rule.hold_max.origin,
        )
    };
    Some(DiagnosisSign {
        title: format!("deliveries of `{}` become dead letters while waiting", member.queue),
        touched: count,
        evidence: vec![format!(
            "{} gave up: {at_breaker} waiting for the breaker, {of_patience} for a Retry-After",
            counted(count, "delivery")
        )],
        advice,
        change: Some(ProposedChange::new(change, ProofMeasure::Dead, ProofWorld::AsSeen)),
        line: origin.position().map(|position| position.line),
        ..DiagnosisSign::default()
    })
}

fn never_well() -> FailureMode {
    FailureMode::Mixed(vec![(CallFailure::Status(503), Share::ALL)])
}

fn reaction_line(member: &RowEvidence<'_>) -> Option<u32> {
    let origin = member.rule.reaction_to(Category::Transient).origin;
    origin.position().map(|position| position.line)
}

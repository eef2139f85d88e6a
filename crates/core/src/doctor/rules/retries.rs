//! Diagnoses about retry policies: too few retries, retries that never help, and delays at the wrong time.

use std::time::Duration;

use crate::category::{Category, codes};
use crate::doctor::change::{Change, place_of};
use crate::doctor::evidence::{Chart, Member, SeenDelivery};
use crate::doctor::words::{counted, exceeds, percent, rounded_up, said, tally};
use crate::doctor::{Diagnosis, Harm, Look, Sign};
use crate::rule::{NamedPolicy, WhenOpen};
use crate::story::{End, HeldBy};
use crate::text::show_duration;

/// Deliveries that must have run out of retries.
const EXHAUSTED_MIN: u64 = 5;
/// The hundredths of those that ended.
const EXHAUSTED_PERCENT: u64 = 2;
/// More retries are advised up to here.
const RETRIES_ADVISED_MAX: u32 = 12;
/// Deliveries that must have made a retry before it is called useless.
const RETRY_MADE_MIN: u64 = 20;
/// A policy with fewer retries than this has none to spare.
const RETRIES_TO_SPARE: u32 = 3;
/// The hundredths of first retries that succeed where waiting long is a waste.
const FIRST_HELPS_PERCENT: u64 = 90;
/// A first delay from here on is long.
const LONG_FIRST_DELAY: Duration = Duration::from_secs(5);
/// What it should be instead.
const SHORT_FIRST_DELAY: Duration = Duration::from_secs(1);
/// Retries that must have met an open breaker.
const HELD_MIN: u64 = 20;
/// The hundredths of all retries.
const HELD_PERCENT: u64 = 50;
/// Deliveries that must have died waiting.
const HOLD_EXPIRED_MIN: u64 = 3;

pub(super) const DIAGNOSES: &[Diagnosis] = &[
    Diagnosis {
        code: "retries-exhausted",
        harm: Harm::High,
        summary: "deliveries run out of retries that later ones would have saved",
        explanation: "Deliveries become dead letters because their policy gave up, while others were saved by \
                      one of the last retries: the outages of the target are a little longer than the policy's \
                      patience. A retry or two more, and a longer longest delay, bridge them. Ask first \
                      whether the failures are truly transient: if no late retry ever helps, more of them \
                      will not either.",
        needs: "5 deliveries that ran out of retries, and one that a late retry saved",
        look: Look::Row(exhausted),
    },
    Diagnosis {
        code: "retries-never-help",
        harm: Harm::Low,
        summary: "the later retries of a policy never succeed",
        explanation: "No delivery was ever saved by the later retries of the policy. They are calls to a target \
                      that is not going to answer, and they keep the dead letter from being seen until they are \
                      over. Give up earlier: the letter is there for a replay when the cause is gone.",
        needs: "20 deliveries that made a retry which helped nobody",
        look: Look::Row(never_help),
    },
    Diagnosis {
        code: "first-retry-too-late",
        harm: Harm::Low,
        summary: "the first retry nearly always succeeds, and waits long for it",
        explanation: "What fails here is over at once: nine of ten deliveries arrive with the first retry. Until \
                      then each of them waits for seconds, and what is behind it in its session waits too. A \
                      short first delay costs nothing, since the delays after it still grow.",
        needs: "20 deliveries that made a retry",
        look: Look::Row(first_too_late),
    },
    Diagnosis {
        code: "retries-meet-open-breaker",
        harm: Harm::Medium,
        summary: "most retries come while the breaker is open",
        explanation: "All delays of the policy together are shorter than the breaker stays open, so that the \
                      retries come while nobody may call: they are held, again and again, and do nothing but \
                      write it down. Delays that reach beyond the time of being open bring each retry to a \
                      moment at which it can be made.",
        needs: "20 retries that were held",
        look: Look::Row(meet_open_breaker),
    },
    Diagnosis {
        code: "holds-expire",
        harm: Harm::High,
        summary: "deliveries die while they wait for a breaker or a Retry-After",
        explanation: "These deliveries became dead letters without having used up their retries: the breaker was \
                      open, or the target had asked for patience, for longer than they may be held. Outages \
                      of that length do happen here. A longer `hold_max`, and `when_open: hold` where it says \
                      otherwise, lets them wait for the end of it.",
        needs: "3 deliveries that died while they were held",
        look: Look::Row(holds_expire),
    },
];

/// What the deliveries of a row that were retried by its policy show, as it reads now.
struct Record<'a> {
    policy: &'a NamedPolicy,
    /// How many made at least so many retries: the first is for one.
    made: Vec<u64>,
    /// How many arrived with that retry.
    helped: Vec<u64>,
    /// Deliveries that ended for want of retries.
    exhausted: Vec<&'a SeenDelivery>,
    ended: u64,
}

impl<'a> Record<'a> {
    fn of(member: &'a Member<'_>) -> Option<Self> {
        let policy = member.rule.retry_policy().filter(|policy| policy.backoff.retries() > 0)?;
        let mut record =
            Self { policy, made: Vec::new(), helped: Vec::new(), exhausted: Vec::new(), ended: 0 };
        for delivery in &member.deliveries {
            record.count(delivery);
        }
        Some(record)
    }

    fn count(&mut self, delivery: &'a SeenDelivery) {
        let ran_out = delivery.death().is_some_and(|(_, code)| {
            matches!(code.as_str(), codes::MAX_RETRIES_EXCEEDED | codes::RETRY_WINDOW_EXCEEDED)
        });
        self.ended += u64::from(delivery.arrived() || delivery.death().is_some());
        let weighed = delivery.stories.iter().rev().find_map(|story| story.retry.as_ref());
        // One that was retried by another policy, or by another number of retries, proves nothing of this one.
        let is_by_it = weighed.is_some_and(|weighed| {
            weighed.policy == self.policy.name.as_str()
                && weighed.by_policy.1 == self.policy.backoff.retries()
        });
        if !is_by_it {
            return;
        }
        let retries = delivery.attempts().count().saturating_sub(1);
        if self.made.len() < retries {
            self.made.resize(retries, 0);
            self.helped.resize(retries, 0);
        }
        self.made[..retries].iter_mut().for_each(|made| *made += 1);
        if delivery.arrived() && retries > 0 {
            self.helped[retries - 1] += 1;
        }
        if ran_out {
            self.exhausted.push(delivery);
        }
    }

    /// The last retry that ever helped anybody; 0 if none did.
    fn last_that_helped(&self) -> usize {
        self.helped.iter().rposition(|helped| *helped > 0).map_or(0, |place| place + 1)
    }
}

fn exhausted(chart: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let record = Record::of(member)?;
    let (count, ended) = (record.exhausted.len() as u64, record.ended);
    let retries = record.policy.backoff.retries();
    let last = record.last_that_helped();
    let saved_late = last > 0 && last + 2 > retries as usize;
    let is_much = count >= EXHAUSTED_MIN && exceeds(count, ended, EXHAUSTED_PERCENT);
    if !is_much || !saved_late || retries >= RETRIES_ADVISED_MAX {
        return None;
    }
    let backoff = &record.policy.backoff;
    let more = (retries + 2).min(RETRIES_ADVISED_MAX);
    let mut values = vec![("retries", more.to_string())];
    let longest = rounded_up(backoff.max() * 3 / 2);
    if backoff.listed().is_none() {
        values.push(("max", show_duration(longest)));
    }
    if let Some(window) = backoff.window() {
        values.push(("window", show_duration(rounded_up(window * 2))));
    }
    let last_failure = |delivery: &SeenDelivery| match &delivery.attempts().last()?.end {
        End::Failed { code, .. } => Some(code.clone()),
        End::Delivered { .. } | End::Held { .. } => None,
    };
    let failures: Vec<_> = record.exhausted.iter().filter_map(|delivery| last_failure(delivery)).collect();
    let name = &record.policy.name;
    Some(Sign {
        title: format!("`{}` gives up too early: the {retries} retries of `{name}` run out", member.queue),
        touched: count,
        evidence: vec![
            format!(
                "{} of {} that ended ({}) ran out of retries",
                count,
                counted(ended, "delivery"),
                percent(count, ended)
            ),
            format!("retry {last} still saved {}", counted(record.helped[last - 1], "delivery")),
            format!("their last failures: {}", said(&tally(failures.iter()))),
        ],
        advice: format!(
            "make {more} retries instead of {retries}, with delays of up to {}; `redrive timeline` shows what \
             that comes to",
            show_duration(longest.max(backoff.max()))
        ),
        change: Some(Change::new().of_policy(chart.evidence, &member.rule, record.policy, &values)),
        line: reaction_line(member),
        harm: None,
    })
}

fn never_help(chart: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let record = Record::of(member)?;
    let retries = record.policy.backoff.retries();
    let enough = record.last_that_helped().max(1);
    let in_vain = *record.made.get(enough)?;
    let to_spare = retries.saturating_sub(u32::try_from(enough).unwrap_or(u32::MAX));
    if in_vain < RETRY_MADE_MIN || retries < RETRIES_TO_SPARE || to_spare < 2 {
        return None;
    }
    let calls: u64 = record.made[enough..].iter().sum();
    let name = &record.policy.name;
    Some(Sign {
        title: format!("retries of `{}` beyond number {enough} never help", member.queue),
        touched: calls,
        evidence: vec![
            format!("{} made retry {} or more by `{name}`", counted(in_vain, "delivery"), enough + 1),
            format!("none of them arrived: {} for nothing", counted(calls, "call")),
            match record.last_that_helped() {
                0 => "no retry at all has helped here".to_owned(),
                last => format!("the last retry that helped was number {last}"),
            },
        ],
        advice: format!(
            "give up after {}: what is a dead letter sooner is seen sooner, and can be replayed when the cause \
             is gone",
            if enough == 1 { "1 retry".to_owned() } else { format!("{enough} retries") }
        ),
        change: Some(Change::new().of_policy(
            chart.evidence,
            &member.rule,
            record.policy,
            &[("retries", enough.to_string())],
        )),
        line: reaction_line(member),
        harm: None,
    })
}

fn first_too_late(chart: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let record = Record::of(member)?;
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
            (
                "delays",
                format!("[{}]", [short.clone()].into_iter().chain(rest).collect::<Vec<_>>().join(", ")),
            )
        }
        None => ("initial", short.clone()),
    };
    Some(Sign {
        title: format!(
            "`{}` waits {} for a retry that could be made at once",
            member.queue,
            show_duration(delay)
        ),
        touched: helped,
        evidence: vec![
            format!(
                "{helped} of {} that were retried ({}) arrived with the first retry",
                counted(made, "delivery"),
                percent(helped, made)
            ),
            format!("that retry comes after {} by `{}`", show_duration(delay), record.policy.name),
        ],
        advice: format!("wait {short} before the first retry; those after it still grow"),
        change: Some(Change::new().of_policy(chart.evidence, &member.rule, record.policy, &[value])),
        line: reaction_line(member),
        harm: None,
    })
}

fn meet_open_breaker(chart: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let policy = member.rule.retry_policy()?;
    let open = member.rule.rule.breaker.as_ref()?.settings.open();
    let total = policy.backoff.wait_max_total();
    if policy.backoff.retries() == 0 || total >= open {
        return None;
    }
    let (mut held, mut made) = (0_u64, 0_u64);
    for story in member.deliveries.iter().flat_map(|delivery| &delivery.stories) {
        if story.attempt.get() > 1 {
            held += u64::from(story.end == End::Held { by: HeldBy::Breaker });
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
    Some(Sign {
        title: format!("retries of `{}` come while the breaker is open", member.queue),
        touched: held,
        evidence: vec![
            format!("{held} of {} found the breaker open", counted(held + made, "retry")),
            format!(
                "all delays of `{}` together are {} at most, and the breaker stays open for {}",
                policy.name,
                show_duration(total),
                show_duration(open)
            ),
        ],
        advice: format!(
            "let delays grow to {}, beyond the time that the breaker is open",
            show_duration(longest)
        ),
        change: Some(Change::new().of_policy(chart.evidence, &member.rule, policy, &values)),
        line: reaction_line(member),
        harm: None,
    })
}

fn holds_expire(_: &Chart<'_>, member: &Member<'_>) -> Option<Sign> {
    let died = |wanted: &str| {
        let of_code =
            |delivery: &&&SeenDelivery| delivery.death().is_some_and(|(_, code)| code.as_str() == wanted);
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
        let change = Change::new().set(&place_of(rule, rule.when_open.origin.level), "when_open", "hold");
        let advice = "let deliveries wait for the breaker instead of giving them up at once".to_owned();
        (advice, change, rule.when_open.origin)
    } else {
        let wanted = show_duration(rounded_up(hold_max * 2));
        let change = Change::new().set(&place_of(rule, rule.hold_max.origin.level), "hold_max", &wanted);
        (
            format!("let deliveries be held for {wanted} instead of {}", show_duration(hold_max)),
            change,
            rule.hold_max.origin,
        )
    };
    Some(Sign {
        title: format!("deliveries of `{}` die while they wait", member.queue),
        touched: count,
        evidence: vec![format!(
            "{} gave up waiting: {} for the breaker, {} for the target, which had asked for patience",
            counted(count, "delivery"),
            at_breaker,
            of_patience
        )],
        advice,
        change: Some(change),
        line: origin.position().map(|position| position.line),
        harm: None,
    })
}

fn reaction_line(member: &Member<'_>) -> Option<u32> {
    let origin = member.rule.reaction_to(Category::Transient).origin;
    origin.position().map(|position| position.line)
}

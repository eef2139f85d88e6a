//! Records that were made by one book, held against another.

mod odd;
mod played;

use std::time::Duration;

use super::report::{EndName, OutcomeChange};
use super::*;
use redrive_core::book;
use redrive_core::book::connectors::built_in;
use redrive_core::engine::attempt_record::AttemptFacts;
use redrive_core::ids::Attempt;
use redrive_core::policy::answer::{HeaderPairs, ReplyKind as Saw, TargetReply};
use redrive_core::policy::classify::classify;
use redrive_core::policy::decide::{AttemptResult, History, Moment, Verdict, decide};

const SEED: Seed = Seed(7);
/// When everything begins.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(super) fn read(text: &str) -> RuleBook {
    let reading = book::read(text, built_in());
    reading.book.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems))
}

/// One service, `shop`; `inside` says more of it, `more` of everything else.
fn shop(inside: &str, more: &str) -> RuleBook {
    read(&format!(
        "version: 1\n{more}services:\n  shop:\n    target: {{ http: \"http://127.0.0.1:9000/\" }}\n{inside}    events: [\"orders.*\"]\n"
    ))
}

/// So many retries, a second apart.
fn retries(count: u32) -> RuleBook {
    let delays = vec!["1s"; count as usize].join(", ");
    let policy =
        format!("retry_policies:\n  few: {{ delays: [{delays}], retries: {count}, jitter: none }}\n");
    shop("    retry: few\n    breaker: none\n", &policy)
}

/// A delivery that owns its record.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub id: DeliveryId,
    pub queue: QueueName,
    pub event_type: String,
    pub accepted_at: Timestamp,
    pub state: RecordedState,
    pub replays: ReplayHistory,
    pub stories: Vec<AttemptRecord>,
}

impl Kept {
    pub(super) fn recorded(&self) -> RecordedDelivery<'_> {
        RecordedDelivery {
            id: self.id,
            queue: &self.queue,
            event_type: &self.event_type,
            order: SessionMembership::Alone,
            accepted_at: self.accepted_at,
            state: self.state,
            replays: self.replays,
            stories: &self.stories,
        }
    }
}

const fn at(second: u64) -> Timestamp {
    Timestamp::from_nanos(START.as_nanos() + second * 1_000_000_000)
}

fn reply(status: u16) -> TargetReply {
    let seen = Saw::Http { status, headers: HeaderPairs::default(), body: String::new() };
    TargetReply { seen, message: status.to_string(), retry_after: None }
}

/// Lets a delivery happen that is accepted then, with a target that says this at each time; attempts take 10ms.
fn happens(book: &RuleBook, number: u128, second: u64, says: impl Fn(Timestamp) -> u16) -> Kept {
    let queue = QueueName { service: Name::new("shop").expect("a name"), channel: None };
    let rule = book.rule("shop", None, "orders.placed").expect("it is wanted");
    let (id, mut now, mut attempt) = (DeliveryId(number), at(second), Attempt::FIRST);
    let (mut history, mut stories) = (History::new(), Vec::new());
    loop {
        let started_at = now;
        history = history.started(started_at);
        now = now + Duration::from_millis(10);
        let said = reply(says(started_at));
        let outcome = classify(&said.as_answer(), &rule.classify, rule.timeouts.category);
        let moment = Moment { now, seed: SEED, delivery: id, attempt };
        let ended = AttemptResult::Outcome(outcome);
        let decision = decide(rule, &history, &ended, &moment);
        let AttemptResult::Outcome(outcome) = ended else { unreachable!("it was made above") };
        let facts = AttemptFacts {
            attempt,
            started_at,
            ended_at: now,
            book: book.hash(),
            rule,
            outcome: Some(&outcome),
            status: said.as_answer().what.status(),
            response: "",
            receipt: "",
            held: history.held(now),
        };
        stories.push(AttemptRecord::of(&facts, &decision));
        history = history.after(&decision, now);
        match decision.verdict {
            Verdict::Retry { due_at } => now = due_at,
            Verdict::Deliver | Verdict::DeadLetter { .. } | Verdict::Pause | Verdict::Hold { .. } => break,
        }
        attempt = attempt.next();
    }
    Kept {
        id,
        queue,
        event_type: "orders.placed".to_owned(),
        accepted_at: at(second),
        state: RecordedState::Waiting,
        replays: ReplayHistory::None,
        stories,
    }
}

pub(super) fn tested(
    new: &RuleBook,
    old: &RuleBook,
    kept: &[Kept],
    seed: Seed,
    until: Timestamp,
) -> BacktestReport {
    read_twice(BacktestSurvey::new(BacktestPlan { book: new, seed, since: None, until }), old, kept)
}

fn read_twice(mut survey: BacktestSurvey<'_>, old: &RuleBook, kept: &[Kept]) -> BacktestReport {
    for kept in kept {
        while let Some(hash) = survey.wants_book(&kept.recorded()) {
            survey.add_book(hash, Some(old.clone()).filter(|old| old.hash() == hash));
        }
        survey.look(&kept.recorded());
    }
    let mut weighing = survey.weighing();
    for kept in kept {
        weighing.weigh(&kept.recorded());
    }
    weighing.report()
}

fn test(new: &RuleBook, old: &RuleBook, kept: &[Kept]) -> BacktestReport {
    tested(new, old, kept, SEED, at(100_000))
}

/// A change in short: from, to, code, certainty, how many.
fn short(changes: &[OutcomeChange]) -> Vec<(EndName, EndName, &str, Certainty, u64)> {
    changes.iter().map(|c| (c.from, c.to, c.code.as_str(), c.certainty, c.deliveries)).collect()
}

/// Down for so many seconds from then on.
fn down(from: u64, seconds: u64) -> impl Fn(Timestamp) -> u16 {
    move |now| if now >= at(from) && now < at(from + seconds) { 503 } else { 200 }
}

/// One event a second.
fn steady(book: &RuleBook, seconds: u64, says: impl Fn(Timestamp) -> u16) -> Vec<Kept> {
    (0..seconds).map(|second| happens(book, u128::from(second) + 1, second, &says)).collect()
}

#[test]
fn fewer_retries_bury_what_came_through_late_and_that_is_certain() {
    use Certainty::Certain;
    use EndName::{Dead, Delivered};
    let old = retries(5);
    let kept = steady(&old, 20, down(5, 4));
    let report = test(&retries(1), &old, &kept);
    // Accepted at 5 to 7, they are delivered by their second to fourth retry; at 8, by the first.
    assert_eq!(short(&report.changes), [(Delivered, Dead, "MAX_RETRIES_EXCEEDED", Certain, 3)]);
    assert_eq!(report.changes[0].failure, "SERVICE_UNAVAILABLE");
    assert_eq!(report.changes[0].examples.len(), 3);
    assert_eq!((report.before.delivered, report.after.delivered, report.after.dead), (20, 17, 3));
    assert_eq!((report.certainty.certain, report.certainty.likely), (20, 0));
    let load = &report.dependencies[0];
    assert_eq!((load.calls.before, load.calls.after, load.guessed), (30, 24, 0));
    assert_eq!((load.retries.before, load.retries.after), (10, 4));
    assert_eq!((report.futile_retries.before, report.futile_retries.after), (0, 3));
}

#[test]
fn more_retries_rescue_what_died_if_others_came_through_at_the_time() {
    use Certainty::Likely;
    use EndName::{Dead, Delivered};
    let old = retries(1);
    let kept = steady(&old, 20, down(5, 4));
    assert_eq!(test(&old, &old, &kept).before.dead, 3);
    let report = test(&retries(5), &old, &kept);
    assert_eq!(short(&report.changes), [(Dead, Delivered, "MAX_RETRIES_EXCEEDED", Likely, 3)]);
    assert_eq!((report.after.delivered, report.certainty.unknown), (20, 0));
    assert_eq!((report.certainty.certain, report.certainty.likely), (17, 3));
    let load = &report.dependencies[0];
    assert_eq!((load.calls.before, load.calls.after), (24, 30), "as it would have been");
}

#[test]
fn nobody_knows_what_was_answered_when_nobody_called() {
    let old = retries(1);
    let alone = [happens(&old, 1, 0, |_| 503)];
    let patient = shop(
        "    retry: slow\n    breaker: none\n",
        "retry_policies:\n  slow: { delays: [1h], retries: 1, jitter: none }\n",
    );
    let report = test(&patient, &old, &alone);
    assert_eq!((report.changed, report.after.unknown, report.certainty.unknown), (0, 1, 1));
    assert_eq!(report.dependencies[0].guessed, 1);
    let doubts: Vec<_> = report.untold.iter().map(|untold| (untold.doubt, untold.count)).collect();
    assert_eq!(doubts, [(report::UnknownKind::Delivery(BacktestDoubt::NothingNear), 1)]);
    assert_eq!(report.unknown.len(), 1);
}

/// A service that pauses itself holds all that comes after, and a person decides what becomes of it.
#[test]
fn what_comes_after_a_pause_is_not_told() {
    let old = retries(2);
    let policy = "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\n";
    let pausing = shop("    retry: few\n    breaker: none\n    on_failure: { fatal: pause }\n", policy);
    // One in each second; the fifth is the first that is locked out, and all is well again after the eighth.
    let locked = |now: Timestamp| if (at(5)..at(9)).contains(&now) { 401 } else { 200 };
    let kept = steady(&old, 20, locked);
    let report = test(&pausing, &old, &kept);
    assert_eq!((report.before.dead, report.before.delivered), (4, 16));
    assert_eq!((report.changed, report.after.unknown), (1, 14), "one is paused instead of dead");
    let untold: Vec<_> = report.untold.iter().map(|untold| (untold.doubt, untold.count)).collect();
    assert_eq!(untold, [(report::UnknownKind::Delivery(BacktestDoubt::Paused), 14)]);
    let same = test(&pausing, &pausing, &steady(&pausing, 8, locked));
    assert_eq!((same.changed, same.certainty.unknown), (0, 0));
}

#[test]
fn what_only_one_message_met_says_nothing_of_a_later_attempt() {
    let old = retries(2);
    let lenient = shop(
        "    retry: few\n    breaker: none\n    classify: [{ status: 404, as: transient }]\n",
        "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\n",
    );
    let mut kept = steady(&old, 10, |_| 200);
    kept.push(happens(&old, 99, 5, |_| 404));
    let report = test(&lenient, &old, &kept);
    assert_eq!((report.before.dead, report.changed, report.after.unknown), (1, 0, 1));
    let doubts: Vec<_> = report.untold.iter().map(|untold| untold.doubt).collect();
    assert!(doubts.contains(&report::UnknownKind::Delivery(BacktestDoubt::Message)), "{doubts:?}");
    let load = &report.dependencies[0];
    assert_eq!((load.calls.before, load.calls.after, load.guessed), (11, 13, 2));

    // If everybody met it for a while, it was the dependency.
    let deploy = |now: Timestamp| if now < at(3) { 404 } else { 200 };
    let kept = steady(&old, 10, deploy);
    let mut twice = steady(&old, 10, deploy);
    for (kept, number) in twice.iter_mut().zip(100_u128..) {
        kept.id = DeliveryId(number);
    }
    let report = test(&lenient, &old, &[kept, twice].concat());
    let rescued = (EndName::Dead, EndName::Delivered, "NOT_FOUND", Certainty::Likely, 4);
    let given_up = report.after.dead;
    assert_eq!((short(&report.changes), given_up), (vec![rescued], 2), "the first come too early");
}

#[test]
fn a_shorter_timeout_cuts_off_what_came_late() {
    let old = shop("    retry: none\n    breaker: none\n    timeout: 5s\n", "");
    let new = shop("    retry: none\n    breaker: none\n    timeout: 2s\n", "");
    let mut kept = steady(&old, 3, |_| 200);
    kept[1].stories[0].took_nanos = 3_000_000_000;
    let report = test(&new, &old, &kept);
    assert_eq!(
        short(&report.changes),
        [(EndName::Delivered, EndName::Dead, "MAX_RETRIES_EXCEEDED", Certainty::Certain, 1)]
    );
    assert_eq!(report.changes[0].failure, "NETWORK_TIMEOUT");
    assert_eq!(report.changes[0].examples, [kept[1].id.to_string()]);
    assert_eq!(test(&old, &old, &kept).changed, 0);
}

#[test]
fn who_is_wanted_by_nobody_and_who_would_be_new_is_told() {
    let old = retries(1);
    let kept = steady(&old, 4, |_| 200);
    let new = read(
        "version: 1\nservices:\n  mail:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    events: [\"orders.*\"]\n",
    );
    let mut survey =
        BacktestSurvey::new(BacktestPlan { book: &new, seed: SEED, since: None, until: at(100) });
    for kept in &kept {
        survey.look(&kept.recorded());
    }
    survey.add_unrouted("orders.paid", at(1));
    survey.add_unrouted("orders.paid", at(200));
    survey.add_unrouted("users.made", at(1));
    let mut weighing = survey.weighing();
    for kept in &kept {
        weighing.weigh(&kept.recorded());
    }
    let report = weighing.report();
    assert_eq!(short(&report.changes), [(EndName::Delivered, EndName::NotSent, "", Certainty::Certain, 4)]);
    let routes: Vec<_> =
        report.newly_routed.iter().map(|r| (r.service.as_str(), r.event_type.as_str(), r.events)).collect();
    assert_eq!(routes, [("mail", "orders.paid", 1), ("mail", "orders.placed", 4)]);
    assert_eq!(report.dependencies[0].calls, report::Pair { before: 4, after: 0 });
}

#[test]
fn the_order_of_reading_changes_nothing() {
    let old = retries(1);
    let mut kept = steady(&old, 60, down(5, 20));
    kept.push(happens(&old, 99, 5, |_| 404));
    let forward = test(&retries(4), &old, &kept);
    kept.reverse();
    assert_eq!(test(&retries(4), &old, &kept), forward);
    kept.rotate_left(17);
    assert_eq!(test(&retries(4), &old, &kept), forward);
}

#[test]
fn only_the_time_that_was_asked_for_is_looked_at() {
    let old = retries(1);
    let kept = steady(&old, 10, |_| 200);
    let mut survey =
        BacktestSurvey::new(BacktestPlan { book: &old, seed: SEED, since: Some(at(3)), until: at(6) });
    for kept in &kept {
        survey.look(&kept.recorded());
    }
    let mut weighing = survey.weighing();
    for kept in &kept {
        weighing.weigh(&kept.recorded());
    }
    let report = weighing.report();
    // The last was accepted at that very moment, and its attempt had not ended.
    assert_eq!((report.deliveries, report.before.delivered, report.before.waiting), (4, 3, 1));
    assert_eq!(report.accepted, Some((at(3), at(6))));
}

#[test]
fn a_call_that_nobody_made_waits_while_the_breaker_was_open() {
    let old = retries(1);
    let new = shop(
        "    retry: few\n    hold_max: 1m\n",
        "retry_policies:\n  few: { delays: [1s, 1s], retries: 2, jitter: none }\n",
    );
    let kept = steady(&old, 40, down(5, 20));
    let told = |open: Option<(u64, u64)>| {
        let mut survey =
            BacktestSurvey::new(BacktestPlan { book: &new, seed: SEED, since: None, until: at(1_000) });
        if let Some((from, until)) = open {
            survey.add_open("shop", at(from), at(until));
        }
        for kept in &kept {
            survey.look(&kept.recorded());
        }
        let mut weighing = survey.weighing();
        for kept in &kept {
            weighing.weigh(&kept.recorded());
        }
        weighing.report()
    };
    // One retry more helps only those that came last; a breaker helps whoever still has one.
    let (bare, spared) = (told(None), told(Some((6, 26))));
    assert_eq!((bare.before.dead, bare.after.dead), (19, 18));
    assert_eq!((spared.after.dead, spared.after.delivered), (0, 40));
    let untold: Vec<_> = spared.untold.iter().map(|untold| untold.doubt).collect();
    assert!(!untold.contains(&report::UnknownKind::Delivery(BacktestDoubt::NothingNear)), "{untold:?}");
}

#[test]
fn a_life_that_began_again_is_compared_until_it_first_ended() {
    let old = retries(1);
    let mut kept = happens(&old, 1, 0, |_| 503);
    let replayed = happens(&old, 1, 60, |_| 200);
    kept.stories.extend(replayed.stories);
    kept.replays = ReplayHistory::Here(1);
    let report = test(&old, &old, &[kept]);
    assert_eq!((report.before.dead, report.after.dead, report.certainty.certain), (1, 1, 1));
    assert_eq!(report.dependencies[0].calls, report::Pair { before: 2, after: 2 });
    let untold: Vec<_> = report.untold.iter().map(|untold| (untold.doubt, untold.count)).collect();
    assert_eq!(untold, [(report::UnknownKind::Delivery(BacktestDoubt::Replayed), 1)]);
}

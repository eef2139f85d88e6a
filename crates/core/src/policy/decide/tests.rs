//! Verdicts row by row, whole deliveries played to their end, and what must hold for every rule.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::event::copy_rule::CopyRule;
use crate::ids::{DependencyName, PolicyName};
use crate::policy::backoff::{Backoff, Jitter, RawBackoff, RawSchedule};
use crate::policy::breaker::RawBreaker;
use crate::policy::category::FailureCode;
use crate::policy::rule::{GrowingTimeout, NamedBreaker, NamedPolicy, Reactions, StatusRange, Timeouts};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the first attempt of every delivery here starts.
const START: Timestamp = Timestamp::from_millis(1_000_000);

fn after_start(millis: u64) -> Timestamp {
    START + ms(millis)
}

fn policy(name: &str, delays: &[u64], retries: u32, window: Option<u64>) -> NamedPolicy {
    let raw = RawBackoff {
        schedule: RawSchedule::Listed(delays.iter().copied().map(ms).collect()),
        jitter: Jitter::None,
        retries,
        window: window.map(ms),
    };
    NamedPolicy {
        name: PolicyName::new(name).expect("a name"),
        backoff: Backoff::try_from(raw).expect("a sound policy"),
        alert_on_exhaustion: name == "upstream",
    }
}

const SHORT: Reaction = Reaction::Retry(PolicyIndex(0));
const UPSTREAM: Reaction = Reaction::Retry(PolicyIndex(1));
const HASTY: Reaction = Reaction::Retry(PolicyIndex(2));
const SHORT_BY_DEFAULT: Reaction = Reaction::RetryCautiously(PolicyIndex(0));

fn stated(line: u32, value: Reaction) -> Sourced<Reaction> {
    Sourced { value, position: Some(Position { line, column: 5 }) }
}

fn rule() -> Rule {
    rule_with(&[], None)
}

/// The usual rule, with reactions to single statuses or another reaction to one category.
fn rule_with(
    statuses: &[(StatusRange, Sourced<Reaction>)],
    other: Option<(Category, Sourced<Reaction>)>,
) -> Rule {
    let mut by_category = Category::ALL.map(|_| stated(1, Reaction::DeadLetter));
    by_category[Category::Transient as usize] = stated(2, SHORT);
    by_category[Category::RateLimited as usize] = stated(3, UPSTREAM);
    by_category[Category::Unknown as usize] = stated(4, SHORT_BY_DEFAULT);
    by_category[Category::Internal as usize] = stated(5, SHORT_BY_DEFAULT);
    if let Some((category, reaction)) = other {
        by_category[category as usize] = reaction;
    }
    let policies = vec![
        policy("short", &[100, 200, 300], 3, Some(1_000)),
        policy("upstream", &[500], 4, None),
        policy("hasty", &[10], 1, None),
    ];
    Rule {
        classify: Arc::from([]),
        reactions: Reactions::new(policies, statuses.to_vec(), by_category),
        dependency: DependencyName::new("orders").expect("a name"),
        breaker: None,
        when_open: WhenOpen::Hold,
        hold_max: ms(60_000),
        deadline: None,
        fatal_after: None,
        timeouts: Timeouts {
            connect: ms(5),
            tls: ms(5),
            headers: ms(5),
            whole: GrowingTimeout::fixed(ms(10)),
            category: Category::Transient,
        },
        copies: CopyRule::default(),
    }
}

fn failure(category: Category) -> Failure {
    Failure {
        category,
        code: FailureCode::of(codes::UNKNOWN_ERROR),
        status: None,
        message: String::new(),
        retry_after: None,
        matched: None,
        default_category: Some(category),
        connection: ConnectionStatus::Made,
    }
}

fn failed(category: Category) -> AttemptResult {
    AttemptResult::Outcome(Outcome::Failed(failure(category)))
}

fn answered(category: Category, status: u16) -> AttemptResult {
    AttemptResult::Outcome(Outcome::Failed(Failure { status: Some(status), ..failure(category) }))
}

fn asking(category: Category, wait: u64) -> AttemptResult {
    AttemptResult::Outcome(Outcome::Failed(Failure { retry_after: Some(ms(wait)), ..failure(category) }))
}

fn refused() -> AttemptResult {
    AttemptResult::Outcome(Outcome::Failed(Failure {
        connection: ConnectionStatus::Failed,
        ..failure(Category::Transient)
    }))
}

fn delivered() -> AttemptResult {
    AttemptResult::Outcome(Outcome::Delivered { matched: None })
}

fn moment(now: Timestamp, attempt: Attempt) -> Moment {
    Moment { now, seed: Seed(7), delivery: DeliveryId(42), attempt }
}

fn starts(ended: &AttemptResult) -> bool {
    match ended {
        AttemptResult::Outcome(_) | AttemptResult::Interrupted => true,
        AttemptResult::BreakerOpen { .. } | AttemptResult::AskedToWait { .. } => false,
    }
}

/// Plays a delivery whose attempts take no time and start when they are due.
fn play(rule: &Rule, script: &[AttemptResult]) -> Vec<Decision> {
    let (mut now, mut attempt, mut history) = (START, Attempt::FIRST, History::new());
    let mut decisions = Vec::new();
    for ended in script {
        if starts(ended) {
            history = history.started(now);
        }
        let decision = decide(rule, &history, ended, &moment(now, attempt));
        history = history.after(&decision, now);
        attempt = attempt.next();
        now = match decision.verdict {
            Verdict::Retry { due_at } => due_at,
            Verdict::Hold { until } => until,
            Verdict::Deliver | Verdict::DeadLetter { .. } | Verdict::Pause => now,
        };
        decisions.push(decision);
    }
    decisions
}

fn last(rule: &Rule, script: &[AttemptResult]) -> Decision {
    *play(rule, script).last().expect("a script has an end")
}

fn retry(millis: u64) -> Verdict {
    Verdict::Retry { due_at: after_start(millis) }
}

fn hold_until(millis: u64) -> Verdict {
    Verdict::Hold { until: after_start(millis) }
}

fn dead(reason: DeadLetterReason) -> Verdict {
    Verdict::DeadLetter { reason, tier: Tier::Dead }
}

#[test]
fn each_failure_is_ruled_on() {
    use Category::{Fatal, Internal, Invalid, Permanent, RateLimited, Transient, Unknown};
    let open = |millis| AttemptResult::BreakerOpen { until: after_start(millis) };
    let waiting = |millis| AttemptResult::AskedToWait { until: after_start(millis) };
    let poison = Verdict::DeadLetter { reason: DeadLetterReason::Refused, tier: Tier::Poison };
    #[rustfmt::skip]
    let cases = [
        ("success ends it",                          vec![delivered()],                       Verdict::Deliver),
        ("the first retry waits the first delay",    vec![failed(Transient)],                 retry(100)),
        ("then the second",                          vec![failed(Transient); 2],              retry(300)),
        ("then the third",                           vec![failed(Transient); 3],              retry(600)),
        ("the last failure ends it",                 vec![failed(Transient); 4],              dead(DeadLetterReason::RetriesExceeded)),
        ("a rejection ends it at once",              vec![failed(Permanent)],                 dead(DeadLetterReason::Refused)),
        ("so do bad credentials",                    vec![failed(Fatal)],                     dead(DeadLetterReason::Refused)),
        ("a bad message is poison",                  vec![failed(Invalid)],                   poison),
        ("the unknown gets a second retry",          vec![failed(Unknown); 2],                retry(300)),
        ("and no third",                             vec![failed(Unknown); 3],                dead(DeadLetterReason::RetriesExceeded)),
        ("after others it still gets its own",       vec![failed(Transient), failed(Transient), failed(Unknown)], retry(600)),
        ("our own fault gets three attempts",        vec![failed(Internal); 2],               retry(300)),
        ("and no fourth",                            vec![failed(Internal); 3],               dead(DeadLetterReason::RetriesExceeded)),
        ("each policy counts for itself",            vec![failed(Transient), failed(RateLimited), failed(Transient)], retry(800)),
        ("the most generous policy limits them all", [vec![failed(Transient); 3], vec![failed(RateLimited); 2]].concat(), dead(DeadLetterReason::RetriesExceeded)),
        ("Retry-After stretches a wait",             vec![asking(RateLimited, 5_000)],        retry(5_000)),
        ("and never shortens it",                    vec![asking(RateLimited, 5)],            retry(500)),
        ("what was asked for uses up no window",     vec![asking(Transient, 5_000), failed(Transient)], retry(5_200)),
        ("but patience",                             vec![asking(RateLimited, 60_001)],       dead(DeadLetterReason::HoldExpired)),
        ("in all",                                   vec![asking(RateLimited, 30_000), asking(RateLimited, 30_001)], dead(DeadLetterReason::HoldExpired)),
        ("an open breaker holds",                    vec![open(700)],                         hold_until(700)),
        ("held time uses up no window",              vec![failed(Transient), open(9_000), failed(Transient)], retry(9_200)),
        ("nor does a hold before the first attempt", vec![open(9_000), failed(Transient), failed(Transient)], retry(9_300)),
        ("nor a retry",                              [vec![open(700); 9], vec![failed(Transient); 3]].concat(), retry(1_300)),
        ("for no longer than patience lasts",        vec![open(60_001)],                      hold_until(60_000)),
        ("of which some may be used up",             vec![open(30_000), open(90_000)],        hold_until(60_000)),
        ("and only its end is the end",              vec![open(60_001); 2],                   dead(DeadLetterReason::BreakerOpen)),
        ("however often it is asked",                vec![open(30_000), open(60_000), open(60_001)], dead(DeadLetterReason::BreakerOpen)),
        ("a breaker that lets it go then",           vec![open(60_001), delivered()],         Verdict::Deliver),
        ("or may be asked again at once",            vec![open(60_001), open(60_000)],        hold_until(60_000)),
        ("a breaker that lets it go is no wait",     vec![AttemptResult::BreakerOpen { until: Timestamp::EPOCH }], hold_until(0)),
        ("a dependency that asks too much holds",    vec![waiting(60_001)],                   hold_until(60_000)),
        ("and ends it if it asks for more",          vec![waiting(60_001); 2],                dead(DeadLetterReason::HoldExpired)),
        ("what was asked for before counts",         vec![asking(RateLimited, 30_000), waiting(90_000), waiting(90_000)], dead(DeadLetterReason::HoldExpired)),
        ("our shutdown burns nothing",               [vec![AttemptResult::Interrupted; 9], vec![failed(Transient); 3]].concat(), retry(600)),
    ];
    for (name, script, expected) in cases {
        assert_eq!(last(&rule(), &script).verdict, expected, "{name}");
    }
}

#[test]
fn a_rule_changes_what_follows() {
    use Category::{Fatal, Internal, Transient, Unknown};
    let known = rule_with(&[], Some((Unknown, stated(9, UPSTREAM))));
    let own_fault = rule_with(&[], Some((Internal, stated(9, UPSTREAM))));
    let server_error = rule_with(&[(StatusRange { first: 500, last: 500 }, stated(9, UPSTREAM))], None);
    let paused = rule_with(&[], Some((Fatal, stated(9, Reaction::Pause))));
    let by_status = rule_with(&[(StatusRange { first: 503, last: 503 }, stated(9, HASTY))], None);
    let impatient = Rule { when_open: WhenOpen::DeadLetter, ..rule() };
    let short_deadline = Rule { deadline: Some(ms(299)), ..rule() };
    let strict = Rule { fatal_after: Some(ms(250)), ..rule() };
    let strict_pause = Rule { fatal_after: Some(ms(250)), ..paused.clone() };
    let narrow_policy = policy("short", &[100, 200, 300], 3, Some(500));
    let by_category = Category::ALL.map(|_| stated(2, SHORT));
    let narrow = Rule { reactions: Reactions::new(vec![narrow_policy], vec![], by_category), ..rule() };
    let open = AttemptResult::BreakerOpen { until: after_start(400) };
    let waiting = AttemptResult::AskedToWait { until: after_start(400) };
    let unavailable = || answered(Transient, 503);
    #[rustfmt::skip]
    let cases = [
        ("fatal may pause",                       &paused,         vec![failed(Fatal)],                      Verdict::Pause),
        ("a pause burns no retry",                &paused,         [vec![failed(Fatal); 9], vec![failed(Transient); 3]].concat(), retry(600)),
        ("a status has its own policy",           &by_status,      vec![unavailable()],                      retry(10)),
        ("with its own limit",                    &by_status,      vec![unavailable(), unavailable()],       dead(DeadLetterReason::RetriesExceeded)),
        ("other statuses have not",               &by_status,      vec![answered(Transient, 502)],           retry(100)),
        ("the unknown may be stated",             &known,          vec![failed(Unknown); 4],                 retry(2_000)),
        ("with the policy's limit",               &known,          vec![failed(Unknown); 5],                 dead(DeadLetterReason::RetriesExceeded)),
        ("so may our own fault",                  &own_fault,      vec![failed(Internal); 4],                retry(2_000)),
        ("so may a status that is unknown",       &server_error,   vec![answered(Unknown, 500); 4],          retry(2_000)),
        ("others of its category stay few",       &server_error,   vec![answered(Unknown, 507); 3],          dead(DeadLetterReason::RetriesExceeded)),
        ("and count for themselves",              &server_error,   [vec![answered(Unknown, 500)], vec![answered(Unknown, 507); 2]].concat(), retry(800)),
        ("an open breaker may end it",            &impatient,      vec![open.clone()],                       dead(DeadLetterReason::BreakerOpen)),
        ("but a wait that was asked for may not", &impatient,      vec![waiting],                            hold_until(400)),
        ("a retry before the deadline",           &short_deadline, vec![failed(Transient)],                  retry(100)),
        ("none after it",                         &short_deadline, vec![failed(Transient); 2],               dead(DeadLetterReason::DeadlineExceeded)),
        ("a hold ends with it",                   &short_deadline, vec![failed(Transient), open.clone()],    hold_until(299)),
        ("and then it is over",                   &short_deadline, vec![failed(Transient), open.clone(), open], dead(DeadLetterReason::DeadlineExceeded)),
        ("a wait asked for counts to it",         &short_deadline, vec![asking(Transient, 300)],             dead(DeadLetterReason::DeadlineExceeded)),
        ("a retry within the window",             &narrow,         vec![failed(Transient); 2],               retry(300)),
        ("none after it",                         &narrow,         vec![failed(Transient); 3],               dead(DeadLetterReason::WindowExceeded)),
        ("a connection may fail for a while",     &strict,         vec![refused(); 2],                       retry(300)),
        ("and not for longer",                    &strict,         vec![refused(); 3],                       dead(DeadLetterReason::ConnectionFailing)),
        ("an answer between starts it anew",      &strict,         vec![refused(), failed(Transient), refused()], retry(600)),
        ("such a failure is fatal, so may pause", &strict_pause,   vec![refused(); 3],                       Verdict::Pause),
    ];
    for (name, rule, script, expected) in cases {
        assert_eq!(last(rule, &script).verdict, expected, "{name}");
    }
}

#[test]
fn those_concerned_are_told() {
    use Category::{Fatal, Internal, Invalid, Permanent, RateLimited, Transient, Unknown};
    let unwell = Observation::Failure(CallEnd::WillRetry);
    let given_up = Observation::Failure(CallEnd::Final);
    let unauthorized = AttemptResult::Outcome(Outcome::Failed(Failure {
        code: FailureCode::of(codes::UNAUTHORIZED),
        ..failure(Fatal)
    }));
    let strict = Rule { fatal_after: Some(ms(250)), ..rule() };
    #[rustfmt::skip]
    let cases = [
        ("success",                     rule(), vec![delivered()],              Observation::Success,  None),
        ("transient",                   rule(), vec![failed(Transient)],        unwell,                None),
        ("the last of them",            rule(), vec![failed(Transient); 4],     given_up,              None),
        ("rate-limited",                rule(), vec![failed(RateLimited)],      unwell,                None),
        ("one too many",                rule(), vec![failed(RateLimited); 5],   given_up,              Some(AlertKind::Exhausted)),
        ("a wait nobody can grant",     rule(), vec![asking(RateLimited, 61_000)], given_up,           None),
        ("unknown",                     rule(), vec![failed(Unknown)],          unwell,                None),
        ("permanent",                   rule(), vec![failed(Permanent)],        Observation::Answered, None),
        ("invalid",                     rule(), vec![failed(Invalid)],          Observation::Answered, None),
        ("fatal",                       rule(), vec![failed(Fatal)],            Observation::Silent,   Some(AlertKind::Configuration)),
        ("401",                         rule(), vec![answered(Fatal, 401)],     Observation::Silent,   Some(AlertKind::Security)),
        ("403",                         rule(), vec![answered(Fatal, 403)],     Observation::Silent,   Some(AlertKind::Security)),
        ("a broker's refusal",          rule(), vec![unauthorized],             Observation::Silent,   Some(AlertKind::Security)),
        ("internal",                    rule(), vec![failed(Internal)],         Observation::Silent,   Some(AlertKind::Internal)),
        ("our shutdown",                rule(), vec![AttemptResult::Interrupted],       Observation::Silent,   None),
        ("a breaker's own hold",        rule(), vec![AttemptResult::BreakerOpen { until: START }], Observation::Silent, None),
        ("a connection long dead",      strict, vec![refused(); 3],             given_up,              Some(AlertKind::Configuration)),
    ];
    for (name, rule, script, observation, alert) in cases {
        let decision = last(&rule, &script);
        assert_eq!((decision.observation, decision.alert), (observation, alert), "{name}");
    }
}

#[test]
fn a_rule_may_leave_failures_out_of_the_breakers_count() {
    let unavailable = FailureMatch::Status(StatusRange { first: 503, last: 503 });
    let transient = FailureMatch::Category(Category::Transient);
    let gone = FailureMatch::Status(StatusRange { first: 410, last: 410 });
    let answered = |status| Failure { status: Some(status), ..failure(Category::Transient) };
    let refused = Failure { status: Some(410), ..failure(Category::Permanent) };
    let failed = Observation::Failure(CallEnd::WillRetry);
    #[rustfmt::skip]
    let cases = [
        ("a status that it ignores",       vec![unavailable], vec![],     answered(503), Observation::Silent),
        ("another status",                 vec![unavailable], vec![],     answered(504), failed),
        ("a category that it ignores",     vec![transient],   vec![],     answered(504), Observation::Silent),
        ("a refusal usually says little",  vec![],            vec![],     refused.clone(), Observation::Answered),
        ("a refusal that it counts",       vec![],            vec![gone], refused.clone(), failed),
        ("what it ignores is not counted", vec![gone],        vec![gone], refused,       Observation::Silent),
    ];
    for (name, ignores, counts, failure, expected) in cases {
        let entry = crate::policy::catalog::breaker("kafkaBreaker").expect("the catalog has it");
        let settings = RawBreaker::from(entry).try_into().expect("the catalog's are sound");
        let breaker = Some(NamedBreaker { name: None, settings, ignores, counts });
        let rule = Rule { breaker, ..rule() };
        assert_eq!(observation(&rule, &failure, retry(1)), expected, "{name}");
    }
}

#[test]
fn only_a_rate_limit_holds_the_dependency() {
    let held = |ended| last(&rule(), &[ended]).hold_dependency_until;
    assert_eq!(held(asking(Category::RateLimited, 5_000)), Some(after_start(5_000)));
    assert_eq!(held(asking(Category::Transient, 5_000)), None, "a 503 speaks for one call");
    assert_eq!(held(failed(Category::RateLimited)), None, "nobody said for how long");
}

#[test]
fn a_call_that_was_not_made_is_held_and_burns_neither_retries_nor_the_breaker() {
    let without_secret = || {
        AttemptResult::Outcome(Outcome::Failed(Failure {
            connection: ConnectionStatus::NotTried,
            retry_after: Some(ms(10_000)),
            ..failure(Category::Transient)
        }))
    };
    // `hold_max` is a minute: more such waits than there are retries fit into it.
    let mut history = History::new();
    let mut now = START;
    for round in 1..=6 {
        history = history.started(now);
        let decision = decide(&rule(), &history, &without_secret(), &moment(now, Attempt::FIRST));
        assert_eq!(decision.verdict, Verdict::Retry { due_at: now + ms(10_000) }, "round {round}");
        assert_eq!(decision.observation, Observation::Silent, "round {round}");
        history = history.after(&decision, now);
        now = now + ms(10_000);
    }
    assert_eq!(history.retries_total(), 0);
    assert_eq!(history.held(now), ms(60_000));
    let last = decide(&rule(), &history.started(now), &without_secret(), &moment(now, Attempt::FIRST));
    let reason = DeadLetterReason::HoldExpired;
    assert_eq!(last.verdict, Verdict::DeadLetter { reason, tier: Tier::Dead });
}

#[test]
fn why_names_the_line_and_the_numbers() {
    let matched = Some(Position { line: 30, column: 7 });
    let overridden =
        AttemptResult::Outcome(Outcome::Failed(Failure { matched, ..failure(Category::RateLimited) }));
    let decisions = play(&rule(), &[failed(Category::Transient), overridden]);
    let VerdictBasis::Failed(ruling) = decisions[1].why else { panic!("it failed") };
    let expected = Ruling {
        category: Category::RateLimited,
        matched,
        connection_failing_for: None,
        connection: ConnectionStatus::Made,
        reaction: stated(3, UPSTREAM),
        retry: Some(RetryNumbers {
            policy: PolicyIndex(1),
            by_policy: RetryCount { number: 1, max: 4 },
            in_total: RetryCount { number: 2, max: 4 },
            by_category: None,
            window: SpentTime::of(ms(600), None),
            held: SpentTime::of(ms(0), Some(ms(60_000))),
            deadline: SpentTime::of(ms(600), None),
            backoff_nanos: 500_000_000,
            retry_after_nanos: 0,
        }),
    };
    assert_eq!(ruling, expected);
}

#[test]
fn every_reason_has_a_code_but_the_failures_own() {
    #[rustfmt::skip]
    let cases = [
        (DeadLetterReason::Refused,           None),
        (DeadLetterReason::ConnectionFailing, Some("CONNECTION_FAILING")),
        (DeadLetterReason::RetriesExceeded,   Some("MAX_RETRIES_EXCEEDED")),
        (DeadLetterReason::WindowExceeded,    Some("RETRY_WINDOW_EXCEEDED")),
        (DeadLetterReason::DeadlineExceeded,  Some("DEADLINE_EXCEEDED")),
        (DeadLetterReason::HoldExpired,       Some("HOLD_EXPIRED")),
        (DeadLetterReason::BreakerOpen,       Some("CIRCUIT_BREAKER_OPEN")),
    ];
    for (reason, code) in cases {
        assert_eq!(reason.code(), code);
    }
}

/// A delivery that failed at the start and was due again 100 ms later.
fn failed_once() -> History {
    failed_by(&failed(Category::Transient))
}

fn failed_by(ended: &AttemptResult) -> History {
    let history = History::new().started(START);
    let decision = decide(&rule(), &history, ended, &moment(START, Attempt::FIRST));
    history.after(&decision, START)
}

#[test]
fn pauses_and_absences_use_up_nothing() {
    let now = after_start(10_000);
    let open = AttemptResult::BreakerOpen { until: now };
    let held = {
        let decision = decide(&rule(), &failed_once(), &open, &moment(START, Attempt::FIRST));
        failed_once().after(&decision, START)
    };
    #[rustfmt::skip]
    let cases = [
        ("time passes",               failed_once(),                                   10_000, 0),
        ("a pause",                   failed_once().paused(after_start(1_000)),        1_000,  0),
        ("a pause that ended",        failed_once().paused(after_start(1_000)).started(after_start(4_000)), 7_000, 0),
        ("an absence",                failed_once().away(ms(4_000)),                   6_000,  0),
        ("a hold",                    held.clone(),                                    0,      10_000),
        ("a hold that ended",         held.started(after_start(3_000)),                7_000,  3_000),
        ("an absence while held",     held.away(ms(4_000)),                            0,      6_000),
        ("a pause while held",        held.paused(after_start(2_000)),                 0,      2_000),
        ("an absence before it all",  History::new().away(ms(4_000)),                  0,      0),
    ];
    for (name, history, window_used, held) in cases {
        assert_eq!(
            (Duration::from_nanos(history.window_used_nanos(now)), history.held(now)),
            (ms(window_used), ms(held)),
            "{name}"
        );
    }
}

#[test]
fn an_absence_uses_up_no_deadline_and_no_patience_with_a_connection() {
    let failing = failed_by(&refused());
    let pausing = rule_with(&[], Some((Category::Transient, stated(9, Reaction::Pause))));
    let paused_by_rule = {
        let decision = decide(&pausing, &failing, &refused(), &moment(START, Attempt::FIRST));
        failing.after(&decision, START)
    };
    #[rustfmt::skip]
    let cases = [
        // name,                                     history,                                          failing since, age
        ("time passes",                               failing.clone(),                                  Some(0),       10_000),
        ("an absence",                                failing.away(ms(4_000)),                          Some(4_000),   6_000),
        ("two absences",                              failing.away(ms(4_000)).away(ms(1_000)),          Some(5_000),   5_000),
        ("an absence before it all",                  History::new().away(ms(4_000)),                   None,          0),
        ("an absence before the first failure",       History::new().started(START).away(ms(4_000)),    None,          6_000),
        ("a pause, which only the deadline minds",    failing.paused(after_start(1_000)),               None,          10_000),
        ("a pause that ended",                        failing.paused(START).started(after_start(4_000)), None,         10_000),
        ("a pause by the rule itself",                paused_by_rule,                                   None,          10_000),
        ("an absence while paused",                   failing.paused(START).away(ms(4_000)),            None,          6_000),
    ];
    let now = after_start(10_000);
    for (name, history, failing_since, age) in cases {
        assert_eq!(history.connection_failing_since(), failing_since.map(after_start), "{name}");
        assert_eq!(history.age_nanos(now), nanos(ms(age)), "{name}");
    }

    let patient = rule_with(&[], Some((Category::Transient, stated(9, UPSTREAM))));
    let strict = Rule { fatal_after: Some(ms(5_000)), deadline: Some(ms(10_400)), ..patient };
    let verdict =
        |history: &History| decide(&strict, history, &refused(), &moment(now, Attempt::FIRST)).verdict;
    assert_eq!(verdict(&failing), dead(DeadLetterReason::ConnectionFailing));
    assert_eq!(verdict(&failing.away(ms(5_000))), retry(10_500));
    assert_eq!(verdict(&failing.paused(START).started(now)), dead(DeadLetterReason::DeadlineExceeded));
}

#[test]
fn a_hold_tells_what_it_uses_up() {
    let rule = Rule { deadline: Some(ms(70_000)), ..rule() };
    let open = |millis| AttemptResult::BreakerOpen { until: after_start(millis) };
    #[rustfmt::skip]
    let cases = [
        ("a short one",               vec![delivered(), open(700)],                  700,    700),
        ("one that is cut",           vec![delivered(), open(90_000)],               60_000, 60_000),
        ("the one after it, refused", vec![delivered(), open(90_000), open(90_000)], 60_000, 60_000),
        ("before the first attempt",  vec![open(90_000)],                            60_000, 0),
    ];
    for (name, script, held, age) in cases {
        let VerdictBasis::Held(holding) = last(&rule, &script).why else { panic!("{name}: it was held") };
        assert_eq!(holding.held, SpentTime::of(ms(held), Some(ms(60_000))), "{name}");
        assert_eq!(holding.deadline, SpentTime::of(ms(age), Some(ms(70_000))), "{name}");
    }
}

#[test]
fn a_history_is_stored_in_few_words_and_read_back() {
    let json = |history: &History| serde_json::to_string(history).expect("plain data");
    assert_eq!(json(&History::new()), "{}");
    let history = failed_once();
    assert_eq!(serde_json::from_str::<History>(&json(&history)).expect("what was written"), history);
    assert!(json(&history).contains("\"retries_by_policy\":[1]"), "{}", json(&history));
    let paused = history.paused(START);
    assert_eq!(serde_json::from_str::<History>(&json(&paused)).expect("what was written"), paused);
    let many = format!("{{\"retries_by_policy\":[{}0]}}", "0,".repeat(16));
    assert!(serde_json::from_str::<History>(&many).is_err());
}

#[test]
fn a_new_book_keeps_the_counts_by_name() {
    let old = rule().reactions;
    let mut policies: Vec<_> = old.policies().iter().rev().cloned().collect();
    policies.push(policy("fresh", &[1], 1, None));
    let new = Reactions::new(policies, vec![], Category::ALL.map(|_| stated(1, SHORT)));
    let carried = failed_once().carried_over(Some(&old), &new);
    let counts = [0, 1, 2, 3].map(|index| carried.retries_by(PolicyIndex(index)));
    assert_eq!((counts, carried.retries_total()), ([0, 0, 1, 0], 1));
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![4 => (1..5_000_u64).prop_map(ms), 1 => Just(Duration::MAX), 1 => Just(Duration::from_nanos(1))]
}

fn any_policy() -> impl Strategy<Value = NamedPolicy> {
    let jitter = prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        any_span().prop_map(Jitter::Plus),
        any_span().prop_map(Jitter::SpreadBy),
    ];
    (any_span(), any_span(), 1.0..4.0, jitter, 0..6_u32, prop::option::of(any_span())).prop_map(
        |(a, b, factor, jitter, retries, window)| {
            let schedule = RawSchedule::Exponential { initial: a.min(b), factor, max: a.max(b) };
            let backoff = Backoff::try_from(RawBackoff { schedule, jitter, retries, window });
            NamedPolicy {
                name: PolicyName::new("any").expect("a name"),
                backoff: backoff.expect("a sound policy"),
                alert_on_exhaustion: retries > 2,
            }
        },
    )
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let reaction = prop_oneof![
        4 => (0..3_u8).prop_map(|index| Reaction::Retry(PolicyIndex(index))),
        2 => (0..3_u8).prop_map(|index| Reaction::RetryCautiously(PolicyIndex(index))),
        1 => Just(Reaction::DeadLetter),
        1 => Just(Reaction::Pause),
    ];
    let reactions = prop::array::uniform7(reaction.prop_map(|value| stated(1, value)));
    let limits = (any_span(), prop::option::of(any_span()), prop::option::of(any_span()));
    (prop::array::uniform3(any_policy()), reactions, limits).prop_map(
        |(policies, by_category, (hold_max, deadline, fatal_after))| Rule {
            reactions: Reactions::new(policies.to_vec(), vec![], by_category),
            hold_max,
            deadline,
            fatal_after,
            ..rule()
        },
    )
}

fn any_end() -> impl Strategy<Value = AttemptResult> {
    let failed = (
        prop::sample::select(Category::ALL.to_vec()),
        prop::option::of(any_span()),
        prop::sample::select(vec![ConnectionStatus::Made, ConnectionStatus::Failed]),
    );
    let failed = failed.prop_map(|(category, retry_after, connection)| {
        AttemptResult::Outcome(Outcome::Failed(Failure { retry_after, connection, ..failure(category) }))
    });
    let until = || any_span().prop_map(|span| START + span);
    prop_oneof![
        8 => failed,
        1 => until().prop_map(|until| AttemptResult::BreakerOpen { until }),
        1 => until().prop_map(|until| AttemptResult::AskedToWait { until }),
        1 => Just(AttemptResult::Interrupted),
    ]
}

proptest! {
    #[test]
    fn no_delivery_gets_more_than_its_rule_allows(
        rule in any_rule(),
        script in prop::collection::vec(any_end(), 1..40),
    ) {
        let (mut now, mut attempt, mut history) = (START, Attempt::FIRST, History::new());
        let (mut retries, mut asked_for) = (0, Duration::ZERO);
        for ended in &script {
            if starts(ended) {
                history = history.started(now);
            }
            let decision = decide(&rule, &history, ended, &moment(now, attempt));
            let before = now;
            match (decision.verdict, decision.why) {
                (Verdict::Retry { due_at }, VerdictBasis::Failed(Ruling { retry: Some(numbers), .. })) => {
                    prop_assert!(due_at >= now);
                    retries += 1;
                    let policy = &rule.reactions.policies()[usize::from(numbers.policy.0)].backoff;
                    prop_assert!(numbers.by_policy.number <= policy.retries());
                    prop_assert!(numbers.by_category.is_none_or(|tally| tally.number <= tally.max));
                    let first_failure_at = history.first_failure_at().unwrap_or(now);
                    if numbers.is_held() {
                        asked_for = asked_for.saturating_add(numbers.wait());
                    }
                    if let Some(window) = policy.window() {
                        let used = due_at.since(first_failure_at).saturating_sub(asked_for);
                        prop_assert!(used <= window, "{used:?} of {window:?}");
                    }
                    if let Some(deadline) = rule.deadline {
                        let first_attempt_at = history.first_attempt_at().expect("it has started");
                        prop_assert!(due_at.since(first_attempt_at) <= deadline);
                    }
                    now = due_at;
                }
                (Verdict::Retry { due_at }, why) => {
                    prop_assert_eq!((due_at, why), (now, VerdictBasis::Interrupted));
                }
                (Verdict::Hold { until }, _) => {
                    prop_assert!(until >= now);
                    asked_for = asked_for.saturating_add(until.since(now));
                    now = until;
                }
                (Verdict::Pause, _) => {}
                (Verdict::Deliver | Verdict::DeadLetter { .. }, _) => break,
            }
            history = history.after(&decision, before);
            prop_assert!(history.held(now) <= rule.hold_max);
            attempt = attempt.next();
        }
        prop_assert!(retries <= rule.reactions.retries_total_max());
        prop_assert_eq!(retries, history.retries_total());
    }
}

//! How replays go on, case by case: what each asks for, what a failure does to it, and what is made of
//! answers that were lost.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::engine::QueueName;
use crate::event::Event;
use crate::event::attribute::{EventId, EventSource, EventType};
use crate::ids::{DeliveryId, Seq, ServiceName};
use crate::letters::fingerprint::Fingerprint;
use crate::letters::replay::{ReplayPace, ReplayTally};
use crate::policy::category::{Category, FailureCode};
use crate::policy::decide::History;
use crate::text::Rate;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const ID: ReplayId = ReplayId(7);

/// Something that happens in between.
type Happens = fn(&mut ActiveReplays);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn straight(concurrency: u32) -> ReplayPace {
    ReplayPace { rate: None, concurrency, manner: Manner::Straight }
}

fn canary(concurrency: u32) -> ReplayPace {
    ReplayPace { manner: Manner::Canary, ..straight(concurrency) }
}

fn at_rate(per_second: f64) -> ReplayPace {
    ReplayPace { rate: Rate::per_second(per_second), ..straight(1_000) }
}

/// Of 2,000 letters, so many were sent, have arrived and have failed.
fn tally(sent: u64, delivered: u64, failed: u64) -> ReplayTally {
    ReplayTally { total: 2_000, sent, delivered, failed, left: 0 }
}

fn job(pace: ReplayPace, state: ReplayState, wave: ReplayWave, tally: ReplayTally) -> ReplayJob {
    ReplayJob { id: ID, state, pace, origin: ReplayOrigin::Operator, wave, tally }
}

fn running(pace: ReplayPace) -> ReplayJob {
    let wave = if pace.manner == Manner::Canary { ReplayWave::None } else { ReplayWave::Rest };
    job(pace, ReplayState::Running, wave, tally(0, 0, 0))
}

fn replays(job: ReplayJob) -> ActiveReplays {
    let mut replays = ActiveReplays::default();
    replays.learn(job, START);
    replays
}

/// What it wants, in words; what it asks for is under way then.
fn wish(replays: &mut ActiveReplays, now: Timestamp) -> String {
    let Some(replay) = replays.0.get_mut(&ID) else { return "gone".to_owned() };
    match replay.wish(now) {
        ReplayNeed::Nothing => "nothing".to_owned(),
        ReplayNeed::WakeAt(at) => format!("wait {:?}", at.since(now)),
        ReplayNeed::Step(Advance { sent_before: NEVER_SENT, letters_max: 0, .. }) => {
            replay.asked(now);
            "how it is".to_owned()
        }
        ReplayNeed::Step(Advance { sent_before, letters_max, wave, .. }) => {
            assert_eq!(sent_before, replay.job.tally.sent, "each step says what was sent before");
            replay.asked(now);
            format!("{letters_max} of {wave:?}")
        }
    }
}

fn fingerprint(cause: &str) -> Fingerprint {
    let service = ServiceName::new("s").expect("a name");
    Fingerprint::of(&service, Category::Transient, &FailureCode::of("X"), cause)
}

fn row(times: u32) -> PendingDelivery {
    let event = Event {
        id: EventId::new("e").expect("an id"),
        source: EventSource::new("/tests").expect("a source"),
        event_type: EventType::new("t").expect("a type"),
        subject: None,
        time: None,
        content_type: None,
        session: None,
        correlation_id: None,
        traceparent: None,
        extensions: BTreeMap::new(),
        data: Bytes::new(),
    };
    PendingDelivery {
        id: DeliveryId::new(Seq::new(1), 0),
        queue: Arc::new(QueueName { service: ServiceName::new("s").expect("a name"), channel: None }),
        event: Arc::new(event),
        sequence: None,
        replaying: Some(Replaying { replay: ID, times }),
        attempts: 1,
        due_at: None,
        history: History::new(),
        book: None,
        written_at: START,
        start_recorded: false,
        damaged: false,
    }
}

fn death(cause: &str) -> DeadLetterInfo {
    DeadLetterInfo {
        category: Category::Transient,
        code: FailureCode::of("X"),
        failure_code: FailureCode::of("X"),
        tier: Tier::Dead,
        message: cause.to_owned(),
        fingerprint: fingerprint(cause),
        name: String::new(),
        consumer_group: String::new(),
        followers: SessionFollowers::Continue,
    }
}

fn settlement(next: NextState) -> Settlement {
    Settlement {
        delivery: row(1).id,
        attempts_before: 0,
        attempts: 1,
        next,
        history: History::new(),
        book: 0,
        record: None,
        pause: None,
        stop: None,
        emits: Vec::new(),
        at: START,
    }
}

fn arrives(replays: &mut ActiveReplays) {
    replays.settled(&row(1), &settlement(NextState::Delivered));
}

/// A letter fails, with what `judge` makes of it; says whether the replay stops.
fn fails(replays: &mut ActiveReplays, cause: &str) -> &'static str {
    let info = death(cause);
    let (_, stop) = replays.judge(&row(1), &info, None).expect("it is being replayed");
    let settlement = Settlement { stop, ..settlement(NextState::Dead(Box::new(info))) };
    replays.settled(&row(1), &settlement);
    if stop.is_some() { "stops" } else { "continues" }
}

#[test]
fn a_replay_asks_for_what_its_pace_allows() {
    use ReplayState::{Cancelled, Done, Gathering, Paused, Running, Stopped};
    #[rustfmt::skip]
    let cases = [
        ("all that may be on their way",              straight(4),     Running,   ReplayWave::Rest,   tally(0, 0, 0),     "4 of Rest"),
        ("as many as have arrived or failed",         straight(4),     Running,   ReplayWave::Rest,   tally(4, 1, 2),     "3 of Rest"),
        ("none while all are on their way",           straight(4),     Running,   ReplayWave::Rest,   tally(9, 4, 1),     "nothing"),
        ("a few are not worth a look",                straight(100),   Running,   ReplayWave::Rest,   tally(100, 24, 0),  "nothing"),
        ("a quarter is",                              straight(100),   Running,   ReplayWave::Rest,   tally(100, 25, 0),  "25 of Rest"),
        ("a step has a bound",                        straight(1_000), Running,   ReplayWave::Rest,   tally(0, 0, 0),     "256 of Rest"),
        ("letters are listed first",                  straight(4),     Gathering, ReplayWave::Rest,   tally(0, 0, 0),     "0 of Rest"),
        ("paused",                                    straight(4),     Paused,    ReplayWave::Rest,   tally(1, 0, 0),     "nothing"),
        ("stopped",                                   canary(4),       Stopped,   ReplayWave::First,  tally(1, 0, 1),     "nothing"),
        ("cancelled, with one on its way",            straight(4),     Cancelled, ReplayWave::Rest,   tally(1, 0, 0),     "nothing"),
        ("cancelled",                                 straight(4),     Cancelled, ReplayWave::Rest,   tally(1, 1, 0),     "gone"),
        ("done",                                      straight(4),     Done,      ReplayWave::Rest,   tally(1, 1, 0),     "gone"),
        ("a canary begins with one",                  canary(100),     Running,   ReplayWave::None,   tally(0, 0, 0),     "1 of First"),
        ("and waits for it",                          canary(100),     Running,   ReplayWave::First,  tally(1, 0, 0),     "nothing"),
        ("then ten",                                  canary(100),     Running,   ReplayWave::First,  tally(1, 1, 0),     "10 of Second"),
        ("but no more than may be on their way",      canary(4),       Running,   ReplayWave::First,  tally(1, 1, 0),     "4 of Second"),
        ("and waits for all of them",                 canary(100),     Running,   ReplayWave::Second, tally(11, 10, 0),   "nothing"),
        ("then the rest",                             canary(100),     Running,   ReplayWave::Second, tally(11, 11, 0),   "100 of Rest"),
        ("which does not wait",                       canary(100),     Running,   ReplayWave::Rest,   tally(111, 50, 0),  "39 of Rest"),
        ("one that is resumed waits for the others",  canary(100),     Running,   ReplayWave::None,   tally(111, 109, 1), "nothing"),
        ("and begins with one again",                 canary(100),     Running,   ReplayWave::None,   tally(111, 110, 1), "1 of First"),
    ];
    for (name, pace, state, wave, tally, expected) in cases {
        let mut replays = replays(job(pace, state, wave, tally));
        assert_eq!(wish(&mut replays, START), expected, "{name}");
        if !["nothing", "gone"].contains(&expected) {
            assert_eq!(wish(&mut replays, START), "nothing", "{name}: one step at a time");
        }
    }
}

#[test]
fn a_replay_may_make_up_for_a_little_and_no_more() {
    #[rustfmt::skip]
    let cases = [
        ("one at the beginning",            5.0,     0,      "1 of Rest"),
        ("what was saved up",               5.0,     200,    "2 of Rest"),
        ("which has a bound",               5.0,     60_000, "2 of Rest"),
        ("a slow one saves up nothing",     0.1,     60_000, "1 of Rest"),
        ("a quick one waits for several",   1_000.0, 0,      "wait 19ms"),
        ("and then sends them",             1_000.0, 19,     "20 of Rest"),
        ("with a bound",                    1_000.0, 60_000, "201 of Rest"),
    ];
    for (name, per_second, after, expected) in cases {
        let mut replays = replays(running(at_rate(per_second)));
        assert_eq!(wish(&mut replays, START + ms(after)), expected, "{name}");
    }
}

#[test]
fn a_rate_is_kept_however_long_a_step_takes() {
    for per_second in [1.0, 7.0, 50.0, 300.0, 2_000.0] {
        for takes in [ms(1), ms(15), ms(120), ms(900)] {
            let mut replays = replays(running(at_rate(per_second)));
            let (mut now, mut sent) = (START, 0);
            while now < START + ms(20_000) {
                match replays.0[&ID].wish(now) {
                    ReplayNeed::Step(advance) => {
                        sent += u64::from(advance.letters_max);
                        replays.0.get_mut(&ID).expect("it goes on").asked(now);
                        now = now + takes;
                        // All of it has arrived by then.
                        let job = job(
                            at_rate(per_second),
                            ReplayState::Running,
                            ReplayWave::Rest,
                            ReplayTally { total: u64::MAX, ..tally(sent, sent, 0) },
                        );
                        replays.advanced(job, advance.letters_max);
                    }
                    ReplayNeed::WakeAt(at) => {
                        assert!(at > now, "time goes on");
                        now = at;
                    }
                    ReplayNeed::Nothing => panic!("all has arrived"),
                }
                let most = now.since(START).as_secs_f64() * per_second + per_second * 0.2 + 1.0;
                assert!(sent as f64 <= most, "{sent} at {per_second}/s with steps of {takes:?}");
            }
            let least = if takes < BURST_SPAN { per_second * 20.0 * 0.9 } else { 1.0 };
            assert!(sent as f64 >= least, "only {sent} at {per_second}/s with steps of {takes:?}");
        }
    }
}

#[test]
fn the_first_failure_stops_a_canary_that_feels_its_way() {
    use ReplayState::{Cancelled, Paused, Running};
    #[rustfmt::skip]
    let cases = [
        ("in the first wave",                 canary(4),   Running,   ReplayWave::First,  "the old one", "stops"),
        ("in the second",                     canary(4),   Running,   ReplayWave::Second, "the old one", "stops"),
        ("of another cause, too",             canary(4),   Running,   ReplayWave::First,  "a new one",   "stops"),
        ("left over from before a resume",    canary(4),   Running,   ReplayWave::None,   "the old one", "stops"),
        ("one of many in the rest",           canary(4),   Running,   ReplayWave::Rest,   "the old one", "continues"),
        ("a person has halted it already",    canary(4),   Paused,    ReplayWave::First,  "the old one", "continues"),
        ("a person has ended it",             canary(4),   Cancelled, ReplayWave::First,  "the old one", "continues"),
        ("no canary",                         straight(4), Running,   ReplayWave::Rest,   "the old one", "continues"),
    ];
    for (name, pace, state, wave, cause, expected) in cases {
        let mut replays = replays(job(pace, state, wave, tally(5, 1, 0)));
        assert_eq!(fails(&mut replays, cause), expected, "{name}");
        if expected == "stops" {
            assert_eq!(replays.0[&ID].job.state, ReplayState::Stopped, "{name}");
            assert_eq!(wish(&mut replays, START), "nothing", "{name}");
        }
    }
}

#[test]
fn the_rest_of_a_canary_stops_at_ten_failures_in_a_row() {
    let rest = || replays(job(canary(100), ReplayState::Running, ReplayWave::Rest, tally(100, 0, 0)));
    let mut in_a_row = rest();
    for n in 1..limits::REPLAY_FAILURES_IN_A_ROW {
        assert_eq!(fails(&mut in_a_row, "the old one"), "continues", "{n}");
    }
    assert_eq!(fails(&mut in_a_row, "the old one"), "stops");

    let between: [(&str, Happens); 2] = [
        ("one that arrives", arrives),
        ("a person who lets it go on", |replays| {
            let mut job = replays.0[&ID].job.clone();
            job.state = ReplayState::Paused;
            replays.learn(job.clone(), START);
            replays.learn(ReplayJob { state: ReplayState::Running, ..job }, START);
        }),
    ];
    for (name, meanwhile) in between {
        let mut replays = rest();
        for _ in 1..limits::REPLAY_FAILURES_IN_A_ROW {
            fails(&mut replays, "the old one");
        }
        meanwhile(&mut replays);
        assert_eq!(fails(&mut replays, "the old one"), "continues", "{name} begins the count anew");
    }

    let mut others = rest();
    for n in 1..limits::REPLAY_FAILURES_IN_A_ROW {
        assert_eq!(fails(&mut others, "a new one"), "continues", "{n}");
    }
    assert_eq!(fails(&mut others, "a new one"), "stops", "whatever they fail of, nothing arrives");
}

#[test]
fn what_fails_a_replay_is_poison_unless_the_book_gives_it_another_try() {
    let automatic = |times_max| ReplayOrigin::Automatic { times_max };
    #[rustfmt::skip]
    let cases = [
        ("of a person",             Some(ReplayOrigin::Operator), 1, Tier::Poison),
        ("of the book, the first",  Some(automatic(3)),     1, Tier::Dead),
        ("the last but one",        Some(automatic(3)),     2, Tier::Dead),
        ("the last",                Some(automatic(3)),     3, Tier::Poison),
        ("the book gives fewer now", Some(automatic(1)),    2, Tier::Poison),
        ("nobody knows the replay", None,                   1, Tier::Poison),
    ];
    for (name, origin, times, expected) in cases {
        let known = origin.map(|origin| ReplayJob { origin, ..running(straight(4)) });
        let replays = ActiveReplays::new(known.into_iter().collect());
        let (tier, _) =
            replays.judge(&row(times), &death("the old one"), None).expect("it is being replayed");
        assert_eq!(tier, expected, "{name}");
    }
    let live = PendingDelivery { replaying: None, ..row(1) };
    assert!(
        replays(running(straight(4))).judge(&live, &death("x"), None).is_none(),
        "a live one is none of its"
    );
}

#[test]
fn a_step_that_finds_only_letters_behind_others_is_not_repeated_before_one_of_those_has_ended() {
    let ends: [(&str, Happens); 3] = [
        ("one arrives", arrives),
        ("one fails", |replays| assert_eq!(fails(replays, "x"), "continues")),
        ("a person says something", |replays| {
            let job = replays.0[&ID].job.clone();
            replays.learn(job, START);
        }),
    ];
    for (name, end) in ends {
        let on_their_way = job(straight(4), ReplayState::Running, ReplayWave::Rest, tally(2, 0, 0));
        let mut replays = replays(on_their_way.clone());
        assert_eq!(wish(&mut replays, START), "2 of Rest", "{name}");
        replays.advanced(on_their_way, 0);
        assert_eq!(wish(&mut replays, START), "nothing", "{name}");
        end(&mut replays);
        assert_ne!(wish(&mut replays, START), "nothing", "{name}");
    }
}

#[test]
fn after_the_store_was_away_a_replay_is_asked_how_it_is_before_it_goes_on() {
    use ReplayState::{Cancelled, Done, Paused, Running, Stopped};
    let known = || job(straight(4), Running, ReplayWave::Rest, tally(4, 1, 0));
    let now_is = |state, tally| job(straight(4), state, ReplayWave::Rest, tally);
    #[rustfmt::skip]
    let cases = [
        ("nothing happened",                        known(),                        "1 of Rest"),
        ("the step was taken",                      now_is(Running, tally(5, 1, 0)), "nothing"),
        ("letters have arrived",                    now_is(Running, tally(4, 4, 0)), "4 of Rest"),
        ("a person has halted it",                  now_is(Paused, tally(4, 1, 0)),  "nothing"),
        ("it has stopped",                          now_is(Stopped, tally(4, 1, 1)), "nothing"),
        ("a person has ended it",                   now_is(Cancelled, tally(4, 4, 0)), "gone"),
        ("it is done",                              now_is(Done, tally(4, 4, 0)),    "gone"),
    ];
    for (name, as_it_is, expected) in cases {
        let mut replays = replays(known());
        assert_eq!(wish(&mut replays, START), "1 of Rest", "{name}");
        replays.store_healed();
        assert_eq!(wish(&mut replays, START), "how it is", "{name}");
        assert_eq!(wish(&mut replays, START), "nothing", "{name}: it is asked once");
        // Letters that nobody knew were sent may end before the answer is there; it has them in it.
        for _ in 0..5 {
            arrives(&mut replays);
        }
        assert_eq!(replays.0[&ID].job.tally, known().tally, "{name}");
        replays.advanced(as_it_is, 0);
        assert_eq!(wish(&mut replays, START), expected, "{name}");
    }
}

#[test]
fn one_that_a_person_lets_go_on_unheard_goes_on_when_the_store_is_back() {
    let mut replays = replays(job(canary(4), ReplayState::Stopped, ReplayWave::Second, tally(5, 4, 1)));
    replays.store_healed();
    assert_eq!(wish(&mut replays, START), "how it is");
    replays.advanced(job(canary(4), ReplayState::Running, ReplayWave::None, tally(5, 4, 1)), 0);
    assert_eq!(wish(&mut replays, START), "1 of First");
}

#[test]
fn letters_that_were_sent_unheard_count_towards_the_rate() {
    let pace = at_rate(5.0);
    let mut replays = replays(job(pace, ReplayState::Running, ReplayWave::Rest, tally(0, 0, 0)));
    replays.store_healed();
    assert_eq!(wish(&mut replays, START), "how it is");
    replays.advanced(job(pace, ReplayState::Running, ReplayWave::Rest, tally(10, 10, 0)), 0);
    assert_eq!(wish(&mut replays, START), "wait 2s");
}

#[test]
fn a_replay_is_forgotten_when_it_has_ended_and_nothing_of_it_is_on_its_way() {
    let mut cancelled = replays(job(straight(4), ReplayState::Cancelled, ReplayWave::Rest, tally(2, 0, 0)));
    arrives(&mut cancelled);
    assert!(cancelled.0.contains_key(&ID), "what fails now is still a letter of it");
    arrives(&mut cancelled);
    assert!(cancelled.0.is_empty());

    let last = ReplayTally { total: 2, ..tally(2, 1, 0) };
    let mut done = replays(job(straight(4), ReplayState::Running, ReplayWave::Rest, last));
    arrives(&mut done);
    assert!(done.0.is_empty());
}

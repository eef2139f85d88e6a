//! All that will happen in one seed, decided before it begins: who sends what when, how targets behave, when
//! the store fails and the process crashes, and what operators do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::books::{Book, Spec, TYPES, dependency_name};
use super::dice::Dice;
use super::orders::{Poison, ReplayAct};
use super::targets::Script;
use crate::engine::{EngineBounds, OperatorCommand, QueueName};
use crate::event::Event;
use crate::event::attribute::{EventId, EventSource, EventType, SessionKey};
use crate::ids::ServiceName;
use crate::letters::replay::{self, ReplayPace};
use crate::text::Rate;
use crate::time::Timestamp;

/// The plan of one seed.
#[derive(Debug)]
pub(super) struct Plan {
    pub seed: u64,
    pub bounds: EngineBounds,
    /// The first knows everybody; it holds at the start and at the end.
    pub books: Vec<Book>,
    pub arrivals: Vec<(Timestamp, Arc<Event>)>,
    pub scripts: Vec<(Arc<QueueName>, Script)>,
    pub faults: Vec<Fault>,
    pub ends: Vec<RunEnd>,
    pub acts: Vec<(Timestamp, Act)>,
    /// Redrive goes down whenever a delivery of this event starts.
    pub poison: Option<Arc<Event>>,
    /// The most that may wait behind a dead letter that holds its session.
    pub behind_max: u64,
    /// From then on nothing goes wrong any more.
    pub healed_at: Timestamp,
}

/// A time in which the store takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub from: Timestamp,
    pub until: Timestamp,
    pub first_commit: FirstCommit,
}

/// The commit that fails first: whether it did happen all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstCommit {
    IsLost,
    HappensUnheard,
}

/// The process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunEnd {
    pub at: Timestamp,
    pub manner: Manner,
    pub down_for: Duration,
    pub step: ClockStep,
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Crash,
    Stop,
}

/// What the wall clock does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockStep {
    None,
    AnHourAhead,
    AnHourBack,
}

/// What people do.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Tell(OperatorCommand),
    /// The book at that place holds from now on.
    Read(usize),
    Letters(LetterAct),
}

/// What people do with dead letters; which of them, or which replay, they see when the time has come.
#[derive(Clone, Debug)]
pub(super) enum LetterAct {
    Replay { service: ServiceName, pace: ReplayPace, poison: Poison },
    Change { pick: u64, act: ReplayAct },
    Skip { pick: u64 },
    Edit { pick: u64 },
    Purge { service: ServiceName },
}

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const EVENTS_MIN: u32 = 300;
const EVENTS_MAX: u32 = 360;
const CALLS_FEWEST: u32 = 5;
const CRASHES_MIN: u32 = 2;
const CRASHES_MAX: u32 = 4;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Plan {
    /// The plan of that seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0);
        let lasts = dice.span(secs(10), secs(60));
        let healed_at = START + lasts;
        let bounds = EngineBounds {
            window: dice.count(2, 8),
            window_bytes: usize::try_from(dice.pick(&[300, 1_000, 100_000])).expect("small"),
            calls: dice.pick(&[CALLS_FEWEST, 8, 12, 24]),
        };
        let everybody = Spec::everybody(&mut dice);
        let mut specs = vec![everybody.clone()];
        if dice.chance(45) {
            specs.extend((0..dice.count(1, 2)).map(|_| everybody.varied(&mut dice)));
        }
        let books: Vec<Book> = specs.into_iter().map(Book::of).collect();
        let arrivals = arrivals(&mut dice, lasts);
        // Now and then all hang but one, who must not notice, however few calls there may be at once.
        let spared = dice.chance(15).then(|| dice.place(books[0].spec.takers.len()));
        let bounds =
            EngineBounds { calls: if spared.is_some() { CALLS_FEWEST } else { bounds.calls }, ..bounds };
        let scripts = books[0].spec.takers.iter().enumerate().map(|(place, taker)| {
            let script = match spared {
                Some(spared) if spared == place => Script::well(),
                Some(_) => Script::hanging(&mut dice, START, healed_at),
                None => Script::roll(&mut dice, START, healed_at),
            };
            (Arc::clone(&taker.queue), script)
        });
        let scripts = scripts.collect();
        let poison = dice.chance(12).then(|| Arc::clone(&arrivals[dice.place(100)].1));
        Self {
            seed,
            bounds,
            acts: acts(&mut dice, &books, lasts),
            behind_max: dice.pick(&[2, 6, 1_000]),
            faults: faults(&mut dice, lasts),
            ends: run_ends(&mut dice, lasts),
            books,
            arrivals,
            scripts,
            poison,
            healed_at,
        }
    }

    pub(super) const START: Timestamp = START;
}

/// Bursts and lulls, so that windows overflow and drain again.
fn arrivals(dice: &mut Dice, lasts: Duration) -> Vec<(Timestamp, Arc<Event>)> {
    let count = dice.count(EVENTS_MIN, EVENTS_MAX);
    let sessions = dice.between(1, 8);
    let bursts = dice.count(3, 30);
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..bursts {
        let begins = dice.span(Duration::ZERO, lasts);
        let width = dice.span(Duration::ZERO, secs(2));
        let ends = (begins + width).min(lasts);
        times.extend((0..=count / bursts).map(|_| dice.span(begins, ends)));
    }
    times.sort_unstable();
    let event = |(number, after): (usize, Duration)| {
        let session = dice.chance(75).then(|| format!("k{}", dice.below(sessions)));
        let bytes = dice.place(400);
        let event = Event {
            id: EventId::new(&format!("e{number}")).expect("an id"),
            source: EventSource::new("/simulation").expect("a source"),
            event_type: EventType::new(dice.pick(&TYPES)).expect("a type"),
            subject: None,
            time: None,
            content_type: None,
            session: session.map(|key| SessionKey::new(&key).expect("a key")),
            correlation_id: None,
            traceparent: None,
            extensions: std::collections::BTreeMap::new(),
            data: Bytes::from(vec![b'x'; bytes]),
        };
        (START + after, Arc::new(event))
    };
    times.into_iter().enumerate().map(event).collect()
}

fn run_ends(dice: &mut Dice, lasts: Duration) -> Vec<RunEnd> {
    let crashes = dice.count(CRASHES_MIN, CRASHES_MAX);
    let mut ends: Vec<RunEnd> = (0..crashes).map(|_| run_end(dice, lasts, Manner::Crash)).collect();
    if dice.chance(30) {
        ends.push(run_end(dice, lasts, Manner::Stop));
    }
    if dice.chance(10) {
        // One right after the other, so that every delivery is a suspect.
        let first = ends[0].at;
        for n in 0..3 {
            ends.push(RunEnd {
                at: first + ms(700 * n),
                down_for: ms(100),
                step: ClockStep::None,
                ..ends[0]
            });
        }
    }
    ends.sort_by_key(|end| end.at);
    ends
}

fn run_end(dice: &mut Dice, lasts: Duration, manner: Manner) -> RunEnd {
    let step = match dice.below(10) {
        0 => ClockStep::AnHourAhead,
        1 => ClockStep::AnHourBack,
        _ => ClockStep::None,
    };
    let down_for = dice.pick(&[ms(20), ms(300), secs(2), secs(12)]);
    RunEnd { at: START + dice.span(ms(200), lasts), manner, down_for, step }
}

fn faults(dice: &mut Dice, lasts: Duration) -> Vec<Fault> {
    let count = dice.count(0, 4);
    let mut faults: Vec<Fault> = Vec::new();
    for _ in 0..count {
        let from = START + dice.span(ms(100), lasts);
        let until = from + dice.pick(&[ms(30), ms(300), secs(3), secs(15)]);
        let first_commit = if dice.chance(50) { FirstCommit::HappensUnheard } else { FirstCommit::IsLost };
        faults.push(Fault { from, until: until.min(START + lasts), first_commit });
    }
    faults.sort_by_key(|fault| fault.from);
    faults
}

fn acts(dice: &mut Dice, books: &[Book], lasts: Duration) -> Vec<(Timestamp, Act)> {
    let mut acts = Vec::new();
    let mut services: Vec<ServiceName> =
        books[0].spec.takers.iter().map(|taker| taker.queue.service.clone()).collect();
    services.dedup();
    let at = |dice: &mut Dice| START + dice.span(Duration::ZERO, lasts);
    for _ in 0..dice.count(0, 3) {
        let service = services[dice.place(services.len())].clone();
        let begins = at(dice);
        acts.push((begins, Act::Tell(OperatorCommand::Pause(service.clone()))));
        let ends = begins + dice.span(ms(50), secs(10));
        acts.push((ends, Act::Tell(OperatorCommand::Resume(service))));
    }
    for _ in 0..dice.count(0, 2) {
        let name = dependency_name(dice.place(books[0].spec.dependencies.len()));
        let command =
            if dice.chance(60) { OperatorCommand::Trip(name) } else { OperatorCommand::Reset(name) };
        acts.push((at(dice), Act::Tell(command)));
    }
    if books.len() > 1 {
        for _ in 0..dice.count(1, 4) {
            acts.push((at(dice), Act::Read(dice.place(books.len()))));
        }
    }
    // Rules pause services too, so every paused service is resumed now and then, and for good in the end.
    let healed_at = START + lasts;
    let resumes = (0..6).map(|n| START + lasts / 6 * n).chain((0..6).map(|n| healed_at + secs(1 << (2 * n))));
    for at in resumes {
        if at >= healed_at {
            acts.push((at, Act::Read(0)));
        }
        acts.extend(services.iter().map(|service| (at, Act::Tell(OperatorCommand::Resume(service.clone())))));
    }
    acts.extend(letter_acts(dice, &services, lasts));
    acts.sort_by_key(|(at, _)| *at);
    acts
}

/// While things go wrong, and for a while after that, when letters have a chance.
fn letter_acts(dice: &mut Dice, services: &[ServiceName], lasts: Duration) -> Vec<(Timestamp, Act)> {
    let mut acts = Vec::new();
    let until = lasts + secs(20);
    for _ in 0..dice.count(3, 12) {
        let at = START + dice.span(lasts / 8, until);
        let service = services[dice.place(services.len())].clone();
        let poison = if dice.chance(25) { Poison::Included } else { Poison::Left };
        acts.push((at, LetterAct::Replay { service, pace: pace(dice), poison }));
    }
    for _ in 0..dice.count(2, 10) {
        let act = dice.pick(&[ReplayAct::Pause, ReplayAct::Resume, ReplayAct::Resume, ReplayAct::Cancel]);
        let pick = dice.below(u64::MAX);
        acts.push((START + dice.span(lasts / 8, until), LetterAct::Change { pick, act }));
    }
    for _ in 0..dice.count(0, 8) {
        let pick = dice.below(u64::MAX);
        let service = services[dice.place(services.len())].clone();
        let act = match dice.below(8) {
            0..3 => LetterAct::Skip { pick },
            3..7 => LetterAct::Edit { pick },
            _ => LetterAct::Purge { service },
        };
        acts.push((START + dice.span(lasts / 8, until), act));
    }
    acts.into_iter().map(|(at, act)| (at, Act::Letters(act))).collect()
}

fn pace(dice: &mut Dice) -> ReplayPace {
    let rate = dice.chance(40).then(|| dice.pick(&[1.0, 5.0, 20.0, 300.0]));
    ReplayPace {
        rate: rate.map(|rate| Rate::per_second(rate).expect("more than nothing")),
        concurrency: dice.count(1, 4),
        manner: if dice.chance(50) { replay::Manner::Canary } else { replay::Manner::Straight },
    }
}

//! A store in a file against the model: whatever is done to both, both say the same.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redrive_core::engine::{
    DeadLetterInfo, LoadRequest, LoadScope, NextState, QueueName, SessionFollowers, Settlement,
};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventSource, SessionKey};
use redrive_core::ids::{DependencyName, IdPrefix, Seq};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::replay::ReplayStop;
use redrive_core::policy::breaker::{Breaker, BreakerRecord, Generation};
use redrive_core::time::Timestamp;

use super::access_store::{self, key, refused};
use super::bench::{Bench, addressee, at, event, keep, queue, service, settlement, to};
use super::desk::death_of;
use super::wishes::{self, Step, Wish, any_step, any_wish};
use super::{file, twin};
use crate::store::access_store::{AuditActor, AuditEntry};
use crate::store::letter::CommandRequest;
use crate::store::{
    DeliveryFilter, DeliveryState, DeliveryStateName, EventKey, OverflowPolicy, RetentionRules, StateChange,
    Submission, SubmittedEvent, WaitingBound, WriteBatch,
};

/// Queues of a small world, so that they meet often; all but two keep the order of sessions.
pub(super) const QUEUES: [&str; 5] = ["ord", "ord/x", "svc", "svc/y", "strict"];

#[derive(Clone, Debug)]
enum Act {
    Write {
        settlements: Vec<Ended>,
        submissions: Vec<Vec<Sent>>,
        notes: Vec<Noted>,
        wishes: Vec<Wish>,
        steps: Vec<Step>,
    },
    Load {
        queue: usize,
        wanted: Wanting,
        rows_max: u32,
        bytes_max: usize,
    },
    Housekeep,
    Pass {
        seconds: u64,
    },
    Crash,
    Restart {
        seconds: u64,
    },
}

#[derive(Clone, Debug)]
struct Sent {
    id: u8,
    source: u8,
    session: Option<u8>,
    bytes: usize,
    to: Vec<usize>,
    when_full: OverflowPolicy,
}

/// What is settled: one of all deliveries, as if it had had so many attempts more or less.
#[derive(Clone, Debug)]
struct Ended {
    which: prop::sample::Index,
    off_by: u32,
    how: How,
    pause: bool,
    stop: bool,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Delivered,
    Ready,
    Due { second: u64 },
    Parked,
    Dead { cause: u8, tier: Tier, followers: SessionFollowers },
    Starting,
}

#[derive(Clone, Debug)]
enum Noted {
    Pause(usize),
    Resume(usize),
    Breaker { generation: u64 },
    Absence { seconds: u64 },
    Alive,
    Book { hash: u64 },
    Release(usize),
    Route { event: u64, to: Vec<usize> },
    Key { id: u8, name: u8 },
    Refused { source: u8, bytes: usize },
    Memo { name: u8, value: Option<u8> },
    Deed { by: Option<u8> },
}

#[derive(Clone, Copy, Debug)]
enum Wanting {
    Ready { after: u64 },
    Due { second: u64 },
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let to = prop::collection::vec(0..QUEUES.len(), 0..3);
    let when_full = prop_oneof![Just(OverflowPolicy::Refuse), Just(OverflowPolicy::DeadLetter)];
    (0..20_u8, 0..2_u8, prop::option::of(0..2_u8), 0..40_usize, to, when_full).prop_map(
        // The same id nearly always means the same content.
        |(id, source, session, bytes, to, when_full)| {
            let (session, bytes) = if id < 16 { (session.map(|_| id % 2), 8) } else { (session, bytes) };
            Sent { id, source, session, bytes, to, when_full }
        },
    )
}

fn any_ended() -> impl Strategy<Value = Ended> {
    let how = prop_oneof![
        4 => Just(How::Delivered),
        1 => Just(How::Ready),
        2 => (0..50_u64).prop_map(|second| How::Due { second }),
        1 => Just(How::Parked),
        6 => (0..2_u8, any_tier(), any_followers())
            .prop_map(|(cause, tier, followers)| How::Dead { cause, tier, followers }),
        1 => Just(How::Starting),
    ];
    let off_by = prop_oneof![9 => Just(0_u32), 1 => Just(1_u32)];
    (any::<prop::sample::Index>(), off_by, how, prop::bool::weighted(0.1), prop::bool::weighted(0.2))
        .prop_map(|(which, off_by, how, pause, stop)| Ended { which, off_by, how, pause, stop })
}

fn any_tier() -> impl Strategy<Value = Tier> {
    prop_oneof![3 => Just(Tier::Dead), 1 => Just(Tier::Poison)]
}

fn any_followers() -> impl Strategy<Value = SessionFollowers> {
    prop_oneof![1 => Just(SessionFollowers::Continue), 2 => Just(SessionFollowers::Wait)]
}

fn any_noted() -> impl Strategy<Value = Noted> {
    let to = prop::collection::vec(0..QUEUES.len(), 0..3);
    prop_oneof![
        (0..QUEUES.len()).prop_map(Noted::Pause),
        (0..QUEUES.len()).prop_map(Noted::Resume),
        (0..4_u64).prop_map(|generation| Noted::Breaker { generation }),
        (0..9_u64).prop_map(|seconds| Noted::Absence { seconds }),
        Just(Noted::Alive),
        (0..12_u64).prop_map(|hash| Noted::Book { hash }),
        (0..QUEUES.len()).prop_map(Noted::Release),
        (1..30_u64, to).prop_map(|(event, to)| Noted::Route { event, to }),
        (0..3_u8, 0..9_u8).prop_map(|(id, name)| Noted::Key { id, name }),
        (0..9_u8, 0..30_usize).prop_map(|(source, bytes)| Noted::Refused { source, bytes }),
        (0..3_u8, prop::option::of(0..9_u8)).prop_map(|(name, value)| Noted::Memo { name, value }),
        prop::option::of(0..3_u8).prop_map(|by| Noted::Deed { by }),
    ]
}

fn any_act() -> impl Strategy<Value = Act> {
    let wanted = prop_oneof![
        (0..30_u64).prop_map(|after| Wanting::Ready { after }),
        (0..60_u64).prop_map(|second| Wanting::Due { second }),
    ];
    let submissions = prop::collection::vec(prop::collection::vec(any_sent(), 0..4), 0..4);
    let settlements = prop::collection::vec(any_ended(), 0..5);
    let notes = prop::collection::vec(any_noted(), 0..2);
    let wishes = prop::collection::vec(any_wish(), 0..3);
    let steps = prop::collection::vec(any_step(), 0..3);
    prop_oneof![
        10 => (settlements, submissions, notes, wishes, steps).prop_map(
            |(settlements, submissions, notes, wishes, steps)| {
                Act::Write { settlements, submissions, notes, wishes, steps }
            },
        ),
        3 => (0..QUEUES.len(), wanted, 1..5_u32, 0..60_usize)
            .prop_map(|(queue, wanted, rows_max, bytes_max)| Act::Load { queue, wanted, rows_max, bytes_max }),
        2 => Just(Act::Housekeep),
        2 => prop_oneof![9 => 1..30_u64, 1 => Just(90_000)].prop_map(|seconds| Act::Pass { seconds }),
        1 => Just(Act::Crash),
        1 => (0..5_u64).prop_map(|seconds| Act::Restart { seconds }),
    ]
}

impl Sent {
    fn submitted(&self) -> SubmittedEvent {
        let event = Event {
            source: EventSource::new(&format!("/{}", self.source)).expect("a source"),
            session: self.session.map(|key| SessionKey::new(&key.to_string()).expect("a key")),
            data: vec![self.id; self.bytes].into(),
            ..event(&self.id.to_string())
        };
        let names: Vec<&str> = self.to.iter().map(|queue| QUEUES[*queue]).collect();
        let mut submitted = to(&names.join(" "), event);
        for addressee in &mut submitted.routes {
            addressee.bound = WaitingBound {
                deliveries_max: 9,
                bytes_max: 150,
                per_session_max: 2,
                when_full: self.when_full,
            };
        }
        submitted
    }
}

impl Ended {
    fn settlement(&self, bench: &Bench) -> Option<Settlement> {
        let mut all = bench.all();
        // What has ended is settled now and then, to see that it is not.
        if self.off_by == 0 {
            all.retain(|view| matches!(view.state, DeliveryState::Ready | DeliveryState::Due { .. }));
        }
        let view = (!all.is_empty()).then(|| self.which.get(&all))?;
        let next = match self.how {
            How::Delivered => NextState::Delivered,
            How::Ready => NextState::Ready,
            How::Due { second } => NextState::Due { at: at(second) },
            How::Parked => NextState::Due { at: Timestamp::NEVER },
            How::Dead { cause, tier, followers } => {
                let death = death_of(if cause == 0 { "boom" } else { "bang" });
                NextState::Dead(Box::new(DeadLetterInfo { tier, followers, ..death }))
            }
            How::Starting => NextState::Starting,
        };
        let mut settled = settlement(view.id, view.attempts + self.off_by, next, bench.now);
        settled.pause = self.pause.then(|| view.queue.service.clone());
        if let (NextState::Dead(death), Some(replay), true) = (&settled.next, view.replaying, self.stop) {
            settled.stop = Some(ReplayStop { replay, fingerprint: death.fingerprint, delivery: view.id });
        }
        if let Some(story) = &mut settled.record {
            story.book = u64::from(view.attempts);
        }
        Some(settled)
    }
}

impl Noted {
    fn note(&self, now: Timestamp) -> StateChange {
        let service_of = |index: usize| service(QUEUES[index].split('/').next().expect("a part"));
        match self {
            Self::Pause(index) => StateChange::Pause(service_of(*index)),
            Self::Resume(index) => StateChange::Resume(service_of(*index)),
            Self::Breaker { generation } => {
                let name = DependencyName::new("db").expect("a name");
                let generation = Generation(*generation);
                StateChange::Breaker(Box::new(BreakerRecord {
                    generation,
                    ..Breaker::new().record(&name, now)
                }))
            }
            Self::Absence { seconds } => StateChange::Absence { from: now - Duration::from_secs(*seconds) },
            Self::Alive => StateChange::Alive,
            Self::Book { hash } => StateChange::Book { hash: *hash, text: format!("book {hash}").into() },
            Self::Release(index) => StateChange::Release(queue(QUEUES[*index])),
            Self::Route { event, to } => {
                let routes = to.iter().map(|index| addressee(QUEUES[*index])).collect();
                StateChange::Route { event: Seq::new(*event), routes }
            }
            Self::Key { id, name } => {
                StateChange::Key(Box::new(key(&id.to_string(), &name.to_string(), now)))
            }
            Self::Refused { source, bytes } => refused(&source.to_string(), *bytes),
            Self::Memo { name, value } => {
                StateChange::Memo { name: name.to_string(), value: value.map(|value| value.to_string()) }
            }
            Self::Deed { by } => {
                let by = by.map_or(AuditActor::unknown(), |by| AuditActor::named(&by.to_string()));
                StateChange::Audit(Box::new(AuditEntry {
                    act: "pause",
                    what: "svc".to_owned(),
                    by,
                    note: None,
                }))
            }
        }
    }
}

/// Does it, and tells all there is to see of it.
fn act(bench: &mut Bench, act: &Act) -> String {
    match act {
        Act::Write { settlements, submissions, notes, wishes, steps } => {
            let ended = settlements.iter().filter_map(|ended| ended.settlement(bench)).map(Arc::new);
            let submission =
                |sent: &Vec<Sent>| Submission { events: sent.iter().map(Sent::submitted).collect() };
            let commands = wishes.iter().filter_map(|wish| wish.command(bench));
            let batch = WriteBatch {
                settlements: ended.collect(),
                submissions: submissions.iter().map(submission).collect(),
                changes: notes.iter().map(|noted| noted.note(bench.now)).collect(),
                commands: commands.map(CommandRequest::from).collect(),
                advances: steps.iter().map(|step| step.advance(bench)).collect(),
            };
            // Writing answers the commands.
            format!("{:?} {:?}", bench.write(&batch), batch.commands)
        }
        Act::Load { queue: index, wanted, rows_max, bytes_max } => {
            let wanted = match *wanted {
                Wanting::Ready { after } => LoadScope::Ready { after: Seq::new(after) },
                Wanting::Due { second } => LoadScope::Due { until: at(second) },
            };
            let queue = queue(QUEUES[*index]);
            let load = LoadRequest { queue, wanted, rows_max: *rows_max, bytes_max: *bytes_max };
            format!("{:?}", bench.store().load(&load).expect("it loads"))
        }
        Act::Housekeep => {
            let keep = keep(Duration::from_secs(20), Duration::from_secs(45));
            let keep = RetentionRules { letters: Arc::new(letters_kept), ..keep };
            bench.housekeep(&keep).to_string()
        }
        Act::Pass { seconds } => {
            bench.wait(*seconds);
            String::new()
        }
        Act::Crash => format!("{:?}", bench.crash()),
        Act::Restart { seconds } => format!("{:?}", bench.restart(*seconds)),
    }
}

/// All that a reader can see.
fn seen(bench: &Bench) -> Vec<String> {
    let reader = bench.reader();
    let mut seen = vec![format!("{:?}", reader.counts().expect("it answers"))];
    for digits in ["0", "8", "c9"] {
        let prefix = IdPrefix::parse(digits).expect("digits");
        seen.push(format!("{:?}", reader.deliveries(&prefix, 5).expect("it answers")));
    }
    for id in ["3", "17"] {
        seen.push(format!("{:?}", reader.events(&EventKey::Id(id.to_owned())).expect("it answers")));
    }
    let states = [
        DeliveryStateName::Ready,
        DeliveryStateName::Due,
        DeliveryStateName::Behind,
        DeliveryStateName::Delivered,
    ];
    for state in states.into_iter().chain([DeliveryStateName::Dead, DeliveryStateName::Closed]) {
        let filter = DeliveryFilter {
            state: Some(state),
            service: Some("ord".to_owned()),
            rows_max: 5,
            ..DeliveryFilter::default()
        };
        seen.push(format!("{:?}", reader.list(&filter).expect("it answers").deliveries));
    }
    seen.push(format!("{:?}", bench.all()));
    seen.push(format!("{:?}", reader.unrouted(Seq::NONE, 9).expect("it answers")));
    seen.extend((0..12).map(|hash| format!("{:?}", reader.book(hash).expect("it answers"))));
    seen.extend(wishes::seen(bench));
    seen.extend(access_store::seen(bench));
    seen
}

/// For how long letters are kept.
fn letters_kept(queue: &QueueName, _: &str) -> Duration {
    Duration::from_secs(if queue.channel.is_some() { 60 } else { 300 })
}

/// Does all of it to both, and compares all there is to see after each act.
fn compare(acts: &[Act], run_length: usize, begin: fn(&mut Bench)) -> Result<(), TestCaseError> {
    let (folder, mut in_file) = file(run_length);
    let mut model = twin();
    begin(&mut in_file);
    begin(&mut model);
    for (number, one) in acts.iter().enumerate() {
        let (expected, found) = (act(&mut model, one), act(&mut in_file, one));
        prop_assert_eq!(expected, found, "act {}: {:?}", number, one);
        let (expected, found) = (seen(&model), seen(&in_file));
        // One by one, since what differs is easily lost among all there is to see.
        for (expected, found) in expected.iter().zip(&found) {
            prop_assert_eq!(expected, found, "after act {}: {:?}", number, one);
        }
        prop_assert_eq!(expected.len(), found.len(), "after act {}: {:?}", number, one);
        model.audit();
    }
    in_file.audit();
    drop(folder);
    Ok(())
}

/// Sessions with dead letters, and some that are held.
fn pile_up(bench: &mut Bench) {
    for id in 50..58_u8 {
        let key = SessionKey::new(&(id % 2).to_string()).expect("a key");
        let sent = Event { session: Some(key), ..event(&id.to_string()) };
        bench.take(&[to("ord svc strict", sent)]);
        if id % 4 == 1 {
            for name in ["ord", "svc", "strict"] {
                bench.wait(1);
                for waiting in bench.ready(name) {
                    let holds =
                        if name == "strict" { SessionFollowers::Wait } else { SessionFollowers::Continue };
                    let death = DeadLetterInfo { followers: holds, ..death_of("boom") };
                    bench.end(waiting.id, NextState::Dead(Box::new(death)));
                }
            }
        }
    }
}

fn any_run_length() -> impl Strategy<Value = usize> {
    prop_oneof![Just(2_usize), Just(7), Just(1_000)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_file_and_the_model_never_differ(
        acts in prop::collection::vec(any_act(), 1..40),
        run_length in any_run_length(),
    ) {
        compare(&acts, run_length, |_| {})?;
    }
}

proptest! {
    // Each takes its time, since there is much to compare.
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_file_and_the_model_never_differ_where_letters_have_piled_up(
        acts in prop::collection::vec(any_act(), 1..40),
        run_length in any_run_length(),
    ) {
        compare(&acts, run_length, pile_up)?;
    }
}

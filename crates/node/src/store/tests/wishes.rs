//! What people may wish for in a small world, and all that they can see of dead letters there.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::Advance;
use redrive_core::engine::attempt_record::{AttemptEnd, RecordedVerdict};
use redrive_core::event::Event;
use redrive_core::event::attribute::{EventSource, SessionKey};
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::replay::{ReplayId, ReplayWave};
use redrive_core::policy::category::codes;
use redrive_core::time::Timestamp;

use super::bench::{Bench, event, order_of, queue, story};
use super::desk::{canary, death_of, everything, foreign, straight};
use super::model::QUEUES;
use crate::store::letter::{
    CommandAnswer, EditCommand, ImportedLetter, KindId, LetterCommand, LetterFilter, LetterKey, NewReplay,
    Poison, PurgeCommand, ReassignCommand, ReassignCursor, ReassignScope, Reassignment, Redirect, ReplayAct,
    Selection,
};
use crate::store::{DeliveryState, DeliveryView};

#[derive(Clone, Debug)]
pub(super) enum Wish {
    Replay { choice: Choice, canary: bool, to: Option<usize> },
    Change { replay: Index, act: ReplayAct },
    Skip(Index),
    ReleaseSession(Index),
    Purge(Choice),
    Edit { letter: Index, id: u8 },
    Import(Vec<Theirs>),
    Reassign { from: usize, to: Option<usize>, rows_max: usize, running: Index, due: bool },
}

/// Which letters are meant.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    filter: LetterFilter,
    named: Option<Vec<Index>>,
    poison: Poison,
    /// Only those that died so many seconds ago or earlier.
    age: Option<u64>,
}

/// A letter from elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Theirs {
    key: u8,
    id: u8,
    session: Option<u8>,
    queue: usize,
    age: u64,
    stories: u32,
    replays: u32,
}

/// A step of a replay, as if so many letters more had been sent.
#[derive(Clone, Debug)]
pub(super) struct Step {
    replay: Index,
    off_by: u64,
    letters_max: u32,
    wave: ReplayWave,
}

fn any_filter() -> impl Strategy<Value = LetterFilter> {
    let none = LetterFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let fingerprint = Some(death_of("boom").fingerprint);
    let event_type = EventPattern::parse("order.*").ok();
    prop_oneof![
        4 => Just(none()),
        1 => Just(LetterFilter { service: text("ord"), ..none() }),
        1 => Just(LetterFilter { service: text("strict"), event_type, ..none() }),
        1 => Just(LetterFilter { channel: text("x"), ..none() }),
        1 => Just(LetterFilter { tier: Some(Tier::Poison), ..none() }),
        1 => Just(LetterFilter { fingerprint, ..none() }),
        1 => Just(LetterFilter { code: text(codes::BACKLOG_FULL), ..none() }),
        1 => Just(LetterFilter { session: text("1"), ..none() }),
        1 => Just(LetterFilter { text: text("BANG"), ..none() }),
        1 => Just(LetterFilter { replays_below: Some(1), ..none() }),
        1 => Just(LetterFilter { kinds: Some([KindId(1), KindId(3)].into()), ..none() }),
    ]
}

fn any_choice() -> impl Strategy<Value = Choice> {
    let named = prop::option::weighted(0.3, prop::collection::vec(any::<Index>(), 0..4));
    let poison = prop_oneof![Just(Poison::Left), Just(Poison::Included)];
    let age = prop::option::weighted(0.4, 0..20_u64);
    (any_filter(), named, poison, age).prop_map(|(filter, named, poison, age)| Choice {
        filter,
        named,
        poison,
        age,
    })
}

fn any_theirs() -> impl Strategy<Value = Theirs> {
    let session = prop::option::of(0..2_u8);
    (0..6_u8, 0..25_u8, session, 0..QUEUES.len(), 0..60_u64, 0..3_u32, 0..2_u32).prop_map(
        |(key, id, session, queue, age, stories, replays)| Theirs {
            key,
            id,
            session,
            queue,
            age,
            stories,
            replays,
        },
    )
}

pub(super) fn any_wish() -> impl Strategy<Value = Wish> {
    let act =
        prop_oneof![1 => Just(ReplayAct::Pause), 3 => Just(ReplayAct::Resume), 1 => Just(ReplayAct::Cancel)];
    prop_oneof![
        6 => (any_choice(), any::<bool>(), prop::option::weighted(0.2, 0..QUEUES.len()))
            .prop_map(|(choice, canary, to)| Wish::Replay { choice, canary, to }),
        3 => (any::<Index>(), act).prop_map(|(replay, act)| Wish::Change { replay, act }),
        2 => any::<Index>().prop_map(Wish::Skip),
        1 => any::<Index>().prop_map(Wish::ReleaseSession),
        1 => any_choice().prop_map(Wish::Purge),
        2 => (any::<Index>(), 0..40_u8).prop_map(|(letter, id)| Wish::Edit { letter, id }),
        1 => prop::collection::vec(any_theirs(), 0..4).prop_map(Wish::Import),
        2 => (0..QUEUES.len(), prop::option::of(0..QUEUES.len()), 1..4_usize, any::<Index>(), any::<bool>())
            .prop_map(|(from, to, rows_max, running, due)| Wish::Reassign { from, to, rows_max, running, due }),
    ]
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let off_by = prop_oneof![9 => Just(0_u64), 1 => Just(1_u64)];
    let wave = prop_oneof![Just(ReplayWave::First), Just(ReplayWave::Second), Just(ReplayWave::Rest)];
    (any::<Index>(), off_by, 0..5_u32, wave).prop_map(|(replay, off_by, letters_max, wave)| Step {
        replay,
        off_by,
        letters_max,
        wave,
    })
}

fn dead(bench: &Bench) -> Vec<DeliveryView> {
    let is_dead = |view: &DeliveryView| matches!(view.state, DeliveryState::Dead { .. });
    bench.all().into_iter().filter(is_dead).collect()
}

/// One of the dead, if there are any; else one of all.
fn one_of(bench: &Bench, which: Index) -> Option<DeliveryView> {
    let (dead, all) = (dead(bench), bench.all());
    let some = if dead.is_empty() { all } else { dead };
    (!some.is_empty()).then(|| which.get(&some).clone())
}

/// One of all replays; none that is known if there are none.
fn replay_of(bench: &Bench, which: Index) -> ReplayId {
    let replays = bench.reader().replays(None, 50).expect("it answers");
    if replays.is_empty() { ReplayId(1) } else { which.get(&replays).id }
}

impl Choice {
    fn selection(&self, bench: &Bench) -> Selection {
        let Self { filter, named, poison, age } = self;
        let died_until = age.map(|seconds| bench.now - Duration::from_secs(seconds));
        let dead: Vec<DeliveryId> = dead(bench).iter().map(|view| view.id).collect();
        let letters = named.as_ref().filter(|_| !dead.is_empty());
        Selection {
            filter: filter.clone(),
            letters: letters.map(|named| named.iter().map(|index| *index.get(&dead)).collect()),
            poison: *poison,
            died_until: died_until.unwrap_or(everything().died_until),
        }
    }
}

impl Theirs {
    fn letter(&self, now: Timestamp) -> ImportedLetter {
        let name = QUEUES[self.queue];
        let sent = Event {
            source: EventSource::new("/0").expect("a source"),
            session: self.session.map(|key| SessionKey::new(&key.to_string()).expect("a key")),
            ..event(&self.id.to_string())
        };
        let failed = |attempt| {
            story(
                attempt,
                AttemptEnd::Delivered { status: None, message: String::new() },
                RecordedVerdict::Delivered,
            )
        };
        ImportedLetter {
            key: self.key.to_string(),
            attempts: self.stories,
            stories: (1..=self.stories).map(failed).collect(),
            replays: self.replays,
            ..foreign(name, sent, now - Duration::from_secs(self.age))
        }
    }
}

impl Wish {
    pub(super) fn command(&self, bench: &Bench) -> Option<LetterCommand> {
        Some(match self {
            Self::Replay { choice, canary: is_canary, to } => {
                let new = if *is_canary { canary } else { straight }(choice.selection(bench));
                let to = to.map(|index| {
                    let name = QUEUES[index];
                    Arc::new(Redirect { queue: queue(name), order: order_of(name) })
                });
                LetterCommand::Replay(Box::new(NewReplay { to, ..new }), CommandAnswer::default())
            }
            Self::Change { replay, act } => {
                let (replay, act) = (replay_of(bench, *replay), *act);
                LetterCommand::Change { replay, act, answer: CommandAnswer::default() }
            }
            Self::Skip(which) => {
                let letter = one_of(bench, *which)?.id;
                LetterCommand::Skip { letter, note: None, answer: CommandAnswer::default() }
            }
            Self::ReleaseSession(which) => LetterCommand::ReleaseSession {
                letter: one_of(bench, *which)?.id,
                answer: CommandAnswer::default(),
            },
            Self::Purge(choice) => {
                let (selection, what) = (choice.selection(bench), "some".to_owned());
                let step = PurgeCommand { selection, what, rows_max: 1_000, after: None, note: None };
                LetterCommand::Purge(Box::new(step), CommandAnswer::default())
            }
            Self::Edit { letter, id } => {
                let old = one_of(bench, *letter)?;
                let session = old.session.as_deref().and_then(|key| SessionKey::new(key).ok());
                let source = EventSource::new("/0").expect("a source");
                let event = Arc::new(Event { session, source, ..event(&id.to_string()) });
                LetterCommand::Edit(
                    Box::new(EditCommand { letter: old.id, event, note: None }),
                    CommandAnswer::default(),
                )
            }
            Self::Import(letters) => {
                let letters = letters.iter().map(|theirs| theirs.letter(bench.now)).collect();
                LetterCommand::Import(letters, CommandAnswer::default())
            }
            Self::Reassign { from, to, rows_max, running, due } => {
                let to = match to.filter(|to| to != from) {
                    None => Reassignment::DeadLetters,
                    Some(to) => Reassignment::Queue {
                        to: Redirect { queue: queue(QUEUES[to]), order: order_of(QUEUES[to]) },
                        takes: EventPattern::parse("order.*").into_iter().collect(),
                    },
                };
                let step = ReassignCommand {
                    queue: queue(QUEUES[*from]),
                    scope: ReassignScope::All,
                    to,
                    rows_max: *rows_max,
                    running: one_of(bench, *running).map(|view| view.id.seq()).into_iter().collect(),
                    after: due.then_some(ReassignCursor { due_at: Some(Timestamp::EPOCH), seq: Seq::NONE }),
                    audit: None,
                    note: None,
                };
                LetterCommand::Reassign(Box::new(step), CommandAnswer::default())
            }
        })
    }
}

impl Step {
    pub(super) fn advance(&self, bench: &Bench) -> Advance {
        let replay = replay_of(bench, self.replay);
        let now = bench.reader().replay(replay).expect("it answers");
        let sent_before = now.map_or(0, |view| view.tally.sent) + self.off_by;
        Advance { replay, sent_before, letters_max: self.letters_max, wave: self.wave }
    }
}

/// All that a reader can see of letters, replays and what is on record.
pub(super) fn seen(bench: &Bench) -> Vec<String> {
    let (reader, now) = (bench.reader(), bench.now);
    let none = LetterFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let filters = [
        none(),
        LetterFilter { service: text("strict"), ..none() },
        LetterFilter { tier: Some(Tier::Poison), ..none() },
        LetterFilter { session: text("0"), ..none() },
        LetterFilter { from: Some(now - Duration::from_secs(30)), until: Some(now), ..none() },
        LetterFilter { text: text("boom"), service: text("ord"), ..none() },
    ];
    let mut seen = Vec::new();
    for filter in filters {
        seen.push(format!("letters {:?}", bench.letters(&filter)));
        seen.push(format!("groups {:?}", reader.groups(&filter, now, 3).expect("it answers")));
        let mut kinds = reader.kinds(&filter).expect("it answers");
        kinds.sort_by_key(|kind| kind.id);
        seen.push(format!("kinds {kinds:?}"));
        let selection = Selection { filter, ..everything() };
        seen.push(format!("survey {:?}", reader.survey(&selection).expect("it answers")));
        seen.push(format!("export {:?}", bench.export(&selection)));
    }
    for view in bench.all() {
        let letter = reader.letter(&LetterKey::Delivery(view.id)).expect("it answers");
        seen.push(format!("letter {letter:?}"));
        seen.push(format!("delivery {:?}", bench.view(view.id.seq())));
    }
    for key in 0..3 {
        let letter = reader.letter(&LetterKey::Imported(key.to_string())).expect("it answers");
        seen.push(format!("theirs {letter:?}"));
    }
    seen.push(format!("replays {:?}", reader.replays(None, 50).expect("it answers")));
    seen.push(format!("held {:?}", reader.held_sessions(50).expect("it answers")));
    seen.push(format!("audit {:?}", reader.audit(None, 500).expect("it answers")));
    seen
}

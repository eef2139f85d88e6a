//! What must hold of dead letters, sessions and replays at any time, whatever was done before.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::book::model::DeliveryOrder;
use redrive_core::engine::{QueueName, SessionFollowers};
use redrive_core::ids::{DeliveryId, Seq};
use redrive_core::letters::envelope::Tier;

use super::bench::{Bench, order_of};
use super::desk::everything;
use crate::store::letter::{LetterFilter, LetterView, Poison, Selection, SelectionSurvey};
use crate::store::{DeliveryState, DeliveryView, Oldest};

fn holds(view: &DeliveryView) -> bool {
    matches!(&view.state, DeliveryState::Dead { death, .. } if death.followers == SessionFollowers::Wait)
}

/// Of each session one delivery may start, or a dead letter holds it and is shown to.
pub(super) fn sessions_go_on(bench: &Bench, all: &[DeliveryView]) {
    let mut sessions: BTreeMap<(QueueName, String), Vec<&DeliveryView>> = BTreeMap::new();
    for view in all.iter().filter(|view| order_of(view.queue.service.as_str()) != DeliveryOrder::None) {
        let is_open = match view.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => true,
            DeliveryState::Dead { .. } => holds(view),
            DeliveryState::Delivered { .. } | DeliveryState::Closed { .. } => false,
        };
        if let Some(session) = view.session.as_ref().filter(|_| is_open) {
            sessions.entry((view.queue.clone(), session.clone())).or_default().push(view);
        }
    }
    let held = bench.reader().held_sessions(1_000_000).expect("it answers");
    let mut holders: BTreeMap<(QueueName, String), DeliveryId> = BTreeMap::new();
    for one in held {
        let lane = (one.queue, one.session);
        let members = sessions.get(&lane).unwrap_or_else(|| panic!("{lane:?} is held and empty"));
        assert!(members.iter().any(|view| view.id == one.letter), "{lane:?} is held by one of its own");
        let behind = members.iter().filter(|view| view.state == DeliveryState::Behind).count();
        assert_eq!(one.behind, behind as u64, "those behind are counted: {lane:?}");
        assert!(holders.insert(lane, one.letter).is_none(), "one holds a session");
    }
    for (lane, members) in sessions {
        let may_start =
            |view: &&&DeliveryView| matches!(view.state, DeliveryState::Ready | DeliveryState::Due { .. });
        match members.iter().filter(may_start).count() {
            0 => {
                let holder = holders.get(&lane).unwrap_or_else(|| panic!("{lane:?} is stuck: {members:#?}"));
                assert!(members.iter().any(|view| view.id == *holder && holds(view)), "{lane:?} is held");
            }
            heads => assert_eq!(heads, 1, "{lane:?} has one head: {members:#?}"),
        }
    }
}

/// Letters, kinds, causes, surveys and exports tell of the same dead deliveries.
pub(super) fn letters_add_up(bench: &Bench, all: &[DeliveryView]) {
    let reader = bench.reader();
    let letters = bench.letters(&LetterFilter::default());
    assert!(letters.is_sorted_by(|later, earlier| later.number > earlier.number), "the latest first");
    let dead = all.iter().filter(|view| matches!(view.state, DeliveryState::Dead { .. }));
    let dead: BTreeSet<Seq> = dead.map(|view| view.id.seq()).collect();
    let shown: BTreeSet<Seq> = letters.iter().map(|letter| letter.delivery.id.seq()).collect();
    assert_eq!((shown.len(), shown), (letters.len(), dead), "a letter for each that is dead");
    for letter in &letters {
        let DeliveryState::Dead { at, death } = &letter.delivery.state else { panic!("{letter:?}") };
        assert_eq!((letter.died_at, &letter.death), (*at, &**death));
        assert_eq!(letter.holds.is_some(), holds(&letter.delivery));
        assert!(letter.event.data.is_empty() && letter.delivery.stories.is_empty(), "lists tell no stories");
    }
    kinds_add_up(bench, &letters);
    let groups = reader.groups(&LetterFilter::default(), bench.now, 1_000).expect("it answers");
    let counted: u64 = groups.iter().map(|group| group.count).sum();
    assert_eq!(counted, letters.len() as u64, "causes count letters");
    assert!(groups.is_sorted_by(|more, fewer| more.count >= fewer.count), "the most frequent first");
    for group in &groups {
        let ours = letters.iter().filter(|letter| letter.death.fingerprint == group.fingerprint);
        let poison = ours.clone().filter(|letter| letter.death.tier == Tier::Poison).count();
        assert_eq!((group.count, group.poison), (ours.clone().count() as u64, poison as u64));
        assert_eq!(Some(group.sample.number), ours.clone().map(|letter| letter.number).max());
        assert_eq!(Some(group.first_at), ours.clone().map(|letter| letter.died_at).min());
        assert_eq!(Some(group.last_at), ours.map(|letter| letter.died_at).max());
        assert_eq!(group.queues.values().sum::<u64>(), group.count);
        assert_eq!(group.event_types.values().sum::<u64>(), group.count);
    }
    let selection = Selection { poison: Poison::Included, ..everything() };
    let SelectionSurvey { letters: free, claimed, poison_left, holding, .. } =
        reader.survey(&selection).expect("it answers");
    assert_eq!(free + claimed.values().sum::<u64>(), letters.len() as u64, "so do surveys");
    let held = reader.held_sessions(1_000_000).expect("it answers");
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = reader.held_page(after, 2).expect("it answers");
        paged.extend(page.sessions);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    paged.sort_by_key(|session| (session.since, session.letter));
    let mut sorted = held.clone();
    sorted.sort_by_key(|session| (session.since, session.letter));
    assert_eq!(paged, sorted, "pages have each of them once");
    let held: BTreeSet<DeliveryId> = held.iter().map(|session| session.letter).collect();
    let is_holder = |letter: &&LetterView| held.contains(&letter.delivery.id) && letter.claimed_by.is_none();
    assert_eq!((poison_left, holding), (0, letters.iter().filter(is_holder).count() as u64), "and sessions");
    let mut exported: Vec<_> = bench.export(&selection).iter().map(|letter| letter.number).collect();
    exported.reverse();
    assert_eq!(exported, letters.iter().map(|letter| letter.number).collect::<Vec<_>>(), "and exports");
}

fn kinds_add_up(bench: &Bench, letters: &[LetterView]) {
    let kinds = bench.reader().kinds(&LetterFilter::default()).expect("it answers");
    let mut counted = 0;
    for kind in kinds {
        let filter = LetterFilter { kinds: Some([kind.id].into()), ..LetterFilter::default() };
        let ours = bench.letters(&filter);
        assert_eq!(kind.count, ours.len() as u64, "{kind:?}");
        counted += kind.count;
        for letter in ours {
            let (death, delivery) = (&letter.death, &letter.delivery);
            assert_eq!(
                (
                    death.fingerprint,
                    &death.code,
                    &death.failure_code,
                    death.category,
                    death.tier,
                    &death.name
                ),
                (kind.fingerprint, &kind.code, &kind.failure_code, kind.category, kind.tier, &kind.name),
            );
            assert_eq!(
                (&delivery.queue, &delivery.subscription, &delivery.event_type),
                (&kind.queue, &kind.subscription, &kind.event_type),
            );
            assert!(kind.first_at <= letter.died_at && letter.died_at <= kind.last_at, "{kind:?}");
        }
    }
    assert_eq!(counted, letters.len() as u64, "kinds count letters");
}

/// The oldest of each queue are those that a look at all of them finds.
pub(super) fn the_oldest_are(bench: &Bench, all: &[DeliveryView]) {
    let mut queues: BTreeMap<QueueName, Oldest> = BTreeMap::new();
    for view in all {
        match view.state {
            DeliveryState::Ready | DeliveryState::Due { .. } | DeliveryState::Behind => {
                let oldest = queues.entry(view.queue.clone()).or_default();
                oldest.waiting_since.get_or_insert(view.accepted_at);
            }
            DeliveryState::Dead { at, .. } => {
                let oldest = queues.entry(view.queue.clone()).or_default();
                oldest.dead_since = Some(oldest.dead_since.map_or(at, |since| since.min(at)));
            }
            DeliveryState::Delivered { .. } | DeliveryState::Closed { .. } => {}
        }
    }
    assert_eq!(bench.reader().oldest().expect("it answers"), queues, "the oldest are the oldest");
}

/// What a replay counts is what deliveries and letters tell of it.
pub(super) fn replays_add_up(bench: &Bench, all: &[DeliveryView]) {
    let replays = bench.reader().replays(None, 1_000).expect("it answers");
    assert!(replays.is_sorted_by(|later, earlier| later.id > earlier.id), "the latest first");
    let letters = bench.letters(&LetterFilter::default());
    for replay in &replays {
        let under_way = all.iter().filter(|view| view.replaying == Some(replay.id)).count();
        assert_eq!(replay.tally.in_flight(), under_way as u64, "{replay:?}");
        let claimed = letters.iter().filter(|letter| letter.claimed_by == Some(replay.id)).count() as u64;
        let waiting = if replay.state.is_open() { replay.tally.waiting() } else { 0 };
        assert_eq!(claimed, waiting, "{replay:?}");
        assert_eq!(bench.reader().replay(replay.id).expect("it answers").as_ref(), Some(replay));
    }
}

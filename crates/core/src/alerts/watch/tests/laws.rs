//! Laws that hold whatever happens, held against many small histories.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{AlertNotice, AlertWatch, World};
use crate::alerts::notice::AlertStage;
use crate::figures::Figures;
use crate::limits;
use crate::policy::breaker::BreakerState;

const BOOK: &str = "alerts:
  - { when: dead_letters > 3, name: letters, severity: critical, to: [a, office], escalate: [b], repeat: 5m }
  - { when: dead_letters > 0 by service, name: by-service, severity: high, to: [a] }
  - { when: error_rate > 20% over 2m for 30s, name: errors, severity: medium, to: [a, b], repeat: 2m }
  - { when: breaker_opened, name: opened, severity: warning, to: [b] }
  - { when: breaker_open for 1m, name: open, severity: high, to: [a, b] }
receivers:
  a: { webhook: \"http://a.test/\" }
  b: { webhook: \"http://b.test/\", severity: medium }
  office: { webhook: \"http://c.test/\", hours: \"Mon 12:05-12:30 UTC\" }
";

/// Something that happens, and for how long nothing else does.
#[derive(Clone, Debug)]
enum Turn {
    Letters(usize, u64),
    Attempts(u64, u64),
    Breaker(bool),
    Nothing,
}

fn turn() -> impl Strategy<Value = (Turn, u64)> {
    let turn = prop_oneof![
        (0..4_usize, 0..6_u64).prop_map(|(service, letters)| Turn::Letters(service, letters)),
        (0..20_u64, 0..40_u64).prop_map(|(failed, more)| Turn::Attempts(failed, failed + more)),
        any::<bool>().prop_map(Turn::Breaker),
        Just(Turn::Nothing),
    ];
    (turn, 1..90_u64)
}

impl Turn {
    fn take(&self, world: &mut World) {
        match self {
            Self::Letters(service, letters) => world.queue(&format!("s{service}")).dead = *letters,
            Self::Attempts(failed, all) => world.attempts(*failed, *all),
            Self::Breaker(true) => world.breaker("d", BreakerState::Open { until: world.now }),
            Self::Breaker(false) => world.breaker("d", BreakerState::Closed { failures: 0 }),
            Self::Nothing => {}
        }
    }
}

/// What is told in a history that ends in peace; with a restart after some of its turns.
fn told(turns: &[(Turn, u64)], restarts: &BTreeSet<usize>) -> Vec<AlertNotice> {
    let mut world = World::new(BOOK);
    let mut told = Vec::new();
    for (place, (turn, secs)) in turns.iter().enumerate() {
        turn.take(&mut world);
        for _ in 0..*secs {
            told.extend(world.look(1));
        }
        if restarts.contains(&place) {
            let saved = serde_json::to_string(&world.watch.save()).unwrap();
            world.watch = AlertWatch::new(&world.book, world.now);
            world.watch.restore(serde_json::from_str(&saved).unwrap());
            world.figures = Figures::default();
        }
    }
    for service in 0..4 {
        Turn::Letters(service, 0).take(&mut world);
    }
    Turn::Breaker(false).take(&mut world);
    for _ in 0..200 {
        told.extend(world.look(1));
    }
    // The office is open once more.
    world.now = world.now.max("2026-03-09T12:06:00Z".parse().unwrap());
    for _ in 0..200 {
        told.extend(world.look(1));
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nothing_is_said_twice_and_all_that_begins_ends(turns in prop::collection::vec(turn(), 1..30)) {
        let told = told(&turns, &BTreeSet::new());
        let mut ids = BTreeSet::new();
        let mut open: BTreeMap<(String, String), u32> = BTreeMap::new();
        let mut lately: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for notice in &told {
            prop_assert!(ids.insert(notice.id()), "said twice: {:?}", notice);
            let route = (notice.alert.clone(), notice.receiver.clone());
            let before = open.get(&route).copied();
            match notice.stage {
                AlertStage::Firing => prop_assert_eq!(before.unwrap_or(0), notice.told_before),
                AlertStage::Repeated => prop_assert_eq!(before, Some(notice.told_before)),
                AlertStage::Resolved => prop_assert!(before.is_none_or(|before| before == notice.told_before)),
                AlertStage::Test => prop_assert!(false, "only people test receivers"),
            }
            match notice.stage {
                AlertStage::Firing | AlertStage::Repeated => open.insert(route, notice.told_before + 1),
                AlertStage::Resolved | AlertStage::Test => open.remove(&route),
            };
            let lately = lately.entry(notice.receiver.clone()).or_default();
            lately.push(notice.at);
            lately.retain(|at| notice.at.since(*at) < limits::ALERT_NOTICES_WITHIN);
            prop_assert!(lately.len() <= limits::ALERT_NOTICES_MAX);
        }
        prop_assert!(open.is_empty(), "never over: {:?}", open);
    }

    #[test]
    fn restarts_change_nothing(
        turns in prop::collection::vec(turn(), 1..30),
        restarts in prop::collection::btree_set(0..30_usize, 1..4),
    ) {
        prop_assert_eq!(told(&turns, &restarts), told(&turns, &BTreeSet::new()));
    }
}

//! A breaker's state as nodes share it through a store.
//!
//! A record is a fact about one generation of a breaker. Of two records the one that
//! [`BreakerRecord::wins_over`] the other is kept, and that order is total: in whatever order records travel,
//! all nodes end with the same one.
//!
//! How a shell publishes, after each [`Transition`]:
//!
//! 1. take `ours = breaker.record(..)` and read what is `stored`
//! 2. if `ours.replaces(stored)`, write `ours` on the condition that the store still has the generation and
//!    state that were read (compare-and-set); on a conflict start again at 1
//! 3. otherwise `breaker.adopt(stored)`
//!
//! It never changes a part of a record: two nodes that each add one failure to the same record would lose
//! one. Failures are counted locally; only states are shared. While the store is away the local breaker
//! decides, and a new one admits calls.
//!
//! A newer closed record at a closed breaker: on another node it has opened and closed again, or an operator
//! has reset it. There is no transition here, and the failures counted here stay: nodes that forgot theirs
//! whenever another node had an outage would never reach their trip. Calls in flight no longer count, as
//! after any new generation; that loses at most what is in flight, once for each such record.
//!
//! Leases are not shared. Each node of a half-open breaker has its own `probes`, since a lease in a store
//! that may be away would block the breaker that it should free.

use serde::{Deserialize, Deserializer, Serialize};

use super::{
    Breaker, BreakerOutage, BreakerPhase, BreakerSettings, FailureTally, Generation, Mode, Transition,
};
use crate::ids::DependencyName;
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerRecord {
    #[serde(deserialize_with = "checked_name")]
    pub service_name: DependencyName,
    pub state: BreakerPhase,
    pub failure_count: u32,
    pub last_failure_at: Option<Timestamp>,
    pub last_success_at: Option<Timestamp>,
    /// When it last opened; `None` while closed.
    pub opened_at: Option<Timestamp>,
    /// `None` unless it is open.
    pub open_until: Option<Timestamp>,
    pub generation: Generation,
    /// From then on the record is ignored.
    pub expires_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    Taken(Transition),
    /// It was newer, and both are closed: the breaker has its generation now and keeps its own count.
    CaughtUp,
    Kept,
}

impl BreakerRecord {
    /// The higher generation wins, then the more cautious state, then the later opening; the rest only makes
    /// the order total.
    #[must_use]
    pub fn wins_over(&self, other: &Self) -> bool {
        self.rank() > other.rank()
    }

    #[must_use]
    pub fn replaces(&self, stored: Option<&Self>, now: Timestamp) -> bool {
        stored.is_none_or(|stored| stored.is_expired(now) || self.wins_over(stored))
    }

    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    fn rank(&self) -> impl Ord + '_ {
        let Self {
            service_name,
            state,
            failure_count,
            last_failure_at,
            last_success_at,
            opened_at,
            open_until,
            generation,
            expires_at,
        } = self;
        let decides = (generation, state, opened_at, open_until);
        (decides, expires_at, last_failure_at, last_success_at, failure_count, service_name)
    }
}

impl Breaker {
    /// What to publish under that name. Counts as a use, so it is kept from `now` on.
    #[must_use]
    pub fn record(&self, name: &DependencyName, now: Timestamp) -> BreakerRecord {
        let open_until = match self.mode {
            Mode::Open { until, .. } => Some(until),
            Mode::Closed(_) | Mode::HalfOpen { .. } => None,
        };
        BreakerRecord {
            service_name: name.clone(),
            state: self.phase(),
            failure_count: self.failures(now),
            last_failure_at: self.last_failure_at,
            last_success_at: self.last_success_at,
            opened_at: self.outage().map(|outage| outage.opened_at),
            open_until,
            generation: self.generation,
            expires_at: now + limits::BREAKER_RECORD_KEPT,
        }
    }

    /// Adopts the state of a record if it is newer than the breaker's own; its generation alone if both are
    /// closed.
    ///
    /// Another node's clock may be wrong, so no record keeps the breaker open for longer than its own
    /// settings would.
    pub fn adopt(&mut self, record: &BreakerRecord, settings: &BreakerSettings, now: Timestamp) -> Adoption {
        if record.is_expired(now) || !self.is_older_than(record) {
            return Adoption::Kept;
        }
        self.generation = record.generation;
        self.last_failure_at = self.last_failure_at.max(record.last_failure_at);
        self.last_success_at = self.last_success_at.max(record.last_success_at);
        let from = self.phase();
        if (from, record.state) == (BreakerPhase::Closed, BreakerPhase::Closed) {
            return Adoption::CaughtUp;
        }
        let opened_at = record.opened_at.unwrap_or(now);
        let began_at = self.not_closed_since().unwrap_or(opened_at);
        let outage = BreakerOutage { began_at, opened_at, failures: record.failure_count };
        self.mode = match record.state {
            BreakerPhase::Closed => Mode::Closed(FailureTally::default()),
            BreakerPhase::HalfOpen => Mode::HalfOpen { outage, since: now, leases: Vec::new(), successes: 0 },
            BreakerPhase::Open => {
                let until = record.open_until.unwrap_or(now).min(now + settings.open());
                Mode::Open { outage, until }
            }
        };
        Adoption::Taken(Transition {
            from,
            to: record.state,
            at: now,
            generation: record.generation,
            failures: record.failure_count,
        })
    }

    fn is_older_than(&self, record: &BreakerRecord) -> bool {
        match (record.generation, record.state).cmp(&(self.generation, self.phase())) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            // Our own counts and leases are no part of a record: only a later opening is new.
            std::cmp::Ordering::Equal => {
                record.state == BreakerPhase::Open
                    && record.opened_at > self.outage().map(|outage| outage.opened_at)
            }
        }
    }
}

fn checked_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DependencyName, D::Error> {
    DependencyName::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::breaker::tests::{LIMIT, OPEN, START, in_a_row, just_opened, permit, settings};
    use crate::policy::breaker::{Admission, BreakerState, CallEnd, Observation};

    fn dependency() -> DependencyName {
        DependencyName::new("ntfy").expect("a name")
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (0_u64..3).prop_map(|s| START + Duration::from_secs(s))
    }

    prop_compose! {
        /// Records with few distinct values, so that ties are common.
        fn any_record()(
            state in prop_oneof![Just(BreakerPhase::Closed), Just(BreakerPhase::HalfOpen), Just(BreakerPhase::Open)],
            generation in 0_u64..3,
            failure_count in 0_u32..2,
            [last_failure_at, last_success_at] in prop::array::uniform2(prop::option::of(any_time())),
            [opened_at, open_until] in prop::array::uniform2(prop::option::of(any_time())),
            expires_at in any_time(),
        ) -> BreakerRecord {
            BreakerRecord {
                service_name: dependency(), state, failure_count, last_failure_at, last_success_at,
                opened_at, open_until, generation: Generation(generation), expires_at,
            }
        }
    }

    fn merge(a: &BreakerRecord, b: &BreakerRecord) -> BreakerRecord {
        if b.wins_over(a) { b.clone() } else { a.clone() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn records_merge_alike_in_any_order(a in any_record(), b in any_record(), c in any_record()) {
            prop_assert_eq!(merge(&a, &b), merge(&b, &a));
            prop_assert_eq!(merge(&merge(&a, &b), &c), merge(&a, &merge(&b, &c)));
            prop_assert_eq!(merge(&a, &a), a);
        }

        #[test]
        fn breakers_adopt_alike_in_any_order(a in any_record(), b in any_record()) {
            let settings = settings(in_a_row(1));
            let adopt = |records: [&BreakerRecord; 3]| {
                let mut breaker = Breaker::new();
                for record in records {
                    breaker.adopt(record, &settings, START);
                }
                let BreakerRecord { generation, state, .. } = breaker.record(&dependency(), START);
                (generation, state)
            };
            prop_assert_eq!(adopt([&a, &b, &b]), adopt([&b, &a, &b]));
        }

        #[test]
        fn no_record_wedges_a_breaker(record in any_record(), until_ns in any::<u64>(), generation in any::<u64>()) {
            let settings = settings(in_a_row(1));
            let mut breaker = Breaker::new();
            let open_until = Some(Timestamp::from_nanos(until_ns));
            let generation = Generation(generation);
            breaker.adopt(&BreakerRecord { open_until, generation, ..record }, &settings, START);
            let admission = breaker.admit(&settings, LIMIT, START + OPEN);
            prop_assert!(matches!(admission, Admission::Allowed(_)));
        }
    }

    #[test]
    fn a_record_reads_as_json_and_back() {
        let settings = settings(in_a_row(1));
        let record = just_opened(&settings).record(&dependency(), START);
        let json = serde_json::to_string(&record).expect("it can be written");
        assert_eq!(
            json,
            r#"{"service_name":"ntfy","state":"open","failure_count":0,"last_failure_at":null,"#.to_owned()
                + r#""last_success_at":null,"opened_at":"1970-01-12T13:46:40Z","#
                + r#""open_until":"1970-01-12T13:46:50Z","generation":1,"expires_at":"1970-01-19T13:46:40Z"}"#
        );
        assert_eq!(serde_json::from_str::<BreakerRecord>(&json).expect("it can be read"), record);
        assert!(serde_json::from_str::<BreakerRecord>(&json.replace("ntfy", "n t f y")).is_err());
    }

    #[test]
    fn a_record_is_taken_if_it_is_newer_and_alive() {
        let settings = settings(in_a_row(1));
        let record = |state, generation| BreakerRecord {
            state,
            generation: Generation(generation),
            ..just_opened(&settings).record(&dependency(), START)
        };
        let expired = BreakerRecord { expires_at: START, ..record(BreakerPhase::Open, 9) };
        let reopened = BreakerRecord { opened_at: Some(START + OPEN), ..record(BreakerPhase::Open, 1) };
        #[rustfmt::skip]
        let cases = [
            ("an earlier generation",           record(BreakerPhase::Open, 0),     None),
            ("the same",                        record(BreakerPhase::Open, 1),     None),
            ("as new and less cautious",        record(BreakerPhase::HalfOpen, 1), None),
            ("as new, but opened later",        reopened,                   Some(BreakerPhase::Open)),
            ("a newer one that closed",         record(BreakerPhase::Closed, 2),   Some(BreakerPhase::Closed)),
            ("a newer one that tries",          record(BreakerPhase::HalfOpen, 2), Some(BreakerPhase::HalfOpen)),
            ("a newer one that has expired",    expired.clone(),            None),
        ];
        for (name, record, expected) in cases {
            let mut breaker = just_opened(&settings);
            let taken = match breaker.adopt(&record, &settings, START) {
                Adoption::Taken(transition) => Some(transition.to),
                Adoption::CaughtUp => panic!("{name}: an open breaker cannot stay closed"),
                Adoption::Kept => None,
            };
            assert_eq!(taken, expected, "{name}");
            assert_eq!(breaker.adopt(&record, &settings, START), Adoption::Kept, "{name}, once more");
        }
        let ours = record(BreakerPhase::Closed, 0);
        assert!(ours.replaces(None, START));
        assert!(ours.replaces(Some(&expired), START), "what has expired is as good as nothing");
        assert!(!ours.replaces(Some(&record(BreakerPhase::Open, 0)), START));
    }

    #[test]
    fn a_closed_breaker_keeps_its_count_when_another_closes() {
        let settings = settings(in_a_row(3));
        let fail = Observation::Failure(CallEnd::Final);
        let closed = |generation| BreakerRecord {
            generation: Generation(generation),
            ..Breaker::new().record(&dependency(), START)
        };
        let mut breaker = Breaker::new();
        let [first, second, in_flight] = [(); 3].map(|()| permit(breaker.admit(&settings, LIMIT, START)));
        for failed in [first, second] {
            assert_eq!(breaker.settle(failed, fail, &settings, START), None);
        }
        assert_eq!(breaker.adopt(&closed(0), &settings, START), Adoption::Kept, "it is not newer");
        assert_eq!(breaker.adopt(&closed(3), &settings, START), Adoption::CaughtUp);
        assert_eq!(breaker.adopt(&closed(3), &settings, START), Adoption::Kept, "once more");
        assert_eq!(breaker.generation(), Generation(3));
        assert_eq!(breaker.settle(in_flight, fail, &settings, START), None, "it began before the news");
        assert_eq!(breaker.state(START), BreakerState::Closed { failures: 2 });
        let third = permit(breaker.admit(&settings, LIMIT, START));
        let opened = breaker.settle(third, fail, &settings, START).expect("the third in a row");
        assert_eq!((opened.failures, opened.generation), (3, Generation(4)));
    }

    #[test]
    fn two_nodes_that_disagree_end_up_with_the_more_cautious_state() {
        let settings = settings(in_a_row(1));
        let [mut one, mut other] = [(), ()].map(|()| Breaker::new());
        let in_flight = permit(other.admit(&settings, LIMIT, START));
        one.trip_by_hand(&settings, START);
        other.adopt(&one.record(&dependency(), START), &settings, START);
        assert_eq!(other.state(START), BreakerState::Open { until: START + OPEN });
        assert_eq!(other.settle(in_flight, Observation::Success, &settings, START), None);

        let then = START + OPEN;
        for (breaker, seen) in
            [(&mut one, Observation::Success), (&mut other, Observation::Failure(CallEnd::Final))]
        {
            let probe = permit(breaker.admit(&settings, LIMIT, then));
            assert!(breaker.settle(probe, seen, &settings, then).is_some());
        }
        let [ours, theirs] = [&one, &other].map(|breaker| breaker.record(&dependency(), then));
        one.adopt(&theirs, &settings, then);
        other.adopt(&ours, &settings, then);
        assert_eq!(one.state(then), BreakerState::Open { until: then + OPEN });
        assert_eq!(other.state(then), one.state(then));
        assert_eq!(one.generation(), other.generation());
    }
}

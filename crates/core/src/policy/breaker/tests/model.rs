//! The breaker against a model of it: the same rules without generations, leases or windows, in as few
//! words as possible.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::ids::DependencyName;

#[derive(Clone, Copy, Debug)]
enum Act {
    Admit {
        limit_ms: u64,
    },
    Settle {
        which: usize,
        seen: Observation,
    },
    /// Its call takes as long as it may, and fails.
    TimeOut {
        which: usize,
    },
    Cancel {
        which: usize,
    },
    Lose {
        which: usize,
    },
    Pass {
        ms: u64,
    },
    TripByHand,
    ResetByHand,
    Adopt {
        state: BreakerPhase,
        /// By how much the record's generation exceeds the one before ours.
        newer: u64,
        opened_ms_ago: u64,
        open_for_ms: u64,
    },
}

#[derive(Debug)]
enum Model {
    Closed { made: u32, failed_at: Vec<Timestamp> },
    Open { opened_at: Timestamp, until: Timestamp },
    HalfOpen { opened_at: Timestamp, successes: u32 },
}

impl Model {
    const CLOSED: Self = Self::Closed { made: 0, failed_at: Vec::new() };

    const fn phase(&self) -> BreakerPhase {
        match self {
            Self::Closed { .. } => BreakerPhase::Closed,
            Self::Open { .. } => BreakerPhase::Open,
            Self::HalfOpen { .. } => BreakerPhase::HalfOpen,
        }
    }

    const fn opened_at(&self) -> Option<Timestamp> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { opened_at, .. } | Self::HalfOpen { opened_at, .. } => Some(*opened_at),
        }
    }
}

/// A permit that is out, and what the model knows of it.
struct Out {
    /// None if it was lost and will never be given back.
    permit: Option<Permit>,
    /// The era in which it was given.
    era: u64,
    times_out_at: Timestamp,
    lease_ends_at: Timestamp,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Held,
    GivenToAnother,
}

struct World {
    settings: BreakerSettings,
    breaker: Breaker,
    model: Model,
    /// Counts what makes permits stale, which is every change and every newer record.
    era: u64,
    generation: u64,
    now: Timestamp,
    out: Vec<Out>,
}

impl World {
    fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            breaker: Breaker::new(),
            model: Model::CLOSED,
            era: 0,
            generation: 0,
            now: START,
            out: Vec::new(),
        }
    }

    fn step(&mut self, act: Act) {
        match act {
            Act::Admit { limit_ms } => self.admit(Duration::from_millis(limit_ms)),
            Act::Settle { which, seen } => self.settle(which, seen),
            Act::TimeOut { which } => {
                if let Some(index) = self.pick(which) {
                    self.now = self.now.max(self.out[index].times_out_at);
                    self.settle(which, Observation::Failure(CallEnd::Final));
                }
            }
            Act::Cancel { which } => {
                if let Some(index) = self.pick(which) {
                    let permit = self.out.remove(index).permit;
                    self.breaker.cancel(permit.expect("only those are picked"));
                }
            }
            Act::Lose { which } => {
                if let Some(index) = self.pick(which) {
                    self.out[index].permit = None;
                }
            }
            Act::Pass { ms } => self.now = self.now + Duration::from_millis(ms),
            Act::TripByHand => {
                self.breaker.trip_by_hand(&self.settings, self.now);
                self.open();
            }
            Act::ResetByHand => {
                self.breaker.reset_by_hand(self.now);
                self.change(Model::CLOSED);
            }
            Act::Adopt { state, newer, opened_ms_ago, open_for_ms } => {
                let opened_at = self.now - Duration::from_millis(opened_ms_ago);
                self.adopt(state, newer, opened_at, self.now + Duration::from_millis(open_for_ms));
            }
        }
        assert_eq!(self.breaker.generation().0, self.generation, "every change is one of the model's");
        assert!(self.probes_out() <= self.probes());
    }

    fn admit(&mut self, limit: Duration) {
        let allowed = match self.model {
            Model::Closed { .. } => true,
            Model::Open { until, .. } if self.now < until => false,
            Model::Open { opened_at, .. } => {
                self.change(Model::HalfOpen { opened_at, successes: 0 });
                true
            }
            Model::HalfOpen { .. } => self.makes_place(),
        };
        match self.breaker.admit(&self.settings, limit, self.now) {
            Admission::Allowed(permit) => {
                assert!(allowed, "{:?} admits nobody", self.model);
                assert_eq!(permit.is_probe(), self.model.phase() == BreakerPhase::HalfOpen);
                self.out.push(Out {
                    permit: Some(permit),
                    era: self.era,
                    times_out_at: self.now + limit,
                    lease_ends_at: self.now + limit.max(limits::PROBE_LEASE_MIN) + limits::PROBE_LEASE_MARGIN,
                    place: Place::Held,
                });
            }
            Admission::WaitUntil(at) => {
                assert!(!allowed, "{:?} admits somebody", self.model);
                assert!(at > self.now, "waiting for what is over");
            }
        }
    }

    /// Whether there is a place for one more probe, if need be that of one that is lost.
    fn makes_place(&mut self) -> bool {
        let (era, now) = (self.era, self.now);
        let held = |out: &&mut Out| out.era == era && out.place == Place::Held;
        if self.out.iter_mut().filter(held).count() < self.probes() {
            return true;
        }
        let lost = self.out.iter_mut().filter(held).find(|out| now >= out.lease_ends_at);
        lost.map(|lost| lost.place = Place::GivenToAnother).is_some()
    }

    fn settle(&mut self, which: usize, seen: Observation) {
        let Some(index) = self.pick(which) else { return };
        let Out { permit, era, place, .. } = self.out.remove(index);
        let permit = permit.expect("only those are picked");
        let before = self.breaker.clone();
        let is_failure = matches!(seen, Observation::Failure(_));
        self.breaker.settle(permit, seen, &self.settings, self.now);
        if era != self.era {
            assert_eq!(self.breaker, before, "a stale permit changes nothing");
        } else if place == Place::GivenToAnother && !is_failure {
            assert_eq!(self.breaker, before, "without a place only a failure counts");
        } else {
            self.observe(seen);
        }
    }

    fn observe(&mut self, seen: Observation) {
        match (&mut self.model, seen) {
            (Model::Closed { made, failed_at }, Observation::Success) => {
                *made += 1;
                if matches!(self.settings.trip(), Trip::Consecutive(_)) {
                    failed_at.clear();
                }
            }
            (Model::Closed { made, failed_at }, Observation::Failure(end)) => {
                if (self.settings.count(), end) == (CountingUnit::Call, CallEnd::WillRetry) {
                    return;
                }
                let is_forgotten =
                    |last: &Timestamp| self.settings.reset().is_some_and(|reset| self.now >= *last + reset);
                if failed_at.last().is_some_and(is_forgotten) {
                    failed_at.clear();
                }
                failed_at.push(self.now);
                *made += 1;
                if trips(self.settings.trip(), *made, failed_at, self.now) {
                    self.open();
                }
            }
            (Model::HalfOpen { successes, .. }, Observation::Success | Observation::Answered) => {
                *successes += 1;
                if *successes == self.settings.close_after().get() {
                    self.change(Model::CLOSED);
                }
            }
            (Model::HalfOpen { .. }, Observation::Failure(_)) => self.open(),
            (Model::Closed { .. }, Observation::Answered) | (_, Observation::Silent) => {}
            (Model::Open { .. }, _) => panic!("no permit is of an open breaker"),
        }
    }

    fn adopt(&mut self, state: BreakerPhase, newer: u64, opened_at: Timestamp, open_until: Timestamp) {
        let record = BreakerRecord {
            state,
            generation: Generation((self.generation + newer).saturating_sub(1)),
            opened_at: Some(opened_at),
            open_until: Some(open_until),
            ..self.breaker.record(&DependencyName::new("ntfy").expect("a name"), self.now)
        };
        let ours = (Generation(self.generation), self.model.phase());
        let opened_later = state == BreakerPhase::Open && Some(opened_at) > self.model.opened_at();
        let is_newer =
            (record.generation, state) > ours || ((record.generation, state) == ours && opened_later);
        let adopted = self.breaker.adopt(&record, &self.settings, self.now);
        let is_caught_up = is_newer && (ours.1, state) == (BreakerPhase::Closed, BreakerPhase::Closed);
        match adopted {
            Adoption::Kept => assert!(!is_newer, "{record:?} is newer than {ours:?}"),
            Adoption::CaughtUp => assert!(is_caught_up, "{record:?} is another state than {ours:?}"),
            Adoption::Taken(told) => {
                assert!(is_newer && !is_caught_up, "{record:?} tells nothing new to {ours:?}");
                assert_eq!((told.from, told.to), (ours.1, state));
            }
        }
        if is_newer {
            self.era += 1;
            self.generation = record.generation.0;
        }
        if is_newer && !is_caught_up {
            let until = open_until.min(self.now + self.settings.open());
            self.model = match state {
                BreakerPhase::Closed => Model::CLOSED,
                BreakerPhase::HalfOpen => Model::HalfOpen { opened_at, successes: 0 },
                BreakerPhase::Open => Model::Open { opened_at, until },
            };
        }
    }

    fn open(&mut self) {
        self.change(Model::Open { opened_at: self.now, until: self.now + self.settings.open() });
    }

    fn change(&mut self, model: Model) {
        self.model = model;
        self.era += 1;
        self.generation += 1;
    }

    /// One of the permits that can still be given back.
    fn pick(&self, which: usize) -> Option<usize> {
        let held: Vec<usize> =
            (0..self.out.len()).filter(|&index| self.out[index].permit.is_some()).collect();
        (!held.is_empty()).then(|| held[which % held.len()])
    }

    fn probes(&self) -> usize {
        self.settings.probes().get() as usize
    }

    fn probes_out(&self) -> usize {
        let is_half_open = matches!(self.model, Model::HalfOpen { .. });
        let is_out = |out: &&Out| out.era == self.era && self.now < out.lease_ends_at;
        if is_half_open { self.out.iter().filter(is_out).count() } else { 0 }
    }
}

/// Whether so many calls, with failures at those times, open a breaker when the last one fails now.
fn trips(trip: Trip, made: u32, failed_at: &[Timestamp], now: Timestamp) -> bool {
    let failed = |within| failed_at.iter().filter(|at| now.since(**at) <= within).count() as f64;
    match trip {
        Trip::Consecutive(count) => failed(Duration::MAX) >= f64::from(count.get()),
        Trip::Failures { count, within } => failed(within) >= f64::from(count.get()),
        // Its window is longer than any of these worlds lives, so all calls count.
        Trip::FailureRate { share, of_at_least, within } => {
            made >= of_at_least.get() && failed(within) >= share.get() * f64::from(made)
        }
    }
}

fn any_observation() -> impl Strategy<Value = Observation> {
    prop_oneof![
        3 => Just(Observation::Success),
        3 => Just(Observation::Failure(CallEnd::Final)),
        1 => Just(Observation::Failure(CallEnd::WillRetry)),
        1 => Just(Observation::Answered),
        1 => Just(Observation::Silent),
    ]
}

/// A little less, exactly as long as, and a little more than the shortest lease.
const LIMITS_MS: std::ops::Range<u64> = 28_000..34_000;

fn any_act() -> impl Strategy<Value = Act> {
    let adopt = (
        prop::sample::select(vec![BreakerPhase::Closed, BreakerPhase::HalfOpen, BreakerPhase::Open]),
        0_u64..4,
        0_u64..3_000,
        0_u64..3_000,
    );
    let passed_ms = prop_oneof![4 => 0_u64..1_500, 1 => LIMITS_MS, 1 => Just(31_000)];
    prop_oneof![
        8 => prop_oneof![Just(0), Just(30_000), LIMITS_MS].prop_map(|limit_ms| Act::Admit { limit_ms }),
        6 => (any::<usize>(), any_observation()).prop_map(|(which, seen)| Act::Settle { which, seen }),
        1 => any::<usize>().prop_map(|which| Act::TimeOut { which }),
        1 => any::<usize>().prop_map(|which| Act::Cancel { which }),
        1 => any::<usize>().prop_map(|which| Act::Lose { which }),
        5 => passed_ms.prop_map(|ms| Act::Pass { ms }),
        1 => prop_oneof![Just(Act::TripByHand), Just(Act::ResetByHand)],
        1 => adopt.prop_map(|(state, newer, opened_ms_ago, open_for_ms)| {
            Act::Adopt { state, newer, opened_ms_ago, open_for_ms }
        }),
    ]
}

fn any_settings() -> impl Strategy<Value = BreakerSettings> {
    let count = || (1_u32..4).prop_map(|count| NonZeroU32::new(count).expect("not 0"));
    let trip = prop_oneof![
        count().prop_map(Trip::Consecutive),
        (count(), 1_u64..3_000)
            .prop_map(|(count, ms)| Trip::Failures { count, within: Duration::from_millis(ms) }),
        // Shares that an f64 holds exactly.
        (prop::sample::select(vec![0.25, 0.5, 0.75, 1.0]), count()).prop_map(|(share, of_at_least)| {
            Trip::FailureRate {
                share: Share::new(share).expect("a share"),
                of_at_least,
                within: Duration::from_hours(24),
            }
        }),
    ];
    let reset = prop::option::of((1_u64..3_000).prop_map(Duration::from_millis));
    let counted = prop_oneof![Just(CountingUnit::Attempt), Just(CountingUnit::Call)];
    (trip, 1_u64..2_000, 1_u32..4, prop::option::of(1_u32..5), reset, counted).prop_map(
        |(trip, open_ms, probes, close_after, reset, count)| {
            let open = Duration::from_millis(open_ms);
            settings(RawBreaker { trip, open, probes, close_after, reset, count })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn it_does_what_the_model_does_and_never_wedges(
        settings in any_settings(),
        acts in prop::collection::vec(any_act(), 1..80),
    ) {
        let mut world = World::new(settings);
        for act in acts {
            world.step(act);
        }
        world.step(Act::Pass { ms: 60_000 });
        let admission = world.breaker.admit(&world.settings, LIMIT, world.now);
        prop_assert!(matches!(admission, Admission::Allowed(_)), "{:?}", world.model);
    }
}

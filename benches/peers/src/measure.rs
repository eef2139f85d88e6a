//! Runs subjects in turns and reports the median of each.

use std::time::{Duration, Instant};

use crate::allocations;

const ROUNDS: usize = 31;
/// How long one subject runs in one round: long against the clock's grain, short against a hiccup.
const TURN: Duration = Duration::from_millis(5);
const WARM_UP_CALLS: u64 = 20_000;
const ALLOCATION_CALLS: u64 = 1_000;

/// Something to measure.
pub struct Subject {
    name: &'static str,
    /// Makes that many calls; the loop is inside, so that calling through the box costs nothing.
    run: Box<dyn FnMut(u64)>,
}

/// What came out, per call.
pub struct Figures {
    pub name: &'static str,
    pub ns: f64,
    /// A quarter of the rounds took less than this.
    pub ns_low: f64,
    /// A quarter of the rounds took more than this.
    pub ns_high: f64,
    pub allocations: f64,
}

impl Subject {
    /// Measures `call`, which gets a number that differs from call to call.
    pub fn new(name: &'static str, mut call: impl FnMut(u64) + 'static) -> Self {
        let run = move |calls| (0..calls).for_each(&mut call);
        Self { name, run: Box::new(run) }
    }
}

/// Measures all of them in the same rounds; each round begins with another one.
pub fn run(mut subjects: Vec<Subject>) -> Vec<Figures> {
    let calls: Vec<u64> = subjects.iter_mut().map(calls_per_turn).collect();
    let mut rounds = vec![Vec::with_capacity(ROUNDS); subjects.len()];
    for round in 0..ROUNDS {
        for turn in 0..subjects.len() {
            let at = (round + turn) % subjects.len();
            let took = time(&mut subjects[at], calls[at]);
            rounds[at].push(took.as_nanos() as f64 / calls[at] as f64);
        }
    }
    subjects.iter_mut().zip(rounds).map(|(subject, rounds)| figures(subject, rounds)).collect()
}

/// The middle of what was measured, and the middle half of it; nothing was counted.
pub fn figures_of(name: &'static str, mut rounds: Vec<f64>) -> Figures {
    rounds.sort_by(f64::total_cmp);
    let at = |quarter: usize| rounds[(rounds.len() - 1) * quarter / 4];
    Figures { name, ns: at(2), ns_low: at(1), ns_high: at(3), allocations: f64::NAN }
}

/// Warms up and finds out how many calls fill a turn.
fn calls_per_turn(subject: &mut Subject) -> u64 {
    (subject.run)(WARM_UP_CALLS);
    let took = time(subject, WARM_UP_CALLS).as_secs_f64().max(f64::MIN_POSITIVE);
    let calls = WARM_UP_CALLS as f64 * TURN.as_secs_f64() / took;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small range")]
    let calls = calls.clamp(1_000.0, 1e8) as u64;
    calls
}

fn time(subject: &mut Subject, calls: u64) -> Duration {
    let started_at = Instant::now();
    (subject.run)(calls);
    started_at.elapsed()
}

fn figures(subject: &mut Subject, rounds: Vec<f64>) -> Figures {
    let allocations = allocations::during(|| (subject.run)(ALLOCATION_CALLS));
    let allocations = allocations as f64 / ALLOCATION_CALLS as f64;
    Figures { allocations, ..figures_of(subject.name, rounds) }
}

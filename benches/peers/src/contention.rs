//! Several threads that call through one guard: what they cost each other.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Instant;

use failsafe::CircuitBreaker;
use tower::{Service, service_fn};

use crate::call;
use crate::measure::{Figures, figures_of};
use crate::peers::{self, FAILURE_SHARE, FAILURES};
use crate::whole;

const ROUNDS: usize = 7;
const CALLS: u64 = 10_000;

/// What one thread does, so many times.
type Work = Box<dyn FnMut(u64) + Send>;

/// Makes the work of one thread; all of them share what is guarded by.
struct Shared {
    name: &'static str,
    work: Box<dyn Fn() -> Work>,
}

/// Wall time per call of all threads together.
pub fn run(threads: usize) -> Vec<Figures> {
    let subjects = subjects();
    let mut rounds = vec![Vec::with_capacity(ROUNDS); subjects.len()];
    for round in 0..ROUNDS {
        for turn in 0..subjects.len() {
            let at = (round + turn) % subjects.len();
            rounds[at].push(time(&subjects[at], threads));
        }
    }
    subjects.iter().zip(rounds).map(|(subject, rounds)| figures_of(subject.name, rounds)).collect()
}

fn time(subject: &Shared, threads: usize) -> f64 {
    let barrier = Arc::new(Barrier::new(threads + 1));
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let (mut work, barrier) = ((subject.work)(), Arc::clone(&barrier));
            thread::spawn(move || {
                barrier.wait();
                work(CALLS);
            })
        })
        .collect();
    // From before they may begin: whoever is not woken at once would else have begun unseen.
    let started_at = Instant::now();
    barrier.wait();
    for handle in handles {
        handle.join().expect("no call panics");
    }
    started_at.elapsed().as_nanos() as f64 / (CALLS as f64 * threads as f64)
}

fn subjects() -> Vec<Shared> {
    let (guard, by_share) = (whole::guard("target"), whole::guard("shares"));
    let tower = peers::tower_service(service_fn(peers::answer(call::succeed)), FAILURES as usize);
    let failsafe = peers::failsafe_breaker(FAILURES);
    let recloser = Arc::new(peers::recloser(FAILURE_SHARE));
    let ours = |guard: redrive::Guard| {
        move || {
            let guard = guard.clone();
            work(move |input| {
                let _ = black_box(whole::once(guard.call(|_| async move { call::succeed(input) })));
            })
        }
    };
    vec![
        Shared { name: whole::OURS, work: Box::new(ours(guard)) },
        Shared { name: "redrive guard, failure rate", work: Box::new(ours(by_share)) },
        Shared {
            name: "tower-resilience",
            work: Box::new(move || {
                let mut tower = tower.clone();
                work(move |input| {
                    let _ = black_box(spin(&mut tower, input));
                })
            }),
        },
        Shared {
            name: "failsafe (breaker only, no limits)",
            work: Box::new(move || {
                let failsafe = failsafe.clone();
                work(move |input| {
                    let _ = black_box(failsafe.call(|| call::succeed(input)));
                })
            }),
        },
        Shared {
            name: "recloser (breaker only, no limits)",
            work: Box::new(move || {
                let recloser = Arc::clone(&recloser);
                work(move |input| {
                    let _ = black_box(recloser.call(|| call::succeed(input)));
                })
            }),
        },
    ]
}

/// Polls until the answer is there: it waits for its own lock while another thread has it.
fn spin<S: Service<u64>>(service: &mut S, input: u64) -> Result<S::Response, S::Error> {
    let mut context = Context::from_waker(Waker::noop());
    while service.poll_ready(&mut context)?.is_pending() {
        thread::yield_now();
    }
    let mut answer = pin!(service.call(input));
    loop {
        if let Poll::Ready(answer) = answer.as_mut().poll(&mut context) {
            return answer;
        }
        thread::yield_now();
    }
}

fn work(mut call: impl FnMut(u64) + Send + 'static) -> Work {
    Box::new(move |calls| (0..calls).for_each(&mut call))
}

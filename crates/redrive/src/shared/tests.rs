//! Breakers that are shared: several books stand for several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive_core::policy::answer::{AnswerKind, TargetAnswer, TransportError};
use redrive_core::policy::breaker::{BreakerPhase, Generation};
use tokio::time::sleep;

use super::*;
use crate::guard::{Book, BreakerState, Classify, Guard};

const BOOK: &str = "version: 1\nbreakers: { two: { trip: { consecutive: 2 }, open: 10s } }\n\
                    dependencies: { d: { kind: webhook, retry: none, breaker: two } }\n";

#[derive(Debug)]
struct Down;

impl Classify for Down {
    fn answer(&self) -> TargetAnswer<'_> {
        TargetAnswer { what: AnswerKind::Transport(TransportError::Refused), message: "", retry_after: None }
    }
}

fn process(state: &Arc<impl SharedState + 'static>) -> Guard {
    let book = Book::parse(BOOK).expect("a sound book").shared(Arc::clone(state) as Arc<dyn SharedState>);
    book.guard("d").expect("the book has it")
}

async fn fail(guard: &Guard) {
    let _ = guard.call(|_| async { Err::<(), _>(Down) }).await;
}

async fn succeed(guard: &Guard) -> bool {
    guard.call(|_| async { Ok::<_, Down>(()) }).await.is_ok()
}

/// Time for what was told to arrive.
async fn a_moment() {
    sleep(Duration::from_millis(1_500)).await;
}

async fn stored(state: &impl SharedState) -> Option<(BreakerPhase, u64)> {
    let name = DependencyName::new("d").expect("a name");
    state.load(&name).await.expect("it is there").map(|record| (record.state, record.generation.0))
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::holds(&MemorySharedState::new()).await;
}

#[tokio::test(start_paused = true)]
async fn what_one_has_learnt_the_others_know() {
    let state = Arc::new(MemorySharedState::new());
    let [one, two, three] = [(), (), ()].map(|()| process(&state));
    fail(&one).await;
    a_moment().await;
    assert_eq!(stored(&*state).await, None, "only changes are told");
    fail(&two).await;
    a_moment().await;
    assert_eq!(stored(&*state).await, None, "failures are counted by each alone");
    fail(&one).await;
    a_moment().await;
    assert_eq!(stored(&*state).await, Some((BreakerPhase::Open, 1)));
    for guard in [&one, &two, &three] {
        assert!(matches!(guard.breaker(), BreakerState::Open { .. }));
        assert!(!succeed(guard).await);
    }
    sleep(Duration::from_secs(10)).await;
    assert!(succeed(&two).await, "its probe");
    a_moment().await;
    assert_eq!(stored(&*state).await, Some((BreakerPhase::Closed, 3)));
    for guard in [&one, &two, &three] {
        assert_eq!(guard.breaker(), BreakerState::Closed { failures: 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_is_about_to_probe_hears_the_others_first() {
    let state = Arc::new(MemorySharedState::new());
    let one = process(&state);
    fail(&one).await;
    fail(&one).await;
    a_moment().await;
    // Another process has found out that it is too early, just now.
    let name = DependencyName::new("d").expect("a name");
    let known = state.load(&name).await.expect("it is there").expect("it was told");
    sleep(Duration::from_millis(8_600)).await;
    let until = known.open_until.expect("it is open") + Duration::from_secs(5);
    let opened_at = known.opened_at.map(|at| at + Duration::from_secs(5));
    let later =
        BreakerRecord { open_until: Some(until), opened_at, generation: Generation(3), ..known.clone() };
    let swapped = state.swap(Some(&known), &later).await.expect("it is there");
    assert_eq!(swapped, Swap::Written);
    assert!(!succeed(&one).await, "it does not probe");
    sleep(Duration::from_secs(5)).await;
    assert!(succeed(&one).await);
}

/// A shared state that may be away.
#[derive(Default)]
struct Fickle {
    memory: MemorySharedState,
    is_away: AtomicBool,
}

impl Fickle {
    fn check(&self) -> Result<(), Away> {
        if self.is_away.load(Ordering::SeqCst) { Err(Away::because("unplugged")) } else { Ok(()) }
    }
}

impl SharedState for Fickle {
    fn load<'a>(
        &'a self,
        dependency: &'a DependencyName,
    ) -> BoxFuture<'a, Result<Option<BreakerRecord>, Away>> {
        Box::pin(async move { self.check().and(self.memory.load(dependency).await) })
    }

    fn swap<'a>(
        &'a self,
        expected: Option<&'a BreakerRecord>,
        record: &'a BreakerRecord,
    ) -> BoxFuture<'a, Result<Swap, Away>> {
        Box::pin(async move {
            self.check()?;
            self.memory.swap(expected, record).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_shared_state_is_away_each_decides_by_itself() {
    let state = Arc::new(Fickle::default());
    let [one, two] = [(), ()].map(|()| process(&state));
    state.is_away.store(true, Ordering::SeqCst);
    fail(&one).await;
    fail(&one).await;
    a_moment().await;
    assert!(!succeed(&one).await, "its own breaker is open");
    assert!(succeed(&two).await, "it knows nothing, and lets calls through");
    state.is_away.store(false, Ordering::SeqCst);
    a_moment().await;
    assert!(!succeed(&two).await, "now it knows");
    state.is_away.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    assert!(succeed(&two).await, "its probe");
    assert_eq!(two.breaker(), BreakerState::Closed { failures: 0 });
    state.is_away.store(false, Ordering::SeqCst);
    a_moment().await;
    assert_eq!(one.breaker(), BreakerState::Closed { failures: 0 }, "what happened meanwhile is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_who_trip_at_once_one_generation_wins() {
    let state = Arc::new(MemorySharedState::new());
    let guards: Vec<Guard> = (0..16).map(|_| process(&state)).collect();
    let callers: Vec<_> = guards
        .iter()
        .cloned()
        .map(|guard| {
            tokio::spawn(async move {
                fail(&guard).await;
                fail(&guard).await;
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let name = DependencyName::new("d").expect("a name");
    let mut looks = 0;
    loop {
        let known = state.load(&name).await.expect("it is there");
        let until = known.as_ref().and_then(|record| record.open_until);
        let agree = guards.iter().all(|guard| match (guard.breaker(), until) {
            // Nobody stays open for longer than its own settings would, counted from when it heard.
            (BreakerState::Open { until: own }, Some(until)) => own <= until,
            (BreakerState::Open { .. } | BreakerState::Closed { .. } | BreakerState::HalfOpen { .. }, _) => {
                false
            }
        });
        if agree && known.is_some_and(|record| record.generation == Generation(1)) {
            break;
        }
        looks += 1;
        assert!(looks < 600, "all hear of it within the interval");
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_guard_of_a_shared_book_is_made_wherever_it_is_needed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let state = Arc::new(MemorySharedState::new());
    let shared = Arc::clone(&state) as Arc<dyn SharedState>;
    let book = runtime.block_on(async { Book::parse(BOOK).expect("a sound book").shared(shared) });
    let guard = book.guard("d").expect("the book has it");
    runtime.block_on(async {
        fail(&guard).await;
        fail(&guard).await;
        a_moment().await;
        assert_eq!(stored(&*state).await, Some((BreakerPhase::Open, 1)));
    });
}

/// A shared state that never answers.
struct Silent;

impl SharedState for Silent {
    fn load<'a>(&'a self, _: &'a DependencyName) -> BoxFuture<'a, Result<Option<BreakerRecord>, Away>> {
        Box::pin(std::future::pending())
    }

    fn swap<'a>(
        &'a self,
        _: Option<&'a BreakerRecord>,
        _: &'a BreakerRecord,
    ) -> BoxFuture<'a, Result<Swap, Away>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_about_to_probe_has_time_left_for_it() {
    let one = process(&Arc::new(Silent)).deadline(Duration::from_millis(100));
    fail(&one).await;
    fail(&one).await;
    sleep(Duration::from_secs(10)).await;
    let begun = tokio::time::Instant::now();
    assert!(succeed(&one).await, "its probe");
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_row_without_a_breaker_keeps_nobody_from_sharing() {
    let text = format!(
        "{BOOK}services:\n  s:\n    target: {{ http: \"http://127.0.0.1:9\" }}\n    depends_on: d\n    \
         events: [{{ type: a.b, breaker: none }}]\n"
    );
    let state = Arc::new(MemorySharedState::new());
    let book = Book::parse(&text).expect("a sound book").shared(Arc::clone(&state) as Arc<dyn SharedState>);
    let (with, _without) = (book.guard("d"), book.guard_for("s", None, "a.b"));
    let with = with.expect("the book has it");
    fail(&with).await;
    fail(&with).await;
    a_moment().await;
    assert_eq!(stored(&*state).await, Some((BreakerPhase::Open, 1)));
}

//! Once over a store in memory, in virtual time; and in real time under many threads.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::advance;

use super::contract::{Hands, keeps_the_contract};
use super::*;
use crate::BoxFuture;

const TTL: Duration = Duration::from_hours(1);

type Result7 = Result<OnceOutcome<u32>, OnceError<u32, io::Error>>;

/// Work that counts how often it is done.
#[derive(Clone, Default)]
struct Work(Arc<AtomicU32>);

impl Work {
    fn done(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    async fn run(self) -> Result<u32, io::Error> {
        tokio::task::yield_now().await;
        Ok(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    async fn fail(self) -> Result<u32, io::Error> {
        self.run().await?;
        Err(io::Error::other("no luck"))
    }
}

/// Lets others run until they wait, without a moment passing.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let hands = Hands::default();
    let room = MemoryCapacity { keys_max: 10, when_full: WhenMemoryFull::Refuse };
    keeps_the_contract(&MemoryDedupStore::with_clock(room, hands.clock()), &hands).await;
}

#[tokio::test]
async fn tokens_after_a_restart_are_higher_than_those_before() {
    let before = FencingToken(crate::clock::wall_clock().as_nanos() / 1_000);
    let key = OnceKey::new("a").expect("a key");
    match MemoryDedupStore::default().begin(&key, TTL).await {
        Ok(KeyState::Yours(token)) => assert!(token > before, "{token:?} after {before:?}"),
        other => panic!("it is free: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_does_the_work_and_all_others_get_its_result() {
    let (once, work) = (Once::new(MemoryDedupStore::default()), Work::default());
    let call = async |key: &str| {
        let work = work.clone();
        once.call(key, TTL, || work.run()).await.expect("it goes well")
    };
    assert_eq!(call("a").await, OnceOutcome::First(1));
    assert_eq!(call("a").await, OnceOutcome::Replayed(1));
    assert_eq!(call("b").await, OnceOutcome::First(2), "another key is other work");
    advance(TTL).await;
    assert_eq!(call("a").await, OnceOutcome::First(3), "its time was over");
    once.forget("a").await.expect("it is there");
    assert_eq!(call("a").await, OnceOutcome::First(4), "it was forgotten");
}

#[tokio::test(start_paused = true)]
async fn failed_dropped_and_panicking_work_leaves_no_mark() {
    let (once, work) = (Once::new(MemoryDedupStore::default()).meanwhile(Meanwhile::Tell), Work::default());
    let failed = once.call("a", TTL, || work.clone().fail()).await;
    assert!(matches!(failed, Err(OnceError::Failed(error)) if error.to_string() == "no luck"));

    let (kept, never) = oneshot::channel::<()>();
    let dropped = tokio::spawn({
        let once = once.clone();
        async move {
            let endless = || async { never.await.map(|()| 0).map_err(io::Error::other) };
            once.call("a", TTL, endless).await.is_ok()
        }
    });
    settle().await;
    let told = once.call("a", TTL, || work.clone().run()).await;
    assert!(matches!(told, Err(OnceError::InProgress { .. })), "it is in progress: {told:?}");
    dropped.abort();
    dropped.await.expect_err("it was dropped");
    drop(kept);

    let panicking = tokio::spawn({
        let once = once.clone();
        async move {
            let work = || async { panic!("a bug of whoever works") };
            let done: Result7 = once.call("a", TTL, work).await;
            done.is_ok()
        }
    });
    panicking.await.expect_err("it panicked");
    let done = once.call("a", TTL, || work.clone().run()).await.expect("the mark is gone");
    assert_eq!(done, OnceOutcome::First(2));
}

#[tokio::test(start_paused = true)]
async fn who_comes_meanwhile_waits_or_is_told() {
    let once = Once::new(MemoryDedupStore::default()).lease(Duration::from_secs(9));
    let (go, gone) = oneshot::channel::<u32>();
    let first = tokio::spawn({
        let once = once.clone();
        async move { once.call("a", TTL, || async { gone.await.map_err(io::Error::other) }).await }
    });
    settle().await;
    let work = Work::default();
    let told = once.clone().meanwhile(Meanwhile::Tell).call("a", TTL, || work.clone().run()).await;
    assert_eq!(told.expect_err("in progress").retry_after(), Some(Duration::from_secs(9)));
    let began = Instant::now();
    let limit = Duration::from_secs(40);
    let short = once.clone().meanwhile(Meanwhile::Wait { at_most: limit });
    let told = short.call("a", TTL, || work.clone().run()).await;
    assert!(matches!(told, Err(OnceError::InProgress { .. })), "the lease was renewed all the while");
    assert_eq!(began.elapsed(), limit);

    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let (once, work) = (once.clone(), work.clone());
        waiting.spawn(async move { once.call("a", TTL, || work.run()).await.expect("the first does it") });
    }
    settle().await;
    let began = Instant::now();
    go.send(7).expect("it waits for that");
    assert!(waiting.join_all().await.iter().all(|outcome| *outcome == OnceOutcome::Replayed(7)));
    assert_eq!(began.elapsed(), Duration::ZERO, "they are woken");
    assert_eq!(first.await.expect("it ends").expect("it goes well"), OnceOutcome::First(7));
    assert_eq!(work.done(), 0);
}

#[tokio::test(start_paused = true)]
async fn if_the_first_fails_one_of_those_who_wait_does_the_work() {
    let (once, work) = (Once::new(MemoryDedupStore::default()), Work::default());
    let (go, gone) = oneshot::channel::<()>();
    let first = tokio::spawn({
        let once = once.clone();
        async move {
            let work = || async { gone.await.map(|()| 0).map_err(io::Error::other) };
            once.call("a", TTL, work).await.is_err()
        }
    });
    settle().await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let (once, work) = (once.clone(), work.clone());
        waiting.spawn(async move { once.call("a", TTL, || work.run()).await.expect("one does it") });
    }
    settle().await;
    drop(go);
    assert!(first.await.expect("it ends"), "it failed");
    let outcomes = waiting.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_first()).count(), 1);
    assert!(outcomes.into_iter().all(|outcome| outcome.into_value() == 1));
    assert_eq!(work.done(), 1);
}

/// A store that another holder can be let in to, and that can be cut off.
#[derive(Clone, Default)]
struct Frail {
    memory: MemoryDedupStore,
    is_away: Arc<Mutex<bool>>,
}

impl Frail {
    fn set_away(&self, is_away: Away) {
        *self.is_away.lock().expect("nobody panics") = is_away == Away::Yes;
    }

    fn reached(&self) -> Result<&MemoryDedupStore, DedupStoreError> {
        let is_away = *self.is_away.lock().expect("nobody panics");
        if is_away { Err(DedupStoreError::Away { reason: "cut off".to_owned() }) } else { Ok(&self.memory) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Away {
    Yes,
    No,
}

impl DedupStore for Frail {
    fn begin<'a>(
        &'a self,
        key: &'a OnceKey,
        lease: Duration,
    ) -> BoxFuture<'a, Result<KeyState, DedupStoreError>> {
        Box::pin(async move { self.reached()?.begin(key, lease).await })
    }

    fn renew<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        lease: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        Box::pin(async move { self.reached()?.renew(key, token, lease).await })
    }

    fn finish<'a>(
        &'a self,
        key: &'a OnceKey,
        token: FencingToken,
        result: &'a [u8],
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Ownership, DedupStoreError>> {
        Box::pin(async move { self.reached()?.finish(key, token, result, ttl).await })
    }

    fn release(&self, key: &OnceKey, token: FencingToken) {
        if let Ok(memory) = self.reached() {
            memory.release(key, token);
        }
    }

    fn forget<'a>(&'a self, key: &'a OnceKey) -> BoxFuture<'a, Result<(), DedupStoreError>> {
        Box::pin(async move { self.reached()?.forget(key).await })
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_is_overtaken_and_its_result_goes_nowhere() {
    let (store, work) = (Frail::default(), Work::default());
    let cut_off = Once::new(store.clone()).lease(Duration::from_secs(9));
    let other = Once::new(store.memory.clone());
    let (go, gone) = oneshot::channel::<u32>();
    let first = tokio::spawn({
        let once = cut_off.clone();
        async move { once.call("a", TTL, || async { gone.await.map_err(io::Error::other) }).await }
    });
    settle().await;
    store.set_away(Away::Yes);
    assert_eq!(other.call("a", TTL, || work.clone().run()).await.expect("in time"), OnceOutcome::First(1));
    go.send(7).expect("it still works");
    match first.await.expect("it ends") {
        Err(OnceError::Unrecorded { value: 7, why: Unrecorded::Store(DedupStoreError::Away { .. }) }) => {}
        other => panic!("it could not be written down: {other:?}"),
    }
    let refused = cut_off.call("b", TTL, || work.clone().run()).await;
    assert!(matches!(refused, Err(OnceError::Store(_))), "nobody knows, so nothing is done: {refused:?}");
    store.set_away(Away::No);
    let replayed = cut_off.call("a", TTL, || work.clone().run()).await.expect("it is back");
    assert_eq!((replayed, work.done()), (OnceOutcome::Replayed(1), 1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_hears_that_it_was_overtaken_stops() {
    let (store, work) = (Frail::default(), Work::default());
    let once = Once::new(store.clone()).lease(Duration::from_secs(9));
    let (stopped, stop) = oneshot::channel::<()>();
    let first: tokio::task::JoinHandle<Result7> = tokio::spawn({
        let once = once.clone();
        async move {
            let endless = || async move {
                let _told_when_dropped = stopped;
                std::future::pending().await
            };
            once.call("a", TTL, endless).await
        }
    });
    settle().await;
    store.set_away(Away::Yes);
    let other = Once::new(store.memory.clone());
    other.call("a", TTL, || work.clone().run()).await.expect("the lease has ended");
    store.set_away(Away::No);
    assert!(matches!(first.await.expect("it ends"), Err(OnceError::Overtaken)));
    stop.await.expect_err("the work was dropped");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_kept_is_given_to_who_did_it_and_may_be_done_again() {
    let once = Once::new(MemoryDedupStore::default());
    let large = "x".repeat(RESULT_BYTES_MAX);
    for _ in 0..2 {
        let done = once.call("a", TTL, || async { Ok::<_, io::Error>(large.clone()) }).await;
        match done.expect_err("it is too large") {
            OnceError::Unrecorded { value, why: Unrecorded::TooLarge { bytes } } => {
                assert_eq!((value.len(), bytes), (RESULT_BYTES_MAX, RESULT_BYTES_MAX + 2));
            }
            other => panic!("it is too large: {other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_an_error_and_no_reason_to_work() {
    let (once, work) = (Once::new(MemoryDedupStore::default()), Work::default());
    once.call("a", TTL, || async { Ok::<_, io::Error>("text".to_owned()) }).await.expect("it is kept");
    let other = once.call("a", TTL, || work.clone().run()).await;
    assert!(matches!(other, Err(OnceError::Unreadable(_))), "{other:?}");
    assert_eq!(work.done(), 0);
    #[rustfmt::skip]
    let cases = [
        (String::new(),      "key is empty"),
        ("k".repeat(1_001),  "key has 1001 bytes, the limit is 1000"),
    ];
    for (key, expected) in cases {
        let refused = once.call(&key, TTL, || work.clone().run()).await.expect_err("it is no key");
        assert_eq!(refused.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_never_drops_what_is_in_progress() {
    let done = async |once: &Once, key: &str, ttl| {
        once.call(key, ttl, || async { Ok::<_, io::Error>(()) }).await.map(|outcome| outcome.is_first())
    };
    let refusing = MemoryDedupStore::new(MemoryCapacity { keys_max: 2, when_full: WhenMemoryFull::Refuse });
    let once = Once::new(refusing.clone());
    for key in ["a", "b"] {
        assert!(done(&once, key, TTL).await.expect("there is room"));
    }
    let full = done(&once, "c", TTL).await.expect_err("there is no room");
    assert_eq!(full.to_string(), "dedup store full: it holds 2 keys");
    assert!(!done(&once, "a", TTL).await.expect("it is known"), "what was done is replayed all the same");
    advance(TTL).await;
    assert!(done(&once, "c", TTL).await.expect("the others have expired"));
    assert_eq!(refusing.len(), 1);

    let forgetting =
        MemoryDedupStore::new(MemoryCapacity { keys_max: 2, when_full: WhenMemoryFull::ForgetOldest });
    let once = Once::new(forgetting.clone());
    let held = OnceKey::new("held").expect("a key");
    forgetting.begin(&held, TTL * 9).await.expect("there is room");
    assert!(done(&once, "a", TTL).await.expect("there is room"));
    assert!(done(&once, "b", TTL).await.expect("`a` is forgotten for it"));
    assert!(!done(&once, "b", TTL).await.expect("it is known"));
    assert!(done(&once, "a", TTL).await.expect("`b` is forgotten for it"));
    let begun = forgetting.begin(&held, TTL).await;
    assert!(matches!(begun, Ok(KeyState::InProgress { .. })), "{begun:?}");
    assert_eq!(forgetting.len(), 2);
}

/// Many threads want the same few keys: each work is done once, and some of it fails first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_do_each_work_once() {
    const KEYS: usize = 40;
    let once = Once::new(MemoryDedupStore::default());
    let succeeded: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let (under_way, firsts) = (Arc::clone(&succeeded), Arc::new(AtomicU32::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let mut callers = JoinSet::new();
    for caller in 0..16_usize {
        let (once, gate) = (once.clone(), Arc::clone(&gate));
        let (succeeded, firsts) = (Arc::clone(&under_way), Arc::clone(&firsts));
        callers.spawn(async move {
            drop(gate.acquire().await);
            for round in 0..KEYS {
                let key = (round * (caller % 3 * 2 + 1) + caller) % KEYS;
                let work = || async {
                    tokio::task::yield_now().await;
                    if caller % 4 == 0 {
                        return Err(io::Error::other("no luck"));
                    }
                    Ok(succeeded[key].fetch_add(1, Ordering::SeqCst))
                };
                match once.call(&format!("key {key}"), TTL, work).await {
                    Ok(outcome) => {
                        firsts.fetch_add(u32::from(outcome.is_first()), Ordering::SeqCst);
                        assert_eq!(outcome.into_value(), 0, "all get what came of the one time");
                    }
                    Err(error) => assert!(matches!(error, OnceError::Failed(_)), "{error}"),
                }
            }
        });
    }
    gate.add_permits(1);
    callers.join_all().await;
    assert!(succeeded.iter().all(|times| times.load(Ordering::SeqCst) == 1));
    assert_eq!(usize::try_from(firsts.load(Ordering::SeqCst)), Ok(KEYS));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_as_long_as_it_takes_gets_the_result() {
    let for_ever = Meanwhile::Wait { at_most: Duration::MAX };
    let once = Once::new(MemoryDedupStore::default()).meanwhile(for_ever).lease(Duration::MAX);
    let slow = async {
        sleep(Duration::from_hours(24)).await;
        Ok::<_, io::Error>(7)
    };
    let first = once.call("a", Duration::MAX, || slow);
    let second = once.call("a", Duration::MAX, || async { Ok::<_, io::Error>(8) });
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.expect("it goes well"), OnceOutcome::First(7));
    assert_eq!(second.expect("it goes well"), OnceOutcome::Replayed(7));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_moment_is_told_the_result_after_it() {
    let (store, work) = (Frail::default(), Work::default());
    let once = Once::new(store.clone());
    let first = tokio::spawn({
        let (once, store, work) = (once.clone(), store.clone(), work.clone());
        async move {
            let done = || async move {
                store.set_away(Away::Yes);
                work.run().await
            };
            once.call("a", TTL, done).await
        }
    });
    settle().await;
    store.set_away(Away::No);
    assert_eq!(first.await.expect("it ends").expect("it is kept"), OnceOutcome::First(1));
    let again = once.call("a", TTL, || work.clone().run()).await.expect("it is there");
    assert_eq!((again, work.done()), (OnceOutcome::Replayed(1), 1));
}

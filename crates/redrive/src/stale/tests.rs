//! The cache in virtual time, before a provider that does as it is told.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::Semaphore;
use tokio::time::{advance, sleep};

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

const LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_mins(5),
    kept: Duration::from_mins(30),
    failure: Duration::from_secs(5),
};

/// Counts how often it is asked, and answers with that number.
#[derive(Default)]
struct Provider {
    look_up: AtomicU32,
    is_down: AtomicBool,
    takes: Mutex<Duration>,
}

impl Provider {
    fn look_up(&self) -> u32 {
        self.look_up.load(Ordering::SeqCst)
    }

    fn set_down(&self, is_down: Down) {
        self.is_down.store(is_down == Down::Yes, Ordering::SeqCst);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    Yes,
    No,
}

fn cache_of(provider: &Arc<Provider>) -> StaleCache<u32, String> {
    let provider = Arc::clone(provider);
    let plan = StalePlan { lifetimes: LIFETIMES, limit: LIMIT, clock: timer_clock() };
    StaleCache::new(plan, move || {
        let provider = Arc::clone(&provider);
        async move {
            let number = provider.look_up.fetch_add(1, Ordering::SeqCst) + 1;
            let takes = *provider.takes.lock().expect("nobody panics");
            sleep(takes).await;
            if provider.is_down.load(Ordering::SeqCst) { Err(format!("down {number}")) } else { Ok(number) }
        }
    })
}

/// What came, in one line: the number and how old it is, or why nothing.
fn served(result: Result<Cached<u32, String>, Missing<String>>) -> String {
    match result {
        Ok(Cached { value, age, failure: None, .. }) => format!("{value} of {}", show_duration(age)),
        Ok(Cached { value, age, failure: Some(why), .. }) => {
            format!("{value} of {}, {why}", show_duration(age))
        }
        Err(Missing { failure, age: None }) => format!("nothing, {failure}"),
        Err(Missing { failure, age: Some(age) }) => {
            format!("nothing for {}, {failure}", show_duration(age))
        }
    }
}

/// Lets what runs in the background end, without a moment passing.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_bridged_as_long_as_it_may_be_and_healing_shows_at_once() {
    let provider = Arc::new(Provider::default());
    let cache = cache_of(&provider);
    #[rustfmt::skip]
    let steps = [
        ("the first waits",                         0,     Down::No,  "1 of 0s",                    1),
        ("fresh",                                   299,   Down::Yes, "1 of 299s",                 1),
        ("past its time: fetched meanwhile",        1,     Down::Yes, "1 of 5m",                    2),
        ("which failed: not tried again yet",       4,     Down::Yes, "1 of 304s, down 2",          2),
        ("now it is, and the old one serves",       1,     Down::Yes, "1 of 305s, down 2",          3),
        ("so to the last",                          1_494, Down::Yes, "1 of 29m59s, down 3",        4),
        ("and not longer",                          1,     Down::Yes, "nothing for 30m, down 4",    4),
        ("who has nothing waits for the next try",  4,     Down::Yes, "nothing for 30m4s, down 5",  5),
        ("it is well again",                        5,     Down::No,  "6 of 0s",                    6),
    ];
    for (name, seconds, is_down, expected, look_up) in steps {
        provider.set_down(is_down);
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(served(cache.get().await), expected, "{name}");
        settle().await;
        assert_eq!(provider.look_up(), look_up, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_failure_is_remembered_for_a_while() {
    let provider = Arc::new(Provider::default());
    provider.set_down(Down::Yes);
    let cache = cache_of(&provider);
    for (seconds, expected) in [(0, "nothing, down 1"), (4, "nothing, down 1"), (1, "nothing, down 2")] {
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(served(cache.get().await), expected);
    }
    assert!(cache.known().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_who_ask_at_once_make_one_fetch_whoever_leaves() {
    let provider = Arc::new(Provider::default());
    *provider.takes.lock().expect("nobody panics") = Duration::from_secs(2);
    let cache = cache_of(&provider);
    let leaver = {
        let cache = cache.clone();
        tokio::spawn(async move { served(cache.get().await) })
    };
    settle().await;
    assert_eq!(provider.look_up(), 1, "the fetch of who leaves");
    leaver.abort();
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let cache = cache.clone();
        askers.spawn(async move { served(cache.get().await) });
    }
    assert!(askers.join_all().await.iter().all(|served| served == "1 of 0s"));
    assert_eq!(provider.look_up(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_has_something_old_never_waits() {
    let provider = Arc::new(Provider::default());
    let cache = cache_of(&provider);
    cache.get().await.expect("it is there");
    *provider.takes.lock().expect("nobody panics") = Duration::from_secs(9);
    advance(Duration::from_mins(6)).await;
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(served(cache.get().await), "1 of 6m");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    settle().await;
    assert_eq!(provider.look_up(), 2, "one fetch for all three");
    advance(Duration::from_secs(9)).await;
    settle().await;
    assert_eq!(served(cache.get().await), "2 of 0s");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_within_its_limit() {
    let provider = Arc::new(Provider::default());
    *provider.takes.lock().expect("nobody panics") = Duration::from_hours(1);
    let cache = cache_of(&provider);
    let began = Instant::now();
    assert_eq!(served(cache.get().await), "nothing, no result within 10s");
    assert_eq!(began.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_panics_has_failed() {
    let plan = StalePlan { lifetimes: LIFETIMES, limit: LIMIT, clock: timer_clock() };
    let look_up = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&look_up);
    let cache: StaleCache<u32, String> = StaleCache::new(plan, move || {
        count.fetch_add(1, Ordering::SeqCst);
        async { panic!("a bug of whoever fetches") }
    });
    for _ in 0..3 {
        assert_eq!(served(cache.get().await), "nothing, fetch was interrupted");
    }
    assert_eq!(look_up.load(Ordering::SeqCst), 1, "it is remembered like any failure");
}

#[tokio::test(start_paused = true)]
async fn renewing_fetches_what_is_still_fresh_and_not_twice_in_a_row() {
    let provider = Arc::new(Provider::default());
    let cache = cache_of(&provider);
    let often = Duration::from_secs(10);
    #[rustfmt::skip]
    let steps = [
        ("nothing is there yet",           0,  Down::No,  "1 of 0s"),
        ("that was a moment ago",          9,  Down::No,  "1 of 9s"),
        ("fetched anew",                   1,  Down::No,  "2 of 0s"),
        ("a failure leaves what is there", 10, Down::Yes, "2 of 10s, down 3"),
        ("and counts as a try",            9,  Down::No,  "2 of 19s, down 3"),
        ("well again",                     1,  Down::No,  "4 of 0s"),
    ];
    for (name, seconds, is_down, expected) in steps {
        provider.set_down(is_down);
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(served(cache.renewed(often).await), expected, "{name}");
    }
    assert_eq!(served(cache.renewed(Duration::ZERO).await), "5 of 0s", "whoever insists");
}

#[tokio::test(start_paused = true)]
async fn lifetimes_can_change_and_nothing_lives_so_short_that_nobody_gets_it() {
    let provider = Arc::new(Provider::default());
    let cache = cache_of(&provider);
    cache.get().await.expect("it is there");
    advance(Duration::from_mins(1)).await;
    let zero = Duration::ZERO;
    cache.change(Lifetimes { fresh: zero, kept: zero, failure: zero });
    assert!(cache.known().is_none());
    assert_eq!(served(cache.get().await), "2 of 0s", "whoever waited for it has it");
    cache.change(LIFETIMES);
    assert_eq!(served(cache.get().await), "2 of 0s");
}

/// Many threads, real time: whoever asks while a fetch is under way waits for that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_fetches_are_under_way_at_once() {
    let (under_way, doubles): (Arc<AtomicU32>, Arc<AtomicU32>) = Default::default();
    let gate = Arc::new(Semaphore::new(0));
    let zero = Duration::ZERO;
    let plan = StalePlan {
        lifetimes: Lifetimes { fresh: zero, kept: zero, failure: zero },
        limit: LIMIT,
        clock: timer_clock(),
    };
    let (count, found, wait) = (Arc::clone(&under_way), Arc::clone(&doubles), Arc::clone(&gate));
    let cache: StaleCache<(), String> = StaleCache::new(plan, move || {
        let (count, found, wait) = (Arc::clone(&count), Arc::clone(&found), Arc::clone(&wait));
        async move {
            if count.fetch_add(1, Ordering::SeqCst) > 0 {
                found.fetch_add(1, Ordering::SeqCst);
            }
            drop(wait.acquire().await);
            tokio::task::yield_now().await;
            count.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let cache = cache.clone();
        askers.spawn(async move {
            for _ in 0..200 {
                // One that fell between two fetches finds nothing, for nothing lives here.
                let _ = cache.get().await;
            }
        });
    }
    gate.add_permits(1);
    askers.join_all().await;
    assert_eq!(doubles.load(Ordering::SeqCst), 0, "another was under way");
    let _ = cache.get().await.expect("the last fetch went well");
}

/// A runtime that has ended drops what is spawned on it at once, in the middle of asking; without a runtime there
/// is nothing to fetch with. Neither hangs, and the cache serves on.
#[test]
fn who_asks_outside_of_a_runtime_that_runs_hears_so() {
    let ended = runtime().handle().clone();
    let cache = cache_of(&Arc::new(Provider::default()));
    let (telling, told_there) = std::sync::mpsc::channel();
    let there = cache.clone();
    std::thread::spawn(move || {
        let within = ended.enter();
        let after_its_end = poll_once(there.get()).map(served);
        drop(within);
        let without = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll_once(there.renewed(Duration::ZERO))
        }));
        // Who has given up waiting hears nothing.
        let _ = telling.send((after_its_end, without.is_err()));
    });
    let (after_its_end, panics_without) =
        told_there.recv_timeout(Duration::from_secs(60)).expect("nobody hangs");
    assert_eq!(after_its_end, Some("nothing, fetch was interrupted".to_owned()));
    assert!(panics_without, "as every use of the timers does");
    let later = runtime().block_on(cache.renewed(Duration::ZERO));
    assert_eq!(later.map(|found| *found.value).ok(), Some(1));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

/// What has come by the first poll.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

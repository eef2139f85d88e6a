//! The cache in virtual time before a provider that does as it is told, and in real time under many threads.

use std::sync::atomic::{AtomicU32, Ordering};

use redrive_core::text::show_duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{advance, sleep};

use super::*;
use crate::stale::{Validity, timer_clock};

const LIFETIMES: Lifetimes = Lifetimes {
    fresh: Duration::from_mins(5),
    kept: Duration::from_mins(30),
    failure: Duration::from_secs(5),
};
const NOTHING: Duration = Duration::from_mins(1);

fn plan(keys_max: usize) -> CachePlan {
    CachePlan { lifetimes: LIFETIMES, limit: Duration::from_secs(10), keys_max, clock: timer_clock() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Down,
    Empty,
}

/// Answers with how often it was asked for that key.
struct Provider {
    mood: Mutex<Mood>,
    look_up: Mutex<BTreeMap<&'static str, u32>>,
    takes: Duration,
}

impl Provider {
    fn taking(takes: Duration) -> Arc<Self> {
        Arc::new(Self { mood: Mutex::new(Mood::Well), look_up: Mutex::default(), takes })
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().expect("nobody panics") = mood;
    }

    fn look_up(&self, key: &'static str) -> u32 {
        self.look_up.lock().expect("nobody panics").get(key).copied().unwrap_or(0)
    }

    async fn answer(&self, key: &'static str) -> Result<Option<u32>, String> {
        let number = {
            let mut look_up = self.look_up.lock().expect("nobody panics");
            let number = look_up.entry(key).or_default();
            *number += 1;
            *number
        };
        sleep(self.takes).await;
        match *self.mood.lock().expect("nobody panics") {
            Mood::Well => Ok(Some(number)),
            Mood::Down => Err(format!("down {number}")),
            Mood::Empty => Ok(None),
        }
    }
}

fn cache_of(provider: &Arc<Provider>, keys_max: usize) -> Cache<&'static str, u32, String> {
    let provider = Arc::clone(provider);
    Cache::looking_up(plan(keys_max), NOTHING, move |key| {
        let provider = Arc::clone(&provider);
        async move { provider.answer(key).await }
    })
}

/// What came, in one line.
fn told(served: &Served<u32, String>) -> String {
    match served {
        Served::Fresh { value, age } => format!("fresh {value} of {}", show_duration(*age)),
        Served::Stale { value, age, why: None } => format!("stale {value} of {}", show_duration(*age)),
        Served::Stale { value, age, why: Some(why) } => {
            format!("stale {value} of {}, {why}", show_duration(*age))
        }
        Served::Fallback { value, why } => format!("fallback {value}, {why}"),
    }
}

/// Lets what runs in the background end, without a moment passing.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_served_says_whether_it_is_fresh_stale_or_a_fallback() {
    use Mood::{Down, Empty, Well};
    let provider = Provider::taking(Duration::ZERO);
    let cache = cache_of(&provider, 10);
    #[rustfmt::skip]
    let steps = [
        ("nothing known, and down",              0,     Down,  "fallback 99, down 1"),
        ("which is remembered",                  4,     Well,  "fallback 99, down 1"),
        ("and forgotten",                        1,     Well,  "fresh 2 of 0s"),
        ("fresh",                                299,   Down,  "fresh 2 of 299s"),
        ("past its time, being fetched",         1,     Down,  "stale 2 of 5m"),
        ("which failed",                         1,     Down,  "stale 2 of 301s, down 3"),
        ("being fetched again",                  5,     Well,  "stale 2 of 306s, down 3"),
        ("healed",                               0,     Down,  "fresh 4 of 0s"),
        ("too old to serve",                     1_800, Down,  "fallback 99, down 5"),
        ("value does not exist any more",      5,     Empty, "fallback 99, value does not exist"),
        ("which is remembered for longer",       59,    Well,  "fallback 99, value does not exist"),
        ("but not for ever",                     1,     Well,  "fresh 7 of 0s"),
        ("it goes while what was there serves",  300,   Empty, "stale 7 of 5m"),
        ("and then that serves no more",         0,     Down,  "fallback 99, value does not exist"),
        ("nor is it brought back by a failure",  60,    Down,  "fallback 99, down 9"),
    ];
    for (name, seconds, mood, expected) in steps {
        provider.set(mood);
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(told(&cache.get_or(&"a", 99).await), expected, "{name}");
        settle().await;
    }
    let expected = CacheCounts {
        hits: 2,
        stale: 4,
        negative: 3,
        misses: 6,
        fallbacks: 7,
        keys: 1,
        ..CacheCounts::default()
    };
    assert_eq!(cache.counts(), expected);
}

#[tokio::test(start_paused = true)]
async fn that_there_is_nothing_is_told_from_not_knowing() {
    let provider = Provider::taking(Duration::ZERO);
    let cache = cache_of(&provider, 10);
    provider.set(Mood::Empty);
    assert!(cache.get(&"a").await.expect_err("nothing").is_nothing());
    provider.set(Mood::Down);
    assert!(!cache.get(&"b").await.expect_err("down").is_nothing());
    provider.set(Mood::Well);
    assert_eq!(cache.get(&"c").await.expect("well").standing, Validity::Fresh);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_goes_first() {
    let provider = Provider::taking(Duration::ZERO);
    let cache = cache_of(&provider, 3);
    for key in ["a", "b", "c", "a", "d"] {
        cache.get(&key).await.expect("it is well");
    }
    let known = |key| cache.known(&key).is_some();
    assert_eq!(["a", "b", "c", "d"].map(known), [true, false, true, true], "`b` made room for `d`");
    cache.get(&"e").await.expect("it is well");
    assert_eq!(["a", "c", "d", "e"].map(known), [true, false, true, true], "a look is no use: `c` was next");
    cache.get(&"c").await.expect("it is well");
    assert_eq!(provider.look_up("c"), 2, "what went is fetched anew");
    let CacheCounts { keys, evicted, .. } = cache.counts();
    assert_eq!((keys, evicted), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn what_is_being_fetched_does_not_go_and_a_crowd_is_refused() {
    let provider = Provider::taking(Duration::from_secs(2));
    let cache = cache_of(&provider, 2);
    let ask = |key: &'static str| {
        let cache = cache.clone();
        tokio::spawn(async move { cache.get(&key).await.map(|found| *found.value) })
    };
    let first = ask("a");
    settle().await;
    first.abort();
    let others = [ask("b"), ask("a")];
    settle().await;
    let crowd = cache.get(&"c").await.expect_err("both places are being fetched");
    assert_eq!(crowd.to_string(), "cache full: all 2 keys are being fetched");
    assert!(!crowd.is_nothing());
    for other in others {
        assert_eq!(other.await.expect("it ends").expect("it is well"), 1);
    }
    assert_eq!(provider.look_up("a"), 1, "whoever leaves stops nobody, and makes nobody fetch twice");
    assert_eq!(cache.get(&"c").await.map(|found| *found.value).expect("there is room again"), 1);
    assert_eq!(cache.counts().refused, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_fetched_anew_whatever_is_on_its_way() {
    let provider = Provider::taking(Duration::from_secs(2));
    let cache = cache_of(&provider, 2);
    let slow = {
        let cache = cache.clone();
        tokio::spawn(async move { *cache.get(&"a").await.expect("it is well").value })
    };
    settle().await;
    cache.forget(&"a");
    assert_eq!(*cache.get(&"a").await.expect("it is well").value, 2);
    assert_eq!(slow.await.expect("it ends"), 1, "who asked before gets what was fetched for them");
    assert_eq!(*cache.get(&"a").await.expect("it is well").value, 2);
    cache.forget(&"never seen");
    assert_eq!(cache.counts().keys, 1);
}

#[tokio::test(start_paused = true)]
async fn a_thing_may_use_its_cache_when_it_goes() {
    struct Telltale(Option<Cache<u32, Telltale, String>>);
    impl Drop for Telltale {
        fn drop(&mut self) {
            if let Some(cache) = self.0.take() {
                cache.forget(&7);
            }
        }
    }
    let itself: Arc<Mutex<Option<Cache<u32, Telltale, String>>>> = Arc::default();
    let given = Arc::clone(&itself);
    let cache = Cache::new(plan(1), move |_| {
        let cache = given.lock().expect("nobody panics").clone();
        async move { Ok(Telltale(cache)) }
    });
    *itself.lock().expect("nobody panics") = Some(cache.clone());
    for key in [1, 2, 3] {
        assert!(cache.get(&key).await.is_ok());
        settle().await;
    }
    cache.forget(&3);
    assert_eq!(cache.counts().keys, 0);
    itself.lock().expect("nobody panics").take();
}

/// Many threads, few keys and less room: the bound holds, and no key is fetched twice at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_share_few_places() {
    const KEYS: usize = 12;
    const ROOM: usize = 8;
    let zero = Duration::ZERO;
    let mut plan = plan(ROOM);
    plan.lifetimes = Lifetimes { fresh: zero, kept: zero, failure: zero };
    let (under_way, doubles): (Arc<[AtomicU32; KEYS]>, Arc<AtomicU32>) = Default::default();
    let (counted, found) = (Arc::clone(&under_way), Arc::clone(&doubles));
    let cache: Cache<usize, usize, String> = Cache::new(plan, move |key: usize| {
        let (counted, found) = (Arc::clone(&counted), Arc::clone(&found));
        async move {
            if counted[key].fetch_add(1, Ordering::SeqCst) > 0 {
                found.fetch_add(1, Ordering::SeqCst);
            }
            tokio::task::yield_now().await;
            counted[key].fetch_sub(1, Ordering::SeqCst);
            Ok(key)
        }
    });
    let gate = Arc::new(Semaphore::new(0));
    let mut askers = JoinSet::new();
    for asker in 0..16 {
        let (cache, gate) = (cache.clone(), Arc::clone(&gate));
        askers.spawn(async move {
            drop(gate.acquire().await);
            for round in 0..300 {
                let key = (asker * 7 + round * (asker + 1)) % KEYS;
                match cache.get(&key).await {
                    Ok(found) => assert_eq!(*found.value, key),
                    // Nothing lives here: one that fell between two fetches finds nothing, or no room.
                    Err(missing) => assert!(
                        matches!(*missing.failure, FetchError::Lost | FetchError::Crowded { .. }),
                        "no fetch failed: {missing}"
                    ),
                }
                assert!(cache.counts().keys <= ROOM);
            }
        });
    }
    gate.add_permits(1);
    askers.join_all().await;
    assert_eq!(doubles.load(Ordering::SeqCst), 0, "a key was being fetched already");
    let CacheCounts { hits, stale, negative, misses, refused, .. } = cache.counts();
    assert_eq!(hits + stale + negative + misses + refused, 16 * 300, "each is counted once");
}

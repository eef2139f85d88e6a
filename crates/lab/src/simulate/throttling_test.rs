//! A dependency that throttles, in every shape: what has waited drains at nearly what it allows, without bursts.
//!
//! Twenty events a second; thirty are allowed, but for some time only five. Figures are those of
//! `docs/decisions/0015-remember-the-rate-limit-that-was-met.md`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::agenda::CallAnswer;
use super::target::Limiter;
use super::tests::{book, scenario};
use super::world::SimulatedWorld;
use super::{Go, SimulationPlan, SimulationReport};

const SECOND: u64 = 1_000_000_000;
/// What is allowed in a second, and while it is scarce.
const ALLOWED: u64 = 30;
const SCARCE: u64 = 5;
/// So many seconds after it was scarce what has waited must drain.
const JUDGED_AFTER: u64 = 60;
/// Of so few it is said that nothing waits: they are those of a second or two.
const FEW: u64 = 30;
/// How long a call takes at the dependency that counts calls at once.
const CALL: Duration = Duration::from_nanos(CALL_NANOS);
const CALL_NANOS: u64 = SECOND / 5;

/// How a dependency limits its calls.
#[derive(Clone, Debug)]
enum Shape {
    /// So many in each span of so many seconds.
    FixedWindow { seconds: u64 },
    /// So many in the last so many seconds, whenever that is.
    SlidingWindow { seconds: u64 },
    /// So many saved up at most.
    Bucket { burst: u64 },
    /// So many at once.
    AtOnce,
}

/// What it says to those that it turns away.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Unsaid,
    Seconds(u64),
    /// A date, which has no fractions of a second.
    Date(u64),
}

impl Wait {
    fn said(self, now: u64) -> CallAnswer {
        CallAnswer::TooMany(match self {
            Self::Unsaid => None,
            Self::Seconds(seconds) => Some(Duration::from_secs(seconds)),
            Self::Date(seconds) => {
                let date = (now + seconds * SECOND) / SECOND * SECOND;
                Some(Duration::from_nanos(date - now))
            }
        })
    }
}

/// A time in which events come and a dependency limits its calls.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// How long events come.
    minutes: u64,
    spacing: &'static str,
    /// From when to when it allows little, in seconds.
    scarce_from: u64,
    scarce_until: u64,
}

impl Day {
    const EVEN: Self = Self { minutes: 6, spacing: "even", scarce_from: 20, scarce_until: 50 };
    const RANDOM: Self = Self { spacing: "random", ..Self::EVEN };

    const fn allowed(self, at: u64) -> u64 {
        if at >= self.scarce_from * SECOND && at < self.scarce_until * SECOND { SCARCE } else { ALLOWED }
    }

    /// The same, for seconds as they are counted in lists.
    fn judged_from(self) -> usize {
        usize::try_from(self.scarce_until + JUDGED_AFTER).expect("a time")
    }
}

impl Shape {
    /// Whether each call is taken.
    fn gate(self, day: Day) -> Box<dyn FnMut(u64) -> bool> {
        let allowed = move |at| day.allowed(at);
        match self {
            Self::FixedWindow { seconds } => {
                let (mut window, mut taken) = (u64::MAX, 0);
                Box::new(move |now| {
                    let this = now / (seconds * SECOND);
                    if this != window {
                        (window, taken) = (this, 0);
                    }
                    taken += 1;
                    taken <= allowed(now) * seconds
                })
            }
            Self::SlidingWindow { seconds } => {
                let mut taken: VecDeque<u64> = VecDeque::new();
                Box::new(move |now| {
                    while taken.front().is_some_and(|at| at + seconds * SECOND <= now) {
                        taken.pop_front();
                    }
                    let has_room = (taken.len() as u64) < allowed(now) * seconds;
                    taken.extend(has_room.then_some(now));
                    has_room
                })
            }
            Self::Bucket { burst } => {
                // In billionths of a call.
                let (mut saved, mut last) = (burst * SECOND, 0);
                Box::new(move |now| {
                    saved = (saved + (now - last) * allowed(now)).min(burst * SECOND);
                    last = now;
                    let has_room = saved + 1_000 >= SECOND;
                    saved = saved.saturating_sub(if has_room { SECOND } else { 0 });
                    has_room
                })
            }
            Self::AtOnce => {
                let mut ends: VecDeque<u64> = VecDeque::new();
                Box::new(move |now| {
                    while ends.front().is_some_and(|end| *end <= now) {
                        ends.pop_front();
                    }
                    let at_once = (allowed(now) as f64 * CALL.as_secs_f64()).round();
                    let has_room = (ends.len() as f64) < at_once;
                    ends.extend(has_room.then(|| now + CALL_NANOS));
                    has_room
                })
            }
        }
    }
}

/// What a run came to.
#[derive(Debug)]
struct Came {
    /// Of what was allowed, how much was taken from when it is judged until nothing waited.
    share: f64,
    /// When nothing waited any more, in seconds after all was allowed again.
    empty_after: u64,
    refused: usize,
    opened: u64,
    /// The most calls in a second over the most that were taken in a second before.
    burst: f64,
}

fn per_second(calls: &[u64], seconds: usize) -> Vec<u64> {
    let mut counts = vec![0; seconds];
    for at in calls {
        if let Some(count) = counts.get_mut(usize::try_from(at / SECOND).unwrap_or(usize::MAX)) {
            *count += 1;
        }
    }
    counts
}

/// What came of a day, and when calls were taken and refused.
fn play(day: Day, shape: &Shape, wait: Wait, of_dependency: &str) -> (SimulationReport, Vec<u64>, Vec<u64>) {
    play_by(1, day, shape, wait, of_dependency)
}

fn play_by(
    seed: u64,
    day: Day,
    shape: &Shape,
    wait: Wait,
    of_dependency: &str,
) -> (SimulationReport, Vec<u64>, Vec<u64>) {
    let Day { minutes, spacing, .. } = day;
    let latency = if matches!(shape, Shape::AtOnce) { CALL } else { Duration::from_millis(40) };
    let scenario = scenario(&format!(
        "duration: {minutes}m\narrivals: [{{ type: orders.placed, rate: 20/s, spacing: {spacing} }}]\ndependencies:\n  api: {{ latency: {}ms }}\n",
        latency.as_millis()
    ));
    let book = book("", &format!("dependencies:\n  api: {{ kind: webhook{of_dependency} }}\n"));
    let plan = SimulationPlan { scenario: &scenario, book: Arc::clone(&book), seed };
    let scenario = scenario.clone().completed_by(&book);
    let mut world = SimulatedWorld::new(&plan, &scenario);
    let (taken, refused) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    let (took, turned_away) = (Rc::clone(&taken), Rc::clone(&refused));
    let mut gate = shape.clone().gate(day);
    world.targets[0].limiter = Some(Limiter(Box::new(move |now| {
        let is_taken = gate(now);
        if is_taken { &took } else { &turned_away }.borrow_mut().push(now);
        (!is_taken).then(|| wait.said(now))
    })));
    let report = world.play(&mut |_| Go::On).expect("no run is stopped");
    (report, taken.take(), refused.take())
}

fn judge(day: Day, (report, taken, refused): &(SimulationReport, Vec<u64>, Vec<u64>)) -> Came {
    let step = usize::try_from(report.step_ms).expect("a step");
    let waiting = &report.queues[0].waiting;
    let is_empty = |step: &usize| waiting[*step] <= FEW;
    let from = day.judged_from() * 1_000 / step;
    let empty_at = (from..waiting.len()).find(is_empty).expect("what waits drains") * step / 1_000;
    let ends_at = usize::try_from(day.minutes * 60).expect("a time");
    assert!(empty_at < ends_at, "{day:?}: it is empty after {empty_at} s, when no events come any more");
    let judged = day.judged_from()..empty_at;
    let all: Vec<u64> = taken.iter().chain(refused).copied().collect();
    let (made, good) = (per_second(&all, empty_at), per_second(taken, empty_at));
    let sum: u64 = good[judged.clone()].iter().sum();
    let share = sum as f64 / (judged.len() as f64 * ALLOWED as f64);
    assert!(!share.is_nan(), "{day:?}: nothing waits when it is judged");
    let scarce_until = usize::try_from(day.scarce_until).expect("a time");
    let bursts = (scarce_until + 1..empty_at).map(|second| {
        let known = good[second.saturating_sub(60)..second].iter().max().copied().unwrap_or(0);
        made[second] as f64 / known.max(SCARCE) as f64
    });
    Came {
        share,
        empty_after: empty_at as u64 - day.scarce_until,
        refused: refused.len(),
        opened: report.dependencies[0].breaker_opened,
        burst: bursts.fold(0.0, f64::max),
    }
}

#[test]
fn what_has_waited_drains_at_what_is_allowed_in_every_shape() {
    let waits = [Wait::Unsaid, Wait::Seconds(10), Wait::Date(10), Wait::Seconds(1)];
    let shapes = [
        (Shape::FixedWindow { seconds: 1 }, &waits[..3]),
        // Who counts by long windows and says when to come back says when the next begins: not after ten seconds.
        (Shape::FixedWindow { seconds: 10 }, &waits[..1]),
        (Shape::SlidingWindow { seconds: 1 }, &waits[..3]),
        (Shape::SlidingWindow { seconds: 10 }, &waits[..3]),
        (Shape::Bucket { burst: 1 }, &waits[..3]),
        (Shape::Bucket { burst: 10 }, &waits[..]),
        (Shape::Bucket { burst: 30 }, &waits[..]),
        (Shape::AtOnce, &waits[..3]),
    ];
    let mut wrong = Vec::new();
    for (shape, waits) in &shapes {
        for wait in *waits {
            for of_dependency in ["", ", rate: 40/s"] {
                let came = judge(Day::EVEN, &play(Day::EVEN, shape, *wait, of_dependency));
                let Came { share, empty_after, refused, opened, burst } = came;
                let told = format!(
                    "{shape:?}, {wait:?}{of_dependency}: {:.0} %, empty after {empty_after} s, {refused} refused, opened {opened} times, burst {burst:.2}",
                    share * 100.0
                );
                println!("{told}");
                if share < 0.9 || opened > 0 || burst > 1.5 || refused > 40 {
                    wrong.push(told);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The two that are played against a real server in full length, with more than is asked of that: events come as
/// they like, in many ways.
#[test]
fn what_is_played_live_holds_for_many_seeds() {
    let mut wrong = Vec::new();
    for (burst, seconds) in [(30, 10), (10, 1)] {
        for seed in 1..=10 {
            let played = play_by(seed, Day::RANDOM, &Shape::Bucket { burst }, Wait::Seconds(seconds), "");
            let came = judge(Day::RANDOM, &played);
            println!("bucket of {burst}, wait of {seconds} s, seed {seed}: {came:?}");
            if came.share < 0.93 || came.opened > 0 || came.burst > 1.5 {
                wrong.push(format!("bucket of {burst}, wait of {seconds} s, seed {seed}: {came:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Also when events come as they like; the limit may be met by chance then, before anything is known.
#[test]
fn what_has_waited_drains_whenever_it_came() {
    let mut wrong = Vec::new();
    for shape in [Shape::FixedWindow { seconds: 1 }, Shape::Bucket { burst: 1 }, Shape::Bucket { burst: 30 }]
    {
        for wait in [Wait::Unsaid, Wait::Seconds(10)] {
            let came = judge(Day::RANDOM, &play(Day::RANDOM, &shape, wait, ""));
            println!("{shape:?}, {wait:?}: {came:?}");
            if came.share < 0.9 || came.opened > 0 || came.burst > 1.5 {
                wrong.push(format!("{shape:?}, {wait:?}: {came:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A minute of scarcity, where the backlog once grew for as long as events came. With a wait of ten seconds each
/// refusal costs more than the rest of the time can make good: less than 90 % are taken.
#[test]
fn a_longer_scarcity_drains_too() {
    let day = Day { minutes: 12, scarce_until: 80, ..Day::EVEN };
    let mut wrong = Vec::new();
    #[rustfmt::skip]
    let cases = [
        (Shape::Bucket { burst: 1 },  Wait::Unsaid,      0.92),
        (Shape::Bucket { burst: 1 },  Wait::Seconds(10), 0.90),
        (Shape::Bucket { burst: 30 }, Wait::Unsaid,      0.92),
        (Shape::Bucket { burst: 30 }, Wait::Seconds(10), 0.90),
    ];
    for (shape, wait, share) in cases {
        let came = judge(day, &play(day, &shape, wait, ""));
        println!("{shape:?}, {wait:?}: {came:?}");
        if came.share < share || came.opened > 0 || came.burst > 1.5 {
            wrong.push(format!("{shape:?}, {wait:?}: {came:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A bucket of one refuses the second of two calls at once, so events that come as they like meet it, though they
/// are fewer than it allows: what waits then is gone before they end. It was 22,568 deliveries once.
#[test]
fn events_that_come_as_they_like_meet_a_bucket_of_one_and_drain() {
    let day = Day { minutes: 10, scarce_from: 0, scarce_until: 0, ..Day::RANDOM };
    for (wait, most) in [(Wait::Unsaid, 500), (Wait::Seconds(10), 900)] {
        let (report, taken, refused) = play(day, &Shape::Bucket { burst: 1 }, wait, "");
        let waiting = &report.queues[0].waiting;
        let opened = report.dependencies[0].breaker_opened;
        let told = format!("{wait:?}: {} taken, {} refused, waiting {waiting:?}", taken.len(), refused.len());
        println!("{told}");
        assert_eq!((report.delivered, report.dead, opened), (report.deliveries, 0, 0), "{told}");
        assert!(waiting.iter().all(|count| *count <= most), "{told}");
        let steps_of_a_minute = usize::try_from(60_000 / report.step_ms).expect("some");
        let ends_at = usize::try_from(day.minutes).expect("short") * steps_of_a_minute;
        assert!(waiting[ends_at - steps_of_a_minute..ends_at].iter().all(|count| *count <= FEW), "{told}");
    }
}

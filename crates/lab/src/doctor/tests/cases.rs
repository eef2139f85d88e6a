//! The sick and their healthy twins, a pair for each diagnosis, and what some of them are told to change.

use super::sketch::Sketch;
use redrive_core::letters::envelope::Tier::{Dead, Poison};

/// A name, the code that must be found, the sick and the healthy.
pub(super) type Case = (&'static str, &'static str, Sketch, Sketch);

pub(super) fn cases() -> Vec<Case> {
    [targets(), failing(), timeouts(), retries(), breakers(), load(), queues(), letters(), copies()].concat()
}

/// An outage of so many seconds, with a delivery each second that is retried after 1, 2, 4, 8 and 16 s, and an hour
/// in which all is well.
pub(super) fn outage(sketch: Sketch, seconds: u64) -> Sketch {
    let mut sketch = sketch.deliveries(300, "ok 1ms");
    for passed in 0..seconds {
        let mut words = Vec::new();
        let tried = [0, 1, 3, 7, 15, 31];
        let fails = |wait: &&u64| passed + **wait < seconds;
        words.extend(tried.iter().take_while(fails).map(|wait| format!("after {wait}s 503 1ms")));
        words.push(match tried.get(words.len()) {
            Some(wait) => format!("after {wait}s ok 1ms"),
            None => "dead MAX_RETRIES_EXCEEDED".to_owned(),
        });
        sketch = sketch.deliveries(1, &words.join(" "));
    }
    sketch.deliveries(60, "ok 1ms")
}

/// Five failures in a row every five minutes.
fn nervous(sketch: Sketch) -> Sketch {
    let sketch = (0..6).fold(sketch, |sketch, _| {
        let short = sketch.apart("300ms").deliveries(6, "503 1ms after 3s ok 1ms");
        short.apart("5s").deliveries(60, "ok 1ms")
    });
    sketch.turns("100s", &["open", "half", "closed"].repeat(6))
}

fn on(service: &str) -> Sketch {
    Sketch::new("", service)
}

#[rustfmt::skip]
fn targets() -> Vec<Case> {
    let down = ["half", "open"];
    let opened = |sketch: Sketch| sketch.waiting(900, 0).turns("30s", &["open"]).turns("30s", &down.repeat(3));
    vec![
        ("nothing is answered in time", "target-too-slow",
            on("timeout: 300ms\n| retry: none").deliveries(40, "timeout 300ms dead MAX_RETRIES_EXCEEDED"),
            // They were given up under a limit that holds no more.
            on("timeout: 500ms\n| retry: none").deliveries(40, "timeout 300ms dead MAX_RETRIES_EXCEEDED")),
        ("few get through, and none is answered in time", "target-too-slow",
            opened(on("timeout: 2s").deliveries(3, "timeout 2s waits")),
            on("timeout: 2s").deliveries(3, "timeout 2s waits").deliveries(1, "ok 1s900ms")),
        ("few get through, and none is answered", "target-gone",
            opened(on("timeout: 2s").deliveries(4, "refused 1ms waits")),
            on("timeout: 2s").deliveries(4, "refused 1ms waits")),
        ("few get through, and all are errors", "target-failing",
            opened(on("timeout: 2s").deliveries(4, "503 1ms waits")),
            on("timeout: 2s").deliveries(4, "422 1ms dead UNPROCESSABLE")),
        ("a rejection between deliveries and an outage", "target-gone",
            on("timeout: 2s").deliveries(5, "ok 9ms").deliveries(1, "422 1ms dead UNPROCESSABLE").deliveries(9, "refused 1ms waits"),
            on("timeout: 2s").deliveries(5, "ok 9ms").deliveries(9, "refused 1ms waits").deliveries(1, "422 1ms dead UNPROCESSABLE")),
        ("a 429 in an outage", "target-failing",
            opened(on("timeout: 2s").deliveries(9, "ok 9ms").deliveries(2, "503 1ms waits").deliveries(1, "429 1ms waits").deliveries(3, "503 1ms waits")),
            opened(on("timeout: 2s").deliveries(9, "ok 9ms").deliveries(3, "429 1ms waits"))),
        ("half are refused and half are errors", "target-gone",
            on("timeout: 2s").deliveries(4, "refused 1ms 503 1ms waits"),
            on("timeout: 2s").deliveries(4, "refused 1ms 503 1ms waits").deliveries(1, "ok 9ms")),
        ("no way has half of them", "target-failing",
            opened(on("timeout: 2s").deliveries(2, "refused 1ms timeout 2s 503 1ms waits").deliveries(1, "503 1ms waits")),
            on("timeout: 2s").deliveries(1, "refused 1ms timeout 2s 503 1ms waits")),
    ]
}

#[rustfmt::skip]
fn failing() -> Vec<Case> {
    vec![
        ("a target with trouble of its own", "transient-failures",
            on("timeout: 3s").deliveries(60, "ok 50ms").deliveries(30, "503 20ms waits").deliveries(10, "ok 50ms"),
            on("timeout: 3s").deliveries(90, "ok 50ms").deliveries(10, "503 20ms waits")),
        ("data that the target refuses", "permanent-failures",
            on("timeout: 3s").deliveries(80, "ok 50ms").deliveries(20, "422 20ms dead UNPROCESSABLE"),
            on("timeout: 3s").deliveries(95, "ok 50ms").deliveries(5, "422 20ms dead UNPROCESSABLE")),
        ("a range of statuses that is retried", "client-errors-retried",
            on("on_failure: { 400-499: standard }").deliveries(12, "404 9ms 404 9ms dead MAX_RETRIES_EXCEEDED"),
            on("on_failure: { 400-499: standard }").deliveries(12, "404 9ms ok 9ms")),
        ("the book retries it no more", "client-errors-retried",
            on("on_failure: { permanent: standard }").deliveries(12, "404 9ms 404 9ms dead MAX_RETRIES_EXCEEDED"),
            on("timeout: 3s").deliveries(12, "404 9ms 404 9ms dead MAX_RETRIES_EXCEEDED")),
        ("an override that expected too much", "override-never-heals",
            on("classify: [{ status: 404, as: transient }]").deliveries(12, "404* 9ms 404* 9ms dead MAX_RETRIES_EXCEEDED"),
            on("classify: [{ status: 404, as: transient }]").deliveries(12, "404* 9ms ok 9ms")),
    ]
}

#[rustfmt::skip]
fn timeouts() -> Vec<Case> {
    vec![
        ("good calls come close to the limit", "timeout-too-short",
            on("timeout: 3s").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms"),
            on("timeout: 3s").deliveries(60, "ok 200ms").deliveries(10, "timeout 3s ok 200ms")),
        ("a limit in parts", "timeout-too-short",
            on("timeout: { connect: 1s, whole: 3s }").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms"),
            on("timeout: { connect: 1s, whole: 5s }").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms")),
        ("a row of its own", "timeout-too-short",
            Sketch::of_rows("[{ type: a.b, timeout: 3s }, a.c]", "timeout: 9s").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms"),
            Sketch::of_rows("[a.b, { type: a.c, timeout: 3s }]", "timeout: 9s").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms")),
        ("a limit of the defaults", "timeout-too-short",
            Sketch::new("defaults: { timeout: 3s }\n", "title: mail").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms"),
            Sketch::new("defaults: { timeout: 9s }\n", "title: mail").deliveries(60, "ok 2500ms").deliveries(10, "timeout 3s ok 2900ms")),
        ("hangs hold slots for half a minute", "timeout-too-long",
            on("timeout: 30s").deliveries(150, "ok 100ms").deliveries(5, "timeout 30s ok 100ms"),
            on("timeout: 30s").deliveries(150, "ok 2s").deliveries(5, "timeout 30s ok 2s")),
    ]
}

#[rustfmt::skip]
fn retries() -> Vec<Case> {
    let five = "503 1ms 503 1ms 503 1ms 503 1ms 503 1ms 503 1ms dead MAX_RETRIES_EXCEEDED";
    let last = "503 1ms 503 1ms 503 1ms 503 1ms 503 1ms ok 1ms";
    let second = "503 1ms 503 1ms ok 1ms";
    let tried = &*"503 1ms ".repeat(20);
    let endless = "retry_policies: { endless: { initial: 1s, max: 30s, retries: unlimited, window: 5d } }\n";
    let days = "retry_policies: { days: { initial: 1s, max: 1h, retries: 40 } }\n";
    vec![
        ("late retries save some", "retries-exhausted",
            outage(on("retry: standard\n| breaker: none"), 60),
            outage(on("retry: standard\n| breaker: none"), 33)),
        ("a policy of the book", "retries-exhausted",
            outage(Sketch::new("retry_policies: { mine: { from: standard } }\n", "on_failure: { transient: mine }\n| breaker: none"), 60),
            // More of what never helps would not help either.
            Sketch::new("retry_policies: { mine: { from: standard } }\n", "on_failure: { transient: mine }")
                .deliveries(300, "ok 1ms").deliveries(10, five)),
        ("a policy of the catalog under on_failure", "retries-exhausted",
            outage(on("on_failure: { transient: standard }\n| breaker: none"), 60),
            on("on_failure: { transient: patient }").deliveries(300, "ok 1ms").deliveries(10, "ok 1ms")),
        ("a single retry", "retries-exhausted",
            Sketch::new("retry_policies: { once: { initial: 1s, max: 30s, retries: 1 } }\n", "retry: once")
                .deliveries(40, "503 1ms ok 1ms").deliveries(10, "503 1ms 503 1ms dead MAX_RETRIES_EXCEEDED"),
            // It has not saved anybody.
            Sketch::new("retry_policies: { once: { initial: 1s, max: 30s, retries: 1 } }\n", "retry: once")
                .deliveries(40, "ok 1ms").deliveries(10, "503 1ms 503 1ms dead MAX_RETRIES_EXCEEDED")),
        ("later retries help nobody", "retries-never-help",
            on("retry: standard").deliveries(30, second).deliveries(25, five),
            on("retry: standard").deliveries(30, second).deliveries(5, last).deliveries(25, five)),
        ("deliveries that are retried for ever", "policy-never-exhausted",
            Sketch::new(endless, "retry: endless").deliveries(60, "503 1ms after 2s ok 1ms").apart("2h").deliveries(6, &format!("{tried} waits")),
            // The policy does come to its end.
            Sketch::new(endless, "retry: endless").deliveries(60, "503 1ms after 2s ok 1ms").apart("2h").deliveries(6, &format!("{tried} waits"))
                .deliveries(1, &format!("{tried} dead RETRY_WINDOW_EXCEEDED"))),
        ("nothing has arrived yet", "policy-never-exhausted",
            Sketch::new(endless, "retry: endless").apart("2h").deliveries(6, &format!("{tried} waits")),
            // Retries as late as these have helped others.
            Sketch::new(endless, "retry: endless").deliveries(9, &format!("{tried} after 6h ok 1ms")).apart("2h").deliveries(6, &format!("{tried} waits"))),
        ("a policy that is never used up", "policy-never-exhausted",
            Sketch::new(days, "retry: days").deliveries(60, "503 1ms after 2s ok 1ms"),
            // Outages of that length do happen here.
            Sketch::new(days, "retry: days").deliveries(60, "503 1ms after 2s ok 1ms").deliveries(1, "503 1ms after 9h ok 1ms")),
        ("listed delays of a day", "policy-never-exhausted",
            Sketch::new("retry_policies: { listed: { delays: [5s, 5m, 30m, 2h, 5h, 10h], retries: 6 } }
", "retry: listed").deliveries(60, "503 1ms after 5s ok 1ms"),
            on("retry: critical").deliveries(60, "503 1ms after 5s ok 1ms")),
        ("a retry that could be made at once", "first-retry-too-late",
            Sketch::new("retry_policies: { slow: { initial: 30s, max: 5m, retries: 5 } }\n", "retry: slow").deliveries(40, "503 1ms ok 1ms"),
            on("retry: standard").deliveries(40, "503 1ms ok 1ms")),
        ("listed delays", "first-retry-too-late",
            Sketch::new("retry_policies: { slow: { delays: [30s, 1m], retries: 5 } }\n", "retry: slow").deliveries(40, "503 1ms ok 1ms"),
            Sketch::new("retry_policies: { slow: { delays: [30s, 1m], retries: 5 } }\n", "retry: slow").deliveries(40, second)),
        ("retries come while the breaker is open", "retries-meet-open-breaker",
            on("retry: aggressive\n| breaker: externalBreaker").deliveries(30, "503 1ms held 503 1ms held"),
            on("retry: patient\n| breaker: externalBreaker").deliveries(30, "503 1ms held 503 1ms held")),
        ("outages are longer than patience", "holds-expire",
            on("hold_max: 10m").deliveries(5, "503 1ms dead HOLD_EXPIRED"),
            on("hold_max: 10m").deliveries(2, "503 1ms dead HOLD_EXPIRED")),
        ("an open breaker gives up", "holds-expire",
            on("when_open: dead-letter").deliveries(5, "held dead CIRCUIT_BREAKER_OPEN"),
            on("when_open: dead-letter").deliveries(5, "503 1ms ok 1ms")),
    ]
}

#[rustfmt::skip]
fn breakers() -> Vec<Case> {
    let cycle = ["open", "half", "closed"];
    let cycles = |count: usize| cycle.repeat(count);
    let own = "breakers: { mine: { trip: { consecutive: 5 }, open: 30s } }\n";
    let shared = "breakers:\n  quick: { trip: { consecutive: 5 }, open: 30s }\ndependencies:\n  mail: { kind: webhook, breaker: quick }\n  sms: { kind: sms, breaker: quick }\n";
    let down = ["half", "open"];
    vec![
        ("a nervous breaker", "breaker-opens-often",
            on("timeout: 3s").deliveries(50, "ok 1ms").turns("100s", &cycles(6)),
            on("timeout: 3s").deliveries(50, "ok 1ms").turns("20m", &cycles(6))),
        ("a nervous breaker of the book", "breaker-opens-often",
            nervous(Sketch::new(own, "breaker: mine")),
            Sketch::new(own, "breaker: mine").deliveries(50, "ok 1ms").turns("100s", &cycles(3))),
        ("a nervous breaker that others share", "breaker-opens-often",
            nervous(Sketch::new(shared, "timeout: 3s")),
            Sketch::new(shared, "timeout: 3s").deliveries(50, "ok 1ms")),
        ("a dependency of the book", "breaker-opens-often",
            Sketch::new("dependencies: { mail: { kind: webhook } }\n", "timeout: 3s").deliveries(50, "ok 1ms").turns("100s", &cycles(6)),
            Sketch::new("dependencies: { mail: { kind: webhook } }\n", "timeout: 3s").deliveries(50, "ok 1ms")),
        ("a breaker that closes too early", "breaker-flaps",
            on("timeout: 3s").deliveries(50, "ok 1ms").turns("30s", &cycles(5)),
            on("timeout: 3s").deliveries(50, "ok 1ms").turns("5m", &cycles(5))),
        ("failures with successes between them", "breaker-never-opens",
            on("timeout: 3s").apart("3s").deliveries(40, "ok 1ms").deliveries(60, "503 1ms waits"),
            on("timeout: 3s").apart("3s").deliveries(40, "ok 1ms").deliveries(60, "503 1ms waits").turns("1m", &["open"])),
        ("no breaker at all", "breaker-never-opens",
            on("breaker: none").apart("3s").deliveries(40, "ok 1ms").deliveries(60, "503 1ms waits"),
            on("breaker: none").apart("3s").deliveries(90, "ok 1ms").deliveries(10, "503 1ms waits")),
        ("a dependency that refuses for long", "probes-keep-failing",
            on("timeout: 3s").deliveries(9, "429 1ms waits").turns("30s", &["open"]).turns("30s", &down.repeat(6)),
            on("timeout: 3s").deliveries(9, "429 1ms waits").turns("30s", &["open"]).turns("30s", &down.repeat(6)).turns("9s", &["half", "closed"])),
        ("a dependency that is gone has a finding of its own", "probes-keep-failing",
            on("timeout: 3s").deliveries(9, "429 1ms waits").turns("30s", &["open"]).turns("30s", &down.repeat(6)),
            on("timeout: 3s").deliveries(9, "refused 1ms waits").turns("30s", &["open"]).turns("30s", &down.repeat(6))),
    ]
}

#[rustfmt::skip]
fn load() -> Vec<Case> {
    vec![
        ("a crowd fails", "too-many-at-once",
            on("timeout: 3s").deliveries(40, "ok 9ms").beside(1, 500, 5, "9ms").beside(4, 500, 200, "9ms"),
            on("timeout: 3s").deliveries(40, "ok 9ms").beside(1, 500, 5, "9ms").beside(4, 500, 10, "9ms")),
        ("a crowd is slow", "too-many-at-once",
            Sketch::new("dependencies: { mail: { kind: webhook, in_flight: 50 } }\n", "timeout: 3s").deliveries(40, "ok 9ms").beside(1, 500, 0, "20ms").beside(4, 500, 0, "900ms"),
            Sketch::new("dependencies: { mail: { kind: webhook, in_flight: 8 } }\n", "timeout: 3s").deliveries(40, "ok 9ms").beside(1, 500, 0, "20ms").beside(4, 500, 0, "900ms")),
        ("a limit of ours", "too-few-at-once",
            Sketch::new("dependencies: { mail: { kind: webhook, in_flight: 2 } }\n", "timeout: 3s").deliveries(40, "ok 9ms").waiting(500, 0).in_flight(2).beside(0, 50, 0, "9ms").beside(1, 900, 0, "9ms"),
            Sketch::new("dependencies: { mail: { kind: webhook, in_flight: 2 } }\n", "timeout: 3s").deliveries(40, "ok 9ms").waiting(500, 0).in_flight(2).beside(0, 50, 0, "9ms").beside(1, 900, 0, "19ms")),
        ("a few are asked to wait, and the backlog grows", "rate-limited-often",
            on("timeout: 3s").apart("50ms").deliveries(390, "ok 9ms").deliveries(12, "429 1ms waits").deliveries(400, "waits").waiting(400, 0),
            on("timeout: 3s").apart("50ms").deliveries(390, "ok 9ms").deliveries(12, "429 1ms ok 9ms")),
        ("a target that counts calls", "rate-limited-often",
            on("timeout: 3s").deliveries(20, "ok 9ms").deliveries(10, "429 1ms ok 9ms").deliveries(20, "ok 9ms").deliveries(10, "429 1ms waits"),
            on("timeout: 3s").deliveries(400, "ok 9ms").deliveries(10, "429 1ms ok 9ms")),
    ]
}

#[rustfmt::skip]
fn queues() -> Vec<Case> {
    let slow = |later: &str| on("timeout: 3s").deliveries(30, "after 1s ok 9ms").deliveries(30, later).waiting(400, 0);
    vec![
        ("more comes than goes", "queue-grows", slow("after 40s ok 9ms"), slow("after 1s ok 9ms")),
        ("a delivery that is late", "sla-missed",
            on("facts: { sla: 5m }").waiting(3, 0).oldest("10m"),
            on("facts: { sla: 5m }").waiting(3, 0).oldest("1m")),
        ("a pause that was forgotten", "paused-and-forgotten",
            on("timeout: 3s").waiting(3, 0).paused("2h"),
            on("timeout: 3s").waiting(3, 0).paused("10m")),
        ("a service that has gone", "removed-with-waiting",
            on("timeout: 3s").waiting(3, 0).removed(),
            on("timeout: 3s").removed()),
        ("one waits for a service that has gone", "removed-with-waiting",
            on("timeout: 3s").waiting(1, 0).removed(),
            on("timeout: 3s").waiting(1, 0)),
        ("a row that has gone", "removed-with-waiting",
            on("timeout: 3s").waiting(3, 0).without_rule(2),
            on("timeout: 3s").waiting(3, 0)),
        ("one long session", "session-blocked",
            on("order: session").waiting(200, 190),
            on("order: session").waiting(200, 40)),
        ("a letter that holds its session", "session-held",
            on("order: session-strict").held("3h", 12),
            on("order: session-strict").held("3m", 12)),
        ("a type that nobody wants", "unrouted-events",
            on("timeout: 3s").unrouted("x.y", 7),
            on("timeout: 3s")),
    ]
}

#[rustfmt::skip]
fn letters() -> Vec<Case> {
    let receiver = "receivers: { ops: { webhook: \"https://pager.example.test/\" } }\n";
    let watched = "receivers: { ops: { webhook: \"https://pager.example.test/\" } }\nalerts: [{ when: dead_letters > 9, severity: high, to: [ops] }]\n";
    vec![
        ("letters that nobody looks at", "letters-untouched",
            on("timeout: 3s").letters(4, 1, "72h", Dead),
            on("timeout: 3s").letters(4, 1, "7h", Dead)),
        ("something has just broken", "letters-come-faster",
            on("timeout: 3s").apart("9m").deliveries(20, "ok 9ms").apart("1m").deliveries(30, "422 9ms dead UNPROCESSABLE"),
            on("timeout: 3s").apart("9m").deliveries(20, "ok 9ms").apart("3m").deliveries(60, "422 9ms dead UNPROCESSABLE")),
        ("one cause for nearly all", "one-cause",
            on("timeout: 3s").letters(40, 1, "1h", Dead).letters(5, 2, "1h", Dead),
            on("timeout: 3s").letters(10, 1, "1h", Dead).letters(9, 2, "1h", Dead)),
        ("a letter that failed its replays", "poison-letters",
            on("timeout: 3s").letters(4, 1, "1h", Poison),
            on("timeout: 3s").letters(4, 1, "1h", Dead)),
        ("nobody is told", "letters-unwatched",
            Sketch::new(receiver, "timeout: 3s").letters(4, 1, "1h", Dead),
            Sketch::new(watched, "timeout: 3s").letters(4, 1, "1h", Dead)),
        ("nobody could be told", "letters-unwatched",
            on("timeout: 3s").letters(4, 1, "1h", Dead),
            on("allow: [{ lint: dead-letters-unwatched, because: a demo }]").letters(4, 1, "1h", Dead)),
    ]
}

#[rustfmt::skip]
fn copies() -> Vec<Case> {
    let forgets_after = |ttl: &str| {
        Sketch::new("defaults: { keep_delivered: 1h }\n", &format!("idempotency: {{ ttl: {ttl} }}"))
    };
    vec![
        ("copies that come late", "dedup-window-too-short",
            forgets_after("4h").copies(3, "3h"),
            forgets_after("5h").copies(3, "3h")),
        ("more than two copies that come late", "dedup-window-too-short",
            forgets_after("4h").copies(2, "3h59m").copies(90, "1m").copies(1, "3h"),
            forgets_after("4h").copies(2, "3h59m").copies(90, "1m")),
        ("what was delivered is forgotten too", "dedup-window-too-short",
            forgets_after("4h").copies(3, "3h"),
            on("idempotency: { ttl: 4h }").copies(3, "3h")),
    ]
}

/// A case, the code, the change, and the line of the book that it is about.
#[rustfmt::skip]
pub(super) fn changes() -> Vec<(&'static str, &'static str, &'static str, Option<u32>)> {
    vec![
        ("few get through, and none is answered in time", "target-too-slow",
            "services:\n  mail:\n    timeout: 5s\n", Some(6)),
        ("good calls come close to the limit", "timeout-too-short",
            "services:\n  mail:\n    timeout: 4s500ms\n", Some(6)),
        ("a limit in parts", "timeout-too-short",
            "services:\n  mail:\n    timeout: { connect: 1s, tls: 4s500ms, whole: 4s500ms }\n", Some(6)),
        ("a row of its own", "timeout-too-short",
            "services:\n  mail:\n    events:\n      - type: a.b\n        timeout: 4s500ms\n", Some(5)),
        ("a limit of the defaults", "timeout-too-short",
            "services:\n  mail:\n    timeout: 4s500ms\n", Some(2)),
        ("late retries save some", "retries-exhausted",
            "retry_policies:\n  mail-retry:\n    from: standard\n    retries: 7\n    max: 45s\n    window: 10m\nservices:\n  mail:\n    retry: mail-retry\n", Some(6)),
        ("a policy of the book", "retries-exhausted",
            "retry_policies:\n  mine:\n    retries: 7\n    max: 45s\n    window: 10m\n", Some(7)),
        ("a policy of the catalog under on_failure", "retries-exhausted",
            "retry_policies:\n  mail-retry:\n    from: standard\n    retries: 7\n    max: 45s\n    window: 10m\nservices:\n  mail:\n    on_failure:\n      transient: mail-retry\n", Some(6)),
        ("deliveries that are retried for ever", "policy-never-exhausted",
            "retry_policies:\n  endless:\n    retries: 34\n", Some(7)),
        ("a policy that is never used up", "policy-never-exhausted",
            "retry_policies:\n  days:\n    retries: 10\n", Some(7)),
        ("listed delays of a day", "policy-never-exhausted",
            "retry_policies:\n  listed:\n    retries: 3\n", Some(7)),
        ("a range of statuses that is retried", "client-errors-retried",
            "services:\n  mail:\n    on_failure:\n      400-499: dead-letter\n", Some(6)),
        ("an override that expected too much", "override-never-heals",
            "services:\n  mail:\n    events:\n      - type: a.b\n        classify:\n          - { status: 404, as: permanent, because: it never healed }\n", Some(6)),
        ("a nervous breaker of the book", "breaker-opens-often",
            "breakers:\n  mine:\n    trip: { consecutive: 8 }\n    open: 20s\n", Some(2)),
        ("a nervous breaker that others share", "breaker-opens-often",
            "breakers:\n  mail-breaker:\n    from: quick\n    trip: { consecutive: 8 }\n    open: 20s\ndependencies:\n  mail:\n    breaker: mail-breaker\n", Some(5)),
        ("a crowd fails", "too-many-at-once",
            "dependencies:\n  mail:\n    kind: webhook\n    in_flight: 8\n", None),
        ("a type that nobody wants", "unrouted-events",
            "services:\n  mail:\n    events:\n      - x.y\n", None),
        ("copies that come late", "dedup-window-too-short",
            "services:\n  mail:\n    idempotency:\n      ttl: 5h\n", Some(7)),
    ]
}

/// A case, the code, and what shows it.
#[rustfmt::skip]
pub(super) fn shown() -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    vec![
        ("few get through, and none is answered in time", "target-too-slow", &[
            "the latest 3 attempts all failed; nothing delivered for 3s",
            "NETWORK_TIMEOUT 3 times",
            "900 deliveries wait",
            "no answer was recorded, so its latency is assumed: p50 2s500ms, p99 3s",
        ]),
        ("hangs hold slots for half a minute", "timeout-too-long", &[
            "p99 of 155 attempts that succeeded: 100ms",
            "5 attempts hung until the timeout of 30s, each blocking a slot",
        ]),
        ("good calls come close to the limit", "timeout-too-short", &[
            "10 of 80 attempts (12%) timed out after 3s",
            "p99 of 70 attempts that succeeded: 2s900ms, 97% of the limit",
        ]),
        ("a single retry", "retries-exhausted", &[
            "10 of 50 deliveries that ended (20%) ran out of retries",
            "40 deliveries succeeded with retry 1",
            "last failures: SERVICE_UNAVAILABLE 10 times",
        ]),
        ("deliveries that are retried for ever", "policy-never-exhausted", &[
            "5 deliveries are still retried after 19 retries or more, the oldest for 10h1s",
            "`endless` lasts up to 5d, and no delivery has reached its end",
            "no retry after number 1 has succeeded",
        ]),
        ("nothing has arrived yet", "policy-never-exhausted", &[
            "5 deliveries are still retried after 19 retries or more, the oldest for 10h1s",
            "`endless` lasts up to 5d, and no delivery has reached its end",
            "no retry has ever succeeded",
        ]),
        ("a policy that is never used up", "policy-never-exhausted", &[
            "60 deliveries were retried and none ran out of retries: successes came within 2s, by retry 1 at the latest",
            "`days` lasts up to 30h: a delivery that cannot succeed stays unnoticed for that long",
        ]),
        ("a delivery that is late", "sla-missed", &[
            "oldest waiting delivery accepted 10m ago",
            "deliveries must be made within 5m",
            "3 deliveries wait in all",
        ]),
        ("one waits for a service that has gone", "removed-with-waiting", &["1 delivery waits for it and will never start"]),
    ]
}

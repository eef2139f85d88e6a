//! Reading scenarios: what they mean, and what is wrong with them.

use std::time::Duration;

use super::*;
use redrive_core::book::RuleBook;
use redrive_core::book::connectors::built_in;

fn problems(text: &str) -> Vec<String> {
    listed(read(text).problems)
}

fn listed(problems: Problems) -> Vec<String> {
    let shown = |problem: book::problem::Problem| {
        format!("{} {}: {} | {}", problem.span.position, problem.code, problem.message, problem.help)
    };
    problems.into_sorted().into_iter().map(shown).collect()
}

const WHOLE: &str = r#"version: 1
about: All that a scenario may say
duration: 30m
settle: 2h
nodes: 2
arrivals:
  - { type: "orders.placed", rate: 50/s, sessions: 200, spacing: even }
  - { type: "mail.*", wave: { low: 5/s, high: 20/s, every: 1h } }
  - { type: jobs.batch, bursts: { size: 1000, every: 10m }, from: 1m, until: 20m, poison: 5% }
  - { type: clicks, trace: clicks.csv }
dependencies:
  warehouse:
    latency: { p50: 20ms, p99: 200ms }
    capacity: { rate: 200/s, concurrent: 50, queue: 500, collapse: 10% }
    phases:
      - { at: 5m, for: 10m, is: down }
      - { at: 20m, for: 1m, fails: [{ status: 503, share: 30% }, { status: 500, share: 5% }] }
      - { at: 22m, for: 1m, throttled: { rate: 20/s, retry_after: 10s } }
      - { at: 24m, for: 1m, slow: 3s }
      - { at: 25m, for: 1m, is: hanging }
      - { at: 26m, for: 1m, fails: { status: 422 } }
      - { at: 28m, for: 1m, fails: [500] }
faults:
  - { at: 12m, restart: 20s, node: 2 }
  - { at: 15m, store_stall: 10s }
expect: ["dead_letters == 0", "amplification of warehouse < 1.5", "drain < 2m"]
"#;

#[test]
fn a_whole_scenario_is_read() {
    let reading = read(WHOLE);
    let scenario = reading.scenario.unwrap_or_else(|| panic!("{:?}", reading.problems));
    let minutes = Duration::from_mins;
    assert_eq!((scenario.duration, scenario.settle, scenario.nodes), (minutes(30), minutes(120), 2));
    let types: Vec<&str> =
        scenario.arrivals.iter().map(|arrival| arrival.event_type.value.as_str()).collect();
    assert_eq!(types, ["orders.placed", "mail.any", "jobs.batch", "clicks"]);
    let batch = &scenario.arrivals[2];
    assert_eq!((batch.from, batch.until, batch.poison.get()), (minutes(1), minutes(20), 0.05));
    assert_eq!(batch.flow, ArrivalPattern::Bursts { size: 1_000, every: Some(minutes(10)) });
    assert_eq!(scenario.traces().map(|file| file.value.as_str()).collect::<Vec<_>>(), ["clicks.csv"]);
    let warehouse = &scenario.dependencies["warehouse"].value;
    let modes: Vec<&FailureMode> = warehouse.phases.iter().map(|phase| &phase.mode).collect();
    let three = Duration::from_secs(3);
    assert_eq!(*modes[0], FailureMode::Down);
    assert!(matches!(modes[1], FailureMode::Failing(shares) if shares.len() == 2));
    assert!(matches!(modes[2], FailureMode::Throttled { retry_after: Some(_), .. }));
    assert_eq!(*modes[3], FailureMode::Slow(Latency { p50: three, p99: three }));
    assert_eq!(*modes[4], FailureMode::Hanging);
    assert_eq!(*modes[5], FailureMode::Failing(vec![(422, Share::ALL)]));
    assert_eq!(*modes[6], FailureMode::Failing(vec![(500, Share::ALL)]));
    let kinds: Vec<_> = scenario.faults.iter().map(|fault| (fault.kind, fault.node)).collect();
    assert_eq!(kinds, [(FaultKind::Restart, Some(2)), (FaultKind::StoreStall, None)]);
    assert_eq!(scenario.expectations.len(), 3);
    let played = scenario.with_trace("clicks.csv", &[three]);
    assert!(matches!(&played.arrivals[3].flow, ArrivalPattern::Trace { times, .. } if times.len() == 1));
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_a_cure() {
    let with = |rest: &str| format!("version: 1\nduration: 10m\n{rest}\n");
    let api = |inside: &str| with(&format!("dependencies:\n  api: {{ {inside} }}"));
    #[rustfmt::skip]
    let cases = [
        ("nothing at all",           String::new(),
            "0:0 empty-scenario: the file is empty | examples/scenarios has some to start from"),
        ("no duration",              "version: 1\n".to_owned(),
            "1:1 missing-key: a scenario needs `duration` | `duration`: How long events arrive, such as 30m."),
        ("no time",                  "version: 1\nduration: 0s\n".to_owned(),
            "2:11 out-of-range: `duration` must be greater than zero | state how long events arrive, such as 30m"),
        ("an unknown key",           with("durations: 1m"),
            "3:1 unknown-key: unknown key `durations` of a scenario | did you mean `duration`?"),
        ("a bad rate",               with("arrivals: [{ type: a.b, rate: fast }]"),
            "3:31 bad-rate: "),
        ("two flows",                with("arrivals: [{ type: a.b, rate: 1/s, bursts: { size: 1 } }]"),
            "3:12 one-of: an arrival has more than one kind | give exactly one of `rate`, `wave`, `bursts`, `trace`"),
        ("no flow",                  with("arrivals: [{ type: a.b }]"),
            "3:12 one-of: an arrival needs a kind | give exactly one of"),
        ("a wave upside down",       with("arrivals: [{ type: a.b, wave: { low: 9/s, high: 1/s } }]"),
            "3:49 out-of-range: `high` (1/s) is below `low` (9/s) |"),
        ("a wave of no length",      with("arrivals: [{ type: a.b, wave: { low: 1/s, high: 2/s, every: 0s } }]"),
            "3:61 out-of-range: `every` must be greater than zero | such as 10m"),
        ("spacing of a burst",       with("arrivals: [{ type: a.b, bursts: { size: 1 }, spacing: even }]"),
            "3:55 excluded-key: `spacing` applies to `rate` and `wave` only"),
        ("it ends before it begins", with("arrivals: [{ type: a.b, rate: 1/s, from: 5m, until: 1m }]"),
            "3:53 out-of-range: `until` is not after `from`, so nothing arrives |"),
        ("too many events",          with("arrivals: [{ type: a.b, rate: 1000000/s }]"),
            "3:12 too-many-events: the scenario has more than 100,000,000 events |"),
        ("quantiles upside down",    api("latency: { p50: 2s, p99: 1s }"),
            "4:35 out-of-range: `p99` is below `p50` |"),
        ("calls of no time",         api("latency: { p50: 0s, p99: 1s }"),
            "4:26 out-of-range: `p50` must be greater than zero | such as { p50: 20ms, p99: 200ms }"),
        ("a phase of no time",       api("phases: [{ at: 1m, for: 0s, is: down }]"),
            "4:34 out-of-range: `for` must be greater than zero | such as 10m"),
        ("a status of success",      api("phases: [{ at: 1m, for: 1s, fails: 200 }]"),
            "4:45 out-of-range: `200` is out of range: 300 to 599 |"),
        ("a rule book",              "version: 1\nservices: {}\n".to_owned(),
            "2:1 no-scenario: this is a rule book, not a scenario | pass the scenario first, and the rule book with --rules"),
        ("no limit in a capacity",   api("capacity: { queue: 5 }"),
            "4:20 missing-key: a capacity needs `rate` or `concurrent` | add `rate`, `concurrent` or both"),
        ("phases that overlap",      api("phases: [{ at: 1m, for: 5m, is: down }, { at: 2m, for: 1m, slow: 1s }]"),
            "4:50 phases-overlap: this phase overlaps that on line 4, which lasts until 6m | start one after the other has ended"),
        ("an unknown mode",          api("phases: [{ at: 1m, for: 5m, is: sad }]"),
            "4:42 unknown-word: `sad` is not allowed here | expected one of `down`, `hanging`"),
        ("no mode",                  api("phases: [{ at: 1m, for: 5m }]"),
            "4:19 one-of: a phase needs a kind |"),
        ("more than all calls",      api("phases: [{ at: 1m, for: 5m, fails: [{ status: 503, share: 60% }, { status: 500, share: 50% }] }]"),
            "4:45 out-of-range: the shares of these failures add up to more than 100% |"),
        ("who calls itself",         api("calls: { api: {} }"),
            "4:19 layers: `api` calls `api`: calls in a cycle are never answered | remove the last call"),
        ("a circle",                 with("dependencies:\n  a: { calls: { b: {} } }\n  b: { calls: { c: { attempts: 3 } } }\n  c: { calls: { a: {} } }"),
            "6:17 layers: `a` calls `b` calls `c` calls `a`: calls in a cycle are never answered |"),
        ("too deep",                 with("dependencies:\n  a: { calls: { b: {} } }\n  b: { calls: { c: {} } }\n  c: { calls: { d: {} } }\n  d: { calls: { e: {} } }\n  e: { calls: { f: {} } }"),
            "8:17 layers: `a` calls `b` calls `c` calls `d` calls `e` calls `f`: the chain is longer than 5 |"),
        ("too many attempts",        api("calls: { db: { attempts: 11 } }"),
            "4:35 out-of-range: `11` is out of range: 1 to 10 |"),
        ("a node that is not there", with("faults: [{ at: 1m, restart: 5s, node: 2 }]"),
            "3:39 out-of-range: there is no node 2: the scenario has 1 |"),
        ("faults that overlap",      with("faults: [{ at: 1m, restart: 50s }, { at: 90s, store_stall: 5s }]"),
            "3:36 faults-overlap: this fault overlaps another one of that node |"),
        ("a bad expectation",        with("expect: [\"dead_leters == 0\"]"),
            "3:10 bad-expectation: unknown metric `dead_leters` | did you mean `dead_letters`?"),
        ("an alias",                 with("about: *x"),
            "3:8 yaml-alias: YAML aliases (`*name`) are not supported |"),
    ];
    for (name, text, expected) in cases {
        let found = problems(&text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{name}: {found:#?}");
        assert!(read(&text).scenario.is_none(), "{name}");
    }
}

#[test]
fn what_never_happens_is_warned_of_and_the_rest_is_played() {
    let with = |rest: &str| {
        format!("version: 1\nduration: 10m\nsettle: 5m\n{rest}\narrivals: [{{ type: a.b, rate: 1/s }}]\n")
    };
    let phase = |at: &str| {
        with(&format!("dependencies: {{ api: {{ phases: [{{ at: {at}, for: 1m, is: down }}] }} }}"))
    };
    let arrival = |from: &str| {
        with("").replace(
            "rate: 1/s }",
            &format!("rate: 1/s }}, {{ type: a.c, bursts: {{ size: 5 }}, from: {from} }}"),
        )
    };
    let over = "starts after the end of the run, 10m of events and 5m to settle";
    #[rustfmt::skip]
    let cases = [
        ("an arrival in time",         arrival("599s"), String::new()),
        ("an arrival too late",        arrival("10m"),
            "5:78 never-happens: none of these arrive: the duration is 10m | make `from` earlier, or `duration` longer".to_owned()),
        ("a phase while all settles",  phase("14m"),    String::new()),
        ("a phase after that",         phase("15m"),
            format!("4:39 never-happens: this phase {over} | start the phase earlier, or make `duration` or `settle` longer")),
        ("a fault while all settles",  with("faults: [{ at: 899s, restart: 5s }]"), String::new()),
        ("a fault after that",         with("faults: [{ at: 20m, store_stall: 5s }]"),
            format!("4:16 never-happens: this fault {over} | start the fault earlier, or make `duration` or `settle` longer")),
    ];
    for (name, text, expected) in cases {
        let reading = read(&text);
        assert!(reading.scenario.is_some(), "{name}: {:?}", reading.problems);
        assert_eq!(listed(reading.problems).join("\n"), expected, "{name}");
    }
    let none = "version: 1\nduration: 10m\narrivals: [{ type: a.b, rate: 1/s, from: 10m, until: 20m }]\n";
    assert!(read(none).scenario.is_none(), "nothing would arrive at all");
    assert_eq!(problems(none).len(), 1, "{:?}", problems(none));
}

/// Layers of which each calls all of the next: three hundred million ways lead through them.
#[test]
fn very_many_ways_from_one_to_another_take_no_time() {
    const WIDE: usize = 50;
    let layer = |(name, next): (&str, &str)| {
        let calls: Vec<String> = (0..WIDE).map(|n| format!("{next}{n}: {{}}")).collect();
        let lines = (0..WIDE).map(|n| format!("  {name}{n}: {{ calls: {{ {} }} }}", calls.join(", ")));
        lines.collect::<Vec<_>>().join("\n")
    };
    let layers: Vec<String> = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")].map(layer).to_vec();
    let text = format!("version: 1\nduration: 10m\ndependencies:\n{}\n", layers.join("\n"));
    let found = problems(&text);
    assert!(found.len() == 1 && found[0].contains("more than 1000 calls"), "{found:?}");
}

fn book() -> RuleBook {
    let text = "version: 1\ndependencies: { warehouse: { kind: webhook } }\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    depends_on: warehouse\n    events: [\"orders.*\"]\n";
    book::read(text, built_in()).book.expect("a book")
}

#[test]
fn what_the_book_does_not_know_is_said() {
    let with = |rest: &str| {
        format!("version: 1\nduration: 10m\narrivals: [{{ type: orders.placed, rate: 1/s }}]\n{rest}")
    };
    #[rustfmt::skip]
    let cases = [
        ("all of it fits",       with("dependencies: { warehouse: { latency: 1s } }\n"), None),
        ("a misspelt dependency", with("dependencies: { warehose: { latency: 1s } }\n"),
            Some("4:17 undefined-name: no rule of the book calls a dependency `warehose` | did you mean `warehouse`?")),
        ("a misspelt expectation", with("expect: [\"drain of warehose < 1m\"]\n"),
            Some("4:10 undefined-name: no rule of the book calls a dependency `warehose` | did you mean `warehouse`?")),
        ("what others call",     with("dependencies:\n  warehouse: { calls: { db: { attempts: 3 }, cache: {} } }\n  db: { latency: 1s }\nexpect: [\"calls of cache > 0\"]\n"), None),
        ("all, and what they call", with("dependencies:\n  all: { calls: { warehouse: {} } }\n"),
            Some("5:19 layers: `warehouse` calls `warehouse`: calls in a cycle are never answered |")),
        ("an unrouted type",     "version: 1\nduration: 10m\narrivals: [{ type: order.placed, rate: 1/s }]\n".to_owned(),
            Some("3:20 unwanted-type: no service of the book receives `order.placed` |")),
        ("nothing arrives",      "version: 1\nduration: 10m\n".to_owned(),
            Some("0:0 nothing-arrives: nothing arrives: the scenario has no `arrivals`, and no row of the book has a rate |")),
    ];
    for (name, text, expected) in cases {
        let reading = read(&text);
        let scenario = reading.scenario.unwrap_or_else(|| panic!("{name}: {:?}", reading.problems));
        let found = listed(scenario.misfits(&book()));
        let first = found.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with(expected.unwrap_or_default()), "{name}: {found:#?}");
        assert_eq!(found.len(), usize::from(expected.is_some()), "{name}: {found:#?}");
    }
}

#[test]
fn one_scenario_may_speak_of_all_rows_and_dependencies_of_any_book() {
    let text = "version: 1\nduration: 1m\narrivals: [{ type: \"*\", rate: 1/s }]\ndependencies:\n  all: { latency: 1s }\n  mail: { latency: 2s }\n";
    let wide = "version: 1\nservices:\n  shop:\n    target: { http: \"http://127.0.0.1:9000/\" }\n    events: [orders.placed, \"orders.*\"]\n  mail:\n    target: { http: \"http://127.0.0.1:9001/\" }\n    events: [orders.placed]\n";
    let book = book::read(wide, built_in()).book.expect("a book");
    let scenario = read(text).scenario.expect("a scenario");
    assert!(!scenario.misfits(&book).has_errors(), "{:?}", scenario.misfits(&book));
    let expected = scenario.deliveries_expected(&book);
    assert!((expected - 180.0).abs() < 1e-6, "one type for one of them, one for both: {expected}");
    assert!(scenario.deliveries_at_once(&book) < 1e-6, "there are no bursts");
    let long = read(&text.replace("duration: 1m", "duration: 1000d")).scenario.expect("one");
    let expected = "3:20 too-many-events: with this book the scenario has more than 100,000,000 events |";
    let found = listed(long.misfits(&book));
    assert!(found.len() == 1 && found[0].starts_with(expected), "one type alone is few enough: {found:?}");
    let bursts = read(&text.replace("rate: 1/s", "bursts: { size: 7, every: 10s }")).scenario.expect("one");
    assert!((bursts.deliveries_at_once(&book) - 21.0).abs() < 1e-6, "{}", bursts.deliveries_at_once(&book));
    let completed = scenario.completed_by(&book);
    let types: Vec<&str> =
        completed.arrivals.iter().map(|arrival| arrival.event_type.value.as_str()).collect();
    assert_eq!(types, ["orders.any", "orders.placed"], "one for each row, and none twice");
    let p50s: Vec<(&str, u64)> = completed
        .dependencies
        .iter()
        .map(|(name, at)| (name.as_str(), at.value.latency.expect("it has one").p50.as_secs()))
        .collect();
    assert_eq!(p50s, [("mail", 2), ("shop", 1)]);
}

#[test]
fn any_bytes_end_in_a_scenario_or_in_problems() {
    for cut in 0..WHOLE.len() {
        let Some(text) = WHOLE.get(..cut) else { continue };
        let reading = read(text);
        assert_eq!(reading.scenario.is_none(), reading.problems.has_errors(), "cut at {cut}");
    }
    assert!(read_bytes(&[0xff, 0xfe]).problems.has_errors());
}

#[test]
fn a_fact_of_the_book_is_the_latency_wherever_it_stands() {
    let usual = Latency::USUAL.p99.as_millis();
    #[rustfmt::skip]
    let cases = [
        ("nowhere",                         "",                       "",                      "",                      usual),
        ("on the dependency",               ", facts: { p99: 1s }",   "",                      "",                      1_000),
        ("on the service",                  "",                       "facts: { p99: 2s }, ",  "",                      2_000),
        ("on a row",                        "",                       "",                      ", facts: { p99: 3s }",  3_000),
        ("the longest of those who call",   "",                       "facts: { p99: 4s }, ",  ", facts: { p99: 3s }",  4_000),
        ("the dependency's own before all", ", facts: { p99: 1s }",   "facts: { p99: 4s }, ",  ", facts: { p99: 3s }",  1_000),
    ];
    for (name, dependency, service, row, expected) in cases {
        let text = format!(
            "version: 1\ndependencies: {{ api: {{ kind: webhook{dependency} }} }}\nservices:\n  shop: {{ target: {{ http: \"http://127.0.0.1:9000/\" }}, depends_on: api, {service}events: [a.b, {{ type: a.c{row} }}] }}\n"
        );
        let reading = book::read(&text, built_in());
        let book = reading.book.unwrap_or_else(|| panic!("{name}: {:?}", reading.problems));
        let scenario = read("version: 1\nduration: 1m\narrivals: [{ type: a.b, rate: 1/s }]\n")
            .scenario
            .expect("a scenario");
        let api = DependencyName::new("api").expect("a name");
        let latency =
            scenario.completed_by(&book).dependencies[&api].value.latency.expect("every one has one");
        assert_eq!(latency.p99.as_millis(), expected, "{name}");
    }
}

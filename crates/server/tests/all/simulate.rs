//! `redrive simulate`: what it shows, what it refuses, and that every ready scenario fits every book of the examples.

use serde_json::Value;

use crate::examples::SYSTEMS;
use crate::run::{Folder, redrive};

pub(super) const BOOK: &str = "\
version: 1
retry_policies:
  steps: { delays: [1s, 2s, 4s], retries: 3, jitter: none }
dependencies:
  warehouse: { kind: webhook, breaker: none }
services:
  shop:
    target: { http: \"http://127.0.0.1:9000/\" }
    depends_on: warehouse
    retry: steps
    events: [\"orders.*\"]
";

pub(super) const OUTAGE: &str = "\
version: 1
about: The warehouse is down for a while
duration: 2m
arrivals: [{ type: orders.placed, rate: 10/s, spacing: even }]
dependencies:
  warehouse: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }
expect: [\"dead_letters == 0\", \"amplification < 2\"]
";

fn folder() -> Folder {
    let folder = Folder::with("redrive.yaml", BOOK);
    folder.write("outage.yaml", OUTAGE);
    folder
}

#[test]
fn an_outage_is_shown_with_what_would_help() {
    insta::assert_snapshot!(folder().run(&["simulate", "outage.yaml"]).printed(), @r#"
    The warehouse is down for a while
    2m of events · 1 node · seed 1

    1,200 deliveries: 1,070 delivered, 130 dead
      latency    p50 20ms  p90 20ms  p99 7s20ms  max 7s20ms
      attempts   1× 1,000  2× 10  3× 20  4× 170
      repeats    0 duplicate side effects, 0 out of order

    warehouse
      calls      ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▄▆▆████████▄▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂  up to 40/s, 1.47 attempts each
      failed     ···············▄▆▆███████···································  690 (39.2%)
      waiting    ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▃▅▇████████▃▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁  up to 71
      in flight  ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▄▄▄▄▄▄▄▄▄▄█▄▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂  up to 4
      call time  ███████████████▁▁▁▁▁▁▁▁▁▁███████████████████████████████████  p50 20ms, p99 20ms

    each column is 2s

    ✗ `shop`: 130 of its 1,200 deliveries (10.8%) became dead letters with MAX_RETRIES_EXCEEDED after CONNECTION_REFUSED
        with `retry: critical` for `shop`: dead_letters 130 → 0, at the cost of 1.1 times the calls
        with `breaker: externalBreaker` on `warehouse`: dead_letters 130 → 0
    ! `warehouse`: retries multiply the load by 4.0 for 4s after recovery (up to 40/s)
        with `retry_budget: 10%` on `warehouse`: calls per second after recovery 40 → 22
    ✓ `warehouse`: drained 4s after recovery; up to 71 deliveries waiting
        changes verified with each of 5 seeds

    ✗ expected dead_letters == 0: 130
    ✓ expected amplification < 2: 1.47
    "#);
}

#[test]
fn a_backlog_that_grows_is_reported() {
    let folder = folder();
    let throttled = OUTAGE.replace("for: 20s, is: down", "for: 1d, throttled: { rate: 3/s }");
    folder.write("outage.yaml", throttled);
    let run =
        |words: &[&str]| folder.run(&[&["simulate", "outage.yaml", "--no-advice"], words].concat()).printed();
    let text = run(&[]);
    assert!(text.contains("✗ `warehouse`: the backlog grows while events arrive"), "{text}");
    let report: Value = serde_json::from_str(&run(&["--format", "json"])).expect("JSON");
    assert!(report.to_string().contains("growing-backlog"), "{report}");
}

#[test]
fn an_expectation_that_fails_ends_with_1_if_asked() {
    let folder = folder();
    let asked = folder.run(&["simulate", "outage.yaml", "--expect", "--no-advice"]);
    assert_eq!(asked.code, 1, "{}", asked.stderr);
    assert!(asked.stdout.contains("✗ expected dead_letters == 0"), "{}", asked.stdout);
    assert!(asked.stdout.contains("✓ expected amplification < 2"), "{}", asked.stdout);
    assert_eq!(folder.run(&["simulate", "outage.yaml", "--no-advice"]).code, 0, "nobody asked");
    let met = OUTAGE.replace("dead_letters == 0", "dead_letters < 1000");
    folder.write("met.yaml", met);
    let met = folder.run(&["simulate", "met.yaml", "--expect", "--no-advice"]);
    assert_eq!((met.code, met.stderr.as_str()), (0, ""));
    let (nothing, _) = OUTAGE.split_once("expect:").expect("it expects something");
    folder.write("nothing.yaml", nothing);
    for more in [&[][..], &["--runs", "2"], &["--sweep", "retries.steps.retries=1,2"]] {
        let told = folder.run(&[&["simulate", "nothing.yaml", "--expect", "--no-advice"], more].concat());
        let warning = "warning: nothing.yaml has no expectations, so --expect has no effect: add `expect`\n";
        assert_eq!((told.code, told.stderr.as_str()), (0, warning), "{more:?}");
    }
}

#[test]
fn there_are_only_so_many_seeds() {
    let last = u64::MAX.to_string();
    let run = |runs: &str| {
        folder().run(&["simulate", "outage.yaml", "--no-advice", "--seed", &last, "--runs", runs])
    };
    assert_eq!(run("1").code, 0);
    let refused = run("2").refused();
    assert!(refused.contains("--seed 18446744073709551615: too large for 2 runs"), "{refused}");
}

#[test]
fn machines_get_the_same_json_for_the_same_seed() {
    let folder = folder();
    let told =
        |seed: &str| folder.run(&["simulate", "outage.yaml", "--format", "json", "--seed", seed]).printed();
    assert_eq!(told("7"), told("7"));
    let report: Value = serde_json::from_str(&told("7")).expect("JSON");
    assert_eq!(report["deliveries"], 1_200);
    assert_eq!(report["order_violations"], 0);
    let sum = |key: &str| report[key].as_u64().expect("a count");
    assert_eq!(sum("deliveries"), sum("delivered") + sum("dead") + sum("waiting"));
    let steps = report["dependencies"][0]["series"]["calls"].as_array().expect("a series").len();
    assert_eq!(steps as u64, sum("ended_at_ms") / sum("step_ms") + 1);
    assert!(report["findings"].as_array().is_some_and(|findings| !findings.is_empty()));
}

#[test]
fn many_runs_come_as_ranges_in_the_order_of_their_seeds() {
    let folder = folder();
    let arguments = ["simulate", "outage.yaml", "--runs", "5", "--format", "json"];
    let told = folder.run(&arguments).printed();
    assert_eq!(told, folder.run(&arguments).printed(), "whichever thread was quicker");
    let ranges: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((ranges["runs"].as_u64(), &ranges["seeds"]), (Some(5), &serde_json::json!([1, 5])));
    assert_eq!(ranges["expectations"][1]["met"], 5);
    let failed = folder.run(&["simulate", "outage.yaml", "--runs", "2", "--expect"]);
    assert_eq!(failed.code, 1);
    assert!(failed.stdout.contains("✗ expected dead_letters == 0: in 0 of 2 runs"), "{}", failed.stdout);
}

#[test]
fn what_is_wrong_with_a_scenario_is_shown_where_it_stands() {
    let folder = folder();
    folder.write("bad.yaml", "version: 1\nduration: 10m\narrivals: [{ type: orders.placed, rate: fast }]\n");
    insta::assert_snapshot!(folder.run(&["simulate", "bad.yaml"]).refused(), @r#"
    error[bad-rate]: `fast` is not a rate: write a number above 0 per second, minute or hour, such as 20/s, 10/m or 100/h
     --> bad.yaml:3:41
      |
    3 | arrivals: [{ type: orders.placed, rate: fast }]
      |                                         ^^^^

    error: bad.yaml has errors: fix these errors first
    "#);
    folder.write("misfit.yaml", OUTAGE.replace("warehouse:", "warehose:"));
    insta::assert_snapshot!(folder.run(&["simulate", "misfit.yaml"]).refused(), @r#"
    error[undefined-name]: no rule of the book calls a dependency `warehose`
     --> misfit.yaml:6:3
      |
    6 |   warehose: { latency: 20ms, phases: [{ at: 30s, for: 20s, is: down }] }
      |   ^^^^^^^^
      |
      = help: did you mean `warehouse`?

    error: misfit.yaml does not fit redrive.yaml: fix one of them first
    "#);
}

#[test]
fn what_never_happens_is_warned_of_and_the_rest_is_played() {
    let folder = folder();
    folder.write(
        "late.yaml",
        OUTAGE.replace("at: 30s", "at: 3h").replace("duration: 2m", "duration: 2m\nsettle: 1h"),
    );
    let run = folder.run(&["simulate", "late.yaml", "--no-advice"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("1,200 deliveries: 1,200 delivered"), "{}", run.stdout);
    insta::assert_snapshot!(run.stderr, @r#"
    warning[never-happens]: this phase starts after the end of the run, 2m of events and 1h to settle
     --> late.yaml:7:46
      |
    7 |   warehouse: { latency: 20ms, phases: [{ at: 3h, for: 20s, is: down }] }
      |                                              ^^
      |
      = help: start the phase earlier, or make `duration` or `settle` longer
    "#);
}

/// Mistakes that people make.
fn mistakes() -> Vec<(&'static str, String)> {
    let with = |rest: &str| format!("version: 1\nduration: 10m\n{rest}\n");
    let api = |phase: &str| {
        with(&format!(
            "arrivals: [{{ type: orders.x, rate: 1/s }}]\ndependencies: {{ warehouse: {{ phases: [{phase}] }} }}"
        ))
    };
    #[rustfmt::skip]
    let cases = [
        ("a unit nobody knows",   "version: 1\nduration: 10min\n".to_owned()),
        ("no unit",               "version: 1\nduration: 10\n".to_owned()),
        ("less than nothing",     "version: 1\nduration: -10m\n".to_owned()),
        ("for ever",              "version: 1\nduration: 99999999999999999999d\n".to_owned()),
        ("twice",                 "version: 1\nduration: 10m\nduration: 20m\n".to_owned()),
        ("a misspelt key",        with("arrival: []")),
        ("a rate of 0",           with("arrivals: [{ type: orders.x, rate: 0/s }]")),
        ("a tab",                 with("arrivals:\n\t- { type: orders.x, rate: 1/s }")),
        ("more than all",         with("arrivals: [{ type: orders.x, rate: 1/s, poison: 120% }]")),
        ("a type nobody wants",   with("arrivals: [{ type: order.placed, rate: 1/s }]")),
        ("phases that overlap",   api("{ at: 1m, for: 5m, is: down }, { at: 2m, for: 1m, slow: 1s }")),
        ("a phase of no length",  api("{ at: 1m, for: 0s, is: down }")),
        ("a word as a key",       api("{ at: 1m, for: 1m, down: true }")),
        ("a status of success",   api("{ at: 1m, for: 1m, fails: 200 }")),
        ("a misspelt metric",     with("expect: [\"dead_leters == 0\"]")),
        ("an expectation, no list", with("expect: drain < 2m")),
        ("a rule book",           BOOK.to_owned()),
    ];
    cases.into()
}

/// What people are told of them: the first line, the place and the cure.
fn told_of_mistakes() -> String {
    let folder = folder();
    let mut told = String::new();
    for (name, text) in mistakes() {
        folder.write("mistake.yaml", text);
        told.push_str(&format!("{name}\n"));
        for line in folder.run(&["simulate", "mistake.yaml"]).refused().lines().map(str::trim_start) {
            if ["error[", "--> ", "= help"].iter().any(|start| line.starts_with(start)) {
                told.push_str(&format!("  {line}\n"));
            }
        }
    }
    told
}

#[test]
fn plausible_mistakes_are_met_with_their_cure() {
    insta::assert_snapshot!(told_of_mistakes(), @r#"
    a unit nobody knows
      error[bad-duration]: `10min` is not a duration: write a number and a unit, such as 500ms, 30s, 5m, 24h, 7d or 1h30m
      --> mistake.yaml:2:11
    no unit
      error[bad-duration]: `10` has no unit: write `10s` or `10ms`
      --> mistake.yaml:2:11
    less than nothing
      error[bad-duration]: `-10m` is not a duration: write a number and a unit, such as 500ms, 30s, 5m, 24h, 7d or 1h30m
      --> mistake.yaml:2:11
    for ever
      error[bad-duration]: `99999999999999999999d` is longer than ten years
      --> mistake.yaml:2:11
    twice
      error[duplicate-key]: duplicate key `duration`, first defined on line 2
      --> mistake.yaml:3:1
      = help: keep one of them
    a misspelt key
      error[unknown-key]: unknown key `arrival` of a scenario
      --> mistake.yaml:3:1
      = help: did you mean `arrivals`?
    a rate of 0
      error[bad-rate]: `0/s` is not a rate: write a number above 0 per second, minute or hour, such as 20/s, 10/m or 100/h
      --> mistake.yaml:3:36
    a tab
      error[yaml-syntax]: this line is indented with a tab
      --> mistake.yaml:4:1
      = help: indent with spaces; YAML does not allow tabs here
    more than all
      error[bad-share]: `120%` is not a share: write a percentage between 0% and 100%, such as 50%
      --> mistake.yaml:3:49
    a type nobody wants
      error[unwanted-type]: no service of the book receives `order.placed`
      --> mistake.yaml:3:20
      = help: expected one of `orders.*`
    phases that overlap
      error[phases-overlap]: this phase overlaps that on line 4, which lasts until 6m
      --> mistake.yaml:4:70
      = help: start one after the other has ended
    a phase of no length
      error[out-of-range]: `for` must be greater than zero
      --> mistake.yaml:4:54
      = help: such as 10m
    a word as a key
      error[one-of]: a phase needs a kind
      --> mistake.yaml:4:39
      = help: give exactly one of `is`, `slow`, `fails`, `throttled`
      error[unknown-key]: unknown key `down` of a phase
      --> mistake.yaml:4:58
      = help: expected one of `at`, `fails`, `for`, `is`, `slow`, `throttled`
    a status of success
      error[out-of-range]: `200` is out of range: 300 to 599
      --> mistake.yaml:4:65
    a misspelt metric
      error[bad-expectation]: unknown metric `dead_leters`
      --> mistake.yaml:3:10
      = help: did you mean `dead_letters`?
    an expectation, no list
      error[wrong-type]: expected a list, got `drain < 2m`
      --> mistake.yaml:3:9
      = help: write [drain < 2m]
    a rule book
      error[no-scenario]: this is a rule book, not a scenario
      --> mistake.yaml:6:1
      = help: pass the scenario first, and the rule book with --rules
    "#);
}

#[test]
fn a_mark_of_the_order_of_bytes_is_no_mistake() {
    let folder = folder();
    folder.write("marked.yaml", format!("\u{feff}{OUTAGE}"));
    let marked = folder.run(&["simulate", "marked.yaml", "--no-advice"]);
    assert_eq!(marked.code, 0, "{}", marked.stderr);
}

#[test]
fn files_that_are_not_there_are_named() {
    let folder = folder();
    let missing = folder.run(&["simulate", "missing.yaml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("could not read missing.yaml: no such file"), "{}", missing.stderr);
    folder.write(
        "traced.yaml",
        "version: 1\nduration: 1m\narrivals: [{ type: orders.placed, trace: times.csv }]\n",
    );
    let untraced = folder.run(&["simulate", "traced.yaml"]);
    assert_eq!(untraced.code, 2);
    assert!(untraced.stderr.contains("error[no-trace]: could not read times.csv"), "{}", untraced.stderr);
    assert!(untraced.stderr.contains("--> traced.yaml:3:42"), "where it is named: {}", untraced.stderr);
    folder.write("times.csv", "seconds\n1\n2.5\nsoon\n");
    let bad = folder.run(&["simulate", "traced.yaml"]).refused();
    assert!(bad.contains("error[bad-trace]: times.csv is not a valid trace: line 4: \"soon\""), "{bad}");
    folder.write("times.csv", "90\n91\n");
    let late = folder.run(&["simulate", "traced.yaml"]).refused();
    assert!(late.contains("the first arrival of times.csv is at 90s, but the scenario ends at 1m"), "{late}");
    folder.write("times.csv", "seconds\n1\n2.5\n");
    let played = folder.run(&["simulate", "traced.yaml"]).printed();
    assert!(played.contains("2 deliveries: 2 delivered"), "{played}");
}

#[test]
fn every_ready_scenario_fits_the_books_of_every_system() {
    let scenarios =
        ["outage", "brown-out", "throttling", "bad-deploy", "slow", "poison-burst", "thundering-herd"];
    for scenario in scenarios {
        for book in SYSTEMS {
            let scenario = format!("examples/scenarios/{scenario}.yaml");
            let rules = crate::examples::path(book).display().to_string();
            let played = redrive(&[
                "simulate",
                &scenario,
                "--rules",
                &rules,
                "--expect",
                "--no-advice",
                "--format",
                "json",
            ]);
            let name = format!("{scenario} with {rules}");
            assert_eq!(played.code, 0, "{name}: {}{}", played.stderr, played.stdout);
            let report: Value = serde_json::from_str(&played.stdout).expect("JSON");
            assert!(report["deliveries"].as_u64().is_some_and(|count| count > 1_000), "{name}");
        }
    }
}

#[test]
fn whoever_mixes_up_scenario_and_rules_is_told_so() {
    let folder = folder();
    for option in ["--rules", "--against"] {
        let run = folder.run(&["simulate", "redrive.yaml", option, "outage.yaml"]);
        assert_eq!(run.code, 2, "{option}");
        let expected = "outage.yaml is a scenario, not a rule book: pass the scenario first";
        assert!(run.stderr.contains(expected), "{option}: {}", run.stderr);
    }
}

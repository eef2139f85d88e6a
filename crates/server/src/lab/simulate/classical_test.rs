//! Classical results about retries, run by the simulator over many seeds; `docs/what-retries-do.md` shows
//! them. The data of its pictures is written to `docs/images/charts.json`, and `e2e/pictures.test.js` draws
//! them with the page's own charts.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use redrive_core::book;
use redrive_core::book::connectors::built_in;
use redrive_lab::scenario;
use redrive_lab::simulate::report::DependencyReport;
use redrive_lab::simulate::{Go, SimulationPlan, SimulationReport, run};
use serde_json::{Value, json};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs a scenario of `examples/scenarios/classical` with one of the books beside it.
fn played(scenario: &str, book: &str, seed: u64) -> SimulationReport {
    let text = read(&format!("examples/scenarios/classical/{scenario}.yaml"));
    let reading = scenario::read(&text);
    let scenario = reading.scenario.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems));
    let text = read(&format!("examples/scenarios/classical/books/{book}.yaml"));
    let reading = book::read(&text, built_in());
    let book = Arc::new(reading.book.unwrap_or_else(|| panic!("{text}\n{:?}", reading.problems)));
    assert!(!scenario.misfits(&book).has_errors(), "{:?}", scenario.misfits(&book));
    run(&SimulationPlan { scenario: &scenario, book, seed }, &mut |_| Go::On).expect("never cancelled")
}

fn of<'a>(report: &'a SimulationReport, name: &str) -> &'a DependencyReport {
    report.dependencies.iter().find(|dependency| dependency.name == name).expect("it is in the report")
}

/// Seconds from the end of the only fault until recovery.
fn drain(report: &SimulationReport, name: &str) -> Option<f64> {
    of(report, name).troubles[0].drain_ms.map(|millis| millis as f64 / 1_000.0)
}

/// Start of each step in seconds, and its figure per second.
type Part = Vec<(f64, f64)>;

fn between(report: &SimulationReport, steps: &[u64], from: u64, until: u64) -> Part {
    let step = report.step_ms as f64 / 1_000.0;
    let part = steps.iter().enumerate().map(|(place, count)| (place as f64 * step, *count as f64 / step));
    part.filter(|(at, _)| (from as f64..until as f64).contains(at)).collect()
}

fn most(part: &Part) -> f64 {
    part.iter().map(|(_, figure)| *figure).fold(0.0, f64::max)
}

fn mean(part: &[(f64, f64)]) -> f64 {
    part.iter().map(|(_, figure)| figure).sum::<f64>() / part.len() as f64
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

// --- What is shown -----------------------------------------------------------------------------

/// A line of figures per second, each the mean over so many steps.
fn line(name: &str, (tone, look): (&str, &str), part: &Part, over: usize) -> Value {
    let points: Part = part.chunks(over).map(|chunk| (chunk[0].0, mean(chunk))).collect();
    json!({ "name": name, "tone": tone, "look": look, "points": points })
}

type Outage = (f64, f64);

/// A chart as the page's `simulation/chart.js` takes it.
fn chart(title: &str, unit: &str, lines: &[Value], (from, to): Outage, limit: f64) -> Value {
    json!({
        "title": title,
        "y": { "unit": "number", "name": unit },
        "lines": lines,
        "bands": [{ "name": "down", "tone": "bad", "from": from, "to": to }],
        "limits": [{ "name": "what it can take", "at": limit }],
    })
}

/// Compares a file of the docs, or writes it with `REDRIVE_UPDATE`.
#[track_caller]
fn assert_up_to_date(path: &str, made: &str) {
    let file = root().join(path);
    if std::env::var_os("REDRIVE_UPDATE").is_some() {
        fs::write(&file, made).expect("the docs can be written");
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == made,
        "{path} is out of date: run REDRIVE_UPDATE=1 cargo test -p redrive-server up_to_date"
    );
}

fn with_table(page: &str, name: &str, table: &str) -> String {
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&open).unwrap_or_else(|| panic!("the page has a place for {name}"));
    let (_, after) = rest.split_once(&close).unwrap_or_else(|| panic!("the place for {name} has an end"));
    format!("{before}{open}{table}{close}{after}")
}

// --- Jitter ------------------------------------------------------------------------------------

const JITTERS: [&str; 3] = ["none", "equal", "full"];

const BACK_AT: u64 = 14;

/// The five hundred earlier arrivals would dwarf the rest.
const SHOWN_FROM: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Spread {
    calls: f64,
    /// The busiest second after recovery.
    busiest: f64,
    drain: f64,
}

fn spread(jitter: &str, seed: u64) -> Spread {
    let report = played("jitter", &format!("jitter-{jitter}"), seed);
    assert_eq!((report.delivered, report.waiting), (500, 0), "{jitter}, seed {seed}");
    let stock = of(&report, "stock");
    let after = between(&report, &stock.series.calls, BACK_AT, 600);
    Spread {
        calls: stock.calls as f64,
        busiest: most(&after),
        drain: drain(&report, "stock").expect("it drains"),
    }
}

/// Each jitter over ten seeds.
fn spreads() -> [Vec<Spread>; 3] {
    JITTERS.map(|jitter| (1..=10).map(|seed| spread(jitter, seed)).collect())
}

fn middle_of(spreads: &[Spread], figure: fn(&Spread) -> f64) -> f64 {
    middle(spreads.iter().map(figure).collect())
}

#[test]
fn jitter_turns_waves_into_a_stream() {
    let [none, equal, full] = spreads();
    for (seed, ((none, equal), full)) in none.iter().zip(&equal).zip(&full).enumerate() {
        let found = format!("seed {}: {none:?} {equal:?} {full:?}", seed + 1);
        assert!(none.drain > 4.0 * equal.drain.max(full.drain), "{found}");
        assert!(none.busiest > 2.0 * equal.busiest.max(full.busiest), "{found}");
        assert!(none.calls > 1.2 * equal.calls.max(full.calls), "{found}");
    }
    let drain = |spreads: &[Spread]| middle_of(spreads, |spread| spread.drain);
    assert!(drain(&equal) > 1.1 * drain(&full), "{} beside {}", drain(&equal), drain(&full));
}

fn table_of_jitter() -> String {
    let mut out =
        "| jitter | calls in all | busiest second once it is back | drained after |\n| --- | ---: | ---: | ---: |\n"
            .to_owned();
    for (jitter, spreads) in JITTERS.iter().zip(spreads()) {
        let of = |figure: fn(&Spread) -> f64| middle_of(&spreads, figure);
        let (calls, busiest, drain) =
            (of(|spread| spread.calls), of(|spread| spread.busiest), of(|spread| spread.drain));
        let _ = writeln!(out, "| `{jitter}` | {calls:.0} | {busiest:.0} | {drain:.0} s |");
    }
    out
}

fn picture_of_jitter() -> Value {
    let tones = [("bad", "filled"), ("warn", "dashed"), ("info", "solid")];
    let lines = JITTERS.iter().zip(tones).map(|(jitter, drawn)| {
        let report = played("jitter", &format!("jitter-{jitter}"), 1);
        let calls = between(&report, &of(&report, "stock").series.calls, SHOWN_FROM, 80);
        line(&format!("jitter: {jitter}"), drawn, &calls, 1)
    });
    let down = (SHOWN_FROM as f64, BACK_AT as f64);
    chart("Retries after an outage", "calls in a second", &lines.collect::<Vec<Value>>(), down, 50.0)
}

// --- Layers ------------------------------------------------------------------------------------

const LAYERS: [&str; 3] = ["edge", "service", "database"];

const GUARDS: [(&str, &str); 3] =
    [("bare", "nothing"), ("budget", "a retry budget"), ("breaker", "a breaker")];

/// The database is down, and three attempts of each delivery are due every second.
const DOWN: (u64, u64) = (35, 90);

/// Calls per second during the outage.
fn in_outage(report: &SimulationReport, name: &str) -> f64 {
    mean(&between(report, &of(report, name).series.calls, DOWN.0, DOWN.1))
}

#[test]
fn layers_multiply_retries_unless_the_edge_holds_them_back() {
    let reports = GUARDS.map(|(guard, _)| played("layers", &format!("layers-{guard}"), 1));
    let factors = LAYERS.map(|name| in_outage(&reports[0], name) / 5.0);
    for (factor, expected) in factors.into_iter().zip([3.0, 9.0, 27.0]) {
        assert!((factor - expected).abs() < 1e-9, "{factor} is not {expected}");
    }
    let [bare, budget, breaker] = reports.each_ref().map(|report| in_outage(report, "database"));
    assert!(budget < 0.6 * bare, "{budget} beside {bare}");
    assert!(breaker < 0.05 * bare, "{breaker} beside {bare}");
    let dead = reports.map(|report| report.dead);
    assert!(dead[0] > 200 && dead[1] < 30 && dead[2] < 5, "{dead:?}");
}

fn table_of_layers() -> String {
    let mut out = "| what holds the edge back | edge | service | database | dead | drained after |\n| --- | ---: | ---: | ---: | ---: | ---: |\n".to_owned();
    for (guard, words) in GUARDS {
        let report = played("layers", &format!("layers-{guard}"), 1);
        let [edge, service, database] = LAYERS.map(|name| in_outage(&report, name));
        let drain =
            drain(&report, "edge").map_or_else(|| "never".to_owned(), |drain| format!("{drain:.0} s"));
        let dead = report.dead;
        let _ =
            writeln!(out, "| {words} | {edge:.1}/s | {service:.1}/s | {database:.1}/s | {dead} | {drain} |");
    }
    out
}

fn picture_of_layers() -> Value {
    let report = played("layers", "layers-bare", 1);
    let tones = ["info", "warn", "bad"];
    let lines = LAYERS.iter().zip(tones).map(|(name, tone)| {
        line(name, (tone, "solid"), &between(&report, &of(&report, name).series.calls, 0, 120), 1)
    });
    let title = "Five deliveries in a second, three attempts at each of three layers";
    chart(title, "calls in a second", &lines.collect::<Vec<Value>>(), (30.0, 90.0), 100.0)
}

fn picture_of_guards() -> Value {
    let tones = [("bad", "filled"), ("warn", "dashed"), ("good", "solid")];
    let lines = GUARDS.iter().zip(tones).map(|((guard, words), drawn)| {
        let report = played("layers", &format!("layers-{guard}"), 1);
        line(words, drawn, &between(&report, &of(&report, "database").series.calls, 0, 150), 1)
    });
    let title = "The database, by what holds the edge back";
    chart(title, "calls in a second", &lines.collect::<Vec<Value>>(), (30.0, 90.0), 100.0)
}

// --- A state that keeps itself -----------------------------------------------------------------

/// With all but the first, everything is delivered.
const CURES: [(&str, &str); 4] = [
    ("bare", "nothing"),
    ("budget", "a retry budget"),
    ("breaker", "a breaker"),
    ("few", "a breaker and few calls at once"),
];

/// A breaker that releases at once what it held back.
const FLOOD: (&str, &str) = ("flood", "a breaker without a ramp");

#[test]
fn a_storm_outlives_its_cause_unless_something_holds_it_back() {
    for seed in 1..=3 {
        let report = played("metastable", "metastable-bare", seed);
        assert_eq!(drain(&report, "stock"), None, "seed {seed}: two minutes later it is no better");
        let last = mean(&between(&report, &of(&report, "stock").series.well, 120, 180));
        assert!(last < 1.0, "seed {seed}: {last} of 10 in a second arrive in the last minute");
    }
    for (cure, _) in &CURES[1..] {
        for seed in 1..=20 {
            let report = played("metastable", &format!("metastable-{cure}"), seed);
            assert_eq!((report.dead, report.waiting), (0, 0), "{cure}, seed {seed}");
            assert!(drain(&report, "stock").is_some_and(|drain| drain < 120.0), "{cure}, seed {seed}");
        }
    }
}

fn table_of_storms() -> String {
    let mut out =
        "| what holds retries back | calls in all | took effect again | delivered | drained after |\n| --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    let [nothing, budget, breaker, few] = CURES;
    for (cure, words) in [nothing, budget, FLOOD, breaker, few] {
        let report = played("metastable", &format!("metastable-{cure}"), 1);
        let drain =
            drain(&report, "stock").map_or_else(|| "never".to_owned(), |drain| format!("{drain:.0} s"));
        let share = 100.0 * report.delivered as f64 / report.deliveries as f64;
        let (calls, again) = (of(&report, "stock").calls, report.duplicates);
        let _ = writeln!(out, "| {words} | {calls} | {again} | {share:.0}% | {drain} |");
    }
    out
}

fn pictures_of_storms() -> [Value; 2] {
    let tones = [("bad", "filled"), ("warn", "dashed"), ("good", "solid")];
    let lines = |figure: fn(&DependencyReport) -> &[u64]| {
        let lines = CURES.iter().zip(tones).map(|((cure, words), drawn)| {
            let report = played("metastable", &format!("metastable-{cure}"), 1);
            line(words, drawn, &between(&report, figure(of(&report, "stock")), 0, 180), 4)
        });
        lines.collect::<Vec<Value>>()
    };
    let well = lines(|stock| &stock.series.well);
    let calls = lines(|stock| &stock.series.calls);
    [
        chart("What gets done", "calls that end well in a second", &well, (20.0, 40.0), 20.0),
        chart("What it takes", "calls in a second", &calls, (20.0, 40.0), 20.0),
    ]
}

/// Update with `REDRIVE_UPDATE=1 cargo test -p redrive-server up_to_date`.
#[test]
fn what_retries_do_is_up_to_date() {
    let [well, calls] = pictures_of_storms();
    let pictures = [
        ("jitter", picture_of_jitter()),
        ("layers", picture_of_layers()),
        ("layers-held-back", picture_of_guards()),
        ("storm-done", well),
        ("storm-calls", calls),
    ];
    let charts = pictures.map(|(name, chart)| format!("\"{name}\": {chart}")).join(",\n");
    assert_up_to_date("docs/images/charts.json", &format!("{{\n{charts}\n}}\n"));
    let mut page = read("docs/what-retries-do.md");
    let tables = [("jitter", table_of_jitter()), ("layers", table_of_layers()), ("storm", table_of_storms())];
    for (name, table) in tables {
        page = with_table(&page, name, &table);
    }
    assert_up_to_date("docs/what-retries-do.md", &page);
}

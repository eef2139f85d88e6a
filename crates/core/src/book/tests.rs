//! What reading a book refuses and what it makes of the rest; and that any bytes at all end in a book or
//! in problems.

use super::problem::Problem;
use super::resolve::RuleLevel::{self, Channel, Defaults, Dependency, Kind, Row, Service};
use super::*;
use crate::book::connectors::built_in;
use crate::policy::category::Category;
use crate::text::show_duration;

/// A book of every section, near to what a team would write.
const BOOK: &str = include_str!("../../../server/tests/books/todo.yaml");

fn service(inside: &str) -> String {
    format!("version: 1\nservices:\n  s:\n    target: {{ log: stdout }}\n    events: [a.b]\n{inside}")
}

fn problems(text: &str) -> Vec<String> {
    let shown = |p: Problem| {
        format!("{}:{} {}: {} | {}", p.span.position.line, p.span.position.column, p.code, p.message, p.help)
    };
    read_bytes(text.as_bytes(), built_in()).problems.into_sorted().into_iter().map(shown).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn each_mistake_is_named_with_its_place_and_its_cure() {
    #[rustfmt::skip]
    let cases = [
        ("an unknown key",             "version: 1\nservcies: {}\n",
            "2:1 unknown-key: unknown key `servcies` of a rule book | did you mean `services`?"),
        ("a key far from any",         "version: 1\ndefaults: { xyzzy: 1 }\n",
            "2:13 unknown-key: unknown key `xyzzy` of defaults | expected one of "),
        ("a missing key",              "defaults: {}\n",
            "1:1 missing-key: a rule book needs `version` | `version`: The version of the format: 1."),
        ("another version",            "version: 2\n",
            "1:10 out-of-range: must be 1, got `2` | write 1"),
        ("a duration without a unit",  "version: 1\ndefaults: { timeout: 15 }\n",
            "2:22 bad-duration: `15` has no unit: write `15s` or `15ms`"),
        ("no duration at all",         "version: 1\ndefaults: { hold_max: soon }\n",
            "2:23 bad-duration: `soon` is not a duration"),
        ("an ISO duration for a timeout", "version: 1\ndefaults: { timeout: PT10S }\n",
            "2:22 bad-duration: `PT10S` is an ISO 8601 duration: write 10s"),
        ("one for a service's timeout", &service("    timeout: P1DT2H\n"),
            "6:14 bad-duration: `P1DT2H` is an ISO 8601 duration: write 1d2h"),
        ("one for a part of a timeout", "version: 1\ndefaults: { timeout: { connect: PT1M } }\n",
            "2:33 bad-duration: `PT1M` is an ISO 8601 duration: write 1m"),
        ("one for another key",        "version: 1\ndefaults: { hold_max: PT1H30M }\n",
            "2:23 bad-duration: `PT1H30M` is an ISO 8601 duration: write 1h30m"),
        ("one in a list",              "version: 1\nretry_policies: { p: { delays: [1s, PT2S] } }\n",
            "2:37 bad-duration: `PT2S` is an ISO 8601 duration: write 2s"),
        ("one for a jitter",           "version: 1\nretry_policies: { p: { from: standard, jitter: plus PT2S } }\n",
            "2:48 bad-jitter: `plus PT2S` has no valid width | `PT2S` is an ISO 8601 duration: write 2s"),
        ("one as a limit of an alert", "version: 1\nalerts: [{ when: latency_p99 > PT2S, severity: high }]\n",
            "2:18 bad-condition: `PT2S` is an ISO 8601 duration: write 2s"),
        ("one as a window of an alert", "version: 1\nalerts: [{ when: latency_p99 > 2s over PT5M, severity: high }]\n",
            "2:18 bad-condition: `PT5M` is an ISO 8601 duration: write 5m"),
        ("a timeout's name like one",  "version: 1\ndefaults: { timeout: PTA }\n",
            "2:22 undefined-name: unknown timeout `PTA`"),
        ("MB or MiB",                  "version: 1\nsecrets: { k: { env: K } }\nsources: { g: { type: a, webhook: { scheme: github, secret: k, body_max: 25MB } } }\n",
            "3:74 bad-size: `25MB` is ambiguous: write `25MiB` for 1024s"),
        ("an undefined policy",        "version: 1\ndefaults: { retry: standrd }\n",
            "2:20 undefined-name: unknown retry policy `standrd` | did you mean `standard`? Or define it under `retry_policies`"),
        ("an undefined breaker",       "version: 1\ndefaults: { breaker: kafka }\n",
            "2:22 undefined-name: unknown breaker `kafka`"),
        ("an undefined secret",        "version: 1\nsources: { g: { type: a, webhook: { scheme: github, secret: k } } }\n",
            "2:61 undefined-name: unknown secret `k`"),
        ("an undefined receiver",      "version: 1\nalerts: [{ when: dead_letters > 1, severity: high, to: [me] }]\n",
            "2:57 undefined-name: unknown receiver `me`"),
        ("a list where a map belongs", "version: 1\nservices: [a]\n",
            "2:11 wrong-type: expected names, each with a value, got a list"),
        ("a map where a word belongs", "version: 1\ndefaults: { retry: { a: 1 } }\n",
            "2:20 wrong-type: expected the name of a retry policy, got a map"),
        ("nothing where a word belongs", "version: 1\ndefaults: { retry: }\n",
            "2:18 wrong-type: expected the name of a retry policy, got nothing"),
        ("an unquoted template",       "version: 1\ndefaults:\n  dead_letter:\n    name: {service}\n",
            "4:11 wrong-type: expected a name in quotes such as \"_{service}.deadletter\", got a map | quote a text with {placeholders}: \"{service}…\""),
        ("an unknown placeholder",     "version: 1\ndefaults: { dead_letter: { name: \"_{servce}\" } }\n",
            "2:34 bad-template: "),
        ("yes is a text",              "version: 1\nretry_policies: { p: { from: standard, alert_when_exhausted: yes } }\n",
            "2:62 wrong-type: `yes` is a text in YAML 1.2 | write true or false"),
        ("a leading zero",             "version: 1\nretry_policies: { p: { from: standard, retries: 010 } }\n",
            "2:49 wrong-type: `010` has a leading zero | remove the zero"),
        ("a number in quotes",         "version: 1\nretry_policies: { p: { from: standard, retries: \"5\" } }\n",
            "2:49 wrong-type: expected a number, got the text `\"5\"` | write 5 without quotes"),
        ("a spread without a unit",    "version: 1\nretry_policies: { p: { from: standard, jitter: spread 25 } }\n",
            "2:48 bad-jitter: `spread 25` has no valid width | write `spread 25%` for a share of the delay, or `spread 25ms` for a time"),
        ("a plus without a unit",      "version: 1\nretry_policies: { p: { from: standard, jitter: plus 5 } }\n",
            "2:48 bad-jitter: `plus 5` has no valid width | write `plus 5ms` or `plus 5s`"),
        ("a wrong word",               &service("    order: sessions\n"),
            "6:12 unknown-word: `sessions` is not allowed here | did you mean `session`?"),
        ("a wrong status",             &service("    on_failure: { 999: standard }\n"),
            "6:19 unknown-word: `999` is neither a category nor an HTTP status"),
        ("an act that is none",        &service("    on_failure: { fatal: puase }\n"),
            "6:26 undefined-name: unknown retry policy `puase` | did you mean `pause`? Or define it under `retry_policies`"),
        ("a broken expression",        &service("    classify: [{ message: \"(a\", as: transient }]\n"),
            "6:27 bad-regex: invalid regular expression: unclosed group"),
        ("an override of nothing",     &service("    classify: [{ as: transient }]\n"),
            "6:16 missing-key: this override matches nothing | add `status`, `code`, `header` or `message`"),
        ("the same thing twice",       &service("    retry: standard\n    on_failure: { transient: patient }\n"),
            "6:12 said-twice: `on_failure` sets `transient` too"),
        ("two rows for one event",     "version: 1\nservices:\n  s:\n    target: { log: stdout }\n    events: [a.b, { type: a.b, retry: none }]\n",
            "5:27 ambiguous-pattern: `a.b` matches the same events as `a.b` on line 5"),
        ("patterns that cross",        "version: 1\nservices:\n  s:\n    target: { log: stdout }\n    events: [\"a.*.c\", \"a.b.*\"]\n",
            "5:23 ambiguous-pattern: `a.b.*` matches some of the same events as `a.*.c` on line 5"),
        ("no events",                  "version: 1\nservices: { s: { target: { log: stdout } } }\n",
            "2:13 no-events: this service has no events"),
        ("two kinds of target",        "version: 1\nservices: { s: { target: { log: stdout, http: \"http://h/\" }, events: [a] } }\n",
            "2:18 one-of: a target has more than one kind"),
        ("a key of another kind",      "version: 1\nservices: { s: { target: { log: stdout, time_limit: 3m }, events: [a] } }\n",
            "2:41 excluded-key: `time_limit` is only allowed with `exec`"),
        ("delays and a factor",        "version: 1\nretry_policies: { p: { delays: [1s], factor: 2, retries: 3 } }\n",
            "2:38 excluded-key: `factor` is not allowed here: `delays` already lists every delay"),
        ("a policy without retries",   "version: 1\nretry_policies: { p: { initial: 1s } }\n",
            "2:22 missing-key: a retry policy needs `retries`"),
        ("a policy without delays",    "version: 1\nretry_policies: { p: { retries: 1 } }\n",
            "2:22 missing-key: a retry policy needs a delay"),
        ("a cap below the start",      "version: 1\nretry_policies: { p: { initial: 10s, max: 1s, retries: 1 } }\n",
            "2:43 bad-policy: the maximum delay 1s is shorter than the initial 10s | change `max`"),
        ("a cap over a list",          "version: 1\nretry_policies: { p: { from: upstream, max: 30s } }\n",
            "2:40 excluded-key: `max` is not allowed here: the policy it extends already lists every delay"),
        ("an act for a name",          "version: 1\nretry_policies: { pause: { from: standard } }\n",
            "2:19 reserved-name: `pause` is reserved and cannot name a retry policy"),
        ("no breaker for a name",      "version: 1\nbreakers: { none: { from: kafkaBreaker } }\n",
            "2:13 reserved-name: "),
        ("a duration for a name",      "version: 1\ntimeouts: { 30s: 5s }\n",
            "2:13 reserved-name: "),
        ("the service of receivers",   "version: 1\nservices: { redrive-alerts: { target: { log: stdout }, events: [a] } }\n",
            "2:13 reserved-name: `redrive-alerts` is reserved and cannot name a service"),
        ("what a receiver depends on", "version: 1\ndependencies: { redrive-alerts.ops: { kind: webhook } }\n",
            "2:17 reserved-name: "),
        ("one id for two claims",      "version: 1\nservices:\n  s:\n    target: { log: stdout }\n    events: [{ type: a, subscription: x }, { type: b, subscription: x }]\n",
            "5:44 duplicate-subscription: duplicate subscription `x`, first used on line 5"),
        ("two limits for a run",       "version: 1\nservices: { s: { target: { exec: [x], time_limit: 3m }, timeout: 1m, events: [a] } }\n",
            "2:66 said-twice: the target's `time_limit` already limits a run"),
        ("a circle",                   "version: 1\nretry_policies: { a: { from: b }, b: { from: c }, c: { from: a } }\n",
            "2:30 extends-itself: circular `from`: a → b → c → a"),
        ("nothing to extend",          "version: 1\nbreakers: { b: { from: none, open: 1s } }\n",
            "2:24 extends-nothing: unknown breaker `none`"),
        ("no address",                 "version: 1\nservices: { s: { target: { http: ftp-server }, events: [a] } }\n",
            "2:34 wrong-type: expected an address such as"),
        ("an empty command",           "version: 1\nservices: { s: { target: { exec: [] }, events: [a] } }\n",
            "2:34 empty-list: `exec` is an empty list"),
        ("a channel without events",   &service("    channels: { c: { events: [] } }\n"),
            "6:30 empty-list: `events` is an empty list"),
        ("a hidden character",         &service("    title: \"a\\u001b[31m\"\n"),
            "6:12 control-character: "),
        ("one failure, two reactions", &service("    on_failure: { 500: standard, 500-500: patient }\n"),
            "6:34 said-twice: duplicate failure"),
        ("a sign before a number",     "version: 1\nretry_policies: { p: { from: standard, retries: +5 } }\n",
            "2:49 wrong-type: expected a whole number, got `+5`"),
        ("a pattern without quotes",   "version: 1\nservices: { s: { target: { log: stdout }, events: [*.created] } }\n",
            "2:52 yaml-alias: YAML aliases (`*name`) are not supported | quote a pattern with `*`"),
        ("a slash in a name",          "version: 1\nservices: { a/b: { target: { log: stdout }, events: [a] } }\n",
            "2:13 bad-name: a name cannot contain '/'"),
        ("a service without a target", "version: 1\nservices:\n  s:\n    events: [a]\n",
            "3:3 missing-key: a service needs `target`"),
        ("a template to nowhere",      "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\" }, type: \"a.{event}\" } }\n",
            "2:56 bad-template: unknown placeholder `{event}`: write {header.x-name} or {data.field}"),
        ("a pattern for a type",       "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\" }, type: \"a.*\" } }\n",
            "2:56 bad-event-type: `a.*` is a pattern; expected one event type"),
        ("a clock without data",       "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\" }, type: \"a.{data.b}\" } }\n",
            "2:56 bad-event-type: a schedule has no headers or data for placeholders"),
        ("data that are no JSON",      "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\", data: \"{a}\" }, type: a } }\n",
            "2:54 bad-json: invalid JSON: key must be a string at line 1 column 2"),
        ("a key of another scheme",    "version: 1\nsecrets: { s: { env: S } }\nsources: { n: { webhook: { scheme: github, secret: s, prefix: a }, type: a } }\n",
            "3:55 excluded-key: `prefix` is not allowed here: it needs `scheme: hmac`"),
        ("a webhook calls nothing",    "version: 1\nsecrets: { s: { env: S } }\ndependencies: { d: { kind: key-vault } }\nsources: { n: { webhook: { scheme: github, secret: s }, type: a, depends_on: d } }\n",
            "4:66 excluded-key: `depends_on` is not allowed here: webhooks and schedules call no dependency and have no breaker; remove it"),
        ("a time that nobody signs",   "version: 1\nsecrets: { s: { env: S } }\nsources: { n: { webhook: { scheme: github, secret: s, tolerance: 5m }, type: a } }\n",
            "3:55 excluded-key: `tolerance` is not allowed here: this scheme does not sign a timestamp"),
        ("keys from two places",       "version: 1\nsecrets: { s: { env: S } }\naccess: { jwt: { issuer: i, audience: a, secret: s, jwks: \"https://a.test/\" } }\n",
            "3:11 one-of: a token issuer has more than one kind"),
        ("a day that never comes",     "version: 1\nsources: { n: { schedule: { cron: \"0 3 30 2 *\" }, type: a } }\n",
            "2:35 bad-cron: invalid cron expression `0 3 30 2 *`: it never fires: no month has such a day"),
        ("a subject to fill in",       "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\" }, type: a, subject: \"{data.b}\" } }\n",
            "2:68 bad-template: a schedule has no headers or data for placeholders"),
        ("an id of one's own",         "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * *\" }, type: a, id: b } }\n",
            "2:59 excluded-key"),
        ("six fields of cron",         "version: 1\nsources: { n: { schedule: { cron: \"0 3 * * * *\" }, type: a } }\n",
            "2:35 bad-cron: invalid cron expression `0 3 * * * *`: it has 6 fields"),
        ("a fact a source has not",    "version: 1\nsources: { n: { type: a, sqs: { queue: q }, facts: { p99: 1s } } }\n",
            "2:54 unknown-key: unknown key `p99` of facts of a source"),
        ("a word where a list belongs", "version: 1\nservices: { s: { target: { log: stdout }, events: a.b } }\n",
            "2:51 wrong-type: expected a list, got `a.b` | write [a.b]"),
        ("a breaker that never closes", "version: 1\nbreakers: { b: { trip: { consecutive: 3 } } }\n",
            "2:16 missing-key: a breaker needs `open`"),
        ("a trip without its time",    "version: 1\nbreakers: { b: { trip: { failures: 3 }, open: 1s } }\n",
            "2:24 missing-key: this trip condition needs `within`"),
        ("a trip with another's key",  "version: 1\nbreakers: { b: { trip: { consecutive: 3, within: 1m }, open: 1s } }\n",
            "2:42 excluded-key: `within` is not allowed here"),
        ("a timeout of nothing",       "version: 1\ndefaults: { timeout: 0s }\n",
            "2:22 zero-timeout: a timeout must be greater than zero"),
        ("room for nothing",           &service("    waiting: { size: 0B }\n"),
            "6:22 out-of-range: the size must be greater than zero"),
        ("no event may wait",          &service("    waiting: { events: 0 }\n"),
            "6:24 out-of-range: `0` is out of range: 1 to 1000000000000"),
        ("a backlog limit of a row",    &service("    channels: { c: { events: [{ type: a, waiting: { events: 5 } }] } }\n"),
            "6:42 unknown-key: unknown key `waiting` of an event row"),
        ("a batch that is none",       "version: 1\nservices: { s: { target: { http: \"http://a.test/\", batch_max: 5 }, events: [a] } }\n",
            "2:52 excluded-key: `batch_max` is not allowed here: it needs `format: batch`"),
        ("a batch of programs",        "version: 1\nservices: { s: { target: { log: stdout, batch_max: 5 }, events: [a] } }\n",
            "2:41 excluded-key: `batch_max` is only allowed with `http`"),
        ("a batch of one event",       "version: 1\nservices: { s: { target: { http: \"http://a.test/\", batch_max: 5 }, events: [a] } }\n",
            "2:52 excluded-key: `batch_max` is not allowed here: it needs `format: batch`"),
        ("a batch of too many",        "version: 1\nservices: { s: { target: { http: \"http://a.test/\", format: batch, batch_max: 1001 }, events: [a] } }\n",
            "2:78 out-of-range: `1001` is out of range: 1 to 1000"),
        ("an unknown metric",          "version: 1\nalerts: [{ when: dead_leters > 1, severity: high }]\n",
            "2:18 bad-condition: unknown metric `dead_leters` | did you mean `dead_letters`?"),
        ("an unknown zone",            "version: 1\nsources: { d: { type: a, schedule: { cron: \"0 9 * * *\", zone: Mars/Base } } }\n",
            "2:63 bad-zone: unknown time zone `Mars/Base`"),
        ("no cron",                    "version: 1\nsources: { d: { type: a, schedule: { cron: \"0 9 * *\" } } }\n",
            "2:44 bad-cron: invalid cron expression `0 9 * *`"),
        ("a bad name",                 "version: 1\nservices: { a b: { target: { log: stdout }, events: [a] } }\n",
            "2:13 bad-name: a name cannot contain ' '"),
        ("a bad event",                "version: 1\nservices: { a: { target: { log: stdout }, events: [a..b] } }\n",
            "2:52 bad-event-pattern: `a..b` has an empty segment"),
        ("an empty file",              "",
            "0:0 empty-book: the file is empty"),
        ("a mere word",                "hello\n",
            "1:1 wrong-type: expected a rule book (a map), got a single value"),
    ];
    let mut missed = Vec::new();
    for (name, text, expected) in cases {
        let found = problems(text);
        if !found.iter().any(|problem| problem.starts_with(expected)) {
            missed.push((name, found));
        }
        assert!(read(text, built_in()).book.is_none(), "{name}: it is no book");
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn one_mistake_is_reported_once() {
    #[rustfmt::skip]
    let cases = [
        ("an expression",  service("    classify: [{ message: \"(\", as: transient }]\n")),
        ("a status",       service("    classify: [{ status: 999, as: transient }]\n")),
        ("an event",       "version: 1\nservices: { s: { target: { log: stdout }, events: [a..b] } }\n".to_owned()),
        ("a duration",     "version: 1\nretry_policies: { p: { initial: 1, retries: 3 } }\n".to_owned()),
        ("a count",        "version: 1\nretry_policies: { p: { from: standard, retries: 100001 } }\n".to_owned()),
        ("a circle",       "version: 1\nretry_policies: { a: { from: x }, x: { from: x } }\n".to_owned()),
        ("a trip",         "version: 1\nbreakers: { b: { trip: { consecutive: none }, open: 1s } }\n".to_owned()),
    ];
    for (name, text) in cases {
        assert_eq!(problems(&text).len(), 1, "{name}: {:#?}", problems(&text));
    }
}

#[test]
fn bounds_keep_a_hostile_book_small() {
    let many =
        |row: &str, count: usize| service(&format!("    classify: [{}]\n", vec![row; count].join(", ")));
    let overrides = many("{ status: 404, as: transient }", 101);
    assert!(problems(&overrides)[0].contains("too-many-overrides"), "{:#?}", problems(&overrides));
    let rows: Vec<String> = (0..3)
        .map(|n| {
            format!(
                "  s{n}: {{ target: {{ log: stdout }}, events: [a], classify: [{}] }}\n",
                vec!["{ message: x, as: transient }"; 100].join(", ")
            )
        })
        .collect();
    let patterns = format!("version: 1\nservices:\n{}", rows.concat());
    assert!(problems(&patterns)[0].contains("too-many-patterns"), "{:#?}", problems(&patterns));
    let large = vec![b'a'; limits::BOOK_BYTES_MAX + 1];
    assert_eq!(read_bytes(&large, built_in()).problems.into_sorted()[0].code, "file-too-large");
    let links: Vec<String> = (1..20_000).map(|n| format!("  p{n}: {{ from: p{} }}\n", n - 1)).collect();
    let chain =
        format!("version: 1\nretry_policies:\n  p0: {{ initial: 1s, retries: 1 }}\n{}", links.concat());
    assert!(problems(&chain)[0].contains("extends-too-far"), "{:#?}", &problems(&chain)[..1]);
    let twice = format!("version: 1\n{}", "a: 1\n".repeat(200_000));
    assert!(problems(&twice).iter().any(|problem| problem.contains("duplicate-key")));
    let sources: Vec<String> = (0..201).map(|n| format!("  s{n}: {{ sqs: {{ queue: q }} }}\n")).collect();
    let sources = format!("version: 1\nsources:\n{}", sources.concat());
    assert!(problems(&sources)[0].contains("too-many-sources"), "{:#?}", problems(&sources));
    let heavy = service("    classify: [{ message: \"(\\\\w{100}){100}\", as: transient }]\n");
    assert!(problems(&heavy)[0].contains("bad-regex"), "{:#?}", problems(&heavy));
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "version: 1\ndefaults: { retry: standrd, timeout: 15, retries: 3 }\nservcies: {}\n";
    assert_eq!(problems(text).len(), 4, "{:#?}", problems(text));
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let reading = read_bytes(b"version: 1\ntitle: \xff\xfe\n", built_in());
    let found = reading.problems.into_sorted();
    assert_eq!((found[0].code, found[0].span.position), ("not-utf-8", Position { line: 2, column: 8 }));
}

#[test]
fn values_fall_from_the_row_to_what_is_built_in() {
    let text = "\
version: 1
defaults: { retry: patient, timeout: 9s, hold_max: 3h, breaker: stateBreaker }
dependencies:
  d: { kind: kafka, retry: critical, timeout: 8s, deadline: 1h }
services:
  s:
    target: { http: \"http://127.0.0.1/\" }
    depends_on: d
    timeout: 7s
    events:
      - { type: a.plain }
      - { type: a.row, retry: none, timeout: 5s }
      - { type: \"a.*\", timeout: 6s }
    channels:
      c: { retry: aggressive, events: [a.plain, { type: a.row, retry: worker }] }
  t: { target: { log: stdout }, events: [x] }
";
    let reading = read(text, built_in());
    let book = reading.book.unwrap_or_else(|| panic!("{:#?}", problems(text)));
    #[rustfmt::skip]
    let cases = [
        ("a plain row",           "s", None,      "a.plain", ("critical", Dependency), ("7s", Service), (Some(5), Kind)),
        ("a row of its own",      "s", None,      "a.row",   ("none", Row),            ("5s", Row),     (Some(5), Kind)),
        ("a pattern's row",       "s", None,      "a.other", ("critical", Dependency), ("6s", Row),     (Some(5), Kind)),
        ("a channel",             "s", Some("c"), "a.plain", ("aggressive", Channel),  ("7s", Service), (Some(5), Kind)),
        ("a channel's row",       "s", Some("c"), "a.row",   ("worker", Row),          ("7s", Service), (Some(5), Kind)),
        ("no dependency, no kind's breaker", "t", None, "x", ("patient", Defaults),    ("9s", Defaults), (Some(3), Defaults)),
    ];
    for (name, service, channel, event, retry, timeout, breaker) in cases {
        let resolved = book.explain(service, channel, event).unwrap_or_else(|| panic!("{name}: not wanted"));
        let policy = resolved.retry_policy().map(|policy| policy.name.as_str()).unwrap_or_default();
        assert_eq!((policy, resolved.reaction_to(Category::Transient).origin.level), retry, "{name}: retry");
        let whole = show_duration(resolved.rule.timeouts.whole.first);
        assert_eq!((whole.as_str(), resolved.timeouts.whole.origin.level), timeout, "{name}: timeout");
        let trips = resolved.rule.breaker.as_ref().map(|breaker| match breaker.settings.trip() {
            crate::policy::breaker::Trip::Consecutive(count) => count.get(),
            trip => panic!("{name}: {trip:?}"),
        });
        assert_eq!((trips, resolved.breaker_origin.level), breaker, "{name}: breaker");
        assert_eq!(resolved.hold_max.origin.level, Defaults, "{name}");
        assert_eq!(resolved.when_open.origin.level, RuleLevel::BuiltIn, "{name}");
    }
    assert!(book.explain("s", None, "b.c").is_none(), "nobody wants it");
    assert!(book.explain("s", Some("c"), "a.other").is_none(), "the channel does not want it");
    let line =
        book.explain("s", None, "a.row").and_then(|r| r.timeouts.whole.origin.position()).map(|p| p.line);
    assert_eq!(line, Some(12), "a value knows its line");
}

#[test]
fn the_engines_rule_is_the_explained_rule() {
    let book = read(BOOK, built_in()).book.expect("the example is sound");
    for (service, channel, row) in book.sections().rows() {
        let event = row.pattern.value.as_str();
        let channel = channel.map(|channel| channel.name.as_str());
        let rule = book.rule(service.name.as_str(), channel, event).expect("its own row wants it");
        let explained = book.explain(service.name.as_str(), channel, event).expect("the same");
        assert_eq!(**rule, explained.rule, "{} {event}", service.name);
    }
}

#[test]
fn a_process_past_its_limit_is_permanent_unless_the_rule_says_otherwise() {
    #[rustfmt::skip]
    let cases = [
        ("by itself",             "",                                             "",                  ("30m", Category::Permanent)),
        ("a limit",               "",                                             ", time_limit: 5m",  ("5m",  Category::Permanent)),
        ("a default for calls",   "defaults: { timeout: api }\n",                 "",                  ("30m", Category::Permanent)),
        ("the defaults' word",    "defaults: { timeout: { whole: 1m, as: transient } }\n", "",         ("30m", Category::Permanent)),
        ("a limit over defaults", "defaults: { timeout: 1m }\n",                  ", time_limit: 5m",  ("5m",  Category::Permanent)),
    ];
    for (name, defaults, limit, expected) in cases {
        let text = format!(
            "version: 1\n{defaults}services: {{ s: {{ target: {{ exec: [run]{limit} }}, events: [a] }} }}\n"
        );
        let book = read(&text, built_in()).book.unwrap_or_else(|| panic!("{name}: {:#?}", problems(&text)));
        let timeouts = book.rule("s", None, "a").expect("wanted").timeouts;
        assert_eq!((show_duration(timeouts.whole.first).as_str(), timeouts.category), expected, "{name}");
    }
}

#[test]
fn the_parts_of_a_timeout_fall_one_by_one() {
    #[rustfmt::skip]
    let cases = [
        ("nothing is stated",           "",                                            "",                    "connect 5s, headers 5s, whole 10s, transient"),
        ("a whole stands for headers",  "",                                            ", timeout: 30s",      "connect 5s, headers 30s, whole 30s, transient"),
        ("a part leaves the rest",      "{ whole: 30s, connect: 1s, as: permanent }",  ", timeout: { headers: 2s }", "connect 1s, headers 2s, whole 30s, permanent"),
        ("a newer whole, new headers",  "{ headers: 2s, connect: 1s }",                ", timeout: 20s",      "connect 1s, headers 20s, whole 20s, transient"),
        ("headers beside their whole",  "{ headers: 2s, whole: 9s }",                  "",                    "connect 5s, headers 2s, whole 9s, transient"),
    ];
    for (name, service, row, expected) in cases {
        let service = if service.is_empty() { String::new() } else { format!(", timeout: {service}") };
        let text = format!(
            "version: 1\nservices: {{ s: {{ target: {{ http: \"http://127.0.0.1/\" }}{service}, events: [{{ type: a{row} }}] }} }}\n"
        );
        let book = read(&text, built_in()).book.unwrap_or_else(|| panic!("{name}: {:#?}", problems(&text)));
        let timeouts = book.rule("s", None, "a").expect("wanted").timeouts;
        let [connect, headers, whole] =
            [timeouts.connect, timeouts.headers, timeouts.whole.first].map(show_duration);
        assert_eq!(
            format!("connect {connect}, headers {headers}, whole {whole}, {}", timeouts.category),
            expected,
            "{name}"
        );
    }
}

#[test]
fn a_rows_timeout_wins_over_its_targets_time_limit() {
    let text = "version: 1\nservices: { s: { target: { exec: [run], time_limit: 30m }, events: [{ type: a, timeout: 5m }, b] } }\n";
    let book = read(text, built_in()).book.unwrap_or_else(|| panic!("{:#?}", problems(text)));
    let whole = |event| show_duration(book.rule("s", None, event).expect("wanted").timeouts.whole.first);
    assert_eq!((whole("a").as_str(), whole("b").as_str()), ("5m", "30m"));
    let text = "version: 1\nservices: { s: { target: { exec: [run], time_limit: 5m }, timeout: { as: transient }, events: [a] } }\n";
    let book = read(text, built_in()).book.unwrap_or_else(|| panic!("{:#?}", problems(text)));
    assert_eq!(
        book.rule("s", None, "a").expect("wanted").timeouts.category,
        Category::Transient,
        "the rule's own word"
    );
}

#[test]
fn a_row_leads_to_as_many_policies_as_a_history_counts() {
    let names: Vec<String> = (0..17).map(|n| format!("p{n}")).collect();
    let policies: String = names.iter().flat_map(|name| ["  ", name, ": { from: standard }\n"]).collect();
    let reactions: Vec<String> =
        names.iter().enumerate().map(|(n, name)| format!("{}: {name}", 500 + n)).collect();
    let text = format!(
        "{}retry_policies:\n{policies}",
        service(&format!("    on_failure: {{ {} }}\n", reactions.join(", ")))
    );
    assert!(
        problems(&text).iter().any(|problem| problem.contains("too-many-policies")),
        "{:#?}",
        problems(&text)
    );
}

#[test]
fn only_what_nobody_states_is_retried_cautiously() {
    use crate::policy::rule::Reaction::{self, DeadLetter, Retry, RetryCautiously};
    use Category::{Internal, Transient, Unknown};
    let policy = |rule: &Rule, reaction: Reaction| {
        reaction.policy().map(|index| rule.reactions.policies()[usize::from(index.0)].name.to_string())
    };
    #[rustfmt::skip]
    let cases = [
        ("nothing is said",           "",                                                       Unknown,   None,      "cautiously by standard"),
        ("only the policy",           "    retry: worker\n",                                    Unknown,   None,      "cautiously by worker"),
        ("which is stated",           "    retry: worker\n",                                    Transient, None,      "by worker"),
        ("our own fault",             "    retry: worker\n",                                    Internal,  None,      "cautiously by worker"),
        ("the category",              "    on_failure: { unknown: critical }\n",                Unknown,   None,      "by critical"),
        ("another category",          "    on_failure: { internal: critical }\n",               Unknown,   Some(500), "cautiously by standard"),
        ("our own fault, stated",     "    on_failure: { internal: critical }\n",               Internal,  None,      "by critical"),
        ("the same policy",           "    retry: worker\n    on_failure: { unknown: worker }\n", Unknown, None,     "by worker"),
        ("the status",                "    on_failure: { 500: critical }\n",                    Unknown,   Some(500), "by critical"),
        ("another status",            "    on_failure: { 500: critical }\n",                    Unknown,   Some(507), "cautiously by standard"),
        ("for all services",          "defaults: { on_failure: { unknown: critical } }\n",      Unknown,   None,      "by critical"),
        ("no policy at all",          "    on_failure: { transient: dead-letter }\n",           Unknown,   None,      "dead-letter"),
    ];
    for (name, inside, category, status, expected) in cases {
        let book = read(&service(inside), built_in()).book.expect("a sound book");
        let rule = book.rule("s", None, "a.b").expect("wanted");
        let reaction = rule.reactions.to(category, status).value;
        let policy = policy(rule, reaction).unwrap_or_default();
        let shown = match reaction {
            Retry(_) => format!("by {policy}"),
            RetryCautiously(_) => format!("cautiously by {policy}"),
            DeadLetter => "dead-letter".to_owned(),
            Reaction::Pause => "pause".to_owned(),
        };
        assert_eq!(shown, expected, "{name}");
    }
}

#[test]
fn a_question_ends_before_more_advice_follows() {
    let text = "version: 1\nservices: { s: { target: { log: stdout }, on_failure: { rate-limitd: none }, events: [a] } }\n";
    let problems = read(text, built_in()).problems.into_sorted();
    let helps: Vec<&str> = problems.iter().map(|problem| problem.help.as_str()).collect();
    assert_eq!(helps, ["did you mean `rate-limited`? Or write a status such as 503 or 500-599"]);
}

/// The example books as they were before kinds that are not built in were errors of `check`, each with the errors
/// that it has now.
const BEFORE: [(&str, &str, &[&str]); 5] = [
    ("codegen-orchestrator", include_str!("tests/before/codegen-orchestrator.yaml"), &[]),
    ("pkarr", include_str!("tests/before/pkarr.yaml"), &[]),
    ("queue-keeper", include_str!("tests/before/queue-keeper.yaml"), &[CALLS_NOTHING]),
    ("rez-agent", include_str!("tests/before/rez-agent.yaml"), &[]),
    ("todo", include_str!("tests/before/todo.yaml"), &[]),
];

/// A webhook's `depends_on` did nothing before.
const CALLS_NOTHING: &str = "41:5 excluded-key: `depends_on` is not allowed here: webhooks and schedules call no \
                             dependency and have no breaker; remove it";

#[test]
fn books_of_earlier_releases_are_read() {
    for (name, text, expected) in BEFORE {
        let reading = read(text, built_in());
        let has_book = reading.book.is_some();
        let problems = reading.problems.into_sorted();
        let errors = problems.iter().filter(|one| one.severity == problem::ProblemSeverity::Error);
        let shown = |one: &Problem| {
            format!("{}:{} {}: {}", one.span.position.line, one.span.position.column, one.code, one.message)
        };
        let errors: Vec<String> = errors.map(shown).collect();
        assert_eq!(errors, expected, "{name}");
        assert_eq!(has_book, expected.is_empty(), "{name}");
    }
}

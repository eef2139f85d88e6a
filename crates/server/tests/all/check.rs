//! `redrive check` as people and scripts meet it.

use insta::assert_snapshot;

use crate::run::Folder;

/// One mistake of each sort, as a tired writer makes them.
const BAD: &str = "\
version: 1
defaults:
  retry: standrd
  timeout: 15
retry_policies:
  vendor: { delays: [5s, 10], retries: 5, jitter: nonee }
  loop: { from: loop }
breakers:
  mail: { trip: { consecutive: 5, within: 1m } }
services:
  billing:
    target: { http: \"http://127.0.0.1:9000/\" }
    on_failure: { 999: standard }
    evnts: [orders.placed]
    events: [\"orders.*.eu\", \"orders.placed.*\"]
";

#[test]
fn mistakes_are_shown_with_their_line_a_caret_and_a_cure() {
    let folder = Folder::with("book.yaml", BAD);
    let run = folder.run(&["check", "book.yaml"]);
    assert_eq!(run.code, 1);
    assert_snapshot!(run.stdout, @r#"
    error[undefined-name]: unknown retry policy `standrd`
     --> book.yaml:3:10
      |
    3 |   retry: standrd
      |          ^^^^^^^
      |
      = help: did you mean `standard`? Or define it under `retry_policies`

    error[bad-duration]: `15` has no unit: write `15s` or `15ms`
     --> book.yaml:4:12
      |
    4 |   timeout: 15
      |            ^^

    error[bad-duration]: `10` has no unit: write `10s` or `10ms`
     --> book.yaml:6:26
      |
    6 |   vendor: { delays: [5s, 10], retries: 5, jitter: nonee }
      |                          ^^

    error[bad-jitter]: `nonee` is not a jitter: write none, full, equal, decorrelated, plus 500ms, spread 25% or spread 100ms
     --> book.yaml:6:51
      |
    6 |   vendor: { delays: [5s, 10], retries: 5, jitter: nonee }
      |                                                   ^^^^^

    error[extends-nothing]: unknown retry policy `loop`
     --> book.yaml:7:17
      |
    7 |   loop: { from: loop }
      |                 ^^^^
      |
      = help: name another policy

    error[missing-key]: a breaker needs `open`
     --> book.yaml:9:9
      |
    9 |   mail: { trip: { consecutive: 5, within: 1m } }
      |         ^
      |
      = help: without it the breaker would never open, or never close again

    error[excluded-key]: `within` is not allowed here: `consecutive` only counts calls in a row
     --> book.yaml:9:35
      |
    9 |   mail: { trip: { consecutive: 5, within: 1m } }
      |                                   ^^^^^^
      |
      = help: remove `within`

    error[unknown-word]: `999` is neither a category nor an HTTP status
      --> book.yaml:13:19
       |
    13 |     on_failure: { 999: standard }
       |                   ^^^
       |
       = help: expected one of `fatal`, `internal`, `invalid`, `permanent`, `rate-limited`, `transient`, `unknown`; or write a status such as 503 or 500-599

    error[unknown-key]: unknown key `evnts` of a service
      --> book.yaml:14:5
       |
    14 |     evnts: [orders.placed]
       |     ^^^^^
       |
       = help: did you mean `events`?

    error[ambiguous-pattern]: `orders.placed.*` matches some of the same events as `orders.*.eu` on line 15, and neither is more specific
      --> book.yaml:15:29
       |
    15 |     events: ["orders.*.eu", "orders.placed.*"]
       |                             ^^^^^^^^^^^^^^^^^
       |
       = help: narrow one pattern, or list the shared types in their own row and drop one pattern

    ✗ book.yaml: 10 errors
    "#);
}

#[test]
fn machines_get_a_list() {
    let folder = Folder::with("book.yaml", BAD);
    let run = folder.run(&["check", "book.yaml", "--format", "json"]);
    assert_eq!(run.code, 1);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&run.stdout).expect("a list");
    let keys: Vec<&str> = rows[0].as_object().expect("objects").keys().map(String::as_str).collect();
    assert_eq!(keys, ["severity", "code", "file", "line", "column", "message", "help"]);
    let first = &rows[0];
    assert_eq!(
        (
            first["severity"].as_str(),
            first["code"].as_str(),
            first["file"].as_str(),
            first["line"].as_u64(),
            first["column"].as_u64()
        ),
        (Some("error"), Some("undefined-name"), Some("book.yaml"), Some(3), Some(10)),
    );
}

#[test]
fn the_exit_code_tells_how_it_went() {
    let folder = Folder::new();
    folder.write("clean.yaml", "version: 1\n");
    folder.write("warned.yaml", "version: 1\nretry_policies: { mine: { from: standard } }\n");
    folder.write("broken.yaml", "version: 2\n");
    folder.write("bytes.yaml", "a: [\n");
    #[rustfmt::skip]
    let cases: [(&str, &[&str], i32); 7] = [
        ("a clean book",          &["check", "clean.yaml"],                                      0),
        ("a warning",             &["check", "warned.yaml"],                                     0),
        ("a warning denied",      &["check", "warned.yaml", "--deny", "warnings"],               1),
        ("an error",              &["check", "broken.yaml"],                                     1),
        ("one of several",        &["check", "clean.yaml", "bytes.yaml"],                        1),
        ("no such file",          &["check", "missing.yaml"],                                    2),
        ("no such flag",          &["check", "--wrong"],                                         2),
    ];
    for (name, args, code) in cases {
        assert_eq!(folder.run(args).code, code, "{name}");
    }
    let missing = folder.run(&["check", "missing.yaml"]);
    assert!(
        missing.stderr.starts_with(
            "error: could not read missing.yaml: no such file; create one with `redrive init missing.yaml`"
        ),
        "{}",
        missing.stderr
    );
}

#[test]
fn a_lint_explains_itself_and_names_its_neighbours() {
    let folder = Folder::new();
    let run = folder.run(&["check", "--explain", "no-jitter"]);
    assert_eq!(run.code, 0);
    assert_snapshot!(run.stdout, @r"
    no-jitter (warning): a retry policy without jitter

    Deliveries that fail together retry together if their delays are equal. Each wave hits the
    target at once and can make it fail again while it recovers. Write `jitter: equal`, which
    keeps at least half of each delay, or omit `jitter`: that is the default. Policies of the
    catalog are not checked.

    Bad:
        version: 1
        defaults: { retry: mine }
        retry_policies:
          mine: { initial: 1s, max: 30s, retries: 5, jitter: none }

    Fixed:
        version: 1
        defaults: { retry: mine }
        retry_policies:
          mine: { initial: 1s, max: 30s, retries: 5, jitter: equal }
    ");
    let unknown = folder.run(&["check", "--explain", "no-jiter"]);
    assert_eq!(
        (unknown.code, unknown.stderr.trim()),
        (1, "error: there is no lint `no-jiter`: did you mean `no-jitter`?")
    );
    let all = folder.run(&["check", "--explain", "all"]);
    assert!(all.stdout.lines().count() >= 30, "at least thirty lints: {}", all.stdout);
}

#[test]
fn what_cannot_be_told_is_said_when_asked() {
    let folder = Folder::new();
    folder.write(
        "book.yaml",
        "version: 1\nservices:\n  s:\n    target: { http: \"http://127.0.0.1/\" }\n    timeout: 5s\n    events: [a.b]\n",
    );
    let quiet = folder.run(&["check", "book.yaml"]);
    assert!(quiet.stdout.contains("skipped for lack of facts (--verbose)"), "{}", quiet.stdout);
    let told = folder.run(&["check", "book.yaml", "--verbose"]);
    assert!(told.stdout.contains("needs `facts.p99`: timeout-below-p99"), "{}", told.stdout);
}

#[test]
fn hostile_files_are_refused_and_nothing_panics() {
    let folder = Folder::new();
    folder.write("large.yaml", "a: 1\n".repeat(2_000_000));
    folder.write("deep.yaml", "[".repeat(100_000));
    folder.write("bomb.yaml", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n");
    folder.write("line.yaml", format!("version: 1\ntitle: {}\n", "x".repeat(1_000_000)));
    folder.write("bytes.yaml", [b'a', b':', b' ', 0xff, 0xfe]);
    #[rustfmt::skip]
    let cases = [
        ("large.yaml", "file-too-large"), ("deep.yaml", "too-deep"), ("bomb.yaml", "yaml-alias"),
        ("line.yaml", "unknown-key"), ("bytes.yaml", "not-utf-8"),
    ];
    for (file, code) in cases {
        let run = folder.run(&["check", file]);
        assert_eq!(run.code, 1, "{file}: {}", run.stderr);
        assert!(run.stdout.contains(&format!("error[{code}]")), "{file}: {}", run.stdout);
        assert!(run.stdout.len() < 10_000, "{file}: {} bytes of output", run.stdout.len());
    }
}

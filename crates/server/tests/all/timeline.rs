//! `redrive timeline`: the tables of the documents, to the millisecond.

use serde_json::{Value, json};

use crate::run::{Folder, redrive};

#[test]
fn the_webhook_policy_is_shown() {
    insta::assert_snapshot!(redrive(&["timeline", "webhook"]).printed(), @r#"
    webhook  from the catalog
    initial 100ms · factor 2 · max 16s · retries 5 · window none · jitter spread 25%

    retry   delay        range  starts after
        1   100ms     75-125ms         100ms  █│
        2   200ms    150-250ms         300ms  ███│░
        3   400ms    300-500ms         700ms  ██████░│░░
        4   800ms   600-1000ms        1500ms  ███████████░░░│░░░░
        5  1600ms  1200-2000ms        3100ms  ███████████████████████░░░░░░│░░░░░░░░

    █ certain   │ before jitter   ░ jitter range
    Total delay: 2325-3875ms.
    "#);
}

#[test]
fn a_window_cuts_off_what_starts_past_it() {
    let folder = Folder::with(
        "book.yaml",
        "version: 1\nretry_policies:\n  tight: { from: critical, window: 200s, jitter: spread 50% }\n",
    );
    insta::assert_snapshot!(folder.run(&["timeline", "tight", "--rules", "book.yaml"]).printed(), @r#"
    tight  book.yaml, line 3, extends critical
    initial 1s · factor 2 · max 2m · retries 12 · window 3m20s · jitter spread 50%

    retry  delay     range  starts after
        1     1s  0.5-1.5s            1s  │
        2     2s      1-3s            3s  │
        3     4s      2-6s            7s  │
        4     8s     4-12s           15s  █│░
        5    16s     8-24s           31s  ██░│░░
        6    32s    16-48s           63s  ████░░│░░░░
        7    64s    32-96s          2m7s  ███████░░░░░░░│░░░░░░░
        8     2m    60s-3m          4m7s  ✗ past the window
        9     2m    60s-3m          6m7s  ✗ past the window
       10     2m    60s-3m          8m7s  ✗ past the window
       11     2m    60s-3m         10m7s  ✗ past the window
       12     2m    60s-3m         12m7s  ✗ past the window

    █ certain   │ before jitter   ░ jitter range
    ! the window of 3m20s cuts off 5 of these retries
    Total delay: 3m20s.
    "#);
}

#[test]
fn many_retries_end_with_a_line_about_the_rest() {
    let book = "version: 1\nretry_policies:\n  many: { initial: 1s, max: 1h, retries: 90 }\n  endless: { initial: 1s, max: 1m, retries: unlimited, window: 8h }\n";
    let folder = Folder::with("book.yaml", book);
    #[rustfmt::skip]
    let cases = [
        ("many",    "… and 58 more\n"),
        ("endless", "… and so on, until the window of 8h ends\n"),
    ];
    for (policy, expected) in cases {
        let printed = folder.run(&["timeline", policy, "--rules", "book.yaml"]).printed();
        assert!(printed.contains(expected), "{printed}");
        assert!(printed.lines().count() < 45, "{policy}: one screen");
        let rows = folder.run(&["timeline", policy, "--rules", "book.yaml", "--format", "json"]).printed();
        let rows: Vec<Value> = serde_json::from_str(&rows).expect("a list");
        assert!(rows.len() <= 1_000, "{policy}");
    }
}

#[test]
fn a_policy_without_retries_says_so() {
    insta::assert_snapshot!(redrive(&["timeline", "none"]).printed(), @r#"
    none  from the catalog

    No retries: the first failure makes a dead letter.
    "#);
}

#[test]
fn a_policy_that_is_not_known_is_refused_with_the_list() {
    insta::assert_snapshot!(redrive(&["timeline", "wbhook"]).refused(), @r#"
    error: there is no retry policy `wbhook`; did you mean `webhook`?
      available: aggressive, standard, patient, critical, none, messaging, webhook, worker, upstream, relay
      pass --rules FILE for policies of a rule book
    "#);
}

#[test]
fn machines_get_the_numbers_of_the_documents() {
    #[rustfmt::skip]
    let cases = [
        ("webhook", vec![
            (100, 75, 125, 100), (200, 150, 250, 300), (400, 300, 500, 700), (800, 600, 1_000, 1_500), (1_600, 1_200, 2_000, 3_100),
        ]),
        ("relay",   vec![(1_000, 700, 1_300, 1_000), (2_000, 1_400, 2_600, 3_000), (4_000, 2_800, 5_200, 7_000)]),
        ("worker",  vec![(1_000, 900, 1_100, 1_000), (2_000, 1_900, 2_100, 3_000), (4_000, 3_900, 4_100, 7_000)]),
        ("none",    vec![]),
    ];
    for (policy, expected) in cases {
        let rows = redrive(&["timeline", policy, "--format", "json"]).printed();
        let rows: Value = serde_json::from_str(&rows).expect("a list");
        let expected: Value = (1..)
            .zip(expected)
            .map(|(retry, (delay, min, max, sum))| {
                json!({
                    "retry": retry, "delay_ms": delay, "delay_min_ms": min, "delay_max_ms": max, "cumulative_ms": sum,
                })
            })
            .collect();
        assert_eq!(rows, expected, "{policy}");
    }
}

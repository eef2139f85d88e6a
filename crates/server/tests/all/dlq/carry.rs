//! Letters that come and go as files, the record of what was done, and what cannot be asked.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{against, envelope, first_line, with};
use crate::run::{Folder, redrive};
use crate::scripted::{Reply, Scripted, nowhere};

#[test]
fn a_file_is_checked_before_anything_is_sent() {
    let bad = "{\"service\":\"a\",\"type\":\"b.c\"}\n\nnot JSON\n{\"service\":\"a b\",\"type\":\"c.d\"}\n";
    let folder = Folder::with("bad.jsonl", bad);
    assert_snapshot!(folder.run(&["dlq", "import", "bad.jsonl", "--server", &nowhere()]).refused(), @r"
    error: 2 lines are not valid dead letters: nothing was imported
      line 3 is not valid JSON: expected ident at line 1 column 2
      line 4 has an invalid service name: a name cannot contain ' ': use letters from a to z, digits, `-`, `_`, `.` and `:`
    ");
    let line = |n: u32| format!("{{\"service\":\"a\",\"type\":\"b.c\",\"data\":{n}}}\n");
    let lines = (0..1_500).map(line).collect::<Vec<_>>().concat();
    folder.write("good.jsonl", lines);
    let part = |imported: u32, known: u32| Reply::json(200, &json!({ "imported": imported, "known": known }));
    let server = Scripted::new([part(999, 1), part(400, 100)]);
    let run = folder.run(&["dlq", "import", "good.jsonl", "--server", server.url()]);
    assert_snapshot!(run.printed(), @r"
    ✓ 1,399 dead letters imported, 101 existed already

    Next:
      redrive dlq groups
          shows their causes
    ");
    let sent: Vec<usize> =
        server.requests().iter().map(|request| request.matches("\"service\"").count()).collect();
    assert_eq!(sent, [1_000, 500]);
    let run = folder.run(&["dlq", "import", "none.jsonl"]);
    assert!(run.code == 2 && run.stderr.contains("cannot open none.jsonl"), "{run:?}");
}

#[test]
fn an_export_is_a_letter_a_line() {
    let lines = format!("{}\n{}\n", envelope(), envelope());
    let (run, requests) =
        against([Reply::new(200, lines.clone())], &["dlq", "export", "--form", "redis", "--type", "a.*"]);
    assert_eq!(run.printed(), lines);
    assert_eq!(first_line(&requests[0]), "GET /v1/dead-letters/export?type=a.*&form=redis HTTP/1.1");
}

#[test]
fn what_was_done_is_on_record() {
    let record = |number: u64, act: &str, note: Option<&str>| {
        let record = json!({ "number": number, "at": "2025-10-21T14:30:00Z", "act": act, "what": "service billing", "letters": 1200 });
        note.map_or(record.clone(), |note| with(record, &json!({ "note": note })))
    };
    let audit = json!({ "audit": [record(2, "purge", Some("test data")), record(1, "replay", None)] });
    let (run, _) = against([Reply::json(200, &audit)], &["audit"]);
    assert_snapshot!(run.printed(), @r"
    AT                            ACT     LETTERS  WHAT             NOTE
    2025-10-21T14:30:00Z  5m ago  purge     1,200  service billing  test data
    2025-10-21T14:30:00Z  5m ago  replay    1,200  service billing
    ");
    let by = with(record(3, "pause", None), &json!({ "letters": 0, "by": "key rk_3f (deploy)" }));
    let named = json!({ "audit": [by, record(1, "replay", None)] });
    let (run, _) = against([Reply::json(200, &named)], &["audit"]);
    assert_snapshot!(run.printed(), @r"
    AT                            ACT     LETTERS  WHAT             NOTE  BY
    2025-10-21T14:30:00Z  5m ago  pause            service billing        key rk_3f (deploy)
    2025-10-21T14:30:00Z  5m ago  replay    1,200  service billing
    ");
    let (run, _) = against([Reply::json(200, &audit)], &["audit", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&run.printed()).expect("a list"), audit["audit"]);
}

#[test]
fn what_cannot_be_asked_is_wrong_use() {
    #[rustfmt::skip]
    let cases: [(&str, &[&str], &str); 6] = [
        ("poison without a note", &["dlq", "replay", "--all", "--include-poison"], "--note"),
        ("letters and all",       &["dlq", "replay", "3c", "--all"],               "cannot be used with"),
        ("no rate",               &["dlq", "replay", "--all", "--rate", "fast"],   "--rate"),
        ("watch what",            &["replays", "--watch"],                         "<NUMBER>"),
        ("no act",                &["replays", "3", "stop"],                       "pause, resume, cancel"),
        ("data twice",            &["dlq", "edit", "3c", "--data", "1", "--file", "x"], "cannot be used with"),
    ];
    for (name, arguments, words) in cases {
        let run = redrive(arguments);
        assert_eq!(run.code, 2, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{name}: {}", run.stderr);
    }
}

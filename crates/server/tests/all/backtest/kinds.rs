//! Stores with all that they can hold: programs, channels, letters from elsewhere, replayed, edited, purged and
//! shed ones, what waits, what a person stopped, and a book that changed meanwhile.
//!
//! The law: the book that was running changes nothing and says so; what another would have changed is told, or is
//! among what cannot be told.

use serde_json::{Value, json};

use crate::run::{Folder, Run};
use crate::server::{Server, until};
use crate::target::{Call, Say, Target, status};

/// Orders that are `late` are taken at the third attempt, those that are `odd` only in another form, and those
/// that are `bad` never.
fn script(call: &Call) -> Say {
    let body = String::from_utf8_lossy(&call.body).into_owned();
    if body.contains("late") && call.nth < 3 {
        status(503)
    } else if body.contains("odd") && !call.path.contains("other") {
        status(404)
    } else if body.contains("bad") {
        status(500)
    } else {
        status(200)
    }
}

/// Services of all kinds.
fn book(target: &Target) -> String {
    let url = target.url();
    format!(
        "version: 1
retry_policies:
  quick: {{ initial: 20ms, max: 20ms, retries: 3, jitter: full }}
  slow: {{ initial: 300ms, max: 300ms, retries: 3, jitter: none }}
defaults: {{ retry: quick, breaker: none }}
receivers:
  desk: {{ webhook: \"{url}/desk\" }}
dependencies:
  bank: {{ kind: webhook, breaker: by-hand }}
breakers:
  by-hand: {{ trip: {{ consecutive: 50 }}, open: 1h }}
services:
  orders:
    target: {{ http: \"{url}\" }}
    events: [\"orders.*\"]
  other:
    target: {{ http: \"{url}/other\" }}
    events: [orders.moved]
  mail:
    target: {{ http: \"{url}/mail\" }}
    channels:
      letter: {{ events: [\"mail.*\"] }}
      wire: {{ events: [\"mail.*\"], target: {{ http: \"{url}/wire\" }} }}
  job:
    target: {{ exec: [sh, -c, 'case $(cat) in *crash*) exit 3;; *says*) echo \"{{\\\"status\\\":\\\"error\\\",\\\"error\\\":\\\"no id\\\"}}\"; exit 1;; *hangs*) sleep 1000;; esac'], format: data, time_limit: 300ms, grace: 50ms }}
    on_failure: {{ unknown: quick, internal: quick, transient: quick }}
    events: [\"job.*\"]
  narrow:
    target: {{ http: \"{url}/narrow\" }}
    waiting: {{ events: 1, when_full: dead-letter }}
    events: [\"narrow.*\"]
  hasty:
    target: {{ http: \"{url}/hasty\" }}
    retry: slow
    deadline: 500ms
    events: [\"hasty.*\"]
  pay:
    target: {{ http: \"{url}/pay\" }}
    depends_on: bank
    events: [\"pay.*\"]
"
    )
}

/// A server on which all of it happens.
struct Day {
    folder: Folder,
    server: Server,
    target: Target,
}

impl Day {
    fn begin() -> Self {
        let target = Target::start(script);
        let folder = Folder::with("redrive.yaml", &book(&target));
        let server = Server::start(&folder);
        Self { folder, server, target }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let address = format!("http://{}", self.server.client.address);
        self.folder.run(&[arguments, &["--server", &address]].concat())
    }

    /// Sends an event, and waits until each of its deliveries is in that state.
    #[track_caller]
    fn send(&self, event_type: &str, id: &str, state: &str) {
        self.server.accept(event_type, id, "");
        self.until(id, state);
    }

    #[track_caller]
    fn until(&self, id: &str, state: &str) {
        until(&format!("{id} is {state}: {}", self.server.event(id)), || {
            let event = self.server.event(id);
            let deliveries = event["deliveries"].as_array().expect("a list");
            deliveries.iter().all(|delivery| delivery["state"] == state).then_some(())
        });
    }

    fn id_of(&self, event_id: &str) -> String {
        self.server.delivery(event_id)["id"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    fn against(&self, rules: &str) -> Value {
        super::json(&self.folder, rules)
    }
}

/// Everything that can become of a delivery, but for a change of the book.
fn eventful_day() -> Day {
    let day = Day::begin();
    for (event_type, id, state) in [
        ("orders.placed", "fine-1", "delivered"),
        ("orders.placed", "late-1", "delivered"),
        ("orders.placed", "odd-replayed", "dead"),
        ("orders.placed", "odd-edited", "dead"),
        ("orders.dropped", "odd-purged", "dead"),
        ("orders.placed", "odd-skipped", "dead"),
        ("orders.placed", "bad-1", "dead"),
        ("mail.sent", "mail-1", "delivered"),
        ("mail.sent", "mail-late", "delivered"),
        ("job.given", "job-1", "delivered"),
        ("job.given", "crash-1", "dead"),
        ("job.given", "says-1", "dead"),
        ("job.given", "hangs-1", "dead"),
        ("hasty.sent", "bad-hasty", "dead"),
    ] {
        day.send(event_type, id, state);
    }
    day.handle_letters();
    day.shed();
    day.import();
    day.run(&["alerts", "test", "desk"]).printed();
    let tripped = day.server.post("/v1/dependencies/bank/trip", "", "{}");
    assert_eq!(tripped.status, 200, "{tripped:?}");
    day.server.accept("pay.sent", "pay-1", "");
    day
}

impl Day {
    /// What people do with dead letters.
    fn handle_letters(&self) {
        // It goes to `other` too, which takes it.
        self.server.accept("orders.moved", "odd-sent-elsewhere", "");
        self.server.until("odd-sent-elsewhere", "dead");
        self.run(&["dlq", "replay", &self.id_of("odd-sent-elsewhere"), "--to", "other"]).printed();
        self.until("odd-sent-elsewhere", "delivered");
        assert_eq!(self.run(&["dlq", "replay", &self.id_of("odd-replayed")]).code, 1, "it fails again");
        self.run(&["dlq", "edit", &self.id_of("odd-edited"), "--data", "{\"id\":\"mended\"}"]).printed();
        assert_eq!(self.run(&["dlq", "purge", "--type", "orders.dropped", "--yes"]).code, 0);
        self.until("odd-purged", "purged");
        assert_eq!(self.run(&["dlq", "skip", &self.id_of("odd-skipped")]).code, 0);
    }

    /// One waits, two are too many, and one of these is replayed.
    fn shed(&self) {
        self.run(&["pause", "narrow"]).printed();
        for id in ["narrow-1", "narrow-2", "narrow-3"] {
            self.server.accept("narrow.sent", id, "");
        }
        self.until("narrow-2", "dead");
        self.until("narrow-3", "dead");
        self.run(&["resume", "narrow"]).printed();
        self.until("narrow-1", "delivered");
        self.run(&["dlq", "replay", &self.id_of("narrow-2")]).printed();
        self.until("narrow-2", "delivered");
    }

    /// Letters from elsewhere: plain ones, of which one is replayed, one of nobody here, and one of ours with its
    /// attempts.
    fn import(&self) {
        let plain = |service: &str, key: &str| json!({ "service": service, "type": "orders.placed", "data": {}, "error": "boom", "key": key });
        let exported = self.run(&["dlq", "export"]).printed();
        let own = exported.lines().find(|line| line.contains("\"bad-1\"")).expect("it is a letter");
        let own = own.replace(&self.id_of("bad-1"), "elsewhere-1").replace("bad-1", "abroad-1");
        let lines = [plain("orders", "x-1"), plain("orders", "x-2"), plain("gone", "x-3")];
        let [first, second, third] = lines;
        self.folder.write("pile.jsonl", format!("{first}\n{second}\n{third}\n{own}\n"));
        assert!(self.run(&["dlq", "import", "pile.jsonl"]).printed().contains('4'));
        self.run(&["dlq", "replay", "x-1"]).printed();
    }
}

/// What a report cannot tell, with how many it concerns.
fn untold(report: &Value) -> Vec<(&str, u64)> {
    let list = report["untold"].as_array().expect("a list").iter();
    list.map(|untold| {
        (untold["doubt"].as_str().expect("a word"), untold["count"].as_u64().expect("a number"))
    })
    .collect()
}

/// What would have ended otherwise: whose, from, to, how sure, how many.
fn rows(report: &Value, list: &str) -> Vec<String> {
    let rows = report[list].as_array().expect("a list").iter().map(|row| {
        let word = |key: &str| row[key].as_str().expect("a word").to_owned();
        format!(
            "{} {} {} {} {}",
            row["deliveries"],
            word("service"),
            word("from"),
            if list == "unknown" { "?".to_owned() } else { word("to") },
            word("certainty")
        )
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

/// The doubts that this record has whatever it is held against.
const USUAL: [(&str, u64); 4] = [("replayed", 3), ("never-tried", 3), ("not-yet-tried", 1), ("imported", 4)];

/// A change of the book: what it replaces by what, what would have ended otherwise, what nobody knows, and what else
/// is said of it.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [(&'static str, u64)],
);

#[rustfmt::skip]
const CASES: [Case; 9] = [
    ("fewer retries", "retries: 3, jitter: full", "retries: 1, jitter: full",
        &["1 mail/letter delivered dead certain", "1 mail/wire delivered dead certain", "1 orders delivered dead certain"], &[], &[]),
    ("a crash is fine", "    on_failure: {", "    classify: [{ code: PROCESS_CRASHED, as: delivered }]\n    on_failure: {",
        &["1 job dead delivered certain"], &[], &[]),
    ("a longer time for programs", "time_limit: 300ms", "time_limit: 5s",
        &[], &["1 job dead ? unknown"], &[("longer-timeout", 1)]),
    ("a channel less", "      wire:", "      telex:",
        &["2 mail/wire delivered not-sent certain"], &[], &[]),
    ("a service less", "  narrow:", "  broad:",
        &["1 narrow delivered not-sent certain", "2 narrow dead not-sent certain"], &[], &[]),
    ("room for what was shed", "events: 1,", "events: 5,",
        &[], &["2 narrow dead ? unknown"], &[]),
    ("no breaker to wait for", "breaker: by-hand", "breaker: none",
        &[], &["1 pay waiting ? unknown"], &[]),
    ("another target", "/other", "/others",
        &[], &[], &[("target", 1)]),
    ("fewer calls at once", "dependencies:", "dependencies:\n  hasty: { kind: webhook, in_flight: 1 }",
        &[], &[], &[("limits", 1)]),
];

#[test]
fn all_that_a_store_can_hold_is_told_or_is_among_what_cannot_be() {
    let day = eventful_day();
    let usual = book(&day.target);
    day.folder.write("same.yaml", format!("# The same, a line further down.\n{usual}"));
    let same = day.against("same.yaml");
    assert_eq!((&same["deliveries"], &same["changed"]), (&json!(28), &json!(0)), "{same:#}");
    assert_eq!(same["certainty"], json!({ "certain": 28, "likely": 0, "unknown": 0 }), "{same:#}");
    assert_eq!(same["before"], same["after"]);
    assert_eq!(untold(&same), USUAL, "{same:#}");
    assert_eq!(same["newly_routed"], json!([]));
    for load in same["dependencies"].as_array().expect("a list") {
        assert_eq!(load["calls"]["before"], load["calls"]["after"], "{load}");
    }
    // Neither replays nor what happened elsewhere are among the calls, nor those of the letter that was purged.
    let orders =
        same["dependencies"].as_array().expect("a list").iter().find(|load| load["name"] == "orders");
    assert_eq!(orders.expect("it was called")["calls"]["before"], 12, "{same:#}");

    for (name, from, to, changed, unknown, doubts) in CASES {
        let text = usual.replacen(from, to, 1);
        assert_ne!(text, usual, "{name}");
        day.folder.write("new.yaml", text);
        let report = day.against("new.yaml");
        assert_eq!(rows(&report, "changes"), changed, "{name}: {report:#}");
        assert_eq!(rows(&report, "unknown"), unknown, "{name}: {report:#}");
        let likely = doubts.iter().filter(|(doubt, _)| matches!(*doubt, "target" | "limits")).count();
        assert_eq!(report["certainty"]["likely"], likely, "{name}: {report:#}");
        for doubt in doubts {
            assert!(untold(&report).contains(doubt), "{name}: {doubt:?} in {report:#}");
        }
    }
    reload(&day, &usual);
    day.server.stop().assert_calm();
}

/// The book changes while the server runs: nobody wants what waits any more, and there are fewer retries.
fn reload(day: &Day, usual: &str) {
    let other = usual.replacen("retries: 3, jitter: full", "retries: 1, jitter: full", 1);
    let other = other.replacen("events: [\"pay.*\"]", "events: [pay.other]", 1);
    day.folder.write("redrive.yaml", &other);
    day.folder.write("other.yaml", &other);
    day.server.signal("HUP");
    day.server.err.wait_for("rule book reloaded");
    until("it is put aside", || {
        let because = day.server.event("pay-1")["deliveries"][0]["waits"]["because"].clone();
        because.as_str().filter(|because| because.starts_with("RULE_REMOVED")).map(|_| ())
    });
    day.send("orders.placed", "late-2", "dead");

    let report = day.against("other.yaml");
    #[rustfmt::skip]
    assert_eq!(rows(&report, "changes"), [
        "1 mail/letter delivered dead certain", "1 mail/wire delivered dead certain", "1 orders delivered dead certain",
        "1 pay waiting not-sent certain",
    ], "what happened by the first book is held against the second: {report:#}");
    assert_eq!(rows(&report, "unknown"), [""; 0]);

    // And the other way round: what died by the second, and what was put aside by it, are all that is not certain.
    let report = day.against("same.yaml");
    assert_eq!(rows(&report, "changes"), [""; 0], "{report:#}");
    assert_eq!(rows(&report, "unknown"), [""; 0], "{report:#}");
    // A notice of what was put aside may have come by then.
    let all = report["deliveries"].as_u64().expect("a count");
    assert!(all >= 29, "{report:#}");
    assert_eq!(report["certainty"], json!({ "certain": all - 2, "likely": 2, "unknown": 0 }), "{report:#}");
}

//! Schedules of a real server, and what is told of them without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use insta::assert_snapshot;
use redrive::clock::wall_clock;
use redrive_core::time::Timestamp;
use redrive_node::store::sqlite::{Options, Sqlite};
use redrive_node::store::{StateChange, Store, WriteBatch};
use serde_json::{Value, json};

use crate::run::Folder;
use crate::server::{Server, until};
use crate::target::{Call, Target, status};

/// An hour ago, and the cron that fired then and will not fire again within the hour.
pub(crate) struct AnHourAgo {
    fire: Timestamp,
    pub(crate) cron: String,
}

impl AnHourAgo {
    pub(crate) fn new() -> Self {
        let millis = (wall_clock() - Duration::from_hours(1)).as_millis();
        let minutes = millis / 60_000;
        Self {
            fire: Timestamp::from_millis(minutes * 60_000),
            cron: format!("{} {} * * *", minutes % 60, minutes / 60 % 24),
        }
    }

    /// What is remembered of a plan that nobody has looked at for two hours.
    pub(crate) fn memo(&self) -> String {
        let until = self.fire - Duration::from_hours(1);
        json!({ "cron": self.cron, "zone": "UTC", "until": until, "caught_up": 0, "lost": 0 }).to_string()
    }

    pub(crate) fn event_id(&self) -> String {
        format!("nightly@{}", self.fire)
    }
}

/// Puts a memo into a data folder that no server has open.
pub(crate) fn remember(folder: &Folder, name: &str, value: String) {
    let mut store = Sqlite::open(&folder.path("data"), Options::default()).expect("a store");
    store.recover(wall_clock()).expect("it can be read");
    let note = StateChange::Memo { name: name.to_owned(), value: Some(value) };
    let batch = WriteBatch { changes: vec![note], ..WriteBatch::default() };
    store.write(&batch, wall_clock()).expect("it can be written");
    Box::new(store).close(wall_clock()).expect("it can be closed");
}

fn book(target: &Target, cron: &str, letters: &str) -> String {
    format!(
        "version: 1
sources:
  nightly: {{ schedule: {{ cron: \"{cron}\" }}, type: report.nightly }}
services:
  reports:
    target: {{ http: \"{}\" }}
    on_failure: {{ transient: none }}
    {letters}
    events: [report.nightly]
",
        target.url()
    )
}

/// The only schedule of a server, once it has fired so often.
fn fired(server: &Server, fire: Timestamp) -> Value {
    until("it has fired", || {
        let schedule = server.status()["schedules"][0].clone();
        (schedule["last_fire"] == json!(fire)).then_some(schedule)
    })
}

#[test]
fn a_fire_that_was_missed_is_caught_up_once_whatever_happens() {
    let ago = AnHourAgo::new();
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &ago.cron, ""));
    remember(&folder, "schedule:nightly", ago.memo());
    let server = Server::start(&folder);
    target.until(1);
    let delivery = server.until(&ago.event_id(), "delivered");
    assert_eq!(delivery["event_source"], "/schedules/nightly");
    let event = server.event(&ago.event_id());
    assert_eq!(event["event"]["type"], "report.nightly");
    assert_eq!(event["event"]["time"], json!(ago.fire));
    assert_eq!(event["event"]["data"], json!({ "schedule": "nightly", "fire_at": ago.fire }));
    server.kill();
    // As if it had been killed before it was remembered that the event is durable.
    remember(&folder, "schedule:nightly", ago.memo());
    let server = Server::start(&folder);
    let schedule = fired(&server, ago.fire);
    assert_eq!((&schedule["caught_up"], &schedule["lost"]), (&json!(1), &json!(0)), "{schedule}");
    assert_eq!(server.status()["events"], 1, "the same event");
    server.kill();
    let server = Server::start(&folder);
    fired(&server, ago.fire);
    assert_eq!(server.status()["events"], 1, "and not again");
    assert_eq!(target.count(), 1);
}

#[test]
fn nobody_else_sends_the_events_of_a_schedule_or_a_webhook() {
    let ago = AnHourAgo::new();
    let folder = Folder::with("redrive.yaml", &book(&Target::willing(), &ago.cron, ""));
    let server = Server::start(&folder);
    let id = ago.event_id();
    let forged =
        json!({ "specversion": "1.0", "id": id, "source": "/schedules/nightly", "type": "a.b", "data": 1 });
    #[rustfmt::skip]
    let cases = [
        ("alone",      "content-type: application/cloudevents+json\r\n",       forged.to_string()),
        ("in a batch", "content-type: application/cloudevents-batch+json\r\n", json!([forged]).to_string()),
        ("a webhook",  "ce-specversion: 1.0\r\nce-id: 1\r\nce-type: a.b\r\nce-source: /v1/hooks/github\r\n", String::new()),
    ];
    for (name, headers, body) in cases {
        let answer = server.post("/v1/events", headers, body);
        assert_eq!(answer.status, 400, "{name}");
        assert_eq!(answer.json()["error"]["details"]["field"], "source", "{name}");
    }
    assert_eq!(server.status()["events"], 0);
    server.stop().assert_calm();
}

#[test]
fn a_schedule_that_is_new_has_missed_nothing_and_is_shown() {
    let ago = AnHourAgo::new();
    let folder = Folder::with("redrive.yaml", &book(&Target::willing(), &ago.cron, ""));
    let server = Server::start(&folder);
    let schedule = until("it is watched", || {
        let schedule = server.status()["schedules"][0].clone();
        schedule["next_fire"].is_string().then_some(schedule)
    });
    assert_eq!((&schedule["name"], &schedule["event_type"]), (&json!("nightly"), &json!("report.nightly")));
    assert_eq!(schedule["next_fire"], json!(ago.fire + Duration::from_hours(24)));
    assert!(schedule.get("last_fire").is_none(), "{schedule}");
    assert_eq!(server.status()["events"], 0);
    let page = folder.run(&["status", "--server", &format!("http://{}", server.client.address)]).printed();
    assert!(page.contains("SCHEDULE") && page.contains("report.nightly"), "{page}");
    // A new book takes it away at once.
    folder.write("redrive.yaml", "version: 1\nservices: { s: { target: { log: stdout }, events: [a] } }\n");
    until("it is gone", || server.status()["schedules"].as_array().is_some_and(Vec::is_empty).then_some(()));
}

#[test]
fn letters_come_back_at_the_times_that_their_rule_names() {
    let ago = AnHourAgo::new();
    let is_well = Arc::new(AtomicBool::new(false));
    let mood = Arc::clone(&is_well);
    let target = Target::start(move |_: &Call| status(if mood.load(Ordering::SeqCst) { 200 } else { 503 }));
    let letters = format!(
        "dead_letter: {{ reprocess: filtered, reprocess_categories: [transient], reprocess_cron: \"{}\" }}",
        ago.cron
    );
    // The schedule itself is of another time.
    let folder = Folder::with("redrive.yaml", &book(&target, "0 0 29 2 *", &letters));
    let server = Server::start(&folder);
    server.accept("report.nightly", "e1", "");
    server.until("e1", "dead");
    server.stop();
    is_well.store(true, Ordering::SeqCst);
    remember(&folder, &format!("reprocess:{}", ago.cron), ago.memo());
    let server = Server::start(&folder);
    server.until("e1", "delivered");
    let replay = server.get("/v1/replays").json()["replays"][0].clone();
    assert_eq!(replay["origin"], "automatic", "{replay}");
    let why = format!("letters reprocessed by the rule book, by schedule `{}`", ago.cron);
    assert_eq!(replay["what"], json!(why), "{replay}");
}

const BOOK: &str = "version: 1
sources:
  daily:
    schedule: { cron: \"30 2 * * *\", zone: Europe/Berlin, missed: all, missed_within: 2d }
    type: report.daily
  half-hourly:
    schedule: { cron: \"*/30 * * * *\", zone: Europe/Berlin, missed: none }
    type: check.due
services:
  s:
    target: { log: stdout }
    dead_letter: { reprocess: filtered, reprocess_categories: [transient], reprocess_cron: \"0 3 1 * *\" }
    events: [\"*\"]
";

#[test]
fn fires_to_come_are_shown_with_what_clocks_that_are_set_do_to_them() {
    let folder = Folder::with("redrive.yaml", BOOK);
    let spring = folder.run(&["schedules", "--count", "3", "--from", "2026-03-27T12:00:00Z"]);
    assert_snapshot!(spring.printed(), @"
    daily  emits report.daily at 30 2 * * * in Europe/Berlin; missed fires are all caught up within 2d
      Sat 2026-03-28 02:30 CET   2026-03-28T01:30:00Z  in 13h30m
      Sun 2026-03-29 03:30 CEST  2026-03-29T01:30:00Z  in 37h     moved: clocks leave out the time that the cron names
      Mon 2026-03-30 02:30 CEST  2026-03-30T00:30:00Z  in 2d12h

    half-hourly  emits check.due at */30 * * * * in Europe/Berlin; missed fires are skipped
      Fri 2026-03-27 13:30 CET  2026-03-27T12:30:00Z  in 30m
      Fri 2026-03-27 14:00 CET  2026-03-27T13:00:00Z  in 1h
      Fri 2026-03-27 14:30 CET  2026-03-27T13:30:00Z  in 1h30m

    dead letters  replayed at 0 3 1 * * in UTC
      Wed 2026-04-01 03:00 UTC  2026-04-01T03:00:00Z  in 4d15h
      Fri 2026-05-01 03:00 UTC  2026-05-01T03:00:00Z  in 34d15h
      Mon 2026-06-01 03:00 UTC  2026-06-01T03:00:00Z  in 65d15h
    ");
    let autumn = folder.run(&["schedules", "--count", "4", "--from", "2026-10-25T00:10:00Z"]);
    assert_snapshot!(autumn.printed(), @"
    daily  emits report.daily at 30 2 * * * in Europe/Berlin; missed fires are all caught up within 2d
      Sun 2026-10-25 02:30 CEST  2026-10-25T00:30:00Z  in 20m   clocks show this time twice: it fires the first time only
      Mon 2026-10-26 02:30 CET   2026-10-26T01:30:00Z  in 25h
      Tue 2026-10-27 02:30 CET   2026-10-27T01:30:00Z  in 2d1h
      Wed 2026-10-28 02:30 CET   2026-10-28T01:30:00Z  in 3d1h

    half-hourly  emits check.due at */30 * * * * in Europe/Berlin; missed fires are skipped
      Sun 2026-10-25 02:30 CEST  2026-10-25T00:30:00Z  in 20m    clocks show this time twice: the first of two fires
      Sun 2026-10-25 02:00 CET   2026-10-25T01:00:00Z  in 50m    clocks show this time twice: the second of two fires
      Sun 2026-10-25 02:30 CET   2026-10-25T01:30:00Z  in 1h20m  clocks show this time twice: the second of two fires
      Sun 2026-10-25 03:00 CET   2026-10-25T02:00:00Z  in 1h50m

    dead letters  replayed at 0 3 1 * * in UTC
      Sun 2026-11-01 03:00 UTC  2026-11-01T03:00:00Z  in 7d2h
      Tue 2026-12-01 03:00 UTC  2026-12-01T03:00:00Z  in 37d2h
      Fri 2027-01-01 03:00 UTC  2027-01-01T03:00:00Z  in 68d2h
      Mon 2027-02-01 03:00 UTC  2027-02-01T03:00:00Z  in 99d2h
    ");
    let programs =
        folder.run(&["schedules", "--count", "1", "--from", "2026-03-29T00:50:00Z", "--format", "json"]);
    let shown: Value = serde_json::from_str(&programs.printed()).expect("JSON");
    assert_eq!(
        shown[0],
        json!({
            "name": "daily", "event_type": "report.daily", "cron": "30 2 * * *", "zone": "Europe/Berlin",
            "fires": [{
                "at": "2026-03-29T01:30:00Z", "local": "Sun 2026-03-29 03:30 CEST", "offset": "+02:00", "mark": "moved",
            }],
        })
    );
    let none = Folder::with(
        "redrive.yaml",
        "version: 1\nservices: { s: { target: { log: stdout }, events: [a] } }\n",
    );
    assert_eq!(none.run(&["schedules"]).printed(), "no schedules in the rule book\n");
}

//! Pairs of alerts with a receiver each that differ in one key: what the receivers are told must differ.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use regex::Regex;
use serde_json::Value;

use self::Told::{Both, Count, First, Second};
use super::{CONTROL, Group, Looked, start};
use crate::server::{Server, until};
use crate::target::{Call, Target, status};

/// Who of a pair hears something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Both,
    First,
    Second,
    /// Both, and the second again and again.
    Count,
}

const ALERT: &str = "when: \"dead_letters > 0\", severity: high, to: [%]";
const HOOK: &str = "webhook: \"http://@/%\"";

/// The lines of an alert and of its receiver.
type Side = (&'static str, &'static str);

/// Two alerts, each with its receiver. `%` stands for the receiver's name, `@` for a target, `#` for its port and
/// `^` for hours that are not now. An alert that has no lines is not in the book.
#[rustfmt::skip]
const PAIRS: &[(&str, Told, [Side; 2])] = &[
    (CONTROL,                    Both,   [(ALERT, HOOK), (ALERT, HOOK)]),
    ("a rule book: alerts",      Second, [("", HOOK), (ALERT, HOOK)]),
    ("a rule book: receivers",   Second, [("when: \"dead_letters > 0\", severity: high", HOOK), (ALERT, HOOK)]),
    ("an alert: use",            Both,   [(ALERT, HOOK), ("use: dead-letters, to: [%]", HOOK)]),
    ("an alert: when",           First,  [(ALERT, HOOK), ("when: \"dead_letters > 1000\", severity: high, to: [%]", HOOK)]),
    ("an alert: name",           Both,   [(ALERT, HOOK), ("name: own, when: \"dead_letters > 0\", severity: high, to: [%]", HOOK)]),
    ("an alert: severity",       Both,   [(ALERT, HOOK), ("when: \"dead_letters > 0\", severity: critical, to: [%]", HOOK)]),
    ("an alert: to",             Second, [("when: \"dead_letters > 0\", severity: high", HOOK), (ALERT, HOOK)]),
    ("an alert: repeat",         Count,  [(ALERT, HOOK), ("when: \"dead_letters > 0\", severity: high, to: [%], repeat: 1s", HOOK)]),
    ("an alert: action",         Both,   [(ALERT, HOOK), ("when: \"dead_letters > 0\", severity: high, to: [%], action: look", HOOK)]),
    ("an alert: off",            First,  [(ALERT, HOOK), ("when: \"dead_letters > 0\", severity: high, to: [%], off: true", HOOK)]),
    ("a receiver: webhook",      Both,   [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%/else\"")]),
    ("a receiver: ntfy",         Both,   [(ALERT, HOOK), (ALERT, "ntfy: \"http://@/%\"")]),
    ("a receiver: slack",        Both,   [(ALERT, HOOK), (ALERT, "slack: \"http://@/%\"")]),
    ("a receiver: alertmanager", Both,   [(ALERT, HOOK), (ALERT, "alertmanager: \"http://@/%\"")]),
    ("a receiver: severity",     First,  [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%\", severity: critical")]),
    ("a receiver: hours",        First,  [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%\", hours: \"^\"")]),
    ("a receiver: retry",        Count,  [(ALERT, "webhook: \"http://@/%/fails\", retry: none"), (ALERT, "webhook: \"http://@/%/fails\", retry: again")]),
    ("a receiver: timeout",      Count,  [(ALERT, "webhook: \"http://@/%/slow\", retry: again"), (ALERT, "webhook: \"http://@/%/slow\", retry: again, timeout: 100ms")]),
    ("a receiver: network",      Second, [(ALERT, "webhook: \"http://localhost:#/%\""), (ALERT, "webhook: \"http://localhost:#/%\", network: private")]),
    ("a receiver: headers",      Both,   [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%\", headers: { x-tenant: acme }")]),
    ("a receiver: auth",         Both,   [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%\", auth: { bearer: first }")]),
    ("a receiver: secret",       Both,   [(ALERT, HOOK), (ALERT, "webhook: \"http://@/%\", secret: first")]),
];

#[test]
fn keys_of_alerts_and_receivers_change_what_is_told() {
    let target = Target::start(|call: &Call| {
        if call.path.ends_with("/slow") {
            std::thread::sleep(Duration::from_secs(1));
        }
        status(if call.path.ends_with("/fails") { 500 } else { 200 })
    });
    let filled = |line: &str, name: &str| {
        let line = line.replace('%', name).replace('^', &hours_that_are_not_now());
        line.replace('@', &target.address.to_string()).replace('#', &target.address.port().to_string())
    };
    let (mut alerts, mut receivers) = (String::new(), String::new());
    for (number, (_, _, sides)) in PAIRS.iter().enumerate() {
        for (name, (alert, receiver)) in names(number).iter().zip(sides) {
            receivers += &format!("  {name}: {{ {} }}\n", filled(receiver, name));
            if !alert.is_empty() {
                alerts += &format!("  - {{ {} }}\n", filled(alert, name));
            }
        }
    }
    let (_folder, server) = start(&format!(
        "version: 1
secrets: {{ first: {{ file: secret }} }}
retry_policies: {{ again: {{ delays: [50ms], retries: 5, jitter: none }} }}
services: {{ bad: {{ target: {{ exec: [\"false\"] }}, on_failure: {{ unknown: dead-letter }}, events: [a.b] }} }}
receivers:
{receivers}alerts:
{alerts}"
    ));
    server.accept("a.b", "e-1", "");
    server.until("e-1", "dead");
    let heard =
        |name: &str| -> Vec<String> { target.calls().iter().filter_map(|call| told(call, name)).collect() };
    let mut looked = Looked::at(Group::Alerting);
    for (number, (key, by, _)) in PAIRS.iter().enumerate() {
        let [first, second] = names(number);
        until(&format!("{key}: those who are told are told"), || {
            let (first, second) = (heard(&first).len(), heard(&second).len());
            let is_so = match by {
                Both => first > 0 && second > 0,
                First => first > 0,
                Second => second > 0,
                Count => first > 0 && second > 2,
            };
            is_so.then_some(())
        });
    }
    // Whoever has heard nothing by now was left out when the others were told.
    looked_at_again(&server);
    for (number, (key, by, _)) in PAIRS.iter().enumerate() {
        let mut seen = names(number).map(|name| heard(&name));
        if *by == Count {
            assert_eq!(seen[0].len(), 1, "{key}: {seen:?}");
        } else {
            let is_told = seen.each_ref().map(|calls| !calls.is_empty());
            assert_eq!(is_told, [*by != Second, *by != First], "{key}: {seen:?}");
            for calls in &mut seen {
                calls.truncate(1);
            }
        }
        let [first, second] = seen.map(|calls| format!("{calls:?}"));
        looked.differ(key, || Some([first.clone(), second.clone()]));
    }
    looked.end();
    server.stop().assert_calm();
}

/// The two receivers of a pair.
fn names(number: usize) -> [String; 2] {
    [format!("r{number}-a"), format!("r{number}-b")]
}

/// What a call tells that receiver, without its name, and without the number that tells alerts of one condition
/// apart.
fn told(call: &Call, name: &str) -> Option<String> {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r" \(\d+\)$").expect("a pattern"));
    let path = call
        .path
        .strip_prefix('/')?
        .strip_prefix(name)
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let notice = serde_json::from_slice::<Value>(&call.body).unwrap_or_default();
    let alert = notice["alert"].as_str().map(|alert| NUMBER.replace(alert, ""));
    let words = ["severity", "action"].map(|key| notice[key].to_string());
    let is_signed = call.headers.contains_key("webhook-signature");
    let form = (call.header("content-type"), notice.is_array(), notice["text"].is_string());
    let own = ["authorization", "x-tenant"].map(|name| call.headers.get(name));
    Some(format!("{path} {alert:?} {words:?} {is_signed} {form:?} {own:?}"))
}

/// Waits until the alerts were evaluated twice more.
fn looked_at_again(server: &Server) {
    let mut last = Value::Null;
    for _ in 0..3 {
        last = until("the alerts are looked at", || {
            let at = server.get("/v1/alerts").json()["evaluated_at"].clone();
            (at != last && !at.is_null()).then_some(at)
        });
    }
}

/// An hour that is twelve hours away.
fn hours_that_are_not_now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    let hour = (now.as_secs() / 3_600 + 12) % 24;
    format!("Mon-Sun {hour:02}:00-{hour:02}:59 UTC")
}

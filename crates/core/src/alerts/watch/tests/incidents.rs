//! What people are told of at once: it reaches everybody, once, whatever the book says of alerts.

use std::time::Duration;

use super::{AlertWatch, RECEIVERS, World, alerts, book, queue};
use crate::alerts::incident::{Incident, IncidentEnd, IncidentScope, Incidents};
use crate::figures::Figures;
use crate::limits;

/// A book with a secret, and nothing else to tell of.
fn plain(alerts: &str) -> String {
    format!(
        "{alerts}access: {{ jwt: {{ issuer: i, audience: a, jwks: \"https://i.test/keys\" }} }}\nsecrets: {{ signing: {{ env: X }} }}\nservices: {{ s: {{ target: {{ log: stdout }}, events: [a] }} }}\n{RECEIVERS}"
    )
}

fn raise(world: &mut World, incident: Incident) {
    match incident.concerns() {
        IncidentScope::Service if incident == Incident::ServiceRemoved => world.queue("gone").waiting = 3,
        IncidentScope::Service => world.incidents.raise_of(incident, &queue("s"), "HTTP_401", world.now),
        IncidentScope::Secret => world.incidents.raise(incident, "signing", "it ended with 1", world.now),
        IncidentScope::Process => world.incidents.raise(incident, "", "no access", world.now),
    }
}

fn end(world: &mut World, incident: Incident) {
    match incident.concerns() {
        IncidentScope::Service => world.queue("gone").waiting = 0,
        IncidentScope::Secret => world.incidents.clear(incident, "signing"),
        IncidentScope::Process => world.incidents.clear(incident, ""),
    }
}

#[test]
fn every_trouble_reaches_everybody_once_and_its_end_too() {
    let a_while = limits::TROUBLE_LASTS.as_secs();
    for incident in Incident::ALL {
        let mut world = World::new(&plain(""));
        assert_eq!(world.told(5), [""; 0], "{incident:?}");
        // Again and again, as with very many calls that are all refused.
        let mut told = Vec::new();
        for _ in 0..30 {
            for _ in 0..100 {
                raise(&mut world, incident);
            }
            told.extend(world.told(1));
        }
        assert_eq!(told.len(), 2, "one for each receiver: {told:?}");
        let is_moment = incident.lasts() == IncidentEnd::Expires;
        if !is_moment {
            assert_eq!(world.told(a_while), [""; 0].as_slice(), "{incident:?} lasts");
            end(&mut world, incident);
        }
        let last = if is_moment { a_while } else { limits::ALERT_QUIET_FOR.as_secs() };
        assert_eq!(world.told(last), [""; 0], "{incident:?} is not over yet");
        let over = world.told(5);
        assert!(over.len() == 2 && over[0].contains("Resolved"), "{incident:?}: {over:?}");
        assert_eq!(world.told(4_000), [""; 0], "{incident:?}");
    }
}

#[test]
fn a_message_says_what_of_whom_and_why() {
    #[rustfmt::skip]
    let cases = [
        (Incident::CredentialsRefused, "credentials-refused: service=s is refused by its target for its credentials: HTTP_401"),
        (Incident::SecretGone,         "secret-gone: secret=signing is without a value: it ended with 1"),
        (Incident::ArchiveStuck,       "archive-stuck: archive is not accepting writes; events wait for it: no access"),
        (Incident::ServiceRemoved,     "service-removed: service=gone is removed from the rule book, wholly or in part, and deliveries wait for it: 3 deliveries"),
    ];
    for (incident, expected) in cases {
        let mut world = World::new(&plain(""));
        raise(&mut world, incident);
        assert_eq!(world.look(1)[0].summary, expected);
        let firing: Vec<_> = world.watch.views().into_iter().filter(|view| view.since.is_some()).collect();
        assert_eq!(firing.len(), 1);
        assert_eq!(firing[0].value.as_deref(), Some(&*firing[0].subjects[0].value), "its own value");
    }
}

#[test]
fn a_service_without_a_row_for_what_waits_is_told() {
    let mut world = World::new(&plain(""));
    world.queue("s").waiting = 9;
    assert_eq!(world.told(5), [""; 0], "it takes what waits");
    world.queue("s").without_rule = 2;
    assert_eq!(
        world.look(1)[0].summary,
        "service-removed: service=s is removed from the rule book, wholly or in part, and deliveries wait for it: 2 deliveries that no row of it takes"
    );
}

#[test]
fn a_book_routes_them_or_switches_them_off() {
    #[rustfmt::skip]
    let cases = [
        ("nothing said",       "",                                                                  vec!["q", "r"]),
        ("to one",             "alerts: [{ use: credentials-refused, to: [r] }]\n",                 vec!["r"]),
        ("to nobody by name",  "alerts: [{ use: credentials-refused, severity: critical }]\n",      vec!["q", "r"]),
        ("off",                "alerts: [{ use: credentials-refused, off: true }]\n",               vec![]),
        ("off for all",        "defaults: { alerts: [{ use: credentials-refused, off: true }] }\n", vec![]),
        ("by its condition",   "alerts: [{ when: credentials_refused, severity: high, to: [q] }]\n", vec!["q"]),
        ("another is off",     "alerts: [{ use: internal-failure, off: true }]\n",                  vec!["q", "r"]),
    ];
    for (name, alerts, expected) in cases {
        let mut world = World::new(&plain(alerts));
        raise(&mut world, Incident::CredentialsRefused);
        let told: Vec<String> = world.look(1).into_iter().map(|notice| notice.receiver).collect();
        assert_eq!(told, expected, "{name}");
    }
}

#[test]
fn a_book_without_receivers_has_nothing_to_watch_for() {
    assert_eq!(AlertWatch::new(&book(""), World::new("").now).views(), []);
}

#[test]
fn a_service_hears_of_its_own() {
    let text = "services:
  s: { target: { log: stdout }, events: [a], alerts: [{ use: credentials-refused, to: [r] }] }
  t: { target: { log: stdout }, events: [a] }
alerts: [{ use: credentials-refused, off: true }]\n";
    for (service, expected) in [("s", 1), ("t", 0)] {
        let mut world = World::new(&format!("{text}{RECEIVERS}"));
        world.incidents.raise_of(Incident::CredentialsRefused, &queue(service), "HTTP_401", world.now);
        assert_eq!(world.look(1).len(), expected, "{service}");
    }
}

#[test]
fn what_is_found_before_the_alerts_are_watched_is_told() {
    for incident in Incident::ALL {
        let mut world = World::new(&plain(""));
        raise(&mut world, incident);
        world.now = world.now + Duration::from_secs(5);
        world.watch = AlertWatch::new(&world.book, world.now);
        assert_eq!(world.told(10).len(), 2, "{incident:?}");
    }
}

#[test]
fn a_restart_neither_repeats_nor_ends_it() {
    for incident in [Incident::InternalFailure, Incident::SecretGone] {
        let mut world = World::new(&plain(""));
        raise(&mut world, incident);
        assert_eq!(world.told(10).len(), 2);
        let saved = serde_json::to_string(&world.watch.save()).unwrap();
        world.watch = AlertWatch::new(&world.book, world.now);
        world.watch.restore(serde_json::from_str(&saved).unwrap());
        (world.figures, world.incidents) = (Figures::default(), Incidents::default());
        assert_eq!(world.told(10), [""; 0]);
        raise(&mut world, incident);
        assert_eq!(world.told(100), [""; 0], "{incident:?} is known");
    }
}

#[test]
fn a_secret_that_the_book_forgets_is_no_trouble() {
    let mut world = World::new(&plain(""));
    raise(&mut world, Incident::SecretGone);
    assert_eq!(world.told(10).len(), 2);
    world.book = book(&format!("services: {{}}\n{RECEIVERS}"));
    world.watch.change(&world.book);
    let over = world.told(100);
    assert!(over.len() == 2 && over[0].contains("Resolved"), "{over:?}");
}

#[test]
fn those_whom_we_turn_away_count_by_their_door() {
    let refused = |when: &str, door: u64, target: u64| {
        let mut world = World::new(&alerts(&format!("{{ when: {when}, name: a, severity: high, to: [r] }}")));
        world.figures.turned_away.insert("/v1/hooks/github".into(), door);
        world.figures.turned_away.insert("api".into(), 2);
        world.tally("s", "a").unauthorized = target;
        let notice = world.look(1).into_iter().next();
        notice.map_or_else(String::new, |notice| notice.summary)
    };
    #[rustfmt::skip]
    let cases = [
        ("auth_failures > 10/h",            8,  0, ""),
        ("auth_failures > 10/h",            12, 0, "a: 14/h"),
        ("auth_failures > 10/h",            6,  3, "a: 11/h"),
        ("auth_failures > 10/h by source",  12, 0, "a: source=/v1/hooks/github is 12/h"),
        ("auth_failures > 10/h by source",  9,  99, ""),
        ("auth_failures > 10/h by service", 99, 9, ""),
        ("auth_failures > 10/h by service", 0,  11, "a: service=s is 11/h"),
    ];
    for (when, door, target, expected) in cases {
        assert_eq!(refused(when, door, target), expected, "{when} with {door} and {target}");
    }
}

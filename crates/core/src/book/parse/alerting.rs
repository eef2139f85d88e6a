//! Parses alerts and receivers, and checks what an alert needs beside its catalog name and what is measured at
//! its level.

use std::collections::BTreeMap;

use super::{BookParser, at, duration_of, name_at, text_of, texts};
use crate::alerts::IncidentScope;
use crate::alerts::catalog::{self, CatalogAlert};
use crate::book::connectors::Edge;
use crate::book::expression::{AlertMetric, Condition, Grouping, Hours};
use crate::book::model::{Alert, AlertSeverity, AlertSwitch, At, Layer, Receiver, Sections};
use crate::book::problem::Problems;
use crate::book::yaml::YamlNode;

impl BookParser<'_> {
    pub(super) fn alerts(&mut self, node: &YamlNode) -> Vec<Alert> {
        node.items().iter().filter_map(|node| self.alert(node)).collect()
    }

    fn alert(&mut self, node: &YamlNode) -> Option<Alert> {
        let word = text_of(node, "use");
        let known = word.as_deref().and_then(catalog::named);
        if word.is_none() {
            self.needs(node, "when", "METRIC OP VALUE [over D] [for D] [by WHAT]");
            self.needs(node, "severity", "warning, medium, high or critical");
        }
        let own_or = |key, of: fn(&CatalogAlert) -> &'static str| {
            text_of(node, key).or_else(|| known.map(|alert| of(alert).to_owned()))
        };
        let when = own_or("when", |alert| alert.when)?;
        let severity = own_or("severity", |alert| alert.severity.as_str())?;
        Some(Alert {
            span: node.span,
            when: Condition::parse(&when).ok()?,
            name: own_or("name", |alert| alert.name),
            severity: AlertSeverity::parse(&severity)?,
            to: node.get("to").map(texts).unwrap_or_default(),
            escalate: node.get("escalate").map(texts).unwrap_or_default(),
            repeat: duration_of(node, "repeat"),
            action: own_or("action", |alert| alert.action),
            switch: if text_of(node, "off").as_deref() == Some("true") {
                AlertSwitch::Off
            } else {
                AlertSwitch::On
            },
        })
    }

    /// Reports a missing key that only a catalog name could replace.
    fn needs(&mut self, node: &YamlNode, key: &str, about: &str) {
        if node.get(key).is_none() && !node.entries().is_empty() {
            let message = format!("an alert needs `{key}`, unless `use` names a catalog alert");
            self.problems.error("missing-key", node.span, message, format!("`{key}`: {about}"));
        }
    }

    pub(super) fn receivers(&mut self, section: &[(YamlNode, YamlNode)]) -> BTreeMap<String, At<Receiver>> {
        let mut receivers = BTreeMap::new();
        for (key, node) in section {
            let Some((name, receiver)) = key.text().zip(self.receiver(key, node)) else { continue };
            receivers.insert(name.to_owned(), At { value: receiver, span: key.span });
        }
        receivers
    }

    fn receiver(&mut self, key: &YamlNode, node: &YamlNode) -> Option<Receiver> {
        let hours = node.get("hours").and_then(|n| at(n, |text| Hours::parse(text).ok()));
        Some(Receiver {
            endpoint: self.connectors.read(Edge::Receiver, node, key.span, self.problems)?,
            hours: hours.map(|at| at.value),
            severity: text_of(node, "severity").as_deref().and_then(AlertSeverity::parse),
            retry: name_at(node, "retry"),
            timeout: duration_of(node, "timeout"),
        })
    }
}

/// The level an alert is defined at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AlertLevel {
    Book,
    Dependency,
    Service,
    Row,
}

/// Reports alerts on metrics that are not measured at their level.
pub(super) fn check_levels(book: &Sections, problems: &mut Problems) {
    let mut look = |layer: &Layer, level| {
        for alert in &layer.alerts {
            if let Some(cure) = cure(&alert.when, level) {
                let message = format!("`{}` is not measured at this level", alert.when);
                problems.error("alert-without-figure", alert.span, message, cure);
            }
        }
    };
    look(&book.defaults, AlertLevel::Book);
    book.dependencies.values().for_each(|dependency| look(&dependency.layer, AlertLevel::Dependency));
    for service in &book.services {
        look(&service.layer, AlertLevel::Service);
        service.rows.iter().for_each(|row| look(&row.layer, AlertLevel::Row));
        for channel in &service.channels {
            look(&channel.layer, AlertLevel::Service);
            channel.rows.iter().for_each(|row| look(&row.layer, AlertLevel::Row));
        }
    }
}

/// The help text; `None` if the metric is measured there.
const fn cure(when: &Condition, level: AlertLevel) -> Option<&'static str> {
    match (when.metric, level, when.by) {
        (
            AlertMetric::ConsumerLag | AlertMetric::OldestWaiting,
            AlertLevel::Row | AlertLevel::Dependency,
            _,
        )
        | (AlertMetric::LatencyP99, AlertLevel::Row, _) => {
            Some("move it to the service, the channel or the top-level `alerts`")
        }
        (AlertMetric::LatencyP99, AlertLevel::Dependency, Some(Grouping::Service | Grouping::Channel)) => {
            Some("remove `by`, or move it to the service")
        }
        (AlertMetric::ConsumerLag, AlertLevel::Service, Some(Grouping::Source)) => {
            Some("move it to the top-level `alerts`: messages at a source have no service yet")
        }
        (
            AlertMetric::AuthFailures,
            AlertLevel::Dependency | AlertLevel::Service | AlertLevel::Row,
            Some(Grouping::Source),
        ) => Some("move it to the top-level `alerts`: failed logins belong to no service"),
        (AlertMetric::Incident(incident), level, _) => match (incident.concerns(), level) {
            (_, AlertLevel::Book) | (IncidentScope::Service, AlertLevel::Service) => None,
            (IncidentScope::Service, AlertLevel::Row | AlertLevel::Dependency) => {
                Some("move it to the service, the channel or the top-level `alerts`")
            }
            (
                IncidentScope::Secret | IncidentScope::Process,
                AlertLevel::Service | AlertLevel::Row | AlertLevel::Dependency,
            ) => Some("move it to the top-level `alerts`"),
        },
        (AlertMetric::LatencyP99, AlertLevel::Service, Some(Grouping::Dependency)) => {
            Some("remove `by`, or move it to the dependency or the top-level `alerts`")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::read;

    fn codes(book: &str) -> Vec<&'static str> {
        let found = read(&format!("version: 1\n{book}\n"), built_in()).problems.into_sorted();
        found.into_iter().map(|problem| problem.code).collect()
    }

    #[test]
    fn alerts_and_receivers_are_held_against_each_other() {
        let at_level = |level: &str, when: &str| {
            let alert = format!("alerts: [{{ when: {when}, severity: high }}]");
            let service = |own: &str, row: &str| {
                format!(
                    "services: {{ s: {{ target: {{ log: stdout }}, {own} events: [{{ type: a, {row} }}] }} }}"
                )
            };
            match level {
                "book" => alert,
                "dependency" => format!("dependencies: {{ d: {{ kind: log, {alert} }} }}"),
                "service" => service(&format!("{alert},"), ""),
                _ => service("", &alert),
            }
        };
        let receiver = |keys: &str| format!("receivers: {{ r: {{ {keys} }} }}");
        #[rustfmt::skip]
        let cases = [
            ("by name",                    "alerts: [{ use: dead-letters }]".to_owned(), vec![]),
            ("with other numbers",         "alerts: [{ use: dead-letters, when: dead_letters > 5, severity: warning }]".to_owned(), vec![]),
            ("an unknown name",            "alerts: [{ use: dead-leters }]".to_owned(), vec!["unknown-word"]),
            ("neither name nor condition", "alerts: [{ severity: high }]".to_owned(), vec!["missing-key"]),
            ("no severity",                "alerts: [{ when: dead_letters > 5 }]".to_owned(), vec!["missing-key"]),
            ("an unknown next one",        "alerts: [{ use: dead-letters, escalate: [x] }]".to_owned(), vec!["undefined-name"]),
            ("lag of the book",            at_level("book", "consumer_lag > 5"), vec![]),
            ("lag of a service",           at_level("service", "consumer_lag > 5"), vec![]),
            ("lag of a row",               at_level("row", "consumer_lag > 5"), vec!["alert-without-figure"]),
            ("lag of a dependency",        at_level("dependency", "oldest_waiting > 5m"), vec!["alert-without-figure"]),
            ("latency of a dependency",    at_level("dependency", "latency_p99 > 5s"), vec![]),
            ("latency of who calls it",    at_level("dependency", "latency_p99 > 5s by service"), vec!["alert-without-figure"]),
            ("latency of a row",           at_level("row", "latency_p99 > 5s"), vec!["alert-without-figure"]),
            ("latency of whom it calls",   at_level("service", "latency_p99 > 5s by dependency"), vec!["alert-without-figure"]),
            ("doors of the book",          at_level("book", "auth_failures > 5/h by source"), vec![]),
            ("doors of a service",         at_level("service", "auth_failures > 5/h by source"), vec!["alert-without-figure"]),
            ("a refusal of a service",     at_level("service", "credentials_refused"), vec![]),
            ("a refusal of a row",         at_level("row", "credentials_refused by service"), vec!["alert-without-figure"]),
            ("a secret of a service",      at_level("service", "secret_gone"), vec!["alert-without-figure"]),
            ("a secret of the book",       at_level("book", "secret_gone for 5m"), vec![]),
            ("a moment that lasts",        at_level("book", "internal_failure for 5m"), vec!["bad-condition"]),
            ("letters of a dependency",    at_level("dependency", "dead_letters > 5"), vec![]),
            ("letters of a row",           at_level("row", "dead_letter_age > 5h"), vec![]),
            ("breakers of a row",          at_level("row", "breaker_open for 5m"), vec![]),
            ("mail with a server",         receiver("email: a@b.test, smtp: \"smtp://b.test\""), vec![]),
            ("mail without a server",      receiver("email: a@b.test"), vec!["missing-key"]),
            ("somebody without a password", receiver("email: a@b.test, smtp: \"smtp://ann@b.test\""), vec!["missing-key"]),
            ("a password of nobody",       receiver("email: a@b.test, smtp: \"smtp://b.test\", secret: x") + "\nsecrets: { x: { env: X } }", vec!["excluded-key"]),
            ("somebody with a password",   receiver("email: a@b.test, smtp: \"smtp://ann@b.test\", secret: x") + "\nsecrets: { x: { env: X } }", vec![]),
            ("mail to nobody",             receiver("email: b.test, smtp: \"smtp://b.test\""), vec!["bad-mail-address"]),
            ("mail in two lines",          receiver("email: \"a@b.test\\r\\nBcc: c@d.test\", smtp: \"smtp://b.test\""), vec!["control-character", "bad-mail-address"]),
            ("mail by the web",            receiver("email: a@b.test, smtp: \"https://b.test\""), vec!["bad-smtp"]),
            ("a password",                 receiver("email: a@b.test, smtp: \"smtp://a:pw@b.test\""), vec!["bad-smtp"]),
            ("mail keys elsewhere",        receiver("ntfy: \"https://ntfy.test/t\", smtp: \"smtp://b.test\", from: a@b.test"), vec!["excluded-key", "excluded-key"]),
            ("a secret for slack",         receiver("slack: \"https://b.test/\", secret: x") + "\nsecrets: { x: { env: X } }", vec!["excluded-key"]),
        ];
        for (name, book, expected) in cases {
            assert_eq!(codes(&book), expected, "{name}\n{book}");
        }
    }

    #[test]
    fn what_an_entry_states_holds_instead_of_the_catalog() {
        let book = "version: 1\nalerts:\n  - { use: dead-letters }\n  - { use: dead-letters, name: mine, when: dead_letters > 7, severity: warning, action: sleep, repeat: 2h, off: true }\n";
        let book = read(book, built_in()).book.expect("a good book");
        let shown: Vec<String> = book
            .sections()
            .alerts
            .iter()
            .map(|a| {
                format!(
                    "{} | {} | {:?} | {:?} | {:?} | {:?}",
                    a.title(),
                    a.when,
                    a.severity,
                    a.action.as_deref().map(str::len),
                    a.repeats_every(),
                    a.switch
                )
            })
            .collect();
        let expected = [
            "dead-letters | dead_letters > 0 | High | Some(60) | 3600s | On",
            "mine | dead_letters > 7 | Warning | Some(5) | 7200s | Off",
        ];
        assert_eq!(shown, expected);
    }
}

//! Lints about alerts: whether they reach a receiver, and whether they say what their author means.
//!
//! Alerts are compared only within one list: the alerts of a level cover the same rows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ExampleBook::Book;
use super::{Findings, Lint, LintScope, ON_CALL};
use redrive_core::alerts::value::bound;
use redrive_core::book::expression::{AlertMetric, Condition, Hours, Quantity, Threshold, ThresholdOp};
use redrive_core::book::model::{Alert, AlertSeverity, Receiver, Sections};
use redrive_core::book::problem::ProblemSeverity;
use redrive_core::book::resolve::Resolved;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "alert-without-receiver",
        severity: ProblemSeverity::Warning,
        summary: "an alert without a receiver",
        explanation: "The alert fires, is counted and shown, but notifies no receiver: it has no `to`. Name its receivers, or \
                      remove the alert. If an Alertmanager routes notifications, name it as the receiver.",
        bad: Book(&["alerts: [{ when: dead_letters > 100, severity: high }]"]),
        fix: &[(
            "severity: high }]",
            "severity: high, to: [on-call] }]\nreceivers: { on-call: { webhook: \"https://pager.example.test/hook\" } }",
        )],
        scope: LintScope::Alert(alert_without_receiver),
    },
    Lint {
        code: "alert-only-business-hours",
        severity: ProblemSeverity::Error,
        summary: "an urgent alert whose receivers all have `hours`",
        explanation: "A high alert needs an answer within an hour and a critical one within fifteen minutes, at any time. All \
                      receivers of this alert have `hours` and hold it back outside of them. Add a receiver without \
                      hours, such as a pager, or lower the severity.",
        bad: Book(&[
            "alerts: [{ when: breaker_open for 10m, severity: critical, to: [office] }]",
            "receivers:",
            r#"  office: { slack: "https://chat.example.test/office", hours: Mon-Fri 09:00-17:00 Europe/Berlin }"#,
        ]),
        fix: &[
            ("[office]", "[office, on-call]"),
            ("receivers:", "receivers:\n  on-call: { webhook: \"https://pager.example.test/hook\" }"),
        ],
        scope: LintScope::Alert(alert_only_business_hours),
    },
    Lint {
        code: "alert-filtered-out",
        severity: ProblemSeverity::Error,
        summary: "an alert below the `severity` of all its receivers",
        explanation: "Each receiver of this alert has a minimum `severity`, and the alert is below all of them, so it notifies \
                      no receiver. Add a receiver that accepts it, lower the `severity` of one, or raise that of the \
                      alert.",
        bad: Book(&[
            "alerts: [{ when: dead_letters > 100, severity: medium, to: [on-call] }]",
            "receivers:",
            r#"  on-call: { webhook: "https://pager.example.test/hook", severity: high }"#,
        ]),
        fix: &[
            ("[on-call]", "[on-call, office]"),
            ("receivers:", "receivers:\n  office: { slack: \"https://chat.example.test/office\" }"),
        ],
        scope: LintScope::Alert(alert_filtered_out),
    },
    Lint {
        code: "alert-window-missing",
        severity: ProblemSeverity::Warning,
        summary: "an alert on a share without a time window",
        explanation: "Without `over` it is unclear which calls the share is of. Over a short time a single failure is a large \
                      share and causes false alarms; over a long time the alert is late. State the window: \
                      `error_rate > 5% over 2m`.",
        bad: Book(&["alerts: [{ when: error_rate > 5%, severity: high, to: [on-call] }]", ON_CALL]),
        fix: &[("> 5%", "> 5% over 2m")],
        scope: LintScope::Alert(alert_window_missing),
    },
    Lint {
        code: "alert-thresholds-inverted",
        severity: ProblemSeverity::Warning,
        summary: "a worse value with a lower severity",
        explanation: "Two alerts compare the same figure, and the one with the worse limit has the lower severity. Severity \
                      should rise as things get worse, so either the limits or the severities are swapped. Swap them \
                      back.",
        bad: Book(&[
            "alerts:",
            "  - { when: dead_letters > 100, severity: high, to: [on-call] }",
            "  - { when: dead_letters > 1000, severity: medium, to: [on-call] }",
            ON_CALL,
        ]),
        fix: &[("> 1000", "> 10")],
        scope: LintScope::AlertList(alert_thresholds_inverted),
    },
    Lint {
        code: "duplicate-alert",
        severity: ProblemSeverity::Warning,
        summary: "two alerts with the same condition",
        explanation: "One problem notifies people twice, and a later change of the limit is easily made in one place only. \
                      Keep one alert and name all its receivers under `to`.",
        bad: Book(&[
            "alerts:",
            "  - { when: dead_letters > 100, severity: high, to: [on-call] }",
            "  - { when: dead_letters > 100, severity: high, to: [office] }",
            r#"receivers: { on-call: { webhook: "https://pager.example.test/hook" }, office: { slack: "https://chat.example.test/office" } }"#,
        ]),
        fix: &[("on-call] }\n  - { when: dead_letters > 100, severity: high, to: [", "on-call, ")],
        scope: LintScope::AlertList(duplicate_alert),
    },
];

fn alert_without_receiver<'a>(alert: &'a Alert, _: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    // An immediate alert without `to` goes to all receivers.
    let goes_to_all =
        matches!(alert.when.metric, AlertMetric::Incident(_)) && !findings.book().receivers.is_empty();
    if alert.receivers().next().is_none() && !goes_to_all {
        let message = format!("`{}` has no receiver", alert.when);
        findings.report(alert.span, message, "add `to:` with the names of receivers");
    }
}

fn alert_only_business_hours<'a>(alert: &'a Alert, _: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let notified = receivers(findings.book(), alert).filter(|receiver| receiver.accepts(alert.severity));
    let hours: Option<Vec<_>> = notified.map(|receiver| receiver.hours.as_ref()).collect();
    if alert.severity >= AlertSeverity::High && hours.is_some_and(|hours| leaves_a_gap(&hours)) {
        let names = alert.receivers().collect::<Vec<_>>().join(", ");
        let message = format!("outside their hours none of [{names}] is notified");
        findings.report(alert.span, message, "add a receiver without `hours`, or lower the severity");
    }
}

fn receivers<'a>(book: &'a Sections, alert: &'a Alert) -> impl Iterator<Item = &'a Receiver> {
    alert.receivers().filter_map(|name| book.receivers.get(name)).map(|at| &at.value)
}

fn alert_filtered_out<'a>(alert: &'a Alert, _: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    // A receiver without a severity accepts everything, and is the least.
    let least = receivers(findings.book(), alert).map(|receiver| receiver.severity).min().flatten();
    if let Some(least) = least.filter(|least| alert.severity < *least) {
        let message = format!("none of its receivers accepts {} alerts", alert.severity.as_str());
        let help = format!("add a receiver that does, or make the alert {}", least.as_str());
        findings.report(alert.span, message, help);
    }
}

/// Whether there is a time of the week that none of them covers; not judged across time zones.
fn leaves_a_gap(hours: &[&Hours]) -> bool {
    let [first, rest @ ..] = hours else { return false };
    if rest.iter().any(|other| other.zone != first.zone) {
        return false;
    }
    (0..first.days.len()).any(|day| {
        let mut spans: Vec<_> =
            hours.iter().filter(|h| h.days[day]).map(|h| (h.from_minute, h.to_minute)).collect();
        spans.sort_unstable();
        let covered = |until: u16, (from, to): (u16, u16)| if from <= until { until.max(to) } else { until };
        spans.into_iter().fold(0, covered) < 24 * 60
    })
}

fn alert_window_missing<'a>(alert: &'a Alert, _: &[&Resolved<'a>], findings: &mut Findings<'a>) {
    let is_share = matches!(alert.when.limit, Some(Threshold { value: Quantity::Share(_), .. }));
    if is_share && alert.when.over.is_none() {
        let message = format!("`{}` has no time window", alert.when);
        findings.report(alert.span, message, "add the window, such as `over 5m`");
    }
}

/// Alerts of one list that differ by nothing but their limit, the mildest first.
fn ladders(alerts: &[Alert]) -> Vec<Vec<(f64, &Alert)>> {
    let mut ladders: BTreeMap<AlertFigure, Vec<(f64, &Alert)>> = BTreeMap::new();
    for alert in alerts {
        let (figure, height) = figure_and_height(&alert.when);
        ladders.entry(figure).or_default().push((height, alert));
    }
    let mut ladders: Vec<_> = ladders.into_values().filter(|steps| steps.len() > 1).collect();
    for steps in &mut ladders {
        steps.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    ladders
}

type AlertFigure = (AlertMetric, Option<bool>, Option<u8>, Option<Duration>, Option<Duration>);

/// What the condition looks at, and its limit: the higher, the worse.
fn figure_and_height(when: &Condition) -> (AlertFigure, f64) {
    let by = when.by.map(|by| by as u8);
    let Some(limit) = when.limit else {
        // A state has no limit: the longer it lasts, the worse it is.
        let lasting = when.lasting.unwrap_or_default().as_secs_f64();
        return ((when.metric, None, by, when.over, None), lasting);
    };
    let value = bound(limit.value);
    let (above, height) = match limit.op {
        ThresholdOp::Above | ThresholdOp::AtLeast => (true, value),
        ThresholdOp::Below | ThresholdOp::AtMost => (false, -value),
    };
    ((when.metric, Some(above), by, when.over, when.lasting), height)
}

fn alert_thresholds_inverted<'a>(alerts: &'a [Alert], findings: &mut Findings<'a>) {
    for steps in ladders(alerts) {
        let mut loudest = steps[0];
        for step in &steps[1..] {
            let (height, alert) = *step;
            if height > loudest.0 && alert.severity < loudest.1.severity {
                let (milder, line) = (&loudest.1.when, loudest.1.span.position.line);
                let message = format!("`{}` is less urgent than `{milder}` on line {line}", alert.when);
                findings.report(alert.span, message, "swap the severities, or the limits");
            }
            if alert.severity > loudest.1.severity {
                loudest = *step;
            }
        }
    }
}

fn duplicate_alert<'a>(alerts: &'a [Alert], findings: &mut Findings<'a>) {
    for steps in ladders(alerts) {
        for pair in steps.windows(2) {
            let [(height, first), (same, second)] = pair else { continue };
            if height.total_cmp(same).is_eq() {
                let line = first.span.position.line;
                let message = format!("`{}` is also on line {line}", second.when);
                findings.report(second.span, message, "keep one, and name all receivers under its `to`");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;

    #[test]
    fn alerts_are_judged() {
        let receivers = "receivers:
  day: { webhook: \"http://a.test/\", hours: Mon-Sun 06:00-18:00 }
  early: { webhook: \"http://b.test/\", hours: Mon-Sun 00:00-06:00 }
  late: { webhook: \"http://c.test/\", hours: Mon-Sun 12:00-24:00 }
  tokyo: { webhook: \"http://d.test/\", hours: Mon-Sun 06:00-18:00 Asia/Tokyo }
  pager: { webhook: \"http://e.test/\" }
  loud: { webhook: \"http://f.test/\", severity: high }
  louder: { webhook: \"http://g.test/\", severity: critical }
";
        let alert = |when: &str, severity: &str, to: &str| {
            format!("  - {{ when: \"{when}\", severity: {severity}, to: [{to}] }}\n")
        };
        let two = |one: (&str, &str), other: (&str, &str)| {
            alert(one.0, one.1, "pager") + &alert(other.0, other.1, "pager")
        };
        #[rustfmt::skip]
        let cases = [
            ("a pager is always on",           alert("breaker_opened", "critical", "day, pager"), vec![]),
            ("shifts that leave no gap",       alert("breaker_opened", "critical", "day, late, early"), vec![]),
            ("shifts that leave the morning",  alert("breaker_opened", "critical", "day, late"), vec!["3:5 alert-only-business-hours"]),
            ("other zones are not judged",     alert("breaker_opened", "critical", "day, tokyo"), vec![]),
            ("a warning can wait",             alert("breaker_opened", "warning", "day"), vec![]),
            ("no receiver",                    alert("breaker_opened", "high", ""), vec!["3:5 alert-without-receiver"]),
            ("other windows are another figure", two(("error_rate > 5% over 2m", "critical"), ("error_rate > 10% over 5m", "high")), vec![]),
            ("below is worse the lower it is", two(("error_rate < 5% over 2m", "high"), ("error_rate < 1% over 2m", "medium")), vec!["4:5 alert-thresholds-inverted"]),
            ("a state gets worse by lasting",  two(("breaker_open for 2m", "high"), ("breaker_open for 10m", "warning")), vec!["4:5 alert-thresholds-inverted"]),
            ("in any order",                   two(("dead_letters > 1000", "warning"), ("dead_letters > 100", "high")), vec!["3:5 alert-thresholds-inverted"]),
            ("the same in other words",        two(("dead_letter_inflow > 60/m", "high"), ("dead_letter_inflow > 1/s", "high")), vec!["4:5 duplicate-alert"]),
            ("for each service is another",    two(("dead_letters > 100", "high"), ("dead_letters > 100 by service", "high")), vec![]),
            ("too mild for both",              alert("breaker_opened", "medium", "loud, louder"), vec!["3:5 alert-filtered-out"]),
            ("too mild for one",               alert("breaker_opened", "high", "loud, louder"), vec![]),
            ("the day hears it alone",         alert("breaker_opened", "high", "day, louder"), vec!["3:5 alert-only-business-hours"]),
            ("a share of when",                alert("retry_rate > 20%", "high", "pager"), vec!["3:5 alert-window-missing"]),
        ];
        for (name, alerts, expected) in cases {
            let book = format!("version: 1\nalerts:\n{alerts}{receivers}");
            assert_eq!(found(&book, super::LINTS), expected, "{name}");
        }
    }

    #[test]
    fn a_service_silences_the_alerts_of_its_rows() {
        let book = |allow: &str| {
            format!(
                "version: 1\nservices:\n  s:\n    target: {{ log: stdout }}\n    events: [{{ type: a, alerts: [{{ when: breaker_opened, severity: high }}] }}]\n{allow}"
            )
        };
        assert_eq!(found(&book(""), super::LINTS), ["5:34 alert-without-receiver"]);
        let allow = "    allow: [{ lint: alert-without-receiver, because: shown on a wall }]\n";
        assert_eq!(found(&book(allow), super::LINTS), [""; 0]);
    }
}

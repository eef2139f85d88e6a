//! Lints about alerts: whether anybody hears them, and whether they say what their author means.
//!
//! Alerts are compared only within one list: each level's alerts look at what that level covers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Example::Book;
use super::{Findings, Lint, ON_CALL, Run};
use redrive_core::alerts::value::bound;
use redrive_core::book::expression::{Condition, Hours, Limit, Metric, Op, Quantity};
use redrive_core::book::model::{Alert, AlertSeverity, Receiver, Sections};
use redrive_core::book::problem::Severity;

pub(super) const LINTS: &[Lint] = &[
    Lint {
        code: "alert-without-receiver",
        severity: Severity::Warning,
        summary: "an alert that nobody is told of",
        explanation: "The alert is raised, counted and shown, and nobody hears of it: it names no receiver \
                      under `to`. Its author most likely believes that somebody will come. Name who is to \
                      be told, or leave the alert out; where an Alertmanager decides who is told, name it \
                      as the receiver.",
        bad: Book(&["alerts: [{ when: dead_letters > 100, severity: high }]"]),
        fix: &[(
            "severity: high }]",
            "severity: high, to: [on-call] }]\nreceivers: { on-call: { webhook: \"https://pager.example.test/hook\" } }",
        )],
        run: Run::Book(alert_without_receiver),
    },
    Lint {
        code: "alert-only-business-hours",
        severity: Severity::Error,
        summary: "an urgent alert whose every receiver is away at night",
        explanation: "A high alert is to be answered within an hour and a critical one within fifteen \
                      minutes, at any time. Every receiver of this one has `hours`, and outside of them \
                      all of them keep it back: on a Saturday nobody is told. Add a receiver without \
                      hours, such as a pager, or lower the severity if it can wait until Monday.",
        bad: Book(&[
            "alerts: [{ when: breaker_open for 10m, severity: critical, to: [office] }]",
            "receivers:",
            r#"  office: { slack: "https://chat.example.test/office", hours: Mon-Fri 09:00-17:00 Europe/Berlin }"#,
        ]),
        fix: &[
            ("[office]", "[office, on-call]"),
            ("receivers:", "receivers:\n  on-call: { webhook: \"https://pager.example.test/hook\" }"),
        ],
        run: Run::Book(alert_only_business_hours),
    },
    Lint {
        code: "alert-filtered-out",
        severity: Severity::Error,
        summary: "an alert that every one of its receivers filters out",
        explanation: "Every receiver of this alert has a `severity`, from which on it is told, and this alert \
                      is below all of them: it is raised, and none of those it names ever hears of it. Name \
                      a receiver that is told of such alerts too, lower the `severity` of one of them, or \
                      raise that of the alert if it is more urgent than it says.",
        bad: Book(&[
            "alerts: [{ when: dead_letters > 100, severity: medium, to: [on-call] }]",
            "receivers:",
            r#"  on-call: { webhook: "https://pager.example.test/hook", severity: high }"#,
        ]),
        fix: &[
            ("[on-call]", "[on-call, office]"),
            ("receivers:", "receivers:\n  office: { slack: \"https://chat.example.test/office\" }"),
        ],
        run: Run::Book(alert_filtered_out),
    },
    Lint {
        code: "alert-window-missing",
        severity: Severity::Warning,
        summary: "an alert on a share that does not say over which time",
        explanation: "A share of what? Without `over` nobody can tell whether 5 % of the last ten calls or \
                      of the last day is meant. Over a short time a single failure is a large share, and \
                      the alert cries wolf; over a long one it comes too late. Write the time: \
                      `error_rate > 5% over 2m`.",
        bad: Book(&["alerts: [{ when: error_rate > 5%, severity: high, to: [on-call] }]", ON_CALL]),
        fix: &[("> 5%", "> 5% over 2m")],
        run: Run::Book(alert_window_missing),
    },
    Lint {
        code: "alert-thresholds-inverted",
        severity: Severity::Warning,
        summary: "the worse it gets, the less urgent the alert",
        explanation: "Two alerts look at the same figure, and the one with the higher limit is the less \
                      urgent. As things get worse the alerts should get louder; here they get quieter, \
                      so either the limits or the severities have changed places. Swap them.",
        bad: Book(&[
            "alerts:",
            "  - { when: dead_letters > 100, severity: high, to: [on-call] }",
            "  - { when: dead_letters > 1000, severity: medium, to: [on-call] }",
            ON_CALL,
        ]),
        fix: &[("> 1000", "> 10")],
        run: Run::Book(alert_thresholds_inverted),
    },
    Lint {
        code: "duplicate-alert",
        severity: Severity::Warning,
        summary: "the same condition raises two alerts",
        explanation: "Two alerts of one list have the same condition, so one trouble wakes people twice, \
                      and whoever changes a limit later will change one of them and wonder about the \
                      other. Keep one alert and name all its receivers under `to`.",
        bad: Book(&[
            "alerts:",
            "  - { when: dead_letters > 100, severity: high, to: [on-call] }",
            "  - { when: dead_letters > 100, severity: high, to: [office] }",
            r#"receivers: { on-call: { webhook: "https://pager.example.test/hook" }, office: { slack: "https://chat.example.test/office" } }"#,
        ]),
        fix: &[("on-call] }\n  - { when: dead_letters > 100, severity: high, to: [", "on-call, ")],
        run: Run::Book(duplicate_alert),
    },
];

/// Runs over every list of alerts, with the silencers that hold there.
pub(super) fn each_list<'a>(
    book: &'a Sections,
    findings: &mut Findings<'a>,
    look: impl Fn(&'a [Alert], &mut Findings<'a>),
) {
    look(&book.alerts, findings);
    findings.each_layer(book, |layer, findings| look(&layer.alerts, findings));
}

fn alert_without_receiver<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
        // What people are told of at once goes to everybody where nobody is named.
        let goes_to_all =
            |alert: &Alert| matches!(alert.when.metric, Metric::Trouble(_)) && !book.receivers.is_empty();
        let is_untold = |alert: &&Alert| alert.receivers().next().is_none() && !goes_to_all(alert);
        for alert in alerts.iter().filter(is_untold) {
            let help = "add `to:` with the names of receivers";
            findings.report(alert.span, format!("nobody is told that `{}`", alert.when), help);
        }
    });
}

fn alert_only_business_hours<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
        for alert in alerts.iter().filter(|alert| alert.severity >= AlertSeverity::High) {
            let hearing = receivers(book, alert).filter(|receiver| receiver.hears(alert.severity));
            let hours = hearing.map(|receiver| receiver.hours.as_ref());
            let Some(hours) = hours.collect::<Option<Vec<_>>>() else { continue };
            if leaves_a_gap(&hours) {
                let names = alert.receivers().collect::<Vec<_>>().join(", ");
                findings.report(
                    alert.span,
                    format!("outside their hours none of [{names}] is told of this"),
                    "add a receiver without `hours`, or lower the severity",
                );
            }
        }
    });
}

/// Everybody who may be told of an alert.
fn receivers<'a>(book: &'a Sections, alert: &'a Alert) -> impl Iterator<Item = &'a Receiver> {
    alert.receivers().filter_map(|name| book.receivers.get(name)).map(|at| &at.value)
}

fn alert_filtered_out<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
        for alert in alerts {
            let least = receivers(book, alert).map(|receiver| receiver.severity).min().flatten();
            // Whoever names no severity is told of everything, and comes first.
            if let Some(least) = least.filter(|least| alert.severity < *least) {
                let severity = alert.severity.as_str();
                let message = format!("none of its receivers is told of {severity} alerts");
                let help = format!("name a receiver that is, or make the alert {}", least.as_str());
                findings.report(alert.span, message, help);
            }
        }
    });
}

/// Whether there is a time of the week that none of them covers; in different zones that is not judged.
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

fn alert_window_missing<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
        for alert in alerts.iter().filter(|alert| is_share(&alert.when) && alert.when.over.is_none()) {
            let message = format!("`{}` does not say over which time", alert.when);
            findings.report(alert.span, message, "add the time, such as `over 5m`");
        }
    });
}

const fn is_share(when: &Condition) -> bool {
    matches!(when.limit, Some(Limit { value: Quantity::Share(_), .. }))
}

/// Alerts of one list that differ by nothing but how bad it must be, the mildest first.
fn ladders(alerts: &[Alert]) -> Vec<Vec<(f64, &Alert)>> {
    let mut ladders: BTreeMap<Figure, Vec<(f64, &Alert)>> = BTreeMap::new();
    for alert in alerts {
        let (figure, height) = placed(&alert.when);
        ladders.entry(figure).or_default().push((height, alert));
    }
    let mut ladders: Vec<_> = ladders.into_values().filter(|steps| steps.len() > 1).collect();
    for steps in &mut ladders {
        steps.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    ladders
}

/// What an alert looks at: metric, direction, grouping and times.
type Figure = (Metric, Option<bool>, Option<u8>, Option<Duration>, Option<Duration>);

/// What the condition looks at, and how bad it must be.
fn placed(when: &Condition) -> (Figure, f64) {
    let by = when.by.map(|by| by as u8);
    let Some(limit) = when.limit else {
        // A state has no limit: the longer it lasts, the worse it is.
        let lasting = when.lasting.unwrap_or_default().as_secs_f64();
        return ((when.metric, None, by, when.over, None), lasting);
    };
    let value = bound(limit.value);
    let (above, height) = match limit.op {
        Op::Above | Op::AtLeast => (true, value),
        Op::Below | Op::AtMost => (false, -value),
    };
    ((when.metric, Some(above), by, when.over, when.lasting), height)
}

fn alert_thresholds_inverted<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
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
    });
}

fn duplicate_alert<'a>(book: &'a Sections, findings: &mut Findings<'a>) {
    each_list(book, findings, |alerts, findings| {
        for steps in ladders(alerts) {
            for pair in steps.windows(2) {
                let [(height, first), (same, second)] = pair else { continue };
                if height.total_cmp(same).is_eq() {
                    let line = first.span.position.line;
                    let message = format!("`{}` stands on line {line} already", second.when);
                    findings.report(second.span, message, "keep one, and name all receivers under its `to`");
                }
            }
        }
    });
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
            ("nobody",                         alert("breaker_opened", "high", ""), vec!["3:5 alert-without-receiver"]),
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

//! The keys of alerts and receivers.

use super::{NameKind, ObjectSchema, OneOf, ValueType, duration, key, text};
use crate::alerts::catalog;
use crate::book::connectors::Edge;

const SEVERITIES: &[&str] = &["warning", "medium", "high", "critical"];

pub(super) static ALERT: ObjectSchema = ObjectSchema::of(
    "an alert",
    "Alerts: conditions and who is notified.",
    &[
        key(
            "use",
            ValueType::Word(&catalog::NAMES),
            "A catalog alert; `when`, `severity` and `action` given here override its own.",
        ),
        key(
            "when",
            ValueType::Condition,
            "METRIC OP VALUE [over D] [for D] [by WHAT]; required unless `use` provides one.",
        ),
        text("name", "The alert's name (default: its name in the catalog, or the condition)."),
        key("severity", ValueType::Word(SEVERITIES), "How urgent it is; required unless `use` provides one."),
        key("to", ValueType::ListOf(&ValueType::Name(NameKind::Receiver)), "The receivers to notify."),
        key(
            "escalate",
            ValueType::ListOf(&ValueType::Name(NameKind::Receiver)),
            "Receivers notified next while it still fires, one after each response time: critical 15m, high 1h, medium 4h, warning 24h.",
        ),
        duration(
            "repeat",
            "How often the notification repeats while the alert fires (default: critical 15m, high 1h, medium 4h, warning 24h).",
        ),
        text("action", "What to do about it."),
        key(
            "off",
            ValueType::Bool,
            "`true` keeps the alert in the book but switches it off (default false).",
        ),
    ],
);

pub(super) static RECEIVER: ObjectSchema = ObjectSchema {
    name: "a receiver",
    about: "Where alert notifications go.",
    fields: &[
        key("severity", ValueType::Word(SEVERITIES), "Only alerts from this severity on (default: all)."),
        key("hours", ValueType::Hours, "Only in these hours: `Mon-Fri 09:00-17:00 Europe/Berlin`."),
        key(
            "retry",
            ValueType::Name(NameKind::Policy),
            "The retry policy for failed notifications (default: soon at first, then every five minutes, for a day).",
        ),
        duration("timeout", "Timeout of one notification (default 10s, with `email` 30s)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Receiver),
};

//! The keys of alerts and receivers.

use super::{NameKind, ObjectSchema, OneOf, ValueType, duration, key, text};
use crate::alerts::catalog;
use crate::book::connectors::Edge;

const SEVERITIES: &[&str] = &["warning", "medium", "high", "critical"];

/// An alert.
pub(super) static ALERT: ObjectSchema = ObjectSchema::of(
    "an alert",
    "What people are told, and when.",
    &[
        key(
            "use",
            ValueType::Word(&catalog::NAMES),
            "An alert of the catalog; `when`, `severity` and `action` are its own unless they stand here.",
        ),
        key(
            "when",
            ValueType::Condition,
            "METRIC OP VALUE [over D] [for D] [by WHAT]; needed unless `use` brings one.",
        ),
        text("name", "What it is called (default: its name in the catalog, or the condition)."),
        key("severity", ValueType::Word(SEVERITIES), "How urgent it is; needed unless `use` brings one."),
        key("to", ValueType::ListOf(&ValueType::Name(NameKind::Receiver)), "Who is told."),
        key(
            "escalate",
            ValueType::ListOf(&ValueType::Name(NameKind::Receiver)),
            "Who is told next if it is not over in time, one after each response time: critical 15m, high 1h, medium 4h, warning 24h.",
        ),
        duration(
            "repeat",
            "How often it is said again while it lasts (default: critical 15m, high 1h, medium 4h, warning 24h).",
        ),
        text("action", "What they should do."),
        key("off", ValueType::Bool, "`true` leaves it in the book and watches for nothing (default false)."),
    ],
);

/// Who is told.
pub(super) static RECEIVER: ObjectSchema = ObjectSchema {
    name: "a receiver",
    about: "Who is told of alerts.",
    fields: &[
        key("severity", ValueType::Word(SEVERITIES), "Only alerts from this severity on (default: all)."),
        key("hours", ValueType::Hours, "Only in these hours: `Mon-Fri 09:00-17:00 Europe/Berlin`."),
        key(
            "retry",
            ValueType::Name(NameKind::Policy),
            "The policy by which a message that fails is sent again (default: soon at first, then every five minutes, for a day).",
        ),
        duration("timeout", "How long one message may take (default 10s, with `email` 30s)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Receiver),
};

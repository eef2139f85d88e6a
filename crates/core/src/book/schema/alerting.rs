//! The keys of alerts and receivers.

use super::{Named, Object, OneOf, Type, duration, key, text};
use crate::alerts::catalog;
use crate::book::connectors::Edge;

const SEVERITIES: &[&str] = &["warning", "medium", "high", "critical"];

/// An alert.
pub(super) static ALERT: Object = Object::of(
    "an alert",
    "What people are told, and when.",
    &[
        key(
            "use",
            Type::Word(&catalog::NAMES),
            "An alert of the catalog; `when`, `severity` and `action` are its own unless they stand here.",
        ),
        key(
            "when",
            Type::Condition,
            "METRIC OP VALUE [over D] [for D] [by WHAT]; needed unless `use` brings one.",
        ),
        text("name", "What it is called (default: its name in the catalog, or the condition)."),
        key("severity", Type::Word(SEVERITIES), "How urgent it is; needed unless `use` brings one."),
        key("to", Type::ListOf(&Type::Name(Named::Receiver)), "Who is told."),
        key(
            "escalate",
            Type::ListOf(&Type::Name(Named::Receiver)),
            "Who is told next if it is not over in time, one after each response time: critical 15m, high 1h, medium 4h, warning 24h.",
        ),
        duration(
            "repeat",
            "How often it is said again while it lasts (default: critical 15m, high 1h, medium 4h, warning 24h).",
        ),
        text("action", "What they should do."),
        key("off", Type::Bool, "`true` leaves it in the book and watches for nothing (default false)."),
    ],
);

/// Who is told.
pub(super) static RECEIVER: Object = Object {
    name: "a receiver",
    about: "Who is told of alerts.",
    fields: &[
        key("severity", Type::Word(SEVERITIES), "Only alerts from this severity on (default: all)."),
        key("hours", Type::Hours, "Only in these hours: `Mon-Fri 09:00-17:00 Europe/Berlin`."),
        key(
            "retry",
            Type::Name(Named::Policy),
            "The policy by which a message that fails is sent again (default: soon at first, then every five minutes, for a day).",
        ),
        duration("timeout", "How long one message may take (default 10s, with `email` 30s)."),
    ],
    includes: &[],
    one_of: OneOf::Kinds(Edge::Receiver),
};

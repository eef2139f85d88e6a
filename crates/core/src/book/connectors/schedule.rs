//! The `schedule` source: emits events on a cron schedule.

use std::sync::Arc;
use std::time::Duration;

use super::{Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::schema::{ObjectSchema, OneOf, ValueType, key, required};
use crate::book::source_template::SourceTemplate;
use crate::event::attribute::{EventSubject, SessionKey};

pub static SOURCE: Connector =
    Connector::new(Edge::Source, "schedule", ValueType::Object(&SCHEDULE), "A clock.", read);

static SCHEDULE: ObjectSchema = ObjectSchema {
    name: "a schedule",
    about: "Emits an event at times.",
    fields: &[
        required("cron", ValueType::Cron, "When: five fields of cron."),
        key("zone", ValueType::Zone, "In which time zone (default UTC)."),
        key(
            "missed",
            ValueType::Word(&["one", "none", "all"]),
            "What happens to fires missed while Redrive was down: the latest, none, or all are made up for (default one).",
        ),
        key(
            "missed_within",
            ValueType::Duration,
            "How long ago a missed fire may be to be caught up (default 24h).",
        ),
        key(
            "data",
            ValueType::Json,
            "The event's data, as JSON in quotes (default: the schedule and the fire time).",
        ),
    ],
    includes: &[],
    one_of: OneOf::Nothing,
};

#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSettings {
    pub cron: String,
    pub zone: Option<String>,
    pub missed: Missed,
    /// Maximum age of a missed fire.
    pub missed_within: Option<Duration>,
    pub data: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    #[default]
    One,
    None,
    All,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    from.needs_type();
    from.exclude(&["id"], "events of a schedule get their id from the fire time");
    plain(from, "type", "bad-event-type", |_| None);
    plain(from, "subject", "bad-template", |text| {
        EventSubject::new(text).err().map(|error| error.to_string())
    });
    plain(from, "session", "bad-template", |text| SessionKey::new(text).err().map(|error| error.to_string()));
    let inner = from.inner()?;
    let settings = ScheduleSettings {
        cron: inner.text("cron")?,
        zone: inner.text("zone"),
        missed: match inner.text("missed").as_deref() {
            Some("none") => Missed::None,
            Some("all") => Missed::All,
            _ => Missed::One,
        },
        missed_within: inner.duration("missed_within"),
        data: inner.text("data"),
    };
    Some((Arc::new(settings), Profile::default()))
}

/// Reports placeholders, which a schedule cannot fill, and other invalid texts.
fn plain(from: &mut SettingsReader<'_>, key: &str, code: &'static str, fault: fn(&str) -> Option<String>) {
    let Some(template) = from.text(key).and_then(|text| SourceTemplate::parse(&text).ok()) else { return };
    let wrong = match template.literal() {
        None => Some("a schedule has no headers or data for placeholders".to_owned()),
        Some(text) => fault(text),
    };
    if let Some(message) = wrong {
        from.error(key, code, message, "use a short text without placeholders");
    }
}

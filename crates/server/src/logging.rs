//! The server's log: on standard error, a line per event, as text or JSON.
//!
//! All values of all lines pass here, and untrusted texts are redacted: secrets by pattern and by value, and
//! personal data. Names of the rule book and our own ids stay.
//!
//! Invariant: in JSON format, standard error has only objects, one per line: messages for people are logged
//! instead.

use std::fmt;
use std::sync::OnceLock;

use clap::ValueEnum;
use redrive::clock::wall_clock;
use redrive_core::mask::mask_addresses;
use redrive_core::redact::{redact, redact_id};
use redrive_node::secret::Secrets;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::terminal::{plain, style};

pub(crate) const LOG_LEVELS: [(&str, &str, Level); 5] = [
    ("error", "Errors only", Level::ERROR),
    ("warn", "And warnings", Level::WARN),
    ("info", "And every failure, hold and change", Level::INFO),
    ("debug", "And every event and delivery", Level::DEBUG),
    ("trace", "Everything", Level::TRACE),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// Fields filled only by the rule book and ourselves.
const OURS: &[&str] = &[
    "category",
    "code",
    "delivery_id",
    "dependency",
    "fingerprint",
    "letter",
    "receipt",
    "secret",
    "service",
    "session",
    "source",
    "span_id",
    "trace_id",
];

/// Fields with ids and names chosen by others; the value of an alert names a delivery.
const IDS: &[&str] = &["correlation_id", "event_id", "event_type", "value"];

/// Set once at the start.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Values that are removed from every line.
static SECRETS: OnceLock<Secrets> = OnceLock::new();

/// Only the first call counts.
pub(crate) fn start(level: Level, format: LogFormat) {
    let _ = FORMAT.set(format);
    let log = tracing_subscriber::fmt().with_max_level(level);
    // A subscriber that is already set stays.
    let _ = match format {
        LogFormat::Human => {
            let log = log.event_format(LogLine(format)).with_writer(anstream::stderr).finish();
            tracing::subscriber::set_global_default(log)
        }
        LogFormat::Json => {
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "panic")));
            let log = log.event_format(LogLine(format)).with_writer(std::io::stderr).finish();
            tracing::subscriber::set_global_default(log)
        }
    };
}

pub(crate) fn leave_out(secrets: &Secrets) {
    let _ = SECRETS.set(secrets.clone());
}

/// Prints a message for people; a JSON log gets its own line instead.
pub(crate) fn say(text: impl fmt::Display, log: impl FnOnce()) {
    match FORMAT.get() {
        Some(LogFormat::Json) => log(),
        Some(LogFormat::Human) | None => anstream::eprintln!("{text}"),
    }
}

struct LogLine(LogFormat);

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        let text = match self.0 {
            LogFormat::Human => human(level, &fields),
            LogFormat::Json => json(level, fields),
        };
        writeln!(out, "{text}")
    }
}

/// Redacted fields in the order written.
#[derive(Default)]
struct LogFields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl LogFields {
    fn push(&mut self, field: &Field, value: Value) {
        self.others.push((field.name(), value));
    }

    fn push_text(&mut self, field: &Field, text: &str) {
        let text = fit(field.name(), text);
        match field.name() {
            "message" => self.message = text,
            _ => self.push(field, text.into()),
        }
    }
}

/// The redacted text.
fn fit(name: &str, text: &str) -> String {
    if OURS.contains(&name) {
        return text.to_owned();
    }
    let hidden = SECRETS.get().map_or(text.into(), |secrets| secrets.hide(text));
    let hidden = mask_addresses(&hidden);
    if IDS.contains(&name) { redact_id(&hidden).into_owned() } else { redact(&hidden).into_owned() }
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_text(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_text(field, &format!("{value:?}"));
    }
}

fn human(level: Level, fields: &LogFields) -> String {
    let padded = format!("{level:>5}");
    let level = match level {
        Level::ERROR => style::error(padded),
        Level::WARN => style::warning(padded),
        Level::INFO => style::good(padded),
        _ => style::dim(padded),
    };
    let mut line = format!("{} {level} {}", style::dim(wall_clock()), plain(&fields.message));
    for (name, value) in &fields.others {
        // Texts are quoted as JSON, without terminal control characters.
        line.push_str(&format!(" {}{}", style::dim(format!("{name}=")), plain(&value.to_string())));
    }
    line
}

fn json(level: Level, fields: LogFields) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), wall_clock().to_string().into());
    object.insert("level".to_owned(), level.as_str().to_lowercase().into());
    object.insert("message".to_owned(), fields.message.into());
    for (name, value) in fields.others {
        object.insert(name.to_owned(), value);
    }
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("never poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Page {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(format: LogFormat) -> String {
        let page = Page::default();
        let log = tracing_subscriber::fmt().event_format(LogLine(format)).with_writer(page.clone()).finish();
        tracing::subscriber::with_default(log, || {
            let none: Option<&str> = None;
            tracing::warn!(
                service = "billing",
                event_id = "0123456789abcdef0123456789abcdef",
                status = 503,
                took_ms = 1.5,
                category = none,
                error = "no user jane@example.com\nwith password=hunter2",
                "attempt failed"
            );
        });
        let bytes = page.0.lock().expect("never poisoned").clone();
        String::from_utf8(bytes).expect("lines are text")
    }

    #[test]
    fn a_line_of_json_is_flat_and_has_nothing_to_hide() {
        let line = logged(LogFormat::Json);
        assert!(line.ends_with("}\n") && line.lines().count() == 1, "{line}");
        let mut object: Map<String, Value> = serde_json::from_str(&line).expect("an object");
        let time = object.remove("time").expect("every line has a time");
        assert!(time.as_str().expect("a text").ends_with('Z'), "{time}");
        let expected = serde_json::json!({
            "level": "warn",
            "message": "attempt failed",
            "service": "billing",
            "event_id": "0123456789abcdef0123456789abcdef",
            "status": 503,
            "took_ms": 1.5,
            "error": "no user [email]\nwith password=[secret]",
        });
        assert_eq!(Value::Object(object), expected);
    }

    #[test]
    fn a_line_for_people_is_one_line() {
        let line = anstream::adapter::strip_str(&logged(LogFormat::Human)).to_string();
        let (_, rest) = line.split_once("  WARN ").expect("the level");
        let expected = "attempt failed service=\"billing\" \
                        event_id=\"0123456789abcdef0123456789abcdef\" status=503 took_ms=1.5 \
                        error=\"no user [email]\\nwith password=[secret]\"\n";
        assert_eq!(rest, expected);
    }
}

//! Terminal output of a sink: a line per request, and the counts at the end.

use std::collections::BTreeMap;

use redrive_core::time::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::events::sink::SinkFormat;
use crate::terminal::moment::time_of_day;
use crate::terminal::style;

/// Enough of a `webhook-id` to recognize a delivery.
const ID_SHOWN_MAX: usize = 12;

#[derive(Debug, Serialize)]
pub(crate) struct SinkRequest {
    pub(crate) at: Timestamp,
    pub(crate) path: String,
    pub(crate) webhook_id: Option<String>,
    /// The event type, or the size of a batch.
    #[serde(rename = "type")]
    pub(crate) event_type: Option<String>,
    pub(crate) attempt: Option<u64>,
    pub(crate) sequence: Option<u64>,
    /// Number of the replay, if any.
    pub(crate) replay: Option<u64>,
    pub(crate) bytes: usize,
    /// `None` if it is never answered.
    #[serde(rename = "status")]
    pub(crate) answer: Option<u16>,
}

/// Requests by answer.
#[derive(Debug, Default)]
pub(crate) struct SinkCounts {
    by_answer: BTreeMap<Option<u16>, u64>,
    retries: u64,
}

impl SinkCounts {
    pub(crate) fn add(&mut self, request: &SinkRequest) {
        *self.by_answer.entry(request.answer).or_default() += 1;
        self.retries += u64::from(request.attempt.is_some_and(|attempt| attempt > 1));
    }

    pub(crate) fn render(&self, format: SinkFormat) -> String {
        let all: u64 = self.by_answer.values().sum();
        let shown = match format {
            SinkFormat::Json => {
                let name =
                    |answer: &Option<u16>| answer.map_or("none".to_owned(), |status| status.to_string());
                let answers: BTreeMap<String, u64> =
                    self.by_answer.iter().map(|(answer, count)| (name(answer), *count)).collect();
                json!({ "requests": all, "answers": answers, "retries": self.retries }).to_string()
            }
            SinkFormat::Text => {
                let parts = self.by_answer.iter().map(|(answer, count)| match answer {
                    Some(_) => format!("{count} × {}", painted(*answer)),
                    None => format!("{count} {}", style::warning("never answered")),
                });
                let parts: Vec<String> = parts.collect();
                let requests = if all == 1 { "request" } else { "requests" };
                let list = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
                let retries = match self.retries {
                    0 => String::new(),
                    retries => format!("; {retries} of them retries"),
                };
                format!("{} {requests}{list}{retries}", style::bold(all))
            }
        };
        shown + "\n"
    }
}

pub(crate) fn listening(address: &str, format: SinkFormat) -> String {
    match format {
        SinkFormat::Json => json!({ "listening": address }).to_string() + "\n",
        SinkFormat::Text => format!("listening on {}\n", style::bold(address)),
    }
}

pub(crate) fn line(request: &SinkRequest, format: SinkFormat) -> String {
    if format == SinkFormat::Json {
        return format!("{}\n", json!(request));
    }
    let SinkRequest { at, path, webhook_id, event_type, attempt, sequence, replay, bytes: _, answer } =
        request;
    let short = |id: &String| id.chars().take(ID_SHOWN_MAX).collect::<String>();
    let numbers = [("attempt", attempt), ("sequence", sequence), ("replay", replay)];
    let numbers = numbers.into_iter().filter_map(|(name, number)| Some(format!("{name} {}", (*number)?)));
    let words = [webhook_id.as_ref().map(short), event_type.clone()].into_iter().flatten().chain(numbers);
    let words: Vec<String> = [path.clone()].into_iter().chain(words).collect();
    format!("{} {} → {}\n", style::dim(time_of_day(*at)), words.join(" "), painted(*answer))
}

fn painted(answer: Option<u16>) -> String {
    match answer {
        Some(status @ 200..=299) => style::good(status),
        Some(status) => style::error(status),
        None => style::warning("no answer"),
    }
}

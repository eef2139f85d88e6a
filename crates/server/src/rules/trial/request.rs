//! The request that `redrive try` shows: what the target would be sent for an event that the command states.

use std::fmt::Write;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use redrive_core::book::connectors::TemplateUse;
use redrive_core::book::connectors::http::request::RequestTemplates;
use redrive_core::book::connectors::http::{HttpMethod, HttpSettings};
use redrive_core::book::resolve::Resolved;
use redrive_core::book::template::{RenderError, TemplateContext};
use redrive_core::engine::QueueName;
use redrive_core::event::attribute::EventId;
use redrive_core::event::simple::{SimpleEvent, parse_simple};
use redrive_core::event::{Event, Incoming, parse};
use redrive_core::time::Timestamp;
use redrive_node::target::http::preview::{NoPreview, RequestPreview, preview};

use super::TryArgs;
use crate::rules::file::load;
use crate::terminal::{plain, style};

/// Bytes of a body that are shown.
const BODY_SHOWN_MAX: usize = 4 * 1024;

/// The event of a trial; its data are `{}` unless the command states others.
pub(super) struct TrialEvent {
    event: Event,
    is_stated: bool,
}

/// What a section says.
enum Shown {
    Text(String),
    /// Why nothing would be sent.
    Error(String),
}

impl TrialEvent {
    /// `None` unless the command states its data.
    pub(super) fn stated(&self) -> Option<&Event> {
        self.is_stated.then_some(&self.event)
    }
}

pub(super) fn event(args: &TryArgs) -> anyhow::Result<TrialEvent> {
    let Some(file) = &args.event else {
        let body = Bytes::from(args.data.clone().unwrap_or_else(|| "{}".to_owned()));
        let event = parse_simple(SimpleEvent {
            event_type: &args.event_type,
            partition_key: None,
            idempotency_key: None,
            generated_id: &EventId::new("try").expect("a short plain text"),
            headers: &Vec::new(),
            body: &body,
        });
        let event = event.map_err(|error| anyhow!("--data is no event: {error}"))?;
        return Ok(TrialEvent { event, is_stated: args.data.is_some() });
    };
    let shown = file.display();
    let headers = vec![("content-type".to_owned(), "application/cloudevents+json".to_owned())];
    let body = Bytes::from(load(file)?);
    let parsed = parse(Incoming { headers: &headers, body: &body });
    let parsed = parsed.map_err(|error| anyhow!("{shown} is no event: {error}"))?;
    let event = parsed.into_events().into_iter().next().context("one event is read")?;
    if event.event_type.as_str() != args.event_type {
        return Err(anyhow!("the event in {shown} is of type `{}`", event.event_type.as_str()));
    }
    Ok(TrialEvent { event, is_stated: true })
}

/// Empty for targets that send the event as it is, unless the command states one.
pub(super) fn shown(taker: &Resolved<'_>, trial: &TrialEvent) -> String {
    let Some(settings) = taker.target.endpoint.settings::<HttpSettings>() else {
        return message(taker, trial);
    };
    let is_plain = settings.request == RequestTemplates::default()
        && settings.auth.is_none()
        && settings.method == HttpMethod::Post;
    if is_plain && !trial.is_stated {
        return String::new();
    }
    let queue = QueueName {
        service: taker.service.name.clone(),
        channel: taker.channel.map(|channel| channel.name.clone()),
    };
    let shown = match preview(settings, queue, trial.event.clone(), Timestamp::EPOCH) {
        Ok(request) => Shown::Text(lines(&request)),
        Err(NoPreview::Missing(fields)) => lacks(&fields, trial),
        Err(NoPreview::Other(message)) => Shown::Error(message),
    };
    section("request", &shown)
}

/// What the templates of another target make, such as a mail's subject.
fn message(taker: &Resolved<'_>, trial: &TrialEvent) -> String {
    let templates = &taker.target.endpoint.profile.templates;
    if templates.is_empty() {
        return String::new();
    }
    let context = TemplateContext::new(&trial.event, "[webhook-id]", 1);
    let (mut text, mut missing) = (String::new(), Vec::new());
    for TemplateUse { key, template, .. } in templates {
        match template.render(&context, BODY_SHOWN_MAX) {
            Ok(made) => {
                let _ = writeln!(text, "{key}: {made}");
            }
            Err(RenderError::Missing { field }) => missing.push(field),
            Err(error) => return section("message", &Shown::Error(error.to_string())),
        }
    }
    if missing.is_empty() {
        return section("message", &Shown::Text(text));
    }
    missing.dedup();
    section("message", &lacks(&missing, trial))
}

/// What is said of missing fields.
fn lacks(fields: &[String], trial: &TrialEvent) -> Shown {
    let fields = fields.join(", ");
    if trial.is_stated {
        return Shown::Error(format!("no call is made: the event lacks {fields}"));
    }
    Shown::Text(format!("needs {fields}: give --data"))
}

fn section(title: &str, shown: &Shown) -> String {
    let mut out = format!("\n{}\n", style::bold(title));
    let (text, is_error) = match shown {
        Shown::Text(text) => (text, false),
        Shown::Error(text) => (text, true),
    };
    for line in text.lines() {
        let line = plain(line);
        let line = if is_error { style::error(line) } else { line };
        let _ = writeln!(out, "  {line}");
    }
    out
}

fn lines(request: &RequestPreview) -> String {
    let mut out = format!("{} {}\n", request.method, request.url);
    for (name, value) in &request.headers {
        let value = if name == "webhook-timestamp" { "[time of the call]" } else { value };
        let _ = writeln!(out, "{name}: {value}");
    }
    let body = &request.body;
    if !body.is_empty() {
        let text = String::from_utf8_lossy(&body[..body.len().min(BODY_SHOWN_MAX)]);
        let _ = writeln!(out, "\n{text}");
    }
    if body.len() > BODY_SHOWN_MAX {
        let _ = writeln!(out, "… ({} bytes in all)", body.len());
    }
    out
}

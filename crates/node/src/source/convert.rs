//! Makes the event of a message: the `CloudEvent` that it is, or one made by the templates of its source.
//!
//! A message is a `CloudEvent` if its content type or headers say so, or if its source states no `type`.
//! Otherwise `type` makes the event and the body is its data, byte for byte. Templates for subject and
//! session fill in what a `CloudEvent` lacks.

use redrive_core::book::model::SourceEntry;
use redrive_core::book::source_template::{FieldSelection, SelectedFields, SourceTemplate, TemplateInput};
use redrive_core::event::attribute::{ContentType, EventId, EventSource, EventType, Text, TextBounds};
use redrive_core::event::refusal::InvalidReason;
use redrive_core::event::{Event, HeaderList, Incoming, Parsed, parse, reserved};
use redrive_core::time::Timestamp;

use super::SourceMessage;

const STRUCTURED: &str = "application/cloudevents+json";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {why}")]
pub struct MalformedInput {
    /// The header, the attribute, or `body`.
    pub field: &'static str,
    pub why: MalformedReason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedReason {
    #[error("is a form: choose `application/json` in the webhook's settings")]
    Form,
    /// No part of the template has a value.
    #[error("has no value in this request: check the template of this source")]
    NoValue,
    #[error(transparent)]
    Unfit(#[from] InvalidReason),
}

pub(crate) const fn unfit(field: &'static str, reason: InvalidReason) -> MalformedInput {
    MalformedInput { field, why: MalformedReason::Unfit(reason) }
}

/// None without a template, or without its values.
pub(crate) fn filled<Of: TextBounds>(
    field: &'static str,
    template: Option<&SourceTemplate>,
    found: &dyn TemplateInput,
) -> Result<Option<Text<Of>>, MalformedInput> {
    let text = template.and_then(|template| template.fill(found));
    text.map(|text| Text::new(&text).map_err(|reason| unfit(field, reason))).transpose()
}

pub(crate) fn filled_type(
    template: &SourceTemplate,
    found: &dyn TemplateInput,
) -> Result<EventType, MalformedInput> {
    let text =
        template.fill_type(found).ok_or(MalformedInput { field: "type", why: MalformedReason::NoValue })?;
    EventType::new(&text).map_err(|reason| unfit("type", reason))
}

#[derive(Debug)]
pub(crate) struct Templates {
    pub(crate) event_type: Option<SourceTemplate>,
    pub(crate) subject: Option<SourceTemplate>,
    pub(crate) session: Option<SourceTemplate>,
    pub(crate) id: Option<SourceTemplate>,
    /// The data fields that they use.
    pub(crate) wanted: FieldSelection,
}

impl Templates {
    pub(crate) fn of(source: &SourceEntry) -> Self {
        let template = |text: &Option<String>| {
            text.as_ref().map(|text| SourceTemplate::parse(text).expect("the book has checked it"))
        };
        let [event_type, subject, session, id] =
            [&source.event_type, &source.subject, &source.session, &source.id].map(template);
        let mut wanted = FieldSelection::default();
        for template in [&event_type, &subject, &session, &id].into_iter().flatten() {
            template.data_paths().for_each(|path| wanted.add(path));
        }
        Self { event_type, subject, session, id, wanted }
    }
}

pub(super) struct Converter {
    templates: Templates,
    event_source: EventSource,
}

struct MessageMaterial<'a> {
    headers: &'a [(String, String)],
    data: SelectedFields<'a>,
}

impl TemplateInput for MessageMaterial<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }

    fn data(&self, path: &[String]) -> Option<&str> {
        self.data.get(path)
    }
}

impl Converter {
    pub(super) fn new(name: &str, source: &SourceEntry) -> Self {
        let event_source = EventSource::new(&format!("{}{name}", reserved::PULLED_PREFIX));
        let event_source = event_source.expect("names are short and plain");
        Self { templates: Templates::of(source), event_source }
    }

    /// The event, or the reason for refusing the message.
    pub(super) fn event(&self, message: &SourceMessage, now: Timestamp) -> Result<Event, String> {
        if let Some(fault) = &message.fault {
            return Err(fault.clone());
        }
        let is_bound = message.headers.iter().any(|(name, value)| {
            let is_type = name.eq_ignore_ascii_case("content-type");
            name.eq_ignore_ascii_case("ce-id") || is_type && value.starts_with("application/cloudevents")
        });
        match &self.templates.event_type {
            _ if is_bound => self.read(message, &message.headers),
            Some(event_type) => {
                self.made_by(event_type, message, now).map_err(|malformed| malformed.to_string())
            }
            None => self.read(message, &vec![("content-type".to_owned(), STRUCTURED.to_owned())]),
        }
    }

    fn read(&self, message: &SourceMessage, headers: &dyn HeaderList) -> Result<Event, String> {
        let parsed = parse(Incoming { headers, body: &message.body }).map_err(|error| error.to_string())?;
        let Parsed::One(mut event) = parsed else {
            return Err("the message is a batch: send each event as a message of its own".to_owned());
        };
        if let Some(owner) = reserved::owner_of(event.source.as_str()) {
            return Err(format!("`source` is reserved for {owner}"));
        }
        let Templates { subject, session, wanted, .. } = &self.templates;
        let data = event.data.clone();
        let found =
            MessageMaterial { headers: &message.headers, data: wanted.pick(&data).unwrap_or_default() };
        let unfit = |malformed: MalformedInput| malformed.to_string();
        if event.subject.is_none() {
            event.subject = filled("subject", subject.as_ref(), &found).map_err(unfit)?;
        }
        if event.session.is_none() {
            event.session = filled("session", session.as_ref(), &found).map_err(unfit)?;
        }
        Ok(*event)
    }

    fn made_by(
        &self,
        event_type: &SourceTemplate,
        message: &SourceMessage,
        now: Timestamp,
    ) -> Result<Event, MalformedInput> {
        let Templates { subject, session, id, wanted, .. } = &self.templates;
        let data = if wanted.is_empty() {
            SelectedFields::default()
        } else {
            wanted.pick(&message.body).map_err(|reason| unfit("body", reason))?
        };
        let found = MessageMaterial { headers: &message.headers, data };
        let own_id = || EventId::new(&message.id).map_err(|reason| unfit("id", reason));
        let content_type = found.header("content-type").map(ContentType::new).transpose();
        Ok(Event {
            id: filled("id", id.as_ref(), &found)?.map_or_else(own_id, Ok)?,
            source: self.event_source.clone(),
            event_type: filled_type(event_type, &found)?,
            subject: filled("subject", subject.as_ref(), &found)?,
            time: Some(now),
            content_type: content_type.map_err(|reason| unfit("content-type", reason))?,
            session: filled("session", session.as_ref(), &found)?,
            correlation_id: None,
            traceparent: None,
            extensions: std::collections::BTreeMap::new(),
            data: message.body.clone(),
        })
    }
}

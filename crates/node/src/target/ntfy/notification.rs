//! Makes the notification of a delivery from the templates of its target.
//!
//! Invariant: a header has one line of printable ASCII, and a value adds no tag of its own.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use redrive_core::book::connectors::ntfy::{
    self as rules, NtfySettings, RepeatedNotification, has_scheme, is_link, is_tag, is_web_link,
};
use redrive_core::book::template::{Template, TemplateContext};
use redrive_core::engine::PendingDelivery;
use redrive_core::event::idempotency::webhook_id;
use redrive_core::limits;
use redrive_core::policy::answer::{MalformedEvent, ReplyKind, TargetReply};

use crate::mail::mime::shortened;
use crate::ntfy::{CLICK, PRIORITY, TAGS, TITLE, header, message_text, title};
use crate::receiver::text::one_line;

#[derive(Debug)]
pub(super) struct Notification {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Notification {
    /// An event that does not fit the templates is not sent.
    pub(super) fn of(delivery: &PendingDelivery, settings: &NtfySettings) -> Result<Self, TargetReply> {
        let id = webhook_id(delivery.id);
        let context = TemplateContext::new(&delivery.event, &id, delivery.next_attempt().get());
        let rendered = Rendering(&context);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Some(template) = &settings.title {
            let line = one_line(&rendered.line("title", template)?);
            headers.insert(TITLE, title(&shortened(&line)));
        }
        if let Some(template) = &settings.priority {
            let text = rendered.line("priority", template)?;
            let wrong = || misfit(&format!("`priority`: `{}` makes no priority", template.as_str()));
            headers.insert(PRIORITY, HeaderValue::from_static(rules::priority(&text).ok_or_else(wrong)?));
        }
        if let Some(link) = rendered.link(settings.click.as_ref())? {
            headers.insert(CLICK, header(&link));
        }
        let mut tags = rendered.tags(&settings.tags)?;
        if settings.repeats == RepeatedNotification::Avoided {
            tags.push(id);
        }
        if !tags.is_empty() {
            headers.insert(TAGS, header(&tags.join(",")));
        }
        let text = if let Some(template) = &settings.message {
            rendered.text("message", template, limits::TEMPLATE_OUTPUT_BYTES_MAX)?
        } else {
            let text = std::str::from_utf8(&delivery.event.data);
            text.map_err(|_| misfit("the event's data is not text: set `message`"))?.to_owned()
        };
        Ok(Self { headers, body: message_text(text).into() })
    }
}

struct Rendering<'a>(&'a TemplateContext);

impl Rendering<'_> {
    fn text(&self, key: &str, template: &Template, max: usize) -> Result<String, TargetReply> {
        template.render(self.0, max).map_err(|error| misfit(&format!("`{key}`: {error}")))
    }

    fn line(&self, key: &str, template: &Template) -> Result<String, TargetReply> {
        self.text(key, template, limits::RENDERED_LINE_BYTES_MAX)
    }

    /// A template that makes nothing is no tag.
    fn tags(&self, templates: &[Template]) -> Result<Vec<String>, TargetReply> {
        let mut tags = Vec::new();
        for template in templates {
            let tag = self.line("tags", template)?;
            if tag.is_empty() {
                continue;
            }
            if !is_tag(&tag) {
                return Err(misfit(&format!("`tags`: `{}` makes no tag", template.as_str())));
            }
            tags.push(tag.trim().to_owned());
        }
        Ok(tags)
    }

    /// Only the book names other schemes than those of the web.
    fn link(&self, template: Option<&Template>) -> Result<Option<String>, TargetReply> {
        let Some(template) = template else { return Ok(None) };
        let link = self.line("click", template)?;
        let is_good = if has_scheme(template.as_str()) { is_link(&link) } else { is_web_link(&link) };
        if link.is_empty() || is_good {
            return Ok(Some(link).filter(|link| !link.is_empty()));
        }
        Err(misfit(&format!("`click`: `{}` makes no address of the web", template.as_str())))
    }
}

fn misfit(message: &str) -> TargetReply {
    TargetReply::new(ReplyKind::Malformed(MalformedEvent::ViolatesSchema), message)
}

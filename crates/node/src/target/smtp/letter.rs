//! Makes the mail of a delivery from the templates of its target.
//!
//! Invariants: every address is a plain one before it is sent to a server or written into a header, and every
//! other value is on one line or encoded, so no value adds a header or a recipient.

use lettre::Address;
use redrive_core::book::connectors::email::is_plain_address;
use redrive_core::book::connectors::smtp::SmtpSettings;
use redrive_core::book::template::{Template, TemplateContext};
use redrive_core::engine::PendingDelivery;
use redrive_core::event::idempotency::webhook_id;
use redrive_core::limits;
use redrive_core::policy::answer::{MalformedEvent, ReplyKind, TargetReply};
use redrive_core::time::Timestamp;

use crate::mail::mime;
use crate::receiver::text::one_line;

#[derive(Debug)]
pub(super) struct Letter {
    /// Each once.
    pub(super) recipients: Vec<Address>,
    pub(super) message: String,
}

impl Letter {
    /// An event that does not fit the templates gets no mail.
    pub(super) fn of(
        delivery: &PendingDelivery,
        settings: &SmtpSettings,
        from: &Address,
        now: Timestamp,
    ) -> Result<Self, TargetReply> {
        let id = webhook_id(delivery.id);
        let context = TemplateContext::new(&delivery.event, &id, delivery.next_attempt().get());
        let rendered = Rendering(&context);
        let to = rendered.addresses("to", &settings.to)?;
        if to.is_empty() {
            return Err(misfit("`to` makes no mail address"));
        }
        let cc = rendered.addresses("cc", &settings.cc)?;
        let reply_to = rendered.addresses("reply_to", settings.reply_to.as_slice())?;
        let subject = rendered.text("subject", &settings.subject, limits::RENDERED_LINE_BYTES_MAX)?;
        let text = rendered.text("body", &settings.body, limits::TEMPLATE_OUTPUT_BYTES_MAX)?;
        let html = settings.html.as_ref();
        let html = html.map(|html| rendered.text("html", html, limits::TEMPLATE_OUTPUT_BYTES_MAX));

        // `Auto-Submitted` suppresses out-of-office replies.
        let mut head = vec![format!("From: {from}"), header("To", &to)];
        head.extend((!cc.is_empty()).then(|| header("Cc", &cc)));
        head.extend((!reply_to.is_empty()).then(|| header("Reply-To", &reply_to)));
        head.extend([
            format!("Subject: {}", mime::subject(&mime::shortened(&one_line(&subject)))),
            format!("Date: {}", now.in_mail()),
            format!("Message-ID: <{id}@{}>", from.domain()),
            "Auto-Submitted: auto-generated".to_owned(),
            "MIME-Version: 1.0".to_owned(),
            mime::content(&text, html.transpose()?.as_deref(), &id),
        ]);
        let mut recipients = to;
        for address in cc {
            if !recipients.contains(&address) {
                recipients.push(address);
            }
        }
        Ok(Self { recipients, message: head.join("\r\n") })
    }
}

struct Rendering<'a>(&'a TemplateContext);

impl Rendering<'_> {
    fn text(&self, key: &str, template: &Template, max: usize) -> Result<String, TargetReply> {
        template.render(self.0, max).map_err(|error| misfit(&format!("`{key}`: {error}")))
    }

    /// Each once; a template that makes nothing has no address.
    fn addresses(&self, key: &str, templates: &[Template]) -> Result<Vec<Address>, TargetReply> {
        let mut addresses = Vec::new();
        for template in templates {
            let text = self.text(key, template, limits::MAIL_ADDRESS_BYTES_MAX)?;
            if text.is_empty() {
                continue;
            }
            // The value itself stays out of the message.
            let wrong = || misfit(&format!("`{key}`: `{}` makes no mail address", template.as_str()));
            let address: Address = if is_plain_address(&text) {
                text.parse().map_err(|_| wrong())?
            } else {
                return Err(wrong());
            };
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

fn header(name: &str, addresses: &[Address]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!("{name}: {}", addresses.join(",\r\n "))
}

fn misfit(message: &str) -> TargetReply {
    TargetReply::new(ReplyKind::Malformed(MalformedEvent::ViolatesSchema), message)
}

//! E-mail: a subject line and plain text, sent over SMTP.
//!
//! A retry of the same notice has the same `Message-ID`, so mailboxes recognize it. Of the server's replies,
//! 4xx is transient, 5xx is permanent, and a refused login is an authorization failure.

#[cfg(test)]
mod starttls_test;

use std::pin::Pin;
use std::sync::Arc;

use lettre::Address;
use lettre::address::{AddressError, Envelope};
use redrive_core::alerts::notice::AlertNotice;
use redrive_core::book::connectors::email::EmailSettings;
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{ReplyKind, TargetReply};

use super::{notice_of, text};
use crate::credential::Credential;
use crate::mail::mime::{body, subject};
use crate::mail::{MailServer, MailServerOptions, said};
use crate::target::Target;
use crate::target::http::{HostLimits, Pool};

pub(super) struct Mail {
    from: Address,
    to: Address,
    server: MailServer,
}

impl Mail {
    pub(super) fn new(
        email: &EmailSettings,
        password: Option<Credential>,
        place: String,
        pool: Arc<Pool>,
    ) -> Result<Self, AddressError> {
        let EmailSettings { to, from, smtp, network, .. } = email;
        let from = from.parse()?;
        let options = MailServerOptions { network: *network, password, place };
        Ok(Self { to: to.parse()?, server: MailServer::new(smtp, &from, options, pool), from })
    }

    async fn send(&self, call: &TargetCall) -> Result<TargetReply, TargetReply> {
        let (event, notice) = notice_of(call)?;
        let envelope = Envelope::new(Some(self.from.clone()), vec![self.to.clone()]);
        let envelope = envelope.expect("there is one recipient");
        let mut connection = self.server.open(&HostLimits::of(call), call.limit).await?;
        let answer = connection.send(&envelope, self.message(&event, &notice).as_bytes()).await;
        let answer = answer.map_err(|error| self.server.failed(&error))?;
        // The server has accepted the message; a failing QUIT changes nothing.
        let _ = connection.quit().await;
        Ok(TargetReply::new(ReplyKind::Taken, said(&answer)))
    }

    fn message(&self, event_id: &str, notice: &AlertNotice) -> String {
        let Self { from, to, .. } = self;
        let (subject, date) = (subject(&text::subject_line(notice)), notice.at.in_mail());
        let (encoding, body) = body(&text::lines(notice));
        // `Auto-Submitted` suppresses out-of-office replies.
        let head = [
            format!("From: {from}"),
            format!("To: {to}"),
            format!("Subject: {subject}"),
            format!("Date: {date}"),
            format!("Message-ID: <{event_id}@{}>", from.domain()),
            "Auto-Submitted: auto-generated".to_owned(),
            "MIME-Version: 1.0".to_owned(),
            "Content-Type: text/plain; charset=utf-8".to_owned(),
            format!("Content-Transfer-Encoding: {encoding}"),
        ];
        format!("{}\r\n\r\n{body}\r\n", head.join("\r\n"))
    }
}

impl Target for Mail {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let sent = tokio::time::timeout(call.limit, self.send(&call)).await;
            let reply = sent.unwrap_or_else(|_| Err(self.server.too_slow(call.limit)));
            Ending::Reply(reply.unwrap_or_else(|failed| failed))
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use redrive_core::alerts::notice::AlertStage;
    use redrive_core::book::connectors::email::Smtp;
    use redrive_core::book::model::Network;

    use super::super::notice_test::notice;
    use super::*;
    use crate::tls::Roots;

    #[test]
    fn a_notice_is_a_letter_that_is_known_again() {
        let email = EmailSettings {
            to: "ops@example.test".to_owned(),
            from: "redrive@example.test".to_owned(),
            smtp: Smtp::parse("smtp://127.0.0.1:2525").expect("a server"),
            network: Network::Public,
            secret: None,
        };
        let place = "receiver ops, line 3".to_owned();
        let mail =
            Mail::new(&email, None, place, Arc::new(Pool::new(Roots::Only(Vec::new())))).expect("mail");
        let told = AlertNotice { summary: "Störung".to_owned(), ..notice(AlertStage::Firing) };
        insta::assert_snapshot!(mail.message("alert-1", &notice(AlertStage::Firing)).replace("\r\n", "\n"), @r"
        From: redrive@example.test
        To: ops@example.test
        Subject: [critical] breaker-open: dependency=mail-api is open, and 2 more
        Date: Tue, 21 Oct 2025 14:32:05 +0000
        Message-ID: <alert-1@example.test>
        Auto-Submitted: auto-generated
        MIME-Version: 1.0
        Content-Type: text/plain; charset=utf-8
        Content-Transfer-Encoding: 7bit

        breaker-open: dependency=mail-api is open, and 2 more
        Severity critical, since 2025-10-21 14:30:00 UTC (2m5s).
        - dependency=mail-api: open, since 2025-10-21 14:30:00 UTC
        - dependency=crm: open, since 2025-10-21 14:31:00 UTC
        - and 1 more
        Condition: breaker_open for 2m by dependency
        What to do: look after it
        ");
        let message = mail.message("alert-1", &told);
        let (head, body) = message.split_once("\r\n\r\n").expect("a head and a body");
        assert!(message.is_ascii(), "{message}");
        assert!(head.contains("Subject: =?UTF-8?B?W2NyaXRpY2FsXSBTdMO2cnVuZw==?="), "{head}");
        assert!(head.contains("Content-Transfer-Encoding: base64"), "{head}");
        let text = STANDARD.decode(body.replace("\r\n", "")).expect("base64");
        assert!(String::from_utf8(text).expect("UTF-8").starts_with("Störung\r\nSeverity critical"));
    }
}

//! E-mail: a subject line and plain text, sent over SMTP.
//!
//! A retry of the same notice has the same `ReceiverMessage-ID`, so mailboxes recognize it. Of the server's replies,
//! 4xx is transient, 5xx is permanent, and a refused login is an authorization failure.

#[cfg(test)]
mod starttls_test;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lettre::Address;
use lettre::address::{AddressError, Envelope};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use redrive_core::alerts::notice::AlertNotice;
use redrive_core::book::connectors::email::{EmailSettings, Smtp, SmtpPrivacy};
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{BrokerError, CallPart, ReplyKind, TargetReply, TransportError};
use redrive_core::text::show_duration;

use super::{notice_of, text};
use crate::credential::Credential;
use crate::target::Target;
use crate::target::http::{OtherHost, Pool};
use crate::tls::Roots;

const SUBJECT_CHARS_MAX: usize = 200;
/// Bytes per encoded word of a header: 75 characters, by RFC 2047.
const WORD_BYTES_MAX: usize = 45;
/// Longer lines are encoded; RFC 5322 allows 998 bytes.
const LINE_BYTES_MAX: usize = 900;
const CODE_BYTES_MAX: usize = 76;

/// Used only over TLS.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

pub(super) struct Mail {
    from: Address,
    to: Address,
    smtp: Smtp,
    server: OtherHost,
    password: Option<Credential>,
    pool: Arc<Pool>,
}

impl Mail {
    pub(super) fn new(
        email: &EmailSettings,
        password: Option<Credential>,
        place: String,
        pool: Arc<Pool>,
    ) -> Result<Self, AddressError> {
        let EmailSettings { to, from, smtp, .. } = email;
        Ok(Self {
            from: from.parse()?,
            to: to.parse()?,
            smtp: smtp.clone(),
            server: OtherHost::new(&smtp.host, smtp.port, email.network, place, Arc::clone(&pool)),
            password,
            pool,
        })
    }

    async fn send(&self, call: &TargetCall) -> Result<TargetReply, TargetReply> {
        let (event, notice) = notice_of(call)?;
        let envelope = Envelope::new(Some(self.from.clone()), vec![self.to.clone()]);
        let envelope = envelope.expect("there is one recipient");
        let credentials = self.credentials(call.limit).await?;
        let mut connection = self.connect(call.limit).await?;
        if let Some(credentials) = credentials {
            let answer = connection.auth(&MECHANISMS, &credentials).await;
            answer.map_err(|error| self.failed(&error))?;
        }
        let answer = connection.send(&envelope, self.message(&event, &notice).as_bytes()).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
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

    async fn credentials(&self, limit: Duration) -> Result<Option<Credentials>, TargetReply> {
        let (Some(user), Some(password)) = (&self.smtp.user, &self.password) else { return Ok(None) };
        let password = password.value(limit).await?;
        Ok(Some(Credentials::new(user.clone(), password.as_str().to_owned())))
    }

    async fn connect(&self, limit: Duration) -> Result<AsyncSmtpConnection, TargetReply> {
        let addresses = self.server.addresses().await?;
        let hello = ClientId::Domain(self.from.domain().to_owned());
        let tls = || self.tls().map_err(|error| self.failed(&error));
        let at_once = if self.smtp.privacy == SmtpPrivacy::Tls { Some(tls()?) } else { None };
        let connected =
            AsyncSmtpConnection::connect_tokio1(addresses.as_slice(), Some(limit), &hello, at_once, None);
        let mut connection = connected.await.map_err(|error| self.failed(&error))?;
        if self.smtp.privacy == SmtpPrivacy::StartTls {
            if !connection.can_starttls() {
                let Smtp { host, port, .. } = &self.smtp;
                let message = format!("{host}:{port} does not offer STARTTLS");
                return Err(transport(TransportError::Tls, message));
            }
            connection.starttls(tls()?, &hello).await.map_err(|error| self.failed(&error))?;
        }
        Ok(connection)
    }

    /// The same roots as for HTTP.
    fn tls(&self) -> Result<TlsParameters, lettre::transport::smtp::Error> {
        let mut builder = TlsParameters::builder(self.smtp.host.clone());
        if let Roots::Only(certificates) = self.pool.roots() {
            builder = builder.certificate_store(CertificateStore::None);
            for certificate in certificates {
                builder = builder.add_root_certificate(Certificate::from_der(certificate.to_vec())?);
            }
        }
        builder.build_rustls()
    }

    fn failed(&self, error: &lettre::transport::smtp::Error) -> TargetReply {
        let message = in_words(error);
        if let Some(code) = error.status() {
            let seen = ReplyKind::Broker(meaning(u16::from(code)));
            return TargetReply::new(seen, message);
        }
        let whose = |what: &str| format!("{}:{}: {what}", self.smtp.host, self.smtp.port);
        if let Some(reply) = self.server.broken(error) {
            return reply;
        }
        if error.is_timeout() {
            return transport(TransportError::Timeout(CallPart::Whole), whose("no answer in time"));
        }
        if error.is_tls() {
            return transport(TransportError::Tls, whose(&message));
        }
        if error.is_client() {
            // For example an unsupported login mechanism.
            return TargetReply::new(ReplyKind::ConfigMissing, whose(&message));
        }
        transport(TransportError::Protocol, whose(&message))
    }
}

impl Target for Mail {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let sent = tokio::time::timeout(call.limit, self.send(&call)).await;
            let reply = sent.unwrap_or_else(|_| {
                let limit = show_duration(call.limit);
                let message = format!("{}:{} took longer than {limit}", self.smtp.host, self.smtp.port);
                Err(transport(TransportError::Timeout(CallPart::Whole), message))
            });
            Ending::Reply(reply.unwrap_or_else(|failed| failed))
        })
    }
}

fn subject(line: &str) -> String {
    let line: String = line.chars().take(SUBJECT_CHARS_MAX).collect();
    if line.is_ascii() {
        return line;
    }
    let mut words = vec![String::new()];
    for c in line.chars() {
        let last = words.last_mut().expect("there is one from the start");
        if last.len() + c.len_utf8() > WORD_BYTES_MAX {
            words.push(c.to_string());
        } else {
            last.push(c);
        }
    }
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

fn body(lines: &[String]) -> (&'static str, String) {
    if lines.iter().all(|line| line.is_ascii() && line.len() <= LINE_BYTES_MAX) {
        return ("7bit", lines.join("\r\n"));
    }
    let code = STANDARD.encode(lines.join("\r\n"));
    let code = code.as_bytes().chunks(CODE_BYTES_MAX).map(|line| String::from_utf8_lossy(line));
    ("base64", code.collect::<Vec<_>>().join("\r\n"))
}

const fn meaning(code: u16) -> BrokerError {
    match code {
        452 => BrokerError::QuotaExceeded,
        400..=499 => BrokerError::Unavailable,
        530 | 534 | 535 | 538 => BrokerError::Unauthorized,
        552 => BrokerError::MessageTooLarge,
        500..=599 => BrokerError::Refused,
        _ => BrokerError::Other,
    }
}

fn said(answer: &Response) -> String {
    let lines: Vec<&str> = answer.message().collect();
    text::one_line(&format!("{} {}", answer.code(), lines.join(" ")))
}

fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes: Vec<String> =
        std::iter::successors(Some(error), |cause| (*cause).source()).map(ToString::to_string).collect();
    text::one_line(&causes.join(": "))
}

fn transport(error: TransportError, message: String) -> TargetReply {
    TargetReply::new(ReplyKind::Transport(error), message)
}

#[cfg(test)]
mod tests {
    use redrive_core::alerts::notice::AlertStage;
    use redrive_core::book::model::Network;

    use super::super::notice_test::notice;
    use super::*;

    #[test]
    fn a_servers_no_is_told_as_it_is_meant() {
        #[rustfmt::skip]
        let cases = [
            ("come back later",        421, BrokerError::Unavailable),
            ("the mailbox is busy",    450, BrokerError::Unavailable),
            ("no room",                452, BrokerError::QuotaExceeded),
            ("a login that may work",  454, BrokerError::Unavailable),
            ("log in first",           530, BrokerError::Unauthorized),
            ("a wrong password",       535, BrokerError::Unauthorized),
            ("no such mailbox",        550, BrokerError::Refused),
            ("too large",              552, BrokerError::MessageTooLarge),
            ("not wanted",             554, BrokerError::Refused),
        ];
        for (name, code, expected) in cases {
            assert_eq!(meaning(code), expected, "{name}");
        }
    }

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

    #[test]
    fn no_line_of_a_mail_is_too_long() {
        let long = "ö".repeat(5_000);
        assert!(subject(&long).split("\r\n ").all(|word| word.len() <= 75));
        let (encoding, text) = body(&[long, "x".repeat(5_000)]);
        assert_eq!(encoding, "base64");
        assert!(text.split("\r\n").all(|line| line.len() <= CODE_BYTES_MAX));
    }
}

//! Mail: a subject line and plain text, handed to the mail server that the book names.
//!
//! A repetition of the same notice has the same `Message-ID`, so that mailboxes know it for one. What a server
//! says is reported as it is meant: 4xx heals, 5xx does not, and a login that is refused is a matter of
//! credentials.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lettre::address::AddressError;
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use lettre::{Address, Message};
use redrive_core::alert::notice::Notice;
use redrive_core::answer::{BrokerError, CallPart, Reply, Seen, TransportError};
use redrive_core::book::model::{Email, Smtp, SmtpPrivacy};
use redrive_core::engine::{Call, Ending};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;

use super::{Token, Whose, notice_of, words};
use crate::target::Target;
use crate::target::http::{Elsewhere, Pool};
use crate::tls::Roots;

/// Ways to log in, the plainest first; all of them only where nobody listens in.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// Writes to one mailbox.
pub(super) struct Mail {
    from: Mailbox,
    to: Mailbox,
    smtp: Smtp,
    server: Elsewhere,
    password: Option<Token>,
    pool: Arc<Pool>,
}

impl Mail {
    pub(super) fn new(
        email: &Email,
        password: Option<Token>,
        whose: Whose,
        pool: Arc<Pool>,
    ) -> Result<Self, AddressError> {
        let Email { to, from, smtp } = email;
        let mailbox = |text: &str| text.parse::<Address>().map(|address| Mailbox::new(None, address));
        Ok(Self {
            from: mailbox(from)?,
            to: mailbox(to)?,
            smtp: smtp.clone(),
            server: Elsewhere::new(&smtp.host, smtp.port, whose.network, whose.place, Arc::clone(&pool)),
            password,
            pool,
        })
    }

    async fn tell(&self, call: &Call) -> Result<Reply, Reply> {
        let (event, notice) = notice_of(call)?;
        let message = self.message(&event, &notice);
        let message = message.map_err(|error| internal(&error))?;
        let credentials = self.credentials(call.limit).await?;
        let mut connection = self.connect(call.limit).await?;
        if let Some(credentials) = credentials {
            let answer = connection.auth(&MECHANISMS, &credentials).await;
            answer.map_err(|error| self.failed(&error))?;
        }
        let answer = connection.send(message.envelope(), &message.formatted()).await;
        let answer = answer.map_err(|error| self.failed(&error))?;
        // It has the mail; how it says goodbye changes nothing.
        let _ = connection.quit().await;
        Ok(Reply { seen: Seen::Taken, message: said(&answer), retry_after: None })
    }

    /// The mail of a notice; the event's id makes its own.
    fn message(&self, event_id: &str, notice: &Notice) -> Result<Message, lettre::error::Error> {
        let domain = self.from.email.domain();
        let at = notice.at.since(Timestamp::EPOCH);
        Message::builder()
            .from(self.from.clone())
            .to(self.to.clone())
            .subject(words::subject_line(notice))
            .date(SystemTime::UNIX_EPOCH + at)
            .message_id(Some(format!("<{event_id}@{domain}>")))
            .header(AutoSubmitted)
            .header(ContentType::TEXT_PLAIN)
            .body(words::lines(notice).join("\n") + "\n")
    }

    async fn credentials(&self, limit: Duration) -> Result<Option<Credentials>, Reply> {
        let (Some(user), Some(password)) = (&self.smtp.user, &self.password) else { return Ok(None) };
        let password = password.value(limit).await?;
        Ok(Some(Credentials::new(user.clone(), password.as_str().to_owned())))
    }

    async fn connect(&self, limit: Duration) -> Result<AsyncSmtpConnection, Reply> {
        let addresses = self.server.addresses().await?;
        let hello = ClientId::Domain(self.from.email.domain().to_owned());
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

    /// Whom we trust, as everywhere else.
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

    fn failed(&self, error: &lettre::transport::smtp::Error) -> Reply {
        let message = in_words(error);
        if let Some(code) = error.status() {
            let seen = Seen::Broker(meaning(u16::from(code)));
            return Reply { seen, message, retry_after: None };
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
            // Such as a way to log in that the server does not know.
            return Reply { seen: Seen::ConfigMissing, message: whose(&message), retry_after: None };
        }
        transport(TransportError::Protocol, whose(&message))
    }
}

impl Target for Mail {
    fn call(&self, call: Arc<Call>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let told = tokio::time::timeout(call.limit, self.tell(&call)).await;
            let reply = told.unwrap_or_else(|_| {
                let limit = show_duration(call.limit);
                let message = format!("{}:{} took longer than {limit}", self.smtp.host, self.smtp.port);
                Err(transport(TransportError::Timeout(CallPart::Whole), message))
            });
            Ending::Reply(reply.unwrap_or_else(|failed| failed))
        })
    }
}

/// Says that nobody wrote this, so that nobody's absence answers it.
#[derive(Clone)]
struct AutoSubmitted;

impl Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

/// What a mail server means by a code that is no success.
const fn meaning(code: u16) -> BrokerError {
    match code {
        // It has no room at the moment.
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
    words::one_line(&format!("{} {}", answer.code(), lines.join(" ")))
}

/// The error with what it came of, in one line.
fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes: Vec<String> =
        std::iter::successors(Some(error), |cause| (*cause).source()).map(ToString::to_string).collect();
    words::one_line(&causes.join(": "))
}

fn transport(error: TransportError, message: String) -> Reply {
    Reply { seen: Seen::Transport(error), message, retry_after: None }
}

fn internal(error: &lettre::error::Error) -> Reply {
    let message = format!("the mail could not be written: {error}");
    Reply { seen: Seen::Internal, message, retry_after: None }
}

#[cfg(test)]
mod tests {
    use redrive_core::alert::notice::Stage;
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
        let email = Email {
            to: "ops@example.test".to_owned(),
            from: "redrive@example.test".to_owned(),
            smtp: Smtp::parse("smtp://127.0.0.1:2525").expect("a server"),
        };
        let whose = Whose { network: Network::Public, place: "receiver ops, line 3".to_owned() };
        let mail =
            Mail::new(&email, None, whose, Arc::new(Pool::new(Roots::Only(Vec::new())))).expect("mail");
        let told = Notice { summary: "Störung".to_owned(), ..notice(Stage::Firing) };
        let message = mail.message("alert-1", &told).expect("a message");
        let text = String::from_utf8(message.formatted()).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let lines: Vec<&str> = head.split("\r\n").collect();
        for line in [
            "From: redrive@example.test",
            "To: ops@example.test",
            "Message-ID: <alert-1@example.test>",
            "Auto-Submitted: auto-generated",
            "Date: Tue, 21 Oct 2025 14:32:05 +0000",
        ] {
            assert!(lines.contains(&line), "{line} is not in {head}");
        }
        assert!(text.is_ascii() && !head.contains("rung"), "whatever the letters, it is ASCII: {text}");
        assert!(body.contains("Severity critical, since 2025-10-21 14:30:00 UTC (125s)."), "{body}");
    }
}

//! Mail servers: connections with TLS and login, and what their replies mean.
//!
//! Invariant: nothing is sent in the open except to this machine, and no message contains a credential.

pub(crate) mod mime;
mod private_stream;

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, AsyncTokioStream, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use redrive_core::book::connectors::email::{Smtp, SmtpPrivacy};
use redrive_core::book::model::Network;
use redrive_core::policy::answer::{BrokerError, CallPart, ReplyKind, TargetReply, TransportError};
use redrive_core::text::show_duration;

use self::private_stream::PrivateStream;
use crate::credential::Credential;
use crate::receiver::text::one_line;
use crate::target::http::{HostLimits, OtherHost, Pool};
use crate::tls::Roots;

/// What lettre says of a connection that ends before a reply is complete.
const CLOSED: &str = "incomplete response";

/// Used only over TLS, or on this machine.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

pub(crate) struct MailServer {
    smtp: Smtp,
    hello: ClientId,
    host: OtherHost,
    password: Option<Credential>,
    pool: Arc<Pool>,
}

pub(crate) struct MailServerOptions {
    pub(crate) network: Network,
    pub(crate) password: Option<Credential>,
    /// Such as `receiver ops, line 6`, for errors in the book.
    pub(crate) place: String,
}

impl MailServer {
    /// Greets with the domain of the sender.
    pub(crate) fn new(smtp: &Smtp, from: &Address, options: MailServerOptions, pool: Arc<Pool>) -> Self {
        let MailServerOptions { network, password, place } = options;
        Self {
            smtp: smtp.clone(),
            hello: ClientId::Domain(from.domain().to_owned()),
            host: OtherHost::new(&smtp.host, smtp.port, network, place, Arc::clone(&pool)),
            password,
            pool,
        }
    }

    /// Connected, private and logged in.
    pub(crate) async fn open(
        &self,
        limits: &HostLimits,
        limit: Duration,
    ) -> Result<AsyncSmtpConnection, TargetReply> {
        let credentials = self.credentials(limit).await?;
        let mut connection = self.connect(limits).await?;
        if let Some(credentials) = credentials {
            let login = connection.auth(&MECHANISMS, &credentials);
            let answer = self.host.answered(limits, login).await?;
            answer.map_err(|error| self.failed(&error))?;
        }
        Ok(connection)
    }

    /// Sends one command, or whatever else waits for one reply.
    pub(crate) async fn answered<T>(
        &self,
        limits: &HostLimits,
        work: impl Future<Output = Result<T, SmtpError>>,
    ) -> Result<T, TargetReply> {
        self.host.answered(limits, work).await?.map_err(|error| self.failed(&error))
    }

    async fn credentials(&self, limit: Duration) -> Result<Option<Credentials>, TargetReply> {
        let (Some(user), Some(password)) = (&self.smtp.user, &self.password) else { return Ok(None) };
        let password = password.value(limit).await?;
        Ok(Some(Credentials::new(user.clone(), password.as_str().to_owned())))
    }

    async fn connect(&self, limits: &HostLimits) -> Result<AsyncSmtpConnection, TargetReply> {
        let stream = self.host.connect(limits).await?;
        let stream: Box<dyn AsyncTokioStream> = match self.smtp.privacy {
            SmtpPrivacy::Tls => Box::new(PrivateStream(self.host.secure(stream, limits).await?)),
            SmtpPrivacy::StartTls | SmtpPrivacy::Loopback => Box::new(stream),
        };
        let greeted = AsyncSmtpConnection::connect_with_transport(stream, &self.hello);
        let mut connection = self.answered(limits, greeted).await?;
        if self.smtp.privacy == SmtpPrivacy::StartTls {
            if !connection.can_starttls() {
                let Smtp { host, port, .. } = &self.smtp;
                let message = format!("{host}:{port} does not offer STARTTLS");
                return Err(transport(TransportError::Tls, message));
            }
            let tls = self.tls().map_err(|error| self.failed(&error))?;
            let secured = self.host.secured(limits, connection.starttls(tls, &self.hello)).await?;
            secured.map_err(|error| self.failed(&error))?;
        }
        Ok(connection)
    }

    /// The same roots as for HTTP.
    fn tls(&self) -> Result<TlsParameters, SmtpError> {
        let mut builder = TlsParameters::builder(self.smtp.host.clone());
        if let Roots::Only(certificates) = self.pool.roots() {
            builder = builder.certificate_store(CertificateStore::None);
            for certificate in certificates {
                builder = builder.add_root_certificate(Certificate::from_der(certificate.to_vec())?);
            }
        }
        builder.build_rustls()
    }

    pub(crate) fn failed(&self, error: &SmtpError) -> TargetReply {
        let message = in_words(error);
        if let Some(code) = error.status() {
            let seen = ReplyKind::Broker(meaning(u16::from(code)));
            return TargetReply::new(seen, message);
        }
        if let Some(reply) = self.host.broken(error) {
            return reply;
        }
        if error.source().is_some_and(|cause| cause.to_string() == CLOSED) {
            return self.host.closed_early();
        }
        if error.is_timeout() {
            return transport(TransportError::Timeout(CallPart::Whole), self.says("no answer in time"));
        }
        if error.is_tls() {
            return transport(TransportError::Tls, self.says(&message));
        }
        if error.is_client() {
            // For example an unsupported login mechanism.
            return TargetReply::new(ReplyKind::ConfigMissing, self.says(&message));
        }
        transport(TransportError::Protocol, self.says(&message))
    }

    pub(crate) fn too_slow(&self, limit: Duration) -> TargetReply {
        let Smtp { host, port, .. } = &self.smtp;
        let message = format!("{host}:{port} took longer than {}", show_duration(limit));
        transport(TransportError::Timeout(CallPart::Whole), message)
    }

    fn says(&self, what: &str) -> String {
        format!("{}:{}: {what}", self.smtp.host, self.smtp.port)
    }
}

const fn meaning(code: u16) -> BrokerError {
    match code {
        400..=499 => BrokerError::Unavailable,
        530 | 534 | 535 | 538 => BrokerError::Unauthorized,
        552 => BrokerError::MessageTooLarge,
        500..=599 => BrokerError::Refused,
        _ => BrokerError::Other,
    }
}

/// The server's reply in one line.
pub(crate) fn said(answer: &Response) -> String {
    let lines: Vec<&str> = answer.message().collect();
    one_line(&format!("{} {}", answer.code(), lines.join(" ")))
}

fn in_words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes: Vec<String> =
        std::iter::successors(Some(error), |cause| (*cause).source()).map(ToString::to_string).collect();
    one_line(&causes.join(": "))
}

fn transport(error: TransportError, message: String) -> TargetReply {
    TargetReply::new(ReplyKind::Transport(error), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_no_is_told_as_it_is_meant() {
        #[rustfmt::skip]
        let cases = [
            ("come back later",        421, BrokerError::Unavailable),
            ("the mailbox is busy",    450, BrokerError::Unavailable),
            ("no room",                452, BrokerError::Unavailable),
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
}

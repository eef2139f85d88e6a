//! The `smtp` target: a mail for each event.
//!
//! A connection is used again for the next mail. Invariants: all recipients are accepted before the content is
//! sent, so either all of them get a mail or none does; a kept connection that has died costs no attempt; the
//! `Message-ID` is the delivery's id, the same on every attempt and replay.

#[cfg(test)]
mod behaviour_test;
mod idle;
mod letter;
#[cfg(test)]
mod mailbox;

use std::sync::Arc;
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use redrive_core::book::connectors::{self, smtp::SmtpSettings};
use redrive_core::engine::{Ending, TargetCall};
use redrive_core::policy::answer::{ReplyKind, TargetReply};
use tokio::time::timeout;

use self::idle::IdleConnections;
use self::letter::Letter;
use super::Target;
use super::http::HostLimits;
use crate::connectors::{ConnectorFuture, Driver, Make, settings};
use crate::credential::Credential;
use crate::mail::{MailServer, MailServerOptions, said};

/// A kept connection that takes longer for its first reply is replaced by a new one.
const CHECK_TIME_MAX: Duration = Duration::from_secs(2);

pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::smtp::TARGET,
    make: Make::Target(|endpoint, site| {
        let settings: &SmtpSettings = settings(endpoint);
        let from: Address = settings.from.parse()?;
        let secret = settings.secret.as_ref();
        let options = MailServerOptions {
            network: settings.network,
            password: secret.map(|name| Credential::new(site.secrets, name, "mail not sent")),
            place: site.place.clone(),
        };
        Ok(Arc::new(SmtpTarget {
            server: MailServer::new(&settings.smtp, &from, options, Arc::clone(site.pool)),
            settings: settings.clone(),
            from,
            idle: IdleConnections::new(usize::try_from(site.permits).unwrap_or(usize::MAX)),
        }))
    }),
};

struct SmtpTarget {
    server: MailServer,
    settings: SmtpSettings,
    from: Address,
    idle: Arc<IdleConnections>,
}

impl SmtpTarget {
    async fn send(&self, call: &TargetCall) -> Result<TargetReply, TargetReply> {
        let [delivery] = call.deliveries.as_slice() else {
            return Err(TargetReply::new(ReplyKind::Internal, "a mail is for one delivery"));
        };
        let letter = Letter::of(delivery, &self.settings, &self.from, call.started_at)?;
        let limits = HostLimits::of(call);
        let mut connection = self.begin(&limits, call.limit).await?;
        let sent = self.finish(&mut connection, letter, &limits).await;
        // After a refusal the connection is as good as before; `RSET` clears it.
        if sent.as_ref().map_or_else(|failed| matches!(failed.seen, ReplyKind::Broker(_)), |_| true) {
            self.idle.put(connection);
        }
        sent
    }

    /// A connection on which the sender is accepted.
    async fn begin(&self, limits: &HostLimits, whole: Duration) -> Result<AsyncSmtpConnection, TargetReply> {
        if let Some(mut kept) = self.idle.take() {
            let checked = timeout(CHECK_TIME_MAX.min(whole / 4), async {
                kept.command(Rset).await?;
                kept.command(Mail::new(Some(self.from.clone()), Vec::new())).await
            });
            if matches!(checked.await, Ok(Ok(_))) {
                return Ok(kept);
            }
        }
        let mut fresh = self.server.open(limits, whole).await?;
        let sender = fresh.command(Mail::new(Some(self.from.clone()), Vec::new()));
        self.server.answered(limits, sender).await?;
        Ok(fresh)
    }

    async fn finish(
        &self,
        connection: &mut AsyncSmtpConnection,
        letter: Letter,
        limits: &HostLimits,
    ) -> Result<TargetReply, TargetReply> {
        let Letter { recipients, message } = letter;
        let count = recipients.len();
        for (place, recipient) in recipients.into_iter().enumerate() {
            let accepted = self.server.answered(limits, connection.command(Rcpt::new(recipient, Vec::new())));
            accepted.await.map_err(|reply| of_recipient(reply, place + 1, count))?;
        }
        self.server.answered(limits, connection.command(Data)).await?;
        let answer = self.server.answered(limits, connection.message(message.as_bytes())).await?;
        Ok(TargetReply::new(ReplyKind::Taken, said(&answer)))
    }
}

impl Target for SmtpTarget {
    fn call(&self, call: Arc<TargetCall>) -> ConnectorFuture<'_, Ending> {
        Box::pin(async move {
            let sent = timeout(call.limit, self.send(&call)).await;
            let reply = sent.unwrap_or_else(|_| Err(self.server.too_slow(call.limit)));
            Ending::Reply(reply.unwrap_or_else(|failed| failed))
        })
    }
}

fn of_recipient(reply: TargetReply, place: usize, count: usize) -> TargetReply {
    if count == 1 {
        return reply;
    }
    let message = format!("recipient {place} of {count}, and so no mail is sent: {}", reply.message);
    TargetReply { message, ..reply }
}

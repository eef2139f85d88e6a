//! Alerts and receivers as they were written.

use std::time::Duration;

use super::{At, Network};
use crate::book::expression::{Condition, Hours};
use crate::book::problem::Span;
use crate::ids::PolicyName;
use crate::limits;

/// What people are told, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Where it stands.
    pub span: Span,
    /// When.
    pub when: Condition,
    /// What it is called: its own name, or that of the catalog.
    pub name: Option<String>,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// Who is told.
    pub to: Vec<String>,
    /// Who is told next, one after the other, as long as it is not over.
    pub escalate: Vec<String>,
    /// How often it is said again while it lasts.
    pub repeat: Option<Duration>,
    /// What they should do.
    pub action: Option<String>,
    /// Whether anybody looks at it.
    pub switch: Switch,
}

/// Whether anybody looks at an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// It is watched.
    #[default]
    On,
    /// It only stands there.
    Off,
}

impl Alert {
    /// What it is called; without a name it is called by its condition.
    #[must_use]
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.when.to_string())
    }

    /// Everybody who may be told of it.
    pub fn receivers(&self) -> impl Iterator<Item = &str> {
        self.to.iter().chain(&self.escalate).map(String::as_str)
    }

    /// How often it is said again while it lasts.
    #[must_use]
    pub fn repeats_every(&self) -> Duration {
        self.repeat.unwrap_or_else(|| self.severity.response_time())
    }
}

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertSeverity {
    /// In business hours.
    Warning,
    /// Within four hours.
    Medium,
    /// Within an hour.
    High,
    /// Within fifteen minutes.
    Critical,
}

impl AlertSeverity {
    /// All of them, the mildest first.
    pub const ALL: [Self; 4] = [Self::Warning, Self::Medium, Self::High, Self::Critical];

    /// Its name in rule books.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }

    /// Within which time somebody is to see to it: by then it is said again, and the next one is told.
    #[must_use]
    pub const fn response_time(self) -> Duration {
        match self {
            Self::Warning => limits::RESPONSE_TIME_WARNING,
            Self::Medium => limits::RESPONSE_TIME_MEDIUM,
            Self::High => limits::RESPONSE_TIME_HIGH,
            Self::Critical => limits::RESPONSE_TIME_CRITICAL,
        }
    }
}

/// Who is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// How.
    pub kind: ReceiverKind,
    /// When only.
    pub hours: Option<Hours>,
    /// From which severity on.
    pub severity: Option<AlertSeverity>,
    /// The policy by which a message that fails is sent again.
    pub retry: Option<At<PolicyName>>,
    /// How long one message may take.
    pub timeout: Option<Duration>,
    /// What its name may resolve to.
    pub network: Network,
    /// The name of the secret that shows who we are: what calls are signed with, a bearer token, or a password.
    pub secret: Option<String>,
}

impl Receiver {
    /// Whether it is told of alerts of that severity at all.
    #[must_use]
    pub fn hears(&self, severity: AlertSeverity) -> bool {
        self.severity.is_none_or(|least| severity >= least)
    }
}

/// How somebody is told.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverKind {
    /// An ntfy topic.
    Ntfy(String),
    /// An address that alerts are posted to.
    Webhook(String),
    /// A mailbox.
    Email(Email),
    /// A Slack-compatible webhook.
    Slack(String),
    /// An Alertmanager.
    Alertmanager(String),
}

impl ReceiverKind {
    /// The key of the kind.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ntfy(_) => "ntfy",
            Self::Webhook(_) => "webhook",
            Self::Email(_) => "email",
            Self::Slack(_) => "slack",
            Self::Alertmanager(_) => "alertmanager",
        }
    }
}

/// A mailbox and how mail gets there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Email {
    /// The mail address.
    pub to: String,
    /// The address that mail comes from; that of the mailbox unless the book says otherwise.
    pub from: String,
    /// The server that takes it.
    pub smtp: Smtp,
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smtp {
    /// How the connection is kept private.
    pub privacy: SmtpPrivacy,
    /// Who logs in there; nobody does without.
    pub user: Option<String>,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How the connection to a mail server is kept private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpPrivacy {
    /// It must become TLS before anything is said (`smtp://`).
    StartTls,
    /// It is TLS from the first byte (`smtps://`).
    Tls,
    /// It is not, since it does not leave the machine (`smtp://` to a loopback address).
    Loopback,
}

/// Why a text is no address of a mail server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSmtp {
    /// Not of that form.
    #[error("`{text}` is no mail server")]
    Form {
        /// What was written.
        text: String,
    },
    /// A password stands in it.
    #[error("a password stands in this address, and goes wherever the book goes")]
    Password,
}

impl Smtp {
    /// Reads `smtp://user@host:587` or `smtps://user@host:465`.
    pub fn parse(text: &str) -> Result<Self, InvalidSmtp> {
        let form = || InvalidSmtp::Form { text: text.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        // A user may be a mail address of its own.
        let (user, place) = rest.rsplit_once('@').map_or((None, rest), |(user, place)| (Some(user), place));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(InvalidSmtp::Password);
        }
        let (host, port) = split_port(place).ok_or_else(form)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
        if host.is_empty() || !host.chars().all(fits) || user == Some("") {
            return Err(form());
        }
        let (privacy, usual_port) = match scheme {
            "smtps" => (SmtpPrivacy::Tls, 465),
            "smtp" if is_loopback(host) => (SmtpPrivacy::Loopback, 25),
            "smtp" => (SmtpPrivacy::StartTls, 587),
            _ => return Err(form()),
        };
        let port = port.map_or(Some(usual_port), |port| port.parse().ok().filter(|port| *port > 0));
        Ok(Self {
            privacy,
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port: port.ok_or_else(form)?,
        })
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port(place: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match place.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((place, None)),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_servers_are_read() {
        let read = |text: &str| {
            Smtp::parse(text).map(|smtp| (smtp.privacy, smtp.user.unwrap_or_default(), smtp.host, smtp.port))
        };
        let good =
            |privacy, user: &str, host: &str, port| Ok((privacy, user.to_owned(), host.to_owned(), port));
        let form = |text: &str| Err(InvalidSmtp::Form { text: text.to_owned() });
        #[rustfmt::skip]
        let cases = [
            ("TLS after hello",     "smtp://ann@mail.test:2525",       good(SmtpPrivacy::StartTls, "ann", "mail.test", 2525)),
            ("the usual port",      "smtp://mail.test",                good(SmtpPrivacy::StartTls, "", "mail.test", 587)),
            ("TLS at once",         "smtps://ann@a.test@mail.test",    good(SmtpPrivacy::Tls, "ann@a.test", "mail.test", 465)),
            ("this machine",        "smtp://127.0.0.1:1025",           good(SmtpPrivacy::Loopback, "", "127.0.0.1", 1025)),
            ("this machine by v6",  "smtp://[::1]:1025",               good(SmtpPrivacy::Loopback, "", "::1", 1025)),
            ("a password",          "smtp://ann:pw@mail.test",         Err(InvalidSmtp::Password)),
            ("no scheme",           "mail.test:25",                    form("mail.test:25")),
            ("another scheme",      "http://mail.test",                form("http://mail.test")),
            ("no host",             "smtp://:25",                      form("smtp://:25")),
            ("a path",              "smtp://mail.test/x",              form("smtp://mail.test/x")),
            ("no such port",        "smtp://mail.test:70000",          form("smtp://mail.test:70000")),
            ("port 0",              "smtp://mail.test:0",              form("smtp://mail.test:0")),
        ];
        for (name, text, expected) in cases {
            assert_eq!(read(text), expected, "{name}");
        }
    }
}

//! Alert receivers by mail, and what they share with mail targets: server, login and addresses.

use std::sync::Arc;
use std::time::Duration;

use super::notify::SECRET;
use super::reader::NETWORK;
use super::{Connector, ConnectorSettings, Edge, Profile, SettingsReader};
use crate::book::model::Network;
use crate::book::schema::{ValueType, key};
use crate::policy::catalog::DependencyKind;

pub static RECEIVER: Connector = Connector {
    beside: &[
        key(
            "smtp",
            ValueType::MailServer,
            "With `email`, required: the mail server, `smtp://user@host:587` (STARTTLS, except on this machine) or `smtps://user@host`; the password is the `secret`.",
        ),
        key("from", ValueType::MailAddress, "With `email`: the sender's address (default: the recipient's)."),
        NETWORK,
        SECRET,
    ],
    dependency: Some(DependencyKind::Smtp),
    // Mail servers are slow.
    timeout: Some(Duration::from_secs(30)),
    ..Connector::new(Edge::Receiver, "email", ValueType::MailAddress, "A mail address.", read)
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmailSettings {
    pub to: String,
    /// Defaults to the recipient's address.
    pub from: String,
    pub smtp: Smtp,
    pub network: Network,
    pub secret: Option<String>,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let to = from.own_text()?;
    if from.node("smtp").is_none() {
        let message = "an `email` receiver needs `smtp`";
        let help = "`smtp`: such as smtp://user@mail.example.com:587 or smtps://mail.example.com";
        from.error("smtp", "missing-key", message, help);
    }
    let smtp = Smtp::parse(&from.text("smtp")?).ok()?;
    let secret = login(&smtp, from);
    let network = from.network();
    let profile = Profile {
        shown: to.clone(),
        network: Some(network),
        secrets: secret.iter().cloned().collect(),
        ..Profile::default()
    };
    let from = from.text("from").unwrap_or_else(|| to.clone());
    Some((Arc::new(EmailSettings { to, from, smtp, network, secret }), profile))
}

/// The name of the password, which only a user needs.
pub(super) fn login(smtp: &Smtp, from: &mut SettingsReader<'_>) -> Option<String> {
    let secret = from.text("secret");
    match (&smtp.user, &secret) {
        (Some(user), None) => {
            let message = format!("user `{user}` of this mail server has no password");
            let help = "add `secret` with the password, or remove the user from the address";
            from.error("smtp", "missing-key", message, help);
        }
        (None, Some(_)) => {
            let message = "`secret` is set but the mail server address has no user";
            let help = "add the user, as in smtp://user@host:587, or remove `secret`";
            from.error("secret", "excluded-key", message, help);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    secret
}

/// One address in ASCII, without a name, quotes or comments: nothing in it can end a header, begin another or
/// add a recipient.
#[must_use]
pub fn is_plain_address(text: &str) -> bool {
    let Some((name, host)) = text.split_once('@') else { return false };
    let in_name = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_dotted = |text: &str| text.split('.').all(|part| !part.is_empty());
    let is_label = |label: &str| {
        label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 64
        && host.len() <= 253
        && name.chars().all(in_name)
        && is_dotted(name)
        && is_dotted(host)
        && host.split('.').all(is_label)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smtp {
    pub privacy: SmtpPrivacy,
    /// No login without a user.
    pub user: Option<String>,
    pub host: String,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpPrivacy {
    /// Upgraded to TLS before anything is sent (`smtp://`).
    StartTls,
    /// TLS from the first byte (`smtps://`).
    Tls,
    /// Plain, to a loopback address only (`smtp://`).
    Loopback,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSmtp {
    #[error("invalid mail server address `{text}`")]
    Form { text: String },
    #[error("the address contains a password; use `secret` instead")]
    Password,
}

impl Smtp {
    /// Accepts `smtp://user@host:587` and `smtps://user@host:465`.
    pub fn parse(text: &str) -> Result<Self, InvalidSmtp> {
        let form = || InvalidSmtp::Form { text: text.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        // The user may contain an `@`.
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

/// An IPv6 address is in brackets.
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
    fn an_address_is_one_address_and_nothing_else() {
        #[rustfmt::skip]
        let cases = [
            ("an address",             "ann.b+shop@mail.example.test", true),
            ("on this machine",        "ops@localhost",                true),
            ("empty",                  "",                             false),
            ("no host",                "ann@",                         false),
            ("no name",                "@a.test",                      false),
            ("two recipients",         "ann@a.test,bob@b.test",        false),
            ("two with a space",       "ann@a.test bob@b.test",        false),
            ("another header",         "ann@a.test\r\nBcc: bob@b.test", false),
            ("a line break",           "ann@a.test\n",                 false),
            ("a name",                 "Ann <ann@a.test>",             false),
            ("the end of a command",   "ann@a.test> NOTIFY=NEVER",     false),
            ("brackets",               "<ann@a.test>",                 false),
            ("quotes",                 "\"ann b\"@a.test",             false),
            ("a comment",              "ann(x)@a.test",                false),
            ("a route",                "@b.test:ann@a.test",           false),
            ("a list",                 "ann@a.test;bob@b.test",        false),
            ("two at signs",           "ann@b.test@a.test",            false),
            ("an empty label",         "ann@a..test",                  false),
            ("a hyphen first",         "ann@-a.test",                  false),
            ("a literal host",         "ann@[127.0.0.1]",              false),
            ("letters beyond ASCII",   "änn@a.test",                   false),
            ("a zero byte",            "ann\0@a.test",                 false),
        ];
        for (name, text, expected) in cases {
            assert_eq!(is_plain_address(text), expected, "{name}");
        }
        assert!(!is_plain_address(&format!("{}@a.test", "x".repeat(65))));
    }

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

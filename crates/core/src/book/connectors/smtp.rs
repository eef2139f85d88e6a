//! The `smtp` target: sends a mail for each event.

use std::sync::Arc;
use std::time::Duration;

use super::email::{Smtp, is_plain_address, login};
use super::reader::NETWORK;
use super::{Connector, ConnectorSettings, Edge, Profile, SettingsReader, templated};
use crate::book::model::Network;
use crate::book::schema::{KeySchema, NameKind, ValueType, key};
use crate::book::template::{Template, TemplatePlace};
use crate::limits;
use crate::policy::catalog::DependencyKind;

pub static TARGET: Connector = Connector {
    beside: &[
        key("from", ValueType::MailAddress, "With `smtp`, required: the sender's address."),
        key(
            "to",
            ValueType::OneOrMany(&ValueType::MailAddressTemplate),
            "With `smtp`, required: the recipients, each a template such as `{{ data.email }}` that makes one address.",
        ),
        key(
            "cc",
            ValueType::OneOrMany(&ValueType::MailAddressTemplate),
            "With `smtp`: further recipients, like `to`.",
        ),
        key(
            "reply_to",
            ValueType::MailAddressTemplate,
            "With `smtp`: where answers go, a template that makes one address.",
        ),
        key("subject", ValueType::Text, "With `smtp`, required: the subject line, a template."),
        key("body", ValueType::Text, "With `smtp`, required: the text of the mail, a template."),
        key(
            "html",
            ValueType::Text,
            "With `smtp`: the same as HTML, a template; values are escaped. Mail programs show this or `body`.",
        ),
        KeySchema { about: "With `smtp`: the password of the user in the server's address.", ..SECRET },
        KeySchema {
            about: "With `smtp`: `private` lets the name of the mail server resolve to addresses of this machine and of private networks (default public); a literal address needs no permission.",
            ..NETWORK
        },
    ],
    dependency: Some(DependencyKind::Smtp),
    // Mail servers are slow.
    timeout: Some(Duration::from_secs(30)),
    ..Connector::new(
        Edge::Target,
        "smtp",
        ValueType::MailServer,
        "The mail server that mails are sent by: `smtp://user@host:587` (STARTTLS, except on this machine) or `smtps://user@host`.",
        read,
    )
};

const SECRET: KeySchema = key("secret", ValueType::Name(NameKind::Secret), "");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpSettings {
    pub smtp: Smtp,
    pub from: String,
    /// At least one.
    pub to: Vec<Template>,
    pub cc: Vec<Template>,
    pub reply_to: Option<Template>,
    pub subject: Template,
    pub body: Template,
    pub html: Option<Template>,
    pub network: Network,
    pub secret: Option<String>,
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    for (key, help) in [
        ("from", "`from`: the sender's address, such as shop@example.com"),
        ("to", "`to`: the recipient, such as \"{{ data.email }}\""),
        ("subject", "`subject`: the subject line, such as \"Order {{ data.number }}\""),
        ("body", "`body`: the text of the mail"),
    ] {
        if from.node(key).is_none() {
            from.error(key, "missing-key", format!("an `smtp` target needs `{key}`"), help);
        }
    }
    let smtp = Smtp::parse(&from.own_text()?).ok()?;
    let secret = login(&smtp, from);
    for key in ["from", "to", "cc", "reply_to"] {
        check_addresses(key, from);
    }
    let recipients = ["to", "cc"].map(|key| templated::nodes(from, key).len());
    if recipients[0] == 0 && from.node("to").is_some() {
        from.error("to", "missing-key", "`to` has no recipient", "such as \"{{ data.email }}\"");
        return None;
    }
    if recipients.iter().sum::<usize>() > limits::MAIL_RECIPIENTS_MAX {
        let message = format!("a mail has at most {} recipients", limits::MAIL_RECIPIENTS_MAX);
        from.error("to", "out-of-range", message, "send to a mailing list instead");
    }
    let (to, cc) = (templated::several(from, "to"), templated::several(from, "cc"));
    let mut text = |key, place| templated::one(from, key, place);
    let (subject, body) = (text("subject", TemplatePlace::Text), text("body", TemplatePlace::Text));
    let (html, reply_to) = (text("html", TemplatePlace::Html), text("reply_to", TemplatePlace::Text));
    let network = from.network();
    let (to, cc) = (to?, cc?);
    let shown: Vec<&str> = to.iter().map(Template::as_str).collect();
    let profile = Profile {
        shown: format!("{} by {}:{}", shown.join(", "), smtp.host, smtp.port),
        network: Some(network),
        secrets: secret.iter().cloned().collect(),
        ..Profile::default()
    };
    let from = from.text("from")?;
    let (subject, body) = (subject?, body?);
    let settings = SmtpSettings { smtp, from, to, cc, reply_to, subject, body, html, network, secret };
    Some((Arc::new(settings), profile))
}

/// An address without a template is checked here; the others for each event.
fn check_addresses(key: &str, from: &mut SettingsReader<'_>) {
    for node in templated::nodes(from, key) {
        let Some(text) = node.text() else { continue };
        let is_literal = Template::parse(text, TemplatePlace::Text)
            .is_ok_and(|template| key == "from" || template.literal().is_some());
        if is_literal && !is_plain_address(text) {
            let message = format!("invalid mail address `{}`", text.escape_debug());
            let help = "one address without a name, such as ann@example.com; several are a list";
            from.problem("bad-mail-address", node.span, message, help);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::read;

    const REST: &str = "from: shop@a.test, to: ann@b.test, subject: s, body: b";

    fn target(line: &str) -> Result<SmtpSettings, Vec<String>> {
        let book = format!(
            "version: 1\nsecrets: {{ s: {{ env: S }} }}\nservices:\n  a:\n    events: [a.b]\n    target: {{ {line} }}\n"
        );
        let reading = read(&book, built_in());
        let problems: Vec<String> = reading
            .problems
            .into_sorted()
            .iter()
            .map(|one| format!("{} {}: {}", one.span.position, one.code, one.message))
            .collect();
        let Some(book) = reading.book else { return Err(problems) };
        assert!(problems.is_empty(), "{problems:?}");
        let endpoint = &book.sections().services[0].target.endpoint;
        Ok(endpoint.settings::<SmtpSettings>().expect("an smtp target").clone())
    }

    #[test]
    fn a_mail_is_read_with_its_templates() {
        let read = target(
            "smtp: \"smtp://me@mail.test\", secret: s, from: shop@a.test, to: [ann@b.test, \"{{ data.to }}\"], cc: \"{{ data.cc }}\", reply_to: desk@a.test, subject: s, body: b, html: \"<p>{{ data.x }}</p>\", network: private",
        );
        let settings = read.expect("a book");
        let texts = |list: &[Template]| list.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts(&settings.to), ["ann@b.test", "{{ data.to }}"]);
        assert_eq!(texts(&settings.cc), ["{{ data.cc }}"]);
        assert_eq!(settings.reply_to.map(|one| one.as_str().to_owned()).as_deref(), Some("desk@a.test"));
        assert_eq!((settings.network, settings.secret.as_deref()), (Network::Private, Some("s")));
        assert_eq!(target(&format!("smtp: \"smtp://mail.test\", {REST}")).expect("a book").cc, []);
    }

    #[test]
    fn what_could_not_be_sent_is_refused_at_its_place() {
        let with = |more: &str| format!("smtp: \"smtp://m.test\", {more}");
        #[rustfmt::skip]
        let cases = [
            ("nothing to send",     with("from: a@b.test, to: a@b.test, subject: s"), "6:13 missing-key: an `smtp` target needs `body`"),
            ("no recipient",        with("from: a@b.test, to: [], subject: s, body: b"), "6:58 missing-key: `to` has no recipient"),
            ("two in one",          with("from: a@b.test, to: \"a@b.test,c@d.test\", subject: s, body: b"), "6:58 bad-mail-address: invalid mail address `a@b.test,c@d.test`"),
            ("a header",            with("from: a@b.test, to: [\"a@b.test\", \"c@d.test\\r\\nBcc: e@f.test\"], subject: s, body: b"), "6:71 bad-mail-address: invalid mail address `c@d.test\\r\\nBcc: e@f.test`"),
            ("a sender with a name", with("from: \"Shop <a@b.test>\", to: a@b.test, subject: s, body: b"), "6:44 bad-mail-address: invalid mail address `Shop <a@b.test>`"),
            ("an open template",    with("from: a@b.test, to: \"{{ data.a\", subject: s, body: b"), "6:58 bad-template: "),
            ("an unknown value",    with("from: a@b.test, to: a@b.test, subject: \"{{ secret }}\", body: b"), "6:77 bad-template: unknown value `secret`"),
            ("an unknown filter",   with("from: a@b.test, to: a@b.test, subject: s, body: \"{{ id | safe }}\""), "6:86 bad-template: unknown filter `safe`"),
            ("no password",         format!("smtp: \"smtp://me@m.test\", {REST}"), "6:21 missing-key: user `me` of this mail server has no password"),
            ("a password without a user", format!("smtp: \"smtp://m.test\", secret: s, {REST}"), "6:46 excluded-key: `secret` is set but the mail server address has no user"),
            ("a password",          format!("smtp: \"smtp://me:pw@m.test\", {REST}"), "6:21 bad-smtp: the address contains a password; use `secret` instead"),
            ("the web",             format!("smtp: \"https://m.test\", {REST}"), "6:21 bad-smtp: invalid mail server address `https://m.test`"),
            ("the keys of another", format!("http: \"http://m.test\", {REST}"), "6:38 excluded-key: "),
        ];
        for (name, line, expected) in cases {
            let problems = target(&line).expect_err(name);
            assert!(problems.iter().any(|one| one.starts_with(expected)), "{name}: {problems:?}");
        }
    }
}

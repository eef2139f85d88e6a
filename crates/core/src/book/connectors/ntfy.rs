//! The `ntfy` target: sends a push notification for each event.

use std::sync::Arc;

use super::notify::without_user;
use super::reader::NETWORK;
use super::{
    AddressUse, CallProtocol, Connector, ConnectorSettings, Edge, Profile, SettingsReader, templated,
};
use crate::book::model::Network;
use crate::book::schema::{KeySchema, NameKind, ValueType, key};
use crate::book::template::{Template, TemplatePlace};
use crate::limits;
use crate::policy::catalog::DependencyKind;

pub static TARGET: Connector = Connector {
    beside: &[
        key("title", ValueType::Text, "With `ntfy`: the title, a template (default: the topic's name)."),
        key(
            "message",
            ValueType::Text,
            "With `ntfy`: the text, a template (default: the event's data as text).",
        ),
        key(
            "priority",
            ValueType::Text,
            "With `ntfy`: 1 to 5, or min, low, default, high or max; a template may make one of them.",
        ),
        key(
            "tags",
            ValueType::OneOrMany(&ValueType::Text),
            "With `ntfy`: tags, each a template; names of emojis are shown as such.",
        ),
        key("click", ValueType::Text, "With `ntfy`: the address that a tap opens, a template."),
        key(
            "once",
            ValueType::Bool,
            "With `ntfy`: a tag with the delivery's id, by which a repeated attempt finds the notification of an earlier one and sends no second (default true).",
        ),
        key("secret", ValueType::Name(NameKind::Secret), "With `ntfy`: the access token."),
        KeySchema {
            about: "With `ntfy`: `private` lets the name of the server resolve to addresses of this machine and of private networks (default public); a literal address needs no permission.",
            ..NETWORK
        },
    ],
    dependency: Some(DependencyKind::Ntfy),
    speech: CallProtocol::Http,
    address: AddressUse::Secret,
    ..Connector::new(Edge::Target, "ntfy", ValueType::Url, "The address of an ntfy topic.", read)
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtfySettings {
    /// Of the topic, without a query.
    pub address: String,
    pub title: Option<Template>,
    pub message: Option<Template>,
    pub priority: Option<Template>,
    pub tags: Vec<Template>,
    pub click: Option<Template>,
    pub repeats: RepeatedNotification,
    pub network: Network,
    pub secret: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatedNotification {
    /// Looks for the notification of an earlier attempt first.
    Avoided,
    Sent,
}

/// ntfy's own number of a priority; `None` if there is no such priority.
#[must_use]
pub fn priority(text: &str) -> Option<&'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "min" => Some("1"),
        "2" | "low" => Some("2"),
        "3" | "default" => Some("3"),
        "4" | "high" => Some("4"),
        "5" | "max" | "urgent" => Some("5"),
        _ => None,
    }
}

fn read(from: &mut SettingsReader<'_>) -> Option<(Arc<dyn ConnectorSettings>, Profile)> {
    let address = from.own_text()?;
    let path = address.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let topic = path.map_or("", |(_, topic)| topic);
    if topic.is_empty() || topic.ends_with('/') || topic.contains(['?', '#']) {
        let message = "the address has no topic, or something behind it";
        from.error("ntfy", "bad-topic", message, "such as https://ntfy.example.com/orders");
    }
    if templated::nodes(from, "tags").len() > limits::NTFY_TAGS_MAX {
        let message = format!("a notification has at most {} tags", limits::NTFY_TAGS_MAX);
        from.error("tags", "out-of-range", message, "remove some");
    }
    let tags = templated::several(from, "tags");
    let mut text = |key| templated::one(from, key, TemplatePlace::Text);
    let (title, message) = (text("title"), text("message"));
    let (priority, click) = (text("priority"), click(from));
    check_literals(priority.as_ref(), tags.as_deref(), from);
    let repeats =
        if from.says("once", "false") { RepeatedNotification::Sent } else { RepeatedNotification::Avoided };
    let (network, secret) = (from.network(), from.text("secret"));
    let profile = Profile {
        shown: without_user(&address),
        addresses: vec![address.clone()],
        network: Some(network),
        secrets: secret.iter().cloned().collect(),
        ..Profile::default()
    };
    let tags = tags?;
    let settings = NtfySettings { address, title, message, priority, tags, click, repeats, network, secret };
    Some((Arc::new(settings), profile))
}

/// Values are percent-encoded, unless the whole address is a value.
fn click(from: &mut SettingsReader<'_>) -> Option<Template> {
    let text = from.text("click")?;
    let place = if has_scheme(&text) { TemplatePlace::Path } else { TemplatePlace::Text };
    let template = templated::one(from, "click", place)?;
    if template.literal().is_some() && !is_link(&text) {
        let message = format!("`{}` is no address to open", text.escape_debug());
        from.error("click", "bad-address", message, "such as https://shop.example.com/orders");
    }
    Some(template)
}

fn check_literals(priority_of: Option<&Template>, tags: Option<&[Template]>, from: &mut SettingsReader<'_>) {
    if let Some(text) = priority_of.and_then(Template::literal).filter(|text| priority(text).is_none()) {
        let message = format!("`{}` is no priority", text.escape_debug());
        from.error("priority", "bad-priority", message, "1 to 5, or min, low, default, high or max");
    }
    let bad = tags.into_iter().flatten().filter_map(Template::literal).find(|text| !is_tag(text));
    if let Some(text) = bad {
        let message = format!("`{}` is no tag", text.escape_debug());
        from.error("tags", "bad-tag", message, "a tag has no comma and no line break; several are a list");
    }
}

/// A comma would begin another tag.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(|c: char| c == ',' || c.is_control())
}

/// An address that a tap may open: of the web, or of an app that the book names.
#[must_use]
pub fn is_link(text: &str) -> bool {
    has_scheme(text) && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[must_use]
pub fn is_web_link(text: &str) -> bool {
    is_link(text) && (text.starts_with("https://") || text.starts_with("http://"))
}

/// Whether the text itself begins with a scheme, rather than with a value.
#[must_use]
pub fn has_scheme(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        !scheme.is_empty() && scheme.chars().all(is_scheme) && !rest.is_empty()
    })
}

#[cfg(test)]
mod tests {
    use crate::book::connectors::built_in;
    use crate::book::read;

    fn problems(line: &str) -> Vec<String> {
        let book = format!("version: 1\nservices:\n  a:\n    events: [a.b]\n    target: {{ {line} }}\n");
        let problems = read(&book, built_in()).problems.into_sorted();
        let shown = problems.iter().map(|one| format!("{} {}: {}", one.span.position, one.code, one.message));
        shown.collect()
    }

    #[test]
    fn what_could_not_be_sent_is_refused_at_its_place() {
        let with = |more: &str| format!("ntfy: \"https://n.test/t\", {more}");
        #[rustfmt::skip]
        let cases = [
            ("all keys",            with("title: \"{{ data.a }}\", message: m, priority: 4, tags: [a, \"{{ type }}\"], click: \"https://a.test/{data.n}\", once: false, network: private"), vec![]),
            ("a priority by name",  with("priority: high"), vec![]),
            ("a link of the event", with("click: \"{{ data.url }}\""), vec![]),
            ("a link to an app",    with("click: \"myapp://orders/{data.n}\""), vec![]),
            ("no topic",            "ntfy: \"https://n.test/\"".to_owned(), vec!["5:21 bad-topic: the address has no topic, or something behind it"]),
            ("a query",             "ntfy: \"https://n.test/t?auth=x\"".to_owned(), vec!["5:21 bad-topic: the address has no topic, or something behind it"]),
            ("no such priority",    with("priority: loud"), vec!["5:51 bad-priority: `loud` is no priority"]),
            ("no priority 6",       with("priority: 6"), vec!["5:51 bad-priority: `6` is no priority"]),
            ("two tags in one",     with("tags: \"a,b\""), vec!["5:47 bad-tag: `a,b` is no tag"]),
            ("no link",             with("click: \"orders\""), vec!["5:48 bad-address: `orders` is no address to open"]),
            ("an open template",    with("message: \"{{ data.a\""), vec!["5:50 bad-template: unexpected end of input"]),
        ];
        for (name, line, expected) in cases {
            let found = problems(&line);
            let is_same = found.len() == expected.len()
                && found.iter().zip(&expected).all(|(found, expected)| found.starts_with(expected));
            assert!(is_same, "{name}: {found:?}");
        }
    }
}

//! Reads keys of a connector that are templates of the event.

use super::SettingsReader;
use crate::book::template::{Template, TemplatePlace};
use crate::book::yaml::YamlNode;

const CODE: &str = "bad-template";
const HELP: &str = "see docs/email-and-ntfy.md";

/// `None` if the key is missing or a problem was reported.
pub(super) fn one(from: &mut SettingsReader<'_>, key: &str, place: TemplatePlace) -> Option<Template> {
    parsed(key, from.node(key)?, place, from)
}

/// One text or a list of them; `None` if a problem was reported.
pub(super) fn several(from: &mut SettingsReader<'_>, key: &str) -> Option<Vec<Template>> {
    nodes(from, key).into_iter().map(|node| parsed(key, node, TemplatePlace::Text, from)).collect()
}

pub(super) fn nodes<'a>(from: &SettingsReader<'a>, key: &str) -> Vec<&'a YamlNode> {
    match from.node(key) {
        Some(node) if node.text().is_some() => vec![node],
        Some(node) => node.items().iter().collect(),
        None => Vec::new(),
    }
}

fn parsed(
    key: &str,
    node: &YamlNode,
    place: TemplatePlace,
    from: &mut SettingsReader<'_>,
) -> Option<Template> {
    match from.template(key, node, place)? {
        Ok(template) => Some(template),
        Err(error) => {
            from.problem(CODE, node.span, error.to_string(), HELP);
            None
        }
    }
}

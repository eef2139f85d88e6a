//! Reads a connector's settings from its map in the book.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Connector, TemplateUse};
use crate::book::model::{At, Network};
use crate::book::parse;
use crate::book::problem::{BookSpan, Problems};
use crate::book::schema::{KeySchema, ValueType, key};
use crate::book::template::{InvalidTemplate, Template, TemplatePlace};
use crate::book::yaml::YamlNode;
use crate::text;

/// The map that contains the connector's key. Values that do not fit the schema were reported before and read
/// as absent.
pub struct SettingsReader<'a> {
    pub(super) connector: &'static Connector,
    pub(super) node: &'a YamlNode,
    pub(super) place: BookSpan,
    pub(super) problems: &'a mut Problems,
    pub(super) templates: &'a mut Vec<TemplateUse>,
}

impl<'a> SettingsReader<'a> {
    /// The value of the connector's own key.
    #[must_use]
    pub fn own(&self) -> Option<&'a YamlNode> {
        self.node.get(self.connector.key())
    }

    #[must_use]
    pub fn own_text(&self) -> Option<String> {
        self.text(self.connector.key())
    }

    #[must_use]
    pub fn inner(&mut self) -> Option<SettingsReader<'_>> {
        let (node, place) = (self.own()?, self.place);
        Some(SettingsReader { place, ..self.within(node) })
    }

    /// Of a map within.
    #[must_use]
    pub fn within<'b>(&'b mut self, node: &'b YamlNode) -> SettingsReader<'b> {
        SettingsReader {
            connector: self.connector,
            node,
            place: node.span,
            problems: self.problems,
            templates: self.templates,
        }
    }

    #[must_use]
    pub fn node(&self, key: &str) -> Option<&'a YamlNode> {
        self.node.get(key)
    }

    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        parse::text_of(self.node, key)
    }

    #[must_use]
    pub fn says(&self, key: &str, word: &str) -> bool {
        self.node.get(key).and_then(YamlNode::text) == Some(word)
    }

    /// Empty without the key.
    #[must_use]
    pub fn texts(&self, key: &str) -> Vec<String> {
        self.node.get(key).map(parse::texts).unwrap_or_default()
    }

    #[must_use]
    pub fn map(&self, key: &str) -> BTreeMap<String, String> {
        let entries = self.node.get(key).map(YamlNode::entries).unwrap_or_default();
        let pairs = entries.iter().filter_map(|(key, value)| Some((key.text()?, value.text()?)));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// With its position.
    #[must_use]
    pub fn duration_at(&self, key: &str) -> Option<At<Duration>> {
        parse::duration_at(self.node, key)
    }

    #[must_use]
    pub fn duration(&self, key: &str) -> Option<Duration> {
        self.duration_at(key).map(|at| at.value)
    }

    #[must_use]
    pub fn count_at(&self, key: &str) -> Option<At<u32>> {
        parse::count_at(self.node, key)
    }

    #[must_use]
    pub fn size(&self, key: &str) -> Option<u64> {
        text::parse_size(self.node.get(key)?.text()?).ok()
    }

    #[must_use]
    pub fn rate(&self, key: &str) -> Option<text::Rate> {
        parse::rate_at(self.node, key).map(|at| at.value)
    }

    #[must_use]
    pub fn network(&self) -> Network {
        if self.says(NETWORK.key, "private") { Network::Private } else { Network::Public }
    }

    /// A template at a key, which is put on record.
    pub fn template(
        &mut self,
        key: &str,
        node: &YamlNode,
        place: TemplatePlace,
    ) -> Option<Result<Template, InvalidTemplate>> {
        let template = Template::parse(node.text()?, place);
        if let Ok(template) = template.clone() {
            self.templates.push(TemplateUse { key: key.to_owned(), span: node.span, template });
        }
        Some(template)
    }

    /// Reports keys that another key excludes.
    pub fn exclude(&mut self, keys: &[&str], because: &str) {
        parse::excluded(self.node, keys, because, self.problems);
    }

    /// Reports a source without `type` whose messages have none.
    pub fn needs_type(&mut self) {
        if self.node.get("type").is_none() {
            let message = "this source needs a `type` for its events";
            self.error("type", "missing-key", message, "add `type:`, such as `type: report.daily`");
        }
    }

    pub fn problem(
        &mut self,
        code: &'static str,
        span: BookSpan,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.problems.error(code, span, message, help);
    }

    /// Points at the value of the key, or at the connector if it is missing.
    pub fn error(&mut self, key: &str, code: &'static str, message: impl Into<String>, help: &str) {
        let span = self.node.get(key).map_or(self.place, |node| node.span);
        self.problems.error(code, span, message, help);
    }
}

pub(super) const NETWORK: KeySchema = key(
    "network",
    ValueType::Word(&["public", "private"]),
    "`private` lets the name resolve to addresses of this machine and of private networks (default public); a literal address needs no permission.",
);

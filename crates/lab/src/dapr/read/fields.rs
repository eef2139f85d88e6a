//! Reads single keys: shapes, numbers and durations.

use std::time::Duration;

use super::DaprReader;
use crate::dapr::duration::{self, DurationUnit};
use redrive_core::book::problem::nearest;
use redrive_core::book::yaml::{Quoted, YamlNode, YamlValue};
use redrive_core::limits;

impl DaprReader {
    pub(super) fn section<'a>(&mut self, node: &'a YamlNode, key: &str) -> Option<&'a YamlNode> {
        let section = node.get(key)?;
        match section.value {
            YamlValue::Map(_) => Some(section),
            YamlValue::Null => None,
            YamlValue::Scalar { .. } | YamlValue::List(_) | YamlValue::Refused => {
                self.wrong_shape(section, &format!("`{key}` takes a map of keys"));
                None
            }
        }
    }

    pub(super) fn named_maps<'a>(&mut self, node: &'a YamlNode, key: &str) -> Vec<(&'a str, &'a YamlNode)> {
        let entries = self.section(node, key).map(YamlNode::entries).unwrap_or_default();
        let mut maps = Vec::with_capacity(entries.len());
        for (name, entry) in entries {
            match (name.text(), &entry.value) {
                (Some(name), YamlValue::Map(_) | YamlValue::Null) => maps.push((name, entry)),
                _ => self.wrong_shape(entry, "this entry takes a map of keys"),
            }
        }
        maps
    }

    pub(super) fn wrong_shape(&mut self, node: &YamlNode, expected: &str) {
        let message = format!("{expected}, not {}", node.shape());
        self.problems.error("wrong-type", node.span, message, "check the indentation");
    }

    /// Unknown keys get a remark. Keys that differ only in case are refused: Dapr versions disagree on them. `path`
    /// is empty at the root.
    pub(super) fn known_keys(&mut self, node: &YamlNode, path: &str, known: &[&str]) {
        for (key, _) in node.entries() {
            let Some(text) = key.text().filter(|text| !known.contains(text)) else { continue };
            if let Some(meant) = known.iter().find(|known| known.eq_ignore_ascii_case(text)) {
                let message = format!("`{text}` is accepted by some Dapr versions only");
                self.problems.error("unknown-key", key.span, message, format!("write `{meant}`"));
                continue;
            }
            let shown: String = text.chars().take(60).collect();
            let near = if text.len() <= 64 { nearest(text, known.iter().copied()) } else { None };
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let place = if path.is_empty() { shown } else { format!("{path}.{shown}") };
            self.notes.add(place, format!("unknown key, ignored by Dapr{near}"));
        }
    }

    pub(super) fn text<'a>(&mut self, node: &'a YamlNode, key: &str) -> Option<&'a str> {
        let value = node.get(key)?;
        match &value.value {
            YamlValue::Scalar { text, .. } => Some(text),
            YamlValue::Null => None,
            YamlValue::Map(_) | YamlValue::List(_) | YamlValue::Refused => {
                self.wrong_shape(value, &format!("`{key}` takes a single value"));
                None
            }
        }
    }

    /// Negative is zero, as in Dapr.
    pub(super) fn duration(&mut self, node: &YamlNode, path: &str, key: &str) -> Option<Duration> {
        let text = self.text(node, key)?;
        let value = node.get(key)?;
        self.duration_in(value, text, &format!("{path}.{key}"))
    }

    pub(super) fn duration_in(&mut self, value: &YamlNode, text: &str, path: &str) -> Option<Duration> {
        let Some(go) = duration::parse(text) else {
            let message = format!("`{text}` is not a Dapr duration");
            let help = "write a number and a unit: ms, s, m or h; there are no days";
            self.problems.error("bad-duration", value.span, message, help);
            return None;
        };
        if go.unit == DurationUnit::Missing {
            let why = format!("no unit, so Dapr assumes milliseconds: {}", duration::show(go.span));
            self.notes.add(path, why);
        }
        let bounded = duration::bounded(go.span);
        if bounded < go.span {
            let why = format!(
                "the maximum in a book is {}, which is used instead",
                duration::show(limits::DURATION_MAX)
            );
            self.notes.add(path, why);
        }
        Some(bounded)
    }

    pub(super) fn whole_number(&mut self, node: &YamlNode, key: &str) -> Option<i64> {
        let text = self.text(node, key)?;
        let value = node.get(key)?;
        let is_plain = matches!(value.value, YamlValue::Scalar { quoted: Quoted::No, .. });
        let number = text.parse().ok().filter(|_| is_plain);
        if number.is_none() {
            let message = format!("`{key}` takes a whole number, without quotes");
            self.problems.error("wrong-type", value.span, message, "write a number such as 3");
        }
        number
    }
}

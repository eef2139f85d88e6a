//! Writes a Dapr resiliency file, and the scalars of any YAML that must survive every reader.
//!
//! Invariants: every duration has a unit; a text that a reader could take for a bool, a number or
//! nothing stands in quotes; `spec.policies` and `spec.targets` are always there.

use std::fmt::Write as _;

use super::matching;
use super::model::{CircuitBreaker, Guards, Pace, Resiliency, Retry};
use super::{duration, trip};
use redrive_core::book::model::{DaprTarget, Direction};

/// The file's text.
pub(super) fn write(resiliency: &Resiliency) -> String {
    let mut lines = Lines::default();
    lines.put(0, "apiVersion: dapr.io/v1alpha1");
    lines.put(0, "kind: Resiliency");
    lines.put(0, "metadata:");
    lines.put(1, &format!("name: {}", scalar(resiliency.name.as_deref().unwrap_or("redrive-resiliency"))));
    if let Some(namespace) = &resiliency.namespace {
        lines.put(1, &format!("namespace: {}", scalar(namespace)));
    }
    if !resiliency.scopes.is_empty() {
        lines.put(0, "scopes:");
        for scope in &resiliency.scopes {
            lines.put(1, &format!("- {}", scalar(scope)));
        }
    }
    lines.put(0, "spec:");
    policies(resiliency, &mut lines);
    targets(resiliency, &mut lines);
    lines.0
}

fn policies(resiliency: &Resiliency, lines: &mut Lines) {
    let Resiliency { timeouts, retries, breakers, .. } = resiliency;
    if timeouts.is_empty() && retries.is_empty() && breakers.is_empty() {
        return lines.put(1, "policies: {}");
    }
    lines.put(1, "policies:");
    lines.section(2, "retries:", retries, |lines, name, policy| {
        lines.put(3, &format!("{}:", scalar(name)));
        retry(policy, lines);
    });
    lines.section(2, "timeouts:", timeouts, |lines, name, limit| {
        lines.put(3, &format!("{}: {}", scalar(name), duration::show(*limit)));
    });
    lines.section(2, "circuitBreakers:", breakers, |lines, name, settings| {
        lines.put(3, &format!("{}:", scalar(name)));
        breaker(settings, lines);
    });
}

fn retry(policy: &Retry, lines: &mut Lines) {
    match policy.pace {
        Pace::Constant(delay) => {
            lines.put(4, "policy: constant");
            lines.put(4, &format!("duration: {}", duration::show(delay)));
        }
        Pace::Exponential { max } => {
            lines.put(4, "policy: exponential");
            lines.put(4, &format!("maxInterval: {}", duration::show(max)));
        }
    }
    match policy.retries {
        Some(retries) => lines.put(4, &format!("maxRetries: {retries}")),
        None => lines.put(4, "maxRetries: -1"),
    }
    if let Some(statuses) = &policy.statuses {
        lines.put(4, "matching:");
        lines.put(5, &format!("httpStatusCodes: \"{}\"", matching::show(statuses)));
    }
}

fn breaker(settings: &CircuitBreaker, lines: &mut Lines) {
    lines.put(4, &format!("maxRequests: {}", settings.max_requests));
    if let Some(interval) = settings.interval {
        lines.put(4, &format!("interval: {}", duration::show(interval)));
    }
    lines.put(4, &format!("timeout: {}", duration::show(settings.timeout)));
    lines.put(4, &format!("trip: {}", trip::show(settings.trip)));
}

fn targets(resiliency: &Resiliency, lines: &mut Lines) {
    if resiliency.targets.is_empty() {
        return lines.put(1, "targets: {}");
    }
    lines.put(1, "targets:");
    let mut components: Vec<(&str, Vec<(Direction, &Guards)>)> = Vec::new();
    let (mut apps, mut actors) = (Vec::new(), Vec::new());
    for (target, guards) in &resiliency.targets {
        match target {
            DaprTarget::App(name) => apps.push((name.clone(), guards)),
            DaprTarget::Actor(name) => actors.push((name.clone(), guards)),
            DaprTarget::Component { name, direction } => {
                match components.iter_mut().find(|(known, _)| known == name) {
                    Some((_, directions)) => directions.push((*direction, guards)),
                    None => components.push((name, vec![(*direction, guards)])),
                }
            }
        }
    }
    if !components.is_empty() {
        lines.put(2, "components:");
    }
    for (name, mut directions) in components {
        lines.put(3, &format!("{}:", scalar(name)));
        directions.sort_by_key(|(direction, _)| *direction);
        for (direction, named) in directions {
            let key = match direction {
                Direction::Outbound => "outbound",
                Direction::Inbound => "inbound",
            };
            guards(4, key, named, lines);
        }
    }
    lines.section(2, "apps:", &apps, |lines, name, named| guards(3, &scalar(name), named, lines));
    lines.section(2, "actors:", &actors, |lines, name, named| {
        guards(3, &scalar(name), named, lines);
        if named.breaker.is_some() {
            // Dapr refuses an actor's breaker without it.
            lines.put(4, "circuitBreakerScope: type");
        }
    });
}

fn guards(level: usize, key: &str, named: &Guards, lines: &mut Lines) {
    let Guards { timeout, retry, breaker } = named;
    let values = [("retry", retry), ("timeout", timeout), ("circuitBreaker", breaker)];
    if values.iter().all(|(_, value)| value.is_none()) {
        // An empty entry still keeps Dapr's default policies away from the target.
        return lines.put(level, &format!("{key}: {{}}"));
    }
    lines.put(level, &format!("{key}:"));
    for (key, value) in values {
        if let Some(value) = value {
            lines.put(level + 1, &format!("{key}: {}", scalar(value)));
        }
    }
}

/// A text that grows by indented lines.
#[derive(Default)]
pub(super) struct Lines(pub(super) String);

impl Lines {
    pub(super) fn put(&mut self, level: usize, line: &str) {
        writeln!(self.0, "{:indent$}{line}", "", indent = 2 * level)
            .expect("a string takes all that is written");
    }

    pub(super) fn section<T>(
        &mut self,
        level: usize,
        heading: &str,
        entries: &[(String, T)],
        entry: impl Fn(&mut Self, &str, &T),
    ) {
        if !entries.is_empty() {
            self.put(level, heading);
        }
        for (name, value) in entries {
            entry(self, name, value);
        }
    }
}

/// Words that one YAML or another reads as something else than a text.
const WORDS: [&str; 10] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan"];

/// A text as a YAML scalar, plain where no reader could mistake it.
pub(super) fn scalar(text: &str) -> String {
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    if begins_well && is_plain && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            '\u{ffff}'.. => {
                write!(quoted, "\\U{:08x}", u32::from(c)).expect("a string takes all that is written");
            }
            _ => write!(quoted, "\\u{:04x}", u32::from(c)).expect("a string takes all that is written"),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redrive_core::book::problem::Problems;
    use redrive_core::book::yaml;

    #[test]
    fn what_yaml_would_mistake_stands_in_quotes() {
        #[rustfmt::skip]
        let cases = [
            ("a plain name",      "pubsub-kafka",          "pubsub-kafka"),
            ("a bool",            "true",                  "\"true\""),
            ("a bool of old",     "Yes",                   "\"Yes\""),
            ("nothing",           "null",                  "\"null\""),
            ("a number",          "1",                     "\"1\""),
            ("an address",        "https://example.com/a", "\"https://example.com/a\""),
            ("no text",           "",                      "\"\""),
            ("a quote",           "a\"b\\",                "\"a\\\"b\\\\\""),
            ("a line break",      "a\nb",                  "\"a\\u000ab\""),
            ("far from ASCII",    "🦀",                    "\"\\U0001f980\""),
        ];
        for (name, text, expected) in cases {
            assert_eq!(scalar(text), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in any::<String>()) {
            let mut problems = Problems::default();
            let node = yaml::read(&format!("{}: {0}\n", scalar(&text)), &mut problems).expect("a map");
            let [(key, value)] = node.entries() else { panic!("one entry") };
            prop_assert_eq!(key.text(), Some(text.as_str()));
            prop_assert_eq!(value.text(), Some(text.as_str()));
        }
    }
}

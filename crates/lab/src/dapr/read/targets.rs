//! Reads the targets of a Dapr file.

use std::collections::BTreeSet;

use super::DaprReader;
use crate::dapr::model::{Resiliency, TargetPolicies};
use redrive_core::book::model::{DaprTarget, Direction};
use redrive_core::book::yaml::{YamlNode, YamlValue};

impl DaprReader {
    pub(super) fn targets(&mut self, targets: &YamlNode, resiliency: &mut Resiliency) {
        let defined = DefinedPolicies::by(resiliency);
        self.known_keys(targets, "targets", &["apps", "actors", "components"]);
        for (name, node) in self.named_maps(targets, "components") {
            self.component(name, node, &defined, resiliency);
        }
        for (name, node) in self.named_maps(targets, "apps") {
            let path = format!("apps.{name}");
            self.known_keys(node, &path, &["timeout", "retry", "circuitBreaker", "circuitBreakerCacheSize"]);
            self.cache_size(node, &path);
            let guards = self.guards(node, &path, &defined);
            self.add(DaprTarget::App(name.to_owned()), guards, resiliency);
        }
        for (name, node) in self.named_maps(targets, "actors") {
            self.actor(name, node, &defined, resiliency);
        }
    }

    fn component(
        &mut self,
        name: &str,
        node: &YamlNode,
        defined: &DefinedPolicies,
        resiliency: &mut Resiliency,
    ) {
        let path = format!("components.{name}");
        for (key, _) in node.entries() {
            if let Some(key) = key.text().filter(|key| ["timeout", "retry", "circuitBreaker"].contains(key)) {
                let why =
                    "Dapr ignores it directly under a component; it belongs under `outbound` or `inbound`";
                self.notes.add(format!("{path}.{key}"), why);
            }
        }
        self.known_keys(node, &path, &["inbound", "outbound", "timeout", "retry", "circuitBreaker"]);
        let mut breakers = Vec::new();
        for (key, direction) in [("outbound", Direction::Outbound), ("inbound", Direction::Inbound)] {
            let Some(entry) = node.get(key) else { continue };
            if !matches!(entry.value, YamlValue::Map(_) | YamlValue::Null) {
                self.wrong_shape(entry, &format!("`{key}` takes a map of keys"));
                continue;
            }
            let path = format!("{path}.{key}");
            self.known_keys(entry, &path, &["timeout", "retry", "circuitBreaker"]);
            let guards = self.guards(entry, &path, defined);
            breakers.extend(guards.breaker.clone());
            self.add(DaprTarget::Component { name: name.to_owned(), direction }, guards, resiliency);
        }
        match breakers.as_slice() {
            [outbound, inbound] if outbound != inbound => {
                let why =
                    "Dapr has one breaker for both directions with the settings used first; the book has two";
                self.notes.add(path, why);
            }
            [_, _] => {
                self.notes.add(path, "Dapr has one breaker for both directions; the book has one for each");
            }
            _ => {}
        }
    }

    fn actor(&mut self, name: &str, node: &YamlNode, defined: &DefinedPolicies, resiliency: &mut Resiliency) {
        let path = format!("actors.{name}");
        let known = ["timeout", "retry", "circuitBreaker", "circuitBreakerScope", "circuitBreakerCacheSize"];
        self.known_keys(node, &path, &known);
        self.cache_size(node, &path);
        let guards = self.guards(node, &path, defined);
        match self.text(node, "circuitBreakerScope") {
            None if self.text(node, "circuitBreaker").is_some() => {
                let message = "an actor's breaker needs a scope; Dapr refuses the resource without it";
                let help = "add `circuitBreakerScope: type`";
                self.problems.error("missing-key", node.span, message, help);
            }
            None | Some("type") => {}
            Some("id" | "both") => {
                let why =
                    "Dapr has a breaker per actor (`both` is the same as `id`); the book has one per type";
                self.notes.add(format!("{path}.circuitBreakerScope"), why);
            }
            Some(_) => {
                let span = node.get("circuitBreakerScope").map_or(node.span, |value| value.span);
                let message = "Dapr only has the scopes `type`, `id` and `both` and refuses the resource";
                self.problems.error("unknown-word", span, message, "write `type`");
            }
        }
        self.add(DaprTarget::Actor(name.to_owned()), guards, resiliency);
    }

    fn add(&mut self, target: DaprTarget, guards: TargetPolicies, resiliency: &mut Resiliency) {
        let name = match &target {
            DaprTarget::Component { name, .. } | DaprTarget::App(name) | DaprTarget::Actor(name) => name,
        };
        if name.is_empty() {
            self.notes.add("targets", "a target with an empty name is left out");
        } else {
            resiliency.targets.push((target, guards));
        }
    }

    fn cache_size(&mut self, node: &YamlNode, path: &str) {
        if node.get("circuitBreakerCacheSize").is_some() {
            let why = "it limits Dapr's breakers per method or actor; the book has one per dependency";
            self.notes.add(format!("{path}.circuitBreakerCacheSize"), why);
        }
    }

    /// Only defined policies.
    fn guards(&mut self, node: &YamlNode, path: &str, defined: &DefinedPolicies) -> TargetPolicies {
        let mut named = |key, names: &BTreeSet<String>| {
            let name = self.text(node, key).filter(|name| !name.is_empty())?;
            if names.contains(name) {
                return Some(name.to_owned());
            }
            let why = match (key, path.starts_with("components.")) {
                ("circuitBreaker", true) => {
                    "undefined policy: Dapr may fail at the first call; the book has none"
                }
                _ => "undefined policy: Dapr silently applies none; the book has none",
            };
            self.notes.add(format!("{path}.{key}"), why);
            None
        };
        TargetPolicies {
            timeout: named("timeout", &defined.timeouts),
            retry: named("retry", &defined.retries),
            breaker: named("circuitBreaker", &defined.breakers),
        }
    }
}

struct DefinedPolicies {
    timeouts: BTreeSet<String>,
    retries: BTreeSet<String>,
    breakers: BTreeSet<String>,
}

impl DefinedPolicies {
    fn by(resiliency: &Resiliency) -> Self {
        Self {
            timeouts: names(&resiliency.timeouts),
            retries: names(&resiliency.retries),
            breakers: names(&resiliency.breakers),
        }
    }
}

fn names<T>(entries: &[(String, T)]) -> BTreeSet<String> {
    entries.iter().map(|(name, _)| name.clone()).collect()
}

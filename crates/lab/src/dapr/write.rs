//! Writes a Dapr resiliency file.
//!
//! Invariants: every duration has a unit; ambiguous scalars are quoted; `spec.policies` and `spec.targets` are always
//! present.

use std::fmt::Write as _;

use super::matching;
use super::model::{CircuitBreaker, Resiliency, Retry, RetryPace, TargetPolicies};
use super::{duration, trip};
use redrive_core::book::model::{DaprTarget, Direction};
use redrive_core::book::patch::scalar;

pub(super) fn write(resiliency: &Resiliency) -> String {
    let mut lines = YamlLines::default();
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

fn policies(resiliency: &Resiliency, lines: &mut YamlLines) {
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

fn retry(policy: &Retry, lines: &mut YamlLines) {
    match policy.pace {
        RetryPace::Constant(delay) => {
            lines.put(4, "policy: constant");
            lines.put(4, &format!("duration: {}", duration::show(delay)));
        }
        RetryPace::Exponential { max } => {
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

fn breaker(settings: &CircuitBreaker, lines: &mut YamlLines) {
    lines.put(4, &format!("maxRequests: {}", settings.max_requests));
    if let Some(interval) = settings.interval {
        lines.put(4, &format!("interval: {}", duration::show(interval)));
    }
    lines.put(4, &format!("timeout: {}", duration::show(settings.timeout)));
    lines.put(4, &format!("trip: {}", trip::show(settings.trip)));
}

fn targets(resiliency: &Resiliency, lines: &mut YamlLines) {
    if resiliency.targets.is_empty() {
        return lines.put(1, "targets: {}");
    }
    lines.put(1, "targets:");
    let mut components: Vec<(&str, Vec<(Direction, &TargetPolicies)>)> = Vec::new();
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

fn guards(level: usize, key: &str, named: &TargetPolicies, lines: &mut YamlLines) {
    let TargetPolicies { timeout, retry, breaker } = named;
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

#[derive(Default)]
pub(super) struct YamlLines(pub(super) String);

impl YamlLines {
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

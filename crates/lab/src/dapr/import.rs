//! Imports a Dapr resiliency file as a rule book.
//!
//! Every target becomes a dependency with explicit retry policy, breaker and timeout, or explicitly none, so that
//! Redrive's defaults do not apply unless a remark says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::duration::show;
use super::model::{
    CircuitBreaker, FACTOR, FOR_EVER, INITIAL, NO_LIMIT, Resiliency, Retry, RetryPace, TargetPolicies,
    TripOn, UNLIMITED,
};
use super::read::{self, DaprResource};
use super::write::YamlLines;
use super::{Remark, Remarks, matching};
use redrive_core::book::model::{DaprTarget, Direction};
use redrive_core::book::patch::scalar;
use redrive_core::book::problem::{Problem, Problems};
use redrive_core::book::text_of;
use redrive_core::book::validate::ACTS;
use redrive_core::ids::DependencyName;
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::StatusRange;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaprImport {
    pub book: String,
    pub notes: Vec<Remark>,
}

pub fn import(bytes: &[u8]) -> Result<DaprImport, Vec<Problem>> {
    let mut problems = Problems::default();
    let Some(text) = text_of(bytes, &mut problems) else { return Err(problems.into_sorted()) };
    let DaprResource { resiliency, notes } = read::read(text)?;
    let mut writer = BookWriter { lines: YamlLines::default(), names: BookNames::default(), notes };
    writer.names = writer.choose_names(&resiliency);
    writer.book(&resiliency);
    Ok(DaprImport { book: writer.lines.0, notes: writer.notes.into_list() })
}

struct BookWriter {
    lines: YamlLines,
    names: BookNames,
    notes: Remarks,
}

#[derive(Default)]
struct BookNames {
    retries: BTreeMap<String, String>,
    breakers: BTreeMap<String, String>,
    timeouts: BTreeMap<String, String>,
}

impl BookWriter {
    fn choose_names(&mut self, resiliency: &Resiliency) -> BookNames {
        let is_act = |name: &str| ACTS.contains(&name) || name == "none";
        // A book reads a leading digit as a duration.
        let is_taken = |name: &str| name == UNLIMITED || name.starts_with(|c: char| c.is_ascii_digit());
        let (endless, limits): (Vec<_>, Vec<_>) =
            resiliency.timeouts.iter().cloned().partition(|(_, limit)| limit.is_zero());
        let mut timeouts = self.adapted(&limits, "timeouts", is_taken);
        timeouts.extend(endless.into_iter().map(|(name, _)| (name, UNLIMITED.to_owned())));
        BookNames {
            retries: self.adapted(&resiliency.retries, "retries", is_act),
            breakers: self.adapted(&resiliency.breakers, "circuitBreakers", |name| name == "none"),
            timeouts,
        }
    }

    fn adapted<T>(
        &mut self,
        entries: &[(String, T)],
        section: &str,
        is_taken: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, String> {
        let mut unique = UniqueNames {
            used: entries.iter().map(|(name, _)| name.clone()).collect(),
            ..UniqueNames::default()
        };
        let mut adapted = BTreeMap::new();
        for (name, _) in entries {
            let is_fine = DependencyName::new(name).is_ok() && !is_taken(name);
            let wanted = as_name(name);
            let wanted = if is_taken(&wanted) { format!("dapr-{wanted}") } else { wanted };
            let chosen = if is_fine { name.clone() } else { unique.choose(&wanted) };
            if chosen != *name {
                self.notes.add(
                    format!("{section}.{name}"),
                    format!("the name is not valid in a book; it became `{chosen}`"),
                );
            }
            adapted.insert(name.clone(), chosen);
        }
        adapted
    }

    fn book(&mut self, resiliency: &Resiliency) {
        self.lines
            .put(0, "# Imported from a Dapr resiliency file; Dapr's implicit defaults are explicit here.");
        self.lines.put(0, "version: 1");
        self.dapr(resiliency);
        if !resiliency.retries.is_empty() {
            self.heading("retry_policies:");
        }
        for (name, retry) in &resiliency.retries {
            let name = self.names.retries.get(name).cloned().unwrap_or_default();
            self.lines.put(1, &format!("{}:", scalar(&name)));
            write_retry(retry, &mut self.lines);
        }
        if !resiliency.breakers.is_empty() {
            self.heading("breakers:");
        }
        for (name, breaker) in &resiliency.breakers {
            let name = self.names.breakers.get(name).cloned().unwrap_or_default();
            self.lines.put(1, &format!("{}:", scalar(&name)));
            write_breaker(breaker, &mut self.lines);
        }
        self.timeouts(resiliency);
        self.dependencies(resiliency);
        self.remark_on_unused_matching(resiliency);
    }

    fn heading(&mut self, heading: &str) {
        self.lines.put(0, "");
        self.lines.put(0, heading);
    }

    fn dapr(&mut self, resiliency: &Resiliency) {
        let Resiliency { name, namespace, scopes, .. } = resiliency;
        if name.is_none() && namespace.is_none() && scopes.is_empty() {
            return;
        }
        self.heading("dapr:");
        for (key, value) in [("name", name), ("namespace", namespace)] {
            if let Some(value) = value {
                self.lines.put(1, &format!("{key}: {}", scalar(value)));
            }
        }
        if !scopes.is_empty() {
            let scopes = scopes.iter().map(|scope| scalar(scope)).collect::<Vec<_>>().join(", ");
            self.lines.put(1, &format!("scopes: [{scopes}]"));
        }
    }

    fn timeouts(&mut self, resiliency: &Resiliency) {
        let needs_unlimited = resiliency.targets.iter().any(|(_, guards)| guards.timeout.is_none())
            || resiliency.timeouts.iter().any(|(_, limit)| limit.is_zero());
        if resiliency.timeouts.is_empty() && !needs_unlimited {
            return;
        }
        self.heading("timeouts:");
        for (name, limit) in resiliency.timeouts.iter().filter(|(_, limit)| !limit.is_zero()) {
            let name = self.names.timeouts.get(name).cloned().unwrap_or_default();
            self.lines.put(1, &format!("{}: {}", scalar(&name), show(*limit)));
        }
        if needs_unlimited {
            self.lines.put(
                1,
                "# Dapr sets no limit where the timeout is missing or 0. Set a real one for these calls.",
            );
            self.lines.put(1, &format!("{UNLIMITED}: {}", show(NO_LIMIT)));
        }
    }

    fn dependencies(&mut self, resiliency: &Resiliency) {
        if resiliency.targets.is_empty() {
            return;
        }
        self.heading("dependencies:");
        let retries: BTreeMap<&str, &Retry> =
            resiliency.retries.iter().map(|(name, retry)| (name.as_str(), retry)).collect();
        let mut unique = UniqueNames::default();
        for (target, guards) in &resiliency.targets {
            let name = unique.choose(&as_name(&dependency_name(target)));
            self.lines.put(1, &format!("{}:", scalar(&name)));
            let kind = self.kind(target);
            self.lines.put(2, &format!("kind: {kind}"));
            self.lines.put(2, &format!("dapr: {}", dapr_target(target)));
            let retry = guards.retry.as_deref().and_then(|name| Some((name, *retries.get(name)?)));
            self.guards(guards, retry, &path(target));
        }
        let why = "Dapr retries every failure; the book retries timeouts, failed connections, 408, 425, 429 and \
                   5xx except 501, as often as the policy says; 501 and other 4xx become dead letters unless \
                   `on_failure` says otherwise";
        if resiliency.retries.iter().any(|(_, retry)| retry.statuses.is_none()) {
            self.notes.add("failures", why);
        }
    }

    fn remark_on_unused_matching(&mut self, resiliency: &Resiliency) {
        let used: BTreeSet<&str> =
            resiliency.targets.iter().filter_map(|(_, guards)| guards.retry.as_deref()).collect();
        for (name, retry) in &resiliency.retries {
            if retry.statuses.is_some() && !used.contains(name.as_str()) {
                let why =
                    "no target uses the policy, and in a book the dependency says which statuses are retried";
                self.notes.add(format!("retries.{name}.matching"), why);
            }
        }
    }

    fn guards(&mut self, guards: &TargetPolicies, retry: Option<(&str, &Retry)>, path: &str) {
        let named = |names: &BTreeMap<String, String>, name: &Option<String>| {
            names.get(name.as_ref()?).map(|name| scalar(name))
        };
        let policy = named(&self.names.retries, &guards.retry).unwrap_or_else(|| "none".to_owned());
        let breaker = named(&self.names.breakers, &guards.breaker).unwrap_or_else(|| "none".to_owned());
        let timeout = named(&self.names.timeouts, &guards.timeout).unwrap_or_else(|| {
            let why =
                "no timeout: Dapr sets no limit on a call; the book has 24h, since every call needs a limit";
            self.notes.add(path, why);
            UNLIMITED.to_owned()
        });
        self.lines.put(2, &format!("retry: {policy}"));
        self.lines.put(2, "on_failure:");
        // Dapr has one policy for all failures.
        for category in [Category::RateLimited, Category::Unknown] {
            self.lines.put(3, &format!("{category}: {policy}"));
        }
        if let Some(statuses) = retry.and_then(|(_, retry)| retry.statuses.as_deref()) {
            let mut put = |ranges: &[StatusRange], act: &str| {
                for range in ranges {
                    self.lines.put(3, &format!("{range}: {act}"));
                }
            };
            put(statuses, &policy);
            put(&matching::others(statuses), "dead-letter");
        }
        self.lines.put(2, &format!("timeout: {timeout}"));
        self.lines.put(2, &format!("breaker: {breaker}"));
    }

    fn kind(&mut self, target: &DaprTarget) -> DependencyKind {
        match target {
            DaprTarget::App(_) | DaprTarget::Actor(_) => DependencyKind::Invoke,
            DaprTarget::Component { name, .. } => guess_kind(name).unwrap_or_else(|| {
                let why = "its kind cannot be derived from its name, so the book has `kind: webhook`; set the \
                           right kind";
                self.notes.add(path(target), why);
                DependencyKind::Webhook
            }),
        }
    }
}

fn write_retry(retry: &Retry, lines: &mut YamlLines) {
    match retry.pace {
        RetryPace::Constant(delay) => {
            lines.put(2, &format!("delays: [{}]", show(delay)));
            lines.put(2, "jitter: none");
        }
        RetryPace::Exponential { max } => {
            if max < INITIAL {
                // Dapr caps every delay but the first.
                lines.put(2, &format!("delays: [{}, {}]", show(INITIAL), show(max)));
            } else {
                lines.put(2, &format!("initial: {}", show(INITIAL)));
                lines.put(2, &format!("factor: {FACTOR}"));
                lines.put(2, &format!("max: {}", show(max)));
            }
            lines.put(2, "jitter: spread 50%");
        }
    }
    match retry.retries {
        Some(retries) => lines.put(2, &format!("retries: {retries}")),
        None => lines.put(2, "retries: unlimited"),
    }
    if matches!(retry.pace, RetryPace::Exponential { .. }) {
        lines.put(2, "window: 15m");
    }
}

fn write_breaker(breaker: &CircuitBreaker, lines: &mut YamlLines) {
    let CircuitBreaker { max_requests, interval, timeout, trip } = breaker;
    let within = |interval: Option<Duration>| show(interval.unwrap_or(FOR_EVER));
    let (trip, reset) = match *trip {
        TripOn::Consecutive(count) => (format!("consecutive: {count}"), *interval),
        TripOn::Failures(count) => (format!("failures: {count}, within: {}", within(*interval)), None),
        TripOn::FailureRate { thousandths, of_at_least } => {
            let percent = f64::from(thousandths) / 1_000.0;
            let within = within(*interval);
            (format!("failure_rate: {percent}%, of_at_least: {of_at_least}, within: {within}"), None)
        }
    };
    lines.put(2, &format!("trip: {{ {trip} }}"));
    lines.put(2, &format!("open: {}", show(*timeout)));
    lines.put(2, &format!("probes: {max_requests}"));
    if let Some(reset) = reset {
        lines.put(2, &format!("reset: {}", show(reset)));
    }
}

fn dapr_target(target: &DaprTarget) -> String {
    match target {
        DaprTarget::Component { name, direction: Direction::Outbound } => {
            format!("{{ component: {} }}", scalar(name))
        }
        DaprTarget::Component { name, direction: Direction::Inbound } => {
            format!("{{ component: {}, direction: inbound }}", scalar(name))
        }
        DaprTarget::App(name) => format!("{{ app: {} }}", scalar(name)),
        DaprTarget::Actor(name) => format!("{{ actor: {} }}", scalar(name)),
    }
}

fn path(target: &DaprTarget) -> String {
    match target {
        DaprTarget::Component { name, direction: Direction::Outbound } => {
            format!("components.{name}.outbound")
        }
        DaprTarget::Component { name, direction: Direction::Inbound } => format!("components.{name}.inbound"),
        DaprTarget::App(name) => format!("apps.{name}"),
        DaprTarget::Actor(name) => format!("actors.{name}"),
    }
}

fn dependency_name(target: &DaprTarget) -> String {
    match target {
        DaprTarget::Component { name, direction: Direction::Outbound }
        | DaprTarget::App(name)
        | DaprTarget::Actor(name) => name.clone(),
        DaprTarget::Component { name, direction: Direction::Inbound } => format!("{name}-inbound"),
    }
}

const KIND_WORDS: [(&str, DependencyKind); 25] = [
    ("kafka", DependencyKind::Kafka),
    ("redpanda", DependencyKind::Kafka),
    ("redis", DependencyKind::Redis),
    ("valkey", DependencyKind::Redis),
    ("postgres", DependencyKind::Postgres),
    ("pgsql", DependencyKind::Postgres),
    ("cockroach", DependencyKind::Postgres),
    ("smtp", DependencyKind::Smtp),
    ("email", DependencyKind::Smtp),
    ("mail", DependencyKind::Smtp),
    ("sendgrid", DependencyKind::Smtp),
    ("sms", DependencyKind::Sms),
    ("twilio", DependencyKind::Sms),
    ("ntfy", DependencyKind::Ntfy),
    ("servicebus", DependencyKind::ServiceBus),
    ("service-bus", DependencyKind::ServiceBus),
    ("sqs", DependencyKind::Sqs),
    ("keyvault", DependencyKind::KeyVault),
    ("key-vault", DependencyKind::KeyVault),
    ("vault", DependencyKind::KeyVault),
    ("blob", DependencyKind::Blob),
    ("s3", DependencyKind::Blob),
    ("bucket", DependencyKind::Blob),
    ("webhook", DependencyKind::Webhook),
    ("http", DependencyKind::Webhook),
];

fn guess_kind(component: &str) -> Option<DependencyKind> {
    let lower = component.to_ascii_lowercase();
    KIND_WORDS.into_iter().find(|(word, _)| lower.contains(word)).map(|(_, kind)| kind)
}

fn as_name(text: &str) -> String {
    // Leaves room for a number.
    let fits = |c: char| if DependencyName::new(c.encode_utf8(&mut [0; 4])).is_ok() { c } else { '-' };
    let name: String = text.chars().take(180).map(fits).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[derive(Default)]
struct UniqueNames {
    used: BTreeSet<String>,
    next: BTreeMap<String, u64>,
}

impl UniqueNames {
    fn choose(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let next = self.next.entry(name.clone()).or_insert(2);
        while !self.used.insert(name.clone()) {
            name = format!("{wanted}-{next}");
            *next += 1;
        }
        name
    }
}

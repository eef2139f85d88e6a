//! Lowers retry policies, breakers and timeouts, with what they extend.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{at, duration_of, excluded, is_whole, key_span, number_of, text_of};
use crate::book::model::{At, BreakerEntry, PolicyEntry, PolicyParts, TimeoutParts};
use crate::book::own_book;
use crate::book::problem::Problems;
use crate::book::validate::{ACTS, parse_failure_kind};
use crate::book::yaml::Node;
use crate::ids::{BreakerName, PolicyName};
use crate::limits;
use crate::policy::backoff::{Backoff, InvalidBackoff, Jitter, RawBackoff, RawSchedule};
use crate::policy::breaker::{BreakerSettings, Count, InvalidBreaker, RawBreaker, Trip};
use crate::policy::catalog;
use crate::policy::category::Category;
use crate::policy::rule::{FailureMatch, GrowingTimeout};
use crate::text;

/// The book's own policies, breakers and timeouts.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    pub(super) policies: BTreeMap<PolicyName, At<PolicyEntry>>,
    pub(super) breakers: BTreeMap<BreakerName, At<BreakerEntry>>,
    pub(super) timeouts: BTreeMap<String, At<TimeoutParts>>,
}

/// Names that mean something else where they are used.
struct Reserved {
    section: &'static str,
    what: &'static str,
    has_a_meaning: fn(&str) -> bool,
}

const RESERVED: [Reserved; 5] = [
    Reserved { section: "retry_policies", what: "retry policy", has_a_meaning: |name| ACTS.contains(&name) },
    Reserved { section: "breakers", what: "breaker", has_a_meaning: |name| name == "none" },
    Reserved {
        section: "timeouts",
        what: "timeout",
        has_a_meaning: |name| name.starts_with(|c: char| c.is_ascii_digit()),
    },
    Reserved { section: "services", what: "service", has_a_meaning: own_book::is_own },
    Reserved { section: "dependencies", what: "dependency", has_a_meaning: own_book::is_own },
];

impl Guards {
    pub(super) fn read(&mut self, book: &Node, problems: &mut Problems) {
        let section = |name| book.get(name).map(Node::entries).unwrap_or_default();
        for Reserved { section: name, what, has_a_meaning } in RESERVED {
            for (key, _) in section(name) {
                if let Some(name) = key.text().filter(|name| has_a_meaning(name)) {
                    let message = format!("`{name}` has a meaning of its own and cannot name a {what}");
                    problems.error("reserved-name", key.span, message, "choose another name");
                }
            }
        }
        let (policies, breakers) = (entries(section("retry_policies")), entries(section("breakers")));
        for (key, node) in section("retry_policies") {
            if let Some(name) = key.text().and_then(|text| PolicyName::new(text).ok())
                && let Some(entry) = policy(&name, node, &policies, problems)
            {
                self.policies.insert(name, At { value: entry, span: key.span });
            }
        }
        for (key, node) in section("breakers") {
            if let Some(name) = key.text().and_then(|text| BreakerName::new(text).ok())
                && let Some(entry) = breaker(&name, node, &breakers, problems)
            {
                self.breakers.insert(name, At { value: entry, span: key.span });
            }
        }
        for (key, node) in section("timeouts") {
            if let Some(name) = key.text() {
                let mut parts = timeout_parts(node, problems);
                parts.name = Some(name.to_owned());
                self.timeouts.insert(name.to_owned(), At { value: parts, span: key.span });
            }
        }
    }

    /// What stands under `timeout:`, whether a duration, a name or its parts.
    pub(super) fn timeout(&self, node: &Node, problems: &mut Problems) -> TimeoutParts {
        let named = node.text().and_then(|name| {
            let own = self.timeouts.get(name).map(|at| at.value.clone());
            own.or_else(|| catalog::named_timeout(name).map(catalog_timeout))
        });
        named.unwrap_or_else(|| timeout_parts(node, problems))
    }
}

fn catalog_timeout(entry: &catalog::CatalogTimeout) -> TimeoutParts {
    TimeoutParts {
        name: Some(entry.name.to_owned()),
        whole: Some(GrowingTimeout::fixed(entry.limit)),
        // Transient is what a timeout is anyway; only what differs may overrule a process target.
        category: Some(entry.on_timeout.category()).filter(|category| *category != Category::Transient),
        ..TimeoutParts::default()
    }
}

fn timeout_parts(node: &Node, problems: &mut Problems) -> TimeoutParts {
    if let Some(text) = node.text() {
        let whole = text::parse_duration(text).ok().map(GrowingTimeout::fixed);
        refuse_zero(node, whole.map(|whole| whole.first), problems);
        return TimeoutParts { whole, ..TimeoutParts::default() };
    }
    let whole = match (duration_of(node, "whole"), duration_of(node, "first")) {
        (Some(whole), None) => {
            excluded(node, &["factor", "max"], "they belong to `first`", problems);
            Some(GrowingTimeout::fixed(whole))
        }
        (Some(_), Some(_)) => {
            excluded(node, &["first"], "`whole` is stated too", problems);
            None
        }
        (None, Some(first)) => {
            let factor = number_of(node, "factor").unwrap_or(2.0);
            let max = duration_of(node, "max").unwrap_or(first.saturating_mul(10));
            if max < first {
                let message = "`max` is shorter than `first`";
                problems.error(
                    "max-below-first",
                    key_span(node, "max"),
                    message,
                    "make `max` the longer one",
                );
            }
            Some(GrowingTimeout { first, factor, max: max.max(first) })
        }
        (None, None) => {
            excluded(node, &["factor", "max"], "they belong to `first`", problems);
            None
        }
    };
    for key in ["connect", "tls", "headers", "whole", "first"] {
        if let Some(value) = node.get(key) {
            refuse_zero(value, duration_of(node, key), problems);
        }
    }
    TimeoutParts {
        name: None,
        connect: duration_of(node, "connect"),
        tls: duration_of(node, "tls"),
        headers: duration_of(node, "headers"),
        whole,
        category: text_of(node, "as").as_deref().and_then(Category::from_word),
    }
}

fn refuse_zero(node: &Node, limit: Option<Duration>, problems: &mut Problems) {
    if limit.is_some_and(|limit| limit.is_zero()) {
        let help = "every operation has a timeout; state how long it may take";
        problems.error("zero-timeout", node.span, "a timeout of nothing ends every call at once", help);
    }
}

/// The entries of a section by name.
type Entries<'a> = BTreeMap<&'a str, &'a Node>;

fn entries(section: &[(Node, Node)]) -> Entries<'_> {
    section.iter().filter_map(|(key, node)| Some((key.text()?, node))).collect()
}

/// Follows `from` and collects the chain, the entry itself first. None if it goes in a circle or too far.
/// The chain ends at the catalog, whose entry's name comes with it.
fn chain<'a>(
    name: &str,
    node: &'a Node,
    section: &Entries<'a>,
    problems: &mut Problems,
) -> Option<(Vec<&'a Node>, Option<&'a str>)> {
    let mut links = vec![node];
    let mut seen = vec![name];
    loop {
        let last = links.last().expect("the chain starts with the entry itself");
        let Some(from) = last.get("from").and_then(Node::text) else { return Some((links, None)) };
        // Under its own name an entry can only mean the catalog's.
        let own = section.get(from).filter(|_| seen.last() != Some(&from));
        let Some(parent) = own else { return Some((links, Some(from))) };
        // Who merely leads into a circle is not told: those who are in it are.
        if from == name {
            let circle = format!("{} → {from}", seen.join(" → "));
            let help = "let one of them state its own values";
            let message = format!("this extends itself: {circle}");
            problems.error("extends-itself", key_span(node, "from"), message, help);
            return None;
        }
        if seen.contains(&from) {
            return None;
        }
        if links.len() >= limits::EXTENDS_MAX {
            let message =
                format!("this extends more than {} others, one after the other", limits::EXTENDS_MAX);
            problems.error("extends-too-far", key_span(node, "from"), message, "state its own values");
            return None;
        }
        seen.push(from);
        links.push(parent);
    }
}

fn policy(
    name: &PolicyName,
    node: &Node,
    section: &Entries<'_>,
    problems: &mut Problems,
) -> Option<PolicyEntry> {
    let (links, root) = chain(name.as_str(), node, section, problems)?;
    let base = match root {
        None => None,
        Some(root) => match catalog::policy(root) {
            Some(entry) => Some(entry),
            None if root == name.as_str() => {
                let message = format!("there is no retry policy `{root}` in the catalog to extend");
                problems.error("extends-nothing", key_span(node, "from"), message, "name another policy");
                return None;
            }
            // Reported as an undefined name.
            None => return None,
        },
    };
    let mut parts = base.map(catalog_parts).unwrap_or_default();
    for link in links.iter().rev() {
        if !is_whole(link) {
            return None;
        }
        extend(&mut parts, &own_parts(link)?);
    }
    if node.get("delays").is_some() {
        excluded(node, &["initial", "factor", "max"], "`delays` lists every delay", problems);
    } else if parts.delays.is_some() {
        let because = "the policy that it extends lists every delay";
        excluded(node, &["factor", "max"], because, problems);
    }
    let from = node.get("from").and_then(Node::text).and_then(|text| PolicyName::new(text).ok());
    let alert_when_exhausted = parts.alert_when_exhausted.unwrap_or(false);
    let raw = raw_backoff(node, parts, problems)?;
    match Backoff::try_from(raw) {
        Ok(backoff) => Some(PolicyEntry { backoff, alert_when_exhausted, from }),
        Err(error) => {
            let key = match &error {
                InvalidBackoff::ZeroInitial => "initial",
                InvalidBackoff::MaxBelowInitial { .. } => "max",
                InvalidBackoff::FactorBelowOne { .. } => "factor",
                InvalidBackoff::EmptyList => "delays",
                InvalidBackoff::NoSchedule { .. } | InvalidBackoff::TooManyRetries { .. } => "retries",
                InvalidBackoff::ZeroWindow => "window",
                InvalidBackoff::ZeroSpread { .. } | InvalidBackoff::DecorrelatedList => "jitter",
            };
            problems.error("bad-policy", key_span(node, key), error.to_string(), format!("change `{key}`"));
            None
        }
    }
}

/// None if a part was stated and could not be read, which was reported.
fn own_parts(node: &Node) -> Option<PolicyParts> {
    let retries = match node.get("retries").and_then(Node::text) {
        Some("unlimited") => Some(Backoff::UNLIMITED),
        Some(text) => Some(text.parse().ok().filter(|retries| *retries <= limits::RETRIES_MAX)?),
        None => None,
    };
    let factor = match node.get("factor") {
        Some(_) => Some(number_of(node, "factor").filter(|factor| (1.0..=100.0).contains(factor))?),
        None => None,
    };
    let delays = match node.get("delays") {
        Some(list) => Some(
            list.items()
                .iter()
                .map(|item| text::parse_duration(item.text()?).ok())
                .collect::<Option<Vec<_>>>()?,
        ),
        None => None,
    };
    let read = |key| match node.get(key) {
        Some(_) => duration_of(node, key).map(Some),
        None => Some(None),
    };
    let jitter = match node.get("jitter").and_then(Node::text) {
        Some(text) => Some(Jitter::parse(text).ok()?),
        None => None,
    };
    Some(PolicyParts {
        initial: read("initial")?,
        factor,
        max: read("max")?,
        delays,
        retries,
        window: read("window")?,
        jitter,
        alert_when_exhausted: number_of(node, "alert_when_exhausted"),
    })
}

fn catalog_parts(entry: &catalog::CatalogPolicy) -> PolicyParts {
    let backoff = &entry.backoff;
    let listed = backoff.listed().map(<[Duration]>::to_vec);
    let grows = backoff.factor().is_some();
    PolicyParts {
        initial: grows.then(|| backoff.initial()),
        factor: backoff.factor(),
        max: grows.then(|| backoff.max()),
        delays: listed,
        retries: Some(backoff.retries()),
        window: backoff.window(),
        jitter: Some(backoff.jitter()),
        alert_when_exhausted: Some(entry.alert_on_exhaustion),
    }
}

fn extend(parts: &mut PolicyParts, by: &PolicyParts) {
    if by.delays.is_some() {
        (parts.initial, parts.factor, parts.max) = (None, None, None);
    }
    if by.initial.is_some() {
        parts.delays = None;
    }
    let PolicyParts { initial, factor, max, delays, retries, window, jitter, alert_when_exhausted } = by;
    parts.initial = initial.or(parts.initial);
    parts.factor = factor.or(parts.factor);
    parts.max = max.or(parts.max);
    parts.delays = delays.clone().or_else(|| parts.delays.take());
    parts.retries = retries.or(parts.retries);
    parts.window = window.or(parts.window);
    parts.jitter = jitter.or(parts.jitter);
    parts.alert_when_exhausted = alert_when_exhausted.or(parts.alert_when_exhausted);
}

fn raw_backoff(node: &Node, parts: PolicyParts, problems: &mut Problems) -> Option<RawBackoff> {
    let Some(retries) = parts.retries else {
        let help = "state `retries`, or extend a policy with `from`";
        problems.error("missing-key", node.span, "a retry policy needs `retries`", help);
        return None;
    };
    let schedule = match (parts.delays, parts.initial) {
        (Some(delays), _) => RawSchedule::Listed(delays),
        (None, Some(initial)) => {
            let max = parts.max.unwrap_or(limits::DURATION_MAX);
            RawSchedule::Exponential { initial, factor: parts.factor.unwrap_or(2.0), max }
        }
        (None, None) if retries == 0 => RawSchedule::Never,
        (None, None) => {
            let help = "state `initial` or `delays`, or extend a policy with `from`";
            problems.error("missing-key", node.span, "a retry policy needs to know how long to wait", help);
            return None;
        }
    };
    let jitter = parts.jitter.unwrap_or(Jitter::Equal);
    Some(RawBackoff { schedule, jitter, retries, window: parts.window })
}

fn breaker(
    name: &BreakerName,
    node: &Node,
    section: &Entries<'_>,
    problems: &mut Problems,
) -> Option<BreakerEntry> {
    let (links, root) = chain(name.as_str(), node, section, problems)?;
    let mut parts = BreakerParts::default();
    if let Some(root) = root {
        let Some(entry) = catalog::breaker(root) else {
            // Any other name was reported as undefined.
            if root == name.as_str() || root == "none" {
                let message = format!("there is no breaker `{root}` to extend");
                problems.error("extends-nothing", key_span(node, "from"), message, "name another breaker");
            }
            return None;
        };
        parts = BreakerParts::from(entry);
    }
    for link in links.iter().rev() {
        if !is_whole(link) {
            return None;
        }
        parts.extend(link);
    }
    if let Some(trip) = node.get("trip") {
        check_trip(trip, problems);
    }
    let (Some(trip), Some(open)) = (parts.trip, parts.open) else {
        let missing = if parts.open.is_none() { "open" } else { "trip" };
        // A trip that was stated but makes no sense was reported for itself.
        if node.get(missing).is_none() {
            let help = "without it the breaker could never open, or never close again";
            problems.error("missing-key", node.span, format!("a breaker needs `{missing}`"), help);
        }
        return None;
    };
    let raw = RawBreaker {
        trip,
        open,
        probes: parts.probes.unwrap_or(1),
        close_after: parts.close_after,
        reset: parts.reset,
        count: parts.count.unwrap_or(Count::Attempt),
    };
    let from = node.get("from").and_then(Node::text).and_then(|text| BreakerName::new(text).ok());
    match BreakerSettings::try_from(raw) {
        Ok(settings) => Some(BreakerEntry { settings, ignores: parts.ignores, counts: parts.counts, from }),
        Err(error) => {
            let key = match &error {
                InvalidBreaker::ZeroOpen => "open",
                InvalidBreaker::ZeroReset => "reset",
                InvalidBreaker::ProbesOutOfRange { .. } => "probes",
                InvalidBreaker::ZeroCloseAfter => "close_after",
                InvalidBreaker::ZeroWithin
                | InvalidBreaker::TooManyFailures { .. }
                | InvalidBreaker::ZeroShare => "trip",
            };
            problems.error("bad-breaker", key_span(node, key), error.to_string(), format!("change `{key}`"));
            None
        }
    }
}

#[derive(Default)]
struct BreakerParts {
    trip: Option<Trip>,
    open: Option<Duration>,
    probes: Option<u32>,
    close_after: Option<u32>,
    reset: Option<Duration>,
    count: Option<Count>,
    ignores: Vec<FailureMatch>,
    counts: Vec<FailureMatch>,
}

impl From<&catalog::CatalogBreaker> for BreakerParts {
    fn from(entry: &catalog::CatalogBreaker) -> Self {
        let raw = RawBreaker::from(entry);
        Self {
            trip: Some(raw.trip),
            open: Some(raw.open),
            probes: Some(raw.probes),
            close_after: raw.close_after,
            reset: raw.reset,
            ..Self::default()
        }
    }
}

impl BreakerParts {
    fn extend(&mut self, node: &Node) {
        if let Some(trip) = node.get("trip") {
            self.trip = read_trip(trip);
        }
        self.open = duration_of(node, "open").or(self.open);
        self.probes = number_of(node, "probes").or(self.probes);
        self.close_after = number_of(node, "close_after").or(self.close_after);
        self.reset = duration_of(node, "reset").or(self.reset);
        self.count = match text_of(node, "count").as_deref() {
            Some("attempt") => Some(Count::Attempt),
            Some("call") => Some(Count::Call),
            _ => self.count,
        };
        let kinds = |key| node.get(key).map(|list| list.items().iter().filter_map(failure_kind).collect());
        if let Some(ignores) = kinds("ignores") {
            self.ignores = ignores;
        }
        if let Some(counts) = kinds("counts") {
            self.counts = counts;
        }
    }
}

fn failure_kind(node: &Node) -> Option<FailureMatch> {
    at(node, parse_failure_kind).map(|at| at.value)
}

fn read_trip(node: &Node) -> Option<Trip> {
    if let Some(count) = number_of::<NonZeroU32>(node, "consecutive") {
        return Some(Trip::Consecutive(count));
    }
    let within = duration_of(node, "within")?;
    if let Some(count) = number_of::<NonZeroU32>(node, "failures") {
        return Some(Trip::Failures { count, within });
    }
    let share = at(node.get("failure_rate")?, |text| text::parse_share(text).ok())?.value;
    Some(Trip::FailureRate { share, of_at_least: number_of(node, "of_at_least")?, within })
}

/// Reports parts of a trip that are missing or do not belong to its kind.
fn check_trip(node: &Node, problems: &mut Problems) {
    let missing = |key: &str, problems: &mut Problems| {
        if node.get(key).is_none() {
            let message = format!("this trip condition needs `{key}`");
            problems.error("missing-key", node.span, message, format!("add `{key}`"));
        }
    };
    if node.get("consecutive").is_some() {
        excluded(node, &["within", "of_at_least"], "`consecutive` looks at the last calls only", problems);
    } else if node.get("failures").is_some() {
        missing("within", problems);
        excluded(node, &["of_at_least"], "it belongs to `failure_rate`", problems);
    } else if node.get("failure_rate").is_some() {
        missing("within", problems);
        missing("of_at_least", problems);
    }
}

//! Parses retry policies, breakers and timeouts, with what they extend.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::{at, duration_of, excluded, is_whole, key_span, number_of, text_of};
use crate::book::alert_rules;
use crate::book::keywords::Keyword;
use crate::book::model::{At, BreakerEntry, PolicyEntry, TimeoutParts};
use crate::book::problem::Problems;
use crate::book::validate::{ACTS, parse_failure_kind};
use crate::book::yaml::YamlNode;
use crate::ids::{BreakerName, PolicyName};
use crate::limits;
use crate::policy::backoff::{Backoff, InvalidBackoff, Jitter, RawBackoff, RawSchedule};
use crate::policy::breaker::{BreakerSettings, CountingUnit, InvalidBreaker, RawBreaker, Trip};
use crate::policy::catalog;
use crate::policy::category::Category;
use crate::policy::rule::{FailureMatch, GrowingTimeout};
use crate::text;

#[derive(Debug, Default)]
pub(crate) struct GuardSections {
    pub(super) policies: BTreeMap<PolicyName, At<PolicyEntry>>,
    pub(super) breakers: BTreeMap<BreakerName, At<BreakerEntry>>,
    pub(super) timeouts: BTreeMap<String, At<TimeoutParts>>,
}

/// Names with a special meaning where they are used.
struct ReservedNames {
    section: &'static str,
    what: &'static str,
    has_a_meaning: fn(&str) -> bool,
}

const RESERVED: [ReservedNames; 5] = [
    ReservedNames {
        section: "retry_policies",
        what: "retry policy",
        has_a_meaning: |name| ACTS.contains(&name),
    },
    ReservedNames { section: "breakers", what: "breaker", has_a_meaning: |name| name == "none" },
    ReservedNames {
        section: "timeouts",
        what: "timeout",
        has_a_meaning: |name| name.starts_with(|c: char| c.is_ascii_digit()),
    },
    ReservedNames { section: "services", what: "service", has_a_meaning: alert_rules::is_own },
    ReservedNames { section: "dependencies", what: "dependency", has_a_meaning: alert_rules::is_own },
];

impl GuardSections {
    pub(super) fn read(&mut self, book: &YamlNode, problems: &mut Problems) {
        let section = |name| book.get(name).map(YamlNode::entries).unwrap_or_default();
        for ReservedNames { section: name, what, has_a_meaning } in RESERVED {
            for (key, _) in section(name) {
                if let Some(name) = key.text().filter(|name| has_a_meaning(name)) {
                    let message = format!("`{name}` is reserved and cannot name a {what}");
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

    /// `timeout:` is a duration, a name or its parts.
    pub(super) fn timeout(&self, node: &YamlNode, problems: &mut Problems) -> TimeoutParts {
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
        // Transient is the default; only a different category may override a program's.
        category: Some(entry.on_timeout.category()).filter(|category| *category != Category::Transient),
        ..TimeoutParts::default()
    }
}

fn timeout_parts(node: &YamlNode, problems: &mut Problems) -> TimeoutParts {
    if let Some(text) = node.text() {
        let whole = text::parse_duration(text).ok().map(GrowingTimeout::fixed);
        refuse_zero(node, whole.map(|whole| whole.first), problems);
        return TimeoutParts { whole, ..TimeoutParts::default() };
    }
    let whole = match (duration_of(node, "whole"), duration_of(node, "first")) {
        (Some(whole), None) => {
            excluded(node, &["factor", "max"], "they need `first`", problems);
            Some(GrowingTimeout::fixed(whole))
        }
        (Some(_), Some(_)) => {
            excluded(node, &["first"], "`whole` is set too", problems);
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
            excluded(node, &["factor", "max"], "they need `first`", problems);
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

fn refuse_zero(node: &YamlNode, limit: Option<Duration>, problems: &mut Problems) {
    if limit.is_some_and(|limit| limit.is_zero()) {
        let help = "set how long the call may take";
        problems.error("zero-timeout", node.span, "a timeout must be greater than zero", help);
    }
}

type Entries<'a> = BTreeMap<&'a str, &'a YamlNode>;

fn entries(section: &[(YamlNode, YamlNode)]) -> Entries<'_> {
    section.iter().filter_map(|(key, node)| Some((key.text()?, node))).collect()
}

/// A stated value could not be read (already reported).
struct Reported;

/// An entry and those it extends, itself first.
struct PolicyChain<'a> {
    links: Vec<&'a YamlNode>,
    /// The catalog name that the last entry extends.
    root: Option<&'a str>,
}

impl<'a> PolicyChain<'a> {
    /// Follows `from`. `None` if it is circular, too long or unreadable.
    fn of(name: &str, node: &'a YamlNode, section: &Entries<'a>, problems: &mut Problems) -> Option<Self> {
        let mut links = vec![node];
        let mut seen = vec![name];
        let mut last = node;
        while let Some(from) = last.get("from").and_then(YamlNode::text) {
            // Under its own name an entry can only extend the catalog's.
            let own = section.get(from).filter(|_| seen.last() != Some(&from));
            let Some(parent) = own else { return Self { links, root: Some(from) }.if_whole() };
            // Report only the entries within a circle, not those leading into it.
            if from == name {
                let circle = format!("{} → {from}", seen.join(" → "));
                let help = "remove one `from` and set the values there";
                let message = format!("circular `from`: {circle}");
                problems.error("extends-itself", key_span(node, "from"), message, help);
                return None;
            }
            if seen.contains(&from) {
                return None;
            }
            if links.len() >= limits::EXTENDS_MAX {
                let message = format!("`from` chain is longer than {}", limits::EXTENDS_MAX);
                problems.error(
                    "extends-too-far",
                    key_span(node, "from"),
                    message,
                    "set the values here instead of `from`",
                );
                return None;
            }
            seen.push(from);
            links.push(parent);
            last = parent;
        }
        Self { links, root: None }.if_whole()
    }

    fn if_whole(self) -> Option<Self> {
        self.links.iter().all(|link| is_whole(link)).then_some(self)
    }

    /// The nearest value of a key, else `usual`.
    fn read<T>(
        &self,
        key: &str,
        usual: Option<T>,
        read: impl FnOnce(&YamlNode) -> Option<T>,
    ) -> Result<Option<T>, Reported> {
        match self.links.iter().find_map(|link| link.get(key)) {
            Some(node) => read(node).map(Some).ok_or(Reported),
            None => Ok(usual),
        }
    }

    fn duration(&self, key: &str, usual: Option<Duration>) -> Result<Option<Duration>, Reported> {
        self.read(key, usual, duration)
    }
}

fn duration(node: &YamlNode) -> Option<Duration> {
    text::parse_duration(node.text()?).ok()
}

fn number<T: std::str::FromStr>(node: &YamlNode) -> Option<T> {
    node.text()?.parse().ok()
}

fn policy(
    name: &PolicyName,
    node: &YamlNode,
    section: &Entries<'_>,
    problems: &mut Problems,
) -> Option<PolicyEntry> {
    let chain = PolicyChain::of(name.as_str(), node, section, problems)?;
    let base = match chain.root {
        None => None,
        Some(root) => match catalog::policy(root) {
            Some(entry) => Some(entry),
            None if root == name.as_str() => {
                let message = format!("unknown retry policy `{root}`");
                problems.error("extends-nothing", key_span(node, "from"), message, "name another policy");
                return None;
            }
            // Reported as an undefined name.
            None => return None,
        },
    };
    let from = node.get("from").and_then(YamlNode::text).and_then(|text| PolicyName::new(text).ok());
    let usual = base.map(|entry| entry.alert_on_exhaustion);
    let alert_when_exhausted = chain.read("alert_when_exhausted", usual, number).ok()?.unwrap_or(false);
    let raw = raw_backoff(node, chain, base.map(|entry| &entry.backoff), problems)?;
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

/// `None` if a stated part was invalid (already reported).
fn raw_backoff(
    node: &YamlNode,
    chain: PolicyChain<'_>,
    base: Option<&Backoff>,
    problems: &mut Problems,
) -> Option<RawBackoff> {
    let retries = chain.read("retries", base.map(Backoff::retries), |node| match node.text()? {
        "unlimited" => Some(Backoff::UNLIMITED),
        text => text.parse().ok().filter(|retries| *retries <= limits::RETRIES_MAX),
    });
    let retries = retries.ok()?;
    let jitter = chain.read("jitter", base.map(Backoff::jitter), |node| Jitter::parse(node.text()?).ok());
    let jitter = jitter.ok()?;
    let window = chain.duration("window", base.and_then(Backoff::window)).ok()?;
    let schedule = schedule(node, chain, base, problems)?;
    let Some(retries) = retries else {
        let help = "set `retries`, or extend a policy with `from`";
        problems.error("missing-key", node.span, "a retry policy needs `retries`", help);
        return None;
    };
    if schedule == RawSchedule::Never && retries > 0 {
        let help = "set `initial` or `delays`, or extend a policy with `from`";
        problems.error("missing-key", node.span, "a retry policy needs a delay", help);
        return None;
    }
    Some(RawBackoff { schedule, jitter: jitter.unwrap_or(Jitter::Equal), retries, window })
}

/// The nearest `delays` or `initial` decides; a list hides what it extends.
fn schedule(
    node: &YamlNode,
    mut chain: PolicyChain<'_>,
    base: Option<&Backoff>,
    problems: &mut Problems,
) -> Option<RawSchedule> {
    let listed = chain.links.iter().position(|link| link.get("delays").is_some());
    let list = listed.and_then(|place| chain.links[place].get("delays"));
    if let Some(place) = listed {
        chain.links.truncate(place);
    }
    let base = base.filter(|_| listed.is_none());
    let grown = base.filter(|backoff| backoff.factor().is_some());
    let initial = chain.duration("initial", grown.map(Backoff::initial)).ok()?;
    let factor = chain.read("factor", grown.and_then(Backoff::factor), |node| {
        number(node).filter(|factor| (1.0..=100.0).contains(factor))
    });
    let factor = factor.ok()?;
    let max = chain.duration("max", grown.map(Backoff::max)).ok()?;
    let delays = match list {
        Some(list) => Some(list.items().iter().map(duration).collect::<Option<Vec<_>>>()?),
        None => base.and_then(Backoff::listed).map(<[Duration]>::to_vec),
    };
    if node.get("delays").is_some() {
        excluded(node, &["initial", "factor", "max"], "`delays` already lists every delay", problems);
    } else if initial.is_none() && delays.is_some() {
        let because = "the policy it extends already lists every delay";
        excluded(node, &["factor", "max"], because, problems);
    }
    Some(match (initial, delays) {
        (Some(initial), _) => {
            let max = max.unwrap_or(limits::DURATION_MAX);
            RawSchedule::Exponential { initial, factor: factor.unwrap_or(2.0), max }
        }
        (None, Some(delays)) => RawSchedule::Listed(delays),
        (None, None) => RawSchedule::Never,
    })
}

fn breaker(
    name: &BreakerName,
    node: &YamlNode,
    section: &Entries<'_>,
    problems: &mut Problems,
) -> Option<BreakerEntry> {
    let chain = PolicyChain::of(name.as_str(), node, section, problems)?;
    let base = match chain.root {
        None => None,
        Some(root) => {
            let Some(entry) = catalog::breaker(root) else {
                // Any other name was reported as undefined.
                if root == name.as_str() || root == "none" {
                    let message = format!("unknown breaker `{root}`");
                    let help = "name another breaker";
                    problems.error("extends-nothing", key_span(node, "from"), message, help);
                }
                return None;
            };
            Some(RawBreaker::from(entry))
        }
    };
    if let Some(trip) = node.get("trip") {
        check_trip(trip, problems);
    }
    let base = base.as_ref();
    // An invalid part was reported, so its replacement does not matter.
    let trip = chain.read("trip", base.map(|raw| raw.trip), read_trip).ok().flatten();
    let open = chain.duration("open", base.map(|raw| raw.open)).ok().flatten();
    let (Some(trip), Some(open)) = (trip, open) else {
        let missing = if open.is_none() { "open" } else { "trip" };
        // An invalid trip was reported on its own.
        if node.get(missing).is_none() {
            let help = "without it the breaker would never open, or never close again";
            problems.error("missing-key", node.span, format!("a breaker needs `{missing}`"), help);
        }
        return None;
    };
    let count = |node: &YamlNode| CountingUnit::from_word(node.text()?);
    let raw = RawBreaker {
        trip,
        open,
        probes: chain.read("probes", base.map(|raw| raw.probes), number).ok().flatten().unwrap_or(1),
        close_after: chain.read("close_after", base.and_then(|raw| raw.close_after), number).ok().flatten(),
        reset: chain.duration("reset", base.and_then(|raw| raw.reset)).ok().flatten(),
        count: chain.read("count", None, count).ok().flatten().unwrap_or(CountingUnit::Attempt),
    };
    let kinds =
        |key| chain.read(key, None, |list| Some(failure_kinds(list))).ok().flatten().unwrap_or_default();
    let from = node.get("from").and_then(YamlNode::text).and_then(|text| BreakerName::new(text).ok());
    match BreakerSettings::try_from(raw) {
        Ok(settings) => {
            Some(BreakerEntry { settings, ignores: kinds("ignores"), counts: kinds("counts"), from })
        }
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

fn failure_kinds(list: &YamlNode) -> Vec<FailureMatch> {
    list.items().iter().filter_map(|item| parse_failure_kind(item.text()?)).collect()
}

fn read_trip(node: &YamlNode) -> Option<Trip> {
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

/// Reports missing or extra parts of a trip condition.
fn check_trip(node: &YamlNode, problems: &mut Problems) {
    let missing = |key: &str, problems: &mut Problems| {
        if node.get(key).is_none() {
            let message = format!("this trip condition needs `{key}`");
            problems.error("missing-key", node.span, message, format!("add `{key}`"));
        }
    };
    if node.get("consecutive").is_some() {
        excluded(node, &["within", "of_at_least"], "`consecutive` only counts calls in a row", problems);
    } else if node.get("failures").is_some() {
        missing("within", problems);
        excluded(node, &["of_at_least"], "it needs `failure_rate`", problems);
    } else if node.get("failure_rate").is_some() {
        missing("within", problems);
        missing("of_at_least", problems);
    }
}

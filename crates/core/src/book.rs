//! The rule book: routing and failure handling as data.
//!
//! A book is read in four steps, each in its own module: [`yaml`] parses nodes with their positions,
//! [`validate`] checks them against the [`schema`], [`parse`] gives them types, and [`resolve`] computes the
//! rule for a service, channel and event type. `redrive_lab::lint` warns about valid settings that cause
//! trouble.
//!
//! Invariants: a book with an error is refused; a book without one can be resolved for every row; any input
//! gives a book or problems, never a panic.

mod address;
pub mod alert_rules;
mod builtin_book;
pub mod cel;
pub mod connectors;
mod dedup_store;
pub mod event_condition;
pub mod event_schema;
pub mod expression;
pub mod keywords;
mod letter_rule;
mod lookups;
pub mod model;
pub mod parse;
pub mod patch;
pub mod pattern;
pub mod problem;
pub mod resolve;
pub mod route;
pub mod schema;
pub mod source_template;
pub mod template;
pub mod validate;
pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::model::{ChannelEntry, EventRow, Machine, Sections, ServiceEntry, TargetEntry};
use self::pattern::EventPattern;
use self::problem::{BookSpan, Problem, Problems};
use self::resolve::Resolved;
use crate::book::problem::Position;
use crate::engine::worker::Worker;
use crate::hash::{self, Map};
use crate::ids::{ChannelName, DependencyName, ServiceName};
use crate::limits;
use crate::policy::rule::Rule;
use crate::policy::throttle::ThrottleSettings;

pub use self::address::{AddressFault, check_address};
pub use self::builtin_book::BUILTIN_BOOK;
pub use self::connectors::Connectors;
pub use self::dedup_store::EMBEDDED;
pub use self::letter_rule::LetterRule;
pub use self::lookups::WaitingLimits;

#[derive(Clone, Debug)]
pub struct RuleBook {
    sections: Sections,
    services: Map<ServiceName, ServiceRules>,
    routes: route::RouteIndex,
    throttles: Map<DependencyName, ThrottleSettings>,
    keep_delivered: Duration,
    dedup_ttl_max: Duration,
    letter_retention: Duration,
    /// Rules for delivering alert notices.
    own: Option<Arc<RuleBook>>,
    connectors: Connectors,
    hash: u64,
}

#[derive(Debug)]
pub struct ParsedBook {
    pub book: Option<RuleBook>,
    pub problems: Problems,
}

#[derive(Clone, Debug)]
struct ServiceRules {
    place: usize,
    own: Rows,
    channels: Map<ChannelName, Rows>,
    waiting: WaitingLimits,
}

/// The rows of a service or a channel: exact types by hash, patterns with the most specific first.
#[derive(Clone, Debug)]
struct Rows {
    exact: Map<Box<str>, RowRules>,
    patterns: Vec<(EventPattern, RowRules)>,
    batch_max: u32,
    worker: Option<Worker>,
}

#[derive(Clone, Debug)]
struct RowRules {
    row: Arc<EventRow>,
    rule: Arc<Rule>,
    letter: Arc<LetterRule>,
}

#[must_use]
pub fn read_bytes(bytes: &[u8], connectors: &Connectors) -> ParsedBook {
    read_bytes_for(bytes, connectors, Machine::default())
}

#[must_use]
pub fn read_bytes_for(bytes: &[u8], connectors: &Connectors, machine: Machine) -> ParsedBook {
    let mut problems = Problems::default();
    match text_of(bytes, &mut problems) {
        Some(text) => read_for(text, connectors, machine),
        None => ParsedBook { book: None, problems },
    }
}

/// `None`, with a problem reported, if the bytes are too many or not UTF-8.
pub fn text_of<'a>(bytes: &'a [u8], problems: &mut Problems) -> Option<&'a str> {
    if bytes.len() > limits::BOOK_BYTES_MAX {
        let mib = limits::BOOK_BYTES_MAX >> 20;
        let message = format!("the file is larger than {mib} MiB, the largest rule book allowed");
        problems.error("file-too-large", BookSpan::default(), message, "split it into several files files");
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let good = &bytes[..error.valid_up_to()];
            let help = "save the file as UTF-8";
            problems.error("not-utf-8", end_of(good), "the file is not valid UTF-8 from here", help);
            None
        }
    }
}

fn end_of(good: &[u8]) -> BookSpan {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let lines = good.split(|byte| *byte == b'\n').count();
    let last = good.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(last).chars().count() + 1;
    let position = Position { line: small(lines), column: small(column) };
    BookSpan { start: small(good.len()), end: small(good.len()), position }
}

#[must_use]
pub fn read(text: &str, connectors: &Connectors) -> ParsedBook {
    read_for(text, connectors, Machine::default())
}

#[must_use]
pub fn read_for(text: &str, connectors: &Connectors, machine: Machine) -> ParsedBook {
    let mut problems = Problems::default();
    let Some(root) = yaml::read(text, &mut problems) else {
        if !problems.has_errors() {
            let help = "`redrive init` writes a starter rule book";
            problems.error("empty-book", BookSpan::default(), "the file is empty", help);
        }
        return ParsedBook { book: None, problems };
    };
    yaml::check_keys(&root, &mut problems);
    let names = validate::DefinedNames::of(&root);
    validate::validate(&root, &schema::ValueType::Object(&schema::BOOK), &names, connectors, &mut problems);
    let sections = Sections { machine, ..parse::parse(&root, connectors, &mut problems) };
    check_policy_counts(&sections, &mut problems);
    check_subscriptions(&sections, &mut problems);
    let book = (!problems.has_errors()).then(|| RuleBook::new(sections, connectors, text));
    ParsedBook { book, problems }
}

/// Reports rows that use more policies than a delivery's history can count.
fn check_policy_counts(sections: &Sections, problems: &mut Problems) {
    let names_in = |reactions: &mut dyn Iterator<Item = &model::ReactionName>| {
        let names = reactions.filter_map(|reaction| match reaction {
            model::ReactionName::Policy(name) => Some(name.clone()),
            model::ReactionName::DeadLetter | model::ReactionName::Pause => None,
        });
        names.collect::<BTreeSet<_>>().len()
    };
    // Two policies are built in. A book with few names cannot have a row with too many, so rows are only
    // checked one by one when it has many.
    let layers = sections.layers();
    let mut all = layers.iter().flat_map(|layer| layer.reactions.iter().map(|(_, at)| &at.value));
    if problems.has_errors() || names_in(&mut all) + 2 <= limits::POLICIES_PER_RULE_MAX {
        return;
    }
    for (service, channel, row) in sections.rows() {
        let resolved = sections.resolve(service, channel, row);
        let count = names_in(&mut resolved.reactions.iter().map(|(_, known)| &known.value));
        if count > limits::POLICIES_PER_RULE_MAX {
            let message = format!("{count} retry policies apply to this row");
            let help = format!("a row can use at most {}", limits::POLICIES_PER_RULE_MAX);
            problems.error("too-many-policies", row.span, message, help);
        }
    }
}

/// Reports rows with the same subscription id, which a replay could not distinguish.
fn check_subscriptions(sections: &Sections, problems: &mut Problems) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (service, channel, row) in sections.rows() {
        let id = row.subscription.clone();
        let id = id.unwrap_or_else(|| resolve::default_subscription(&service.name, channel, row));
        let line = row.span.position.line;
        if let Some(first) = seen.insert(id.clone(), line) {
            let message = format!("duplicate subscription `{id}`, first used on line {first}");
            problems.error(
                "duplicate-subscription",
                row.span,
                message,
                "give each row its own `subscription`",
            );
        }
    }
}

impl Sections {
    pub fn targets(&self) -> impl Iterator<Item = &TargetEntry> {
        self.services.iter().flat_map(|service| {
            let channels = service.channels.iter().filter_map(|channel| channel.target.as_ref());
            std::iter::once(&service.target).chain(channels)
        })
    }

    pub fn rows(&self) -> impl Iterator<Item = (&ServiceEntry, Option<&ChannelEntry>, &EventRow)> {
        self.services.iter().flat_map(|service| {
            let own = service.rows.iter().map(move |row| (service, None, &**row));
            let channels = service.channels.iter().flat_map(move |channel| {
                channel.rows.iter().map(move |row| (service, Some(channel), &**row))
            });
            own.chain(channels)
        })
    }
}

impl RuleBook {
    fn new(sections: Sections, connectors: &Connectors, text: &str) -> Self {
        Self::of(sections, connectors, hash::stable_64(text.as_bytes(), 0))
    }

    fn of(sections: Sections, connectors: &Connectors, hash: u64) -> Self {
        let services = sections.services.iter().enumerate().map(|(place, service)| {
            let rows = |channel, rows| Rows::new(&sections, service, channel, rows);
            let channels = service
                .channels
                .iter()
                .map(|channel| (channel.name.clone(), rows(Some(channel), &channel.rows)));
            let rules = ServiceRules {
                place,
                own: rows(None, &service.rows),
                channels: channels.collect(),
                waiting: lookups::waiting_limits(&sections, service),
            };
            (service.name.clone(), rules)
        });
        let services: Map<ServiceName, ServiceRules> = services.collect();
        let routes = route::RouteIndex::new(&sections, &services);
        // Same hash, so that a stored book hash finds both.
        let own = alert_rules::sections(&sections).map(|own| Arc::new(Self::of(own, connectors, hash)));
        Self {
            throttles: lookups::throttles(&sections),
            keep_delivered: sections.keep_delivered().value,
            dedup_ttl_max: sections.dedup_ttl_max(),
            letter_retention: sections.letter_retention(),
            sections,
            services,
            routes,
            own,
            connectors: connectors.clone(),
            hash,
        }
    }

    #[must_use]
    pub const fn sections(&self) -> &Sections {
        &self.sections
    }

    #[must_use]
    pub const fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    #[must_use]
    pub fn read_changed(&self, text: &str) -> ParsedBook {
        read_for(text, &self.connectors, self.sections.machine)
    }

    /// What the book needs and this build lacks: one error per place.
    #[must_use]
    pub fn missing(&self) -> Vec<Problem> {
        let Sections { sources, secrets, archive, receivers, .. } = &self.sections;
        let targets = self.sections.targets().map(|target| (&target.endpoint, target.span));
        let sources = sources.values().map(|at| (&at.value.endpoint, at.span));
        let secrets = secrets.values().map(|at| (&at.value.endpoint, at.span));
        let archive = archive.iter().map(|archive| (&archive.endpoint, archive.span));
        let receivers = receivers.values().map(|at| (&at.value.endpoint, at.span));
        let all = targets.chain(sources).chain(secrets).chain(archive).chain(receivers);
        let missing = all.filter_map(|(endpoint, span)| self.connectors.missing(endpoint.connector, span));
        missing.chain(self.dedup_stores_beyond()).collect()
    }

    /// A hash of the text.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// `None` if the service or channel does not subscribe to the event type.
    #[must_use]
    pub fn rule(&self, service: &str, channel: Option<&str>, event_type: &str) -> Option<&Arc<Rule>> {
        Some(&self.claim(service, channel, event_type)?.rule)
    }

    /// The rule for calls to a dependency without a service: resolved from the dependency down.
    #[must_use]
    pub fn dependency_rule(&self, name: &str) -> Option<Rule> {
        self.sections.dependency_rule(name)
    }

    #[must_use]
    pub fn source_rule(&self, name: &str) -> Option<Rule> {
        self.sections.source_rule(name)
    }

    pub(crate) fn row(&self, service: &str, channel: Option<&str>, event_type: &str) -> Option<&EventRow> {
        Some(&self.claim(service, channel, event_type)?.row)
    }

    /// Every row of a service and its channels with its rule, unordered.
    pub(crate) fn rules_of(
        &self,
        service: &str,
    ) -> impl Iterator<Item = (Option<&ChannelName>, &EventRow, &Rule)> {
        let rules = self.holding(service).services.get(service);
        let queues = rules.into_iter().flat_map(|rules| {
            let channels = rules.channels.iter().map(|(name, rows)| (Some(name), rows));
            std::iter::once((None, &rules.own)).chain(channels)
        });
        queues
            .flat_map(|(channel, rows)| rows.claims().map(move |claim| (channel, &*claim.row, &*claim.rule)))
    }

    #[must_use]
    pub fn patterns_of(&self, service: &str, channel: Option<&str>) -> Vec<EventPattern> {
        let rows = self.rules_of(service).filter(|(of, _, _)| of.map(ChannelName::as_str) == channel);
        rows.map(|(_, row, _)| row.pattern.value.clone()).collect()
    }

    fn claim(&self, service: &str, channel: Option<&str>, event_type: &str) -> Option<&RowRules> {
        self.queue_rows(service, channel)?.find(event_type)
    }

    fn queue_rows(&self, service: &str, channel: Option<&str>) -> Option<&Rows> {
        let service = self.holding(service).services.get(service)?;
        match channel {
            None => Some(&service.own),
            Some(channel) => service.channels.get(channel),
        }
    }

    /// The rule with the origin of every value.
    #[must_use]
    pub fn explain(&self, service: &str, channel: Option<&str>, event_type: &str) -> Option<Resolved<'_>> {
        let claim = self.claim(service, channel, event_type)?;
        let service = self.service(service)?;
        let channel = match channel {
            Some(name) => Some(service.channels.iter().find(|channel| channel.name.as_str() == name)?),
            None => None,
        };
        Some(self.holding(service.name.as_str()).sections.resolve(service, channel, &claim.row))
    }

    #[must_use]
    pub fn service(&self, name: &str) -> Option<&ServiceEntry> {
        let book = self.holding(name);
        book.services.get(name).map(|rules| &book.sections.services[rules.place])
    }

    /// Services and channels subscribed to the event type, with the matching row.
    #[must_use]
    pub fn subscribers(&self, event_type: &str) -> Vec<Resolved<'_>> {
        let mut subscribers = Vec::new();
        for service in &self.sections.services {
            subscribers.extend(self.explain(service.name.as_str(), None, event_type));
            for channel in &service.channels {
                subscribers.extend(self.explain(
                    service.name.as_str(),
                    Some(channel.name.as_str()),
                    event_type,
                ));
            }
        }
        subscribers
    }
}

impl Rows {
    fn new(
        sections: &Sections,
        service: &ServiceEntry,
        channel: Option<&ChannelEntry>,
        rows: &[Arc<EventRow>],
    ) -> Self {
        let mut exact = Map::default();
        let mut patterns = Vec::new();
        // Rows without settings of their own share one rule.
        let mut plain: Option<(Arc<Rule>, Arc<LetterRule>)> = None;
        for row in rows {
            let make = || {
                let resolved = sections.resolve(service, channel, row);
                let letter = Arc::new(LetterRule::of(&resolved));
                (Arc::new(resolved.rule), letter)
            };
            let is_plain = row.depends_on.is_none() && row.layer == model::Layer::default();
            let (rule, letter) = if is_plain { plain.get_or_insert_with(make).clone() } else { make() };
            let claim = RowRules { row: Arc::clone(row), rule, letter };
            if row.pattern.value.is_exact() {
                exact.insert(row.pattern.value.as_str().into(), claim);
            } else {
                patterns.push((row.pattern.value.clone(), claim));
            }
        }
        // A narrower pattern has more words or more segments, and patterns never overlap partially.
        patterns.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.specificity()));
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        Self { exact, patterns, batch_max: lookups::batch_max(target), worker: lookups::worker(target) }
    }

    fn claims(&self) -> impl Iterator<Item = &RowRules> {
        self.exact.values().chain(self.patterns.iter().map(|(_, claim)| claim))
    }

    fn find(&self, event_type: &str) -> Option<&RowRules> {
        self.exact.get(event_type).or_else(|| {
            self.patterns.iter().find(|(pattern, _)| pattern.matches(event_type)).map(|(_, claim)| claim)
        })
    }
}

#[cfg(test)]
mod tests;

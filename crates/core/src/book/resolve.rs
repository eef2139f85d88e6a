//! Resolves the levels of a book into the rule of each row, with the level and line of every value.
//!
//! Each value falls through row → channel → service → dependency → kind → defaults → built-in on its own, never
//! from one pattern to another. Classification overrides do not replace each other: they are tried in that
//! order, and the first match wins.

mod direct;
mod permits;
mod timeouts;
mod waiting;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::model::{
    Alert, Allow, At, BreakerEntry, ChannelEntry, ConsumerPattern, Criticality, DataLoss, DeclaredFacts,
    DeliveryOrder, EventRow, IdempotencyBy, Layer, LetterForm, PolicyEntry, ReactionName, Reprocess,
    Sections, ServiceEntry, TargetEntry,
};
use super::problem::BookSpan;
use crate::book::problem::Position;
use crate::event::copy_rule::{self, CopyKey, CopyRule};
use crate::ids::{BreakerName, DependencyName, PolicyName, ServiceName};
use crate::letters::name_template::{self, NameParts, NameTemplate};
use crate::limits;
use crate::policy::breaker::{BreakerSettings, RawBreaker};
use crate::policy::budget::BudgetSettings;
use crate::policy::catalog::{self, DependencyKind};
use crate::policy::category::Category;
use crate::policy::rule::{
    FailureMatch, NamedBreaker, NamedPolicy, Override, PolicyIndex, Reaction, Reactions, Rule, Sourced,
    WhenOpen,
};
use crate::schedule::Cron;
use crate::text::{Rate, Share};

pub use timeouts::ResolvedTimeouts;
use timeouts::{CallTarget, timeouts};
pub use waiting::ResolvedWaiting;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleLevel {
    Row,
    Channel,
    Service,
    Dependency,
    Kind,
    Defaults,
    BuiltIn,
}

impl fmt::Display for RuleLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Row => "this row",
            Self::Channel => "the channel",
            Self::Service => "the service",
            Self::Dependency => "the dependency",
            Self::Kind => "the kind",
            Self::Defaults => "the defaults",
            Self::BuiltIn => "built in",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueOrigin {
    pub level: RuleLevel,
    /// `None` if it is built in.
    pub span: Option<BookSpan>,
}

impl ValueOrigin {
    pub const BUILT_IN: Self = Self { level: RuleLevel::BuiltIn, span: None };

    #[must_use]
    pub fn position(self) -> Option<Position> {
        self.span.map(|span| span.position)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedValue<T> {
    pub value: T,
    pub origin: ValueOrigin,
}

impl<T> ResolvedValue<T> {
    pub const fn built_in(value: T) -> Self {
        Self { value, origin: ValueOrigin::BUILT_IN }
    }

    pub fn stated(level: RuleLevel, at: &At<T>) -> Self
    where
        T: Clone,
    {
        Self { value: at.value.clone(), origin: ValueOrigin { level, span: Some(at.span) } }
    }
}

/// Everything resolved for one (service, channel, row).
#[derive(Clone, Debug)]
pub struct Resolved<'a> {
    pub service: &'a ServiceEntry,
    pub channel: Option<&'a ChannelEntry>,
    pub row: &'a EventRow,
    pub target: &'a TargetEntry,
    pub order: ResolvedValue<DeliveryOrder>,
    pub waiting: ResolvedWaiting,
    pub keep_delivered: ResolvedValue<Duration>,
    pub rule: Rule,
    pub dependency: ResolvedValue<DependencyName>,
    pub kind: DependencyKind,
    pub in_flight: ResolvedValue<u32>,
    pub rate: Option<ResolvedValue<Rate>>,
    pub ramp: ResolvedValue<Duration>,
    pub rate_growth: ResolvedValue<Share>,
    pub rate_memory: ResolvedValue<Duration>,
    pub retry_budget: Option<ResolvedValue<BudgetSettings>>,
    /// More specific failures first.
    pub reactions: Vec<(FailureMatch, ResolvedValue<ReactionName>)>,
    pub classify: Vec<(Override, RuleLevel)>,
    pub timeouts: ResolvedTimeouts,
    pub breaker_origin: ValueOrigin,
    pub when_open: ResolvedValue<WhenOpen>,
    pub hold_max: ResolvedValue<Duration>,
    pub deadline: Option<ResolvedValue<Duration>>,
    /// How long connections may fail before it counts as misconfiguration.
    pub fatal_after: Option<ResolvedValue<Duration>>,
    pub idempotency: ResolvedIdempotency,
    pub dead_letter: ResolvedDeadLetter,
    pub criticality: Option<ResolvedValue<Criticality>>,
    pub data_loss: Option<ResolvedValue<DataLoss>>,
    pub consumer_group: ResolvedValue<String>,
    pub alerts: Vec<(&'a Alert, RuleLevel)>,
    pub facts: DeclaredFacts,
    pub allow: Vec<&'a Allow>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedIdempotency {
    pub by: ResolvedValue<IdempotencyBy>,
    pub store: ResolvedValue<String>,
    pub key: Option<ResolvedValue<Arc<CopyKey>>>,
    pub ttl: ResolvedValue<Duration>,
}

impl ResolvedIdempotency {
    fn copies(&self) -> CopyRule {
        let key = self.key.as_ref().map(|known| Arc::clone(&known.value));
        CopyRule { by: self.by.value, key, ttl: self.ttl.value }
    }

    /// What identifies a duplicate, for people.
    #[must_use]
    pub fn key_shown(&self) -> &str {
        self.key.as_ref().map_or("source and id", |known| known.value.as_str())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedDeadLetter {
    pub template: ResolvedValue<NameTemplate>,
    pub queue: Option<String>,
    pub stage: Option<String>,
    /// The name, or what the template lacks.
    pub name: Result<String, String>,
    pub form: ResolvedValue<LetterForm>,
    pub retention: ResolvedValue<Duration>,
    pub alert: Option<ResolvedValue<Rate>>,
    pub reprocess: ResolvedValue<Reprocess>,
    pub categories: Vec<Category>,
    pub reprocess_max: ResolvedValue<u32>,
    /// Beside replays when a breaker closes.
    pub reprocess_cron: Option<ResolvedValue<Cron>>,
}

static DEFAULT_NAME: LazyLock<NameTemplate> =
    LazyLock::new(|| NameTemplate::parse(name_template::DEFAULT).expect("the default is a template"));

const RETENTION_DEFAULT: Duration = Duration::from_secs(30 * 86_400);
/// Most specific first.
struct Levels<'a>(Vec<(RuleLevel, &'a Layer)>);

impl<'a> Levels<'a> {
    /// Whether any level sets the reaction to exactly this failure.
    fn states(&self, on: FailureMatch) -> bool {
        self.0.iter().any(|(_, layer)| layer.reactions.iter().any(|(kind, _)| *kind == on))
    }

    fn find<T: Clone + 'a>(&self, pick: impl Fn(&'a Layer) -> &'a Option<At<T>>) -> Option<ResolvedValue<T>> {
        self.0.iter().find_map(|(level, layer)| Some(ResolvedValue::stated(*level, pick(layer).as_ref()?)))
    }

    fn or<T: Clone + 'a>(
        &self,
        pick: impl Fn(&'a Layer) -> &'a Option<At<T>>,
        default: T,
    ) -> ResolvedValue<T> {
        self.find(pick).unwrap_or(ResolvedValue::built_in(default))
    }
}

impl Sections {
    pub fn resolved(&self) -> impl Iterator<Item = Resolved<'_>> {
        self.rows().map(|(service, channel, row)| self.resolve(service, channel, row))
    }

    #[must_use]
    pub fn resolve<'a>(
        &'a self,
        service: &'a ServiceEntry,
        channel: Option<&'a ChannelEntry>,
        row: &'a EventRow,
    ) -> Resolved<'a> {
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        let dependency = dependency_of(service, channel, row);
        let entry = self.dependencies.get(&dependency.value);
        let kind = entry.map_or_else(|| kind_of(target), |entry| entry.kind);

        let levels = Levels(self.levels_of(service, channel, row));

        let reactions = Self::reactions(&levels);
        let classify: Vec<(Override, RuleLevel)> = levels
            .0
            .iter()
            .flat_map(|(level, layer)| layer.classify.iter().map(|at| (at.value.clone(), *level)))
            .collect();
        let (breaker, breaker_origin) = self.breaker(&levels, kind);
        let own_target = channel.is_some_and(|channel| channel.target.is_some());
        let owner = if own_target { RuleLevel::Channel } else { RuleLevel::Service };
        let timeouts = timeouts(&levels, &CallTarget::of(target, owner));
        let when_open = levels.or(|l| &l.when_open, WhenOpen::Hold);
        let hold_max = levels.or(|l| &l.hold_max, limits::HOLD_MAX_DEFAULT);
        let deadline = levels.find(|l| &l.deadline);
        let fatal_after = levels.find(|l| &l.fatal_after);
        let permits = self.permits(&dependency.value, kind);
        let retry_budget = self.retry_budget(&dependency.value);
        let idempotency = idempotency(&levels);
        let rule = Rule {
            classify: classify.iter().map(|(o, _)| o.clone()).collect::<Vec<_>>().into(),
            reactions: self.compile(&reactions, &levels),
            dependency: dependency.value.clone(),
            breaker,
            when_open: when_open.value,
            hold_max: hold_max.value,
            deadline: deadline.as_ref().map(|known| known.value),
            fatal_after: fatal_after.as_ref().map(|known| known.value),
            timeouts: timeouts.limits(),
            copies: idempotency.copies(),
        };
        let consumer_group = levels.or(|l| &l.consumer_group, service.name.as_str().to_owned());
        Resolved {
            service,
            channel,
            row,
            target,
            order: order_of(service),
            waiting: self.waiting_of(service),
            keep_delivered: self.keep_delivered(),
            rule,
            dependency,
            kind,
            in_flight: permits.in_flight,
            rate: permits.rate,
            ramp: permits.ramp,
            rate_growth: permits.rate_growth,
            rate_memory: permits.rate_memory,
            retry_budget,
            reactions,
            classify,
            timeouts,
            breaker_origin,
            when_open,
            hold_max,
            deadline,
            fatal_after,
            idempotency,
            dead_letter: dead_letter(&levels, service, channel, row),
            criticality: levels.find(|l| &l.criticality),
            data_loss: levels.find(|l| &l.data_loss),
            consumer_group,
            alerts: levels.0.iter().flat_map(|(level, l)| l.alerts.iter().map(|a| (a, *level))).collect(),
            facts: facts(&levels),
            allow: levels.0.iter().flat_map(|(_, l)| &l.allow).chain(&self.allow).collect(),
        }
    }

    /// The levels of a row, most specific first.
    #[must_use]
    pub fn levels_of<'a>(
        &'a self,
        service: &'a ServiceEntry,
        channel: Option<&'a ChannelEntry>,
        row: &'a EventRow,
    ) -> Vec<(RuleLevel, &'a Layer)> {
        let dependency = self.dependencies.get(&dependency_of(service, channel, row).value);
        let levels = [
            (RuleLevel::Row, Some(&row.layer)),
            (RuleLevel::Channel, channel.map(|channel| &channel.layer)),
            (RuleLevel::Service, Some(&service.layer)),
            (RuleLevel::Dependency, dependency.map(|entry| &entry.layer)),
            (RuleLevel::Defaults, Some(&self.defaults)),
        ];
        levels.into_iter().filter_map(|(level, layer)| Some((level, layer?))).collect()
    }

    /// The book's own policy, else the catalog's.
    #[must_use]
    pub fn policy(&self, name: &PolicyName) -> Option<PolicyEntry> {
        if let Some(own) = self.policies.get(name) {
            return Some(own.value.clone());
        }
        catalog::policy(name.as_str()).map(|entry| PolicyEntry {
            backoff: entry.backoff.clone(),
            alert_when_exhausted: entry.alert_on_exhaustion,
            from: None,
        })
    }

    /// The book's own breaker, else the catalog's.
    #[must_use]
    pub fn breaker_named(&self, name: &BreakerName) -> Option<BreakerEntry> {
        if let Some(own) = self.breakers.get(name) {
            return Some(own.value.clone());
        }
        catalog::breaker(name.as_str()).map(catalog_breaker)
    }

    fn breaker(&self, levels: &Levels<'_>, kind: DependencyKind) -> (Option<NamedBreaker>, ValueOrigin) {
        // The kind is between the dependency and the defaults.
        let above = Levels(levels.0.iter().copied().filter(|(level, _)| *level < RuleLevel::Kind).collect());
        let named = above.find(|l| &l.breaker).or_else(|| match kind.breaker() {
            Some(_) => None,
            None => levels.find(|l| &l.breaker),
        });
        match named {
            Some(ResolvedValue { value: None, origin }) => (None, origin),
            Some(ResolvedValue { value: Some(name), origin }) => {
                let breaker = self.breaker_named(&name).map(|entry| named_breaker(entry, Some(name)));
                (breaker, origin)
            }
            None => {
                let breaker = kind.breaker().map(|entry| named_breaker(catalog_breaker(entry), None));
                (breaker, ValueOrigin { level: RuleLevel::Kind, span: None })
            }
        }
    }

    #[must_use]
    pub fn waiting_of(&self, service: &ServiceEntry) -> ResolvedWaiting {
        waiting::waiting(self, service)
    }

    #[must_use]
    pub fn keep_delivered(&self) -> ResolvedValue<Duration> {
        let default = ResolvedValue::built_in(limits::KEEP_DELIVERED_DEFAULT);
        self.keep_delivered.as_ref().map_or(default, |at| ResolvedValue::stated(RuleLevel::Defaults, at))
    }

    /// By the defaults alone.
    #[must_use]
    pub fn letter_retention(&self) -> Duration {
        self.defaults.dead_letter.retention.as_ref().map_or(RETENTION_DEFAULT, |at| at.value)
    }

    /// The longest `ttl` of any row; without rows, the default.
    #[must_use]
    pub fn dedup_ttl_max(&self) -> Duration {
        let ttl = |levels: Vec<(RuleLevel, &Layer)>| idempotency(&Levels(levels)).ttl.value;
        let of_rows = self.rows().map(|(service, channel, row)| ttl(self.levels_of(service, channel, row)));
        of_rows.max().unwrap_or_else(|| ttl(vec![(RuleLevel::Defaults, &self.defaults)]))
    }

    /// Statuses first, then one entry per category.
    fn reactions(levels: &Levels<'_>) -> Vec<(FailureMatch, ResolvedValue<ReactionName>)> {
        let mut found: Vec<(FailureMatch, ResolvedValue<ReactionName>)> = Vec::new();
        for (level, layer) in &levels.0 {
            for (kind, at) in &layer.reactions {
                if found.iter().all(|(known, _)| known != kind) {
                    found.push((*kind, ResolvedValue::stated(*level, at)));
                }
            }
        }
        let stated = |found: &[(FailureMatch, ResolvedValue<ReactionName>)], category| {
            let wanted = FailureMatch::Category(category);
            found.iter().find(|(kind, _)| *kind == wanted).map(|(_, known)| known.clone())
        };
        let transient = stated(&found, Category::Transient).unwrap_or_else(|| built_in_policy("standard"));
        let mut reactions: Vec<_> =
            found.iter().filter(|(kind, _)| matches!(kind, FailureMatch::Status(_))).cloned().collect();
        for category in Category::ALL {
            let reaction = stated(&found, category).unwrap_or_else(|| match category {
                // Unknown and internal failures use the rule's policy too; its retries are bounded.
                Category::Transient | Category::Unknown | Category::Internal => transient.clone(),
                Category::RateLimited => built_in_policy(catalog::RATE_LIMITED_POLICY),
                Category::Permanent | Category::Invalid | Category::Fatal => {
                    ResolvedValue::built_in(ReactionName::DeadLetter)
                }
            });
            reactions.push((FailureMatch::Category(category), reaction));
        }
        reactions
    }

    fn compile(
        &self,
        reactions: &[(FailureMatch, ResolvedValue<ReactionName>)],
        levels: &Levels<'_>,
    ) -> Reactions {
        let mut policies: Vec<NamedPolicy> = Vec::new();
        let mut by_status = Vec::new();
        let dead_letter = Sourced { value: Reaction::DeadLetter, position: None };
        let mut by_category = [dead_letter; 7];
        for (kind, known) in reactions {
            let value = match &known.value {
                ReactionName::DeadLetter => Reaction::DeadLetter,
                ReactionName::Pause => Reaction::Pause,
                ReactionName::Policy(name) => self.retry_by(name, &mut policies),
            };
            let value = match kind {
                FailureMatch::Category(Category::Unknown | Category::Internal) if !levels.states(*kind) => {
                    value.cautiously()
                }
                FailureMatch::Category(_) | FailureMatch::Status(_) => value,
            };
            let reaction = Sourced { value, position: known.origin.position() };
            match kind {
                FailureMatch::Status(range) => by_status.push((*range, reaction)),
                FailureMatch::Category(category) => by_category[*category as usize] = reaction,
            }
        }
        Reactions::new(policies, by_status, by_category)
    }

    /// The policy's index in the rule; an undefined name was reported and never retries.
    fn retry_by(&self, name: &PolicyName, policies: &mut Vec<NamedPolicy>) -> Reaction {
        let index = policies.iter().position(|policy| policy.name == *name).or_else(|| {
            let entry = self.policy(name).filter(|_| policies.len() < limits::POLICIES_PER_RULE_MAX)?;
            policies.push(NamedPolicy {
                name: name.clone(),
                backoff: entry.backoff,
                alert_on_exhaustion: entry.alert_when_exhausted,
            });
            Some(policies.len() - 1)
        });
        index
            .and_then(|index| u8::try_from(index).ok())
            .map_or(Reaction::DeadLetter, |index| Reaction::Retry(PolicyIndex(index)))
    }
}

fn built_in_policy(name: &str) -> ResolvedValue<ReactionName> {
    let name = PolicyName::new(name).expect("the catalog's names are names");
    ResolvedValue::built_in(ReactionName::Policy(name))
}

fn catalog_breaker(entry: &catalog::CatalogBreaker) -> BreakerEntry {
    let settings = BreakerSettings::try_from(RawBreaker::from(entry));
    let settings = settings.expect("the catalog's breakers are sound, as a test reads them all");
    BreakerEntry { settings, ignores: Vec::new(), counts: Vec::new(), from: None }
}

fn named_breaker(entry: BreakerEntry, name: Option<BreakerName>) -> NamedBreaker {
    NamedBreaker { name, settings: entry.settings, ignores: entry.ignores, counts: entry.counts }
}

#[must_use]
pub fn dependency_of(
    service: &ServiceEntry,
    channel: Option<&ChannelEntry>,
    row: &EventRow,
) -> ResolvedValue<DependencyName> {
    if let Some(at) = &row.depends_on {
        return ResolvedValue::stated(RuleLevel::Row, at);
    }
    if let Some(channel) = channel {
        if let Some(at) = &channel.depends_on {
            return ResolvedValue::stated(RuleLevel::Channel, at);
        }
        // A channel with its own target fails on its own.
        if channel.target.is_some() {
            return ResolvedValue::built_in(DependencyName::joined(&service.name, &channel.name));
        }
    }
    match &service.depends_on {
        Some(at) => ResolvedValue::stated(RuleLevel::Service, at),
        None => ResolvedValue::built_in(DependencyName::like(&service.name)),
    }
}

#[must_use]
pub fn kind_of(target: &TargetEntry) -> DependencyKind {
    target.endpoint.connector.dependency.unwrap_or(DependencyKind::Log)
}

pub(super) fn order_of(service: &ServiceEntry) -> ResolvedValue<DeliveryOrder> {
    let stated = service.order.as_ref().map(|at| ResolvedValue::stated(RuleLevel::Service, at));
    stated.unwrap_or(ResolvedValue::built_in(DeliveryOrder::None))
}

fn idempotency(levels: &Levels<'_>) -> ResolvedIdempotency {
    ResolvedIdempotency {
        by: levels.or(|l| &l.idempotency.by, IdempotencyBy::EventId),
        store: levels.or(|l| &l.idempotency.store, "embedded".to_owned()),
        key: levels.find(|l| &l.idempotency.key),
        ttl: levels.or(|l| &l.idempotency.ttl, copy_rule::TTL_DEFAULT),
    }
}

fn dead_letter(
    levels: &Levels<'_>,
    service: &ServiceEntry,
    channel: Option<&ChannelEntry>,
    row: &EventRow,
) -> ResolvedDeadLetter {
    let template =
        levels.find(|l| &l.dead_letter.name).unwrap_or_else(|| ResolvedValue::built_in(DEFAULT_NAME.clone()));
    let queue = levels.find(|l| &l.dead_letter.queue).map(|known| known.value);
    let stage = levels.find(|l| &l.dead_letter.stage).map(|known| known.value);
    let parts = NameParts {
        service: &service.name,
        channel: channel.map(|channel| &channel.name),
        queue: queue.as_deref(),
        stage: stage.as_deref(),
        event: Some(row.pattern.value.as_str()),
    };
    let categories = levels.find(|l| &l.dead_letter.categories).map(|known| known.value);
    ResolvedDeadLetter {
        name: template.value.render(&parts).map_err(|missing| missing.to_string()),
        template,
        queue,
        stage,
        form: levels.or(|l| &l.dead_letter.form, LetterForm::Envelope),
        retention: levels.or(|l| &l.dead_letter.retention, RETENTION_DEFAULT),
        alert: levels.find(|l| &l.dead_letter.alert),
        reprocess: levels.or(|l| &l.dead_letter.reprocess, Reprocess::Manual),
        categories: categories.unwrap_or_default(),
        reprocess_max: levels.or(|l| &l.dead_letter.reprocess_max, 3),
        reprocess_cron: levels.find(|l| &l.dead_letter.reprocess_cron),
    }
}

fn facts(levels: &Levels<'_>) -> DeclaredFacts {
    let layers = || levels.0.iter().map(|(_, layer)| &layer.facts);
    DeclaredFacts {
        rate: layers().find_map(|f| f.rate.clone()),
        p99: layers().find_map(|f| f.p99.clone()),
        sla: layers().find_map(|f| f.sla.clone()),
        lease: layers().find_map(|f| f.lease.clone()),
        heartbeat: layers().find_map(|f| f.heartbeat.clone()),
        redelivery: layers().find_map(|f| f.redelivery.clone()),
        poll_limit: layers().find_map(|f| f.poll_limit.clone()),
        callers: layers().find_map(|f| f.callers.clone()),
        caller_timeout: layers().find_map(|f| f.caller_timeout.clone()),
        instances: layers().find_map(|f| f.instances.clone()),
        rate_limit_window: layers().find_map(|f| f.rate_limit_window.clone()),
        broker_attempts: layers().find_map(|f| f.broker_attempts.clone()),
        uses: layers().flat_map(|f| f.uses.clone()).collect(),
        idempotent_by: layers().find_map(|f| f.idempotent_by.clone()),
    }
}

#[must_use]
pub fn default_subscription(service: &ServiceName, channel: Option<&ChannelEntry>, row: &EventRow) -> String {
    let pattern = &row.pattern.value;
    match channel {
        Some(channel) => format!("{service}/{}/{pattern}", channel.name),
        None => format!("{service}/{pattern}"),
    }
}

impl<'a> Resolved<'a> {
    /// The levels its values fall through, most specific first.
    #[must_use]
    pub fn levels(&self, book: &'a Sections) -> Vec<(RuleLevel, &'a Layer)> {
        book.levels_of(self.service, self.channel, self.row)
    }

    #[must_use]
    pub fn reaction_to(&self, category: Category) -> &ResolvedValue<ReactionName> {
        let wanted = FailureMatch::Category(category);
        let found = self.reactions.iter().find(|(kind, _)| *kind == wanted);
        &found.expect("every category has a reaction").1
    }

    /// The policy for transient failures, if they are retried.
    #[must_use]
    pub fn retry_policy(&self) -> Option<&NamedPolicy> {
        let PolicyIndex(index) = self.rule.reactions.to(Category::Transient, None).value.policy()?;
        self.rule.reactions.policies().get(usize::from(index))
    }

    #[must_use]
    pub fn subscription(&self) -> String {
        let stated = self.row.subscription.clone();
        stated.unwrap_or_else(|| default_subscription(&self.service.name, self.channel, self.row))
    }

    /// Whether the book says that duplicates do no harm.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let by_consumer = self.facts.idempotent_by.as_ref().map(|at| at.value.pattern);
        match by_consumer {
            Some(ConsumerPattern::Nothing) | None => self.idempotency.by.value != IdempotencyBy::Nothing,
            Some(
                ConsumerPattern::EventId
                | ConsumerPattern::Upsert
                | ConsumerPattern::StateCheck
                | ConsumerPattern::Outbox,
            ) => true,
        }
    }
}

impl Resolved<'_> {
    /// The span of the value, or else of the row.
    #[must_use]
    pub fn place(&self, origin: ValueOrigin) -> BookSpan {
        origin.span.unwrap_or(self.row.pattern.span)
    }
}

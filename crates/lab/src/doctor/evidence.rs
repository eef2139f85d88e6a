//! All that is known when a server is examined, and the same put together by row and by dependency.
//!
//! Whoever fills it in reads it from a running server or from a data folder; nothing here knows which. What
//! only a running server counts may be missing, and what would be proved by it is then not found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::model::{EventRow, Layer};
use redrive_core::book::resolve::Resolved;
use redrive_core::engine::story::{End, Story};
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::figures::{DependencyFigures, Figures};
use redrive_core::ids::{ChannelName, DependencyName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::breaker::Phase;
use redrive_core::policy::category::{Category, Code};
use redrive_core::time::Timestamp;

/// All that is known.
#[derive(Clone, Debug)]
pub struct DoctorEvidence {
    /// When it was gathered.
    pub now: Timestamp,
    /// The rule book that holds.
    pub book: Arc<RuleBook>,
    /// Its text, where it is at hand: it tells how a value is written.
    pub text: Option<Arc<str>>,
    /// What a running server has counted.
    pub figures: Option<Arc<Figures>>,
    /// Services and channels.
    pub queues: Vec<QueueState>,
    /// Dependencies that were met.
    pub dependencies: Vec<DependencyState>,
    /// The latest deliveries.
    pub deliveries: Vec<ExaminedDelivery>,
    /// Dead letters that agree in all that is counted.
    pub letters: Vec<LetterKind>,
    /// Dead letters that hold their sessions.
    pub held: Vec<HeldLetter>,
    /// Types of events that nobody wanted.
    pub unrouted: Vec<Unrouted>,
}

/// How a service or a channel is.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    /// Its name.
    pub name: QueueName,
    /// Deliveries that have not ended.
    pub waiting: u64,
    /// Those of them behind another of their session.
    pub behind: u64,
    /// Those of them that no row of the rule book takes, and those behind these in their sessions.
    pub without_rule: u64,
    /// Dead letters.
    pub dead: u64,
    /// When the oldest that waits was accepted, where that is known.
    pub oldest_waiting_at: Option<Timestamp>,
    /// What keeps all of it from starting.
    pub held: Option<HeldQueue>,
}

/// How a dependency is and was.
#[derive(Clone, Debug, PartialEq)]
pub struct DependencyState {
    /// Its name.
    pub name: DependencyName,
    /// Calls in flight.
    pub in_flight: u32,
    /// What its breaker did, the oldest first.
    pub turns: Vec<BreakerTurn>,
}

/// A breaker changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTurn {
    /// When.
    pub at: Timestamp,
    /// From what.
    pub from: Phase,
    /// To what.
    pub to: Phase,
}

/// A delivery and all its attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct ExaminedDelivery {
    /// Where it waits or waited.
    pub queue: QueueName,
    /// The event's type.
    pub event_type: String,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// What it is.
    pub state: ExaminedState,
    /// Its attempts, the first one first.
    pub stories: Vec<Story>,
}

/// What a delivery is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExaminedState {
    /// It has not ended.
    Waiting,
    /// Delivered.
    Delivered,
    /// Failed for good.
    Dead { at: Timestamp, code: Code },
    /// A dead letter that was done with by hand.
    Closed,
}

/// Dead letters that agree in all that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterKind {
    /// Whose.
    pub queue: QueueName,
    /// Of which event type.
    pub event_type: String,
    /// What kind of failure.
    pub category: Category,
    /// Why they were given up.
    pub code: Code,
    /// The last failure's own code.
    pub failure_code: Code,
    /// Among which letters they are kept.
    pub tier: Tier,
    /// Their cause.
    pub fingerprint: Fingerprint,
    /// How many there are now.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the latest did.
    pub last_at: Timestamp,
}

/// A dead letter that holds its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLetter {
    /// Whose.
    pub queue: QueueName,
    /// The session.
    pub session: String,
    /// The letter's delivery, as people write it.
    pub letter: String,
    /// Since when.
    pub since: Timestamp,
    /// How many wait behind it.
    pub behind: u64,
}

/// Events that nobody wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrouted {
    /// Their type.
    pub event_type: String,
    /// How many.
    pub count: u64,
}

impl ExaminedDelivery {
    /// Its attempts, without what could not start.
    pub(super) fn attempts(&self) -> impl Iterator<Item = &Story> {
        self.stories.iter().filter(|story| story.is_attempt())
    }

    /// When it failed for good, and why.
    pub(super) const fn death(&self) -> Option<(Timestamp, &Code)> {
        match &self.state {
            ExaminedState::Dead { at, code } => Some((*at, code)),
            ExaminedState::Waiting | ExaminedState::Delivered | ExaminedState::Closed => None,
        }
    }

    /// Whether it arrived.
    pub(super) fn arrived(&self) -> bool {
        self.state == ExaminedState::Delivered
    }
}

/// DoctorEvidence put together.
#[derive(Debug)]
pub(super) struct EvidenceChart<'a> {
    /// What it is made of.
    pub(super) evidence: &'a DoctorEvidence,
    members: Vec<RowEvidence<'a>>,
    wards: BTreeMap<DependencyName, DependencyEvidence<'a>>,
}

/// A row of the book and what became of its deliveries; rows that say nothing of their own are one.
#[derive(Debug)]
pub(super) struct RowEvidence<'a> {
    /// The service or channel.
    pub(super) queue: &'a QueueName,
    /// What holds for the row, or for the first of several.
    pub(super) rule: Resolved<'a>,
    /// The patterns of the rows.
    pub(super) patterns: BTreeSet<&'a str>,
    /// Its deliveries.
    pub(super) deliveries: Vec<&'a ExaminedDelivery>,
}

/// A dependency and the rows that lead to it.
#[derive(Debug)]
pub(super) struct DependencyEvidence<'a> {
    /// The dependency.
    pub(super) name: DependencyName,
    /// The places of its rows among [`EvidenceChart::members`]; at least one.
    members: Vec<usize>,
    /// How it is.
    pub(super) state: Option<&'a DependencyState>,
    /// What a running server has counted of it.
    pub(super) figures: Option<&'a DependencyFigures>,
}

impl<'a> EvidenceChart<'a> {
    /// Puts evidence together.
    pub(super) fn of(evidence: &'a DoctorEvidence) -> Self {
        let mut members: Vec<RowEvidence<'a>> = Vec::new();
        // Many deliveries share a row, and a row is resolved once.
        let mut places: BTreeMap<(&QueueName, &str), Option<usize>> = BTreeMap::new();
        for delivery in &evidence.deliveries {
            let (queue, event_type) = (&delivery.queue, delivery.event_type.as_str());
            let place = *places.entry((queue, event_type)).or_insert_with(|| {
                let channel = queue.channel.as_ref().map(ChannelName::as_str);
                let rule = evidence.book.explain(queue.service.as_str(), channel, event_type)?;
                let pattern = rule.row.pattern.value.as_str();
                let known = members.iter().position(|m| m.queue == queue && is_alike(m.rule.row, rule.row));
                let place = known.unwrap_or_else(|| {
                    members.push(RowEvidence { queue, rule, patterns: BTreeSet::new(), deliveries: Vec::new() });
                    members.len() - 1
                });
                members[place].patterns.insert(pattern);
                Some(place)
            });
            if let Some(place) = place {
                members[place].deliveries.push(delivery);
            }
        }
        let wards = wards(evidence, &members);
        Self { evidence, members, wards }
    }

    /// The rows that have deliveries.
    pub(super) fn members(&self) -> impl Iterator<Item = &RowEvidence<'a>> {
        self.members.iter()
    }

    /// The dependencies that have deliveries.
    pub(super) fn wards(&self) -> impl Iterator<Item = &DependencyEvidence<'a>> {
        self.wards.values()
    }

    /// The rows that lead to a dependency.
    pub(super) fn rows_of(&self, ward: &DependencyEvidence<'a>) -> impl Iterator<Item = &RowEvidence<'a>> {
        ward.members.iter().map(|place| &self.members[*place])
    }

    /// A row that leads to a dependency: what it says of it holds for all.
    pub(super) fn row_of(&self, ward: &DependencyEvidence<'a>) -> &RowEvidence<'a> {
        &self.members[ward.members[0]]
    }

    /// How long ago that was.
    pub(super) const fn ago(&self, at: Timestamp) -> Duration {
        self.evidence.now.since(at)
    }

    /// The state of a queue.
    pub(super) fn queue(&self, name: &QueueName) -> Option<&'a QueueState> {
        self.evidence.queues.iter().find(|queue| queue.name == *name)
    }

    /// A row of a queue, of which the book still knows one.
    pub(super) fn any_row_of(&self, queue: &QueueName) -> Option<Resolved<'a>> {
        let sections = self.evidence.book.sections();
        let (service, channel, row) = sections.rows().find(|(service, channel, _)| {
            service.name == queue.service && channel.map(|channel| &channel.name) == queue.channel.as_ref()
        })?;
        Some(sections.resolve(service, channel, row))
    }
}

/// Whether the same holds for both: they are one row, or neither says anything of its own.
fn is_alike(one: &EventRow, other: &EventRow) -> bool {
    let is_plain = |row: &EventRow| row.depends_on.is_none() && row.layer == Layer::default();
    one.span == other.span || is_plain(one) && is_plain(other)
}

fn wards<'a>(evidence: &'a DoctorEvidence, members: &[RowEvidence<'a>]) -> BTreeMap<DependencyName, DependencyEvidence<'a>> {
    let mut wards: BTreeMap<DependencyName, DependencyEvidence<'a>> = BTreeMap::new();
    for (place, member) in members.iter().enumerate() {
        let name = &member.rule.dependency.value;
        let ward = wards.entry(name.clone()).or_insert_with(|| DependencyEvidence {
            name: name.clone(),
            members: Vec::new(),
            state: evidence.dependencies.iter().find(|state| state.name == *name),
            figures: evidence.figures.as_ref().and_then(|figures| figures.dependencies.get(name)),
        });
        ward.members.push(place);
    }
    wards
}

impl<'a> RowEvidence<'a> {
    /// Every attempt.
    pub(super) fn attempts(&self) -> impl Iterator<Item = &'a Story> {
        self.deliveries.iter().flat_map(|delivery| delivery.attempts())
    }

    /// How many attempts there were.
    pub(super) fn attempts_made(&self) -> u64 {
        self.attempts().count() as u64
    }

    /// Attempts that failed in one of these ways, with their codes.
    pub(super) fn failed_as(
        &self,
        categories: &'static [Category],
    ) -> impl Iterator<Item = (&'a Story, &'a Code)> {
        self.attempts().filter_map(move |story| match &story.end {
            End::Failed { category, code, .. } if categories.contains(category) => Some((story, code)),
            End::Failed { .. } | End::Delivered { .. } | End::Held { .. } => None,
        })
    }

    /// How long attempts took that arrived, the shortest first.
    pub(super) fn successes(&self) -> SortedTimes {
        let arrived = self.attempts().filter(|story| matches!(story.end, End::Delivered { .. }));
        SortedTimes::of(arrived.map(|story| Duration::from_nanos(story.took_nanos)))
    }
}

/// SortedTimes, the shortest first.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedTimes(Vec<Duration>);

impl SortedTimes {
    /// Sorts them.
    pub(super) fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The time that 99 of 100 did not exceed.
    pub(super) fn p99(&self) -> Option<Duration> {
        self.percent(99)
    }

    /// The time that half of them did not exceed.
    pub(super) fn median(&self) -> Option<Duration> {
        self.percent(50)
    }

    fn percent(&self, percent: usize) -> Option<Duration> {
        let place = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(place).copied()
    }
}

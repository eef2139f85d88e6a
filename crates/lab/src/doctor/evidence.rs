//! What is known about a server, grouped by row and by dependency.
//!
//! It is read from a running server or from a data folder. Figures that only a running server has may be missing;
//! diagnoses that need them then report nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::model::{EventRow, Layer};
use redrive_core::book::resolve::Resolved;
use redrive_core::engine::attempt_record::{AttemptEnd, AttemptRecord};
use redrive_core::engine::{HeldQueue, QueueName};
use redrive_core::figures::{DependencyFigures, Figures};
use redrive_core::ids::{ChannelName, DependencyName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::policy::breaker::BreakerPhase;
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::time::Timestamp;

#[derive(Clone, Debug)]
pub struct DoctorEvidence {
    pub now: Timestamp,
    pub book: Arc<RuleBook>,
    /// For how a value is written.
    pub text: Option<Arc<str>>,
    pub figures: Option<Arc<Figures>>,
    pub queues: Vec<QueueState>,
    pub dependencies: Vec<DependencyState>,
    pub deliveries: Vec<ExaminedDelivery>,
    pub letters: Vec<LetterKind>,
    pub held: Vec<HeldLetter>,
    pub unrouted: Vec<Unrouted>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct QueueState {
    pub name: QueueName,
    pub waiting: u64,
    pub behind: u64,
    /// No row of the book takes them, or they are behind such a delivery in their session.
    pub without_rule: u64,
    pub dead: u64,
    pub oldest_waiting_at: Option<Timestamp>,
    pub held: Option<HeldQueue>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DependencyState {
    pub name: DependencyName,
    pub in_flight: u32,
    pub turns: Vec<BreakerTurn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTurn {
    pub at: Timestamp,
    pub from: BreakerPhase,
    pub to: BreakerPhase,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExaminedDelivery {
    pub queue: QueueName,
    pub event_type: String,
    pub accepted_at: Timestamp,
    pub state: ExaminedState,
    pub stories: Vec<AttemptRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExaminedState {
    Waiting,
    Delivered,
    Dead { at: Timestamp, code: FailureCode },
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterKind {
    pub queue: QueueName,
    pub event_type: String,
    pub category: Category,
    pub code: FailureCode,
    pub failure_code: FailureCode,
    pub tier: Tier,
    pub fingerprint: Fingerprint,
    pub count: u64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLetter {
    pub queue: QueueName,
    pub session: String,
    pub letter: String,
    pub since: Timestamp,
    pub behind: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrouted {
    pub event_type: String,
    pub count: u64,
}

impl ExaminedDelivery {
    pub(super) fn attempts(&self) -> impl Iterator<Item = &AttemptRecord> {
        self.stories.iter().filter(|story| story.is_attempt())
    }

    pub(super) const fn death(&self) -> Option<(Timestamp, &FailureCode)> {
        match &self.state {
            ExaminedState::Dead { at, code } => Some((*at, code)),
            ExaminedState::Waiting | ExaminedState::Delivered | ExaminedState::Closed => None,
        }
    }

    pub(super) fn arrived(&self) -> bool {
        self.state == ExaminedState::Delivered
    }
}

#[derive(Debug)]
pub(super) struct EvidenceChart<'a> {
    pub(super) evidence: &'a DoctorEvidence,
    members: Vec<RowEvidence<'a>>,
    wards: BTreeMap<DependencyName, DependencyEvidence<'a>>,
}

/// Rows without settings of their own are merged.
#[derive(Debug)]
pub(super) struct RowEvidence<'a> {
    pub(super) queue: &'a QueueName,
    /// Of the first row.
    pub(super) rule: Resolved<'a>,
    pub(super) patterns: BTreeSet<&'a str>,
    pub(super) deliveries: Vec<&'a ExaminedDelivery>,
}

#[derive(Debug)]
pub(super) struct DependencyEvidence<'a> {
    pub(super) name: DependencyName,
    /// Indexes into [`EvidenceChart::members`]; at least one.
    members: Vec<usize>,
    pub(super) state: Option<&'a DependencyState>,
    pub(super) figures: Option<&'a DependencyFigures>,
}

impl<'a> EvidenceChart<'a> {
    pub(super) fn of(evidence: &'a DoctorEvidence) -> Self {
        let mut members: Vec<RowEvidence<'a>> = Vec::new();
        // Each row is resolved once.
        let mut places: BTreeMap<(&QueueName, &str), Option<usize>> = BTreeMap::new();
        for delivery in &evidence.deliveries {
            let (queue, event_type) = (&delivery.queue, delivery.event_type.as_str());
            let place = *places.entry((queue, event_type)).or_insert_with(|| {
                let channel = queue.channel.as_ref().map(ChannelName::as_str);
                let rule = evidence.book.explain(queue.service.as_str(), channel, event_type)?;
                let pattern = rule.row.pattern.value.as_str();
                let known = members.iter().position(|m| m.queue == queue && is_alike(m.rule.row, rule.row));
                let place = known.unwrap_or_else(|| {
                    members.push(RowEvidence {
                        queue,
                        rule,
                        patterns: BTreeSet::new(),
                        deliveries: Vec::new(),
                    });
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

    pub(super) fn members(&self) -> impl Iterator<Item = &RowEvidence<'a>> {
        self.members.iter()
    }

    pub(super) fn wards(&self) -> impl Iterator<Item = &DependencyEvidence<'a>> {
        self.wards.values()
    }

    pub(super) fn rows_of(&self, ward: &DependencyEvidence<'a>) -> impl Iterator<Item = &RowEvidence<'a>> {
        ward.members.iter().map(|place| &self.members[*place])
    }

    /// The settings of a dependency are the same in all its rows.
    pub(super) fn row_of(&self, ward: &DependencyEvidence<'a>) -> &RowEvidence<'a> {
        &self.members[ward.members[0]]
    }

    pub(super) const fn ago(&self, at: Timestamp) -> Duration {
        self.evidence.now.since(at)
    }

    pub(super) fn queue(&self, name: &QueueName) -> Option<&'a QueueState> {
        self.evidence.queues.iter().find(|queue| queue.name == *name)
    }

    pub(super) fn any_row_of(&self, queue: &QueueName) -> Option<Resolved<'a>> {
        let sections = self.evidence.book.sections();
        let (service, channel, row) = sections.rows().find(|(service, channel, _)| {
            service.name == queue.service && channel.map(|channel| &channel.name) == queue.channel.as_ref()
        })?;
        Some(sections.resolve(service, channel, row))
    }
}

/// The same row, or neither has settings of its own.
fn is_alike(one: &EventRow, other: &EventRow) -> bool {
    let is_plain = |row: &EventRow| row.depends_on.is_none() && row.layer == Layer::default();
    one.span == other.span || is_plain(one) && is_plain(other)
}

fn wards<'a>(
    evidence: &'a DoctorEvidence,
    members: &[RowEvidence<'a>],
) -> BTreeMap<DependencyName, DependencyEvidence<'a>> {
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
    pub(super) fn attempts(&self) -> impl Iterator<Item = &'a AttemptRecord> {
        self.deliveries.iter().flat_map(|delivery| delivery.attempts())
    }

    pub(super) fn attempts_made(&self) -> u64 {
        self.attempts().count() as u64
    }

    pub(super) fn failed_as(
        &self,
        categories: &'static [Category],
    ) -> impl Iterator<Item = (&'a AttemptRecord, &'a FailureCode)> {
        self.attempts().filter_map(move |story| match &story.end {
            AttemptEnd::Failed { category, code, .. } if categories.contains(category) => Some((story, code)),
            AttemptEnd::Failed { .. } | AttemptEnd::Delivered { .. } | AttemptEnd::Held { .. } => None,
        })
    }

    pub(super) fn successes(&self) -> SortedTimes {
        let arrived = self.attempts().filter(|story| matches!(story.end, AttemptEnd::Delivered { .. }));
        SortedTimes::of(arrived.map(|story| Duration::from_nanos(story.took_nanos)))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SortedTimes(Vec<Duration>);

impl SortedTimes {
    pub(super) fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    pub(super) const fn count(&self) -> u64 {
        self.0.len() as u64
    }

    pub(super) fn p99(&self) -> Option<Duration> {
        self.percent(99)
    }

    pub(super) fn median(&self) -> Option<Duration> {
        self.percent(50)
    }

    fn percent(&self, percent: usize) -> Option<Duration> {
        let place = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(place).copied()
    }
}

//! Extracts from a sample the measurements of one alert, one per subject.

use std::collections::BTreeMap;

use super::OWN_SERVICE;
use super::incident::{Incident, IncidentEnd, IncidentSample, IncidentScope};
use super::sample::{AlertSample, LetterSample, QueueSample};
use super::scope::{AlertScope, dependency_of};
use super::value::Measurement;
use crate::book::expression::{AlertMetric, Condition, Grouping};
use crate::engine::QueueName;
use crate::figures::AttemptTally;
use crate::ids::DependencyName;
use crate::policy::breaker::BreakerState;
use crate::policy::category::Category;
use crate::time::Timestamp;

/// By subject: `dependency=mail-api`, or empty without grouping.
pub(super) type Groups = BTreeMap<String, Measurement>;

/// `None` if the sample lacks what the alert needs.
pub(super) fn gather(
    sample: &AlertSample<'_>,
    condition: &Condition,
    covers: &AlertScope,
    looked_at: Option<Timestamp>,
) -> Option<Groups> {
    let mut found = Gathering { sample, condition, covers, groups: Groups::new() };
    match condition.metric {
        AlertMetric::BreakerOpen | AlertMetric::BreakerOpened => found.breakers(),
        AlertMetric::LatencyP99 => found.times(),
        AlertMetric::Incident(Incident::ServiceRemoved) => found.removed(),
        AlertMetric::Incident(incident) => found.incidents(incident, looked_at),
        AlertMetric::DeadLetters | AlertMetric::DeadLetterAge if needs_letters(condition, covers) => {
            found.letters(sample.letters?);
        }
        AlertMetric::ConsumerLag if condition.by == Some(Grouping::Source) => found.sources(),
        AlertMetric::DeadLetters
        | AlertMetric::DeadLetterAge
        | AlertMetric::ConsumerLag
        | AlertMetric::OldestWaiting => {
            found.queues();
        }
        AlertMetric::ErrorRate
        | AlertMetric::TransientRate
        | AlertMetric::UnavailableRate
        | AlertMetric::RetryRate
        | AlertMetric::ExhaustedRate
        | AlertMetric::DeadLetterInflow
        | AlertMetric::AuthFailures
        | AlertMetric::ConfigFailures => found.tallies(),
    }
    Some(found.groups)
}

/// Whether dead letters must be counted by kind.
pub(super) const fn needs_letters(condition: &Condition, covers: &AlertScope) -> bool {
    let is_finer = match condition.by {
        None | Some(Grouping::Service | Grouping::Channel | Grouping::Source) => {
            matches!(covers, AlertScope::Row(..) | AlertScope::Dependency(_))
        }
        Some(Grouping::Dependency | Grouping::EventType | Grouping::Category | Grouping::Fingerprint) => true,
    };
    is_finer && matches!(condition.metric, AlertMetric::DeadLetters | AlertMetric::DeadLetterAge)
}

pub(super) fn is_barred(
    sample: &AlertSample<'_>,
    condition: &Condition,
    covers: &AlertScope,
    of: &str,
) -> bool {
    Gathering { sample, condition, covers, groups: Groups::new() }.is_barred(of)
}

struct Gathering<'a> {
    sample: &'a AlertSample<'a>,
    condition: &'a Condition,
    covers: &'a AlertScope,
    groups: Groups,
}

impl Gathering<'_> {
    fn put(&mut self, of: String, found: Measurement) {
        if let Some(known) = self.groups.get_mut(&of) {
            known.merge(&found, self.condition.metric);
        } else {
            self.groups.insert(of, found);
        }
    }

    fn of_queue(&self, queue: &QueueName) -> String {
        match self.condition.by {
            Some(Grouping::Service) => format!("service={}", queue.service),
            Some(Grouping::Channel) => format!("channel={queue}"),
            _ => String::new(),
        }
    }

    fn covers_queue(&self, queue: &QueueName) -> bool {
        queue.service.as_str() != OWN_SERVICE && self.covers.has_queue(queue)
    }

    fn covers_dependency(&self, name: &DependencyName) -> bool {
        let is_own = name
            .as_str()
            .strip_prefix(OWN_SERVICE)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '.']));
        !is_own && self.covers.has_dependency(self.sample.book, name)
    }

    fn breakers(&mut self) {
        for dependency in self.sample.dependencies {
            if !self.covers_dependency(&dependency.name) {
                continue;
            }
            // While probes are out, recovery is not proven.
            let is_open = match dependency.breaker {
                BreakerState::Closed { .. } => false,
                BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => true,
            };
            let trips = self.sample.figures.dependencies.get(&dependency.name).map_or(0, |of| of.trips);
            let found = match self.condition.metric {
                AlertMetric::BreakerOpened => Measurement::Breaker { trips, is_open },
                _ => Measurement::Current(f64::from(u8::from(is_open))),
            };
            // Breakers are always separate subjects.
            self.put(format!("dependency={}", dependency.name), found);
        }
    }

    fn times(&mut self) {
        let figures = self.sample.figures;
        let of_dependency = matches!(self.covers, AlertScope::Dependency(_));
        if of_dependency || self.condition.by == Some(Grouping::Dependency) {
            for (name, dependency) in &figures.dependencies {
                if self.covers_dependency(name) {
                    let of = match self.condition.by {
                        Some(_) => format!("dependency={name}"),
                        None => String::new(),
                    };
                    self.put(of, Measurement::Timed(dependency.took_finely.clone()));
                }
            }
            return;
        }
        for (name, queue) in &figures.queues {
            if self.covers_queue(name) {
                self.put(self.of_queue(name), Measurement::Timed(queue.took_finely.clone()));
            }
        }
    }

    fn queues(&mut self) {
        if self.condition.by.is_none() {
            self.put(String::new(), Measurement::Current(0.0));
        }
        for queue in self.sample.queues {
            if self.covers_queue(&queue.name) {
                let value = self.value_of(queue);
                self.put(self.of_queue(&queue.name), Measurement::Current(value));
            }
        }
    }

    fn sources(&mut self) {
        for source in self.sample.sources {
            self.put(format!("source={}", source.name), Measurement::Current(source.lag as f64));
        }
    }

    fn value_of(&self, queue: &QueueSample) -> f64 {
        let age = |at: Option<_>| at.map_or(0.0, |at| self.sample.at.since(at).as_secs_f64());
        match self.condition.metric {
            AlertMetric::DeadLetters => queue.dead as f64,
            AlertMetric::DeadLetterAge => age(queue.oldest_dead_at),
            AlertMetric::OldestWaiting => age(queue.oldest_waiting_at),
            _ => queue.waiting as f64,
        }
    }

    fn letters(&mut self, letters: &[LetterSample]) {
        let sample = self.sample;
        if self.condition.by.is_none() {
            self.put(String::new(), Measurement::Current(0.0));
        }
        for letter in letters {
            let (queue, event_type) = (&*letter.queue, &*letter.event_type);
            if !self.covers_queue(queue) || !self.covers.has_type(sample.book, queue, event_type) {
                continue;
            }
            let of = match self.condition.by {
                Some(Grouping::Category) => format!("category={}", letter.category),
                Some(Grouping::Fingerprint) => format!("fingerprint={}", letter.fingerprint),
                by => match self.of_cell(by, queue, event_type) {
                    Some(of) => of,
                    None => continue,
                },
            };
            let value = match self.condition.metric {
                AlertMetric::DeadLetterAge => {
                    letter.oldest_at.map_or(0.0, |at| sample.at.since(at).as_secs_f64())
                }
                _ => letter.count as f64,
            };
            self.put(of, Measurement::Current(value));
        }
    }

    /// The subject of one event type in one queue; `None` if unknown.
    fn of_cell(&self, by: Option<Grouping>, queue: &QueueName, event_type: &str) -> Option<String> {
        Some(match by {
            Some(Grouping::EventType) => format!("event_type={event_type}"),
            Some(Grouping::Dependency) => {
                format!("dependency={}", dependency_of(self.sample.book, queue, event_type)?)
            }
            _ => self.of_queue(queue),
        })
    }

    /// Incidents; momentary ones only since the last evaluation.
    fn incidents(&mut self, incident: Incident, looked_at: Option<Timestamp>) {
        let is_new = |known: &IncidentSample| match incident.lasts() {
            IncidentEnd::UntilOver => true,
            IncidentEnd::Expires => looked_at.is_none_or(|at| known.last_at >= at),
        };
        for known in self.sample.incidents.iter().filter(|known| known.incident == incident && is_new(known))
        {
            let Some(of) = self.of_incident(known) else { continue };
            self.put(of, Measurement::Incident { count: known.count, why: known.why.clone() });
        }
    }

    /// The subject of an incident; `None` if it is outside the alert's scope or the book.
    fn of_incident(&self, known: &IncidentSample) -> Option<String> {
        let book = self.sample.book.sections();
        match known.incident.concerns() {
            IncidentScope::Service => {
                let queue = known.queue.as_ref().filter(|queue| self.covers_queue(queue))?;
                Some(self.of_service(queue))
            }
            IncidentScope::Secret => {
                book.secrets.contains_key(&known.about).then(|| format!("secret={}", known.about))
            }
            IncidentScope::Process => {
                let is_there = known.incident != Incident::IssuerGone || book.access.jwt.is_some();
                is_there.then(|| known.incident.subject().to_owned())
            }
        }
    }

    /// Services that are no longer in the book, or lost a row, with waiting deliveries.
    fn removed(&mut self) {
        let book = self.sample.book.sections();
        for queue in self.sample.queues.iter().filter(|queue| queue.waiting > 0) {
            let service = book.services.iter().find(|service| service.name == queue.name.service);
            let is_there = service.is_some_and(|service| match &queue.name.channel {
                None => true,
                Some(channel) => service.channels.iter().any(|of| of.name == *channel),
            });
            let stuck = if is_there { queue.without_rule } else { queue.waiting };
            if stuck > 0 && self.covers_queue(&queue.name) {
                let deliveries = if stuck == 1 { "delivery" } else { "deliveries" };
                let row = if is_there { " that no row of it takes" } else { "" };
                let why = format!("{stuck} {deliveries}{row}");
                self.put(self.of_service(&queue.name), Measurement::Incident { count: 1, why });
            }
        }
    }

    /// Services are always separate subjects.
    fn of_service(&self, queue: &QueueName) -> String {
        match self.condition.by {
            Some(_) => self.of_queue(queue),
            None => format!("service={}", queue.service),
        }
    }

    fn is_barred(&self, of: &str) -> bool {
        let book = self.sample.book;
        let is_closed = |name: &DependencyName| {
            let view = self.sample.dependencies.iter().find(|view| view.name == *name);
            view.is_none_or(|view| matches!(view.breaker, BreakerState::Closed { .. }))
        };
        let of_queue = |queue: &QueueName| match &queue.channel {
            None => AlertScope::Service(queue.service.clone()),
            Some(channel) => AlertScope::Channel(queue.service.clone(), channel.clone()),
        };
        let named = of.split_once('=').map_or("", |(_, name)| name);
        let queue = self.sample.figures.queues.keys().find(|queue| match self.condition.by {
            Some(Grouping::Service) => queue.service.as_str() == named,
            Some(Grouping::Channel) => queue.to_string() == named,
            _ => false,
        });
        match (self.condition.by, queue) {
            (Some(Grouping::Dependency), _) => {
                let view = self.sample.dependencies.iter().find(|view| view.name.as_str() == named);
                view.is_some_and(|view| !is_closed(&view.name))
            }
            (Some(Grouping::Service), Some(queue)) => {
                AlertScope::Service(queue.service.clone()).dependencies(book).any(|name| !is_closed(name))
            }
            (Some(Grouping::Channel), Some(queue)) => {
                of_queue(queue).dependencies(book).any(|name| !is_closed(name))
            }
            _ => self
                .sample
                .dependencies
                .iter()
                .any(|view| self.covers_dependency(&view.name) && !is_closed(&view.name)),
        }
    }

    /// Rejected requests by webhook source or API.
    fn turned_away(&mut self) {
        for (endpoint, count) in &self.sample.figures.turned_away {
            let of = match self.condition.by {
                Some(Grouping::Source) => format!("source={endpoint}"),
                _ => String::new(),
            };
            self.put(of, Measurement::Counted(vec![*count]));
        }
    }

    fn tallies(&mut self) {
        let (sample, by) = (self.sample, self.condition.by);
        let is_of_all =
            self.condition.metric == AlertMetric::AuthFailures && *self.covers == AlertScope::Everything;
        if is_of_all && matches!(by, None | Some(Grouping::Source)) {
            self.turned_away();
        }
        if by == Some(Grouping::Source) {
            return;
        }
        // Dependencies have their own counters, which also cover those the book no longer has.
        let of_dependencies = match self.covers {
            AlertScope::Dependency(_) => {
                matches!(by, None | Some(Grouping::Dependency | Grouping::Category))
            }
            AlertScope::Everything => by == Some(Grouping::Dependency),
            AlertScope::Service(_) | AlertScope::Channel(..) | AlertScope::Row(..) => false,
        };
        if of_dependencies {
            for (name, dependency) in &sample.figures.dependencies {
                if self.covers_dependency(name) {
                    let of = match by {
                        Some(Grouping::Dependency) => format!("dependency={name}"),
                        _ => String::new(),
                    };
                    self.tally(of, &dependency.tally);
                }
            }
            return;
        }
        for (name, queue) in &sample.figures.queues {
            if !self.covers_queue(name) {
                continue;
            }
            for (event_type, tally) in &queue.types {
                if self.covers.has_type(sample.book, name, event_type)
                    && let Some(of) = self.of_cell(by, name, event_type)
                {
                    self.tally(of, tally);
                }
            }
        }
    }

    fn tally(&mut self, of: String, tally: &AttemptTally) {
        if self.condition.by != Some(Grouping::Category) {
            return self.put(of, Measurement::Counted(counts(self.condition.metric, tally)));
        }
        for category in Category::ALL {
            let counts = vec![tally.failed_as(category), tally.attempts];
            self.put(format!("category={category}"), Measurement::Counted(counts));
        }
    }
}

/// For a share: numerator and denominator.
fn counts(metric: AlertMetric, tally: &AttemptTally) -> Vec<u64> {
    match metric {
        AlertMetric::ErrorRate => vec![tally.failures(), tally.attempts],
        AlertMetric::TransientRate => {
            let may_heal = tally.failed_as(Category::Transient) + tally.failed_as(Category::RateLimited);
            vec![may_heal, tally.attempts]
        }
        AlertMetric::UnavailableRate => vec![tally.unavailable, tally.attempts],
        AlertMetric::RetryRate => vec![tally.retried, tally.firsts],
        AlertMetric::ExhaustedRate => vec![tally.exhausted, tally.ended()],
        AlertMetric::DeadLetterInflow => vec![tally.dead],
        AlertMetric::AuthFailures => vec![tally.unauthorized],
        AlertMetric::ConfigFailures => vec![tally.misconfigured],
        AlertMetric::DeadLetters
        | AlertMetric::DeadLetterAge
        | AlertMetric::BreakerOpen
        | AlertMetric::BreakerOpened
        | AlertMetric::ConsumerLag
        | AlertMetric::OldestWaiting
        | AlertMetric::LatencyP99
        | AlertMetric::Incident(_) => Vec::new(),
    }
}

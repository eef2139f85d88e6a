//! What an alert looks at: everything, or what the level covers that it stands at.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::catalog::{self, CatalogAlert};
use crate::book::RuleBook;
use crate::book::expression::{Condition, AlertMetric};
use crate::book::model::{Alert, AlertSeverity, EventRow, Layer, Sections, AlertSwitch};
use crate::book::pattern::EventPattern;
use crate::book::problem::BookSpan;
use crate::engine::QueueName;
use crate::ids::{ChannelName, DependencyName, ServiceName};

/// What an alert looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertScope {
    /// All services and dependencies.
    Everything,
    /// One dependency, whoever calls it.
    Dependency(DependencyName),
    /// One service with all its channels.
    Service(ServiceName),
    /// One channel.
    Channel(ServiceName, ChannelName),
    /// The events of one row.
    Row(ServiceName, Option<ChannelName>, EventPattern),
}

impl AlertScope {
    /// As people read it; none if it is everything.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        match self {
            Self::Everything => None,
            Self::Dependency(name) => Some(format!("dependency {name}")),
            Self::Service(name) => Some(format!("service {name}")),
            Self::Channel(service, channel) => Some(format!("channel {service}/{channel}")),
            Self::Row(service, None, pattern) => Some(format!("{pattern} of service {service}")),
            Self::Row(service, Some(channel), pattern) => {
                Some(format!("{pattern} of channel {service}/{channel}"))
            }
        }
    }

    /// Whether it has to do with that queue; of a dependency that is not known before the event type is.
    pub(super) fn has_queue(&self, queue: &QueueName) -> bool {
        match self {
            Self::Everything | Self::Dependency(_) => true,
            Self::Service(service) => queue.service == *service,
            Self::Channel(service, channel) => {
                queue.service == *service && queue.channel.as_ref() == Some(channel)
            }
            Self::Row(service, channel, _) => queue.service == *service && queue.channel == *channel,
        }
    }

    /// Whether it has to do with events of that type in that queue.
    pub(super) fn has_type(&self, book: &RuleBook, queue: &QueueName, event_type: &str) -> bool {
        let channel = queue.channel.as_ref().map(ChannelName::as_str);
        match self {
            Self::Everything | Self::Service(_) | Self::Channel(..) => self.has_queue(queue),
            Self::Row(_, _, pattern) => {
                let row = book.row(queue.service.as_str(), channel, event_type);
                self.has_queue(queue) && row.is_some_and(|row| row.pattern.value == *pattern)
            }
            Self::Dependency(name) => dependency_of(book, queue, event_type).is_some_and(|of| of == name),
        }
    }

    /// Whether it has to do with that dependency.
    pub(super) fn has_dependency(&self, book: &RuleBook, dependency: &DependencyName) -> bool {
        match self {
            Self::Everything => true,
            Self::Dependency(name) => name == dependency,
            Self::Service(_) | Self::Channel(..) | Self::Row(..) => {
                self.dependencies(book).any(|name| name == dependency)
            }
        }
    }

    /// The dependencies that the rows of a service, a channel or a row call.
    pub fn dependencies<'a>(&'a self, book: &'a RuleBook) -> impl Iterator<Item = &'a DependencyName> {
        self.rules_of(book).map(|rule| &rule.dependency)
    }

    /// The rules of the rows that it covers.
    fn rules_of<'a>(&'a self, book: &'a RuleBook) -> impl Iterator<Item = &'a crate::policy::rule::Rule> {
        let (service, only) = match self {
            Self::Everything | Self::Dependency(_) => (None, None),
            Self::Service(service) => (Some(service), None),
            Self::Channel(service, channel) => (Some(service), Some(Some(channel))),
            Self::Row(service, channel, _) => (Some(service), Some(channel.as_ref())),
        };
        let pattern = match self {
            Self::Row(_, _, pattern) => Some(pattern),
            _ => None,
        };
        let claims = service.map(|service| book.rules_of(service.as_str())).into_iter().flatten();
        claims.filter_map(move |(channel, row, rule)| {
            let is_meant = only.is_none_or(|only| only == channel)
                && pattern.is_none_or(|pattern| row.pattern.value == *pattern);
            is_meant.then_some(rule)
        })
    }
}

/// The dependency that events of that type call there.
pub(super) fn dependency_of<'a>(
    book: &'a RuleBook,
    queue: &QueueName,
    event_type: &str,
) -> Option<&'a DependencyName> {
    let channel = queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(queue.service.as_str(), channel, event_type).map(|rule| &rule.dependency)
}

/// Every alert of a book that is switched on, with what it looks at: those of the whole book, then by level.
pub(crate) fn alerts(book: &Sections) -> Vec<(AlertScope, Cow<'_, Alert>)> {
    let of_book = book.alerts.iter().map(|alert| (AlertScope::Everything, Cow::Borrowed(alert)));
    let of_levels = levels(book).into_iter().flat_map(|(covers, layer)| {
        let own = layer.alerts.iter().map(Cow::Borrowed);
        let all = own.chain(inflow(book, layer).map(Cow::Owned));
        all.map(move |alert| (covers.clone(), alert))
    });
    let on = of_book.chain(of_levels).filter(|(_, alert)| alert.switch == AlertSwitch::On);
    on.map(|(covers, alert)| (covers, told_to_all(book, alert))).collect()
}

/// What people are told of at once goes to everybody where nobody is named.
fn told_to_all<'a>(book: &Sections, alert: Cow<'a, Alert>) -> Cow<'a, Alert> {
    if !matches!(alert.when.metric, AlertMetric::Trouble(_)) || alert.receivers().next().is_some() {
        return alert;
    }
    let mut alert = alert.into_owned();
    alert.to = book.receivers.keys().cloned().collect();
    Cow::Owned(alert)
}

/// The alerts that are on without being named, as far as the book as a whole says nothing of what they look at.
/// A book that has nobody to tell has none of them.
fn at_once(book: &Sections) -> Vec<Alert> {
    if book.receivers.is_empty() {
        return Vec::new();
    }
    let own = |metric: AlertMetric| {
        book.alerts.iter().chain(&book.defaults.alerts).any(|alert| alert.when.metric == metric)
    };
    let alert = |known: &CatalogAlert| {
        let when = Condition::parse(known.when).ok().filter(|when| !own(when.metric))?;
        Some(Alert {
            span: BookSpan::default(),
            when,
            name: Some(known.name.to_owned()),
            severity: known.severity,
            to: book.receivers.keys().cloned().collect(),
            escalate: Vec::new(),
            repeat: None,
            action: Some(known.action.to_owned()),
            switch: AlertSwitch::On,
        })
    };
    catalog::AT_ONCE.iter().filter_map(alert).collect()
}

/// An alert under names of its own.
pub struct NamedAlert<'a> {
    /// What tells it from all others of the book.
    pub key: String,
    /// What tells it from all others of its place.
    pub name: String,
    pub covers: AlertScope,
    pub alert: Cow<'a, Alert>,
}

/// The same, each under a name of its own: two of one name must not be taken for each other.
#[must_use]
pub fn named(book: &Sections) -> Vec<NamedAlert<'_>> {
    under_names(alerts(book))
}

/// Everything that is watched for: the alerts of the book, and those that are on without being named.
pub(super) fn watched(book: &Sections) -> Vec<NamedAlert<'_>> {
    let at_once = at_once(book).into_iter().map(|alert| (AlertScope::Everything, Cow::Owned(alert)));
    under_names(alerts(book).into_iter().chain(at_once).collect())
}

fn under_names(alerts: Vec<(AlertScope, Cow<'_, Alert>)>) -> Vec<NamedAlert<'_>> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut all = Vec::new();
    for (covers, alert) in alerts {
        let mut name = alert.title();
        let place = covers.shown();
        let key = |name: &str| match &place {
            Some(place) => format!("{name} of {place}"),
            None => name.to_owned(),
        };
        let times = seen.entry(key(&name)).or_default();
        *times += 1;
        if *times > 1 {
            name = format!("{name} ({times})");
        }
        all.push(NamedAlert { key: key(&name), name, covers, alert });
    }
    all
}

fn levels(book: &Sections) -> Vec<(AlertScope, &Layer)> {
    let mut levels = vec![(AlertScope::Everything, &book.defaults)];
    for dependency in book.dependencies.values() {
        levels.push((AlertScope::Dependency(dependency.name.clone()), &dependency.layer));
    }
    for service in &book.services {
        let row = |channel: Option<&ChannelName>, row: &EventRow| {
            AlertScope::Row(service.name.clone(), channel.cloned(), row.pattern.value.clone())
        };
        levels.push((AlertScope::Service(service.name.clone()), &service.layer));
        levels.extend(service.rows.iter().map(|of| (row(None, of), &of.layer)));
        for channel in &service.channels {
            let covers = AlertScope::Channel(service.name.clone(), channel.name.clone());
            levels.push((covers, &channel.layer));
            levels.extend(channel.rows.iter().map(|of| (row(Some(&channel.name), of), &of.layer)));
        }
    }
    levels
}

/// The alert that a level asks for by the `alert` of its dead letters: everybody is told.
fn inflow(book: &Sections, layer: &Layer) -> Option<Alert> {
    let rate = layer.dead_letter.alert.as_ref()?;
    Some(Alert {
        span: rate.span,
        when: Condition::parse(&format!("dead_letter_inflow > {}", rate.value)).ok()?,
        name: Some("dead-letter-inflow".to_owned()),
        severity: AlertSeverity::High,
        to: book.receivers.keys().cloned().collect(),
        escalate: Vec::new(),
        repeat: None,
        action: None,
        switch: AlertSwitch::On,
    })
}

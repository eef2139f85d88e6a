//! The scope of an alert: everything, or the level it is defined at.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::catalog::{self, CatalogAlert};
use crate::book::RuleBook;
use crate::book::expression::{AlertMetric, Condition};
use crate::book::model::{Alert, AlertSeverity, AlertSwitch, EventRow, Layer, Sections};
use crate::book::pattern::EventPattern;
use crate::book::problem::BookSpan;
use crate::engine::QueueName;
use crate::ids::{ChannelName, DependencyName, ServiceName};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlertScope {
    Everything,
    Dependency(DependencyName),
    Service(ServiceName),
    Channel(ServiceName, ChannelName),
    Row(ServiceName, Option<ChannelName>, EventPattern),
}

impl AlertScope {
    /// `None` for everything.
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

    /// A dependency is only known once the event type is, so it may concern any queue.
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

    /// Whether it covers events of this type in this queue.
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

    pub(super) fn has_dependency(&self, book: &RuleBook, dependency: &DependencyName) -> bool {
        match self {
            Self::Everything => true,
            Self::Dependency(name) => name == dependency,
            Self::Service(_) | Self::Channel(..) | Self::Row(..) => {
                self.dependencies(book).any(|name| name == dependency)
            }
        }
    }

    /// The dependencies called by the rows it covers.
    pub fn dependencies<'a>(&'a self, book: &'a RuleBook) -> impl Iterator<Item = &'a DependencyName> {
        self.rules_of(book).map(|rule| &rule.dependency)
    }

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

pub(super) fn dependency_of<'a>(
    book: &'a RuleBook,
    queue: &QueueName,
    event_type: &str,
) -> Option<&'a DependencyName> {
    let channel = queue.channel.as_ref().map(ChannelName::as_str);
    book.rule(queue.service.as_str(), channel, event_type).map(|rule| &rule.dependency)
}

/// Every alert that is switched on, with its scope: the whole book first, then by level.
pub(crate) fn alerts(book: &Sections) -> Vec<(AlertScope, Cow<'_, Alert>)> {
    let of_book = book.alerts.iter().map(|alert| (AlertScope::Everything, Cow::Borrowed(alert)));
    let of_levels = levels(book).into_iter().flat_map(|(covers, layer)| {
        let own = layer.alerts.iter().map(Cow::Borrowed);
        let all = own.chain(inflow(book, layer).map(Cow::Owned));
        all.map(move |alert| (covers.clone(), alert))
    });
    let on = of_book.chain(of_levels).filter(|(_, alert)| alert.switch == AlertSwitch::On);
    on.map(|(covers, alert)| (covers, to_all_receivers(book, alert))).collect()
}

/// Incidents without receivers go to all receivers.
fn to_all_receivers<'a>(book: &Sections, alert: Cow<'a, Alert>) -> Cow<'a, Alert> {
    if !matches!(alert.when.metric, AlertMetric::Incident(_)) || alert.receivers().next().is_some() {
        return alert;
    }
    let mut alert = alert.into_owned();
    alert.to = book.receivers.keys().cloned().collect();
    Cow::Owned(alert)
}

/// The alerts that are on by default, unless the book defines one on the same metric. None without receivers.
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

/// An alert under a unique name.
pub struct NamedAlert<'a> {
    /// Unique in the book.
    pub key: String,
    /// Unique in its scope.
    pub name: String,
    pub covers: AlertScope,
    pub alert: Cow<'a, Alert>,
}

#[must_use]
pub fn named(book: &Sections) -> Vec<NamedAlert<'_>> {
    under_names(alerts(book))
}

/// Alerts of the book, and those that are on by default.
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

/// The alert for `dead_letter: { alert }` of a level; notifies all receivers.
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

//! Holds every alert of a book against samples, and says who is to be told what.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scope::{self, AlertScope, NamedAlert};
use super::gather::{Groups, gather, is_barred, needs_letters};
use super::notice::{AlertNotice, AlertSubject};
use super::sample::{AlertSample, SampleNeeds};
use super::series::CountWindow;
use super::state::{self, SubjectEvidence, SubjectState, step};
use super::notify::{self, AlertHeader, Firing, ReceiverGates, ReceiverState, SavedSeverity};
use super::latency::LatencyWindow;
use super::incident::IncidentEnd;
use super::value::{self, Measurement, MetricReading};
use super::view::{AlertState, AlertView};
use crate::book::RuleBook;
use crate::book::expression::{Condition, AlertMetric};
use crate::figures::{OTHER, Sketch};
use crate::limits;
use crate::time::Timestamp;

/// All alerts of a book and where they stand.
#[derive(Clone, Debug, Default)]
pub struct AlertWatch {
    /// In the order of the book.
    alarms: Vec<WatchedAlert>,
    /// Alerts that the book does not have any more, of which somebody is still to be told that they are over.
    farewells: BTreeMap<String, EndedAlert>,
    gates: ReceiverGates,
}

/// One alert and where it stands.
#[derive(Clone, Debug)]
struct WatchedAlert {
    /// What tells it from all others of the book.
    key: String,
    covers: AlertScope,
    condition: Condition,
    face: AlertHeader,
    to: Vec<String>,
    escalate: Vec<String>,
    repeat: Duration,
    line: u32,
    memory: AlertMemory,
    /// The worst figure of the last look.
    last: Option<f64>,
}

/// What an alert remembers from look to look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct AlertMemory {
    /// When it was last looked at; what is counted for the first time after that began at nothing.
    looked_at: Option<Timestamp>,
    /// Counts over its window, by what they are about.
    series: BTreeMap<String, CountWindow>,
    /// Times over its window, by what they are about.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    times: BTreeMap<String, LatencyWindow>,
    /// What it holds for, or held until a moment ago.
    standings: BTreeMap<String, SubjectState>,
    /// Since when it fires.
    firing_since: Option<Timestamp>,
    /// Who was told what.
    routes: BTreeMap<String, ReceiverState>,
}

/// An alert that is no longer watched, and those who wait to hear that it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EndedAlert {
    face: AlertHeader,
    routes: BTreeMap<String, ReceiverState>,
}

/// What is to be kept over a restart, so that nothing is said twice and nothing is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedAlerts {
    alerts: BTreeMap<String, SavedAlert>,
    farewells: BTreeMap<String, EndedAlert>,
    spent: BTreeMap<String, Vec<Timestamp>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedAlert {
    face: AlertHeader,
    memory: AlertMemory,
}

impl AlertWatch {
    /// Watches for the alerts of a book, in a process that begins to count now.
    #[must_use]
    pub fn new(book: &RuleBook, now: Timestamp) -> Self {
        let mut watch = Self::default();
        watch.change(book);
        // Counts begin at nothing; what people are told of at once may have been found before the first look.
        let is_trouble = |alarm: &WatchedAlert| matches!(alarm.condition.metric, AlertMetric::Trouble(_));
        for alarm in watch.alarms.iter_mut().filter(|alarm| !is_trouble(alarm)) {
            alarm.memory.looked_at = Some(now);
        }
        watch
    }

    /// Goes on with another book. Alerts that stay keep their state; of one that goes, everybody who was told of
    /// it is told that it is over.
    pub fn change(&mut self, book: &RuleBook) {
        let receivers = book.sections().receivers.iter().map(|(name, at)| (name, &at.value));
        self.gates.change(receivers);
        let before: Vec<WatchedAlert> = std::mem::take(&mut self.alarms);
        let mut known: BTreeMap<String, (AlertHeader, AlertMemory)> =
            before.into_iter().map(|alarm| (alarm.key, (alarm.face, alarm.memory))).collect();
        self.alarms = alarms(book);
        for alarm in &mut self.alarms {
            if let Some((face, memory)) = known.remove(&alarm.key) {
                alarm.take_over(&face, memory);
            } else if let Some(farewell) = self.farewells.remove(&alarm.key) {
                alarm.memory.routes = farewell.routes;
            }
        }
        let gone = known.into_iter().filter(|(_, (_, memory))| !memory.routes.is_empty());
        let farewell =
            |(key, (face, memory)): (String, (AlertHeader, AlertMemory))| (key, EndedAlert { face, routes: memory.routes });
        self.farewells.extend(gone.map(farewell));
    }

    /// What the next sample must have.
    #[must_use]
    pub fn wants(&self) -> SampleNeeds {
        let is_of = |alarm: &WatchedAlert, metrics: [AlertMetric; 2]| metrics.contains(&alarm.condition.metric);
        SampleNeeds {
            oldest: self.alarms.iter().any(|a| is_of(a, [AlertMetric::DeadLetterAge, AlertMetric::OldestWaiting])),
            letters: self.alarms.iter().any(|alarm| needs_letters(&alarm.condition, &alarm.covers)),
        }
    }

    /// Looks at a sample and says who is to be told what: the most urgent first.
    ///
    /// What it returns counts as told. Whoever cannot pass it on keeps it until they can.
    pub fn look(&mut self, sample: &AlertSample<'_>) -> Vec<AlertNotice> {
        for alarm in &mut self.alarms {
            alarm.look(sample);
        }
        let mut order: Vec<usize> = (0..self.alarms.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(self.alarms[*place].face.severity));
        let mut notices = Vec::new();
        for place in order {
            notices.extend(self.alarms[place].tell(&mut self.gates, sample.at));
        }
        let gates = &mut self.gates;
        self.farewells.retain(|_, farewell| {
            notices.extend(notify::over(&farewell.face, &mut farewell.routes, gates, sample.at));
            !farewell.routes.is_empty()
        });
        notices
    }

    /// Every alert as it stands, in the order of the book.
    #[must_use]
    pub fn views(&self) -> Vec<AlertView> {
        self.alarms.iter().map(WatchedAlert::view).collect()
    }

    /// What is to be kept over a restart.
    #[must_use]
    pub fn save(&self) -> SavedAlerts {
        let saved = |alarm: &WatchedAlert| SavedAlert { face: alarm.face.clone(), memory: alarm.memory.clone() };
        SavedAlerts {
            alerts: self.alarms.iter().map(|alarm| (alarm.key.clone(), saved(alarm))).collect(),
            farewells: self.farewells.clone(),
            spent: self.gates.spent().clone(),
        }
    }

    /// Goes on where an earlier process stopped; this one has begun to count from nothing.
    pub fn restore(&mut self, saved: SavedAlerts) {
        let SavedAlerts { mut alerts, farewells, spent } = saved;
        self.gates.restore(spent);
        self.farewells = farewells;
        for alarm in &mut self.alarms {
            if let Some(SavedAlert { face, mut memory }) = alerts.remove(&alarm.key) {
                memory.series.values_mut().for_each(CountWindow::carry_over);
                alarm.take_over(&face, memory);
            } else if let Some(farewell) = self.farewells.remove(&alarm.key) {
                alarm.memory.routes = farewell.routes;
            }
        }
        let gone = alerts.into_iter().filter(|(_, saved)| !saved.memory.routes.is_empty());
        let farewell = |saved: SavedAlert| EndedAlert { face: saved.face, routes: saved.memory.routes };
        self.farewells.extend(gone.map(|(key, saved)| (key, farewell(saved))));
    }
}

fn alarms(book: &RuleBook) -> Vec<WatchedAlert> {
    scope::watched(book.sections()).into_iter().map(WatchedAlert::new).collect()
}

impl WatchedAlert {
    fn new(NamedAlert { key, name, covers, alert }: NamedAlert<'_>) -> Self {
        let face = AlertHeader {
            name,
            covers: covers.shown(),
            severity: SavedSeverity(alert.severity),
            condition: alert.when.to_string(),
            action: alert.action.clone(),
        };
        Self {
            key,
            covers,
            condition: alert.when.clone(),
            face,
            to: alert.to.clone(),
            escalate: alert.escalate.clone(),
            repeat: alert.repeats_every(),
            line: alert.span.position.line,
            memory: AlertMemory::default(),
            last: None,
        }
    }

    /// Goes on with what the alert of this name remembers; another condition begins anew, and those who were told
    /// of the old one hear how it ends.
    fn take_over(&mut self, before: &AlertHeader, memory: AlertMemory) {
        if before.condition == self.face.condition {
            self.memory = memory;
            if self.condition.metric == AlertMetric::LatencyP99 {
                // Counts by coarse ranges, of a build that had no finer ones.
                self.memory.series.clear();
            }
        } else {
            self.memory.routes = memory.routes;
        }
    }

    const fn times(&self) -> state::AlertTimes {
        let lasting = match self.condition.lasting {
            Some(lasting) => lasting,
            None => Duration::ZERO,
        };
        let silent_for = limits::ALERT_SILENT_FOR;
        if let AlertMetric::Trouble(trouble) = self.condition.metric
            && matches!(trouble.lasts(), IncidentEnd::AWhile)
        {
            return state::AlertTimes { lasting, quiet_for: limits::TROUBLE_LASTS, silent_for };
        }
        let longest = match (self.condition.over, self.condition.lasting) {
            (Some(span), _) | (None, Some(span)) => span,
            (None, None) => limits::ALERT_QUIET_FOR,
        };
        let is_shorter = longest.as_nanos() < limits::ALERT_QUIET_FOR.as_nanos();
        let quiet_for = if is_shorter { longest } else { limits::ALERT_QUIET_FOR };
        state::AlertTimes { lasting, quiet_for, silent_for }
    }

    /// Looks at a sample; one without what this alert needs leaves it as it is.
    fn look(&mut self, sample: &AlertSample<'_>) {
        let looked_at = self.memory.looked_at;
        let Some(groups) = gather(sample, &self.condition, &self.covers, looked_at) else { return };
        let mut groups = self.bounded(groups);
        let now = sample.at;
        // A process that has just begun to count has not met all that an earlier one had counted.
        for of in self.memory.times.keys() {
            groups.entry(of.clone()).or_insert_with(|| Measurement::Timed(Sketch::default()));
        }
        if self.condition.metric.has_window() {
            for of in self.memory.series.keys() {
                groups.entry(of.clone()).or_insert_with(|| Measurement::Counted(Vec::new()));
            }
        }
        self.last = None;
        let mut found: BTreeMap<String, SubjectEvidence> = BTreeMap::new();
        for (of, what) in groups {
            let why = match &what {
                Measurement::Trouble { why, .. } => Some(why.clone()),
                Measurement::Counted(_) | Measurement::Timed(_) | Measurement::Stands(_) | Measurement::Breaker { .. } => None,
            };
            let evidence = match self.reading(&of, what, now) {
                MetricReading::Says(value) => {
                    let last = self
                        .last
                        .filter(|last| value::worst_first(&self.condition, *last, value) == Ordering::Less);
                    self.last = Some(last.unwrap_or(value));
                    let holds = value::is_past(&self.condition, value);
                    if holds { SubjectEvidence::Holds { value, why } } else { SubjectEvidence::Not }
                }
                MetricReading::Hints => SubjectEvidence::Hints,
                MetricReading::Silent => SubjectEvidence::Silent,
            };
            found.insert(of, evidence);
        }
        self.memory.looked_at = Some(now);

        let times = self.times();
        let absent =
            if value::may_be_silent(self.condition.metric) { SubjectEvidence::Silent } else { SubjectEvidence::Not };
        let mut before = std::mem::take(&mut self.memory.standings);
        for of in before.keys() {
            found.entry(of.clone()).or_insert_with(|| absent.clone());
        }
        let standings = found.into_iter().filter_map(|(of, evidence)| {
            let standing = before.remove(&of);
            let evidence = match evidence {
                // Whether a breaker is why is of interest only where something is raised.
                SubjectEvidence::Silent
                    if standing.is_some() && is_barred(sample, &self.condition, &self.covers, &of) =>
                {
                    SubjectEvidence::Barred
                }
                evidence => evidence,
            };
            Some((of, step(standing, evidence, times, now)?))
        });
        self.memory.standings = standings.collect();
        let AlertMemory { series, times, standings, .. } = &mut self.memory;
        series.retain(|of, series| standings.contains_key(of) || !series.is_idle());
        times.retain(|of, times| standings.contains_key(of) || !times.is_idle());
        let fires = self.memory.standings.values().any(SubjectState::is_firing);
        self.memory.firing_since = fires.then(|| self.memory.firing_since.unwrap_or(now));
    }

    /// The groups that have a place of their own; the rest are counted together.
    fn bounded(&self, groups: Groups) -> Groups {
        let AlertMemory { series, times, standings, .. } = &self.memory;
        let is_known =
            |of: &String| series.contains_key(of) || times.contains_key(of) || standings.contains_key(of);
        let known = series.len().max(times.len()).max(standings.len());
        let mut free = limits::ALERT_GROUPS_MAX.saturating_sub(known);
        let mut bounded = Groups::new();
        for (of, found) in groups {
            let has_place = is_known(&of) || free > 0;
            if has_place && !is_known(&of) {
                free -= 1;
            }
            let of = if has_place { of } else { OTHER.to_owned() };
            match bounded.get_mut(&of) {
                Some(known) => Measurement::merge(known, &found, self.condition.metric),
                None => drop(bounded.insert(of, found)),
            }
        }
        bounded
    }

    /// What was found in the metric's own unit.
    fn reading(&mut self, of: &str, found: Measurement, now: Timestamp) -> MetricReading {
        let window = self.condition.window().unwrap_or(limits::BREAKER_OPENED_WITHIN);
        let looked_at = self.memory.looked_at;
        let mut within = |counts: &[u64]| {
            let series = self.memory.series.entry(of.to_owned()).or_insert_with(|| match looked_at {
                // It was not there at the last look, so nothing had been counted by then.
                Some(at) => CountWindow::new(at, vec![0; counts.len()]),
                None => CountWindow::new(now, counts.to_vec()),
            });
            series.look(now, counts, window)
        };
        match found {
            Measurement::Stands(value) => MetricReading::Says(value),
            Measurement::Trouble { count, .. } => MetricReading::Says(count as f64),
            Measurement::Timed(counted) => {
                let times = self.memory.times.entry(of.to_owned()).or_insert_with(|| match looked_at {
                    Some(_) => LatencyWindow::default(),
                    None => LatencyWindow::new(counted.clone()),
                });
                value::timed(&self.condition, &times.look(now, &counted, window))
            }
            Measurement::Counted(counts) => {
                let counts = within(&counts);
                value::counted(&self.condition, &counts, window)
            }
            Measurement::Breaker { trips, is_open } => {
                let has_opened = within(&[trips])[0] > 0;
                MetricReading::Says(match (is_open, has_opened) {
                    (true, _) => value::BREAKER_OPEN,
                    (false, true) => value::BREAKER_WAS_OPEN,
                    (false, false) => 0.0,
                })
            }
        }
    }

    /// What is owed now.
    fn tell(&mut self, gates: &mut ReceiverGates, now: Timestamp) -> Vec<AlertNotice> {
        let Some(since) = self.memory.firing_since else {
            return notify::over(&self.face, &mut self.memory.routes, gates, now);
        };
        let subjects = self.subjects(AlertState::Firing);
        let firing = Firing { since, subjects: &subjects, repeat: self.repeat };
        let severity = self.face.severity.0;
        // The next in line is told when the time to respond has passed once more.
        let steps = (1..)
            .zip(&self.escalate)
            .filter(|(times, _)| now.since(since) >= severity.response_time().saturating_mul(*times));
        let mut receivers: Vec<&str> = self.to.iter().map(String::as_str).collect();
        receivers.extend(steps.map(|(_, receiver)| receiver.as_str()));
        let mut told = Vec::new();
        let mut notices = Vec::new();
        for receiver in receivers {
            if told.contains(&receiver) || !gates.hears(receiver, severity) {
                continue;
            }
            told.push(receiver);
            let routes = &mut self.memory.routes;
            notices.extend(notify::firing(&self.face, firing, receiver, routes, gates, now));
        }
        notices
    }

    /// What it is pending or raised for, the worst first.
    fn subjects(&self, state: AlertState) -> Vec<AlertSubject> {
        let wanted = |standing: &&SubjectState| match state {
            AlertState::Firing => standing.is_firing(),
            AlertState::Pending | AlertState::Quiet => true,
        };
        let mut found: Vec<(&String, &SubjectState)> =
            self.memory.standings.iter().filter(|(_, standing)| wanted(standing)).collect();
        found.sort_by(|(one_of, one), (other_of, other)| {
            value::worst_first(&self.condition, one.value, other.value).then_with(|| one_of.cmp(other_of))
        });
        let subject = |(of, standing): (&String, &SubjectState)| AlertSubject {
            of: of.clone(),
            value: value::show_with(&self.condition, standing.value, standing.why.as_deref()),
            since: standing.since,
        };
        found.into_iter().map(subject).collect()
    }

    fn view(&self) -> AlertView {
        let memory = &self.memory;
        let state = match memory.firing_since {
            Some(_) => AlertState::Firing,
            None if memory.standings.is_empty() => AlertState::Quiet,
            None => AlertState::Pending,
        };
        let mut subjects = self.subjects(state);
        let more = subjects.len().saturating_sub(limits::ALERT_SUBJECTS_SHOWN_MAX);
        subjects.truncate(limits::ALERT_SUBJECTS_SHOWN_MAX);
        // What fires shows its own figure, and not that of something else which may be well.
        let value = match (subjects.first(), self.condition.metric) {
            (Some(worst), _) => Some(worst.value.clone()),
            (None, AlertMetric::Trouble(_)) => None,
            (None, _) => self.last.map(|last| value::show(&self.condition, last)),
        };
        let pending_since = memory.standings.values().map(|standing| standing.since).min();
        AlertView {
            name: self.face.name.clone(),
            when: self.face.condition.clone(),
            severity: self.face.severity.0.as_str().to_owned(),
            to: self.to.clone(),
            escalate: self.escalate.clone(),
            action: self.face.action.clone(),
            line: (self.line > 0).then_some(self.line),
            covers: self.face.covers.clone(),
            state,
            since: memory.firing_since.or(pending_since),
            value,
            subjects,
            more: more as u64,
            told: memory.routes.values().map(|route| route.told).sum(),
            last_told_at: memory.routes.values().filter_map(|route| route.last_at).max(),
        }
    }
}

#[cfg(test)]
mod tests;

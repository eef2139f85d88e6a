//! Evaluates every alert of a book against samples and returns the notices to send.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gather::{Groups, gather, is_barred, needs_letters};
use super::incident::IncidentEnd;
use super::latency::LatencyWindow;
use super::notice::{AlertNotice, AlertSubject};
use super::notify::{self, AlertHeader, Firing, ReceiverGates, ReceiverState};
use super::sample::{AlertSample, SampleNeeds};
use super::scope::{self, AlertScope, NamedAlert};
use super::series::CountWindow;
use super::state::{self, SubjectEvidence, SubjectState, step};
use super::value::{self, Measurement, MetricReading};
use super::view::{AlertState, AlertView};
use crate::book::RuleBook;
use crate::book::expression::{AlertMetric, Condition};
use crate::figures::{OTHER, Sketch};
use crate::limits;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default)]
pub struct AlertWatch {
    /// In book order.
    alerts: Vec<WatchedAlert>,
    /// Alerts no longer in the book whose "resolved" notices are still due.
    ended_alerts: BTreeMap<String, EndedAlert>,
    gates: ReceiverGates,
}

#[derive(Clone, Debug)]
struct WatchedAlert {
    key: String,
    covers: AlertScope,
    condition: Condition,
    header: AlertHeader,
    to: Vec<String>,
    escalate: Vec<String>,
    repeat: Duration,
    line: u32,
    memory: AlertMemory,
    /// The worst value of the last evaluation.
    last: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct AlertMemory {
    /// The last evaluation; a counter that appears later started from zero.
    looked_at: Option<Timestamp>,
    series: BTreeMap<String, CountWindow>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    times: BTreeMap<String, LatencyWindow>,
    /// Subjects for which the condition holds, or recently held.
    #[serde(rename = "standings")]
    subject_states: BTreeMap<String, SubjectState>,
    firing_since: Option<Timestamp>,
    routes: BTreeMap<String, ReceiverState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct EndedAlert {
    #[serde(rename = "face")]
    header: AlertHeader,
    routes: BTreeMap<String, ReceiverState>,
}

/// State kept over a restart, so that no notice is repeated or lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedAlerts {
    alerts: BTreeMap<String, SavedAlert>,
    #[serde(rename = "farewells")]
    ended_alerts: BTreeMap<String, EndedAlert>,
    spent: BTreeMap<String, Vec<Timestamp>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedAlert {
    #[serde(rename = "face")]
    header: AlertHeader,
    memory: AlertMemory,
}

impl AlertWatch {
    /// For a process that starts counting now.
    #[must_use]
    pub fn new(book: &RuleBook, now: Timestamp) -> Self {
        let mut watch = Self::default();
        watch.change(book);
        // Counters start at zero; incidents may have been reported before the first evaluation.
        let is_incident =
            |watched: &WatchedAlert| matches!(watched.condition.metric, AlertMetric::Incident(_));
        for watched in watch.alerts.iter_mut().filter(|watched| !is_incident(watched)) {
            watched.memory.looked_at = Some(now);
        }
        watch
    }

    /// Switches to another book. Alerts in both keep their state; receivers of a removed alert get "resolved".
    pub fn change(&mut self, book: &RuleBook) {
        let receivers = book.sections().receivers.iter().map(|(name, at)| (name, &at.value));
        self.gates.change(receivers);
        let before: Vec<WatchedAlert> = std::mem::take(&mut self.alerts);
        let mut known: BTreeMap<String, (AlertHeader, AlertMemory)> =
            before.into_iter().map(|watched| (watched.key, (watched.header, watched.memory))).collect();
        self.alerts = watched_alerts(book);
        for watched in &mut self.alerts {
            if let Some((header, memory)) = known.remove(&watched.key) {
                watched.take_over(&header, memory);
            } else if let Some(ended) = self.ended_alerts.remove(&watched.key) {
                watched.memory.routes = ended.routes;
            }
        }
        let gone = known.into_iter().filter(|(_, (_, memory))| !memory.routes.is_empty());
        let ended = |(key, (header, memory)): (String, (AlertHeader, AlertMemory))| {
            (key, EndedAlert { header, routes: memory.routes })
        };
        self.ended_alerts.extend(gone.map(ended));
    }

    #[must_use]
    pub fn needs(&self) -> SampleNeeds {
        let is_of =
            |watched: &WatchedAlert, metrics: [AlertMetric; 2]| metrics.contains(&watched.condition.metric);
        SampleNeeds {
            oldest: self
                .alerts
                .iter()
                .any(|a| is_of(a, [AlertMetric::DeadLetterAge, AlertMetric::OldestWaiting])),
            letters: self.alerts.iter().any(|watched| needs_letters(&watched.condition, &watched.covers)),
        }
    }

    /// Evaluates a sample and returns the notices to send, most urgent first.
    ///
    /// Returned notices count as sent; the caller must keep them until they are.
    pub fn evaluate(&mut self, sample: &AlertSample<'_>) -> Vec<AlertNotice> {
        for watched in &mut self.alerts {
            watched.evaluate(sample);
        }
        let mut order: Vec<usize> = (0..self.alerts.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(self.alerts[*place].header.severity));
        let mut notices = Vec::new();
        for place in order {
            notices.extend(self.alerts[place].due_notices(&mut self.gates, sample.at));
        }
        let gates = &mut self.gates;
        self.ended_alerts.retain(|_, ended| {
            notices.extend(notify::over(&ended.header, &mut ended.routes, gates, sample.at));
            !ended.routes.is_empty()
        });
        notices
    }

    #[must_use]
    pub fn views(&self) -> Vec<AlertView> {
        self.alerts.iter().map(WatchedAlert::view).collect()
    }

    #[must_use]
    pub fn save(&self) -> SavedAlerts {
        let saved = |watched: &WatchedAlert| SavedAlert {
            header: watched.header.clone(),
            memory: watched.memory.clone(),
        };
        SavedAlerts {
            alerts: self.alerts.iter().map(|watched| (watched.key.clone(), saved(watched))).collect(),
            ended_alerts: self.ended_alerts.clone(),
            spent: self.gates.spent().clone(),
        }
    }

    /// Continues from an earlier process; this one counts from zero.
    pub fn restore(&mut self, saved: SavedAlerts) {
        let SavedAlerts { mut alerts, ended_alerts, spent } = saved;
        self.gates.restore(spent);
        self.ended_alerts = ended_alerts;
        for watched in &mut self.alerts {
            if let Some(SavedAlert { header, mut memory }) = alerts.remove(&watched.key) {
                memory.series.values_mut().for_each(CountWindow::carry_over);
                watched.take_over(&header, memory);
            } else if let Some(ended) = self.ended_alerts.remove(&watched.key) {
                watched.memory.routes = ended.routes;
            }
        }
        let gone = alerts.into_iter().filter(|(_, saved)| !saved.memory.routes.is_empty());
        let ended = |saved: SavedAlert| EndedAlert { header: saved.header, routes: saved.memory.routes };
        self.ended_alerts.extend(gone.map(|(key, saved)| (key, ended(saved))));
    }
}

fn watched_alerts(book: &RuleBook) -> Vec<WatchedAlert> {
    scope::watched(book.sections()).into_iter().map(WatchedAlert::new).collect()
}

impl WatchedAlert {
    fn new(NamedAlert { key, name, covers, alert }: NamedAlert<'_>) -> Self {
        let header = AlertHeader {
            name,
            covers: covers.shown(),
            severity: alert.severity,
            condition: alert.when.to_string(),
            action: alert.action.clone(),
        };
        Self {
            key,
            covers,
            condition: alert.when.clone(),
            header,
            to: alert.to.clone(),
            escalate: alert.escalate.clone(),
            repeat: alert.repeats_every(),
            line: alert.span.position.line,
            memory: AlertMemory::default(),
            last: None,
        }
    }

    /// Takes over the state of the alert with this name. A changed condition starts anew, but receivers of the
    /// old one still get "resolved".
    fn take_over(&mut self, before: &AlertHeader, memory: AlertMemory) {
        if before.condition == self.header.condition {
            self.memory = memory;
            if self.condition.metric == AlertMetric::LatencyP99 {
                // Older builds saved coarser ranges.
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
        if let AlertMetric::Incident(incident) = self.condition.metric
            && matches!(incident.lasts(), IncidentEnd::Expires)
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

    /// A sample without the needed data leaves the alert unchanged.
    fn evaluate(&mut self, sample: &AlertSample<'_>) {
        let looked_at = self.memory.looked_at;
        let Some(groups) = gather(sample, &self.condition, &self.covers, looked_at) else { return };
        let mut groups = self.bounded(groups);
        let now = sample.at;
        // A new process has not seen every subject that an earlier one counted.
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
                Measurement::Incident { why, .. } => Some(why.clone()),
                Measurement::Counted(_)
                | Measurement::Timed(_)
                | Measurement::Current(_)
                | Measurement::Breaker { .. } => None,
            };
            let evidence = match self.reading(&of, what, now) {
                MetricReading::Value(value) => {
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
        let absent = if value::may_be_silent(self.condition.metric) {
            SubjectEvidence::Silent
        } else {
            SubjectEvidence::Not
        };
        let mut before = std::mem::take(&mut self.memory.subject_states);
        for of in before.keys() {
            found.entry(of.clone()).or_insert_with(|| absent.clone());
        }
        let subject_states = found.into_iter().filter_map(|(of, evidence)| {
            let subject_state = before.remove(&of);
            let evidence = match evidence {
                // Only a raised subject can be barred by a breaker.
                SubjectEvidence::Silent
                    if subject_state.is_some() && is_barred(sample, &self.condition, &self.covers, &of) =>
                {
                    SubjectEvidence::Barred
                }
                evidence => evidence,
            };
            Some((of, step(subject_state, evidence, times, now)?))
        });
        self.memory.subject_states = subject_states.collect();
        let AlertMemory { series, times, subject_states, .. } = &mut self.memory;
        series.retain(|of, series| subject_states.contains_key(of) || !series.is_idle());
        times.retain(|of, times| subject_states.contains_key(of) || !times.is_idle());
        let fires = self.memory.subject_states.values().any(SubjectState::is_firing);
        self.memory.firing_since = fires.then(|| self.memory.firing_since.unwrap_or(now));
    }

    /// Subjects beyond the bound are counted together.
    fn bounded(&self, groups: Groups) -> Groups {
        let AlertMemory { series, times, subject_states, .. } = &self.memory;
        let is_known = |of: &String| {
            series.contains_key(of) || times.contains_key(of) || subject_states.contains_key(of)
        };
        let known = series.len().max(times.len()).max(subject_states.len());
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

    fn reading(&mut self, of: &str, found: Measurement, now: Timestamp) -> MetricReading {
        let window = self.condition.window().unwrap_or(limits::BREAKER_OPENED_WITHIN);
        let looked_at = self.memory.looked_at;
        let mut within = |counts: &[u64]| {
            let series = self.memory.series.entry(of.to_owned()).or_insert_with(|| match looked_at {
                // It was absent at the last evaluation, so its count was zero.
                Some(at) => CountWindow::new(at, vec![0; counts.len()]),
                None => CountWindow::new(now, counts.to_vec()),
            });
            series.advance(now, counts, window)
        };
        match found {
            Measurement::Current(value) => MetricReading::Value(value),
            Measurement::Incident { count, .. } => MetricReading::Value(count as f64),
            Measurement::Timed(counted) => {
                let times = self.memory.times.entry(of.to_owned()).or_insert_with(|| match looked_at {
                    Some(_) => LatencyWindow::default(),
                    None => LatencyWindow::new(counted.clone()),
                });
                value::timed(&self.condition, &times.advance(now, &counted, window))
            }
            Measurement::Counted(counts) => {
                let counts = within(&counts);
                value::counted(&self.condition, &counts, window)
            }
            Measurement::Breaker { trips, is_open } => {
                let has_opened = within(&[trips])[0] > 0;
                MetricReading::Value(match (is_open, has_opened) {
                    (true, _) => value::BREAKER_OPEN,
                    (false, true) => value::BREAKER_WAS_OPEN,
                    (false, false) => 0.0,
                })
            }
        }
    }

    fn due_notices(&mut self, gates: &mut ReceiverGates, now: Timestamp) -> Vec<AlertNotice> {
        let Some(since) = self.memory.firing_since else {
            return notify::over(&self.header, &mut self.memory.routes, gates, now);
        };
        let subjects = self.subjects(AlertState::Firing);
        let firing = Firing { since, subjects: &subjects, repeat: self.repeat };
        let severity = self.header.severity;
        // One escalation step per response time.
        let steps = (1..)
            .zip(&self.escalate)
            .filter(|(times, _)| now.since(since) >= severity.response_time().saturating_mul(*times));
        let mut receivers: Vec<&str> = self.to.iter().map(String::as_str).collect();
        receivers.extend(steps.map(|(_, receiver)| receiver.as_str()));
        let mut notified = Vec::new();
        let mut notices = Vec::new();
        for receiver in receivers {
            if notified.contains(&receiver) || !gates.accepts(receiver, severity) {
                continue;
            }
            notified.push(receiver);
            let routes = &mut self.memory.routes;
            notices.extend(notify::firing(&self.header, firing, receiver, routes, gates, now));
        }
        notices
    }

    /// Worst first.
    fn subjects(&self, state: AlertState) -> Vec<AlertSubject> {
        let wanted = |subject_state: &&SubjectState| match state {
            AlertState::Firing => subject_state.is_firing(),
            AlertState::Pending | AlertState::Quiet => true,
        };
        let mut found: Vec<(&String, &SubjectState)> =
            self.memory.subject_states.iter().filter(|(_, subject_state)| wanted(subject_state)).collect();
        found.sort_by(|(one_of, one), (other_of, other)| {
            value::worst_first(&self.condition, one.value, other.value).then_with(|| one_of.cmp(other_of))
        });
        let subject = |(of, subject_state): (&String, &SubjectState)| AlertSubject {
            of: of.clone(),
            value: value::show_with(&self.condition, subject_state.value, subject_state.why.as_deref()),
            since: subject_state.since,
        };
        found.into_iter().map(subject).collect()
    }

    fn view(&self) -> AlertView {
        let memory = &self.memory;
        let state = match memory.firing_since {
            Some(_) => AlertState::Firing,
            None if memory.subject_states.is_empty() => AlertState::Quiet,
            None => AlertState::Pending,
        };
        let mut subjects = self.subjects(state);
        let more = subjects.len().saturating_sub(limits::ALERT_SUBJECTS_SHOWN_MAX);
        subjects.truncate(limits::ALERT_SUBJECTS_SHOWN_MAX);
        // A firing alert shows the value of its subject.
        let value = match (subjects.first(), self.condition.metric) {
            (Some(worst), _) => Some(worst.value.clone()),
            (None, AlertMetric::Incident(_)) => None,
            (None, _) => self.last.map(|last| value::show(&self.condition, last)),
        };
        let pending_since = memory.subject_states.values().map(|subject_state| subject_state.since).min();
        AlertView {
            name: self.header.name.clone(),
            when: self.header.condition.clone(),
            severity: self.header.severity.as_str().to_owned(),
            to: self.to.clone(),
            escalate: self.escalate.clone(),
            action: self.header.action.clone(),
            line: (self.line > 0).then_some(self.line),
            covers: self.header.covers.clone(),
            state,
            since: memory.firing_since.or(pending_since),
            value,
            subjects,
            more: more as u64,
            told: memory.routes.values().map(|route| route.sent).sum(),
            last_told_at: memory.routes.values().filter_map(|route| route.last_at).max(),
        }
    }
}

#[cfg(test)]
mod tests;

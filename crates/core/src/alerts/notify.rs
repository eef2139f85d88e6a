//! Who is told what, and when: what is owed to a receiver follows from where the alert stands and from what the
//! receiver was told before. There is no list of messages to send, so that nothing can pile up or get lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::notice::{AlertNotice, AlertStage, AlertSubject};
use crate::book::connectors::NoticeDetail;
use crate::book::expression::Hours;
use crate::book::model::{AlertSeverity, Receiver};
use crate::limits;
use crate::text;
use crate::time::Timestamp;

/// What a message says of an alert, whatever its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AlertHeader {
    pub(super) name: String,
    pub(super) covers: Option<String>,
    pub(super) severity: SavedSeverity,
    pub(super) condition: String,
    pub(super) action: Option<String>,
}

/// A severity that can be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct SavedSeverity(pub(super) AlertSeverity);

impl From<SavedSeverity> for String {
    fn from(severity: SavedSeverity) -> Self {
        severity.0.as_str().to_owned()
    }
}

impl TryFrom<String> for SavedSeverity {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        AlertSeverity::parse(&text).map(Self).ok_or_else(|| format!("unknown severity `{text}`"))
    }
}

/// What one receiver was told of one alert since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReceiverState {
    /// When the alert began, as far as this receiver is concerned.
    pub(super) since: Timestamp,
    /// How often it was told.
    pub(super) told: u32,
    /// When it was told last; never if there were too many messages so far.
    pub(super) last_at: Option<Timestamp>,
    /// What it was told of that still fires.
    subjects: BTreeSet<String>,
    /// What it was told of that has ended since, if it is to be told so; see [`NoticeDetail`].
    #[serde(default)]
    ended: BTreeSet<String>,
    /// When the alert was over, if the receiver is still to be told so.
    over_at: Option<Timestamp>,
}

/// What stands between an alert and a receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiverGates {
    receivers: BTreeMap<String, ReceiverGate>,
    /// When each was told lately.
    spent: BTreeMap<String, Vec<Timestamp>>,
}

#[derive(Clone, Debug)]
struct ReceiverGate {
    hours: Option<Hours>,
    least: Option<AlertSeverity>,
    detail: NoticeDetail,
}

impl NoticeDetail {
    /// How many things a message names.
    const fn named_max(self) -> usize {
        match self {
            Self::Worst => limits::ALERT_SUBJECTS_SHOWN_MAX,
            Self::Each => usize::MAX,
        }
    }
}

impl ReceiverGates {
    /// The receivers of a book; what was spent before stays spent.
    pub(super) fn change<'a>(&mut self, receivers: impl Iterator<Item = (&'a String, &'a Receiver)>) {
        let gate = |receiver: &Receiver| ReceiverGate {
            hours: receiver.hours.clone(),
            least: receiver.severity,
            detail: receiver.endpoint.connector.detail,
        };
        self.receivers = receivers.map(|(name, receiver)| (name.clone(), gate(receiver))).collect();
        self.spent.retain(|name, _| self.receivers.contains_key(name));
    }

    pub(super) const fn spent(&self) -> &BTreeMap<String, Vec<Timestamp>> {
        &self.spent
    }

    pub(super) fn restore(&mut self, spent: BTreeMap<String, Vec<Timestamp>>) {
        self.spent = spent;
        self.spent.retain(|name, _| self.receivers.contains_key(name));
    }

    /// Whether there is such a receiver, and it is told of alerts of that severity.
    pub(super) fn hears(&self, receiver: &str, severity: AlertSeverity) -> bool {
        self.receivers.get(receiver).is_some_and(|gate| gate.least.is_none_or(|least| severity >= least))
    }

    fn detail(&self, receiver: &str) -> NoticeDetail {
        self.receivers.get(receiver).map_or(NoticeDetail::Worst, |gate| gate.detail)
    }

    fn is_open(&self, receiver: &str, now: Timestamp) -> bool {
        let gate = self.receivers.get(receiver);
        gate.is_some_and(|gate| gate.hours.as_ref().is_none_or(|hours| hours.contain(now)))
    }

    /// Takes one of the messages that a receiver may get in a time, if there is one left.
    fn take(&mut self, receiver: &str, now: Timestamp) -> Option<()> {
        let spent = self.spent.entry(receiver.to_owned()).or_default();
        spent.retain(|at| now.since(*at) < limits::ALERT_NOTICES_WITHIN && *at <= now);
        (spent.len() < limits::ALERT_NOTICES_MAX).then(|| spent.push(now))
    }
}

/// An alert that fires, as far as telling is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Firing<'a> {
    /// Since when.
    pub(super) since: Timestamp,
    /// For what: the worst first.
    pub(super) subjects: &'a [AlertSubject],
    /// How often it is said again.
    pub(super) repeat: Duration,
}

/// What is owed to a receiver now.
struct DueNotice {
    stage: AlertStage,
    subjects: Vec<AlertSubject>,
    ended: Vec<AlertSubject>,
    /// How many of the subjects are named.
    named_max: usize,
}

/// What a receiver of an alert that fires is to be told now, if anything. Its route is there from then on, even
/// if it cannot be told yet.
pub(super) fn firing(
    face: &AlertHeader,
    firing: Firing<'_>,
    receiver: &str,
    routes: &mut BTreeMap<String, ReceiverState>,
    gates: &mut ReceiverGates,
    now: Timestamp,
) -> Option<AlertNotice> {
    let detail = gates.detail(receiver);
    if let Some(route) = routes.get_mut(receiver) {
        // It came back before anybody was told that it was over: that is one trouble.
        route.over_at = None;
        route.part_with_what_ended(firing.subjects, detail);
    }
    let owed = owed(firing, routes.get(receiver), detail, now)?;
    if !gates.is_open(receiver, now) {
        // Whoever is away is told of what still fires when they are back.
        return None;
    }
    let route = routes.entry(receiver.to_owned()).or_insert_with(|| ReceiverState::begun(firing.since));
    gates.take(receiver, now)?;
    let notice = notice(face, &owed, receiver, route, now);
    route.told = route.told.saturating_add(1);
    route.last_at = Some(now);
    route.subjects.extend(firing.subjects.iter().map(|subject| subject.of.clone()));
    route.ended.clear();
    Some(notice)
}

impl ReceiverState {
    const fn begun(since: Timestamp) -> Self {
        Self {
            since,
            told: 0,
            last_at: None,
            subjects: BTreeSet::new(),
            ended: BTreeSet::new(),
            over_at: None,
        }
    }

    /// What fires no more is news when it fires again.
    fn part_with_what_ended(&mut self, firing: &[AlertSubject], detail: NoticeDetail) {
        let still: BTreeSet<&str> = firing.iter().map(|subject| subject.of.as_str()).collect();
        let ended = self.subjects.extract_if(.., |of| !still.contains(of.as_str()));
        if detail == NoticeDetail::Each {
            self.ended.extend(ended);
        } else {
            ended.for_each(drop);
        }
        self.ended.retain(|of| !still.contains(of.as_str()));
        while self.ended.len() > limits::ALERT_GROUPS_MAX {
            // While nothing can be said, names that come and go for ever must not pile up.
            self.ended.pop_first();
        }
    }

    /// Things that are over, as a message names them.
    fn over<'a>(&self, names: impl Iterator<Item = &'a String>) -> Vec<AlertSubject> {
        let since = self.since;
        names.map(|of| AlertSubject { of: of.clone(), value: String::new(), since }).collect()
    }
}

fn owed(firing: Firing<'_>, route: Option<&ReceiverState>, detail: NoticeDetail, now: Timestamp) -> Option<DueNotice> {
    let told = route.and_then(|route| Some((route, route.last_at?)));
    let owed = |stage, subjects| {
        let ended = route.map(|route| route.over(route.ended.iter())).unwrap_or_default();
        Some(DueNotice { stage, subjects, ended, named_max: detail.named_max() })
    };
    let Some((route, last_at)) = told else { return owed(AlertStage::Firing, firing.subjects.to_vec()) };
    if now.since(last_at) >= firing.repeat {
        return owed(AlertStage::Repeated, firing.subjects.to_vec());
    }
    if now.since(last_at) < limits::ALERT_FURTHER_EVERY {
        return None;
    }
    let is_new = |subject: &&AlertSubject| !route.subjects.contains(&subject.of);
    let further: Vec<AlertSubject> = firing.subjects.iter().filter(is_new).cloned().collect();
    if further.is_empty() && route.ended.is_empty() {
        return None;
    }
    owed(AlertStage::Firing, if detail == NoticeDetail::Each { firing.subjects.to_vec() } else { further })
}

/// Tells everybody who was told of an alert, or should have been, that it is over.
pub(super) fn over(
    face: &AlertHeader,
    routes: &mut BTreeMap<String, ReceiverState>,
    gates: &mut ReceiverGates,
    now: Timestamp,
) -> Vec<AlertNotice> {
    // Nobody can tell a receiver that the book does not know any more.
    routes.retain(|receiver, _| gates.receivers.contains_key(receiver));
    let mut notices = Vec::new();
    routes.retain(|receiver, route| {
        route.over_at.get_or_insert(now);
        if !gates.is_open(receiver, now) || gates.take(receiver, now).is_none() {
            return true;
        }
        let subjects = route.over(route.subjects.iter().chain(&route.ended));
        let named_max = gates.detail(receiver).named_max();
        let owed = DueNotice { stage: AlertStage::Resolved, subjects, ended: Vec::new(), named_max };
        notices.push(notice(face, &owed, receiver, route, now));
        false
    });
    notices
}

fn notice(face: &AlertHeader, owed: &DueNotice, receiver: &str, route: &ReceiverState, now: Timestamp) -> AlertNotice {
    let shown = owed.named_max.min(owed.subjects.len());
    AlertNotice {
        alert: face.name.clone(),
        covers: face.covers.clone(),
        severity: face.severity.0.as_str().to_owned(),
        stage: owed.stage,
        receiver: receiver.to_owned(),
        since: route.since,
        at: now,
        told_before: route.told,
        summary: summary(face, owed, route, now),
        condition: face.condition.clone(),
        subjects: owed.subjects[..shown].to_vec(),
        more: (owed.subjects.len() - shown) as u64,
        ended: owed.ended.clone(),
        action: face.action.clone(),
    }
}

/// One line: what, for which of several, how bad, and for how long.
fn summary(face: &AlertHeader, owed: &DueNotice, route: &ReceiverState, now: Timestamp) -> String {
    let mut line = face.name.clone();
    if let Some(covers) = &face.covers {
        line.push_str(&format!(" of {covers}"));
    }
    let lasted = text::show_rounded(route.over_at.unwrap_or(now).since(route.since));
    if owed.stage == AlertStage::Resolved {
        return format!("{line} resolved after {lasted}");
    }
    if let Some(worst) = owed.subjects.first() {
        let of = if worst.of.is_empty() { String::new() } else { format!("{} is ", worst.of) };
        line.push_str(&format!(": {of}{}", worst.value));
    }
    match owed.subjects.len().saturating_sub(1) {
        0 => {}
        more => line.push_str(&format!(", and {more} more")),
    }
    if owed.stage == AlertStage::Repeated {
        line.push_str(&format!(", firing for {lasted}"));
    }
    line
}

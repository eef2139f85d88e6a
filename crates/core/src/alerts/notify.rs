//! Decides which notices are due. A due notice follows from the alert's state and the receiver's earlier
//! notices; there is no queue of messages that could grow or get lost.

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

/// The parts of a notice that do not depend on the alert's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AlertHeader {
    pub(super) name: String,
    pub(super) covers: Option<String>,
    pub(super) severity: AlertSeverity,
    pub(super) condition: String,
    pub(super) action: Option<String>,
}

/// What one receiver has been notified of since the alert started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReceiverState {
    pub(super) since: Timestamp,
    #[serde(rename = "told")]
    pub(super) sent: u32,
    /// `None` while the rate limit has held back every notice.
    pub(super) last_at: Option<Timestamp>,
    /// Notified subjects that still fire.
    subjects: BTreeSet<String>,
    /// Notified subjects that have ended, if the receiver wants them; see [`NoticeDetail`].
    #[serde(default)]
    ended: BTreeSet<String>,
    /// When the alert ended, if that is still to be sent.
    over_at: Option<Timestamp>,
}

/// Hours, severity and rate limit of each receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceiverGates {
    receivers: BTreeMap<String, ReceiverGate>,
    /// Times of recent notices.
    spent: BTreeMap<String, Vec<Timestamp>>,
}

#[derive(Clone, Debug)]
struct ReceiverGate {
    hours: Option<Hours>,
    least: Option<AlertSeverity>,
    detail: NoticeDetail,
}

impl NoticeDetail {
    const fn named_max(self) -> usize {
        match self {
            Self::Worst => limits::ALERT_SUBJECTS_SHOWN_MAX,
            Self::Each => usize::MAX,
        }
    }
}

impl ReceiverGates {
    /// Takes the receivers of a book; recent notices still count against the rate limit.
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

    /// Whether the receiver exists and takes alerts of this severity.
    pub(super) fn accepts(&self, receiver: &str, severity: AlertSeverity) -> bool {
        self.receivers.get(receiver).is_some_and(|gate| gate.least.is_none_or(|least| severity >= least))
    }

    fn detail(&self, receiver: &str) -> NoticeDetail {
        self.receivers.get(receiver).map_or(NoticeDetail::Worst, |gate| gate.detail)
    }

    fn is_open(&self, receiver: &str, now: Timestamp) -> bool {
        let gate = self.receivers.get(receiver);
        gate.is_some_and(|gate| gate.hours.as_ref().is_none_or(|hours| hours.contain(now)))
    }

    /// Takes one notice from the rate limit; `None` if it is used up.
    fn take(&mut self, receiver: &str, now: Timestamp) -> Option<()> {
        let spent = self.spent.entry(receiver.to_owned()).or_default();
        spent.retain(|at| now.since(*at) < limits::ALERT_NOTICES_WITHIN && *at <= now);
        (spent.len() < limits::ALERT_NOTICES_MAX).then(|| spent.push(now))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Firing<'a> {
    pub(super) since: Timestamp,
    /// Worst first.
    pub(super) subjects: &'a [AlertSubject],
    pub(super) repeat: Duration,
}

struct DueNotice {
    stage: AlertStage,
    subjects: Vec<AlertSubject>,
    ended: Vec<AlertSubject>,
    named_max: usize,
}

/// The notice due to one receiver of a firing alert, if any. Creates the receiver's state even if nothing can
/// be sent yet.
pub(super) fn firing(
    header: &AlertHeader,
    firing: Firing<'_>,
    receiver: &str,
    routes: &mut BTreeMap<String, ReceiverState>,
    gates: &mut ReceiverGates,
    now: Timestamp,
) -> Option<AlertNotice> {
    let detail = gates.detail(receiver);
    if let Some(route) = routes.get_mut(receiver) {
        // It fired again before "resolved" was sent: the same alert continues.
        route.over_at = None;
        route.part_with_what_ended(firing.subjects, detail);
    }
    let due = due(firing, routes.get(receiver), detail, now)?;
    if !gates.is_open(receiver, now) {
        // Outside its hours a receiver is notified later of what still fires.
        return None;
    }
    let route = routes.entry(receiver.to_owned()).or_insert_with(|| ReceiverState::begun(firing.since));
    gates.take(receiver, now)?;
    let notice = notice(header, &due, receiver, route, now);
    route.sent = route.sent.saturating_add(1);
    route.last_at = Some(now);
    route.subjects.extend(firing.subjects.iter().map(|subject| subject.of.clone()));
    route.ended.clear();
    Some(notice)
}

impl ReceiverState {
    const fn begun(since: Timestamp) -> Self {
        Self {
            since,
            sent: 0,
            last_at: None,
            subjects: BTreeSet::new(),
            ended: BTreeSet::new(),
            over_at: None,
        }
    }

    /// Forgets ended subjects, so that they are reported when they fire again.
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
            // Bounded while nothing can be sent.
            self.ended.pop_first();
        }
    }

    fn over<'a>(&self, names: impl Iterator<Item = &'a String>) -> Vec<AlertSubject> {
        let since = self.since;
        names.map(|of| AlertSubject { of: of.clone(), value: String::new(), since }).collect()
    }
}

fn due(
    firing: Firing<'_>,
    route: Option<&ReceiverState>,
    detail: NoticeDetail,
    now: Timestamp,
) -> Option<DueNotice> {
    let notified = route.and_then(|route| Some((route, route.last_at?)));
    let due = |stage, subjects| {
        let ended = route.map(|route| route.over(route.ended.iter())).unwrap_or_default();
        Some(DueNotice { stage, subjects, ended, named_max: detail.named_max() })
    };
    let Some((route, last_at)) = notified else { return due(AlertStage::Firing, firing.subjects.to_vec()) };
    if now.since(last_at) >= firing.repeat {
        return due(AlertStage::Repeated, firing.subjects.to_vec());
    }
    if now.since(last_at) < limits::ALERT_FURTHER_EVERY {
        return None;
    }
    let is_new = |subject: &&AlertSubject| !route.subjects.contains(&subject.of);
    let further: Vec<AlertSubject> = firing.subjects.iter().filter(is_new).cloned().collect();
    if further.is_empty() && route.ended.is_empty() {
        return None;
    }
    due(AlertStage::Firing, if detail == NoticeDetail::Each { firing.subjects.to_vec() } else { further })
}

/// Sends "resolved" to every receiver that was, or should have been, notified.
pub(super) fn over(
    header: &AlertHeader,
    routes: &mut BTreeMap<String, ReceiverState>,
    gates: &mut ReceiverGates,
    now: Timestamp,
) -> Vec<AlertNotice> {
    // The book no longer has this receiver.
    routes.retain(|receiver, _| gates.receivers.contains_key(receiver));
    let mut notices = Vec::new();
    routes.retain(|receiver, route| {
        route.over_at.get_or_insert(now);
        if !gates.is_open(receiver, now) || gates.take(receiver, now).is_none() {
            return true;
        }
        let subjects = route.over(route.subjects.iter().chain(&route.ended));
        let named_max = gates.detail(receiver).named_max();
        let due = DueNotice { stage: AlertStage::Resolved, subjects, ended: Vec::new(), named_max };
        notices.push(notice(header, &due, receiver, route, now));
        false
    });
    notices
}

fn notice(
    header: &AlertHeader,
    due: &DueNotice,
    receiver: &str,
    route: &ReceiverState,
    now: Timestamp,
) -> AlertNotice {
    let shown = due.named_max.min(due.subjects.len());
    AlertNotice {
        alert: header.name.clone(),
        covers: header.covers.clone(),
        severity: header.severity.as_str().to_owned(),
        stage: due.stage,
        receiver: receiver.to_owned(),
        since: route.since,
        at: now,
        told_before: route.sent,
        summary: summary(header, due, route, now),
        condition: header.condition.clone(),
        subjects: due.subjects[..shown].to_vec(),
        more: (due.subjects.len() - shown) as u64,
        ended: due.ended.clone(),
        action: header.action.clone(),
    }
}

/// What, for which subject, how bad, and for how long.
fn summary(header: &AlertHeader, due: &DueNotice, route: &ReceiverState, now: Timestamp) -> String {
    let mut line = header.name.clone();
    if let Some(covers) = &header.covers {
        line.push_str(&format!(" of {covers}"));
    }
    let lasted = text::show_rounded(route.over_at.unwrap_or(now).since(route.since));
    if due.stage == AlertStage::Resolved {
        return format!("{line} resolved after {lasted}");
    }
    if let Some(worst) = due.subjects.first() {
        let of = if worst.of.is_empty() { String::new() } else { format!("{} is ", worst.of) };
        line.push_str(&format!(": {of}{}", worst.value));
    }
    match due.subjects.len().saturating_sub(1) {
        0 => {}
        more => line.push_str(&format!(", and {more} more")),
    }
    if due.stage == AlertStage::Repeated {
        line.push_str(&format!(", firing for {lasted}"));
    }
    line
}

//! Incidents: problems that raise an alert at once, without a threshold.
//!
//! An incident is momentary, such as a target that refuses our credentials, or a state, such as a secret
//! without a value. A state lasts until its reporter ends it; a momentary one counts until the next evaluation,
//! and its alert is resolved after [`limits::TROUBLE_LASTS`] without another.
//!
//! Invariant: memory is bounded, whatever names are reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OWN_SERVICE;
use crate::engine::QueueName;
use crate::limits;
use crate::policy::category::codes;
use crate::policy::decide::AlertKind;
use crate::time::Timestamp;

/// Code of a dead letter whose event differs from what was accepted.
pub const DAMAGED: &str = codes::DAMAGED;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incident {
    /// A target refused our credentials, and the rule book makes that fatal.
    CredentialsRefused,
    /// Here or at a target.
    Misconfigured,
    InternalFailure,
    /// A policy with `alert_when_exhausted` ran out of retries.
    PolicyExhausted,
    EventDamaged,
    ServiceRemoved,
    SecretGone,
    /// The archive accepts no writes; events wait for it.
    ArchiveStuck,
    /// An event is missing from the archive.
    ArchiveIncomplete,
    IssuerGone,
    CertificateRefused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentEnd {
    /// By itself, after some time without another.
    Expires,
    UntilOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentScope {
    Service,
    Secret,
    Process,
}

impl Incident {
    pub const ALL: [Self; 11] = [
        Self::CredentialsRefused,
        Self::Misconfigured,
        Self::InternalFailure,
        Self::PolicyExhausted,
        Self::EventDamaged,
        Self::ServiceRemoved,
        Self::SecretGone,
        Self::ArchiveStuck,
        Self::ArchiveIncomplete,
        Self::IssuerGone,
        Self::CertificateRefused,
    ];

    #[must_use]
    pub const fn lasts(self) -> IncidentEnd {
        self.facts().0
    }

    #[must_use]
    pub const fn concerns(self) -> IncidentScope {
        self.facts().1
    }

    /// The subject when it has no name of its own.
    pub(super) const fn subject(self) -> &'static str {
        self.facts().2
    }

    /// Follows the subject's name and "is".
    pub(super) const fn words(self) -> &'static str {
        self.facts().3
    }

    #[rustfmt::skip]
    const fn facts(self) -> (IncidentEnd, IncidentScope, &'static str, &'static str) {
        use IncidentScope::{Process, Secret, Service};
        use IncidentEnd::{Expires, UntilOver};
        match self {
            Self::CredentialsRefused => (Expires,    Service, "service",     "refused by its target for its credentials"),
            Self::Misconfigured =>      (Expires,    Service, "service",     "configured wrongly, here or at its target"),
            Self::InternalFailure =>    (Expires,    Service, "service",     "failing inside Redrive"),
            Self::PolicyExhausted =>    (Expires,    Service, "service",     "out of retries"),
            Self::EventDamaged =>       (Expires,    Service, "service",     "receiving an event that is damaged in the store"),
            Self::ServiceRemoved =>     (UntilOver, Service, "service",     "removed from the rule book, wholly or in part, and deliveries wait for it"),
            Self::SecretGone =>         (UntilOver, Secret,  "secret",      "without a value"),
            Self::ArchiveStuck =>       (UntilOver, Process, "archive",     "not accepting writes; events wait for it"),
            Self::ArchiveIncomplete =>  (Expires,    Process, "archive",     "missing an event"),
            Self::IssuerGone =>         (UntilOver, Process, "issuer",      "without keys, and tokens are refused"),
            Self::CertificateRefused => (UntilOver, Process, "certificate", "refused; the old one stays in use"),
        }
    }
}

impl From<AlertKind> for Incident {
    fn from(kind: AlertKind) -> Self {
        match kind {
            AlertKind::Security => Self::CredentialsRefused,
            AlertKind::Configuration => Self::Misconfigured,
            AlertKind::Exhausted => Self::PolicyExhausted,
            AlertKind::Internal => Self::InternalFailure,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentSample {
    pub incident: Incident,
    /// For incidents of a service.
    pub queue: Option<Arc<QueueName>>,
    /// The secret's name; empty where there is only one subject.
    pub about: String,
    pub why: String,
    pub last_at: Timestamp,
    pub count: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Incidents {
    known: BTreeMap<(Incident, String), IncidentSample>,
}

impl Incidents {
    /// For a secret or the process.
    pub fn raise(&mut self, incident: Incident, about: &str, why: &str, now: Timestamp) {
        self.add(incident, None, about.to_owned(), why, now);
    }

    /// For a queue. Incidents of the alert service itself are ignored.
    pub fn raise_of(&mut self, incident: Incident, queue: &Arc<QueueName>, why: &str, now: Timestamp) {
        if queue.service.as_str() != OWN_SERVICE {
            self.add(incident, Some(Arc::clone(queue)), queue.to_string(), why, now);
        }
    }

    fn add(
        &mut self,
        incident: Incident,
        queue: Option<Arc<QueueName>>,
        about: String,
        why: &str,
        now: Timestamp,
    ) {
        self.forget(now);
        let key = (incident, about);
        if !self.known.contains_key(&key) && self.known.len() >= limits::TROUBLES_MAX {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last_at).map(|(key, _)| key.clone());
            self.known.remove(&oldest.expect("there are many"));
        }
        let about = key.1.clone();
        let known = self.known.entry(key).or_insert_with(|| IncidentSample {
            incident,
            queue,
            about,
            why: String::new(),
            last_at: now,
            count: 0,
        });
        known.count = known.count.saturating_add(1);
        known.last_at = now;
        known.why.clear();
        known.why.extend(why.chars().take(limits::TROUBLE_WHY_CHARS_MAX));
    }

    pub fn clear(&mut self, incident: Incident, about: &str) {
        self.known.remove(&(incident, about.to_owned()));
    }

    pub fn samples(&mut self, now: Timestamp) -> Vec<IncidentSample> {
        self.forget(now);
        self.known.values().cloned().collect()
    }

    fn forget(&mut self, now: Timestamp) {
        self.known.retain(|(incident, _), known| match incident.lasts() {
            IncidentEnd::UntilOver => true,
            IncidentEnd::Expires => now.since(known.last_at) < limits::TROUBLE_LASTS,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::ServiceName;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + secs * 1_000)
    }

    fn queue(service: &str) -> Arc<QueueName> {
        Arc::new(QueueName { service: ServiceName::new(service).expect("a name"), channel: None })
    }

    #[test]
    fn moments_pass_and_states_stay_until_they_are_over() {
        let mut incidents = Incidents::default();
        for second in 0..10_000 {
            incidents.raise_of(Incident::CredentialsRefused, &queue("s"), "HTTP_401", at(second / 1_000));
        }
        incidents.raise(Incident::SecretGone, "signing", "it is not there", at(0));
        let samples = incidents.samples(at(10));
        assert_eq!(samples.len(), 2, "many of a kind are one");
        assert_eq!((samples[0].count, samples[0].last_at), (10_000, at(9)));
        let later = at(9) + limits::TROUBLE_LASTS;
        let left: Vec<Incident> = incidents.samples(later).iter().map(|sample| sample.incident).collect();
        assert_eq!(left, [Incident::SecretGone]);
        incidents.clear(Incident::SecretGone, "signing");
        assert_eq!(incidents.samples(later + Duration::from_secs(1)), []);
    }

    #[test]
    fn telling_of_alerts_is_no_trouble_and_names_without_end_find_an_end() {
        let mut incidents = Incidents::default();
        incidents.raise_of(Incident::CredentialsRefused, &queue(OWN_SERVICE), "HTTP_401", at(0));
        assert_eq!(incidents.samples(at(0)), []);
        let many = limits::TROUBLES_MAX as u64 + 10;
        for place in 0..many {
            incidents.raise(Incident::SecretGone, &format!("s{place}"), &"x".repeat(9_999), at(place));
        }
        let samples = incidents.samples(at(many));
        assert_eq!(samples.len(), limits::TROUBLES_MAX);
        assert!(samples.iter().all(|sample| sample.why.len() == limits::TROUBLE_WHY_CHARS_MAX));
        assert!(samples.iter().any(|sample| sample.about == format!("s{}", many - 1)), "the latest stays");
    }
}

//! Troubles that people are told of at once: what the engine or a door finds, with no figure to wait for.
//!
//! A trouble is a moment, such as a target that refuses our credentials, or a state, such as a secret without a
//! value. A state lasts until whoever found it says that it is over; a moment counts until the next look, and the
//! alert for it is over when there was no further one for [`limits::TROUBLE_LASTS`].
//!
//! Invariant: memory is bounded, whatever names come by.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::OWN_SERVICE;
use crate::engine::QueueName;
use crate::limits;
use crate::policy::category::codes;
use crate::policy::decide::AlertKind;
use crate::time::Timestamp;

/// The code of a dead letter whose event is not what was accepted.
pub const DAMAGED: &str = codes::DAMAGED;

/// What people are told of at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incident {
    /// A target refuses our credentials, and by the rule book that is fatal.
    CredentialsRefused,
    /// Something is configured wrongly, here or at a target.
    Misconfigured,
    /// Redrive itself failed.
    InternalFailure,
    /// The retries of a policy ran out that wants that known (`alert_when_exhausted`).
    PolicyExhausted,
    /// A stored event is not what was accepted.
    EventDamaged,
    /// Deliveries wait for a service that the rule book does not have any more.
    ServiceRemoved,
    /// A secret has no value.
    SecretGone,
    /// The archive takes nothing, and events wait for it.
    ArchiveStuck,
    /// An event is left out of the archive.
    ArchiveIncomplete,
    /// The keys of the issuer of tokens cannot be had.
    IssuerGone,
    /// A new certificate cannot be used.
    CertificateRefused,
}

/// How a trouble ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentEnd {
    /// By itself, when it has not happened again for a while.
    AWhile,
    /// When whoever found it says so.
    UntilOver,
}

/// What a trouble is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentScope {
    /// The deliveries of a service.
    Service,
    /// A secret.
    Secret,
    /// The process as a whole.
    Process,
}

impl Incident {
    /// All of them.
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

    /// How it ends.
    #[must_use]
    pub const fn lasts(self) -> IncidentEnd {
        self.facts().0
    }

    /// What it is about.
    #[must_use]
    pub const fn concerns(self) -> IncidentScope {
        self.facts().1
    }

    /// What it is about where it has no name of its own.
    pub(super) const fn subject(self) -> &'static str {
        self.facts().2
    }

    /// What is so, to be read after the name of what it is about and "is".
    pub(super) const fn words(self) -> &'static str {
        self.facts().3
    }

    #[rustfmt::skip]
    const fn facts(self) -> (IncidentEnd, IncidentScope, &'static str, &'static str) {
        use IncidentScope::{Process, Secret, Service};
        use IncidentEnd::{AWhile, UntilOver};
        match self {
            Self::CredentialsRefused => (AWhile,    Service, "service",     "refused by its target for its credentials"),
            Self::Misconfigured =>      (AWhile,    Service, "service",     "configured wrongly, here or at its target"),
            Self::InternalFailure =>    (AWhile,    Service, "service",     "failing inside Redrive"),
            Self::PolicyExhausted =>    (AWhile,    Service, "service",     "out of retries"),
            Self::EventDamaged =>       (AWhile,    Service, "service",     "receiving an event that is damaged in the store"),
            Self::ServiceRemoved =>     (UntilOver, Service, "service",     "removed from the rule book, wholly or in part, and deliveries wait for it"),
            Self::SecretGone =>         (UntilOver, Secret,  "secret",      "without a value"),
            Self::ArchiveStuck =>       (UntilOver, Process, "archive",     "not accepting writes; events wait for it"),
            Self::ArchiveIncomplete =>  (AWhile,    Process, "archive",     "missing an event"),
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

/// One trouble as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentSample {
    /// What.
    pub trouble: Incident,
    /// Whose deliveries, if it is about those of a service.
    pub queue: Option<Arc<QueueName>>,
    /// The name of the secret; nothing where there is only one of its kind.
    pub about: String,
    /// Why, in words.
    pub why: String,
    /// When it was found last.
    pub last_at: Timestamp,
    /// How often it was found.
    pub count: u64,
}

/// All troubles that were found lately, or last.
#[derive(Clone, Debug, Default)]
pub struct Incidents {
    known: BTreeMap<(Incident, String), IncidentSample>,
}

impl Incidents {
    /// Something was found that concerns a secret or the process.
    pub fn raise(&mut self, trouble: Incident, about: &str, why: &str, now: Timestamp) {
        self.add(trouble, None, about.to_owned(), why, now);
    }

    /// Something was found of the deliveries of a queue. Of those that tell people of alerts nothing is said.
    pub fn raise_of(&mut self, trouble: Incident, queue: &Arc<QueueName>, why: &str, now: Timestamp) {
        if queue.service.as_str() != OWN_SERVICE {
            self.add(trouble, Some(Arc::clone(queue)), queue.to_string(), why, now);
        }
    }

    fn add(
        &mut self,
        trouble: Incident,
        queue: Option<Arc<QueueName>>,
        about: String,
        why: &str,
        now: Timestamp,
    ) {
        self.forget(now);
        let key = (trouble, about);
        if !self.known.contains_key(&key) && self.known.len() >= limits::TROUBLES_MAX {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last_at).map(|(key, _)| key.clone());
            self.known.remove(&oldest.expect("there are many"));
        }
        let about = key.1.clone();
        let known = self.known.entry(key).or_insert_with(|| IncidentSample {
            trouble,
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

    /// It is over.
    pub fn clear(&mut self, trouble: Incident, about: &str) {
        self.known.remove(&(trouble, about.to_owned()));
    }

    /// All that there are.
    pub fn samples(&mut self, now: Timestamp) -> Vec<IncidentSample> {
        self.forget(now);
        self.known.values().cloned().collect()
    }

    fn forget(&mut self, now: Timestamp) {
        self.known.retain(|(trouble, _), known| match trouble.lasts() {
            IncidentEnd::UntilOver => true,
            IncidentEnd::AWhile => now.since(known.last_at) < limits::TROUBLE_LASTS,
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
        let mut troubles = Incidents::default();
        for second in 0..10_000 {
            troubles.raise_of(Incident::CredentialsRefused, &queue("s"), "HTTP_401", at(second / 1_000));
        }
        troubles.raise(Incident::SecretGone, "signing", "it is not there", at(0));
        let samples = troubles.samples(at(10));
        assert_eq!(samples.len(), 2, "many of a kind are one");
        assert_eq!((samples[0].count, samples[0].last_at), (10_000, at(9)));
        let later = at(9) + limits::TROUBLE_LASTS;
        let left: Vec<Incident> = troubles.samples(later).iter().map(|sample| sample.trouble).collect();
        assert_eq!(left, [Incident::SecretGone]);
        troubles.clear(Incident::SecretGone, "signing");
        assert_eq!(troubles.samples(later + Duration::from_secs(1)), []);
    }

    #[test]
    fn telling_of_alerts_is_no_trouble_and_names_without_end_find_an_end() {
        let mut troubles = Incidents::default();
        troubles.raise_of(Incident::CredentialsRefused, &queue(OWN_SERVICE), "HTTP_401", at(0));
        assert_eq!(troubles.samples(at(0)), []);
        let many = limits::TROUBLES_MAX as u64 + 10;
        for place in 0..many {
            troubles.raise(Incident::SecretGone, &format!("s{place}"), &"x".repeat(9_999), at(place));
        }
        let samples = troubles.samples(at(many));
        assert_eq!(samples.len(), limits::TROUBLES_MAX);
        assert!(samples.iter().all(|sample| sample.why.len() == limits::TROUBLE_WHY_CHARS_MAX));
        assert!(samples.iter().any(|sample| sample.about == format!("s{}", many - 1)), "the latest stays");
    }
}

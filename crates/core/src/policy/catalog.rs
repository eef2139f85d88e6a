//! What every rule book may name without defining it: retry policies, breakers, kinds and timeouts.
//!
//! Invariant: these are tables. An entry never changes once released, since books rely on it by name; what a
//! book states itself always wins.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use crate::policy::backoff::{Backoff, Jitter, RawBackoff, RawSchedule};
use crate::policy::breaker::{CountingUnit, RawBreaker, Trip};
use crate::policy::category::Category;
use crate::text::Share;

#[derive(Clone, Debug, PartialEq)]
pub struct CatalogPolicy {
    pub name: &'static str,
    pub backoff: Backoff,
    pub alert_on_exhaustion: bool,
}

#[must_use]
pub fn policies() -> &'static [CatalogPolicy] {
    static POLICIES: LazyLock<Vec<CatalogPolicy>> =
        LazyLock::new(|| POLICY_ROWS.iter().map(PolicyRow::policy).collect());
    &POLICIES
}

#[must_use]
pub fn policy(name: &str) -> Option<&'static CatalogPolicy> {
    policies().iter().find(|policy| policy.name == name)
}

/// The policy for failures of category `rate-limited` unless a rule names another.
pub const RATE_LIMITED_POLICY: &str = "upstream";

struct PolicyRow {
    name: &'static str,
    delays: Delays,
    retries: u32,
    window: Option<Duration>,
    jitter: CatalogJitter,
}

enum Delays {
    Never,
    Doubling { initial: Duration, max: Duration },
    Listed(&'static [Duration]),
}

/// A [`Jitter`] that a constant can hold: shares are in percent.
enum CatalogJitter {
    None,
    Equal,
    Plus(Duration),
    Percent(u8),
    By(Duration),
}

const fn doubling(initial: Duration, max: Duration) -> Delays {
    Delays::Doubling { initial, max }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const fn mins(mins: u64) -> Duration {
    Duration::from_secs(60 * mins)
}

const UPSTREAM: &[Duration] = &[secs(5), secs(10), secs(20), secs(60)];

#[rustfmt::skip]
const POLICY_ROWS: [PolicyRow; 10] = [
    PolicyRow { name: "aggressive", delays: doubling(ms(500), secs(5)),   retries: 3,  window: Some(secs(15)), jitter: CatalogJitter::Equal },
    PolicyRow { name: "standard",   delays: doubling(secs(1), secs(30)),  retries: 5,  window: Some(mins(5)),  jitter: CatalogJitter::Equal },
    PolicyRow { name: "patient",    delays: doubling(secs(2), secs(60)),  retries: 8,  window: Some(mins(15)), jitter: CatalogJitter::Equal },
    PolicyRow { name: "critical",   delays: doubling(secs(1), secs(120)), retries: 12, window: Some(mins(30)), jitter: CatalogJitter::Equal },
    PolicyRow { name: "none",       delays: Delays::Never,                retries: 0,  window: None,           jitter: CatalogJitter::None },
    PolicyRow { name: "messaging",  delays: doubling(secs(1), secs(32)),  retries: 3,  window: None,           jitter: CatalogJitter::Plus(ms(500)) },
    PolicyRow { name: "webhook",    delays: doubling(ms(100), secs(16)),  retries: 5,  window: None,           jitter: CatalogJitter::Percent(25) },
    PolicyRow { name: "worker",     delays: doubling(secs(1), secs(4)),   retries: 3,  window: None,           jitter: CatalogJitter::By(ms(100)) },
    PolicyRow { name: "upstream",   delays: Delays::Listed(UPSTREAM),     retries: 5,  window: None,           jitter: CatalogJitter::None },
    PolicyRow { name: "relay",      delays: doubling(secs(1), secs(8)),   retries: 3,  window: None,           jitter: CatalogJitter::Percent(30) },
];

impl PolicyRow {
    fn policy(&self) -> CatalogPolicy {
        let schedule = match self.delays {
            Delays::Never => RawSchedule::Never,
            Delays::Doubling { initial, max } => RawSchedule::Exponential { initial, factor: 2.0, max },
            Delays::Listed(delays) => RawSchedule::Listed(delays.to_vec()),
        };
        let jitter = match self.jitter {
            CatalogJitter::None => Jitter::None,
            CatalogJitter::Equal => Jitter::Equal,
            CatalogJitter::Plus(by) => Jitter::Plus(by),
            CatalogJitter::By(by) => Jitter::SpreadBy(by),
            CatalogJitter::Percent(percent) => {
                Jitter::SpreadShare(Share::new(f64::from(percent) / 100.0).expect("the rows stay below 100"))
            }
        };
        let raw = RawBackoff { schedule, jitter, retries: self.retries, window: self.window };
        let backoff = Backoff::try_from(raw).expect("the rows are sound, as a test reads them all");
        // An exhausted `upstream` policy needs an administrator.
        CatalogPolicy { name: self.name, backoff, alert_on_exhaustion: self.name == "upstream" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogBreaker {
    /// For a kind's default, the kind's word.
    pub name: &'static str,
    pub trip: CatalogTrip,
    pub open: Duration,
    pub probes: u32,
    /// Successes in a row that close it; `None` is as many as the probes.
    pub close_after: Option<u32>,
    pub reset: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogTrip {
    Consecutive(u32),
    Failures { count: u32, within: Duration },
}

const fn consecutive(name: &'static str, failures: u32, open: Duration, probes: u32) -> CatalogBreaker {
    let trip = CatalogTrip::Consecutive(failures);
    CatalogBreaker { name, trip, open, probes, close_after: None, reset: None }
}

impl CatalogBreaker {
    const fn closing_after(self, successes: u32) -> Self {
        Self { close_after: Some(successes), ..self }
    }

    const fn reset_after(self, reset: Duration) -> Self {
        Self { reset: Some(reset), ..self }
    }

    const fn within(self, count: u32, within: Duration) -> Self {
        Self { trip: CatalogTrip::Failures { count, within }, ..self }
    }
}

impl From<&CatalogBreaker> for RawBreaker {
    fn from(entry: &CatalogBreaker) -> Self {
        let count = |number| NonZeroU32::new(number).expect("the rows count from 1");
        let trip = match entry.trip {
            CatalogTrip::Consecutive(failures) => Trip::Consecutive(count(failures)),
            CatalogTrip::Failures { count: failures, within } => {
                Trip::Failures { count: count(failures), within }
            }
        };
        let CatalogBreaker { open, probes, close_after, reset, .. } = *entry;
        Self { trip, open, probes, close_after, reset, count: CountingUnit::Attempt }
    }
}

#[rustfmt::skip]
pub const BREAKERS: [CatalogBreaker; 4] = [
    consecutive("kafkaBreaker",    5, secs(60),  1),
    consecutive("stateBreaker",    3, secs(30),  1),
    consecutive("externalBreaker", 5, secs(120), 2),
    consecutive("sidecarBreaker",  3, secs(15),  1),
];

#[must_use]
pub fn breaker(name: &str) -> Option<&'static CatalogBreaker> {
    const { &BREAKERS }.iter().find(|breaker| breaker.name == name)
}

#[rustfmt::skip]
const KIND_BREAKERS: [CatalogBreaker; 12] = [
    consecutive("kafka",       5, secs(60),  1),
    consecutive("redis",       3, secs(30),  1),
    consecutive("postgres",    3, secs(30),  1),
    consecutive("smtp",        5, secs(120), 1),
    consecutive("sms",         3, secs(120), 1),
    consecutive("webhook",     5, secs(60),  2),
    consecutive("invoke",      3, secs(15),  1),
    consecutive("ntfy",        5, secs(30),  1).within(5, mins(1)).closing_after(2),
    consecutive("service-bus", 5, secs(30),  1).closing_after(3).reset_after(mins(5)),
    consecutive("blob",        3, secs(10),  1).closing_after(2).reset_after(mins(2)),
    consecutive("key-vault",   3, secs(15),  1).closing_after(2).reset_after(mins(3)),
    consecutive("relay",       5, secs(30),  1).closing_after(2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    Kafka,
    Redis,
    Postgres,
    Smtp,
    Sms,
    /// A third party's HTTP endpoint.
    Webhook,
    /// One of our own services, called over HTTP.
    Invoke,
    Ntfy,
    ServiceBus,
    Blob,
    KeyVault,
    /// A relay in front of a distributed table.
    Relay,
    Process,
    Sqs,
    Log,
}

impl DependencyKind {
    pub const ALL: [Self; 15] = [
        Self::Kafka,
        Self::Redis,
        Self::Postgres,
        Self::Smtp,
        Self::Sms,
        Self::Webhook,
        Self::Invoke,
        Self::Ntfy,
        Self::ServiceBus,
        Self::Blob,
        Self::KeyVault,
        Self::Relay,
        Self::Process,
        Self::Sqs,
        Self::Log,
    ];

    pub const WORDS: [&'static str; 15] = {
        let mut words = [""; 15];
        let mut index = 0;
        while index < words.len() {
            words[index] = Self::ALL[index].as_str();
            index += 1;
        }
        words
    };

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Smtp => "smtp",
            Self::Sms => "sms",
            Self::Webhook => "webhook",
            Self::Invoke => "invoke",
            Self::Ntfy => "ntfy",
            Self::ServiceBus => "service-bus",
            Self::Blob => "blob",
            Self::KeyVault => "key-vault",
            Self::Relay => "relay",
            Self::Process => "process",
            Self::Sqs => "sqs",
            Self::Log => "log",
        }
    }

    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The default breaker. A process and a log have none, since no network is involved; nor has SQS, whose
    /// availability Amazon manages.
    #[must_use]
    pub fn breaker(self) -> Option<&'static CatalogBreaker> {
        const { &KIND_BREAKERS }.iter().find(|breaker| breaker.name == self.as_str())
    }
}

impl fmt::Display for DependencyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogTimeout {
    pub name: &'static str,
    pub limit: Duration,
    pub on_timeout: OnTimeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    Fail(Category),
    /// What runs elsewhere is cancelled, and the failure is permanent.
    Cancel,
    /// The process group is killed, and the failure is permanent.
    Kill,
}

impl OnTimeout {
    #[must_use]
    pub const fn category(self) -> Category {
        match self {
            Self::Fail(category) => category,
            Self::Cancel | Self::Kill => Category::Permanent,
        }
    }
}

const fn timeout(name: &'static str, limit: Duration) -> CatalogTimeout {
    ending_in(name, limit, OnTimeout::Fail(Category::Transient))
}

const fn ending_in(name: &'static str, limit: Duration, on_timeout: OnTimeout) -> CatalogTimeout {
    CatalogTimeout { name, limit, on_timeout }
}

#[rustfmt::skip]
pub const TIMEOUTS: [CatalogTimeout; 25] = [
    timeout("fast",          secs(5)),
    timeout("default",       secs(15)),
    timeout("slow",          secs(30)),
    timeout("kafka-produce", secs(10)),
    timeout("kafka-poll",    secs(30)),
    timeout("publish",       secs(10)),
    timeout("state",         secs(5)),
    timeout("invoke",        secs(15)),
    timeout("webhook",       secs(30)),
    timeout("smtp",          secs(30)),
    timeout("sms",           secs(15)),
    timeout("database",      secs(10)),
    timeout("jobs",          secs(5)),
    timeout("api",           secs(10)),
    timeout("redis",         secs(5)),
    ending_in("spawn",        secs(60), OnTimeout::Fail(Category::Permanent)),
    ending_in("workflow",     mins(30), OnTimeout::Cancel),
    ending_in("provisioning", mins(15), OnTimeout::Kill),
    ending_in("worker",       mins(30), OnTimeout::Kill),
    timeout("scheduler",     secs(30)),
    timeout("web-api",       secs(15)),
    timeout("processor",     mins(5)),
    timeout("notification",  secs(30)),
    timeout("authorizer",    secs(10)),
    timeout("verification",  secs(3)),
];

#[must_use]
pub fn named_timeout(name: &str) -> Option<&'static CatalogTimeout> {
    const { &TIMEOUTS }.iter().find(|timeout| timeout.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::show_duration;

    fn shown(policy: &CatalogPolicy) -> String {
        let backoff = &policy.backoff;
        let window = backoff.window().map_or("-".to_owned(), show_duration);
        let [initial, max] = [backoff.initial(), backoff.max()].map(show_duration);
        format!("{initial} {max} {} {window} {}", backoff.retries(), backoff.jitter())
    }

    #[test]
    fn the_policies_are_those_of_the_documents() {
        #[rustfmt::skip]
        let cases = [
            ("aggressive", "500ms 5s 3 15s equal"),
            ("standard",   "1s 30s 5 5m equal"),
            ("patient",    "2s 1m 8 15m equal"),
            ("critical",   "1s 2m 12 30m equal"),
            ("none",       "0s 0s 0 - none"),
            ("messaging",  "1s 32s 3 - plus 500ms"),
            ("webhook",    "100ms 16s 5 - spread 25%"),
            ("worker",     "1s 4s 3 - spread 100ms"),
            ("upstream",   "5s 1m 5 - none"),
            ("relay",      "1s 8s 3 - spread 30%"),
        ];
        assert_eq!(policies().len(), cases.len());
        for (name, expected) in cases {
            assert_eq!(policy(name).map(shown).as_deref(), Some(expected), "{name}");
        }
        let upstream = &policy(RATE_LIMITED_POLICY).expect("it is in the table").backoff;
        let delays = [0, 1, 2, 3, 4].map(|n| upstream.nominal(n).as_secs());
        assert_eq!(delays, [5, 10, 20, 60, 60]);
        assert_eq!(policy("eager"), None);
    }

    #[test]
    fn the_breakers_are_those_of_the_documents() {
        let five_in_a_minute = CatalogTrip::Failures { count: 5, within: secs(60) };
        let in_a_row = CatalogTrip::Consecutive;
        #[rustfmt::skip]
        let cases = [
            ("kafka",           in_a_row(5),      60,  1, None,    None),
            ("redis",           in_a_row(3),      30,  1, None,    None),
            ("postgres",        in_a_row(3),      30,  1, None,    None),
            ("smtp",            in_a_row(5),      120, 1, None,    None),
            ("sms",             in_a_row(3),      120, 1, None,    None),
            ("webhook",         in_a_row(5),      60,  2, None,    None),
            ("invoke",          in_a_row(3),      15,  1, None,    None),
            ("ntfy",            five_in_a_minute, 30,  1, Some(2), None),
            ("service-bus",     in_a_row(5),      30,  1, Some(3), Some(300)),
            ("blob",            in_a_row(3),      10,  1, Some(2), Some(120)),
            ("key-vault",       in_a_row(3),      15,  1, Some(2), Some(180)),
            ("relay",           in_a_row(5),      30,  1, Some(2), None),
            ("kafkaBreaker",    in_a_row(5),      60,  1, None,    None),
            ("stateBreaker",    in_a_row(3),      30,  1, None,    None),
            ("externalBreaker", in_a_row(5),      120, 2, None,    None),
            ("sidecarBreaker",  in_a_row(3),      15,  1, None,    None),
        ];
        for (name, trip, open, probes, close_after, reset) in cases {
            let expected =
                CatalogBreaker { name, trip, open: secs(open), probes, close_after, reset: reset.map(secs) };
            let found =
                DependencyKind::from_word(name).and_then(DependencyKind::breaker).or_else(|| breaker(name));
            assert_eq!(found, Some(&expected), "{name}");
        }
        for kind in [DependencyKind::Process, DependencyKind::Sqs, DependencyKind::Log] {
            assert_eq!(kind.breaker(), None, "{kind}");
        }
    }

    #[test]
    fn every_kind_has_a_word_that_leads_back_to_it() {
        for kind in DependencyKind::ALL {
            assert_eq!(DependencyKind::from_word(kind.as_str()), Some(kind));
        }
        for row in KIND_BREAKERS {
            assert!(DependencyKind::from_word(row.name).is_some(), "{} is no kind", row.name);
        }
        assert_eq!(DependencyKind::from_word("carrier-pigeon"), None);
    }

    #[test]
    fn the_timeouts_are_those_of_the_documents() {
        let transient = OnTimeout::Fail(Category::Transient);
        #[rustfmt::skip]
        let cases = [
            ("fast", 5, transient), ("default", 15, transient), ("slow", 30, transient),
            ("kafka-produce", 10, transient), ("kafka-poll", 30, transient), ("publish", 10, transient),
            ("state", 5, transient), ("invoke", 15, transient), ("webhook", 30, transient),
            ("smtp", 30, transient), ("sms", 15, transient), ("database", 10, transient),
            ("jobs", 5, transient), ("api", 10, transient), ("redis", 5, transient),
            ("spawn", 60, OnTimeout::Fail(Category::Permanent)),
            ("workflow", 30 * 60, OnTimeout::Cancel), ("provisioning", 15 * 60, OnTimeout::Kill),
            ("worker", 30 * 60, OnTimeout::Kill),
            ("scheduler", 30, transient), ("web-api", 15, transient), ("processor", 300, transient),
            ("notification", 30, transient), ("authorizer", 10, transient), ("verification", 3, transient),
        ];
        assert_eq!(TIMEOUTS.len(), cases.len());
        for (name, limit, on_timeout) in cases {
            let expected = CatalogTimeout { name, limit: secs(limit), on_timeout };
            assert_eq!(named_timeout(name), Some(&expected), "{name}");
        }
        assert_eq!(OnTimeout::Kill.category(), Category::Permanent);
        assert_eq!(named_timeout("eternal"), None);
    }
}

//! Lookups the server makes beside rules and routes: limits, times and admission settings.
//!
//! All are computed when the book is read, so that a lookup never walks over rows.

use std::num::NonZeroU32;
use std::time::Duration;

use super::RuleBook;
use super::model::{QueueFullAction, Sections, ServiceEntry, TargetEntry};
use crate::engine::worker::Worker;
use crate::event::attribute::EventType;
use crate::hash::Map;
use crate::ids::{ChannelName, DependencyName, ServiceName};
use crate::limits;
use crate::policy::admission::AdmissionSettings;
use crate::policy::budget::BudgetSettings;
use crate::policy::catalog::DependencyKind;
use crate::policy::throttle::ThrottleSettings;

/// Backlog limits of one service, over all its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingLimits {
    pub events: u64,
    pub size_bytes: u64,
    /// Events behind a dead letter that blocks their session.
    pub per_session: u64,
    pub when_full: QueueFullAction,
    /// For events from webhooks, whose sender may not send again.
    pub when_full_of_webhook: QueueFullAction,
}

pub(super) fn throttles(sections: &Sections) -> Map<DependencyName, ThrottleSettings> {
    let declared = sections.dependencies.iter().map(|(name, entry)| (name.clone(), entry.kind));
    let own = sections.own_processes().into_iter().map(|name| (name, DependencyKind::Process));
    let throttle = |(name, kind): (DependencyName, DependencyKind)| {
        let settings = sections.throttle(&name, kind);
        (name, settings)
    };
    declared.chain(own).map(throttle).collect()
}

pub(super) fn waiting_limits(sections: &Sections, service: &ServiceEntry) -> WaitingLimits {
    let waiting = sections.waiting_of(service);
    WaitingLimits {
        events: waiting.events.value,
        size_bytes: waiting.size_bytes.value,
        per_session: waiting.per_session.value,
        when_full: waiting.when_full.value,
        when_full_of_webhook: waiting.when_full_of_webhook(),
    }
}

pub(super) fn batch_max(target: &TargetEntry) -> u32 {
    target.endpoint.profile.batch.as_ref().map_or(1, |batch| batch.max)
}

/// The worker of a target that runs a program. An invalid output type was reported when the book was read.
pub(super) fn worker(target: &TargetEntry) -> Option<Worker> {
    let run = target.endpoint.profile.run.as_ref()?;
    Some(Worker { output: run.output.as_deref().and_then(|output| EventType::new(output).ok()) })
}

impl RuleBook {
    #[must_use]
    pub fn waiting(&self, service: &str) -> Option<WaitingLimits> {
        Some(self.holding(service).services.get(service)?.waiting)
    }

    /// Deliveries per call to a service or channel; `None` if unknown.
    #[must_use]
    pub fn batch_max(&self, service: &str, channel: Option<&str>) -> Option<u32> {
        self.queue_rows(service, channel).map(|rows| rows.batch_max)
    }

    #[must_use]
    pub fn worker(&self, service: &str, channel: Option<&str>) -> Option<&Worker> {
        self.queue_rows(service, channel)?.worker.as_ref()
    }

    /// Also applies to events without a subscriber.
    #[must_use]
    pub const fn keep_delivered(&self) -> Duration {
        self.keep_delivered
    }

    /// Longest `ttl` of all rows.
    #[must_use]
    pub const fn dedup_ttl_max(&self) -> Duration {
        self.dedup_ttl_max
    }

    /// For dead letters whose service is no longer in the book.
    #[must_use]
    pub const fn letter_retention(&self) -> Duration {
        self.letter_retention
    }

    /// Works for dependencies the book does not declare, too.
    #[must_use]
    pub fn throttle(&self, dependency: &DependencyName) -> ThrottleSettings {
        const UNDECLARED: ThrottleSettings = ThrottleSettings {
            in_flight: NonZeroU32::new(limits::IN_FLIGHT_DEFAULT).expect("a default that lets calls through"),
            rate: None,
            growth: limits::RATE_GROWTH_DEFAULT,
            memory: limits::RATE_MEMORY_DEFAULT,
        };
        self.throttles.get(dependency).copied().unwrap_or(UNDECLARED)
    }

    /// Works for dependencies the book does not declare, too.
    #[must_use]
    pub fn retry_budget(&self, dependency: &DependencyName) -> Option<BudgetSettings> {
        self.sections.retry_budget(dependency).map(|known| known.value)
    }

    #[must_use]
    pub fn admission(&self, dependency: &DependencyName) -> AdmissionSettings {
        AdmissionSettings {
            throttle: self.throttle(dependency),
            budget: self.retry_budget(dependency),
            ramp: self.ramp(dependency),
        }
    }

    #[must_use]
    pub fn ramp(&self, dependency: &DependencyName) -> Duration {
        self.sections.ramp(dependency)
    }

    /// Every service and channel with deliveries, in book order.
    pub fn queues(&self) -> impl Iterator<Item = (&ServiceName, Option<&ChannelName>)> {
        self.sections.services.iter().flat_map(|service| {
            let own = (!service.rows.is_empty()).then_some((&service.name, None));
            // A channel without events is an error of the book.
            let channels = service.channels.iter().map(|channel| (&service.name, Some(&channel.name)));
            own.into_iter().chain(channels)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::QueueFullAction::{DeadLetter, Refuse};
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::read;

    fn book(text: &str) -> RuleBook {
        let reading = read(text, built_in());
        reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems))
    }

    #[test]
    fn waiting_falls_from_the_service_to_the_defaults_key_by_key() {
        let book = |defaults: &str, service: &str| {
            let services = format!("s: {{ target: {{ log: stdout }}, events: [a] {service} }}");
            book(&format!("version: 1\ndefaults: {{ {defaults} }}\nservices: {{ {services} }}\n"))
        };
        let limits = |events, size_bytes, when_full, when_full_of_webhook| WaitingLimits {
            events,
            size_bytes,
            per_session: 10_000,
            when_full,
            when_full_of_webhook,
        };
        #[rustfmt::skip]
        let cases = [
            ("what is built in", "", "",
                limits(20_000_000, 64 << 30, Refuse, DeadLetter)),
            ("the defaults", "waiting: { events: 5, size: 1GiB, when_full: refuse }", "",
                limits(5, 1 << 30, Refuse, Refuse)),
            ("the service", "", ", waiting: { events: 7, size: 2MiB, when_full: dead-letter }",
                limits(7, 2 << 20, DeadLetter, DeadLetter)),
            ("each from where it is said", "waiting: { events: 5, when_full: dead-letter }", ", waiting: { size: 3KiB, when_full: refuse }",
                limits(5, 3 << 10, Refuse, Refuse)),
        ];
        for (name, defaults, service, expected) in cases {
            assert_eq!(book(defaults, service).waiting("s"), Some(expected), "{name}");
        }
        assert_eq!(book("", "").waiting("nobody"), None);
    }

    #[test]
    fn only_targets_that_take_batches_get_more_than_one_delivery() {
        let book = book(
            r#"version: 1
services:
  plain: { target: { http: "http://a.test/" }, events: [a] }
  batch:
    target: { http: "http://a.test/", format: batch }
    events: [a]
    channels:
      same: { events: [a] }
      own: { target: { http: "http://b.test/", format: batch, batch_max: 250 }, events: [a] }
      single: { target: { http: "http://c.test/", format: structured }, events: [a] }
"#,
        );
        #[rustfmt::skip]
        let cases = [
            ("plain",  None,           Some(1)),
            ("batch",  None,           Some(10)),
            ("batch",  Some("same"),   Some(10)),
            ("batch",  Some("own"),    Some(250)),
            ("batch",  Some("single"), Some(1)),
            ("batch",  Some("none"),   None),
            ("nobody", None,           None),
        ];
        for (service, channel, expected) in cases {
            assert_eq!(book.batch_max(service, channel), expected, "{service} {channel:?}");
        }
    }

    #[test]
    fn what_is_kept_and_remembered_is_what_the_book_says_at_most() {
        let day = |count: u64| Duration::from_secs(count * 86_400);
        let with = |defaults: &str, rows: &str| {
            let services = format!(
                "s: {{ target: {{ log: stdout }}, events: [{rows}], channels: {{ c: {{ events: [{rows}] }} }} }}"
            );
            book(&format!("version: 1\ndefaults: {{ {defaults} }}\nservices: {{ {services} }}\n"))
        };
        let ttl = |days: u64| format!("idempotency: {{ ttl: {days}d }}");
        #[rustfmt::skip]
        let cases = [
            ("what is built in",           with("", "a"),                                              7, 7),
            ("the defaults",               with(&format!("keep_delivered: 2d, {}", ttl(3)), "a"),      2, 3),
            ("the longest of the rows",    with("", &format!("a, {{ type: b, {} }}", ttl(30))),        7, 30),
            ("a row that says nothing",    with("", &format!("a, {{ type: b, {} }}", ttl(1))),         7, 7),
            ("all rows say less",          with("", &format!("{{ type: b, {} }}", ttl(1))),            7, 1),
        ];
        for (name, book, kept, remembered) in cases {
            assert_eq!((book.keep_delivered(), book.dedup_ttl_max()), (day(kept), day(remembered)), "{name}");
        }
        let empty = book(&format!("version: 1\ndefaults: {{ {} }}\n", ttl(9)));
        assert_eq!(empty.dedup_ttl_max(), day(9), "a book without rows goes by its defaults");
    }

    #[test]
    fn a_throttle_is_what_holds_for_the_rows_of_its_dependency() {
        let book = book(
            r"version: 1
throttles: { t: { in_flight: 5, rate: 10/s } }
dependencies:
  named: { kind: webhook, throttle: t }
  own: { kind: webhook, throttle: t, in_flight: 7 }
  plain: { kind: webhook }
services:
  a: { target: { log: stdout }, depends_on: named, events: [x] }
  b: { target: { log: stdout }, depends_on: own, events: [x] }
  c: { target: { log: stdout }, depends_on: plain, events: [x] }
  d: { target: { log: stdout }, events: [x] }
",
        );
        for (service, channel, row) in book.sections().rows() {
            let resolved = book.sections().resolve(service, channel, row);
            let found = book.throttle(&resolved.dependency.value);
            assert_eq!(found.in_flight.get(), resolved.in_flight.value, "{}", service.name);
            assert_eq!(found.rate, resolved.rate.map(|known| known.value), "{}", service.name);
        }
        let of = |name: &str| book.throttle(&DependencyName::new(name).expect("a name")).in_flight.get();
        assert_eq!([of("named"), of("own"), of("plain"), of("d"), of("nobody")], [5, 7, 64, 64, 64]);
    }

    #[test]
    fn queues_are_those_that_rows_lead_to() {
        let book = book(
            "version: 1\nservices:\n  \
               z: { target: { log: stdout }, events: [x], channels: { c: { events: [x] } } }\n  \
               a: { target: { log: stdout }, channels: { only: { events: [x] } } }\n",
        );
        let queues: Vec<_> = book.queues().map(|(s, c)| (s.as_str(), c.map(ChannelName::as_str))).collect();
        assert_eq!(queues, [("z", None), ("z", Some("c")), ("a", Some("only"))]);
    }
}

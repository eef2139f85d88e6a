//! Rules for delivering alert notices, derived from the receivers of a rule book, so that a receiver is a
//! target like any other.
//!
//! The derived book has one service with a channel and a dependency per receiver. Its spans are those of the
//! receiver, so that attempt records point at the receiver's line.
//!
//! Invariants: no sender's event is routed here, since routes come from the written book; of the written book
//! only the policies and secrets that receivers name apply here.

use std::sync::Arc;
use std::time::Duration;

use super::RuleBook;
use super::model::{
    At, ChannelEntry, DeliveryOrder, EventRow, Layer, PolicyEntry, QueueFullAction, ReactionName, Receiver,
    Sections, ServiceEntry, TargetEntry, TimeoutParts, WaitingEntry,
};
use super::pattern::EventPattern;
use crate::ids::{ChannelName, DependencyName, PolicyName, ServiceName};
use crate::policy::backoff::{Backoff, Jitter, RawBackoff, RawSchedule};
use crate::policy::category::Category;
use crate::policy::rule::{FailureMatch, GrowingTimeout};

pub use crate::alerts::OWN_SERVICE;

const NOTICES: &str = "redrive.alert.*";
/// The policy for receivers without `retry`.
const DEFAULT_POLICY: &str = "redrive-alerts";
/// Notices waiting for one receiver; one more is a dead letter.
const WAITING_FOR_EACH_MAX: u64 = 1_000;
/// Soon at first, then every few minutes, for as long as the alert matters.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_mins(5);
const RETRY_WITHIN: Duration = Duration::from_hours(24);
/// Large enough that the window ends the retries.
const RETRIES_MAX: u32 = 1_000;
const NOTICE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether a name is reserved for the alert service and its dependencies.
#[must_use]
pub fn is_own(name: &str) -> bool {
    name.strip_prefix(OWN_SERVICE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl RuleBook {
    /// The derived book; `None` without receivers.
    #[must_use]
    pub fn own(&self) -> Option<&Self> {
        self.own.as_deref()
    }

    /// The book that holds the rules of this service.
    pub(super) fn holding(&self, service: &str) -> &Self {
        if service == OWN_SERVICE { self.own().unwrap_or(self) } else { self }
    }
}

#[must_use]
pub fn dependency_of(receiver: &ChannelName) -> DependencyName {
    DependencyName::joined(&service_name(), receiver)
}

pub(super) fn sections(written: &Sections) -> Option<Sections> {
    let span = written.receivers.values().next()?.span;
    let channels: Vec<ChannelEntry> =
        written.receivers.iter().filter_map(|(name, at)| channel(name, at)).collect();
    let mut policies = written.policies.clone();
    policies.insert(policy_name(), At { value: default_policy(), span });
    let service = ServiceEntry {
        name: service_name(),
        span,
        title: None,
        target: TargetEntry::stdout(span),
        depends_on: None,
        // "Resolved" must not overtake "firing".
        order: Some(At { value: DeliveryOrder::Session, span }),
        waiting: WaitingEntry {
            events: Some(At { value: WAITING_FOR_EACH_MAX * channels.len() as u64, span }),
            when_full: Some(At { value: QueueFullAction::DeadLetter, span }),
            ..WaitingEntry::default()
        },
        rows: Vec::new(),
        channels,
        layer: Layer::default(),
    };
    Some(Sections {
        machine: written.machine,
        policies,
        timeouts: written.timeouts.clone(),
        secrets: written.secrets.clone(),
        services: vec![service],
        ..Sections::default()
    })
}

fn channel(name: &str, At { value: receiver, span }: &At<Receiver>) -> Option<ChannelEntry> {
    let span = *span;
    let policy = receiver.retry.as_ref().map_or_else(policy_name, |at| at.value.clone());
    let policy = ReactionName::Policy(policy);
    let reaction = |category| (FailureMatch::Category(category), At { value: policy.clone(), span });
    let usual = receiver.endpoint.connector.timeout.unwrap_or(NOTICE_TIMEOUT);
    let limit = receiver.timeout.unwrap_or(usual);
    let timeout = TimeoutParts { whole: Some(GrowingTimeout::fixed(limit)), ..TimeoutParts::default() };
    let pattern = EventPattern::parse(NOTICES).expect("a pattern of our own");
    let row = EventRow::plain(span, At { value: pattern, span });
    Some(ChannelEntry {
        // An invalid name is an error of the book.
        name: ChannelName::new(name).ok()?,
        span,
        title: None,
        target: Some(TargetEntry { span, endpoint: receiver.endpoint.clone() }),
        depends_on: None,
        rows: vec![Arc::new(row)],
        layer: Layer {
            // An unknown failure may be transient, and a duplicate notice does no harm.
            reactions: [Category::Transient, Category::RateLimited, Category::Unknown].map(reaction).into(),
            timeout: Some(At { value: timeout, span }),
            ..Layer::default()
        },
    })
}

fn default_policy() -> PolicyEntry {
    let raw = RawBackoff {
        schedule: RawSchedule::Exponential { initial: RETRY_FIRST, factor: 2.0, max: RETRY_MAX },
        jitter: Jitter::Equal,
        retries: RETRIES_MAX,
        window: Some(RETRY_WITHIN),
    };
    let backoff = Backoff::try_from(raw).expect("its numbers are sound, as a test resolves them");
    // A failed notice raises no alert; it becomes a dead letter.
    PolicyEntry { backoff, alert_when_exhausted: false, from: None }
}

fn service_name() -> ServiceName {
    ServiceName::new(OWN_SERVICE).expect("letters and a dash")
}

fn policy_name() -> PolicyName {
    PolicyName::new(DEFAULT_POLICY).expect("letters and a dash")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::connectors::built_in;
    use crate::book::read;

    const BOOK: &str = r#"version: 1
defaults: { retry: none, timeout: 1s }
services: { all: { target: { log: stdout }, events: ["*"] } }
receivers:
  desk: { email: desk@example.test, smtp: "smtps://mail.example.test" }
  pager: { ntfy: "https://ntfy.example.test/pager", retry: standard, timeout: 5s }
"#;

    fn book(text: &str) -> RuleBook {
        let reading = read(text, built_in());
        reading.book.unwrap_or_else(|| panic!("{:#?}", reading.problems))
    }

    #[test]
    fn every_receiver_has_a_rule_that_stands_where_it_does() {
        let book = book(BOOK);
        for (receiver, line, limit) in
            [("desk", 5, Duration::from_secs(30)), ("pager", 6, Duration::from_secs(5))]
        {
            let found = book.explain(OWN_SERVICE, Some(receiver), "redrive.alert.firing").expect(receiver);
            let rule = book.rule(OWN_SERVICE, Some(receiver), "redrive.alert.firing").expect(receiver);
            assert_eq!(rule.dependency, dependency_of(&ChannelName::new(receiver).expect("a name")));
            assert_eq!(found.timeouts.whole.value, GrowingTimeout::fixed(limit), "not the book's default");
            let policy = found.reactions.iter().find_map(|(on, known)| match (on, &known.value) {
                (FailureMatch::Category(Category::RateLimited), ReactionName::Policy(name)) => {
                    Some(name.as_str())
                }
                _ => None,
            });
            assert_eq!(policy, Some(if receiver == "pager" { "standard" } else { DEFAULT_POLICY }));
            let at = found.timeouts.whole.origin.position().expect("it stands somewhere");
            assert_eq!(at.line, line);
            assert_eq!(found.order.value, DeliveryOrder::Session);
            assert_eq!(book.batch_max(OWN_SERVICE, Some(receiver)), Some(1));
            assert!(book.letter_rule(OWN_SERVICE, Some(receiver), "redrive.alert.resolved").is_some());
        }
        let waiting = book.waiting(OWN_SERVICE).expect("it has limits");
        assert_eq!((waiting.events, waiting.when_full), (2_000, QueueFullAction::DeadLetter));
        assert!(book.service(OWN_SERVICE).is_some());
        assert_eq!(book.own().expect("somebody is told").hash(), book.hash());
        assert!(book.rule(OWN_SERVICE, Some("nobody"), "redrive.alert.firing").is_none());
        assert!(book.rule(OWN_SERVICE, Some("desk"), "orders.placed").is_none());
    }

    #[test]
    fn a_receiver_is_tried_for_a_day() {
        let default_policy = default_policy().backoff;
        assert!(default_policy.wait_max_total() >= RETRY_WITHIN, "{:?}", default_policy.wait_max_total());
    }

    #[test]
    fn what_is_written_does_not_see_it() {
        let book = book(BOOK);
        let subscribers: Vec<String> =
            book.route("redrive.alert.firing").iter().map(|route| route.service.name.to_string()).collect();
        assert_eq!(subscribers, ["all"], "a notice sent by a client is an event like any other");
        let queues: Vec<String> = book.queues().map(|(service, _)| service.to_string()).collect();
        assert_eq!(queues, ["all"]);
        assert_eq!(book.sections().services.len(), 1);
    }

    #[test]
    fn a_book_that_tells_nobody_has_none() {
        let book = book("version: 1\nservices: { all: { target: { log: stdout }, events: [a] } }\n");
        assert!(book.own().is_none());
        assert!(book.service(OWN_SERVICE).is_none() && book.waiting(OWN_SERVICE).is_none());
    }

    #[test]
    fn only_its_own_names_are_kept() {
        #[rustfmt::skip]
        let cases = [
            ("redrive-alerts", true), ("redrive-alerts.ops", true),
            ("redrive-alerts-2", false), ("alerts", false), ("redrive", false),
        ];
        for (name, expected) in cases {
            assert_eq!(is_own(name), expected, "{name}");
        }
    }
}

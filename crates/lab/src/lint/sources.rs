//! What is known of the side that events come from: stated for a row, or for the sources that feed it.
//!
//! Invariants: what a row's own levels say wins, fact by fact; the facts of two sources are never mixed,
//! since a heartbeat renews the lease of its own broker only; nothing here allocates, since it runs for
//! every row.

use std::time::Duration;

use redrive_core::book::model::{At, Facts, Sections, Source};
use redrive_core::book::pattern::EventPattern;
use redrive_core::book::resolve::Resolved;

/// Facts about a broker, a sender or a caller. How the target behaves is not for a source to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokerFacts<'r> {
    pub(super) lease: Option<&'r At<Duration>>,
    pub(super) heartbeat: Option<&'r At<Duration>>,
    pub(super) redelivery: Option<&'r At<Duration>>,
    pub(super) poll_limit: Option<&'r At<Duration>>,
    pub(super) callers: Option<&'r At<u64>>,
    pub(super) caller_timeout: Option<&'r At<Duration>>,
    pub(super) broker_attempts: Option<&'r At<u64>>,
}

impl<'r> BrokerFacts<'r> {
    /// The facts of these levels.
    fn stated(facts: &'r Facts) -> Self {
        let Facts {
            lease,
            heartbeat,
            redelivery,
            poll_limit,
            callers,
            caller_timeout,
            broker_attempts,
            rate: _,
            p99: _,
            sla: _,
            instances: _,
            rate_limit_window: _,
            uses: _,
            idempotent_by: _,
        } = facts;
        Self {
            lease: lease.as_ref(),
            heartbeat: heartbeat.as_ref(),
            redelivery: redelivery.as_ref(),
            poll_limit: poll_limit.as_ref(),
            callers: callers.as_ref(),
            caller_timeout: caller_timeout.as_ref(),
            broker_attempts: broker_attempts.as_ref(),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            lease: self.lease.or(other.lease),
            heartbeat: self.heartbeat.or(other.heartbeat),
            redelivery: self.redelivery.or(other.redelivery),
            poll_limit: self.poll_limit.or(other.poll_limit),
            callers: self.callers.or(other.callers),
            caller_timeout: self.caller_timeout.or(other.caller_timeout),
            broker_attempts: self.broker_attempts.or(other.broker_attempts),
        }
    }

    const fn says_something(&self) -> bool {
        let Self { lease, heartbeat, redelivery, poll_limit, callers, caller_timeout, broker_attempts } =
            self;
        lease.is_some()
            || heartbeat.is_some()
            || redelivery.is_some()
            || poll_limit.is_some()
            || callers.is_some()
            || caller_timeout.is_some()
            || broker_attempts.is_some()
    }
}

/// The facts that hold for a row's events, once for each source that may feed it and says something;
/// once where none does.
pub(super) fn broker_facts<'r>(
    resolved: &'r Resolved<'_>,
    book: &'r Sections,
) -> impl Iterator<Item = BrokerFacts<'r>> + Clone {
    let own = BrokerFacts::stated(&resolved.facts);
    let pattern = &resolved.row.pattern.value;
    let of_sources = book.sources.values().filter_map(move |at| {
        let stated = BrokerFacts::stated(&at.value.facts);
        (stated.says_something() && may_feed(&at.value, pattern)).then(|| own.or(stated))
    });
    let alone = of_sources.clone().next().is_none().then_some(own);
    of_sources.chain(alone)
}

/// Whether events of that source may be of that pattern, as far as the book tells.
pub(super) fn may_feed(source: &Source, pattern: &EventPattern) -> bool {
    let Some(template) = source.event_type.as_deref() else { return true };
    match template.split_once('{') {
        None => pattern.matches(template),
        // What the template begins with and what the pattern begins with must not contradict each other.
        Some((start, _)) => {
            let (literal, is_open) = match pattern.as_str().split_once('*') {
                Some((literal, _)) => (literal, true),
                None => (pattern.as_str(), false),
            };
            literal.starts_with(start) || is_open && start.starts_with(literal)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{deadline, idempotency, retry, tests::found, tests::untold, timeout};

    /// A service on lines 3 to 5 with these keys, fed by these sources from line 7 on.
    fn book(keys: &str, sources: &str) -> String {
        format!(
            "version: 1\nservices:\n  s:\n    target: {{ http: \"http://127.0.0.1:9000\" }}\n    {keys}\nsources:\n{sources}"
        )
    }

    fn source(name: &str, event_type: &str, facts: &str) -> String {
        format!("  {name}: {{ sqs: {{ queue: q }}, type: {event_type}, facts: {{ {facts} }} }}\n")
    }

    #[test]
    fn facts_of_a_source_are_as_good_as_those_of_its_rows() {
        let q = |facts: &str| source("q", "a", facts);
        let renewed = q("lease: 5s, heartbeat: 1s");
        let short = source("r", "a", "lease: 6s");
        #[rustfmt::skip]
        let cases = [
            ("a slow heartbeat",             book("events: [a]", &q("lease: 10s, heartbeat: 9s")), vec!["7:68 heartbeat-too-slow"]),
            ("a short lease",                book("events: [a]", &q("lease: 9s")), vec!["7:52 lease-shorter-than-processing"]),
            ("a poll limit",                 book("events: [a]", &q("poll_limit: 5s")), vec!["7:57 poll-limit-exceeded"]),
            ("two layers that retry",        book("events: [a]", &q("broker_attempts: 20, callers: 9")), vec!["7:75 retry-amplification"]),
            ("a broker that retries",        book("retry: worker\n    events: [a]", &source("q", "a", "broker_attempts: 20")), vec!["5:12 retry-amplification"]),
            ("a caller that waits",          book("events: [a]", &q("caller_timeout: 5s")), vec!["7:61 no-deadline", "7:61 timeout-beyond-caller"]),
            ("events that come again",       book("events: [a]\n    idempotency: { ttl: 1h }", &q("redelivery: 3d")), vec!["6:25 dedup-shorter-than-redelivery"]),
            ("the row knows better",         book("events: [a]\n    facts: { lease: 30s, poll_limit: 1m, callers: 1 }", &q("lease: 1s, poll_limit: 1s, callers: 9")), vec![]),
            ("what feeds other rows",        book("events: [b]", &q("lease: 9s, poll_limit: 5s, callers: 9")), vec![]),
            ("one broker's heartbeat is not another's", book("events: [a]", &format!("{renewed}{short}")), vec!["8:52 lease-shorter-than-processing"]),
            ("the worst of two sources",     book("retry: worker\n    events: [a]", &(q("callers: 2") + &source("r", "a", "callers: 3"))), vec!["5:12 retry-amplification"]),
        ];
        for (name, book, expected) in cases {
            let families = [idempotency::LINTS, timeout::LINTS, retry::LINTS, deadline::LINTS];
            let mut all: Vec<_> = families.into_iter().flat_map(|family| found(&book, family)).collect();
            all.retain(|finding| !finding.ends_with("implicit-timeout"));
            all.sort_unstable();
            assert_eq!(all, expected, "{name}");
        }
    }

    #[test]
    fn a_source_that_states_a_fact_answers_the_question() {
        let stated = book("events: [a]", &source("q", "a", "callers: 1, broker_attempts: 1, redelivery: 1d"));
        assert_eq!(untold(&stated, retry::LINTS), [""; 0]);
        assert_eq!(untold(&stated, idempotency::LINTS), [""; 0]);
        let other = book("events: [a]", &source("q", "b", "callers: 1, broker_attempts: 1, redelivery: 1d"));
        let missing =
            ["3:3 retry-amplification facts.broker_attempts", "3:3 retry-amplification facts.callers"];
        assert_eq!(untold(&other, retry::LINTS), missing);
    }
}

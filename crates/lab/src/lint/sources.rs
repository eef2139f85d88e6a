//! Facts about the sender of events: stated for a row, or for the sources that feed it.
//!
//! Invariants: the facts of a row's own levels win one by one; the facts of two sources are never mixed, since a
//! heartbeat renews the lease of its own broker only; nothing here allocates, since it runs for every row.

use redrive_core::book::model::{At, DeclaredFacts, Sections, SourceEntry};
use redrive_core::book::pattern::EventPattern;
use redrive_core::book::resolve::Resolved;

/// Facts about a broker, a sender or a caller: those of the row, else those of one source.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokerFacts<'r> {
    own: &'r DeclaredFacts,
    source: Option<&'r DeclaredFacts>,
}

impl<'r> BrokerFacts<'r> {
    pub(super) fn get<T>(&self, pick: impl Fn(&'r DeclaredFacts) -> &'r Option<At<T>>) -> Option<&'r At<T>> {
        pick(self.own).as_ref().or(self.source.and_then(|source| pick(source).as_ref()))
    }
}

fn has_broker_facts(facts: &DeclaredFacts) -> bool {
    let DeclaredFacts {
        lease,
        heartbeat,
        redelivery,
        poll_limit,
        callers,
        caller_timeout,
        broker_attempts,
        ..
    } = facts;
    let times = [lease, heartbeat, redelivery, poll_limit, caller_timeout];
    let counts = [callers, broker_attempts];
    times.iter().any(|fact| fact.is_some()) || counts.iter().any(|fact| fact.is_some())
}

/// The facts of a row's events: once for each source with facts that may feed it, else once.
pub(super) fn broker_facts<'r>(
    resolved: &'r Resolved<'_>,
    book: &'r Sections,
) -> impl Iterator<Item = BrokerFacts<'r>> + Clone {
    let own = &resolved.facts;
    let pattern = &resolved.row.pattern.value;
    let of_sources = book.sources.values().map(|at| &at.value);
    let of_sources = of_sources.filter(|source| has_broker_facts(&source.facts) && may_feed(source, pattern));
    let of_sources = of_sources.map(|source| BrokerFacts { own, source: Some(&source.facts) });
    let alone = of_sources.clone().next().is_none().then_some(BrokerFacts { own, source: None });
    of_sources.chain(alone)
}

/// The values of one fact for a row's events.
pub(super) fn broker_fact<'r, T: 'r>(
    resolved: &'r Resolved<'_>,
    book: &'r Sections,
    pick: impl Fn(&'r DeclaredFacts) -> &'r Option<At<T>>,
) -> impl Iterator<Item = &'r At<T>> {
    broker_facts(resolved, book).filter_map(move |facts| facts.get(&pick))
}

pub(super) fn may_feed(source: &SourceEntry, pattern: &EventPattern) -> bool {
    let Some(template) = source.event_type.as_deref() else { return true };
    match template.split_once('{') {
        None => pattern.matches(template),
        // The fixed beginnings of template and pattern must agree.
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
    use super::super::{deadline, idempotency, retry, tests::found, tests::skipped, timeout};

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
        assert_eq!(skipped(&stated, retry::LINTS), [""; 0]);
        assert_eq!(skipped(&stated, idempotency::LINTS), [""; 0]);
        let other = book("events: [a]", &source("q", "b", "callers: 1, broker_attempts: 1, redelivery: 1d"));
        let missing =
            ["3:3 retry-amplification facts.broker_attempts", "3:3 retry-amplification facts.callers"];
        assert_eq!(skipped(&other, retry::LINTS), missing);
    }
}

//! Who calls which dependency, and how often: what lints about a dependency as a whole need to know.
//!
//! Only what those lints ask for is looked up, and nothing is copied: a book may have 50,000 rows, and
//! each lint walks over all of them. A test holds what is found here against what is resolved.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Findings;
use redrive_core::book::model::{
    At, BreakerEntry, ChannelEntry, DependencyEntry, EventRow, Layer, Permits, ReactionName, Sections,
    ServiceEntry, Target,
};
use redrive_core::book::problem::Span;
use redrive_core::book::resolve::kind_of;
use redrive_core::ids::BreakerName;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::breaker::{BreakerSettings, RawBreaker};
use redrive_core::policy::catalog::{self, Kind};
use redrive_core::policy::category::Category;
use redrive_core::policy::rule::FailureMatch;
use redrive_core::text::Rate;

/// All dependencies that are called.
#[derive(Debug)]
pub(super) struct Dependencies<'a> {
    callers: BTreeMap<Cow<'a, str>, Vec<Caller<'a>>>,
    /// The rates that callers of several dependencies have in common.
    shared_rates: BTreeSet<RateKey<'a>>,
}

/// A stated rate, for a service: one of the defaults is each service's own.
type RateKey<'a> = (Span, &'a str);

/// A row whose deliveries call a dependency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    book: &'a Sections,
    /// Its service.
    pub(super) service: &'a ServiceEntry,
    /// Its channel, if it is one's.
    pub(super) channel: Option<&'a ChannelEntry>,
    /// The row.
    pub(super) row: &'a EventRow,
    /// The dependency, if the book declares it.
    pub(super) dependency: Option<&'a DependencyEntry>,
}

/// A breaker and who chose it.
#[derive(Clone, Debug)]
pub(super) struct Chosen<'a> {
    /// The breaker.
    pub(super) breaker: BreakerEntry,
    /// Its name, unless it is the kind's.
    name: Option<&'a BreakerName>,
    kind: Kind,
    /// Where the book chooses it, unless the kind does.
    pub(super) span: Option<Span>,
}

impl fmt::Display for Chosen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "`{name}`"),
            None => write!(f, "that of kind `{}`", self.kind),
        }
    }
}

/// How many calls a second a dependency gets, as far as the book tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Traffic {
    /// What is certainly its own.
    pub(super) at_least: f64,
    /// With what it may share with others; none if a caller's rate is not known.
    pub(super) at_most: Option<f64>,
}

impl Traffic {
    /// Whether all of it is known, and all of it is the dependency's own.
    pub(super) fn is_exact(self) -> bool {
        self.at_most.is_some_and(|at_most| at_most <= self.at_least)
    }
}

impl<'a> Dependencies<'a> {
    /// Goes over all rows of a book.
    pub(super) fn of(book: &'a Sections) -> Self {
        let mut callers = BTreeMap::new();
        for service in &book.services {
            let own = service.depends_on.as_ref().map_or(service.name.as_str(), |at| at.value.as_str());
            for row in &service.rows {
                add(&mut callers, own.into(), Caller { book, service, channel: None, row, dependency: None });
            }
            for channel in &service.channels {
                let name: Cow<'_, str> = match (&channel.depends_on, &channel.target) {
                    (Some(at), _) => at.value.as_str().into(),
                    (None, Some(_)) => format!("{}.{}", service.name, channel.name).into(),
                    (None, None) => own.into(),
                };
                for row in &channel.rows {
                    let channel = Some(channel);
                    add(&mut callers, name.clone(), Caller { book, service, channel, row, dependency: None });
                }
            }
        }
        let shared_rates = shared_rates(&callers);
        Self { callers, shared_rates }
    }

    /// Each with those who call it, of whom there is at least one, in the order of the book.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[Caller<'a>])> {
        self.callers.iter().map(|(name, callers)| (&**name, callers.as_slice()))
    }

    /// How often these callers of one dependency call it.
    ///
    /// A rate that the dependency states is that of all its callers. A service's or a channel's is that
    /// of all its rows together: where they call several dependencies, nobody knows who gets how much.
    pub(super) fn traffic(&self, callers: &[Caller<'a>]) -> Traffic {
        let own = callers.first().and_then(|caller| caller.dependency);
        if let Some(At { value, .. }) = own.and_then(|entry| entry.layer.facts.rate.as_ref()) {
            let rate = value.as_per_second();
            return Traffic { at_least: rate, at_most: Some(rate) };
        }
        let mut traffic = Traffic { at_least: 0.0, at_most: Some(0.0) };
        let mut seen = BTreeSet::new();
        for caller in callers {
            let Some((key, rate)) = caller.rate() else {
                traffic.at_most = None;
                continue;
            };
            if seen.insert(key) {
                traffic.at_most = traffic.at_most.map(|sum| sum + rate.as_per_second());
                let certain = if self.shared_rates.contains(&key) { 0.0 } else { rate.as_per_second() };
                traffic.at_least += certain;
            }
        }
        traffic
    }
}

fn shared_rates<'a>(callers: &BTreeMap<Cow<'a, str>, Vec<Caller<'a>>>) -> BTreeSet<RateKey<'a>> {
    let mut first: BTreeMap<RateKey<'a>, usize> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (dependency, callers) in callers.values().enumerate() {
        for (key, _) in callers.iter().filter_map(Caller::rate) {
            if *first.entry(key).or_insert(dependency) != dependency {
                shared.insert(key);
            }
        }
    }
    shared
}

fn add<'a>(callers: &mut BTreeMap<Cow<'a, str>, Vec<Caller<'a>>>, usual: Cow<'a, str>, caller: Caller<'a>) {
    let name = caller.row.depends_on.as_ref().map_or(usual, |at| at.value.as_str().into());
    if let Some(others) = callers.get_mut(&name) {
        let dependency = others.first().and_then(|other| other.dependency);
        others.push(Caller { dependency, ..caller });
    } else {
        let dependency = caller.book.dependencies.get::<str>(&name);
        callers.insert(name, vec![Caller { dependency, ..caller }]);
    }
}

impl<'a> Caller<'a> {
    /// Runs `look` under the silencers of all levels that hold for the row.
    pub(super) fn within(&self, findings: &mut Findings<'a>, look: impl FnOnce(&mut Findings<'a>)) {
        findings.within_all(self.layers(), look);
    }

    /// The breaker in front of the dependency, unless there is none.
    pub(super) fn breaker(&self) -> Option<Chosen<'a>> {
        let kind = self.kind();
        let stated = self.stated().find_map(|layer| layer.breaker.as_ref());
        let own = kind.breaker();
        let stated = stated.or(if own.is_some() { None } else { self.book.defaults.breaker.as_ref() });
        match (stated, own) {
            (Some(At { value: Some(name), span }), _) => {
                let breaker = self.book.breaker_named(name)?;
                Some(Chosen { breaker, name: Some(name), kind, span: Some(*span) })
            }
            (Some(At { value: None, .. }), _) | (None, None) => None,
            (None, Some(entry)) => {
                let settings = BreakerSettings::try_from(RawBreaker::from(entry)).ok()?;
                let breaker = BreakerEntry { settings, ignores: Vec::new(), counts: Vec::new(), from: None };
                Some(Chosen { breaker, name: None, kind, span: None })
            }
        }
    }

    /// Where to point for what guards the dependency: at its name, else at that of its only caller.
    pub(super) fn guard(&self) -> Span {
        self.dependency.map_or_else(|| self.owner(), |dependency| dependency.span)
    }

    /// The name of the channel or service that has the target.
    pub(super) fn owner(&self) -> Span {
        let own_channel = self.channel.filter(|channel| channel.target.is_some());
        own_channel.map_or(self.service.span, |channel| channel.span)
    }

    /// Where the book says that the row depends on it.
    pub(super) fn depends_on(&self) -> Option<Span> {
        let of_channel = self.channel.and_then(|channel| channel.depends_on.as_ref());
        // A channel with a target of its own fails by itself.
        let has_own_target = self.channel.is_some_and(|channel| channel.target.is_some());
        let of_service = self.service.depends_on.as_ref().filter(|_| !has_own_target);
        let stated = self.row.depends_on.as_ref().or(of_channel).or(of_service);
        stated.map(|at| at.span)
    }

    /// The policy for transient failures, by its name.
    pub(super) fn policy(&self) -> Option<(&'a str, &'a Backoff)> {
        const TRANSIENT: FailureMatch = FailureMatch::Category(Category::Transient);
        let stated = self.layers().find_map(|layer| layer.reactions.iter().find(|(on, _)| *on == TRANSIENT));
        match stated.map(|(_, reaction)| &reaction.value) {
            None => self.backoff("standard"),
            Some(ReactionName::Policy(name)) => self.backoff(name.as_str()),
            Some(ReactionName::DeadLetter | ReactionName::Pause) => None,
        }
    }

    fn backoff(&self, name: &'a str) -> Option<(&'a str, &'a Backoff)> {
        let own = self.book.policies.get::<str>(name).map(|at| &at.value.backoff);
        let backoff = own.or_else(|| catalog::policy(name).map(|entry| &entry.backoff))?;
        Some((name, backoff))
    }

    /// The most attempts that one delivery makes.
    pub(super) fn attempts(&self) -> u32 {
        self.policy().map_or(0, |(_, backoff)| backoff.retries()).saturating_add(1)
    }

    /// Limits of the dependency, by what is stated for it or by its throttle.
    pub(super) fn permits(&self) -> Permits {
        self.dependency.map(|entry| self.book.permits_of(entry)).unwrap_or_default()
    }

    /// What the most specific level says about something.
    pub(super) fn find<T>(&self, pick: impl Fn(&'a Layer) -> Option<&'a At<T>>) -> Option<&'a At<T>> {
        self.layers().find_map(pick)
    }

    /// How often it and those of the same service come that the rate is stated for.
    fn rate(&self) -> Option<(RateKey<'a>, Rate)> {
        let at = self.find(|layer| layer.facts.rate.as_ref())?;
        Some(((at.span, self.service.name.as_str()), at.value))
    }

    /// Where its deliveries go.
    pub(super) fn target(&self) -> &'a Target {
        self.channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&self.service.target)
    }

    pub(super) fn kind(&self) -> Kind {
        self.dependency.map_or_else(|| kind_of(self.target()), |dependency| dependency.kind)
    }

    fn layers(&self) -> impl Iterator<Item = &'a Layer> + use<'a> {
        self.stated().chain([&self.book.defaults])
    }

    /// The levels above the kind.
    fn stated(&self) -> impl Iterator<Item = &'a Layer> + use<'a> {
        let channel = self.channel.map(|channel| &channel.layer);
        let dependency = self.dependency.map(|dependency| &dependency.layer);
        [Some(&self.row.layer), channel, Some(&self.service.layer), dependency].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::read_bytes;

    const BOOK: &str = r#"
version: 1
defaults: { retry: patient, breaker: sidecarBreaker }
retry_policies:
  own: { from: standard, retries: 2 }
breakers:
  own: { trip: { consecutive: 7 }, open: 60s }
throttles:
  slow: { in_flight: 3, rate: 1/s }
dependencies:
  mail: { kind: smtp, breaker: own, throttle: slow, in_flight: 4, retry: own }
  queue: { kind: sqs, throttle: slow }
  b: { kind: relay }
services:
  a:
    target: { http: "http://127.0.0.1:9000" }
    depends_on: queue
    events: [x.y, { type: x.z, depends_on: mail }, { type: x.w, breaker: none }, { type: x.v, retry: aggressive }]
    channels:
      mail: { target: { smtp: "ops@example.test" }, events: [x.y], breaker: stateBreaker }
      same: { events: [x.y], on_failure: { transient: dead-letter } }
      other: { target: { ntfy: "http://127.0.0.1/x" }, depends_on: mail, events: [x.y] }
  b: { target: { http: "http://127.0.0.1:9000" }, events: [x.y] }
  c: { target: { exec: ["./run"] }, events: [{ type: x.y, retry: critical }] }
"#;

    #[test]
    fn what_is_looked_up_is_what_is_resolved() {
        let book = read_bytes(BOOK.as_bytes(), built_in()).book.expect("the book has no error");
        let book = book.sections();
        let dependencies = Dependencies::of(book);
        let mut seen = 0;
        for (name, callers) in dependencies.iter() {
            for caller in callers {
                seen += 1;
                let resolved = book.resolve(caller.service, caller.channel, caller.row);
                let at = caller.row.pattern.span.position;
                assert_eq!(resolved.dependency.value.as_str(), name, "{at}");
                assert_eq!(resolved.dependency.origin.span, caller.depends_on(), "{at}");
                assert_eq!(resolved.kind, caller.kind(), "{at}");
                assert_eq!(resolved.target, caller.target(), "{at}");
                let policy = resolved.retry_policy().map(|policy| (policy.name.as_str(), &policy.backoff));
                assert_eq!(policy, caller.policy(), "{at}");
                let chosen = caller.breaker();
                let settings = chosen.as_ref().map(|chosen| &chosen.breaker.settings);
                assert_eq!(resolved.rule.breaker.as_ref().map(|breaker| &breaker.settings), settings, "{at}");
                if let Some(chosen) = chosen {
                    assert_eq!(resolved.breaker_origin.span, chosen.span, "{at}");
                }
                let Permits { in_flight, rate, ramp, rate_growth, rate_memory } = caller.permits();
                assert_eq!(resolved.in_flight.origin.span, in_flight.map(|at| at.span), "{at}");
                assert_eq!(resolved.rate.map(|known| known.value), rate.map(|at| at.value), "{at}");
                assert_eq!(resolved.ramp.origin.span, ramp.map(|at| at.span), "{at}");
                assert_eq!(resolved.rate_growth.origin.span, rate_growth.map(|at| at.span), "{at}");
                assert_eq!(resolved.rate_memory.origin.span, rate_memory.map(|at| at.span), "{at}");
            }
        }
        assert_eq!(seen, book.rows().count());
    }

    #[test]
    fn a_rate_counts_once_and_for_certain_only_where_it_is_not_shared() {
        let book = |facts: &str, [a, b]: [&str; 2]| {
            let target = "target: { http: \"http://127.0.0.1:9000\" }, depends_on: d";
            format!(
                "version: 1\ndependencies:\n  d: {{ kind: webhook{facts} }}\n  e: {{ kind: webhook }}\n\
                 services:\n  a: {{ {target}, {a} }}\n  b: {{ {target}, {b} }}\n"
            )
        };
        let (two, plain) = ("events: [x.y, x.z], facts: { rate: 2/s }", "events: [x.y]");
        let split = "events: [x.y, { type: x.z, depends_on: e }], facts: { rate: 2/s }";
        let by_row = "events: [{ type: x.y, facts: { rate: 3/s } }], facts: { rate: 9/s }";
        #[rustfmt::skip]
        let cases = [
            ("a service's for all its rows",  book("", [two, two]),                        (4.0, Some(4.0))),
            ("a row's own",                   book("", [two, by_row]),                     (5.0, Some(5.0))),
            ("one is not known",              book("", [two, plain]),                      (2.0, None)),
            ("one goes elsewhere too",        book("", [two, split]),                      (2.0, Some(4.0))),
            ("the dependency's is the whole", book(", facts: { rate: 7/s }", [two, plain]), (7.0, Some(7.0))),
            ("the defaults' is each one's",   book("", [plain, plain]) + "defaults: { facts: { rate: 3/s } }\n", (6.0, Some(6.0))),
        ];
        for (name, book, (at_least, at_most)) in cases {
            let reading = read_bytes(book.as_bytes(), built_in());
            let book = reading.book.expect("the book has no error");
            let dependencies = Dependencies::of(book.sections());
            let (_, callers) = dependencies.iter().find(|(name, _)| *name == "d").expect("it is called");
            assert_eq!(dependencies.traffic(callers), Traffic { at_least, at_most }, "{name}");
        }
    }
}

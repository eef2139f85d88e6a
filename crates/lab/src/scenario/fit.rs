//! Whether a scenario fits a rule book, and the values that the book adds to it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lower::expected_events;
use super::{
    ALL_DEPENDENCIES, Arrival, ArrivalPattern, ArrivalScope, Behaviour, Latency, Scenario, Spacing, layers,
};
use redrive_core::book::RuleBook;
use redrive_core::book::model::{At, EventRow};
use redrive_core::book::problem::{BookSpan, Problems, suggest};
use redrive_core::event::attribute::EventType;
use redrive_core::ids::DependencyName;
use redrive_core::limits;
use redrive_core::text::{Share, show_count};

/// A p50 that is not stated is the p99 divided by this.
const P99_TO_P50: u32 = 10;

impl Scenario {
    #[must_use]
    pub fn misfits(&self, book: &RuleBook) -> Problems {
        let mut problems = Problems::default();
        let mut known = called_dependencies(book);
        known.extend(self.inner_dependencies());
        let named = self.dependencies.iter().map(|(name, at)| (name.as_str(), at.span));
        let named = named.filter(|(name, _)| *name != ALL_DEPENDENCIES);
        let expected = self.expectations.iter().filter_map(|at| Some((at.value.of.as_deref()?, at.span)));
        for (name, span) in named.chain(expected) {
            if !known.iter().any(|known| known.as_str() == name) {
                let message = format!("no rule of the book calls a dependency `{name}`");
                let help = suggest(name, known.iter().map(DependencyName::as_str));
                problems.error("undefined-name", span, message, help);
            }
        }
        for arrival in self.arrivals.iter().filter(|arrival| arrival.scope == ArrivalScope::OneType) {
            let event_type = arrival.event_type.value.as_str();
            if book.route(event_type).is_empty() {
                let types: BTreeSet<&str> =
                    book.sections().rows().map(|(_, _, row)| row.pattern.value.as_str()).collect();
                let message = format!("no service of the book receives `{event_type}`");
                problems.error("unwanted-type", arrival.event_type.span, message, suggest(event_type, types));
            }
        }
        // Once `all` is expanded, its calls may form cycles.
        let all = DependencyName::new(ALL_DEPENDENCIES).expect("a name");
        if self.dependencies.get(&all).is_some_and(|at| !at.value.calls.is_empty()) {
            let completed = Self { arrivals: Vec::new(), ..self.clone() }.completed_by(book);
            layers::check(&completed.dependencies, &mut problems);
        }
        if self.arrivals.is_empty() && arrivals_by_facts(self, book).is_empty() {
            let message =
                "nothing arrives: the scenario has no `arrivals`, and no row of the book has a rate";
            let help = "add `arrivals`, or `facts: { rate: 10/s }` in the book";
            problems.error("nothing-arrives", BookSpan::default(), message, help);
        }
        self.check_events(book, &mut problems);
        problems
    }

    /// Checks the number of events once arrivals are expanded to the rows and rates of the book.
    fn check_events(&self, book: &RuleBook, problems: &mut Problems) {
        let completed = self.clone().completed_by(book);
        let events: f64 = completed.arrivals.iter().map(expected_events).sum();
        if events > limits::SIMULATION_EVENTS_MAX as f64 {
            let every = self.arrivals.iter().find(|arrival| arrival.scope == ArrivalScope::EveryRow);
            let span = every.map_or_else(BookSpan::default, |arrival| arrival.event_type.span);
            let most = show_count(limits::SIMULATION_EVENTS_MAX);
            let message = format!("with this book the scenario has more than {most} events");
            problems.error("too-many-events", span, message, "shorten the scenario, or lower its rates");
        }
    }

    #[must_use]
    pub fn deliveries_expected(&self, book: &RuleBook) -> f64 {
        self.deliveries(book, expected_events)
    }

    #[must_use]
    pub fn deliveries_at_once(&self, book: &RuleBook) -> f64 {
        self.deliveries(book, |arrival| match &arrival.flow {
            ArrivalPattern::Bursts { size, .. } => f64::from(*size),
            ArrivalPattern::Steady { .. } | ArrivalPattern::Wave { .. } | ArrivalPattern::Trace { .. } => 0.0,
        })
    }

    /// The most failures of dependencies: a fault affects all of them, and a phase also the callers of the dependency.
    #[must_use]
    pub fn troubles_expected(&self, book: &RuleBook) -> usize {
        let completed = Self { arrivals: Vec::new(), ..self.clone() }.completed_by(book);
        let dependencies = completed.dependencies.values();
        let phases: usize = dependencies.clone().map(|at| at.value.phases.len()).sum();
        let callers = dependencies.clone().filter(|at| !at.value.calls.is_empty()).count();
        completed.dependencies.len() * completed.faults.len() + phases * (1 + callers)
    }

    fn deliveries(&self, book: &RuleBook, events: impl Fn(&Arrival) -> f64) -> f64 {
        let of = |arrival: &Arrival| {
            let takers = book.route(arrival.event_type.value.as_str()).len();
            events(arrival) * takers as f64
        };
        self.clone().completed_by(book).arrivals.iter().map(of).sum()
    }

    /// Expands `*` and `all` to the rows and dependencies of the book, and adds its rates and latencies where the
    /// scenario states none.
    #[must_use]
    pub fn completed_by(mut self, book: &RuleBook) -> Self {
        self.arrivals = if self.arrivals.is_empty() {
            arrivals_by_facts(&self, book)
        } else {
            self.arrivals.iter().flat_map(|arrival| for_each_row(arrival, book)).collect()
        };
        let called = called_dependencies(book);
        let all = DependencyName::new(ALL_DEPENDENCIES).expect("a name");
        let usual = if called.contains(&all) { None } else { self.dependencies.remove(&all) };
        let usual = usual.unwrap_or_else(|| At { value: Behaviour::default(), span: BookSpan::default() });
        for name in called {
            let p99 = known_p99(book, &name);
            let behaviour = &mut self.dependencies.entry(name).or_insert_with(|| usual.clone()).value;
            let by_fact = p99.map(|p99| Latency { p50: p99 / P99_TO_P50, p99 });
            behaviour.latency.get_or_insert(by_fact.unwrap_or(Latency::USUAL));
        }
        for name in self.inner_dependencies() {
            let unnamed = || At { value: Behaviour::default(), span: BookSpan::default() };
            let behaviour = &mut self.dependencies.entry(name).or_insert_with(unnamed).value;
            behaviour.latency.get_or_insert(Latency::USUAL);
        }
        self
    }
}

fn type_of(row: &EventRow) -> Option<EventType> {
    EventType::new(&row.pattern.value.as_str().replace('*', "any")).ok()
}

fn for_each_row(arrival: &Arrival, book: &RuleBook) -> Vec<Arrival> {
    match arrival.scope {
        ArrivalScope::OneType => vec![arrival.clone()],
        ArrivalScope::EveryRow => {
            let types: BTreeSet<EventType> =
                book.sections().rows().filter_map(|(.., row)| type_of(row)).collect();
            let of = |value| Arrival {
                event_type: At { value, span: arrival.event_type.span },
                scope: ArrivalScope::OneType,
                ..arrival.clone()
            };
            types.into_iter().map(of).collect()
        }
    }
}

fn called_dependencies(book: &RuleBook) -> BTreeSet<DependencyName> {
    book.sections().resolved().map(|resolved| resolved.rule.dependency).collect()
}

/// The fact `p99` of a dependency: its own, else the longest of its callers.
fn known_p99(book: &RuleBook, dependency: &DependencyName) -> Option<Duration> {
    let sections = book.sections();
    let own = sections.dependencies.get(dependency).and_then(|entry| entry.layer.facts.p99.as_ref());
    let callers = sections.resolved().filter(|resolved| resolved.rule.dependency == *dependency);
    let longest = || callers.filter_map(|resolved| Some(resolved.facts.p99?.value)).max();
    own.map(|p99| p99.value).or_else(longest)
}

/// A type of two rows arrives once, at the higher of their rates.
fn arrivals_by_facts(scenario: &Scenario, book: &RuleBook) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (_, _, row) in book.sections().rows() {
        let Some(rate) = row.layer.facts.rate.as_ref().map(|at| at.value) else { continue };
        let Some(value) = type_of(row) else { continue };
        if let Some(known) = arrivals.iter_mut().find(|known| known.event_type.value == value) {
            if let ArrivalPattern::Steady { rate: before, .. } = &mut known.flow
                && *before < rate
            {
                *before = rate;
            }
            continue;
        }
        arrivals.push(Arrival {
            event_type: At { value, span: BookSpan::default() },
            scope: ArrivalScope::OneType,
            sessions: None,
            poison: Share::NONE,
            from: Duration::ZERO,
            until: scenario.duration,
            flow: ArrivalPattern::Steady { rate, spacing: Spacing::Random },
        });
    }
    arrivals
}

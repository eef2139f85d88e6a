//! Advice that was simulated: the scenario is run again with each candidate change, and only changes that helped are
//! reported.
//!
//! One run is luck: the moment at which a breaker's probe falls often matters more than the change. So a change must
//! help with the run's own seed and with each of the next ones. Most that do not help fail with the first.

use std::sync::Arc;

use serde::Serialize;

use super::change::changed;
use super::verdict::{Candidate, CandidateGain, SimulationFinding, verdict};
use super::{Go, SimulationPlan, SimulationProgress, SimulationReport, run};
use crate::scenario::expectation::MetricValue;
use redrive_core::book::RuleBook;

/// A change to the rule book that helps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = SimulatedAdvice))]
pub struct ProvenChange {
    /// The change in a few words.
    pub words: String,
    /// YAML to merge into the rule book.
    pub change: String,
    /// The figure that improved.
    pub metric: &'static str,
    /// Its value without the change, with the seed of the run. Durations are in seconds; null means never.
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub before: MetricValue,
    /// Its value with the change.
    #[cfg_attr(feature = "schema", schema(value_type = Option<f64>))]
    pub after: MetricValue,
    /// Both values as text.
    pub shown: [String; 2],
    /// What gets clearly worse with the change; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub price: String,
    /// The number of seeds it was simulated with; it helped with each.
    pub seeds: u64,
}

const SEEDS: u64 = 5;
/// Limits on the work of one call: the changes tried, and the attempts simulated.
const CHANGES_MAX: usize = 16;
const ATTEMPTS_MAX: u64 = 4_000_000;
/// A run with more attempts gets no advice.
const ATTEMPTS_OF_RUN_MAX: u64 = ATTEMPTS_MAX / (2 * SEEDS);

/// The findings of the report, each with the changes that were proven. A change whose run `watch` stops is left out.
pub fn advised(
    plan: &SimulationPlan<'_>,
    report: &SimulationReport,
    book_text: &str,
    watch: &mut dyn FnMut(SimulationProgress) -> Go,
) -> Vec<SimulationFinding> {
    let mut findings = verdict(report, &plan.book);
    let is_quick = report.attempts <= ATTEMPTS_OF_RUN_MAX;
    let changes = if is_quick { changes(&findings) } else { Vec::new() };
    let mut again = CandidateRuns { plan, watch, first: report, others: Vec::new(), attempts: 0 };
    let mut proven: Vec<(Candidate, CandidateGain)> = Vec::new();
    for candidates in changes.into_iter().take(CHANGES_MAX) {
        let book = changed(&plan.book, book_text, &candidates[0].change);
        let gained = book.and_then(|book| again.proven(&book, candidates)).unwrap_or_default();
        proven.extend(gained.into_iter().map(|(candidate, gain)| (candidate.clone(), gain)));
    }
    let gain =
        |candidate: &Candidate| proven.iter().find(|(known, _)| known == candidate).map(|(_, gain)| *gain);
    for finding in &mut findings {
        let candidates = finding.candidates.iter();
        let proven = candidates.filter_map(|candidate| Some(ProvenChange::new(candidate, gain(candidate)?)));
        finding.advice = proven.collect();
    }
    findings
}

/// Candidates grouped by the change they make, in order of first appearance.
fn changes(findings: &[SimulationFinding]) -> Vec<Vec<&Candidate>> {
    let mut changes: Vec<Vec<&Candidate>> = Vec::new();
    for candidate in findings.iter().flat_map(|finding| &finding.candidates) {
        match changes.iter_mut().find(|known| known[0].change == candidate.change) {
            Some(known) => known.push(candidate),
            None => changes.push(vec![candidate]),
        }
    }
    changes
}

impl ProvenChange {
    fn new(candidate: &Candidate, gain: CandidateGain) -> Self {
        Self {
            words: candidate.words(),
            change: candidate.change.to_string(),
            metric: candidate.measure.as_str(),
            before: gain.before,
            after: gain.after,
            shown: [gain.before.to_string(), gain.after.to_string()],
            price: gain.price.to_string(),
            seeds: SEEDS,
        }
    }
}

struct CandidateRuns<'a, 'w> {
    plan: &'a SimulationPlan<'a>,
    watch: &'w mut dyn FnMut(SimulationProgress) -> Go,
    first: &'a SimulationReport,
    /// Runs with the later seeds, made when first needed.
    others: Vec<SimulationReport>,
    attempts: u64,
}

impl CandidateRuns<'_, '_> {
    /// The candidates that gain with every seed, with the gain of the first seed; `None` if the budget does not
    /// suffice.
    fn proven<'c>(
        &mut self,
        book: &Arc<RuleBook>,
        candidates: Vec<&'c Candidate>,
    ) -> Option<Vec<(&'c Candidate, CandidateGain)>> {
        let after = self.play(book, 0)?;
        let gain = |candidate: &'c Candidate| Some((candidate, candidate.gain(self.first, &after)?));
        let mut gained: Vec<(&Candidate, CandidateGain)> = candidates.into_iter().filter_map(gain).collect();
        for (place, later) in (1..SEEDS).enumerate() {
            if gained.is_empty() {
                break;
            }
            if self.others.len() == place {
                let before = self.play(&Arc::clone(&self.plan.book), later)?;
                self.others.push(before);
            }
            let after = self.play(book, later)?;
            let before = &self.others[place];
            gained.retain(|(candidate, _)| candidate.gain(before, &after).is_some());
        }
        Some(gained)
    }

    fn play(&mut self, book: &Arc<RuleBook>, later: u64) -> Option<SimulationReport> {
        if self.attempts >= ATTEMPTS_MAX {
            return None;
        }
        let seed = self.plan.seed.wrapping_add(later);
        let plan = SimulationPlan { book: Arc::clone(book), seed, ..self.plan.clone() };
        let report = run(&plan, self.watch).ok()?;
        self.attempts += report.attempts;
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::book::{self, patch};
    use std::num::NonZeroU32;

    use super::*;
    use crate::scenario::{self, Scenario};
    use redrive_core::book::connectors::built_in;
    use redrive_core::book::model::Machine;

    const GUARDED: &str = "\
version: 1
breakers:
  five: { trip: { consecutive: 5 }, open: 10s }
dependencies:
  api: { kind: webhook, breaker: five, in_flight: 500, ramp: 0s }
services:
  shop: { target: { http: \"http://127.0.0.1:9000/\" }, depends_on: api, events: [\"orders.*\"] }
";
    const OUTAGE: &str = "\
version: 1
duration: 2m
arrivals: [{ type: orders.placed, rate: 2/s }]
dependencies:
  api: { latency: { p50: 20ms, p99: 200ms }, phases: [{ at: 30s, for: 30s, is: down }] }
";

    fn plan(scenario: &Scenario, seed: u64) -> SimulationPlan<'_> {
        SimulationPlan {
            scenario,
            book: Arc::new(book::read(GUARDED, built_in()).book.expect("a book")),
            seed,
        }
    }

    fn play(plan: &SimulationPlan<'_>) -> SimulationReport {
        run(plan, &mut |_| Go::On).expect("no run is stopped")
    }

    /// Where a breaker holds everything, jitter changes nothing but the moment of its probe.
    #[test]
    fn a_change_that_helps_by_luck_is_not_told() {
        let scenario = scenario::read(OUTAGE).scenario.expect("a scenario");
        let mut lucky = 0;
        for seed in 1..=40 {
            let plan = plan(&scenario, seed);
            let before = play(&plan);
            let findings = verdict(&before, &plan.book);
            let candidates = findings.iter().flat_map(|finding| &finding.candidates);
            for candidate in candidates.filter(|candidate| candidate.words().contains("jitter")) {
                let changed =
                    patch::laid_over(GUARDED, &candidate.change.to_string()).expect("both are YAML");
                let book = Arc::new(book::read(&changed, built_in()).book.expect("a book"));
                let after = play(&SimulationPlan { book, ..plan.clone() });
                lucky += usize::from(candidate.gain(&before, &after).is_some());
            }
            let told = advised(&plan, &before, GUARDED, &mut |_| Go::On);
            let told: Vec<&ProvenChange> = told.iter().flat_map(|advised| &advised.advice).collect();
            assert!(told.iter().all(|proven| !proven.words.contains("jitter")), "seed {seed}: {told:#?}");
        }
        assert!(lucky > 0, "no seed is lucky, so this proves nothing");
    }

    /// How many programs run at once is a matter of the machine, and it is the same one that is advised.
    #[test]
    fn what_is_promised_is_what_the_change_gives() {
        const PROGRAMS: &str = "\
version: 1
services:
  work: { target: { exec: [\"./work\"] }, retry: standard, events: [\"orders.*\"] }
";
        let scenario = scenario::read(
            "version: 1\nduration: 10m\narrivals: [{ type: orders.placed, rate: 2/s }]\ndependencies:\n  all: { latency: 400ms, phases: [{ at: 1m, for: 3m, fails: { status: 503, share: 60% } }] }\n",
        );
        let scenario = scenario.scenario.expect("a scenario");
        let machine = Machine { cores: NonZeroU32::MIN };
        let read = |text: &str| Arc::new(book::read_for(text, built_in(), machine).book.expect("a book"));
        let plan = SimulationPlan { scenario: &scenario, book: read(PROGRAMS), seed: 1 };
        let before = play(&plan);
        let told = advised(&plan, &before, PROGRAMS, &mut |_| Go::On);
        let mut proven = told.iter().flat_map(|advised| &advised.advice).peekable();
        assert!(proven.peek().is_some(), "{told:#?}");
        for proven in proven {
            let changed = patch::laid_over(PROGRAMS, &proven.change).expect("both are YAML");
            let after = play(&SimulationPlan { book: read(&changed), ..plan.clone() });
            let candidates = told.iter().flat_map(|finding| &finding.candidates);
            let mut same = candidates.filter(|candidate| candidate.change.to_string() == proven.change);
            let gains = same.find_map(|candidate| candidate.gain(&before, &after)).expect("it helps");
            assert_eq!(gains.after, proven.after, "{}", proven.words);
        }
    }

    #[test]
    fn what_is_stopped_is_not_told_and_the_rest_is() {
        let bare = GUARDED
            .replace("breaker: five", "breaker: none")
            .replace("depends_on", "retry: aggressive, depends_on");
        // Long enough for somebody to look at it while it is played.
        let scenario = scenario::read(&OUTAGE.replace("2/s", "40/s")).scenario.expect("a scenario");
        let book = Arc::new(book::read(&bare, built_in()).book.expect("a book"));
        let plan = SimulationPlan { scenario: &scenario, book, seed: 1 };
        let report = play(&plan);
        let count = |watch: &mut dyn FnMut(SimulationProgress) -> Go| {
            advised(&plan, &report, &bare, watch).iter().map(|advised| advised.advice.len()).sum::<usize>()
        };
        assert!(count(&mut |_| Go::On) > 0, "{:#?}", verdict(&report, &plan.book));
        assert_eq!(count(&mut |_| Go::Stop), 0);
    }
}

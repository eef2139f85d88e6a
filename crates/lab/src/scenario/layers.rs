//! Dependencies that stand before others: who calls whom, in no circle and not too deep.
//!
//! Invariant: it takes a time that grows with the number of calls, however many ways there are from one to another.

use std::collections::{BTreeMap, BTreeSet};

use super::{Behaviour, Scenario};
use redrive_core::book::model::At;
use redrive_core::book::problem::Problems;
use redrive_core::ids::DependencyName;
use redrive_core::limits;

type Behaviours = BTreeMap<DependencyName, At<Behaviour>>;

/// Reports calls between dependencies beyond the most that there may be.
pub(super) fn count(behaviours: &Behaviours, problems: &mut Problems) {
    let most = limits::SIMULATION_INNER_CALLS_MAX;
    let mut calls = behaviours.values().flat_map(|at| &at.value.calls);
    if let Some(beyond) = calls.nth(most) {
        let message = format!("dependencies call each other in more than {most} places");
        let help = "let one stand for several that fail and slow down together";
        problems.error("layers", beyond.dependency.span, message, help);
    }
}

/// Reports dependencies that call each other in a circle, and chains of them that are too long.
pub(super) fn check(behaviours: &Behaviours, problems: &mut Problems) {
    let mut known = Known::default();
    for name in behaviours.keys() {
        follow(behaviours, &mut vec![name], &mut known, problems);
    }
}

/// What was seen on the way.
#[derive(Default)]
struct Known<'a> {
    /// Those that a problem was told of: nothing more is.
    told: BTreeSet<&'a DependencyName>,
    /// The longest chain at whose end each was followed: a shorter one finds nothing new.
    followed: BTreeMap<&'a DependencyName, usize>,
}

/// Follows the calls of the last of a chain.
fn follow<'a>(
    behaviours: &'a Behaviours,
    chain: &mut Vec<&'a DependencyName>,
    known: &mut Known<'a>,
    problems: &mut Problems,
) {
    let Some(last) = chain.last().copied() else { return };
    let longest = known.followed.entry(last).or_default();
    if *longest >= chain.len() {
        return;
    }
    *longest = chain.len();
    let calls = behaviours.get(last).map(|at| at.value.calls.as_slice()).unwrap_or_default();
    for call in calls {
        let called = &call.dependency.value;
        let shown = || {
            let names = chain.iter().copied().chain([called]).map(|name| format!("`{name}`"));
            names.collect::<Vec<_>>().join(" calls ")
        };
        let begins_at = chain.iter().position(|name| *name == called);
        let is_too_long = chain.len() >= limits::SIMULATION_LAYERS_MAX;
        if begins_at.is_none() && !is_too_long {
            chain.push(called);
            follow(behaviours, chain, known, problems);
            chain.pop();
        } else if !known.told.contains(last) {
            known.told.extend(chain.iter().copied().chain([called]));
            let (message, help) = if begins_at.is_some() {
                (format!("{}: nobody would ever answer", shown()), "let the last of them call nobody")
            } else {
                let most = limits::SIMULATION_LAYERS_MAX;
                (format!("{}: more than {most} stand before each other", shown()), "leave some of them out")
            };
            problems.error("layers", call.dependency.span, message, help);
        }
    }
}

impl Scenario {
    /// Dependencies that others of the scenario call, whether or not the book knows them.
    pub(super) fn inner_dependencies(&self) -> BTreeSet<DependencyName> {
        let calls = self.dependencies.values().flat_map(|at| &at.value.calls);
        calls.map(|call| call.dependency.value.clone()).collect()
    }
}

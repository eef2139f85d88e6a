//! Calls between dependencies: without cycles and not too deep.
//!
//! Invariant: the time grows with the number of calls, not with the number of paths.

use std::collections::{BTreeMap, BTreeSet};

use super::{Behaviour, Scenario};
use redrive_core::book::model::At;
use redrive_core::book::problem::Problems;
use redrive_core::ids::DependencyName;
use redrive_core::limits;

type Behaviours = BTreeMap<DependencyName, At<Behaviour>>;

/// Reports too many calls between dependencies.
pub(super) fn count(behaviours: &Behaviours, problems: &mut Problems) {
    let most = limits::SIMULATION_INNER_CALLS_MAX;
    let mut calls = behaviours.values().flat_map(|at| &at.value.calls);
    if let Some(beyond) = calls.nth(most) {
        let message = format!("more than {most} calls between dependencies");
        let help = "merge dependencies that fail together";
        problems.error("layers", beyond.dependency.span, message, help);
    }
}

/// Reports cycles and chains that are too long.
pub(super) fn check(behaviours: &Behaviours, problems: &mut Problems) {
    let mut visited = VisitedLayers::default();
    for name in behaviours.keys() {
        follow(behaviours, &mut vec![name], &mut visited, problems);
    }
}

#[derive(Default)]
struct VisitedLayers<'a> {
    /// Dependencies with a reported problem.
    reported: BTreeSet<&'a DependencyName>,
    /// The longest chain that ends at each: a shorter one finds nothing new.
    followed: BTreeMap<&'a DependencyName, usize>,
}

fn follow<'a>(
    behaviours: &'a Behaviours,
    chain: &mut Vec<&'a DependencyName>,
    visited: &mut VisitedLayers<'a>,
    problems: &mut Problems,
) {
    let Some(last) = chain.last().copied() else { return };
    let longest = visited.followed.entry(last).or_default();
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
            follow(behaviours, chain, visited, problems);
            chain.pop();
        } else if !visited.reported.contains(last) {
            visited.reported.extend(chain.iter().copied().chain([called]));
            let (message, help) = if begins_at.is_some() {
                (format!("{}: calls in a cycle are never answered", shown()), "remove the last call")
            } else {
                let most = limits::SIMULATION_LAYERS_MAX;
                (format!("{}: the chain is longer than {most}", shown()), "remove some of the calls")
            };
            problems.error("layers", call.dependency.span, message, help);
        }
    }
}

impl Scenario {
    /// Dependencies that others of the scenario call; the book need not know them.
    pub(super) fn inner_dependencies(&self) -> BTreeSet<DependencyName> {
        let calls = self.dependencies.values().flat_map(|at| &at.value.calls);
        calls.map(|call| call.dependency.value.clone()).collect()
    }
}

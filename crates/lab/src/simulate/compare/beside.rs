//! The curves of two runs on a common time axis.

use serde::Serialize;

use crate::simulate::report::{DependencyReport, SimulationReport};

/// Curves by book; empty for a book that does not know the dependency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DependencyCurves {
    pub name: String,
    pub step_ms: u64,
    pub calls: [Vec<u64>; 2],
    pub waiting: [Vec<u64>; 2],
}

#[must_use]
pub fn beside(a: &SimulationReport, b: &SimulationReport) -> Vec<DependencyCurves> {
    let step_ms = a.step_ms.max(b.step_ms);
    let more = b.dependencies.iter().filter(|it| of(a, &it.name).is_none());
    let names = a.dependencies.iter().chain(more).map(|it| it.name.clone());
    let put = names.map(|name| {
        let each = |report: &SimulationReport,
                    series: fn(&DependencyReport) -> &[u64],
                    join: fn(u64, u64) -> u64| {
            let steps = of(report, &name).map(series).unwrap_or_default();
            coarser(steps, step_ms / report.step_ms.max(1), join)
        };
        let calls = [a, b].map(|report| each(report, |it| &it.series.calls, |one, other| one + other));
        let waiting = [a, b].map(|report| each(report, |it| &it.series.waiting, u64::max));
        DependencyCurves { name, step_ms, calls, waiting }
    });
    put.filter(|it| it.calls.iter().flatten().any(|count| *count > 0)).collect()
}

fn of<'a>(report: &'a SimulationReport, name: &str) -> Option<&'a DependencyReport> {
    report.dependencies.iter().find(|dependency| dependency.name == name)
}

fn coarser(steps: &[u64], each: u64, join: fn(u64, u64) -> u64) -> Vec<u64> {
    let each = usize::try_from(each).unwrap_or(usize::MAX).max(1);
    steps.chunks(each).map(|chunk| chunk.iter().copied().fold(0, join)).collect()
}

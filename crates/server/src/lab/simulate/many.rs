//! Many runs on all cores; results are merged in the order of their numbers, so that they do not depend on
//! timing.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use redrive_lab::simulate::figures::RunFigures;
use redrive_lab::simulate::runs::RunRanges;
use redrive_lab::simulate::{self, Go, SimulationPlan, SimulationReport};

use crate::lab::simulate::document::SimulationDocument;
use crate::lab::simulate::{Expectations, SimulateArgs, put_out, text};
use crate::terminal::progress::ProgressBar;

pub(crate) fn run(plan: &SimulationPlan<'_>, args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let ranges = RunRanges::of(&each(args.runs, |number| RunFigures::of(&play(plan, number))));
    let about = plan.scenario.about.as_deref();
    put_out(args, &SimulationDocument::new("ranges", plan.scenario, args, &ranges), || {
        text::ranges(about, &ranges)
    })?;
    let met = ranges.expectations.iter().map(|often| often.met == ranges.runs);
    Ok(Expectations::of(met).code(args))
}

/// Run `number`, from 0; its seed is the plan's plus `number`.
pub(crate) fn play(plan: &SimulationPlan<'_>, number: u32) -> SimulationReport {
    let seed = plan.seed.wrapping_add(u64::from(number));
    let report = simulate::run(&SimulationPlan { seed, ..plan.clone() }, &mut |_| Go::On);
    report.expect("never cancelled")
}

/// Runs `count` jobs on all cores with a progress bar; results are in order.
pub(crate) fn each<T: Send>(count: u32, act: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let next = AtomicU32::new(0);
    let done: Mutex<(Vec<(u32, T)>, ProgressBar)> = Mutex::new((Vec::new(), ProgressBar::new()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let came = act(number);
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.0.push((number, came));
                    let so_far = u32::try_from(done.0.len()).unwrap_or(u32::MAX);
                    done.1.show_runs(so_far, count);
                }
            });
        }
    });
    let (mut all, bar) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    bar.clear();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, came)| came).collect()
}

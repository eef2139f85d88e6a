//! `redrive simulate --sweep`: one setting over several values, or two over a grid.

use std::process::ExitCode;
use std::sync::Arc;

use redrive_core::book::problem::Problems;
use redrive_core::book::{RuleBook, patch, read_bytes_for};
use redrive_lab::scenario::Scenario;
use redrive_lab::simulate::SimulationPlan;
use redrive_lab::simulate::figures::RunFigures;
use redrive_lab::simulate::sweep::{Sweep, SweepResult, grid, swept};

use crate::cli::CommandRefusal;
use crate::connectors;
use crate::lab::simulate::document::SimulationDocument;
use crate::lab::simulate::text::sweep;
use crate::lab::simulate::{Expectations, SimulateArgs, many, put_out, read_scenario};
use crate::rules::file::{machine, read_book};

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    let (book, text) = read_book(&args.rules)?;
    let scenario = read_scenario(args, &[(&args.rules, &book)])?;
    for sweep in &args.sweep {
        sweep.fits(&book).map_err(|error| CommandRefusal(format!("--sweep {error}")))?;
    }
    let rows = grid(&args.sweep).map_err(|error| CommandRefusal(format!("--sweep: {error}")))?;
    let books = rows.iter().map(|values| changed(&args.sweep, values, &book, &text, &scenario));
    let books: Vec<Arc<RuleBook>> = books.collect::<Result<_, CommandRefusal>>()?;
    let swept = play(&scenario, &books, &rows, args);
    put_out(args, &SimulationDocument::new("sweep", &scenario, args, &swept), || {
        sweep::page(&scenario, args.runs, args.seed, &swept)
    })?;
    Ok(Expectations::of(swept.rows.iter().map(|row| row.as_expected)).code(args))
}

/// The book with these values; nothing runs unless each makes a book that the scenario fits.
fn changed(
    sweeps: &[Sweep],
    values: &[String],
    book: &RuleBook,
    text: &str,
    scenario: &Scenario,
) -> Result<Arc<RuleBook>, CommandRefusal> {
    let named: Vec<String> =
        sweeps.iter().zip(values).map(|(sweep, value)| format!("{}={value}", sweep.path())).collect();
    let refused = |problems: Problems| {
        let listed = sweep::problems(&problems.into_sorted());
        CommandRefusal(format!("--sweep {} does not give a valid rule book:\n{listed}", named.join(" and ")))
    };
    let mut text = text.to_owned();
    for (sweep, value) in sweeps.iter().zip(values) {
        text = patch::laid_over(&text, &sweep.change(book, value).to_string()).map_err(refused)?;
    }
    let reading = read_bytes_for(text.as_bytes(), connectors::table(), machine());
    let Some(changed) = reading.book else { return Err(refused(reading.problems)) };
    let misfits = scenario.misfits(&changed);
    if misfits.has_errors() {
        return Err(refused(misfits));
    }
    Ok(Arc::new(changed))
}

fn play(
    scenario: &Scenario,
    books: &[Arc<RuleBook>],
    rows: &[Vec<String>],
    args: &SimulateArgs,
) -> SweepResult {
    let count = u32::try_from(books.len()).expect("a grid is small").saturating_mul(args.runs);
    let measured = many::each(count, |number| {
        let (book, seed) = ((number / args.runs) as usize, number % args.runs);
        let plan = SimulationPlan { scenario, book: Arc::clone(&books[book]), seed: args.seed };
        RunFigures::of(&many::play(&plan, seed))
    });
    let runs: Vec<Vec<RunFigures>> =
        measured.chunks(args.runs as usize).map(<[RunFigures]>::to_vec).collect();
    swept(&args.sweep, rows, &runs)
}

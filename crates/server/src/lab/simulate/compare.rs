//! `redrive simulate --against`: two books, the same scenario and the same seeds, side by side.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use redrive_lab::simulate::compare::{BookComparison, DependencyCurves, Undecided, beside, compare_runs};
use redrive_lab::simulate::figures::RunFigures;
use redrive_lab::simulate::{SimulationPlan, SimulationReport};
use serde::Serialize;

use crate::lab::simulate::document::SimulationDocument;
use crate::lab::simulate::text::compare;
use crate::lab::simulate::{Expectations, SimulateArgs, many, put_out, read_scenario};
use crate::rules::file::read_book;

pub(crate) fn run(args: &SimulateArgs, against: &Path) -> anyhow::Result<ExitCode> {
    let books = [&*args.rules, against].map(|path| read_book(path).map(|(book, _)| Arc::new(book)));
    let [a, b] = books;
    let books = [a?, b?];
    let fitting = [(&*args.rules, &*books[0]), (against, &*books[1])];
    let scenario = read_scenario(args, &fitting)?;
    let plans = books.map(|book| SimulationPlan { scenario: &scenario, book, seed: args.seed });
    let (comparison, first) = play(&plans, args.runs);
    let names = names(&args.rules, against);
    let names = names.each_ref().map(String::as_str);
    let over_time = beside(&first[0], &first[1]);
    let compared = ComparisonDocument {
        books: names,
        overall: comparison.overall(names),
        undecided: comparison.undecided(),
        comparison: &comparison,
        over_time: &over_time,
    };
    put_out(args, &SimulationDocument::new("comparison", &scenario, args, &compared), || {
        compare::page(&first[0], names, &comparison, &over_time)
    })?;
    Ok(Expectations::of(std::iter::once(comparison.is_as_expected())).code(args))
}

#[derive(Serialize)]
struct ComparisonDocument<'a> {
    books: [&'a str; 2],
    overall: String,
    undecided: Undecided,
    #[serde(flatten)]
    comparison: &'a BookComparison,
    over_time: &'a [DependencyCurves],
}

fn play(plans: &[SimulationPlan<'_>; 2], runs: u32) -> (BookComparison, [SimulationReport; 2]) {
    let played = many::each(runs.saturating_mul(2), |number| {
        let (seed, book) = (number / 2, (number % 2) as usize);
        let report = many::play(&plans[book], seed);
        (RunFigures::of(&report), (seed == 0).then_some(report))
    });
    let (measured, reports): (Vec<RunFigures>, Vec<Option<SimulationReport>>) = played.into_iter().unzip();
    let pairs: Vec<[RunFigures; 2]> =
        measured.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
    let first: Vec<SimulationReport> = reports.into_iter().flatten().collect();
    (compare_runs(&pairs), first.try_into().expect("both books ran with the first seed"))
}

fn names(a: &Path, b: &Path) -> [String; 2] {
    let short = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    match (short(a), short(b)) {
        (Some(a), Some(b)) if a != b => [a, b],
        _ => [a, b].map(|path| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_are_called_by_what_tells_them_apart() {
        #[rustfmt::skip]
        let cases = [
            ("two files",           "a.yaml",           "b.yaml",           ["a.yaml", "b.yaml"]),
            ("in other folders",    "x/a.yaml",         "y/b.yaml",         ["a.yaml", "b.yaml"]),
            ("of the same name",    "old/redrive.yaml", "new/redrive.yaml", ["old/redrive.yaml", "new/redrive.yaml"]),
        ];
        for (name, a, b, expected) in cases {
            assert_eq!(names(Path::new(a), Path::new(b)), expected, "{name}");
        }
    }
}

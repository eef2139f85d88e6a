//! Varies one setting of a rule book over several values, or two over a grid.
//!
//! A path leads into the book (`retry_policies.standard.max`) and each value is merged at it. A catalog policy or
//! breaker is extended, an undeclared dependency is declared. Unknown names are refused: they would silently change
//! nothing.

mod outcome;
#[cfg(test)]
mod tests;

use std::str::FromStr;

pub use self::outcome::{SweepColumn, SweepResult, SweepRow, swept};
use super::change::beside_change;
use redrive_core::book::RuleBook;
use redrive_core::book::patch::{Patch, PatchStep};
use redrive_core::book::problem::suggest;
use redrive_core::limits;
use redrive_core::policy::catalog;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    path: String,
    keys: Vec<String>,
    values: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSweep {
    #[error("write PATH=VALUE,VALUE, such as retries.standard.max=5s,30s,120s")]
    Form,
    #[error(
        "`{path}` is not a setting: a path needs at least two names; quote names with dots: \
         dependencies.\"api.eu\".in_flight"
    )]
    Path { path: String },
    #[error("`{text}`: unclosed bracket or quote")]
    Open { text: String },
    #[error("duplicate value `{value}`")]
    Twice { value: String },
    #[error("`{path}`: no `{name}` under `{section}`: {help}")]
    Unknown { path: String, section: String, name: String, help: String },
    #[error("{books} combinations exceed the limit of {max}: use fewer values", max = limits::SIMULATION_SWEEP_MAX)]
    TooMany { books: usize },
}

impl FromStr for Sweep {
    type Err = InvalidSweep;

    fn from_str(text: &str) -> Result<Self, InvalidSweep> {
        let [path, values] = parts(text, '=', PartsLimit::Two)?.try_into().map_err(|_| InvalidSweep::Form)?;
        let unquoted = |part: &String| part.trim_matches('"').to_owned();
        let mut keys: Vec<String> = parts(&path, '.', PartsLimit::None)?.iter().map(unquoted).collect();
        let mut values: Vec<String> = parts(&values, ',', PartsLimit::None)?;
        values.retain(|value| !value.is_empty());
        if keys.iter().any(String::is_empty) || keys.len() < 2 {
            return Err(InvalidSweep::Path { path });
        }
        if values.is_empty() {
            return Err(InvalidSweep::Form);
        }
        if let Some(value) = (1..values.len()).find(|at| values[..*at].contains(&values[*at])) {
            return Err(InvalidSweep::Twice { value: values[value].clone() });
        }
        if keys[0] == "retries" {
            "retry_policies".clone_into(&mut keys[0]);
        }
        Ok(Self { path, keys, values })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartsLimit {
    Two,
    None,
}

/// Splits at `mark` outside brackets and quotes.
fn parts(text: &str, mark: char, limit: PartsLimit) -> Result<Vec<String>, InvalidSweep> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_usize, None);
    for letter in text.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('"' | '\'', None) => quote = Some(letter),
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            (_, Some(_) | None) => {}
        }
        let is_full = limit == PartsLimit::Two && parts.len() == 2;
        if letter == mark && depth == 0 && quote.is_none() && !is_full {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(letter);
        }
    }
    if depth > 0 || quote.is_some() {
        return Err(InvalidSweep::Open { text: text.to_owned() });
    }
    Ok(parts.iter().map(|part| part.trim().to_owned()).collect())
}

impl Sweep {
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    #[must_use]
    pub fn key(&self) -> &str {
        self.keys.last().map_or("", String::as_str)
    }

    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    pub fn fits(&self, book: &RuleBook) -> Result<(), InvalidSweep> {
        let [section, name, ..] = self.keys.as_slice() else { return Ok(()) };
        let Some(known) = names(book, section) else { return Ok(()) };
        if known.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(InvalidSweep::Unknown {
            path: self.path.clone(),
            section: section.clone(),
            name: name.clone(),
            help: suggest(name, known.iter().map(String::as_str)),
        })
    }

    #[must_use]
    pub fn change(&self, book: &RuleBook, value: &str) -> Patch {
        let (last, place) = self.keys.split_last().expect("a path has keys");
        let step = |(at, key): (usize, &String)| {
            // Rows of `events` are addressed by their type.
            let is_row = at > 1 && self.keys[at - 1] == "events";
            if is_row { PatchStep::Row(key.clone()) } else { PatchStep::Key(key.clone()) }
        };
        let place: Vec<PatchStep> = place.iter().enumerate().map(step).collect();
        let beside = beside_change(book, &self.keys[0], &self.keys[1]).filter(|_| self.keys.len() > 2);
        let patch = beside.map(|(key, value)| Patch::new().set(&place[..2], key, value)).unwrap_or_default();
        patch.set(&place, last, value)
    }
}

/// `None` for a section with fixed keys.
fn names(book: &RuleBook, section: &str) -> Option<Vec<String>> {
    let sections = book.sections();
    let own = |names: Vec<String>, catalog: Vec<&'static str>| {
        Some(names.into_iter().chain(catalog.into_iter().map(str::to_owned)).collect())
    };
    match section {
        "retry_policies" => own(
            sections.policies.keys().map(ToString::to_string).collect(),
            catalog::policies().iter().map(|policy| policy.name).collect(),
        ),
        "breakers" => own(
            sections.breakers.keys().map(ToString::to_string).collect(),
            catalog::BREAKERS.iter().map(|breaker| breaker.name).collect(),
        ),
        "timeouts" => own(
            sections.timeouts.keys().cloned().collect(),
            catalog::TIMEOUTS.iter().map(|timeout| timeout.name).collect(),
        ),
        "throttles" => own(sections.throttles.keys().cloned().collect(), Vec::new()),
        "services" => {
            own(sections.services.iter().map(|service| service.name.to_string()).collect(), Vec::new())
        }
        "dependencies" => {
            let rows = sections.resolved().map(|rule| rule.dependency.value.to_string());
            own(sections.dependencies.keys().map(ToString::to_string).chain(rows).collect(), Vec::new())
        }
        _ => None,
    }
}

pub fn grid(sweeps: &[Sweep]) -> Result<Vec<Vec<String>>, InvalidSweep> {
    let books = sweeps.iter().map(|sweep| sweep.values.len()).fold(1_usize, usize::saturating_mul);
    if books > limits::SIMULATION_SWEEP_MAX {
        return Err(InvalidSweep::TooMany { books });
    }
    let mut rows = vec![Vec::new()];
    for sweep in sweeps {
        let with = |row: &Vec<String>| {
            let longer = |value: &String| row.iter().chain([value]).cloned().collect::<Vec<_>>();
            sweep.values.iter().map(longer).collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(with).collect();
    }
    Ok(rows)
}

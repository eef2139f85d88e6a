//! Reads the rule book of a command.

use std::io::ErrorKind;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::anyhow;
use redrive_core::book::RuleBook;
use redrive_core::book::model::Machine;

use crate::cli::CommandRefusal;
use crate::connectors;
use crate::terminal::{self, problem, shell_word};

/// Reads a book; prints its errors and refuses it if it has any.
pub(crate) fn open_book(path: &Path) -> anyhow::Result<RuleBook> {
    read_book(path).map(|(book, _)| book)
}

pub(crate) fn read_book(path: &Path) -> anyhow::Result<(RuleBook, String)> {
    let bytes = load(path)?;
    let reading = redrive_core::book::read_bytes_for(&bytes, connectors::table(), machine());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if let Some(book) = reading.book {
        return Ok((book, text));
    }
    for problem in reading.problems.into_sorted() {
        problem::say(&problem, path, &text);
    }
    Err(CommandRefusal(format!("{} has errors: fix these errors first", path.display())).into())
}

pub(crate) fn load(path: &Path) -> anyhow::Result<Vec<u8>> {
    redrive::load::load(path).map_err(|error| {
        let shown = path.display();
        let why = match error.source.kind() {
            ErrorKind::NotFound => {
                format!("no such file; create one with `redrive init {}`", shell_word(&shown.to_string()))
            }
            ErrorKind::IsADirectory => "it is a folder, not a file".to_owned(),
            ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => terminal::io_words(&error.source),
        };
        anyhow!("could not read {shown}: {why}")
    })
}

pub(crate) fn machine() -> Machine {
    let cores = std::thread::available_parallelism().ok().and_then(|cores| NonZeroU32::try_from(cores).ok());
    cores.map_or_else(Machine::default, |cores| Machine { cores })
}

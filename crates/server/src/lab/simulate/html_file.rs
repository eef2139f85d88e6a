//! Writes the page of `--html` atomically.
//!
//! Written beside its place and renamed: readers see the old page or the new one, and a full disk leaves the
//! old one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde::Serialize;

use crate::lab::simulate::SimulateArgs;
use crate::lab::simulate::document::{SimulationDocument, document};
use crate::terminal::{self, style};

pub(crate) fn write(
    args: &SimulateArgs,
    played: &SimulationDocument<'_, impl Serialize>,
) -> anyhow::Result<()> {
    let Some(path) = &args.html else { return Ok(()) };
    check(path, args)?;
    put(path, document(played)?.as_bytes()).map_err(|error| not_written(path, &error))?;
    anstream::eprintln!("{}", style::dim(format!("wrote {}", path.display())));
    Ok(())
}

/// Refuses a path that would overwrite an input, or a file that is not such a page.
fn check(path: &Path, args: &SimulateArgs) -> anyhow::Result<()> {
    let shown = path.display();
    let Ok(found) = fs::canonicalize(path) else { return Ok(()) };
    let read = [Some(&args.scenario), Some(&args.rules), args.against.as_ref()];
    if read.into_iter().flatten().any(|read| fs::canonicalize(read).is_ok_and(|read| read == found)) {
        return Err(anyhow!("could not write {shown}: it is an input of this run; choose another file"));
    }
    if !found.is_file() && !found.is_dir() {
        return Err(anyhow!("could not write {shown}: it is not a regular file"));
    }
    if found.is_file() && !is_page(&found) {
        return Err(anyhow!(
            "could not write {shown}: the file exists and is not a page; choose another, or remove it"
        ));
    }
    Ok(())
}

fn is_page(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut beginning));
    read.is_ok() && (beginning.is_empty() || beginning.eq_ignore_ascii_case(BEGINNING))
}

const BEGINNING: &[u8] = b"<!doctype html>";

fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let beside = beside(path)?;
    let written = File::create_new(&beside).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // A partial page is useless; a failed removal is no worse.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    Ok(path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id())))
}

fn not_written(path: &Path, error: &io::Error) -> anyhow::Error {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let why = match (error.kind(), folder) {
        (ErrorKind::NotFound, Some(folder)) => format!("no such folder: {}", folder.display()),
        (ErrorKind::NotADirectory, Some(folder)) => format!("{} is not a folder", folder.display()),
        (ErrorKind::IsADirectory | ErrorKind::InvalidInput, _) => "it is a folder; choose a file".to_owned(),
        (ErrorKind::PermissionDenied, _) => "permission denied".to_owned(),
        _ => terminal::io_words(error),
    };
    anyhow!("could not write {}: {why}", path.display())
}

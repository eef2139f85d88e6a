//! Files that commands read and write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::cli::CommandRefusal;
use crate::terminal;

/// Why a file or folder could not be made.
pub(crate) fn not_made(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::PermissionDenied => "this user may not write there".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "there is a file where a folder should be".to_owned()
        }
        _ => terminal::io_words(error),
    };
    anyhow!("could not {what} {}: {why}", path.display())
}

/// Writes a new file, with the folders above it; a file that is there is never written over, whoever
/// else may be creating it.
pub(crate) fn write_new(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| not_made("create", folder, &error))?;
    }
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let refusal = format!("{shown} is there already and stays as it is: name another file");
            return Err(CommandRefusal(refusal).into());
        }
        Err(error) => return Err(not_made("create", path, &error)),
    };
    file.write_all(content.as_ref()).and_then(|()| file.sync_all()).map_err(|error| {
        // Half a file would be in the way of the next try; if it cannot be removed, that is no worse.
        let _ = fs::remove_file(path);
        not_made("write", path, &error)
    })
}

/// The bytes of a file, or of standard input if it is called `-`; who is named takes no more than so many.
pub(crate) fn read_input(path: &Path, bytes_max: u64, taker: &str) -> anyhow::Result<Vec<u8>> {
    let (input, name): (Box<dyn Read>, String) = if path.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), "standard input".to_owned())
    } else {
        let file = File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        (Box::new(file), path.display().to_string())
    };
    let mut bytes = Vec::new();
    input.take(bytes_max + 1).read_to_end(&mut bytes).with_context(|| format!("could not read {name}"))?;
    if bytes.len() as u64 > bytes_max {
        let mebibytes = bytes_max >> 20;
        return Err(CommandRefusal(format!(
            "{name} has more than {mebibytes} MiB: no {taker} takes so much"
        ))
        .into());
    }
    Ok(bytes)
}

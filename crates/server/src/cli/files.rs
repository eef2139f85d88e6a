//! Files that commands read and write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::cli::CommandRefusal;
use crate::terminal;

pub(crate) fn not_made(what: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a file is in the place of a folder".to_owned()
        }
        _ => terminal::io_words(error),
    };
    anyhow!("could not {what} {}: {why}", path.display())
}

/// Writes a new file and missing folders; never overwrites, also not in a race.
pub(crate) fn write_new(path: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let shown = path.display();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| not_made("create", folder, &error))?;
    }
    let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let refusal = format!("{shown} exists: choose another file");
            return Err(CommandRefusal(refusal).into());
        }
        Err(error) => return Err(not_made("create", path, &error)),
    };
    file.write_all(content.as_ref()).and_then(|()| file.sync_all()).map_err(|error| {
        // A partial file would block the next try; a failed removal is no worse.
        let _ = fs::remove_file(path);
        not_made("write", path, &error)
    })
}

/// The bytes of a file, or of standard input for `-`, with a size limit.
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
        return Err(
            CommandRefusal(format!("{name} is larger than {mebibytes} MiB, the limit of a {taker}")).into()
        );
    }
    Ok(bytes)
}

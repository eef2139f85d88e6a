//! Makes folders and files that only their owner can read: events, dead letters and the hashes of keys are
//! nobody else's, whatever the process was told to let others do.
//!
//! Invariant: what is there already keeps the rights that somebody gave it.

use std::fs::DirBuilder;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Makes a folder, with those above it, unless it is there.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Makes an empty file, unless it is there. `SQLite` would let everybody read one of its own making, and gives
/// what it keeps beside a file the rights of the file.
pub fn make_file(path: &Path) -> io::Result<()> {
    match for_owner(OpenOptions::new().write(true).create_new(true)).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// What is made by these options is for its owner only.
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

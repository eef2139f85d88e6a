//! Creates folders and files that only their owner can read, regardless of the umask.
//!
//! Invariant: existing files and folders keep their permissions.

use std::fs::DirBuilder;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Creates a folder and its parents unless they exist.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Creates an empty file unless it exists. SQLite would create a world-readable one; its journal files
/// inherit the permissions of the database file.
pub fn make_file(path: &Path) -> io::Result<()> {
    match for_owner(OpenOptions::new().write(true).create_new(true)).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Restricts files created with these options to their owner.
pub fn for_owner(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

//! What is to be run: a program with its arguments, its input, its environment and its folder.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;

use super::birth;
use super::family::{MARK_VARIABLE, Mark};

/// What a program inherits of our environment if nobody says more: where things are and how people write, and
/// nothing that could be a secret.
pub const INHERITED: &[&str] = &[
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NUMERIC",
    "LC_TIME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
];

/// One process of many may have more data than all are meant to have resident: much of it is never touched. But
/// it cannot have so much that a watch which looks ten times a second would come too late.
const DATA_BYTES_BEYOND: u64 = 1024 * 1024 * 1024;

/// A program to be run.
#[derive(Clone, Debug)]
pub struct Command {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    inherited: Vec<OsString>,
    folder: Option<PathBuf>,
    input: Vec<u8>,
}

impl Command {
    /// That program: a path, or a name that is looked up in `PATH`. No shell reads it.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            inherited: INHERITED.iter().map(OsString::from).collect(),
            folder: None,
            input: Vec::new(),
        }
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// With these bytes on its standard input, which ends after them.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// With that variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// With that variable as we have it, beside those of [`INHERITED`].
    #[must_use]
    pub fn inherit(mut self, name: impl AsRef<OsStr>) -> Self {
        self.inherited.push(name.as_ref().to_owned());
        self
    }

    /// In that folder, not in ours.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The program as it was named.
    pub(super) fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// The folder to run in, if it is not ours.
    pub(super) fn stated_folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    /// What is to be started, and what to write to it.
    pub(super) fn prepare(
        self,
        mark: &Mark,
        memory_bytes: Option<u64>,
    ) -> (tokio::process::Command, Vec<u8>) {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).env_clear();
        for name in &self.inherited {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(self.variables).env(MARK_VARIABLE, mark.as_str());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let stdin = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let data_bytes = memory_bytes.map(|bytes| bytes.saturating_mul(2).saturating_add(DATA_BYTES_BEYOND));
        birth::prepare(&mut command, data_bytes);
        (command, self.input)
    }
}

//! A program to run, with arguments, input, environment and folder.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Stdio;

use super::birth;
use super::family::{FamilyReach, MARK_VARIABLE, RunMark};

/// Variables that every program inherits: paths and locale, nothing that could be a secret.
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

/// A process may reserve more memory than all of them may have resident, but not so much that a watch that
/// looks ten times a second would come too late.
const DATA_BYTES_BEYOND: u64 = 1024 * 1024 * 1024;

/// A program to run.
#[derive(Clone, Debug)]
pub struct ProgramCommand {
    program: OsString,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    inherited: Vec<OsString>,
    folder: Option<PathBuf>,
    input: Vec<u8>,
    reach: FamilyReach,
}

impl ProgramCommand {
    /// A path, or a name looked up in `PATH`; no shell is involved.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            inherited: INHERITED.iter().map(OsString::from).collect(),
            folder: None,
            input: Vec::new(),
            reach: FamilyReach::All,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Sets the standard input, which ends after these bytes.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn variable(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Inherits a variable beside those of [`INHERITED`].
    #[must_use]
    pub fn inherit(mut self, name: impl AsRef<OsStr>) -> Self {
        self.inherited.push(name.as_ref().to_owned());
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Processes that leave its group are not part of the run.
    pub(super) fn group_only(mut self) -> Self {
        self.reach = FamilyReach::Group;
        self
    }

    pub(super) const fn reach(&self) -> FamilyReach {
        self.reach
    }

    /// The program as named.
    pub(super) fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    pub(super) fn stated_folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    pub(super) fn prepare(
        self,
        mark: &RunMark,
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

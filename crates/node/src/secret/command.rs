//! Secrets that a command prints, such as one of a password store.
//!
//! The command is run without a shell. Its other output is discarded, since it may contain the secret: a
//! failure reports the exit status only.
//!
//! Invariant: dropping the fetch kills the command and its process group.

use std::future::Future;
use std::pin::Pin;
use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, SecretError, SecretSource, SecretValues};

pub(super) struct SecretCommand {
    words: Vec<String>,
}

impl SecretCommand {
    pub(super) fn new(words: &[String]) -> Self {
        Self { words: words.to_vec() }
    }

    async fn run(&self) -> Result<SecretValues, SecretError> {
        let [program, arguments @ ..] = self.words.as_slice() else { return Err(SecretError::NoCommand) };
        let not_run = |source| SecretError::NotRun { program: program.clone(), source };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut running = RunningCommand(command.spawn().map_err(not_run)?);
        let stdout = running.0.stdout.take().expect("it is piped");
        let mut buffer = Zeroizing::new(vec![0; SECRET_BYTES_MAX + 1]);
        let length = fill(stdout, &mut buffer).await.map_err(not_run)?;
        if length > SECRET_BYTES_MAX {
            return Err(SecretError::TooLarge(format!("what {program} prints")));
        }
        let status = running.0.wait().await.map_err(not_run)?;
        if !status.success() {
            return Err(SecretError::CommandFailed { program: program.clone(), status });
        }
        SecretValues::from_lines(&buffer[..length], &format!("what {program} prints"))
    }
}

impl SecretSource for SecretCommand {
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        self.words.is_empty().then_some(Err(SecretError::NoCommand))
    }

    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<SecretValues, SecretError>> + Send + '_>> {
        Box::pin(self.run())
    }
}

async fn fill(mut stdout: ChildStdout, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    loop {
        match stdout.read(&mut buffer[filled..]).await? {
            0 => return Ok(filled),
            length => filled += length,
        }
    }
}

/// Kills the process group when dropped early.
struct RunningCommand(Child);

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // The id is valid, and not reused, until the exit status was read.
        #[cfg(unix)]
        if let Some(group) = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(unix)]
use rustix::process::{Pid, Signal};

//! What a worker does between its fork and its program: the only place of the workspace with `unsafe`.
//!
//! The closure runs in a copy of a process with many threads, of which only one is left: it may call the system
//! and nothing else. It allocates nothing, locks nothing, and everything that it needs was made before.
//!
//! Invariants: a worker leads a session and a process group of its own; it is killed when the thread that
//! started it ends, which is why `spawner.rs` has one that never does; and it cannot outgrow the watch on its
//! memory by more than one process may have.

use std::io;

use rustix::process::{Pid, getpid, getppid, setsid};
use tokio::process::Command;

/// Has the command begin so, and with no more memory for data than that.
pub(super) fn prepare(command: &mut Command, data_bytes_max: Option<u64>) {
    let parent = getpid();
    let begin = move || begin(parent, data_bytes_max);
    #[expect(
        unsafe_code,
        reason = "nothing else runs between fork and exec; `begin` makes system calls only"
    )]
    // SAFETY: `begin` is async-signal-safe: it makes system calls by values that it owns, takes no lock and
    // does not allocate; its errors are numbers of the system.
    unsafe {
        command.pre_exec(begin);
    }
}

fn begin(parent: Pid, data_bytes_max: Option<u64>) -> io::Result<()> {
    setsid()?;
    #[cfg(target_os = "linux")]
    linux::begin(parent, data_bytes_max)?;
    // Where the kernel does not tell of a parent's death, it may at least be seen that it is dead already.
    if getppid() != Some(parent) {
        return Err(io::Error::from_raw_os_error(rustix::io::Errno::SRCH.raw_os_error()));
    }
    let _ = data_bytes_max;
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{
        Pid, Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
    };
    use rustix::thread::disable_transparent_huge_pages;

    /// When the machine runs out of memory, workers go before whoever looks after them.
    const OOM_SCORE: &[u8] = b"500";

    pub(super) fn begin(_parent: Pid, data_bytes_max: Option<u64>) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Huge pages are off for us, which a program would inherit. A system that has no such setting has nothing
        // to undo.
        let _ = disable_transparent_huge_pages(false);
        if let Some(bytes) = data_bytes_max {
            let Rlimit { maximum, .. } = getrlimit(Resource::Data);
            let most = maximum.map_or(bytes, |maximum| maximum.min(bytes));
            setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        // A system that has no such file, or lets nobody write to it, runs workers all the same.
        if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            let _ = rustix::io::write(&file, OOM_SCORE);
        }
        Ok(())
    }
}

//! What a worker does between fork and exec: the only `unsafe` of the workspace.
//!
//! The closure runs in a copy of a process of which only one thread is left: it may only make system calls,
//! and must not allocate or lock.
//!
//! Invariants: a worker leads its own session and process group; it is killed when the thread that started it
//! ends, which is why the threads of `spawner.rs` never end; and one process cannot outgrow the memory watch.

use std::io;

use rustix::process::{Pid, getpid, getppid, setsid};
use tokio::process::Command;

/// Prepares the command, with a limit on the data segment.
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
    // Where the kernel does not signal a parent's death, it is at least noticed here.
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

    /// Under memory pressure workers are killed before the server.
    const OOM_SCORE: &[u8] = b"500";

    pub(super) fn begin(_parent: Pid, data_bytes_max: Option<u64>) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Programs would inherit our setting for huge pages; systems without it have nothing to undo.
        let _ = disable_transparent_huge_pages(false);
        if let Some(bytes) = data_bytes_max {
            let Rlimit { maximum, .. } = getrlimit(Resource::Data);
            let most = maximum.map_or(bytes, |maximum| maximum.min(bytes));
            setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        // A system without this file, or without write access to it, runs workers all the same.
        if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            let _ = rustix::io::write(&file, OOM_SCORE);
        }
        Ok(())
    }
}

//! The `redrive` program.

use std::process::ExitCode;

/// Events are allocated on one thread and dropped on another, which this allocator is made for. Built without
/// huge pages (`no_thp`): an idle server would hold megabytes of them unused.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    leave_huge_pages();
    redrive_server::run()
}

/// Opts out where the system enables huge pages for all processes.
fn leave_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

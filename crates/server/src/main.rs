//! The `redrive` program.

use std::process::ExitCode;

/// An event is allocated on one thread and dropped on another, again and again, which this one is made for. It is
/// built not to ask for huge pages (`no_thp`): an idle server would hold megabytes of them that it never uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    leave_huge_pages();
    redrive_server::run()
}

/// Where the system gives huge pages to everybody, it has to be told. Without such a setting there is nothing to do.
fn leave_huge_pages() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

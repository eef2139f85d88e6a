//! Starts processes, from one thread that lives as long as the program does.
//!
//! A worker is killed when the thread that forked it ends, and threads of a runtime come and go. A start that
//! hangs, on a file system that does not answer, keeps its thread: the starts after it get a new one, and the
//! old one stays for the sake of those that it started before.

use std::io;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::supervise::Newborn;

/// Starts that hang, and so threads that are left behind, before no more is started.
const STUCK_MAX: usize = 16;
/// Starts that may wait for the thread.
const WAITING_MAX: usize = 1_024;

/// Starts something; made by who wants it, called on the thread that starts.
pub(super) type Start = Box<dyn FnOnce() -> io::Result<Newborn> + Send>;

struct Job {
    start: Start,
    reply: oneshot::Sender<io::Result<Newborn>>,
}

/// The thread that starts, and how many have been left behind.
struct Spawner {
    jobs: Option<mpsc::SyncSender<Job>>,
    /// Tells one thread from the next.
    generation: usize,
}

static SPAWNER: Mutex<Spawner> = Mutex::new(Spawner { jobs: None, generation: 0 });

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStarted {
    #[error("{0}")]
    Refused(#[source] io::Error),
    #[error("it did not start within {}", redrive_core::text::show_duration(*.0))]
    TookTooLong(Duration),
    #[error("{STUCK_MAX} starts hang already")]
    TooManyHang,
}

/// Starts something within that time.
pub(super) async fn spawn(start: Start, within: Duration) -> Result<Newborn, NotStarted> {
    let (reply, started) = oneshot::channel();
    let generation = hand_over(Job { start, reply })?;
    match tokio::time::timeout(within, started).await {
        Ok(Ok(outcome)) => outcome.map_err(NotStarted::Refused),
        // Only a start that panics takes its thread with it.
        Ok(Err(_)) => {
            leave_behind(generation);
            Err(NotStarted::Refused(io::Error::other("the start failed in an unforeseen way")))
        }
        Err(_) => {
            leave_behind(generation);
            Err(NotStarted::TookTooLong(within))
        }
    }
}

fn hand_over(job: Job) -> Result<usize, NotStarted> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if spawner.generation >= STUCK_MAX {
        return Err(NotStarted::TooManyHang);
    }
    if spawner.jobs.is_none() {
        spawner.jobs = Some(begin().map_err(NotStarted::Refused)?);
    }
    let jobs = spawner.jobs.as_ref().expect("it was made right above");
    let full = || NotStarted::Refused(io::Error::other("too many starts wait"));
    jobs.try_send(job).map_err(|_| full())?;
    Ok(spawner.generation)
}

/// That thread hangs: whoever comes next gets another.
fn leave_behind(generation: usize) {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if spawner.generation == generation {
        spawner.jobs = None;
        spawner.generation += 1;
    }
}

fn begin() -> io::Result<mpsc::SyncSender<Job>> {
    let (jobs, waiting) = mpsc::sync_channel::<Job>(WAITING_MAX);
    let work = move || {
        while let Ok(Job { start, reply }) = waiting.recv() {
            if reply.is_closed() {
                continue;
            }
            // One that nobody waits for any more is dropped, and so ended.
            let _ = reply.send(start());
        }
        // Those that were started from here die with this thread.
        loop {
            thread::park();
        }
    };
    thread::Builder::new().name("redrive-spawn".to_owned()).spawn(work)?;
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_that_hangs_keeps_nobody_else_from_starting() {
        let (release, held) = mpsc::channel::<()>();
        let hangs: Start = Box::new(move || {
            let _ = held.recv();
            Err(io::Error::other("never mind"))
        });
        let short = Duration::from_millis(20);
        let error = spawn(hangs, short).await.expect_err("it hangs");
        assert_eq!(error.to_string(), "it did not start within 20ms");
        let refused: Start = Box::new(|| Err(io::ErrorKind::NotFound.into()));
        let error = spawn(refused, Duration::from_mins(1)).await.expect_err("there is no such thing");
        assert!(matches!(error, NotStarted::Refused(_)), "{error:?}");
        drop(release);
    }
}

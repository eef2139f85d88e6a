//! Starts processes from threads that never end.
//!
//! A worker is killed when the thread that forked it ends, and a runtime's threads come and go. There is one
//! thread until a start hangs, for example on a file system that does not answer; then another is added for
//! the starts that wait.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::supervise::NewProcess;

/// If starts hang on all of them, further starts wait.
const THREADS_MAX: usize = 17;
const WAITING_MAX: usize = 1_024;

/// Runs on one of the threads.
pub(super) type StartFn = Box<dyn FnOnce() -> io::Result<NewProcess> + Send>;

struct SpawnJob {
    start: StartFn,
    reply: oneshot::Sender<io::Result<NewProcess>>,
}

struct Spawner {
    jobs: mpsc::SyncSender<SpawnJob>,
    waiting: Mutex<mpsc::Receiver<SpawnJob>>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    all: usize,
    /// Threads that are starting a process.
    busy: usize,
}

static SPAWNER: LazyLock<Spawner> = LazyLock::new(|| {
    let (jobs, waiting) = mpsc::sync_channel(WAITING_MAX);
    Spawner { jobs, waiting: Mutex::new(waiting), threads: Mutex::default() }
});

#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("{0}")]
    Refused(#[source] io::Error),
    #[error("no start within {}", redrive_core::text::show_duration(*.0))]
    TookTooLong(Duration),
}

pub(super) async fn spawn(start: StartFn, within: Duration) -> Result<NewProcess, SpawnError> {
    let (reply, started) = oneshot::channel();
    let began = Instant::now();
    if SPAWNER.threads().all == 0 {
        SPAWNER.add_thread().map_err(SpawnError::Refused)?;
    }
    let full = |_| SpawnError::Refused(io::Error::other("too many starts wait"));
    SPAWNER.jobs.try_send(SpawnJob { start, reply }).map_err(full)?;
    match tokio::time::timeout(within, started).await {
        // The limit also holds for a start that was over before it was waited for.
        Ok(Ok(Ok(_))) if began.elapsed() > within => Err(SpawnError::TookTooLong(within)),
        Ok(Ok(outcome)) => outcome.map_err(SpawnError::Refused),
        Ok(Err(_)) => Err(SpawnError::Refused(io::Error::other("the start failed in an unforeseen way"))),
        Err(_) => {
            if let Err(error) = SPAWNER.add_thread() {
                tracing::warn!(%error, "process start hangs and no other thread could be created");
            }
            Err(SpawnError::TookTooLong(within))
        }
    }
}

impl Spawner {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread if none is free.
    fn add_thread(&'static self) -> io::Result<()> {
        let mut threads = self.threads();
        if threads.busy < threads.all || threads.all >= THREADS_MAX {
            return Ok(());
        }
        thread::Builder::new().name("redrive-spawn".to_owned()).spawn(|| self.work())?;
        threads.all += 1;
        Ok(())
    }

    /// Never ends, even if a start panics: workers die with this thread.
    fn work(&self) {
        loop {
            let Ok(SpawnJob { start, reply }) = self.next() else {
                thread::park();
                continue;
            };
            if reply.is_closed() {
                continue;
            }
            self.threads().busy += 1;
            let started = catch_unwind(AssertUnwindSafe(start));
            self.threads().busy -= 1;
            // A process whose caller went away is dropped, and so ended.
            if let Ok(started) = started {
                let _ = reply.send(started);
            }
        }
    }

    fn next(&self) -> Result<SpawnJob, mpsc::RecvError> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).recv()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slow is not stuck: a long-running server has some slow starts.
    #[tokio::test]
    async fn starts_that_were_slow_keep_nobody_from_starting_ever_after() {
        for _ in 0..=THREADS_MAX {
            let (release, held) = mpsc::channel::<()>();
            let slow: StartFn = Box::new(move || {
                let _ = held.recv();
                Err(io::Error::other("never mind"))
            });
            let error = spawn(slow, Duration::from_millis(1)).await.expect_err("it is slow");
            assert!(matches!(error, SpawnError::TookTooLong(_)), "{error:?}");
            drop(release);
        }
        let refused: StartFn = Box::new(|| Err(io::ErrorKind::NotFound.into()));
        let error = spawn(refused, Duration::from_mins(1)).await.expect_err("value does not exist");
        assert!(
            matches!(&error, SpawnError::Refused(why) if why.kind() == io::ErrorKind::NotFound),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn a_start_that_hangs_keeps_nobody_else_from_starting() {
        let (release, held) = mpsc::channel::<()>();
        let hangs: StartFn = Box::new(move || {
            let _ = held.recv();
            Err(io::Error::other("never mind"))
        });
        let short = Duration::from_millis(20);
        let error = spawn(hangs, short).await.expect_err("it hangs");
        assert_eq!(error.to_string(), "no start within 20ms");
        let refused: StartFn = Box::new(|| Err(io::ErrorKind::NotFound.into()));
        let error = spawn(refused, Duration::from_mins(1)).await.expect_err("value does not exist");
        assert!(matches!(error, SpawnError::Refused(_)), "{error:?}");
        drop(release);
    }
}

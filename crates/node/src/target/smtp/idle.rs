//! Idle connections to a mail server, kept for the next mail.
//!
//! Invariants: at most as many as the dependency has permits, none for longer than [`IDLE_TIME_MAX`].

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lettre::transport::smtp::client::AsyncSmtpConnection;
use tokio::time::{Instant, sleep_until, timeout};

/// Servers end idle connections after minutes.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
const QUIT_TIME_MAX: Duration = Duration::from_secs(1);

pub(super) struct IdleConnections {
    max: usize,
    state: Mutex<IdleState>,
}

#[derive(Default)]
struct IdleState {
    /// The newest is last.
    kept: Vec<(AsyncSmtpConnection, Instant)>,
    is_swept: bool,
}

impl IdleConnections {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    pub(super) fn take(&self) -> Option<AsyncSmtpConnection> {
        let (connection, since) = self.state.lock().expect("lock is not poisoned").kept.pop()?;
        (since.elapsed() < IDLE_TIME_MAX).then_some(connection)
    }

    pub(super) fn put(self: &Arc<Self>, connection: AsyncSmtpConnection) {
        let now = Instant::now();
        let mut state = self.state.lock().expect("lock is not poisoned");
        state.kept.push((connection, now));
        if state.kept.len() > self.max {
            state.kept.remove(0);
        }
        if !state.is_swept {
            state.is_swept = true;
            tokio::spawn(sweep(Arc::downgrade(self), now + IDLE_TIME_MAX));
        }
    }

    /// Those that have been idle for too long, and when to look again.
    fn expired(&self, now: Instant) -> (Vec<AsyncSmtpConnection>, Option<Instant>) {
        let mut state = self.state.lock().expect("lock is not poisoned");
        let count = state.kept.iter().take_while(|(_, since)| *since + IDLE_TIME_MAX <= now).count();
        let expired = state.kept.drain(..count).map(|(connection, _)| connection).collect();
        let next = state.kept.first().map(|(_, since)| *since + IDLE_TIME_MAX);
        state.is_swept = next.is_some();
        (expired, next)
    }
}

async fn sweep(idle: Weak<IdleConnections>, first_at: Instant) {
    let mut next_at = Some(first_at);
    while let Some(at) = next_at {
        sleep_until(at).await;
        let Some(idle) = idle.upgrade() else { return };
        let (expired, next) = idle.expired(Instant::now());
        drop(idle);
        for mut connection in expired {
            // Dropping it would do; the server's log is calmer so.
            let _ = timeout(QUIT_TIME_MAX, connection.quit()).await;
        }
        next_at = next;
    }
}

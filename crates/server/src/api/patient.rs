//! A connection that waits for its client to read, but not for ever.
//!
//! Somebody who asks and never takes the answer would keep a connection, and what is on its way, for as long
//! as they like. What a stream has to say is kept for nobody: whoever reads nothing for a while is cut off.
//!
//! Invariant: only a write that waits is timed. A connection on which there is nothing to say waits for what
//! the listener's other bounds allow.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that is cut off when nothing of what is said was read for that long.
pub(super) struct Patient<S> {
    stream: S,
    within: Duration,
    /// Runs while somebody is waited for; made once, when that first happens.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Self { stream, within, timer: None, is_waiting: false }
    }

    /// What came of a write, and whether that has been waited for too long.
    fn timed<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.within)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            timer.as_mut().reset(tokio::time::Instant::now() + self.within);
        }
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timed(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.timed(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.timed(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.timed(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_nothing_is_cut_off_in_the_end() {
        let (ours, _theirs) = duplex(4);
        let mut patient = Patient::new(ours, WITHIN);
        let started_at = Instant::now();
        let error = patient.write_all(b"more than there is room for").await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started_at.elapsed().as_secs(), WITHIN.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_slowly_gets_all_of_it() {
        let (ours, mut theirs) = duplex(1);
        let mut patient = Patient::new(ours, WITHIN);
        let reading = tokio::spawn(async move {
            let mut heard = Vec::new();
            for _ in 0..5 {
                sleep(WITHIN.mul_f64(0.9)).await;
                heard.push(theirs.read_u8().await.expect("it is said"));
            }
            heard
        });
        patient.write_all(b"hello").await.expect("somebody reads");
        assert_eq!(reading.await.expect("it ends"), b"hello");
    }
}

//! The socket below a connection, which can be asked whether the other side has closed it, and its traffic.
//!
//! A line can be [armed](Line::arm): then the next write is made only if the connection is still good at that
//! moment, however long the write was delayed.
//!
//! Invariant: a line does not keep its socket open.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Access to a connection's socket while HTTP is spoken over it.
#[derive(Debug)]
pub(super) struct SocketLine {
    socket: Weak<TcpStream>,
    traffic: Arc<LineTraffic>,
}

/// In bytes; below TLS it may be more.
#[derive(Debug, Default)]
struct LineTraffic {
    written: AtomicU64,
    read: AtomicU64,
    /// The next write happens before then and on a quiet line, or fails.
    armed_until: Mutex<Option<Instant>>,
    /// Why reading failed; HTTP/2 passes only its text on.
    tls_error: OnceLock<rustls::Error>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinePosition {
    pub(super) written: u64,
    pub(super) read: u64,
}

#[derive(Debug)]
pub(super) struct Socket(Arc<TcpStream>);

#[derive(Debug)]
pub(super) struct CountedStream<S> {
    stream: S,
    socket: Weak<TcpStream>,
    traffic: Arc<LineTraffic>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(super) fn line(&self) -> SocketLine {
        SocketLine { socket: Arc::downgrade(&self.0), traffic: Arc::default() }
    }
}

impl SocketLine {
    pub(super) fn counted<S>(&self, stream: S) -> CountedStream<S> {
        CountedStream { stream, socket: Weak::clone(&self.socket), traffic: Arc::clone(&self.traffic) }
    }

    /// Makes the next write fail, with nothing written, if it is later than that or the other side has
    /// closed.
    pub(super) fn arm(&self, until: Instant) {
        *self.traffic.armed_until.lock().expect("lock is not poisoned") = Some(until);
    }

    /// Whether the other side has neither closed nor sent unread data, as far as known.
    pub(super) fn is_quiet(&self) -> bool {
        is_quiet(&self.socket)
    }

    pub(super) fn tls_error(&self) -> Option<&rustls::Error> {
        self.traffic.tls_error.get()
    }

    pub(super) fn passed(&self) -> LinePosition {
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        LinePosition { written: of(&self.traffic.written), read: of(&self.traffic.read) }
    }

    pub(super) fn since(&self, start: LinePosition) -> LinePosition {
        let now = self.passed();
        LinePosition { written: now.written - start.written, read: now.read - start.read }
    }
}

fn is_quiet(socket: &Weak<TcpStream>) -> bool {
    let Some(socket) = socket.upgrade() else { return false };
    let peeked = SockRef::from(&*socket).peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Socket {
    fn poll_writing(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if let Err(error) = &read
            && let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>())
        {
            // Only the first says why.
            let _ = self.traffic.tls_error.set(error.clone());
        }
        self.traffic.read.fetch_add(count(buf.filled().len() - before), Ordering::Release);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> CountedStream<S> {
    fn check(&self) -> io::Result<()> {
        let armed_until = self.traffic.armed_until.lock().expect("lock is not poisoned").take();
        match armed_until {
            Some(until) if Instant::now() >= until || !is_quiet(&self.socket) => {
                Err(ErrorKind::ConnectionAborted.into())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.traffic.written.fetch_add(count(*bytes), Ordering::Release);
        }
        written
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a buffer fits in 64 bits")
}

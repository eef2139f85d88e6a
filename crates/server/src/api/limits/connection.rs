//! A client's connection: replaces the HTTP library's error responses with ours, and cuts off clients that do
//! not read.
//!
//! Invalid requests never reach a handler: the library answers them with a bare status, which is replaced
//! here by our JSON error. A client that never reads its response would hold the connection and its data; it
//! is cut off after a while.
//!
//! Invariants: responses of handlers pass unchanged, however writes are split. A response of the library is
//! recognised by its exact header lines and the absence of a body; our bodies cannot contain such lines, for
//! JSON has no raw line ends. Only a pending write is timed: idle connections have the listener's limits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::api::CORRELATION_ID;
use crate::api::code::ApiCode;
use crate::api::error::{ErrorBody, ErrorJson};
use crate::api::ids::fresh_id;

pub(crate) struct ClientConnection<S> {
    stream: S,
    /// The rest of the replacement.
    instead: Bytes,
    /// How long a write may be pending.
    unread_max: Duration,
    /// Runs while a write is pending; created on the first.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl<S: AsyncWrite + Unpin> ClientConnection<S> {
    pub(crate) fn new(stream: S, unread_max: Duration) -> Self {
        Self { stream, instead: Bytes::new(), unread_max, timer: None, is_waiting: false }
    }

    fn say_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.instead.has_remaining() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.instead);
            let count = ready!(self.timed(cx, written))?;
            self.instead.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    fn timed<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(self.unread_max)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            timer.as_mut().reset(tokio::time::Instant::now() + self.unread_max);
        }
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

const LIBRARY_HEADERS: [&str; 3] = ["connection: close", "content-length: 0", "date: "];

/// Our response in place of the library's; `None` for any other bytes.
fn replacement_for(head: &[u8]) -> Option<Bytes> {
    let (code, message) = match head.get(..13)? {
        b"HTTP/1.1 400 " => (ApiCode::BadRequest, "not a valid HTTP/1.1 request"),
        b"HTTP/1.1 414 " => (ApiCode::UriTooLong, "the path is too long"),
        b"HTTP/1.1 431 " => (ApiCode::HeadersTooLarge, "the headers are too large"),
        _ => return None,
    };
    let text = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let is_bare =
        text.split("\r\n").skip(1).all(|line| LIBRARY_HEADERS.iter().any(|name| line.starts_with(name)));
    if !is_bare {
        return None;
    }
    Some(error_response(code, message))
}

pub(crate) fn error_response(code: ApiCode, message: &str) -> Bytes {
    let (code, line) = (code.as_str().to_owned(), code.status());
    let error = ErrorJson { code, message: message.to_owned(), details: serde_json::Map::new() };
    let body = serde_json::to_string(&ErrorBody { error }).expect("texts are always JSON");
    let (length, id) = (body.len(), fresh_id());
    let answer = format!(
        "HTTP/1.1 {line}\r\ncontent-type: application/json\r\n{CORRELATION_ID}: {id}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    answer.into()
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(instead) = replacement_for(bytes) {
            self.instead = instead;
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.timed(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [head] = slices
            && let Some(instead) = replacement_for(head)
        {
            self.instead = instead;
            return Poll::Ready(Ok(head.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.timed(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.say_instead(cx))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.timed(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.say_instead(cx))?;
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

    #[test]
    fn only_what_nobody_has_worded_is_worded_anew() {
        let bare =
            "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let ours = "HTTP/1.1 400 Bad Request\r\nX-Correlation-Id: a\r\ncontent-length: 2\r\n\r\n{}";
        let longer = format!("{bare}more");
        #[rustfmt::skip]
        let cases = [
            ("the library's own",       bare,                                        Some("HEADERS_TOO_LARGE")),
            ("a handler's refusal",     ours,                                        None),
            ("a success",               "HTTP/1.1 200 OK\r\n\r\n",                   None),
            ("a piece of some body",    "HTTP/1.1 400",                              None),
            ("a body that imitates it", "HTTP/1.1 400 \",\"data\":1}",                None),
            ("with more behind it",     &longer,                                     None),
        ];
        for (name, head, code) in cases {
            let error_response = replacement_for(head.as_bytes());
            let has_code = |bytes: &Bytes| {
                code.is_some_and(|code| bytes.windows(code.len()).any(|w| w == code.as_bytes()))
            };
            assert_eq!(error_response.as_ref().is_some_and(has_code), code.is_some(), "{name}");
            assert_eq!(error_response.is_some(), code.is_some(), "{name}");
        }
    }

    /// Otherwise a sender of events could end other clients' responses and inject new ones.
    #[tokio::test]
    async fn data_that_look_like_an_answer_stay_data_wherever_a_write_breaks_off() {
        let body = r#"{"data":"HTTP/1.1 400 HTTP/1.1 431 HTTP/1.1 414 "}"#;
        for room in 1..body.len() {
            let (ours, mut theirs) = duplex(room);
            let mut connection = ClientConnection::new(ours, WITHIN);
            let writing = tokio::spawn(async move {
                connection.write_all(body.as_bytes()).await.expect("it is read");
                connection.shutdown().await.expect("it is read");
            });
            let mut heard = String::new();
            theirs.read_to_string(&mut heard).await.expect("it is text");
            writing.await.expect("it ends");
            assert_eq!(heard, body, "with {room} bytes at a time");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_nothing_is_cut_off_in_the_end() {
        let (ours, _theirs) = duplex(4);
        let mut connection = ClientConnection::new(ours, WITHIN);
        let started_at = Instant::now();
        let error = connection.write_all(b"more than there is room for").await.expect_err("nothing is read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started_at.elapsed().as_secs(), WITHIN.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_slowly_gets_all_of_it() {
        let (ours, mut theirs) = duplex(1);
        let mut connection = ClientConnection::new(ours, WITHIN);
        let reading = tokio::spawn(async move {
            let mut heard = Vec::new();
            for _ in 0..5 {
                sleep(WITHIN.mul_f64(0.9)).await;
                heard.push(theirs.read_u8().await.expect("it is said"));
            }
            heard
        });
        connection.write_all(b"hello").await.expect("it is read");
        assert_eq!(reading.await.expect("it ends"), b"hello");
    }
}

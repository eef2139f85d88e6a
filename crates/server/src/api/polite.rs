//! Says in our words what the HTTP library says in none.
//!
//! What is no request never reaches a handler: the library answers it by itself, with a status and nothing
//! else. Here such an answer is taken from it on its way out, and one in the form of all our errors goes
//! instead.
//!
//! Invariant: what a handler says passes unchanged, whatever stands in it and wherever a write breaks off. An
//! answer of the library's own is known by all of its lines and by what follows on them, which is nothing; no
//! body of ours holds such lines, for JSON has no line ends of that kind.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::CORRELATION_ID;
use super::code::Code;
use super::fresh::fresh_id;
use super::shape::{ErrorBody, ErrorShown};

/// A connection that is polite to everybody.
pub(super) struct Polite<S> {
    stream: S,
    /// What is left to say in place of the library's words.
    instead: Bytes,
}

impl<S: AsyncWrite + Unpin> Polite<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, instead: Bytes::new() }
    }

    fn say_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.instead.has_remaining() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.instead))?;
            self.instead.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

/// The headers of an answer by the library alone.
const LIBRARY_SAYS: [&str; 3] = ["connection: close", "content-length: 0", "date: "];

/// Our words for an answer without any; none if somebody has said something.
fn in_our_words(head: &[u8]) -> Option<Bytes> {
    let (code, message) = match head.get(..13)? {
        b"HTTP/1.1 400 " => (Code::BadRequest, "this is no request that HTTP/1.1 knows"),
        b"HTTP/1.1 414 " => (Code::UriTooLong, "the path is too long"),
        b"HTTP/1.1 431 " => (Code::HeadersTooLarge, "the headers are too many or too long"),
        _ => return None,
    };
    let text = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let is_bare =
        text.split("\r\n").skip(1).all(|line| LIBRARY_SAYS.iter().any(|name| line.starts_with(name)));
    if !is_bare {
        return None;
    }
    Some(worded(code, message))
}

/// A whole answer, after which the connection ends.
pub(super) fn worded(code: Code, message: &str) -> Bytes {
    let (code, line) = (code.as_str().to_owned(), code.status());
    let error = ErrorShown { code, message: message.to_owned(), details: serde_json::Map::new() };
    let body = serde_json::to_string(&ErrorBody { error }).expect("texts are always JSON");
    let (length, id) = (body.len(), fresh_id());
    let answer = format!(
        "HTTP/1.1 {line}\r\ncontent-type: application/json\r\n{CORRELATION_ID}: {id}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    answer.into()
}

impl<S: AsyncRead + Unpin> AsyncRead for Polite<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Polite<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(instead) = in_our_words(bytes) {
            self.instead = instead;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [head] = slices
            && let Some(instead) = in_our_words(head)
        {
            self.instead = instead;
            return Poll::Ready(Ok(head.len()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.say_instead(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.say_instead(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

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
            let worded = in_our_words(head.as_bytes());
            let has_code = |bytes: &Bytes| {
                code.is_some_and(|code| bytes.windows(code.len()).any(|w| w == code.as_bytes()))
            };
            assert_eq!(worded.as_ref().is_some_and(has_code), code.is_some(), "{name}");
            assert_eq!(worded.is_some(), code.is_some(), "{name}");
        }
    }

    /// A sender of events could else end other people's answers and begin new ones.
    #[tokio::test]
    async fn data_that_look_like_an_answer_stay_data_wherever_a_write_breaks_off() {
        let body = r#"{"data":"HTTP/1.1 400 HTTP/1.1 431 HTTP/1.1 414 "}"#;
        for room in 1..body.len() {
            let (ours, mut theirs) = duplex(room);
            let mut polite = Polite::new(ours);
            let writing = tokio::spawn(async move {
                polite.write_all(body.as_bytes()).await.expect("somebody reads");
                polite.shutdown().await.expect("somebody reads");
            });
            let mut heard = String::new();
            theirs.read_to_string(&mut heard).await.expect("it is text");
            writing.await.expect("it ends");
            assert_eq!(heard, body, "with {room} bytes at a time");
        }
    }
}

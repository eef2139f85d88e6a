//! The `log` target: prints one line per event.
//!
//! A dedicated thread writes, so a reader that stops reading blocks nothing else; calls then time out. Event
//! content is escaped: a line stays a line, and no terminal sequence is passed through.

use std::fmt::Write as _;
use std::future::Future;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::thread;

use redrive_core::book::connectors;
use redrive_core::engine::{Ending, PendingDelivery, TargetCall};
use redrive_core::limits::DURATION_MAX;
use redrive_core::policy::answer::{BrokerError, CallPart, ReplyKind, TargetReply, TransportError};
use redrive_core::text::show_duration;
use redrive_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Target;
use crate::connectors::{Driver, Make};

const DATA_SHOWN_MAX: usize = 120;

const ATTRIBUTE_SHOWN_MAX: usize = 80;

const WAITING_MAX: usize = 64;

#[derive(Debug)]
pub struct LogTarget {
    lines: mpsc::Sender<LogLines>,
}

struct LogLines {
    text: String,
    written: oneshot::Sender<io::Result<()>>,
}

/// All services of a process share one.
pub(crate) const DRIVER: Driver = Driver {
    connector: &connectors::log::TARGET,
    make: Make::Target(|_, _| {
        static STDOUT: LazyLock<Arc<LogTarget>> = LazyLock::new(|| Arc::new(LogTarget::stdout()));
        Ok(Arc::clone(&*STDOUT) as Arc<dyn Target>)
    }),
};

impl LogTarget {
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(io::stdout())
    }

    /// The thread ends with the target. If it cannot be started, every call fails.
    #[must_use]
    pub fn new(mut to: impl Write + Send + 'static) -> Self {
        let (lines, mut waiting) = mpsc::channel::<LogLines>(WAITING_MAX);
        let print = move || {
            while let Some(LogLines { text, written }) = waiting.blocking_recv() {
                let result = to.write_all(text.as_bytes()).and_then(|()| to.flush());
                let _ = written.send(result);
            }
        };
        let _ = thread::Builder::new().name("redrive-log".to_owned()).spawn(print);
        Self { lines }
    }

    async fn print(&self, text: String) -> io::Result<()> {
        let (written, done) = oneshot::channel();
        let gone = || io::Error::other("printer thread ended");
        self.lines.send(LogLines { text, written }).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }
}

impl Target for LogTarget {
    fn call(&self, call: Arc<TargetCall>) -> Pin<Box<dyn Future<Output = Ending> + Send + '_>> {
        Box::pin(async move {
            let text = call.deliveries.iter().map(|delivery| line(delivery, call.started_at)).collect();
            let limit = call.limit.min(DURATION_MAX);
            let (seen, message) = match timeout(limit, self.print(text)).await {
                Ok(Ok(())) => (ReplyKind::Taken, String::new()),
                Ok(Err(error)) => (
                    ReplyKind::Broker(BrokerError::Unavailable),
                    format!("could not print the event: {error}"),
                ),
                Err(_) => (
                    ReplyKind::Transport(TransportError::Timeout(CallPart::Whole)),
                    format!("output not read within {}", show_duration(limit)),
                ),
            };
            Ending::Reply(TargetReply::new(seen, message))
        })
    }
}

/// `2025-10-21T14:30:00.25Z orders.placed e-1 session=customer-7 attempt=2 {"total":12}`
fn line(delivery: &PendingDelivery, started_at: Timestamp) -> String {
    let event = &*delivery.event;
    let started_at = Timestamp::from_millis(started_at.as_millis());
    let mut line = format!("{started_at} {} ", event.event_type);
    show(&mut line, event.id.as_str(), ATTRIBUTE_SHOWN_MAX);
    if let Some(session) = &event.session {
        line.push_str(" session=");
        show(&mut line, session.as_str(), ATTRIBUTE_SHOWN_MAX);
    }
    let attempt = delivery.next_attempt().get();
    if attempt > 1 {
        write!(line, " attempt={attempt}").expect("a String takes all");
    }
    line.push(' ');
    match std::str::from_utf8(&event.data) {
        Ok("") => line.push_str("(no data)"),
        Ok(text) => show(&mut line, text, DATA_SHOWN_MAX),
        Err(_) => write!(line, "({} bytes)", event.data.len()).expect("a String takes all"),
    }
    line.push('\n');
    line
}

/// Appends the start of a text; white space becomes a space, invisible characters are escaped.
fn show(line: &mut String, text: &str, shown_max: usize) {
    let mut characters = text.trim().chars();
    for character in characters.by_ref().take(shown_max) {
        match character {
            '\n' | '\r' | '\t' => line.push(' '),
            // These change the text direction or are invisible.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                line.extend(character.escape_unicode());
            }
            _ if character.is_control() => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
    if characters.next().is_some() {
        line.push('…');
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::target::call_test::{call, delivery, order};

    /// What was written, for the test to see.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock is not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn printed(deliveries: Vec<PendingDelivery>) -> String {
        let paper = Paper::default();
        let Ending::Reply(reply) = LogTarget::new(paper.clone()).call(call("60s", deliveries)).await else {
            panic!("one answer for all");
        };
        assert_eq!(reply.seen, ReplyKind::Taken);
        let bytes = paper.0.lock().expect("lock is not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[tokio::test]
    async fn each_event_is_a_line() {
        let headers = [
            ("ce-specversion", "1.0"),
            ("ce-id", "e-2"),
            ("ce-source", "web"),
            ("ce-type", "orders.placed"),
            ("ce-partitionkey", "customer 7"),
        ];
        let with = |body: &str| delivery(8, &headers, body);
        let deliveries = vec![
            order(7, "e-1"),
            PendingDelivery { attempts: 2, ..with("") },
            with("{\n  \"total\":\t12\r\n}\n"),
            with("\u{1b}[2J\u{202e}gone"),
            with(&"ä".repeat(200)),
        ];
        let long = "ä".repeat(DATA_SHOWN_MAX);
        assert_eq!(
            printed(deliveries).await,
            format!(
                "2025-10-21T14:30:00.25Z orders.placed e-1 {{\"total\":12}}\n\
                 2025-10-21T14:30:00.25Z orders.placed e-2 session=customer 7 attempt=3 (no data)\n\
                 2025-10-21T14:30:00.25Z orders.placed e-2 session=customer 7 {{   \"total\": 12  }}\n\
                 2025-10-21T14:30:00.25Z orders.placed e-2 session=customer 7 \\u{{1b}}[2J\\u{{202e}}gone\n\
                 2025-10-21T14:30:00.25Z orders.placed e-2 session=customer 7 {long}…\n"
            )
        );
    }

    #[tokio::test]
    async fn data_that_are_no_text_are_counted() {
        let mut one = order(7, "e-1");
        let mut event = redrive_core::event::Event::clone(&one.event);
        event.data = bytes::Bytes::from_static(b"\xff\xfe\x00");
        one.event = Arc::new(event);
        assert!(printed(vec![one]).await.ends_with(" e-1 (3 bytes)\n"));
    }

    /// A pipe that nobody reads.
    struct Stuck(std::sync::mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // It ends with the test.
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A pipe whose reader has gone.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_cannot_be_printed_is_not_delivered() {
        let (_end, held) = std::sync::mpsc::channel();
        let stuck = LogTarget::new(Stuck(held));
        let gone = LogTarget::new(Closed);
        let timeout = ReplyKind::Transport(TransportError::Timeout(CallPart::Whole));
        #[rustfmt::skip]
        let cases = [
            ("nobody reads",  &stuck, "200ms", timeout,                                 "output not read within 200ms"),
            ("nobody can",    &gone,  "60s",   ReplyKind::Broker(BrokerError::Unavailable),  "could not print the event: broken pipe"),
        ];
        for (name, target, limit, seen, message) in cases {
            let ending =
                tokio::time::timeout(Duration::from_mins(1), target.call(call(limit, vec![order(7, "e-1")])));
            let expected = TargetReply::new(seen, message.to_owned());
            assert_eq!(ending.await.expect("it ends"), Ending::Reply(expected), "{name}");
        }
    }
}

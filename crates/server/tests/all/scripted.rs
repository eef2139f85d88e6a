//! A server that says what it is told to: one answer after the other, whatever is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The server's clock, which stands still.
pub(crate) const DATE: &str = "Tue, 21 Oct 2025 14:35:00 GMT";

/// A server on a port of its own, until its answers are used up.
pub(crate) struct Scripted {
    url: String,
    requests: Receiver<String>,
}

/// What is answered next.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: String,
    body: String,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: String::new(), body: body.into() }
    }

    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status, body.to_string())
    }

    pub(crate) fn header(mut self, line: &str) -> Self {
        self.headers.push_str(line);
        self.headers.push_str("\r\n");
        self
    }
}

impl Scripted {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port can be had");
        let url = url_of(&listener);
        let replies: Vec<Reply> = replies.into_iter().collect();
        let (sender, requests) = channel();
        std::thread::spawn(move || answer_all(&listener, replies, &sender));
        Self { url, requests }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What was asked so far: the first line, then `name: value` of each header, then the body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.try_iter().collect()
    }
}

/// An address without a listener.
pub(crate) fn nowhere() -> String {
    url_of(&TcpListener::bind("127.0.0.1:0").expect("a port can be had"))
}

fn url_of(listener: &TcpListener) -> String {
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

fn answer_all(listener: &TcpListener, replies: Vec<Reply>, requests: &Sender<String>) {
    let mut replies = replies.into_iter().peekable();
    while replies.peek().is_some() {
        let (mut stream, _) = listener.accept().expect("a connection comes");
        let mut reader = BufReader::new(stream.try_clone().expect("a socket has two ends"));
        while replies.peek().is_some() {
            let Some(request) = read_request(&mut reader) else { break };
            // A test that does not ask what was asked has dropped the other end.
            let _ = requests.send(request);
            let reply = replies.next().expect("peeked");
            if write_reply(&mut stream, &reply).is_err() {
                break;
            }
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut text, mut body_bytes) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(length) = line.strip_prefix("content-length: ") {
            body_bytes = length.trim().parse().expect("a length is a number");
        }
        let is_end = line.trim().is_empty();
        text.push_str(line.trim_end());
        text.push('\n');
        if is_end {
            break;
        }
    }
    let mut body = vec![0; body_bytes];
    reader.read_exact(&mut body).ok()?;
    Some(text + &String::from_utf8_lossy(&body))
}

fn write_reply(stream: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
    let Reply { status, headers, body } = reply;
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} x\r\ndate: {DATE}\r\n{headers}content-length: {length}\r\n\r\n{body}")?;
    stream.flush()
}

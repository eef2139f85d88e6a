//! A small HTTP/1.1 client that says exactly what it is told to say, right or wrong, and holds what it hears
//! against the description of the API.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::described;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Knows where the server is.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: String,
}

/// What the server said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// A connection that is kept for several requests.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        Self { address: address.to_owned() }
    }

    pub(crate) fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"), "")
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        let head = format!("{}connection: close\r\n\r\n", head_of(path, headers, body.as_ref().len()));
        self.ask(&head, body)
    }

    /// The answer to any bytes at all.
    #[track_caller]
    pub(crate) fn ask(&self, head: &str, body: impl AsRef<[u8]>) -> Answer {
        let mut connection = self.connect().expect("it listens");
        let asked = connection.send(head.as_bytes()).and_then(|()| connection.send(body.as_ref()));
        // A server that has heard enough answers and hangs up, and the rest cannot be sent.
        let answer = connection.answer();
        let answer = answer.unwrap_or_else(|error| panic!("{error} (asked: {asked:?}): {head}"));
        described::assert_described(head, &answer);
        answer
    }
}

/// The head of a `POST` without its end.
fn head_of(path: &str, headers: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n")
}

impl Connection {
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> io::Result<Answer> {
        let mut bytes = head_of(path, headers, body.len()).into_bytes();
        bytes.extend(b"\r\n");
        bytes.extend(body);
        self.send(&bytes)?;
        let answer = self.answer()?;
        described::assert_described(&head_of(path, headers, body.len()), &answer);
        Ok(answer)
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Reads one answer, with its body if its length is stated, else to the end.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let first = self.line()?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| bad(&format!("no status line: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("no header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { status, headers, body: String::new() };
        let mut body = Vec::new();
        match answer.header("content-length").map(str::parse::<usize>) {
            Some(Ok(length)) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body)?;
            }
            Some(Err(_)) => return Err(bad("no length")),
            None => drop(self.stream.read_to_end(&mut body)?),
        }
        answer.body = String::from_utf8(body).map_err(|_| bad("no text"))?;
        Ok(answer)
    }

    /// Reads a line; the end of the connection is an error.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of an error in the one form that errors have.
    #[track_caller]
    pub(crate) fn error(&self) -> (u16, String) {
        let error = self.json();
        let names: Vec<&String> = error.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["error"], "{self:?}");
        let error = &error["error"];
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert!(error["details"].is_object(), "{self:?}");
        assert!(self.header("x-correlation-id").is_some_and(|id| !id.is_empty()), "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        (self.status, error["code"].as_str().expect("a code").to_owned())
    }
}

//! The output of a process within a bound: beginning and end, with a mark for the cut, and the last line,
//! which may be the program's own report.
//!
//! Invariant: output is read as long as the process writes, so that it never blocks, and what is kept is
//! bounded.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

const READ_BYTES: usize = 64 * 1024;

const LINE_BYTES_MAX: usize = 256 * 1024;

/// The output of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    beginning: Vec<u8>,
    end: Vec<u8>,
    left_out: u64,
    last_line: Vec<u8>,
}

impl CapturedOutput {
    /// All bytes, if nothing was cut.
    #[must_use]
    pub fn whole(&self) -> Option<&[u8]> {
        (self.left_out == 0).then_some(&self.beginning)
    }

    /// Bytes missing between beginning and end.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether there was no output.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }

    /// As text; the cut is marked, invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let beginning = String::from_utf8_lossy(&self.beginning);
        if self.left_out == 0 {
            return beginning.into_owned();
        }
        let end = String::from_utf8_lossy(&self.end);
        format!("{beginning}\n[{} bytes left out]\n{end}", self.left_out)
    }

    /// The last line that is not blank.
    #[must_use]
    pub fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.last_line);
        Some(text.trim()).filter(|line| !line.is_empty()).map(str::to_owned)
    }
}

#[derive(Debug)]
struct BoundedBuffer {
    bytes_max: usize,
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    left_out: u64,
    lines: LineTracker,
}

#[derive(Debug, Default)]
struct LineTracker {
    /// The last complete line that is not blank.
    last: Vec<u8>,
    /// The line that has not ended.
    current: Vec<u8>,
}

impl LineTracker {
    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES_MAX - self.current.len();
            self.current.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                if !self.current.trim_ascii().is_empty() {
                    std::mem::swap(&mut self.last, &mut self.current);
                }
                self.current.clear();
            }
        }
    }

    /// `None` if it was too long to keep.
    fn last(&self) -> Option<&[u8]> {
        let last = if self.current.trim_ascii().is_empty() { &self.last } else { &self.current };
        (last.len() < LINE_BYTES_MAX).then_some(last)
    }
}

impl BoundedBuffer {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            beginning: Vec::new(),
            end: VecDeque::new(),
            left_out: 0,
            lines: LineTracker::default(),
        }
    }

    /// Kept whole while it fits; then the second half becomes a ring for the end.
    fn take(&mut self, bytes: &[u8]) {
        self.lines.take(bytes);
        let room = self.bytes_max - self.beginning.len();
        if self.left_out == 0 && self.end.is_empty() {
            if bytes.len() <= room {
                return self.beginning.extend_from_slice(bytes);
            }
            let half = self.bytes_max / 2;
            if self.beginning.len() > half {
                self.end.extend(self.beginning.drain(half..));
            } else {
                let (first, rest) = bytes.split_at(half - self.beginning.len());
                self.beginning.extend_from_slice(first);
                return self.move_on(rest);
            }
        }
        self.move_on(bytes);
    }

    fn move_on(&mut self, bytes: &[u8]) {
        let end_max = self.bytes_max - self.beginning.len();
        let kept = &bytes[bytes.len().saturating_sub(end_max)..];
        self.left_out += (bytes.len() - kept.len()) as u64;
        let too_many = (self.end.len() + kept.len()).saturating_sub(end_max);
        self.end.drain(..too_many);
        self.left_out += too_many as u64;
        self.end.extend(kept);
    }

    fn output(&self) -> CapturedOutput {
        let mut beginning = self.beginning.clone();
        let mut end: Vec<u8> = self.end.iter().copied().collect();
        if self.left_out == 0 {
            beginning.append(&mut end);
        }
        let kept = if self.left_out == 0 { &beginning } else { &end };
        let last_line = self.lines.last().or_else(|| last_line_of(kept)).unwrap_or_default().to_vec();
        CapturedOutput { beginning, end, left_out: self.left_out, last_line }
    }
}

fn last_line_of(text: &[u8]) -> Option<&[u8]> {
    text.rsplit(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())
}

/// Shared by the task that reads and callers.
#[derive(Clone, Debug)]
pub(super) struct Capture(Arc<Mutex<BoundedBuffer>>);

impl Capture {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(BoundedBuffer::new(bytes_max))))
    }

    pub(super) async fn read(&self, mut stream: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                length => self.keeper().take(&buffer[..length]),
            }
        }
    }

    pub(super) fn output(&self) -> CapturedOutput {
        self.keeper().output()
    }

    fn keeper(&self) -> MutexGuard<'_, BoundedBuffer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes_max: usize, pieces: &[&str]) -> CapturedOutput {
        let mut keeper = BoundedBuffer::new(bytes_max);
        for piece in pieces {
            keeper.take(piece.as_bytes());
        }
        keeper.output()
    }

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        #[rustfmt::skip]
        let cases: [(&str, usize, &[&str], &str, u64); 8] = [
            ("nothing",                     8, &[],                       "",                             0),
            ("what fits is whole",          8, &["abc", "defgh"],         "abcdefgh",                     0),
            ("one byte too many",           8, &["abcdefgh", "i"],        "abcd\n[1 bytes left out]\nfghi", 1),
            ("in one piece",                8, &["abcdefghijkl"],         "abcd\n[4 bytes left out]\nijkl", 4),
            ("byte by byte",                4, &["a", "b", "c", "d", "e", "f"], "ab\n[2 bytes left out]\nef", 2),
            ("after a short beginning",     8, &["a", "bcdefghijkl"],     "abcd\n[4 bytes left out]\nijkl", 4),
            ("the end goes on moving",      8, &["abcdefgh", "ij", "kl"], "abcd\n[4 bytes left out]\nijkl", 4),
            ("nothing may be kept",         0, &["abc"],                  "\n[3 bytes left out]\n",       3),
        ];
        for (name, bytes_max, pieces, text, left_out) in cases {
            let output = kept(bytes_max, pieces);
            assert_eq!((output.text().as_str(), output.left_out()), (text, left_out), "{name}");
            assert_eq!(output.whole().is_some(), left_out == 0, "{name}");
        }
    }

    #[test]
    fn the_last_line_is_the_last_that_says_something() {
        #[rustfmt::skip]
        let cases = [
            ("none",             64, "",                  None),
            ("only white space", 64, " \n\n",             None),
            ("one",              64, "a",                 Some("a")),
            ("with an end",      64, "a\nb\n\n  \n",      Some("b")),
            ("of the end",       8,  "first\nsecond\nz\n", Some("z")),
            ("longer than what is kept", 4, "first\nsecond\n", Some("second")),
            ("which has not ended", 4, "first\nsecond\n \nthird", Some("third")),
        ];
        for (name, bytes_max, text, expected) in cases {
            assert_eq!(kept(bytes_max, &[text]).last_line().as_deref(), expected, "{name}");
        }
    }
}

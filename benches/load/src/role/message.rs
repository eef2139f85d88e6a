//! The data of a benchmark event, at fixed places of one kibibyte of JSON.

use std::io::Write;

pub(crate) const PAYLOAD_BYTES: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// When it was due, in nanoseconds since 1970.
    pub sent_at_ns: u64,
    /// Unique.
    pub number: u64,
    /// The connection: within a lane and session, numbers grow.
    pub lane: u32,
    pub session: Option<u64>,
}

const AT: Field = Field { start: 7, len: 20 };
const NUMBER: Field = Field { start: 39, len: 20 };
const LANE: Field = Field { start: 69, len: 6 };
const SESSION: Field = Field { start: 88, len: 20 };
/// The bytes before the padding, and the two that close it.
const FRAME_BYTES: usize = 117 + 2;

#[derive(Clone, Copy)]
struct Field {
    start: usize,
    len: usize,
}

impl Message {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let Self { sent_at_ns, number, lane, session } = *self;
        let written = match session {
            Some(session) => write!(
                bytes,
                r#"{{"at":"{sent_at_ns:020}","number":"{number:020}","lane":"{lane:06}","session":"{session:020}","pad":""#
            ),
            None => write!(
                bytes,
                r#"{{"at":"{sent_at_ns:020}","number":"{number:020}","lane":"{lane:06}","session":"{:->20}","pad":""#,
                ""
            ),
        };
        written.expect("a list of bytes takes everything");
        bytes.resize(bytes.len() + PAYLOAD_BYTES - FRAME_BYTES, b'x');
        bytes.extend_from_slice(b"\"}");
    }

    /// `None` if it is not one of ours.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != PAYLOAD_BYTES {
            return None;
        }
        let session = &bytes[SESSION.start..SESSION.start + SESSION.len];
        Some(Self {
            sent_at_ns: AT.read(bytes)?,
            number: NUMBER.read(bytes)?,
            lane: u32::try_from(LANE.read(bytes)?).ok()?,
            session: if session[0] == b'-' { None } else { Some(SESSION.read(bytes)?) },
        })
    }
}

impl Field {
    fn read(self, bytes: &[u8]) -> Option<u64> {
        let digits = bytes.get(self.start..self.start + self.len)?;
        digits.iter().try_fold(0_u64, |value, digit| {
            let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_is_json_of_the_promised_size() {
        for session in [None, Some(0), Some(u64::MAX)] {
            let message = Message { sent_at_ns: 1_761_057_000_250_000_001, number: 7, lane: 63, session };
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            assert_eq!(bytes.len(), PAYLOAD_BYTES);
            assert_eq!(Message::read(&bytes), Some(message));
            let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
            assert_eq!(json["number"], "00000000000000000007");
        }
    }

    #[test]
    fn what_is_not_ours_is_nothing() {
        let short: &[u8] = b"{}";
        for bytes in [short, &[b'x'; PAYLOAD_BYTES]] {
            assert_eq!(Message::read(bytes), None);
        }
    }
}

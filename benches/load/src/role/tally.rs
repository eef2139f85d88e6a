//! What a sink received: how many, how late, duplicates, and order.
//!
//! Order is checked by two criteria: senders send the next event of a connection only after the last was
//! accepted, so that a session must arrive in that order; and the server's `redrive-sequence` must grow in
//! each session. A repetition after a crash is not out of order.

use std::collections::{BTreeMap, HashMap};

use super::message::Message;
use crate::latency::{Latencies, Latency};
use serde::{Deserialize, Serialize};

/// Larger numbers are not ours; the marks take at most 128 MiB.
const NUMBERS_MAX: u64 = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Tally {
    seen: Vec<u64>,
    /// Highest number by session and lane.
    sent: HashMap<(u64, u32), u64>,
    /// Highest sequence by session.
    stored: HashMap<u64, u64>,
    names: BTreeMap<String, Latencies>,
    counts: Counts,
    calls: Calls,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub distinct: u64,
    pub repeated: u64,
    /// Events after a later one of their session.
    pub out_of_order: u64,
    /// Requests that were not events of ours.
    pub strange: u64,
    /// In nanoseconds since 1970.
    pub last_at_ns: u64,
    /// First event after the last mark.
    pub first_since_mark_ns: Option<u64>,
}

/// Calls without a response yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub open: u64,
    pub open_peak: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub counts: Counts,
    pub calls: Calls,
    /// By the last path segment.
    pub names: BTreeMap<String, Latency>,
}

impl Tally {
    /// Records a request; `place` is the server's sequence, if given.
    pub(super) fn take(&mut self, name: &str, payload: &[u8], place: Option<u64>, now_ns: u64) {
        let Some(message) = Message::read(payload).filter(|message| message.number < NUMBERS_MAX) else {
            self.counts.strange += 1;
            return;
        };
        self.counts.last_at_ns = now_ns;
        self.counts.first_since_mark_ns.get_or_insert(now_ns);
        if !self.mark_seen(message.number) {
            self.counts.repeated += 1;
            return;
        }
        self.counts.distinct += 1;
        self.keep_order(&message, place);
        let micros = now_ns.saturating_sub(message.sent_at_ns) / 1_000;
        match self.names.get_mut(name) {
            Some(latencies) => latencies.add(micros),
            None => self.names.entry(name.to_owned()).or_default().add(micros),
        }
    }

    pub(super) fn mark(&mut self) {
        self.counts.first_since_mark_ns = None;
    }

    pub(super) fn call_opened(&mut self) {
        self.calls.open += 1;
        self.calls.open_peak = self.calls.open_peak.max(self.calls.open);
    }

    pub(super) fn call_closed(&mut self) {
        self.calls.open -= 1;
    }

    pub(super) fn seen(&self) -> Seen {
        let names =
            self.names.iter().map(|(name, latencies)| (name.clone(), latencies.quantiles())).collect();
        Seen { counts: self.counts, calls: self.calls, names }
    }

    /// False for a duplicate.
    fn mark_seen(&mut self, number: u64) -> bool {
        let place = usize::try_from(number / 64).expect("it is below the bound");
        if place >= self.seen.len() {
            self.seen.resize(place + 1, 0);
        }
        let mark = 1_u64 << (number % 64);
        let is_new = self.seen[place] & mark == 0;
        self.seen[place] |= mark;
        is_new
    }

    fn keep_order(&mut self, message: &Message, place: Option<u64>) {
        let Some(session) = message.session else { return };
        let sent = self.sent.entry((session, message.lane)).or_default();
        let stored = self.stored.entry(session).or_default();
        let place = place.unwrap_or(*stored);
        if message.number < *sent || place < *stored {
            self.counts.out_of_order += 1;
        }
        *sent = message.number.max(*sent);
        *stored = place.max(*stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, lane, session and sequence.
    type Arrival = (u64, u32, Option<u64>, Option<u64>);

    fn check(name: &str, events: &[Arrival], expected: (u64, u64, u64)) {
        let mut tally = Tally::default();
        for (number, lane, session, place) in events {
            let mut payload = Vec::new();
            Message { sent_at_ns: 1_000, number: *number, lane: *lane, session: *session }
                .write(&mut payload);
            tally.take("s0", &payload, *place, 2_000_000);
        }
        let Counts { distinct, repeated, out_of_order, .. } = tally.seen().counts;
        assert_eq!((distinct, repeated, out_of_order), expected, "{name}");
    }

    #[test]
    fn repetitions_and_order_are_told_apart() {
        #[rustfmt::skip]
        let cases: [(&str, &[Arrival], _); 8] = [
            ("nothing",                              &[],                                                                   (0, 0, 0)),
            ("numbers may leap",                     &[(0, 0, Some(1), None), (900, 0, Some(1), None)],                     (2, 0, 0)),
            ("a later one came first",               &[(5, 0, Some(1), None), (3, 0, Some(1), None)],                       (2, 0, 1)),
            ("the server says so too",               &[(5, 0, Some(1), Some(8)), (3, 0, Some(1), Some(7))],                 (2, 0, 1)),
            ("only the server says so",              &[(5, 0, Some(1), Some(8)), (6, 1, Some(1), Some(7))],                 (2, 0, 1)),
            ("sessions have no order between them",  &[(5, 0, Some(1), Some(8)), (3, 0, Some(2), Some(7))],                 (2, 0, 0)),
            ("nor have senders, nor has no session", &[(5, 0, Some(1), None), (3, 1, Some(1), None), (9, 0, None, None), (8, 0, None, None)], (4, 0, 0)),
            ("again is not out of order",            &[(3, 0, Some(1), Some(1)), (5, 0, Some(1), Some(2)), (3, 0, Some(1), Some(1))], (2, 1, 0)),
        ];
        for (name, events, expected) in cases {
            check(name, events, expected);
        }
    }

    #[test]
    fn what_is_not_ours_is_counted_apart() {
        let mut tally = Tally::default();
        tally.take("s0", b"hello", None, 1);
        assert_eq!(tally.seen().counts, Counts { strange: 1, ..Counts::default() });
    }

    #[test]
    fn the_first_after_a_mark_is_remembered() {
        let mut tally = Tally::default();
        let mut at = |now_ns: u64, number| {
            let mut payload = Vec::new();
            Message { sent_at_ns: 0, number, lane: 0, session: None }.write(&mut payload);
            tally.take("s0", &payload, None, now_ns);
            let first = tally.seen().counts.first_since_mark_ns;
            if number == 1 {
                tally.mark();
            }
            first
        };
        assert_eq!([at(10, 0), at(20, 1), at(30, 2), at(40, 3)], [Some(10), Some(10), Some(30), Some(30)]);
    }
}

//! Checks at the targets whether the calls of each session come in order. It sees only what a call carries.
//!
//! A call is out of order if a later delivery of its session was called before, or if another call of its session is
//! in flight. A call whose node went down no longer counts as in flight.

use super::store::Lane;
use redrive_core::hash::Map;
use redrive_core::ids::Seq;

#[derive(Debug, Default)]
pub(super) struct OrderChecker {
    sessions: Map<Lane, CheckedSession>,
    violations: u64,
}

#[derive(Debug)]
struct CheckedSession {
    furthest: Seq,
    calling: Option<(Seq, NodeRun)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeRun {
    pub node: usize,
    pub run: u32,
}

impl OrderChecker {
    pub(super) fn begins(&mut self, lane: Lane, place: Seq, caller: NodeRun) {
        let first = || CheckedSession { furthest: place, calling: None };
        let session = self.sessions.entry(lane).or_insert_with(first);
        let is_beside = session.calling.is_some_and(|(other, by)| other != place && by == caller);
        if place < session.furthest || is_beside {
            self.violations += 1;
        }
        session.furthest = session.furthest.max(place);
        session.calling = Some((place, caller));
    }

    pub(super) fn ends(&mut self, lane: Lane, place: Seq) {
        if let Some(session) = self.sessions.get_mut(&lane)
            && session.calling.is_some_and(|(calling, _)| calling == place)
        {
            session.calling = None;
        }
    }

    pub(super) const fn violations(&self) -> u64 {
        self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: Lane = Lane(0);

    #[derive(Clone, Copy)]
    enum Act {
        Begins(u64, u32),
        Ends(u64),
    }
    use Act::{Begins, Ends};

    #[test]
    fn what_is_out_of_order_is_seen() {
        #[rustfmt::skip]
        let cases: [(&str, &[Act], u64); 7] = [
            ("one after the other",          &[Begins(1, 1), Ends(1), Begins(2, 1), Ends(2)],               0),
            ("a retry",                      &[Begins(1, 1), Ends(1), Begins(1, 1), Ends(1), Begins(2, 1)], 0),
            ("the second first",             &[Begins(2, 1), Ends(2), Begins(1, 1)],                        1),
            ("two at a time",                &[Begins(1, 1), Begins(2, 1)],                                 1),
            ("again, after its caller went down", &[Begins(1, 1), Begins(1, 2), Ends(1), Begins(2, 2)],     0),
            ("the next, after a caller went down", &[Begins(1, 1), Begins(2, 2)],                           0),
            ("back to one that was passed",  &[Begins(1, 1), Ends(1), Begins(2, 1), Ends(2), Begins(1, 2)], 1),
        ];
        for (name, acts, expected) in cases {
            let mut checker = OrderChecker::default();
            for act in acts {
                match *act {
                    Begins(place, run) => checker.begins(LANE, Seq::new(place), NodeRun { node: 0, run }),
                    Ends(place) => checker.ends(LANE, Seq::new(place)),
                }
            }
            assert_eq!(checker.violations(), expected, "{name}");
        }
    }
}

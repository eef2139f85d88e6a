//! The answers of a dependency over time, in a bounded number of steps: when there are too many, pairs are merged and
//! each lasts twice as long.
//!
//! Invariant: the order in which answers are added changes nothing.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::evidence::{AnswerEvidence, TimedAnswer};
use redrive_core::ids::DeliveryId;
use redrive_core::limits;
use redrive_core::policy::backoff::nanos;
use redrive_core::time::Timestamp;

#[derive(Debug)]
pub(super) struct Timeline {
    step_nanos: u64,
    steps: BTreeMap<u64, AnswerStep>,
    kinds: Vec<AnswerExample>,
    places: BTreeMap<TimedAnswer, usize>,
}

/// By index into `kinds`.
type AnswerStep = Vec<(usize, AnswerTally)>;

#[derive(Clone, Copy, Debug, Default)]
struct AnswerTally {
    count: u64,
    took_nanos: u64,
}

impl AnswerTally {
    fn took(self) -> Duration {
        Duration::from_nanos(self.took_nanos / self.count.max(1))
    }
}

pub(super) struct GoodAnswer<'a> {
    pub kind: &'a dyn Fn(&AnswerEvidence) -> bool,
    pub within: Duration,
    /// 0 to 1.
    pub share: f64,
}

#[derive(Debug)]
struct AnswerExample {
    kind: TimedAnswer,
    at: (Timestamp, DeliveryId),
    evidence: AnswerEvidence,
}

#[derive(Clone, Debug)]
pub(super) struct NearAnswers<'a> {
    answers: Vec<Answers<'a>>,
    pub distance: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Answers<'a> {
    pub kind: &'a TimedAnswer,
    pub evidence: &'a AnswerEvidence,
    pub count: u64,
    pub took: Duration,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            step_nanos: nanos(limits::BACKTEST_STEP_MIN),
            steps: BTreeMap::new(),
            kinds: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl Timeline {
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        delivery: DeliveryId,
        evidence: AnswerEvidence,
        took: Duration,
    ) {
        let kind = evidence.kind();
        let known = self.places.get(&kind).copied();
        let place = known.unwrap_or_else(|| {
            self.kinds.push(AnswerExample {
                kind: kind.clone(),
                at: (at, delivery),
                evidence: evidence.clone(),
            });
            self.places.insert(kind, self.kinds.len() - 1);
            self.kinds.len() - 1
        });
        let example = &mut self.kinds[place];
        if (at, delivery) < example.at {
            example.at = (at, delivery);
            example.evidence = evidence;
        }
        let step = self.steps.entry(at.as_nanos() / self.step_nanos).or_default();
        count(step, place, AnswerTally { count: 1, took_nanos: nanos(took) });
        while self.steps.len() > limits::BACKTEST_STEPS_MAX {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.step_nanos = self.step_nanos.saturating_mul(2);
        for (index, step) in std::mem::take(&mut self.steps) {
            let merged = self.steps.entry(index / 2).or_default();
            for (place, tally) in step {
                count(merged, place, tally);
            }
        }
    }

    pub(super) const fn step(&self) -> Duration {
        Duration::from_nanos(self.step_nanos)
    }

    pub(super) fn at(&self, at: Timestamp) -> Option<NearAnswers<'_>> {
        let step = self.steps.get(&(at.as_nanos() / self.step_nanos))?;
        Some(self.around(step, Duration::ZERO))
    }

    pub(super) fn before(&self, at: Timestamp) -> Option<NearAnswers<'_>> {
        let (index, step) = self.steps.range(..at.as_nanos() / self.step_nanos).next_back()?;
        let end = (index + 1).saturating_mul(self.step_nanos);
        Some(self.around(step, at.since(Timestamp::from_nanos(end))))
    }

    pub(super) fn after(&self, at: Timestamp) -> Option<NearAnswers<'_>> {
        let (index, step) = self.steps.range(at.as_nanos() / self.step_nanos + 1..).next()?;
        Some(self.around(step, Timestamp::from_nanos(index.saturating_mul(self.step_nanos)).since(at)))
    }

    /// The start of the first step in the span with enough good answers. Kinds are judged once, because a span may
    /// have thousands of steps.
    pub(super) fn first_good(
        &self,
        span: RangeInclusive<Timestamp>,
        good: &GoodAnswer<'_>,
    ) -> Option<Timestamp> {
        let is_good: Vec<bool> = self.kinds.iter().map(|example| (good.kind)(&example.evidence)).collect();
        let index = |at: Timestamp| at.as_nanos() / self.step_nanos;
        let mut steps = self.steps.range(index(*span.start())..=index(*span.end()));
        let found = steps.find(|(_, step)| {
            let all: u64 = step.iter().map(|(_, tally)| tally.count).sum();
            let came = step.iter().filter(|(place, tally)| is_good[*place] && tally.took() <= good.within);
            let well: u64 = came.map(|(_, tally)| tally.count).sum();
            well as f64 / all as f64 >= good.share
        });
        let at = Timestamp::from_nanos(found?.0.saturating_mul(self.step_nanos)).max(*span.start());
        (at <= *span.end()).then_some(at)
    }

    fn around(&self, step: &AnswerStep, distance: Duration) -> NearAnswers<'_> {
        let answers = step.iter().map(|(place, tally)| {
            let AnswerExample { kind, evidence, .. } = &self.kinds[*place];
            Answers { kind, evidence, count: tally.count, took: tally.took() }
        });
        let mut answers: Vec<Answers<'_>> = answers.collect();
        answers.sort_by(|a, b| a.kind.cmp(b.kind));
        NearAnswers { answers, distance }
    }
}

fn count(step: &mut AnswerStep, place: usize, more: AnswerTally) {
    match step.iter_mut().find(|(known, _)| *known == place) {
        Some((_, tally)) => {
            tally.count += more.count;
            tally.took_nanos = tally.took_nanos.saturating_add(more.took_nanos);
        }
        None => step.push((place, more)),
    }
}

impl<'a> NearAnswers<'a> {
    /// The largest class of answers, and its share of all.
    pub(super) fn most_frequent<Class: Ord>(
        &self,
        class_of: impl Fn(&Answers<'a>) -> Class,
    ) -> (Answers<'a>, f64) {
        let mut classes: BTreeMap<Class, (u64, Answers<'a>)> = BTreeMap::new();
        let mut all = 0;
        for answers in &self.answers {
            all += answers.count;
            let (count, most) = classes.entry(class_of(answers)).or_insert((0, *answers));
            *count += answers.count;
            if answers.count > most.count {
                *most = *answers;
            }
        }
        let mut best: Option<(u64, Answers<'a>)> = None;
        for (count, answers) in classes.into_values() {
            if best.is_none_or(|(most, _)| count > most) {
                best = Some((count, answers));
            }
        }
        let (count, answers) = best.expect("a step has an answer");
        (answers, count as f64 / all as f64)
    }

    pub(super) fn count_of(&self, kind: &TimedAnswer) -> u64 {
        self.answers.iter().find(|answers| answers.kind == kind).map_or(0, |answers| answers.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::policy::answer::{HeaderPairs, ReplyKind, TargetReply};

    fn status(status: u16) -> AnswerEvidence {
        let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
        let reply = TargetReply { seen, message: format!("{status}"), retry_after: None };
        AnswerEvidence::Answer { reply, lacking: Vec::new() }
    }

    const fn at(second: u64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    fn timeline(answers: &[(u64, u16)]) -> Timeline {
        let mut timeline = Timeline::default();
        for (second, said) in answers {
            let delivery = DeliveryId(u128::from(*second));
            timeline.add(at(*second), delivery, status(*said), Duration::from_millis(10));
        }
        timeline
    }

    fn told(around: Option<NearAnswers<'_>>) -> Option<(Option<u16>, u64, Duration)> {
        let around = around?;
        let (most, share) = around.most_frequent(|answers| answers.kind.clone());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share in percent")]
        let percent = (share * 100.0).round() as u64;
        Some((most.kind.status, percent, around.distance))
    }

    #[test]
    fn what_is_nearest_is_found_on_either_side() {
        let timeline = timeline(&[(10, 200), (10, 503), (10, 503), (20, 200), (60, 503)]);
        let secs = Duration::from_secs;
        #[rustfmt::skip]
        let cases = [
            ("at that time",      timeline.at(at(10)),      Some((Some(503), 67, secs(0)))),
            ("nothing there",     timeline.at(at(15)),      None),
            ("before",            timeline.before(at(15)),  Some((Some(503), 67, secs(4)))),
            ("after",             timeline.after(at(15)),   Some((Some(200), 100, secs(5)))),
            ("nothing before",    timeline.before(at(10)),  None),
            ("nothing after",     timeline.after(at(60)),   None),
        ];
        for (name, around, expected) in cases {
            assert_eq!(told(around), expected, "{name}");
        }
    }

    #[test]
    fn the_first_step_in_which_all_is_well_is_found_within_a_span() {
        let timeline =
            timeline(&[(10, 503), (11, 200), (11, 503), (12, 200), (12, 200), (12, 503), (20, 200)]);
        let millis = Duration::from_millis;
        #[rustfmt::skip]
        let cases = [
            ("two of three are enough",       at(5)..=at(60),             millis(10), Some(at(12))),
            ("one of two is not",             at(11)..=at(11),            millis(10), None),
            ("within a step, it is then",     at(12) + millis(300)..=at(60), millis(10), Some(at(12) + millis(300))),
            ("the next one",                  at(13)..=at(60),            millis(10), Some(at(20))),
            ("not after the span",            at(13)..=at(19),            millis(10), None),
            ("what took too long is no good", at(5)..=at(60),             millis(9),  None),
        ];
        for (name, span, within, expected) in cases {
            let kind = |evidence: &AnswerEvidence| *evidence == status(200);
            let good = GoodAnswer { kind: &kind, within, share: 2.0 / 3.0 };
            assert_eq!(timeline.first_good(span, &good), expected, "{name}");
        }
    }

    #[test]
    fn steps_become_coarser_and_forget_nothing_whatever_the_order() {
        let most = limits::BACKTEST_STEPS_MAX as u64;
        let answers: Vec<(u64, u16)> =
            (0..3 * most).map(|n| (n, if n % 3 == 0 { 503 } else { 200 })).collect();
        let mut turned = answers.clone();
        turned.reverse();
        let (there, back) = (timeline(&answers), timeline(&turned));
        assert_eq!(there.step(), Duration::from_secs(4), "three times as many steps fit when four are one");
        let mut counted = 0;
        for second in (0..3 * most).step_by(4) {
            let (one, other) = (there.at(at(second)), back.at(at(second)));
            counted +=
                one.iter().flat_map(|around| &around.answers).map(|answers| answers.count).sum::<u64>();
            assert_eq!(told(one), told(other), "{second}");
        }
        assert_eq!(counted, 3 * most);
    }
}

//! Targets that behave as a script says: well for a while, then slow, hanging, failing, throttling or
//! talking nonsense. What a call comes to depends on the seed, the moment and the delivery, and on nothing
//! that the engine holds.

use std::time::Duration;

use super::dice::Dice;
use crate::hash::stable_64_of;
use crate::ids::DeliveryId;
use crate::policy::answer::{CallPart, HeaderPairs, ReplyKind, TargetReply, TransportError};
use crate::time::Timestamp;

/// How a target is disposed for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Healthy,
    Slow,
    Hanging,
    /// 500, which is `unknown`, or 503.
    Failing(u16),
    /// 429, and when to come back.
    Throttling(Option<Duration>),
    /// Answers that are none.
    Malformed,
    Refusing,
    /// 422 to everything.
    Rejecting,
    /// 401 to everything.
    Unauthorized,
}

/// What an answer means, as the test's own table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    Delivered,
    Transient,
    RateLimited(Option<Duration>),
    Permanent,
    Fatal,
    Unknown,
}

impl Means {
    /// Whether a breaker counts it as a failure.
    pub(super) const fn is_failure(self) -> bool {
        match self {
            Self::Transient | Self::RateLimited(_) | Self::Unknown => true,
            Self::Delivered | Self::Permanent | Self::Fatal => false,
        }
    }
}

/// What a call comes to, and after how long.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub reply: TargetReply,
    pub means: Means,
    pub took: Duration,
}

/// The moods of one target, each until a time; after the last it is well.
#[derive(Clone, Debug, Default)]
pub(super) struct Script(Vec<(Timestamp, Mood)>);

/// Of a hundred deliveries, so many are rejected by every target, at any time.
const REJECTED_PERCENT: u64 = 2;

impl Script {
    /// Moods by chance from the start until all is healed.
    pub(super) fn roll(dice: &mut Dice, start: Timestamp, healed_at: Timestamp) -> Self {
        let mut moods = Vec::new();
        let mut until = start;
        // Some are well all the time, so that one can see whether others do them harm.
        let troubled = if dice.chance(30) { 0 } else { dice.pick(&[30, 50, 80]) };
        while until < healed_at {
            until = (until + dice.span(Duration::from_millis(500), Duration::from_secs(15))).min(healed_at);
            let mood = if dice.chance(troubled) { Self::trouble(dice) } else { Mood::Healthy };
            moods.push((until, mood));
        }
        Self(moods)
    }

    /// It is well all the time.
    pub(super) const fn well() -> Self {
        Self(Vec::new())
    }

    /// It hangs most of the time.
    pub(super) fn hanging(dice: &mut Dice, start: Timestamp, healed_at: Timestamp) -> Self {
        let mut moods = Vec::new();
        let mut until = start;
        while until < healed_at {
            let well_until = until + dice.span(Duration::ZERO, Duration::from_secs(2));
            until = (well_until + dice.span(Duration::from_secs(3), Duration::from_secs(20))).min(healed_at);
            moods.extend([(well_until.min(healed_at), Mood::Healthy), (until, Mood::Hanging)]);
        }
        Self(moods)
    }

    fn trouble(dice: &mut Dice) -> Mood {
        let ask = |dice: &mut Dice| {
            dice.chance(70).then_some(Duration::from_millis(dice.pick(&[200, 1_000, 3_000, 8_000])))
        };
        match dice.below(12) {
            0 => Mood::Slow,
            1..=3 => Mood::Hanging,
            4 => Mood::Failing(500),
            5 | 6 => Mood::Failing(503),
            7 => Mood::Throttling(ask(dice)),
            8 => Mood::Malformed,
            9 => Mood::Refusing,
            10 => Mood::Rejecting,
            _ => Mood::Unauthorized,
        }
    }

    /// How it is disposed then.
    pub(super) fn mood(&self, now: Timestamp) -> Mood {
        self.0.iter().find(|(until, _)| now < *until).map_or(Mood::Healthy, |(_, mood)| *mood)
    }

    /// What a call comes to that starts then and may take so long.
    pub(super) fn answer(&self, seed: u64, delivery: DeliveryId, now: Timestamp, limit: Duration) -> Answer {
        let mut dice = Dice::new(seed, stable_64_of(delivery.content(), now.as_nanos()));
        let is_rejected = Dice::new(seed, delivery.content()).chance(REJECTED_PERCENT);
        let quick = dice.span(Duration::from_micros(300), Duration::from_millis(30));
        let relents = dice.chance(15);
        let (answer, took) = match self.mood(now) {
            Mood::Healthy if is_rejected => (status(422, Means::Permanent), quick),
            Mood::Healthy => (status(200, Means::Delivered), quick),
            Mood::Slow => (status(204, Means::Delivered), quick * 30),
            Mood::Hanging => (status(200, Means::Delivered), Duration::MAX),
            Mood::Failing(_) if relents => (status(202, Means::Delivered), quick),
            Mood::Failing(500) => (status(500, Means::Unknown), quick),
            Mood::Failing(code) => (status(code, Means::Transient), quick),
            Mood::Throttling(wait) => {
                let (reply, _) = status(429, Means::Permanent);
                ((TargetReply { retry_after: wait, ..reply }, Means::RateLimited(wait)), quick)
            }
            Mood::Malformed if relents => (status(700, Means::Unknown), quick),
            Mood::Malformed => (broken(TransportError::Protocol, Means::Unknown), quick),
            Mood::Refusing => (broken(TransportError::Refused, Means::Transient), quick / 10),
            Mood::Rejecting => (status(422, Means::Permanent), quick),
            Mood::Unauthorized => (status(401, Means::Fatal), quick),
        };
        if took >= limit {
            let late = TransportError::Timeout(CallPart::Whole);
            let (reply, means) = broken(late, Means::Transient);
            return Answer { reply, means, took: limit };
        }
        let (reply, means) = answer;
        Answer { reply, means, took }
    }
}

fn status(status: u16, means: Means) -> (TargetReply, Means) {
    let seen = ReplyKind::Http { status, headers: HeaderPairs::default(), body: String::new() };
    (TargetReply { seen, message: format!("target answered {status}"), retry_after: None }, means)
}

fn broken(error: TransportError, means: Means) -> (TargetReply, Means) {
    (
        TargetReply { seen: ReplyKind::Transport(error), message: format!("{error:?}"), retry_after: None },
        means,
    )
}

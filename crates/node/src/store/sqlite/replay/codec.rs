//! Stored form of replays: counters as numbers, the rest as JSON.
//!
//! Invariants: values round-trip. A format once written is readable forever, so these structs are separate from
//! the types they store, and new fields need a default.

use std::collections::BTreeSet;
use std::sync::Arc;

use redrive_core::book::model::DeliveryOrder;
use redrive_core::book::pattern::EventPattern;
use redrive_core::engine::QueueName;
use redrive_core::ids::{ChannelName, DeliveryId, ServiceName};
use redrive_core::letters::envelope::Tier;
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::{
    Manner, ReplayId, ReplayOrigin, ReplayPace, ReplayState, ReplayStop, ReplayWave,
};
use redrive_core::policy::category::Category;
use redrive_core::text::Rate;
use redrive_core::time::Timestamp;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::letter::{KindId, LetterFilter, Poison, Redirect, Selection};
use crate::store::sqlite::fault::{SqlFault, SqlResult};

/// By number in column `state`; below 4 is open.
const STATES: [ReplayState; 6] = [
    ReplayState::Gathering,
    ReplayState::Running,
    ReplayState::Paused,
    ReplayState::Stopped,
    ReplayState::Cancelled,
    ReplayState::Done,
];
/// By number in column `wave`.
const WAVES: [ReplayWave; 4] = [ReplayWave::None, ReplayWave::First, ReplayWave::Second, ReplayWave::Rest];

pub(super) fn state(state: ReplayState) -> i64 {
    number_in(&STATES, &state)
}

pub(super) fn read_state(number: i64) -> SqlResult<ReplayState> {
    at_number(&STATES, number).ok_or(SqlFault::unreadable("the state of a replay"))
}

pub(super) fn wave(wave: ReplayWave) -> i64 {
    number_in(&WAVES, &wave)
}

pub(super) fn read_wave(number: i64) -> SqlResult<ReplayWave> {
    at_number(&WAVES, number).ok_or(SqlFault::unreadable("the wave of a replay"))
}

fn number_in<T: PartialEq>(all: &[T], one: &T) -> i64 {
    let place = all.iter().position(|known| known == one).expect("all are listed");
    i64::try_from(place).expect("a handful")
}

fn at_number<T: Copy>(all: &[T], number: i64) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

#[derive(Serialize, Deserialize)]
struct StoredPace {
    rate: Option<f64>,
    concurrency: u32,
    manner: Manner,
}

pub(super) fn pace(pace: &ReplayPace) -> String {
    let ReplayPace { rate, concurrency, manner } = *pace;
    json(&StoredPace { rate: rate.map(Rate::as_per_second), concurrency, manner })
}

pub(super) fn read_pace(text: &str) -> SqlResult<ReplayPace> {
    let unreadable = || SqlFault::unreadable("the pace of a replay");
    let StoredPace { rate, concurrency, manner } = read(text).ok_or_else(unreadable)?;
    let rate = rate.map(|rate| Rate::per_second(rate).ok_or_else(unreadable)).transpose()?;
    Ok(ReplayPace { rate, concurrency, manner })
}

pub(super) fn origin(origin: ReplayOrigin) -> String {
    json(&origin)
}

pub(super) fn read_origin(text: &str) -> SqlResult<ReplayOrigin> {
    read(text).ok_or(SqlFault::unreadable("the origin of a replay"))
}

#[derive(Serialize, Deserialize)]
struct StoredTarget {
    service: String,
    channel: Option<String>,
    #[serde(with = "StoredOrder")]
    order: DeliveryOrder,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DeliveryOrder", rename_all = "kebab-case")]
enum StoredOrder {
    None,
    Session,
    SessionStrict,
}

pub(super) fn target(target: &Redirect) -> String {
    let QueueName { service, channel } = &*target.queue;
    let (service, channel) = (service.to_string(), channel.as_ref().map(ChannelName::to_string));
    json(&StoredTarget { service, channel, order: target.order })
}

pub(super) fn read_target(text: &str) -> SqlResult<Redirect> {
    let unreadable = || SqlFault::unreadable("the target of a replay");
    let StoredTarget { service, channel, order } = read(text).ok_or_else(unreadable)?;
    let service = ServiceName::new(&service).map_err(|_| unreadable())?;
    let channel = channel.map(|name| ChannelName::new(&name).map_err(|_| unreadable())).transpose()?;
    Ok(Redirect { queue: Arc::new(QueueName { service, channel }), order })
}

#[derive(Serialize, Deserialize)]
struct StoredStop {
    replay: ReplayId,
    fingerprint: Fingerprint,
    delivery: String,
}

pub(super) fn stop(stop: &ReplayStop) -> String {
    let ReplayStop { replay, fingerprint, delivery } = *stop;
    json(&StoredStop { replay, fingerprint, delivery: delivery.to_string() })
}

pub(super) fn read_stop(text: Option<&str>) -> SqlResult<Option<ReplayStop>> {
    let unreadable = || SqlFault::unreadable("the stop reason of a replay");
    let Some(text) = text else { return Ok(None) };
    let StoredStop { replay, fingerprint, delivery } = read(text).ok_or_else(unreadable)?;
    let delivery = DeliveryId::parse(&delivery).ok_or_else(unreadable)?;
    Ok(Some(ReplayStop { replay, fingerprint, delivery }))
}

/// Times are in nanoseconds, without rounding.
#[derive(Serialize, Deserialize)]
struct StoredSelection {
    #[serde(with = "StoredFilter")]
    filter: LetterFilter,
    letters: Option<Vec<String>>,
    poison: Poison,
    died_until: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LetterFilter")]
struct StoredFilter {
    service: Option<String>,
    channel: Option<String>,
    name: Option<String>,
    subscription: Option<String>,
    category: Option<Category>,
    code: Option<String>,
    fingerprint: Option<Fingerprint>,
    #[serde(default, with = "event_pattern")]
    event_type: Option<EventPattern>,
    session: Option<String>,
    correlation_id: Option<String>,
    tier: Option<Tier>,
    #[serde(default, with = "nanoseconds")]
    from: Option<Timestamp>,
    #[serde(default, with = "nanoseconds")]
    until: Option<Timestamp>,
    text: Option<String>,
    kinds: Option<BTreeSet<KindId>>,
    replays_below: Option<u32>,
}

mod nanoseconds {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Timestamp};

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(super) fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_nanos).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Timestamp::from_nanos))
    }
}

mod event_pattern {
    use super::{Deserialize, Deserializer, Error, EventPattern, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field by reference")]
    pub(super) fn serialize<S: Serializer>(pattern: &Option<EventPattern>, to: S) -> Result<S::Ok, S::Error> {
        pattern.as_ref().map(EventPattern::as_str).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<EventPattern>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| EventPattern::parse(&text)).transpose().map_err(|_| Error::custom("no pattern"))
    }
}

pub(super) fn selection(selection: &Selection) -> String {
    let Selection { filter, letters, poison, died_until } = selection.clone();
    let letters = letters.map(|letters| letters.iter().map(DeliveryId::to_string).collect());
    json(&StoredSelection { filter, letters, poison, died_until: died_until.as_nanos() })
}

pub(super) fn read_selection(text: &str) -> SqlResult<Selection> {
    let unreadable = || SqlFault::unreadable("the selection of a replay");
    let StoredSelection { filter, letters, poison, died_until } = read(text).ok_or_else(unreadable)?;
    let parse = |letter: String| DeliveryId::parse(&letter).ok_or_else(unreadable);
    let letters = letters.map(|letters| letters.into_iter().map(parse).collect()).transpose()?;
    Ok(Selection { filter, letters, poison, died_until: Timestamp::from_nanos(died_until) })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names and numbers are JSON")
}

fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use redrive_core::ids::Seq;

    use super::*;

    #[test]
    fn what_was_written_reads_back() {
        let delivery = DeliveryId::new(Seq::new(7), 0xfeed);
        let paces = [
            ReplayPace { rate: None, concurrency: 1, manner: Manner::Straight },
            ReplayPace { rate: Rate::per_second(0.1), concurrency: 1_000, manner: Manner::Canary },
        ];
        for written in paces {
            assert_eq!(read_pace(&pace(&written)).expect("a pace"), written);
        }
        for written in [ReplayOrigin::Operator, ReplayOrigin::Automatic { times_max: 3 }] {
            assert_eq!(read_origin(&origin(written)).expect("an origin"), written);
        }
        let queue = QueueName {
            service: ServiceName::new("billing").expect("a name"),
            channel: Some(ChannelName::new("mail").expect("a name")),
        };
        for order in [DeliveryOrder::None, DeliveryOrder::Session, DeliveryOrder::SessionStrict] {
            let written = Redirect { queue: Arc::new(queue.clone()), order };
            assert_eq!(read_target(&target(&written)).expect("a target"), written);
        }
        let written = ReplayStop { replay: ReplayId(3), fingerprint: Fingerprint(u64::MAX), delivery };
        assert_eq!(read_stop(Some(&stop(&written))).expect("a reason"), Some(written));
        assert_eq!(read_stop(None).expect("no reason"), None);
    }

    #[test]
    fn a_selection_reads_back_to_the_nanosecond() {
        let at = Timestamp::from_nanos(1_700_000_000_123_456_789);
        let filter = LetterFilter {
            service: Some("billing".to_owned()),
            channel: Some("mail".to_owned()),
            name: Some("_billing.deadletter".to_owned()),
            subscription: Some("billing".to_owned()),
            category: Some(Category::Transient),
            code: Some("HTTP_503".to_owned()),
            fingerprint: Some(Fingerprint(9)),
            event_type: Some(EventPattern::parse("order.*").expect("a pattern")),
            session: Some("s".to_owned()),
            correlation_id: Some("c".to_owned()),
            tier: Some(Tier::Poison),
            from: Some(at),
            until: Some(Timestamp::NEVER),
            text: Some("refused".to_owned()),
            kinds: Some([KindId(1), KindId(2)].into()),
            replays_below: Some(3),
        };
        let letters = Some(vec![DeliveryId::new(Seq::new(1), 2)]);
        for (filter, letters) in [(filter, letters), (LetterFilter::default(), None)] {
            let written = Selection { filter, letters, poison: Poison::Included, died_until: at };
            assert_eq!(read_selection(&selection(&written)).expect("a selection"), written);
        }
    }

    #[test]
    fn states_and_waves_read_back() {
        for number in 0..=5 {
            let found = read_state(number).expect("a state");
            assert_eq!((state(found), found.is_open()), (number, number < 4));
        }
        for number in 0..=3 {
            assert_eq!(wave(read_wave(number).expect("a wave")), number);
        }
        assert!(read_state(6).is_err() && read_wave(4).is_err());
    }
}

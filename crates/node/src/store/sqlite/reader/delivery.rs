//! Reads a delivery and its dead letter.

use std::sync::Arc;

use redrive_core::engine::attempt_record::AttemptRecord;
use redrive_core::engine::{DeadLetterInfo, SessionFollowers};
use redrive_core::event::Event;
use redrive_core::event::attribute::{CorrelationId, SessionKey};
use redrive_core::ids::{DeliveryId, Receipt, Seq};
use redrive_core::letters::replay::ReplayId;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::ReadView;
use crate::store::letter::{LetterNumber, LetterView};
use crate::store::sqlite::encode::{place, seq, time};
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::rows;
use crate::store::sqlite::schema::state;
use crate::store::sqlite::sql::Sql;
use crate::store::{DeliveryState, DeliveryView, LetterClosure, derive};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Line,
    Attempts,
    /// Attempts and event data.
    All,
}

/// `held` names the letter whose turn it is; a claim counts while its replay is open. Data are read only on
/// request.
pub(super) const DELIVERY: &str =
    "SELECT e.id, e.source, e.type, e.attributes, CASE WHEN ?2 THEN e.data ELSE x'' END,
        d.seq, d.content, d.queue, s.name, d.event, e.received_at, d.written_at, d.attempts, d.state, d.due_at,
        d.story, d.replay, d.replays, d.linked,
        l.number, l.died_at, k.category, k.code, k.failure_code, k.tier, l.message, k.fingerprint, k.name,
        k.consumer_group, r.id, h.behind, i.key
    FROM deliveries d CROSS JOIN events e ON e.seq = d.event
    LEFT JOIN subscriptions s ON s.id = d.subscription
    LEFT JOIN letters l ON l.delivery = d.seq LEFT JOIN kinds k ON k.id = l.kind
    LEFT JOIN replays r ON r.id = l.claim AND r.state < 4
    LEFT JOIN held h ON h.lane = d.lane AND h.letter = d.seq
    LEFT JOIN imported i ON i.delivery = d.seq
    WHERE d.seq = ?1";
const ATTEMPTS: &str = "SELECT story FROM attempts WHERE delivery = ?1 ORDER BY n";

impl ReadView<'_> {
    pub(super) fn delivery(&self, at: Seq, depth: Depth) -> SqlResult<Option<DeliveryView>> {
        let values = (place(at), depth == Depth::All);
        self.connection.first(DELIVERY, values, |row| self.view(row, &rows::event(row)?, depth))
    }

    pub(super) fn letter_at(&self, at: i64, depth: Depth) -> SqlResult<Option<LetterView>> {
        let found = self.connection.first(DELIVERY, (at, depth == Depth::All), |row| {
            let Some(number) = row.get::<_, Option<i64>>(19)? else { return Ok(None) };
            let event = rows::event(row)?;
            let delivery = self.view(row, &event, depth)?;
            let imported_as: Option<String> = row.get(31)?;
            Ok(Some(LetterView {
                number: LetterNumber(number.cast_unsigned()),
                death: death(row)?,
                died_at: time(row.get(20)?),
                replays: delivery.replays,
                claimed_by: replay_id(row, 29)?,
                holds: holds(row)?,
                imported_as: imported_as.map(|key| derive::imported_as(&key).to_owned()),
                event: Arc::new(event),
                delivery,
            }))
        })?;
        Ok(found.flatten())
    }

    fn view(&self, row: &Row<'_>, event: &Event, depth: Depth) -> SqlResult<DeliveryView> {
        let is_superseded = row.get::<_, i64>(13)? == state::SUPERSEDED;
        let linked = row.get::<_, Option<i64>>(18)?.map(|event| Receipt::of(seq(event)));
        Ok(DeliveryView {
            id: DeliveryId::new(seq(row.get(5)?), row.get::<_, i64>(6)?.cast_unsigned()),
            queue: self.queue(row.get(7)?)?.clone(),
            subscription: row.get(8)?,
            receipt: Receipt::of(seq(row.get(9)?)),
            event_id: event.id.to_string(),
            event_source: event.source.to_string(),
            event_type: event.event_type.to_string(),
            session: event.session.as_ref().map(SessionKey::to_string),
            correlation_id: event.correlation_id.as_ref().map(CorrelationId::to_string),
            accepted_at: time(row.get(10)?),
            written_at: time(row.get(11)?),
            attempts: row.get(12)?,
            state: state_of(row)?,
            replaying: replay_id(row, 16)?,
            replays: row.get::<_, Option<u32>>(17)?.unwrap_or_default(),
            supersedes: linked.filter(|_| !is_superseded),
            stories: match depth {
                Depth::Attempts | Depth::All => self.stories(row)?,
                Depth::Line => Vec::new(),
            },
        })
    }

    fn stories(&self, delivery: &Row<'_>) -> SqlResult<Vec<AttemptRecord>> {
        let at: i64 = delivery.get(5)?;
        let mut stories = self.connection.all(ATTEMPTS, [at], |row| rows::story(row, 0))?;
        if delivery.get_ref(15)? != ValueRef::Null {
            stories.push(rows::story(delivery, 15)?);
        }
        Ok(stories)
    }
}

/// 0 while an earlier letter holds the session.
fn holds(row: &Row<'_>) -> SqlResult<Option<u64>> {
    let behind = row.get::<_, Option<i64>>(30)?.unwrap_or_default().cast_unsigned();
    Ok((row.get::<_, i64>(13)? == state::HOLDING).then_some(behind))
}

fn replay_id(row: &Row<'_>, column: usize) -> SqlResult<Option<ReplayId>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|id| ReplayId(id.cast_unsigned())))
}

fn state_of(row: &Row<'_>) -> SqlResult<DeliveryState> {
    let written_at = time(row.get(11)?);
    let closed = |how| DeliveryState::Closed { at: written_at, how };
    Ok(match row.get::<_, i64>(13)? {
        state::READY => DeliveryState::Ready,
        state::DUE => DeliveryState::Due { at: time(row.get(14)?) },
        state::BEHIND => DeliveryState::Behind,
        state::DELIVERED => DeliveryState::Delivered { at: written_at },
        state::DEAD | state::HOLDING => {
            let died_at = row.get::<_, Option<i64>>(20)?.ok_or(SqlFault::unreadable("a dead letter"))?;
            DeliveryState::Dead { at: time(died_at), death: Box::new(death(row)?) }
        }
        state::SKIPPED => closed(LetterClosure::Skipped),
        state::PURGED => closed(LetterClosure::Purged),
        state::SUPERSEDED => {
            let by =
                row.get::<_, Option<i64>>(18)?.ok_or(SqlFault::unreadable("the replacement of a letter"))?;
            closed(LetterClosure::Superseded { by: Receipt::of(seq(by)) })
        }
        _ => return Err(SqlFault::unreadable("the state of a delivery")),
    })
}

fn death(row: &Row<'_>) -> SqlResult<DeadLetterInfo> {
    let is_holding = row.get::<_, i64>(13)? == state::HOLDING;
    Ok(DeadLetterInfo {
        name: row.get(27)?,
        consumer_group: row.get(28)?,
        followers: if is_holding { SessionFollowers::Wait } else { SessionFollowers::Continue },
        ..rows::death(row, 21)?
    })
}

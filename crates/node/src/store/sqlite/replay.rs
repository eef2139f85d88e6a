//! Replays: the letters they claim, their state, progress and commands.
//!
//! Invariants: progress is written in the transaction that claims, sends or settles the letter; a letter belongs
//! to at most one open replay.

mod codec;
pub(super) mod send;

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::ids::DeliveryId;
use redrive_core::letters::replay::{
    Listing, ReplayId, ReplayJob, ReplayState, ReplayStop, ReplayTally, ReplayWave,
};
use redrive_core::policy::category::codes;
use rusqlite::{Connection, Row};

use super::audit::AuditAct;
use super::commands::CommandResult;
use super::encode::{Integrity, nanos, seq, time};
use super::fault::{SqlFault, SqlResult};
use super::reader::select_letters;
use super::rows::{self, text};
use super::select;
use super::select::LetterRef;
use super::settle::ReplayedOutcome;
use super::sql::Sql;
use super::write::BatchWriter;
use crate::store::letter::{CommandRefusal, NewReplay, Redirect, ReplayAct, ReplayView, Selection};
use crate::store::{REPLAY_GATHER_MAX, derive};

/// Columns that [`view`] and [`BatchWriter::stored`] read.
pub(super) const VIEW: &str =
    "SELECT id, state, what, pace, origin, target, note, wave, total, sent, delivered, failed,
    left_alone, claimed_by_others, created_at, changed_at, stop,
    json_extract(selection, '$.filter.service'), selection, gathered, audit FROM replays";
pub(super) const OPEN: &str = "SELECT id FROM replays WHERE state < 4";
const INSERT: &str = "INSERT INTO replays VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, ?9, ?10, 0, 0, 0, 0,
    ?11, ?12, ?12, ?13, ?14)";
const INSERT_LETTER: &str = "INSERT INTO replay_letters VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const FIRST_OF_LANE: &str = "SELECT delivery, turn FROM replay_letters INDEXED BY replay_sessions
    WHERE replay = ?1 AND lane = ?2 AND lane IS NOT NULL AND state IN (0, 5) ORDER BY turn LIMIT 1";
const GATHERED: &str =
    "UPDATE replays SET state = ?2, total = total + ?3, claimed_by_others = claimed_by_others + ?4,
    gathered = ?5, changed_at = ?6 WHERE id = ?1";
const CHANGE: &str = "UPDATE replays SET state = ?2, changed_at = ?3, wave = ?4,
    stop = CASE WHEN ?5 THEN NULL ELSE stop END WHERE id = ?1";
const STOP: &str = "UPDATE replays SET state = ?4, stop = ?2, changed_at = ?3 WHERE id = ?1 AND state = 1";
const COUNT_DELIVERED: &str = "UPDATE replays SET delivered = delivered + 1, changed_at = ?2 WHERE id = ?1";
const COUNT_FAILED: &str = "UPDATE replays SET failed = failed + 1, changed_at = ?2 WHERE id = ?1";
/// Every letter has a result.
const END: &str = "UPDATE replays SET state = 5
    WHERE id = ?1 AND state = 1 AND total = sent + left_alone AND sent = delivered + failed";
const ALL_GATHERED: i64 = i64::MAX;

/// Values of column `state` in `replay_letters`.
pub(super) mod letter_state {
    pub(in super::super) const NEXT: i64 = 0;
    pub(in super::super) const SENT: i64 = 1;
    pub(in super::super) const DELIVERED: i64 = 2;
    pub(in super::super) const FAILED: i64 = 3;
    pub(in super::super) const LEFT_ALONE: i64 = 4;
    /// Earlier letters of its session come first.
    pub(in super::super) const WAITS: i64 = 5;
}

#[derive(Debug, Default)]
struct GatherStep {
    letters: u64,
    claimed: BTreeMap<ReplayId, u64>,
    poison: u64,
    /// A letter left out because its event is damaged.
    damaged: Option<DeliveryId>,
    upto: i64,
}

pub(super) struct StoredReplay {
    pub(super) view: ReplayView,
    pub(super) target: Option<Redirect>,
    selection: String,
    gathered: i64,
    audit: i64,
}

/// Open, or with letters in flight.
pub(super) fn unfinished(connection: &Connection) -> SqlResult<Vec<ReplayJob>> {
    let select = format!("{VIEW} WHERE state < 4 OR sent > delivered + failed ORDER BY id");
    connection.all(&select, [], |row| Ok(view(row)?.job()))
}

/// Their claims are in force.
pub(super) fn open(connection: &Connection) -> SqlResult<BTreeSet<i64>> {
    Ok(connection.all(OPEN, [], |row| Ok(row.get(0)?))?.into_iter().collect())
}

/// From a row of [`VIEW`].
pub(super) fn view(row: &Row<'_>) -> SqlResult<ReplayView> {
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let target = row.get::<_, Option<String>>(5)?;
    let stop = row.get::<_, Option<String>>(16)?;
    Ok(ReplayView {
        id: ReplayId(count(0)?),
        state: codec::read_state(row.get(1)?)?,
        what: row.get(2)?,
        service: row.get(17)?,
        pace: codec::read_pace(text(row, 3)?)?,
        origin: codec::read_origin(text(row, 4)?)?,
        to: target.map(|text| codec::read_target(&text).map(|to| (*to.queue).clone())).transpose()?,
        note: row.get(6)?,
        wave: codec::read_wave(row.get(7)?)?,
        tally: ReplayTally {
            total: count(8)?,
            sent: count(9)?,
            delivered: count(10)?,
            failed: count(11)?,
            left: count(12)?,
        },
        claimed_by_others: count(13)?,
        created_at: time(row.get(14)?),
        changed_at: time(row.get(15)?),
        stop: codec::read_stop(stop.as_deref())?,
    })
}

impl BatchWriter<'_> {
    pub(super) fn stored(&self, replay: ReplayId) -> SqlResult<Option<StoredReplay>> {
        let Ok(id) = i64::try_from(replay.0) else { return Ok(None) };
        self.connection.first(&format!("{VIEW} WHERE id = ?1"), [id], |row| {
            let target: Option<String> = row.get(5)?;
            Ok(StoredReplay {
                view: view(row)?,
                target: target.map(|text| codec::read_target(&text)).transpose()?,
                selection: row.get(18)?,
                gathered: row.get(19)?,
                audit: row.get(20)?,
            })
        })
    }

    fn shown(&self, replay: i64) -> SqlResult<ReplayView> {
        let stored = self.stored(ReplayId(replay.cast_unsigned()))?;
        Ok(stored.ok_or(SqlFault::unreadable("a replay"))?.view)
    }

    pub(super) fn begin_replay(&mut self, new: &NewReplay) -> CommandResult<ReplayView> {
        let NewReplay { selection, what, pace, origin, to, note } = new;
        for letter in selection.letters.iter().flatten() {
            let refusal = match self.free_letter(*letter)? {
                Ok(letter) => self.still_damaged(&letter)?.map(CommandRefusal::Damaged),
                Err(refusal) => Some(refusal),
            };
            if let Some(refusal) = refusal {
                return Ok(Err(refusal));
            }
        }
        let last = "SELECT id FROM replays ORDER BY id DESC LIMIT 1";
        let id = self.connection.find(last, [])?.unwrap_or(0_i64) + 1;
        let gathered = self.gather(id, selection, to.as_deref(), i64::MIN)?;
        if gathered.letters == 0 && gathered.upto == ALL_GATHERED {
            let GatherStep { claimed, poison, damaged, .. } = gathered;
            let is_free = claimed.is_empty() && poison == 0;
            return Ok(Err(match damaged.filter(|_| is_free) {
                Some(letter) => CommandRefusal::Damaged(letter),
                None => CommandRefusal::NothingMatches { claimed, poison },
            }));
        }
        let wave = ReplayWave::before_first(pace.manner);
        let letters = gathered.letters;
        let audit = self.record(&AuditAct { verb: "replay", what, letters, note: note.as_deref() })?;
        self.connection.run(
            INSERT,
            (
                id,
                codec::state(gathered.next_state()),
                what,
                note,
                codec::selection(selection),
                codec::pace(pace),
                codec::origin(*origin),
                to.as_deref().map(codec::target),
                codec::wave(wave),
                letters.cast_signed(),
                gathered.claimed_sum(),
                nanos(self.now),
                gathered.upto,
                audit,
            ),
        )?;
        self.shown(id).map(Ok)
    }

    pub(super) fn gather_more(&mut self, stored: &StoredReplay) -> SqlResult<()> {
        let id = stored.view.id.0.cast_signed();
        let selection = codec::read_selection(&stored.selection)?;
        let gathered = self.gather(id, &selection, stored.target.as_ref(), stored.gathered)?;
        let state = codec::state(gathered.next_state());
        let letters = gathered.letters.cast_signed();
        let values = (id, state, letters, gathered.claimed_sum(), gathered.upto, nanos(self.now));
        self.connection.run(GATHERED, values)?;
        self.add_to_record(stored.audit, gathered.letters)?;
        Ok(())
    }

    /// Examines letters after a number and claims the free ones.
    fn gather(
        &self,
        replay: i64,
        selection: &Selection,
        to: Option<&Redirect>,
        after: i64,
    ) -> SqlResult<GatherStep> {
        let looked = select_letters(self.connection, selection, after, REPLAY_GATHER_MAX)?;
        let open = open(self.connection)?;
        let upto = looked.upto.unwrap_or(ALL_GATHERED);
        let mut gathered = GatherStep { poison: looked.poison, upto, ..GatherStep::default() };
        for letter in looked.found {
            if let Some(other) = letter.claim.filter(|claim| open.contains(claim)) {
                *gathered.claimed.entry(ReplayId(other.cast_unsigned())).or_default() += 1;
                continue;
            }
            if let Some(damaged) = self.still_damaged(&letter)? {
                gathered.damaged = Some(damaged);
                continue;
            }
            let (lane, turn) = self.lane_at(letter.delivery, to)?;
            self.connection
                .run("UPDATE letters SET claim = ?2 WHERE number = ?1", [letter.number, replay])?;
            let state = self.state_in_replay(replay, lane, turn)?;
            let values = (replay, letter.delivery, lane, state, turn);
            self.connection.run(INSERT_LETTER, values)?;
            gathered.letters += 1;
        }
        Ok(gathered)
    }

    /// Only the first unsent letter of a session may be sent.
    fn state_in_replay(&self, replay: i64, lane: Option<i64>, turn: i64) -> SqlResult<i64> {
        let Some(lane) = lane else { return Ok(letter_state::NEXT) };
        match self.first_of_lane(replay, lane)? {
            Some((_, first)) if first < turn => Ok(letter_state::WAITS),
            Some((delivery, _)) => {
                self.mark(replay, delivery, letter_state::WAITS)?;
                Ok(letter_state::NEXT)
            }
            None => Ok(letter_state::NEXT),
        }
    }

    fn first_of_lane(&self, replay: i64, lane: i64) -> SqlResult<Option<(i64, i64)>> {
        self.connection.first(FIRST_OF_LANE, [replay, lane], |row| Ok(row.try_into()?))
    }

    pub(super) fn mark(&self, replay: i64, delivery: i64, letter: i64) -> SqlResult<()> {
        let update = "UPDATE replay_letters SET state = ?3 WHERE replay = ?1 AND delivery = ?2";
        self.connection.run(update, [replay, delivery, letter])
    }

    /// Lets the next letter of a session be sent or skipped.
    pub(super) fn next_of_lane(&self, replay: i64, lane: Option<i64>) -> SqlResult<()> {
        let Some(lane) = lane else { return Ok(()) };
        match self.first_of_lane(replay, lane)? {
            Some((delivery, _)) => self.mark(replay, delivery, letter_state::NEXT),
            None => Ok(()),
        }
    }

    /// Its lane and turn, in the queue it goes to.
    fn lane_at(&self, delivery: i64, to: Option<&Redirect>) -> SqlResult<(Option<i64>, i64)> {
        let select = "SELECT e.id, e.source, e.type, e.attributes, x'', d.lane, coalesce(d.turn, d.seq)
            FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";
        let found = self.connection.first(select, [delivery], |row| {
            let lane = match to {
                None => row.get(5)?,
                Some(Redirect { queue, order }) => {
                    let lane = derive::lane_in(self.state.meta.seed, queue, *order, &rows::event(row)?);
                    lane.map(u64::cast_signed)
                }
            };
            Ok((lane, row.get(6)?))
        })?;
        found.ok_or(SqlFault::unreadable("the delivery of a letter"))
    }

    /// Refuses a letter that an open replay has claimed.
    pub(super) fn free_letter(&self, id: DeliveryId) -> CommandResult<LetterRef> {
        let Some(letter) = select::find(self.connection, id)? else {
            return Ok(Err(CommandRefusal::NoSuchLetter(id)));
        };
        let open = open(self.connection)?;
        Ok(match letter.claim.filter(|claim| open.contains(claim)) {
            Some(claim) => {
                Err(CommandRefusal::Claimed { letter: id, replay: ReplayId(claim.cast_unsigned()) })
            }
            None => Ok(letter),
        })
    }

    /// For a letter that died of damage: its id if the event is still damaged.
    fn still_damaged(&self, letter: &LetterRef) -> SqlResult<Option<DeliveryId>> {
        let select = "SELECT 1 FROM kinds WHERE id = ?1 AND code = ?2";
        let is_suspect = self.connection.has(select, (letter.kind, codes::DAMAGED))?;
        if is_suspect { self.damaged(letter.delivery) } else { Ok(None) }
    }

    /// Its id if the event differs from what was stored.
    pub(super) fn damaged(&self, delivery: i64) -> SqlResult<Option<DeliveryId>> {
        let select = "SELECT e.id, e.source, e.type, e.attributes, e.data, e.content, d.content
            FROM deliveries d CROSS JOIN events e ON e.seq = d.event WHERE d.seq = ?1";
        let found = self.connection.first(select, [delivery], |row| {
            Ok((rows::checked_event(row, 5)?.1, row.get::<_, i64>(6)?.cast_unsigned()))
        })?;
        let (integrity, content) = found.ok_or(SqlFault::unreadable("the event of a letter"))?;
        Ok((integrity == Integrity::Damaged).then_some(DeliveryId::new(seq(delivery), content)))
    }

    pub(super) fn change_replay(&self, replay: ReplayId, act: ReplayAct) -> CommandResult<ReplayView> {
        let Some(StoredReplay { view, gathered, .. }) = self.stored(replay)? else {
            return Ok(Err(CommandRefusal::NoSuchReplay(replay)));
        };
        let listing = if gathered == ALL_GATHERED { Listing::Whole } else { Listing::InPart };
        let Some((next, wave)) = view.job().after(act, listing) else {
            return Ok(Err(CommandRefusal::NotPossible { replay, state: view.state }));
        };
        let (verb, resumes) = match act {
            ReplayAct::Pause => ("replay-pause", false),
            ReplayAct::Resume => ("replay-resume", true),
            ReplayAct::Cancel => ("replay-cancel", false),
        };
        let id = replay.0.cast_signed();
        let values = (id, codec::state(next), nanos(self.now), codec::wave(wave), resumes);
        self.connection.run(CHANGE, values)?;
        self.record(&AuditAct { verb, what: &view.what, letters: view.tally.total, note: None })?;
        self.shown(id).map(Ok)
    }

    pub(super) fn stop(&self, stop: &ReplayStop) -> SqlResult<()> {
        let id = stop.replay.0.cast_signed();
        let select = "SELECT origin FROM replays WHERE id = ?1";
        let origin: String = self.connection.get(select, [id])?;
        let state = codec::state(codec::read_origin(&origin)?.state_when_stopped());
        let values = (id, codec::stop(stop), nanos(self.now), state);
        self.connection.run(STOP, values)
    }

    pub(super) fn count_replayed(
        &self,
        replay: i64,
        delivery: i64,
        lane: Option<i64>,
        came: ReplayedOutcome,
    ) -> SqlResult<()> {
        let (count, letter) = match came {
            ReplayedOutcome::Delivered => (COUNT_DELIVERED, letter_state::DELIVERED),
            ReplayedOutcome::Failed => {
                let insert = "INSERT OR IGNORE INTO replay_lanes SELECT ?1, ?2 WHERE ?2 IS NOT NULL";
                self.connection.run(insert, (replay, lane))?;
                (COUNT_FAILED, letter_state::FAILED)
            }
        };
        self.connection.run(count, (replay, nanos(self.now)))?;
        self.mark(replay, delivery, letter)?;
        self.next_of_lane(replay, lane)?;
        self.end_if_complete(replay)
    }

    pub(super) fn end_if_complete(&self, replay: i64) -> SqlResult<()> {
        self.connection.run(END, [replay])
    }
}

impl GatherStep {
    fn next_state(&self) -> ReplayState {
        if self.upto == ALL_GATHERED { ReplayState::Running } else { ReplayState::Gathering }
    }

    fn claimed_sum(&self) -> i64 {
        self.claimed.values().sum::<u64>().cast_signed()
    }
}

//! Counts a selection in several snapshots.
//!
//! Letters that die meanwhile are outside of the selection; one that leaves may be counted or not.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use redrive_core::engine::QueueName;
use redrive_core::hash::{Map, Set};
use redrive_core::letters::fingerprint::Fingerprint;
use redrive_core::letters::replay::ReplayId;

use super::find::{self, LetterRow, ScanOrder, Search};
use super::kinds::KindRow;
use super::letters::NAMED_PER_LOOK;
use super::{ReadView, SqliteReader, replays};
use crate::store::StoreError;
use crate::store::letter::{Poison, Selection, SelectionSurvey};
use crate::store::sqlite::fault::{SqlFault, SqlResult};
use crate::store::sqlite::replay;
use crate::store::sqlite::sql::Sql;

/// More than for a list, because a survey is not paged.
const STEPS_PER_LOOK: u32 = 50_000;
/// Distinct sessions counted, at most.
const SESSIONS_MAX: usize = 2_000_000;

const IN_ORDER: &str = "SELECT 1 FROM deliveries WHERE seq = ?1 AND lane IS NOT NULL";

struct SurveyTally<'a> {
    selection: &'a Selection,
    kinds: Map<i64, KindTally>,
    open: BTreeSet<i64>,
    holding: Set<i64>,
    /// Queue id and session hash.
    sessions: Set<(i64, i64)>,
    survey: SelectionSurvey,
}

struct KindTally {
    fingerprint: Fingerprint,
    queue: i64,
    event_type: String,
    is_poison: bool,
    letters: u64,
}

impl KindTally {
    fn none(kind: KindRow<'_, '_>) -> SqlResult<Self> {
        Ok(Self {
            fingerprint: kind.fingerprint()?,
            queue: kind.queue()?,
            event_type: kind.event_type()?.to_owned(),
            is_poison: kind.is_poison()?,
            letters: 0,
        })
    }
}

pub(super) fn survey(reader: &SqliteReader, selection: &Selection) -> Result<SelectionSurvey, StoreError> {
    let filter = &selection.filter;
    // Names are resolved outside of a snapshot.
    let queues = |look: &ReadView<'_>| Ok(look.queues.clone());
    let numbers = find::numbers_until(filter, selection.died_until);
    let (search, mut count) = reader.read(|look| {
        let search = Search::new(look, filter, ScanOrder::Forth, numbers)?;
        Ok((search, SurveyTally::new(look, selection)?))
    })?;
    replays::each_held(reader, |held| {
        count.holding.insert(held.letter);
    })?;
    if let Some(ids) = &selection.letters {
        let ids: BTreeSet<_> = ids.iter().copied().collect();
        let ids: Vec<_> = ids.into_iter().collect();
        for ids in ids.chunks(NAMED_PER_LOOK) {
            reader.read(|look| {
                for id in ids {
                    if let Some(found) = search.finds(look, *id)? {
                        count.add(look, &found)?;
                    }
                }
                Ok(())
            })?;
        }
        return Ok(count.finish(&reader.read(queues)?));
    }
    search.each(reader, |look, found| count.add(look, found))?;
    Ok(count.finish(&reader.read(queues)?))
}

impl Search<'_> {
    /// Shows all matching letters, in several snapshots.
    pub(super) fn each(
        &self,
        reader: &SqliteReader,
        mut show: impl FnMut(&ReadView<'_>, &LetterRow) -> SqlResult<()>,
    ) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            after = reader.read(|look| {
                self.part(look, after, STEPS_PER_LOOK, &mut |found| {
                    show(look, &found).map(ControlFlow::Continue)
                })
            })?;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

impl<'a> SurveyTally<'a> {
    fn new(look: &ReadView<'_>, selection: &'a Selection) -> SqlResult<Self> {
        let open = replay::open(look.connection)?;
        Ok(Self {
            selection,
            kinds: Map::default(),
            open,
            holding: Set::default(),
            sessions: Set::default(),
            survey: SelectionSurvey::default(),
        })
    }

    fn add(&mut self, look: &ReadView<'_>, letter: &LetterRow) -> SqlResult<()> {
        let kind = match self.kinds.entry(letter.kind) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let kind = look.kind(letter.kind, KindTally::none)?;
                new.insert(kind.ok_or(SqlFault::unreadable("the kind of a dead letter"))?)
            }
        };
        if self.selection.poison == Poison::Left && kind.is_poison {
            self.survey.poison_left += 1;
            return Ok(());
        }
        if let Some(replay) = letter.claim.filter(|replay| self.open.contains(replay)) {
            *self.survey.claimed.entry(ReplayId(replay.cast_unsigned())).or_default() += 1;
            return Ok(());
        }
        self.survey.letters += 1;
        kind.letters += 1;
        self.survey.holding += u64::from(self.holding.contains(&letter.delivery));
        // Check the delivery only if its session is not counted yet.
        if let Some(session) = letter.session.map(|session| (kind.queue, session))
            && self.sessions.len() < SESSIONS_MAX
            && !self.sessions.contains(&session)
            && look.connection.has(IN_ORDER, [letter.delivery])?
        {
            self.sessions.insert(session);
        }
        Ok(())
    }

    /// Resolves names.
    fn finish(self, queues: &BTreeMap<i64, QueueName>) -> SelectionSurvey {
        let Self { kinds, sessions, mut survey, .. } = self;
        for KindTally { fingerprint, queue, event_type, letters, .. } in kinds.into_values() {
            let Some(queue) = queues.get(&queue).filter(|_| letters > 0) else { continue };
            *survey.by_cause.entry((fingerprint, queue.clone())).or_default() += letters;
            *survey.by_type.entry((queue.clone(), event_type)).or_default() += letters;
        }
        survey.sessions = sessions.len() as u64;
        survey
    }
}

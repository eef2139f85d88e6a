//! Imports dead letters, each once.

use redrive_core::engine::{DeadLetterInfo, SessionFollowers};
use redrive_core::ids::{DeliveryId, ServiceName};

use super::audit::AuditAct;
use super::encode::{self, place};
use super::fault::SqlResult;
use super::letters::NewLetter;
use super::schema::{state, whole};
use super::sql::Sql;
use super::write::{BatchWriter, NewDelivery};
use crate::store::derive;
use crate::store::letter::{ImportCounts, ImportedLetter};

/// By key and service, or by key alone as earlier releases stored it. The service of a letter replayed since is
/// unknown.
pub(super) const KNOWN: &str = "SELECT 1 FROM imported i CROSS JOIN deliveries d ON d.seq = i.delivery
    CROSS JOIN queues q ON q.id = d.queue
    WHERE i.key IN (?1, ?2) AND d.state <> 7 AND (i.key = ?1 OR q.service = ?3 OR d.replays IS NOT NULL)";

impl BatchWriter<'_> {
    pub(super) fn import(&mut self, letters: &[ImportedLetter]) -> SqlResult<ImportCounts> {
        let (mut new, mut known) = (0, 0);
        for letter in letters {
            if self.is_known(&letter.queue.service, &letter.key)? {
                known += 1;
                continue;
            }
            new += 1;
            self.import_one(letter)?;
        }
        if new > 0 {
            let what = "imported letters";
            self.record(&AuditAct { verb: "import", what, letters: new, note: None })?;
        }
        Ok(ImportCounts { new, known })
    }

    /// Imported before, or exported from this store; purged letters do not count.
    fn is_known(&self, service: &ServiceName, key: &str) -> SqlResult<bool> {
        let values = (derive::import_key(service, key), key, service.as_str());
        if self.connection.has(KNOWN, values)? {
            return Ok(true);
        }
        let Some(id) = DeliveryId::parse(key) else { return Ok(false) };
        let own = "SELECT 1 FROM deliveries WHERE seq = ?1 AND content = ?2 AND state <> 7";
        let own_key = (id.seq().get().cast_signed(), id.content().cast_signed());
        self.connection.has(own, own_key)
    }

    fn import_one(&mut self, letter: &ImportedLetter) -> SqlResult<()> {
        let ImportedLetter { key, queue: name, subscription, order, event, died_at, .. } = letter;
        // Can be found by its id, but does not make a sent event a duplicate.
        let event_seq = self.write_event(event, derive::content_hash(event), 1, whole::IMPORTED)?;
        let queue = self.state.names.queue_for(self.connection, name)?;
        let subscription = self.state.names.subscription(self.connection, subscription)?;
        self.state.names.counts(queue).dead += 1;
        let lane = derive::lane_in(self.state.meta.seed, name, *order, event).map(u64::cast_signed);
        for story in &letter.stories {
            *self.book_uses.entry(story.book).or_default() += 1;
        }
        let (last, earlier) = match letter.stories.split_last() {
            Some((last, earlier)) => (Some(encode::story(last)), earlier),
            None => (None, &[][..]),
        };
        let new = NewDelivery {
            attempts: letter.attempts,
            story: last,
            replays: (letter.replays > 0).then_some(letter.replays),
            ..NewDelivery::new(event_seq, queue, subscription, lane, state::DEAD, *died_at)
        };
        let delivery = self.insert_delivery(event, &new)?.seq();
        for story in earlier {
            self.append_attempt(delivery, &encode::story(story))?;
        }
        let death = DeadLetterInfo { followers: SessionFollowers::Continue, ..letter.death.clone() };
        self.add_imported_letter(&NewLetter {
            delivery: place(delivery),
            queue: self.state.names.queue(queue).id,
            subscription,
            event,
            death: &death,
            died_at: *died_at,
        })?;
        let key = derive::import_key(&name.service, key);
        self.connection.run("INSERT OR REPLACE INTO imported VALUES (?1, ?2)", (key, place(delivery)))
    }
}

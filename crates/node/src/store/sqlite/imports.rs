//! Takes dead letters from elsewhere, each once.

use redrive_core::engine::{Death, Followers, QueueName};
use redrive_core::event::idempotency;
use redrive_core::ids::{DeliveryId, ServiceName};

use super::audit::Act;
use super::encode::{self, nanos, place};
use super::fault::Fault;
use super::letters::{Body, Grave};
use super::schema::{state, whole};
use super::write::{Keeping, Work};
use crate::store::derive;
use crate::store::letter::{ImportCounts, ImportedLetter};

const INSERT: &str = "INSERT INTO deliveries VALUES
    (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL, ?10, 0, NULL, NULL, ?11, NULL, ?12, NULL, NULL)";

/// By the key with its service, or by the key alone as earlier releases remembered it; of a letter that was replayed
/// since, the service of then is not known any more.
pub(super) const KNOWN: &str = "SELECT 1 FROM imported i CROSS JOIN deliveries d ON d.seq = i.delivery
    CROSS JOIN queues q ON q.id = d.queue
    WHERE i.key IN (?1, ?2) AND d.state <> 7 AND (i.key = ?1 OR q.service = ?3 OR d.replays IS NOT NULL)";

impl Work<'_> {
    pub(super) fn import(&mut self, letters: &[ImportedLetter]) -> Result<ImportCounts, Fault> {
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
            let what = "letters from elsewhere";
            self.record(&Act { verb: "import", what, letters: new, note: None })?;
        }
        Ok(ImportCounts { new, known })
    }

    /// Whether it came before, or is one of our own that came back; what was purged is not known any more.
    fn is_known(&self, service: &ServiceName, key: &str) -> Result<bool, Fault> {
        let values = (derive::import_key(service, key), key, service.as_str());
        if self.connection.prepare_cached(KNOWN)?.exists(values)? {
            return Ok(true);
        }
        let Some(id) = DeliveryId::parse(key) else { return Ok(false) };
        let own = "SELECT 1 FROM deliveries WHERE seq = ?1 AND content = ?2 AND state <> 7";
        let own_key = (id.seq().get().cast_signed(), id.content().cast_signed());
        Ok(self.connection.prepare_cached(own)?.exists(own_key)?)
    }

    fn import_one(&mut self, letter: &ImportedLetter) -> Result<(), Fault> {
        let ImportedLetter { key, queue: name, subscription, order, event, died_at, .. } = letter;
        let event_seq = self.state.meta.last.next();
        // It is found by its id, and does not count when an event of that id is sent.
        let hash = self.state.dedup.hash(event.dedup_key());
        self.state.dedup.add(hash, event_seq);
        let content = derive::content_hash(event);
        let keeping = Keeping { seq: event_seq, content, deliveries: 1, whole: whole::IMPORTED };
        self.keep_event(&keeping, event)?;
        let seq = event_seq.next();
        self.state.meta.last = seq;
        let QueueName { service, channel } = &**name;
        let id = idempotency::delivery_id(seq, event.dedup_key(), service, channel.as_ref());
        let queue = self.state.names.queue_for(self.connection, name)?;
        let subscription = self.state.names.subscription(self.connection, subscription)?;
        self.state.names.counts(queue).dead += 1;
        let queue = self.state.names.queue(queue).id;
        let lane = derive::lane_in(self.state.meta.seed, name, *order, event);
        for story in &letter.stories {
            *self.told.entry(story.book).or_default() += 1;
        }
        let (last, earlier) = match letter.stories.split_last() {
            Some((last, earlier)) => (Some(encode::story(last)), earlier),
            None => (None, &[][..]),
        };
        for story in earlier {
            self.tell(seq, &encode::story(story))?;
        }
        self.connection.prepare_cached(INSERT)?.execute((
            place(seq),
            place(event_seq),
            queue,
            subscription,
            id.content().cast_signed(),
            (event.data.len() as u64).cast_signed(),
            lane.map(u64::cast_signed),
            state::DEAD,
            letter.attempts,
            nanos(*died_at),
            last,
            (letter.replays > 0).then_some(letter.replays),
        ))?;
        let death = Death { followers: Followers::GoOn, ..letter.death.clone() };
        let body = Body { delivery: place(seq), queue, subscription };
        self.bury_in_the_past(&Grave::new(self.state.meta.seed, body, event, &death, *died_at))?;
        let insert = "INSERT OR REPLACE INTO imported VALUES (?1, ?2)";
        self.connection.prepare_cached(insert)?.execute((derive::import_key(service, key), place(seq)))?;
        Ok(())
    }
}

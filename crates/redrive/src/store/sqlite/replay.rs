//! Replays as rows: what became of their letters, where they stand, and what people do to them.
//!
//! Invariant: what a replay counts is written in the transaction that sends or settles the letter.

use redrive_core::replay::Stop;

use super::encode::nanos;
use super::fault::Fault;
use super::replay_codec;
use super::settle::Came;
use super::write::Work;

const STOP: &str = "UPDATE replays SET state = 3, stop = ?2, changed_at = ?3 WHERE id = ?1 AND state = 1";
const COUNT_DELIVERED: &str = "UPDATE replays SET delivered = delivered + 1, changed_at = ?2 WHERE id = ?1";
const COUNT_FAILED: &str = "UPDATE replays SET failed = failed + 1, changed_at = ?2 WHERE id = ?1";
/// Every letter is answered for.
const END: &str = "UPDATE replays SET state = 5, changed_at = ?2
    WHERE id = ?1 AND state = 1 AND total = sent + left_alone AND sent = delivered + failed";

impl Work<'_> {
    /// A replay has halted itself.
    pub(super) fn stop(&self, stop: &Stop) -> Result<(), Fault> {
        let values = (stop.replay.0.cast_signed(), replay_codec::stop(stop), nanos(self.now));
        self.connection.prepare_cached(STOP)?.execute(values)?;
        Ok(())
    }

    /// A letter of a replay has arrived, or has failed again.
    pub(super) fn came_of(
        &self,
        replay: i64,
        delivery: i64,
        lane: Option<i64>,
        came: Came,
    ) -> Result<(), Fault> {
        let (count, letter, of_lane) = match came {
            Came::Delivered => {
                (COUNT_DELIVERED, 2, "DELETE FROM replay_lanes WHERE replay = ?1 AND lane = ?2")
            }
            Came::Failed => (COUNT_FAILED, 3, "INSERT OR REPLACE INTO replay_lanes VALUES (?1, ?2, 1)"),
        };
        self.connection.prepare_cached(count)?.execute((replay, nanos(self.now)))?;
        let update = "UPDATE replay_letters SET state = ?3 WHERE replay = ?1 AND delivery = ?2";
        self.connection.prepare_cached(update)?.execute((replay, delivery, letter))?;
        if let Some(lane) = lane {
            self.connection.prepare_cached(of_lane)?.execute((replay, lane))?;
        }
        self.end_if_complete(replay)
    }

    pub(super) fn end_if_complete(&self, replay: i64) -> Result<(), Fault> {
        self.connection.prepare_cached(END)?.execute((replay, nanos(self.now)))?;
        Ok(())
    }
}

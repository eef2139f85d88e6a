//! Tables, migrations, and recognition of our files.
//!
//! Invariants: a released step of [`STEPS`] never changes; a newer or foreign file is refused and left as it is.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::{SqlFault, SqlResult};
use super::letters;
use crate::store::StoreError;

/// `RDRV` in ASCII.
const APPLICATION_ID: i32 = 0x5244_5256;

/// A file's format is the number of steps it has seen.
const STEPS: [MigrationStep; 5] = [
    MigrationStep::of(FIRST),
    MigrationStep { sql: LETTERS, convert: letters::migrate_letters },
    MigrationStep::of(ACCESS),
    MigrationStep::of(PATIENT),
    MigrationStep::of(COPIES),
];
const FORMAT: u32 = 5;
const _: () = assert!(STEPS.len() == FORMAT as usize);

#[derive(Clone, Copy)]
struct MigrationStep {
    sql: &'static str,
    /// What SQL alone cannot migrate.
    convert: fn(&Connection) -> SqlResult<()>,
}

impl MigrationStep {
    const fn of(sql: &'static str) -> Self {
        Self { sql, convert: |_| Ok(()) }
    }
}

/// Values of column `state`; queries and indexes name these numbers.
pub(super) mod state {
    /// Dead and holding its session: stays in the lane, unlike other dead ones.
    pub(in super::super) const HOLDING: i64 = -1;
    pub(in super::super) const READY: i64 = 0;
    pub(in super::super) const DUE: i64 = 1;
    pub(in super::super) const BEHIND: i64 = 2;
    pub(in super::super) const DELIVERED: i64 = 3;
    pub(in super::super) const DEAD: i64 = 4;
    pub(in super::super) const SKIPPED: i64 = 5;
    pub(in super::super) const SUPERSEDED: i64 = 6;
    pub(in super::super) const PURGED: i64 = 7;
}

/// Values of column `whole`; queries and indexes name these numbers.
pub(super) mod whole {
    pub(in super::super) const ID_ALONE: i64 = 0;
    pub(in super::super) const SENT: i64 = 1;
    /// Of an imported letter: never makes a sent event a duplicate.
    pub(in super::super) const IMPORTED: i64 = 2;
}

/// Keys on the hot path only grow, so writes append to tables and indexes. The exception, `lanes`, holds only what
/// waits in a session.
const FIRST: &str = "
-- One row, written with every batch.
CREATE TABLE meta (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    seed        INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    events      INTEGER NOT NULL,
    unrouted    INTEGER NOT NULL,
    running     INTEGER NOT NULL,
    alive_at    INTEGER,
    ids_checked INTEGER NOT NULL,
    books_turn  INTEGER NOT NULL
) STRICT;

-- Small lists as JSON, by name.
CREATE TABLE memos (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE queues (
    id            INTEGER PRIMARY KEY,
    service       TEXT NOT NULL,
    -- Empty for none.
    channel       TEXT NOT NULL,
    waiting       INTEGER NOT NULL,
    waiting_bytes INTEGER NOT NULL,
    behind        INTEGER NOT NULL,
    delivered     INTEGER NOT NULL,
    dead          INTEGER NOT NULL,
    UNIQUE (service, channel)
) STRICT;

CREATE TABLE subscriptions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE events (
    seq            INTEGER PRIMARY KEY,
    received_at    INTEGER NOT NULL,
    content        INTEGER NOT NULL,
    -- Null where they follow the event at once.
    first_delivery INTEGER,
    deliveries     INTEGER NOT NULL,
    -- 0 if only its id is remembered.
    whole          INTEGER NOT NULL,
    id             TEXT NOT NULL,
    source         TEXT NOT NULL,
    type           TEXT NOT NULL,
    attributes     BLOB NOT NULL,
    data           BLOB NOT NULL
) STRICT;
CREATE INDEX unrouted ON events (deliveries) WHERE deliveries = 0 AND whole = 1;

CREATE TABLE deliveries (
    seq            INTEGER PRIMARY KEY,
    event          INTEGER NOT NULL,
    queue          INTEGER NOT NULL,
    subscription   INTEGER NOT NULL,
    content        INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    lane           INTEGER,
    -- 0 ready, 1 due, 2 behind, 3 delivered, 4 dead.
    state          INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    due_at         INTEGER,
    written_at     INTEGER NOT NULL,
    start_recorded INTEGER NOT NULL,
    book           INTEGER,
    history        TEXT,
    -- Of the attempt that ended it; those before stand in `attempts`.
    story          BLOB
) STRICT;
CREATE INDEX ready ON deliveries (queue) WHERE state = 0;
CREATE INDEX due ON deliveries (queue, due_at) WHERE state = 1;
CREATE INDEX lanes ON deliveries (lane) WHERE lane IS NOT NULL AND state < 3;
CREATE INDEX dead ON deliveries (queue) WHERE state = 4;

CREATE TABLE attempts (
    delivery INTEGER NOT NULL,
    n        INTEGER NOT NULL,
    story    BLOB NOT NULL,
    PRIMARY KEY (delivery, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE deaths (
    delivery     INTEGER PRIMARY KEY,
    category     TEXT NOT NULL,
    code         TEXT NOT NULL,
    failure_code TEXT NOT NULL,
    tier         TEXT NOT NULL,
    message      TEXT NOT NULL,
    fingerprint  INTEGER NOT NULL
) STRICT;

CREATE TABLE pauses (service TEXT PRIMARY KEY, since INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE breakers (dependency TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE books (
    hash    INTEGER PRIMARY KEY,
    turn    INTEGER NOT NULL,
    stories INTEGER NOT NULL,
    -- Null if stories name it that nobody has shown.
    text    TEXT
) STRICT;

-- What ended in a batch, so that it is found again when it may be deleted.
CREATE TABLE ending (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, places BLOB NOT NULL) STRICT;

-- The hashes of the events of a batch, until they are sealed in a run.
CREATE TABLE recent (first INTEGER PRIMARY KEY, hashes BLOB NOT NULL) STRICT;
CREATE TABLE runs (
    run    INTEGER PRIMARY KEY,
    -- All events after the run before, up to this place.
    upto   INTEGER NOT NULL,
    -- 0 in the making, 1 sealed, 2 going.
    stage  INTEGER NOT NULL,
    filter BLOB
) STRICT;
CREATE TABLE dedup (
    run  INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    seq  INTEGER NOT NULL,
    PRIMARY KEY (run, hash, seq)
) STRICT, WITHOUT ROWID;
";

/// Dead letters as rows with indexes, replays, audit log.
const LETTERS: &str = "
ALTER TABLE queues ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;

-- The replay that sends it again.
ALTER TABLE deliveries ADD COLUMN replay INTEGER;
-- How often it has been replayed; null is never.
ALTER TABLE deliveries ADD COLUMN replays INTEGER;
-- Its place in the order of its session, if that is not its own.
ALTER TABLE deliveries ADD COLUMN turn INTEGER;
-- The event that took its place if it is superseded, else the event whose letter it took the place of.
ALTER TABLE deliveries ADD COLUMN linked INTEGER;

DROP INDEX lanes;
-- With the state, so that those behind are counted without a look at each.
CREATE INDEX lanes ON deliveries (lane, coalesce(turn, seq), state) WHERE lane IS NOT NULL AND state < 3;
CREATE INDEX holding ON deliveries (queue) WHERE state = -1;

-- Letters that agree in all that is counted.
CREATE TABLE kinds (
    id             INTEGER PRIMARY KEY,
    fingerprint    INTEGER NOT NULL,
    queue          INTEGER NOT NULL,
    subscription   INTEGER NOT NULL,
    event_type     TEXT NOT NULL,
    category       TEXT NOT NULL,
    code           TEXT NOT NULL,
    failure_code   TEXT NOT NULL,
    tier           TEXT NOT NULL,
    name           TEXT NOT NULL,
    consumer_group TEXT NOT NULL,
    count          INTEGER NOT NULL,
    first_at       INTEGER NOT NULL,
    last_at        INTEGER NOT NULL,
    UNIQUE (fingerprint, queue, subscription, event_type, category, code, failure_code, tier, name, consumer_group)
) STRICT;

CREATE TABLE letters (
    -- When it died, in nanoseconds, or a little more: no two are alike.
    number      INTEGER PRIMARY KEY,
    delivery    INTEGER NOT NULL UNIQUE,
    kind        INTEGER NOT NULL,
    died_at     INTEGER NOT NULL,
    -- Hashes under the store's seed, null for none.
    session     INTEGER,
    correlation INTEGER,
    -- The replay that wants to send it; means something only while that is open.
    claim       INTEGER,
    message     TEXT NOT NULL
) STRICT;
CREATE INDEX letters_of_kind ON letters (kind);
CREATE INDEX letters_of_session ON letters (session) WHERE session IS NOT NULL;
CREATE INDEX letters_of_correlation ON letters (correlation) WHERE correlation IS NOT NULL;

-- Deaths in spans of five minutes.
CREATE TABLE trend (
    kind   INTEGER NOT NULL,
    span   INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    PRIMARY KEY (kind, span)
) STRICT, WITHOUT ROWID;

-- Sessions that a dead letter holds, even while it is replayed.
CREATE TABLE held (
    lane   INTEGER PRIMARY KEY,
    letter INTEGER NOT NULL,
    since  INTEGER NOT NULL,
    behind INTEGER NOT NULL
) STRICT;

CREATE TABLE replays (
    id                INTEGER PRIMARY KEY,
    -- 0 gathering, 1 running, 2 paused, 3 stopped, 4 cancelled, 5 done.
    state             INTEGER NOT NULL,
    what              TEXT NOT NULL,
    note              TEXT,
    -- As JSON: which letters, how fast, who began it, where they go, and why it stopped.
    selection         TEXT NOT NULL,
    pace              TEXT NOT NULL,
    origin            TEXT NOT NULL,
    target            TEXT,
    stop              TEXT,
    -- 0 none, 1 first, 2 second, 3 rest.
    wave              INTEGER NOT NULL,
    total             INTEGER NOT NULL,
    sent              INTEGER NOT NULL,
    delivered         INTEGER NOT NULL,
    failed            INTEGER NOT NULL,
    left_alone        INTEGER NOT NULL,
    claimed_by_others INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    changed_at        INTEGER NOT NULL,
    -- The number of the last letter that was looked at while gathering; the largest number when all were.
    gathered          INTEGER NOT NULL,
    -- The record that counts its letters.
    audit             INTEGER NOT NULL
) STRICT;
CREATE INDEX open_replays ON replays (state) WHERE state < 4;

CREATE TABLE replay_letters (
    replay      INTEGER NOT NULL,
    delivery    INTEGER NOT NULL,
    lane        INTEGER,
    -- 0 may be sent, 1 sent, 2 delivered, 3 failed, 4 left alone, 5 waits for those of its session before it.
    state       INTEGER NOT NULL,
    -- Its place in the order of its session; what took the place of another has that one's.
    turn        INTEGER NOT NULL,
    PRIMARY KEY (replay, delivery)
) STRICT, WITHOUT ROWID;
-- Of a session no more than one may be sent, and none while one of it is on its way: whatever is found here
-- goes, or is left alone, and is never looked at again.
CREATE INDEX replay_next ON replay_letters (replay, turn) WHERE state = 0;
CREATE INDEX replay_sessions ON replay_letters (replay, lane, turn) WHERE lane IS NOT NULL AND state IN (0, 5);
-- Sessions of which a letter has failed: the rest of them is left alone.
CREATE TABLE replay_lanes (
    replay INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    PRIMARY KEY (replay, lane)
) STRICT, WITHOUT ROWID;

-- Letters from elsewhere, by what they were known as there.
CREATE TABLE imported (key TEXT PRIMARY KEY, delivery INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX imported_deliveries ON imported (delivery);

CREATE TABLE audit (
    number  INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    act     TEXT NOT NULL,
    what    TEXT NOT NULL,
    letters INTEGER NOT NULL,
    note    TEXT
) STRICT;
CREATE INDEX audit_retention ON audit (what, at) WHERE act = 'retention';
";

/// API keys, refused bodies, actors in the audit log.
const ACCESS: &str = "
ALTER TABLE audit ADD COLUMN done_by TEXT;

CREATE TABLE keys (
    -- In the order in which they were made.
    number INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    -- As JSON.
    record TEXT NOT NULL
) STRICT;

CREATE TABLE refused (
    number     INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    source     TEXT NOT NULL,
    reason     TEXT NOT NULL,
    -- As JSON.
    headers    TEXT NOT NULL,
    -- How large the body was, and what is kept of all this.
    body_bytes INTEGER NOT NULL,
    kept_bytes INTEGER NOT NULL,
    body       BLOB NOT NULL
) STRICT;
CREATE INDEX refused_sizes ON refused (number, kept_bytes);
";

/// Finds the oldest due or blocked delivery. Ready ones have an index; those delivered at once never enter this
/// one.
const PATIENT: &str = "
CREATE INDEX patient ON deliveries (queue) WHERE state IN (1, 2);
";

/// Tells imported events from sent ones, and adds deduplication keys of deliveries.
const COPIES: &str = "
UPDATE events SET whole = 2 WHERE whole = 1 AND seq IN
    (SELECT d.event FROM imported i CROSS JOIN deliveries d ON d.seq = i.delivery);

-- What deliveries of rules with a key of their own are known by.
CREATE TABLE delivery_keys (
    key   BLOB PRIMARY KEY,
    event INTEGER NOT NULL,
    -- Until when it is known if the event is kept no longer.
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_keys_ending ON delivery_keys (until);
";

/// Opens for writing; creates or migrates the file.
pub(super) fn open(path: &Path, seed: u64) -> Result<Connection, StoreError> {
    let fail = |fault: rusqlite::Error| SqlFault::from(fault).not_opened(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    check(&connection, path, FORMAT)?;
    configure(&connection).map_err(fail)?;
    migrate(&connection, &STEPS).map_err(|fault| fault.not_opened(path))?;
    let first = "INSERT OR IGNORE INTO meta VALUES (1, ?1, 0, 0, 0, 0, NULL, 0, 0)";
    connection.execute(first, [seed.cast_signed()]).map_err(fail)?;
    Ok(connection)
}

/// Opens for reading beside the writer.
pub(super) fn open_to_read(path: &Path) -> Result<Connection, StoreError> {
    let fail = |fault: rusqlite::Error| SqlFault::from(fault).not_opened(path);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(super::BUSY_MAX).map_err(fail)?;
    plan_once(&connection).map_err(fail)?;
    let version = check(&connection, path, FORMAT)?;
    if version < FORMAT {
        let reason = format!("it has format {version}; start `redrive serve` on it to migrate it");
        return Err(StoreError::NotOpened { path: path.to_owned(), reason });
    }
    Ok(connection)
}

/// Refuses a foreign file or a newer format; returns the format.
fn check(connection: &Connection, path: &Path, known: u32) -> Result<u32, StoreError> {
    let fail = |fault: rusqlite::Error| SqlFault::from(fault).not_opened(path);
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(fail)?;
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fail)?;
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: u32 = connection.query_row(tables, [], |row| row.get(0)).map_err(fail)?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if application != APPLICATION_ID && !is_new {
        let reason = "it is a database of another application, not one of redrive's".to_owned();
        return Err(StoreError::Damaged { what: path.display().to_string(), reason });
    }
    if found > known {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known });
    }
    Ok(found)
}

/// Large enough to fit events of 1 KiB well, small enough that a batch of one event writes little more.
pub(super) const PAGE_BYTES: u32 = 8_192;
/// Page cache of the writer.
const CACHE_KIB: i32 = 32 * 1024;

/// Keeps plans independent of bound values: otherwise SQLite plans again for every use, which costs more than the
/// query.
fn plan_once(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn configure(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.busy_timeout(super::BUSY_MAX)?;
    plan_once(connection)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Takes effect on new files only.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "foreign_keys", false)
}

fn migrate(connection: &Connection, steps: &[MigrationStep]) -> SqlResult<()> {
    let seen: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, step) in (1_u32..).zip(steps).skip_while(|(number, _)| *number <= seen) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(step.sql)?;
        (step.convert)(&transaction)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn made(steps: &[MigrationStep]) -> Connection {
        let connection = Connection::open_in_memory().expect("it opens");
        migrate(&connection, steps).expect("it migrates");
        connection
    }

    fn format(connection: &Connection) -> u32 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it has one")
    }

    const OLD: [MigrationStep; 1] =
        [MigrationStep::of("CREATE TABLE things (id INTEGER PRIMARY KEY); INSERT INTO things VALUES (7)")];
    const NEW: [MigrationStep; 3] = [
        OLD[0],
        MigrationStep::of("ALTER TABLE things ADD COLUMN name TEXT NOT NULL DEFAULT 'x'"),
        MigrationStep::of("UPDATE things SET name = name || id"),
    ];

    #[test]
    fn an_older_format_is_brought_up_to_date_step_by_step() {
        let connection = made(&OLD);
        assert_eq!(format(&connection), 1);
        for _ in 0..2 {
            migrate(&connection, &NEW).expect("it migrates");
            assert_eq!(format(&connection), 3);
            let name: String =
                connection.query_row("SELECT name FROM things", [], |row| row.get(0)).expect("it is there");
            assert_eq!(name, "x7", "each step once");
        }
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let connection = made(&OLD);
        let steps = [NEW[0], NEW[1], MigrationStep::of("DROP TABLE things; SELECT * FROM nothing")];
        migrate(&connection, &steps).expect_err("the last step is none");
        assert_eq!(format(&connection), 2);
        let count: u32 =
            connection.query_row("SELECT count(*) FROM things", [], |row| row.get(0)).expect("it is there");
        assert_eq!(count, 1);
    }

    #[test]
    fn what_is_not_ours_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = |name: &str, sql: &str| {
            let path = folder.path().join(name);
            Connection::open(&path).expect("it opens").execute_batch(sql).expect("it is SQL");
            path
        };
        let garbage = folder.path().join("garbage.db");
        fs::write(&garbage, "no database ".repeat(1_000)).expect("it is written");
        let ours = format!("PRAGMA application_id = {APPLICATION_ID};");
        #[rustfmt::skip]
        let cases = [
            (garbage,                                                              "file is not a database"),
            (database("theirs.db", "CREATE TABLE theirs (id)"),                    "not one of redrive's"),
            (database("other.db", "PRAGMA application_id = 7"),                    "not one of redrive's"),
            (database("versioned.db", "PRAGMA user_version = 1"),                  "not one of redrive's"),
            (database("newer.db", &format!("{ours} PRAGMA user_version = 99")),    "has format 99, but this release supports formats up to 5"),
        ];
        for (path, expected) in cases {
            let before = fs::read(&path).expect("it is there");
            for error in [open(&path, 1).expect_err("refused"), open_to_read(&path).expect_err("refused")] {
                assert!(error.to_string().contains(expected), "{}: {error}", path.display());
                let fits = matches!(error, StoreError::Damaged { .. } | StoreError::TooNew { .. });
                assert!(fits, "{error:?}");
            }
            assert_eq!(fs::read(&path).expect("it is there"), before, "{}", path.display());
        }
    }

    #[test]
    fn an_older_format_is_not_read_beside_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("old.db");
        let sql = format!("PRAGMA application_id = {APPLICATION_ID}; CREATE TABLE old (id)");
        Connection::open(&path).expect("it opens").execute_batch(&sql).expect("it is SQL");
        assert!(matches!(open_to_read(&path), Err(StoreError::NotOpened { .. })));
        assert!(matches!(open_to_read(&folder.path().join("none.db")), Err(StoreError::NotOpened { .. })));
    }
}

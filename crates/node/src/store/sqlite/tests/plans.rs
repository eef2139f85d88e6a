//! The plans of what is asked while letters are changed.

use super::plan;
use crate::store::sqlite::{
    access_store, imports, letters, purge, replay, retention, rows, schema, select, session_order, settle,
};
use rusqlite::StatementStatus;

#[test]
fn no_change_goes_through_a_table_that_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = schema::open(&folder.path().join("plans.db"), 1).expect("it opens");
    #[rustfmt::skip]
    let cases = [
        ("whether anything may start", session_order::HAS_HEAD,     "SEARCH deliveries USING INDEX lanes (lane=?)"),
        ("whether others come first",  session_order::HAS_EARLIER,  "SEARCH deliveries USING COVERING INDEX lanes (lane=? AND <expr><?)"),
        ("who comes after",            session_order::FROM_TURN,    "SEARCH deliveries USING COVERING INDEX lanes (lane=? AND <expr>>?)"),
        ("how many wait behind",       session_order::COUNT_BEHIND, "CO-ROUTINE (subquery-1); SEARCH deliveries USING COVERING INDEX lanes (lane=?); SCAN (subquery-1)"),
        ("what is to be settled",      settle::FIND_HEAD,  "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)"),
        ("what dies",                  settle::DYING,      "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("one letter less",            letters::UNCOUNT_KIND, "SEARCH kinds USING INTEGER PRIMARY KEY (rowid=?); SCALAR SUBQUERY 1; SEARCH letters USING INDEX letters_of_kind (kind=?); SCALAR SUBQUERY 2; SEARCH letters USING INDEX letters_of_kind (kind=?)"),
        ("letters of a millisecond",   letters::LATEST_BETWEEN, "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("of a delivery",              select::OF_DELIVERY, "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH l USING INDEX sqlite_autoindex_letters_1 (delivery=?)"),
        ("what a replay may send",     replay::send::NEXT,  "SEARCH replay_letters USING INDEX replay_next (replay=?)"),
        ("who is next of a session",   replay::FIRST_OF_LANE, "SEARCH replay_letters USING INDEX replay_sessions (replay=? AND lane=?)"),
        ("one that it sends",          replay::send::CLAIMED, "SEARCH letters USING INDEX sqlite_autoindex_letters_1 (delivery=?)"),
        ("a delivery for a command",   rows::DELIVERY,     "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)"),
        ("whether all is purged",      purge::ALL_PURGED,  "SCAN CONSTANT ROW; SCALAR SUBQUERY 1; SEARCH e USING INTEGER PRIMARY KEY (rowid=?); SEARCH d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("some kinds",                 retention::KINDS,   "SEARCH kinds USING INTEGER PRIMARY KEY (rowid>?)"),
        ("the oldest of a kind",       retention::OLDEST,  "SEARCH l USING INDEX letters_of_kind (kind=? AND rowid>?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 2; SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("whether a letter was imported", imports::KNOWN, "SEARCH i USING PRIMARY KEY (key=?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH q USING INTEGER PRIMARY KEY (rowid=?)"),
        ("whether a kind is over",     retention::TIRED,   "SCAN CONSTANT ROW; SCALAR SUBQUERY 1; SEARCH trend USING PRIMARY KEY (kind=? AND span<?); SCALAR SUBQUERY 2; SEARCH trend USING PRIMARY KEY (kind=? AND span>?); SCALAR SUBQUERY 3; SEARCH letters USING COVERING INDEX letters_of_kind (kind=?)"),
        ("the record of an hour",      retention::SAME_HOUR, "SEARCH audit USING COVERING INDEX audit_retention (what=? AND at>? AND at<?)"),
        ("sizes of refused bodies",    access_store::REFUSED_SIZES, "SCAN refused USING COVERING INDEX refused_sizes"),
    ];
    for (name, sql, expected) in cases {
        assert_eq!(plan(&connection, sql), expected, "{name}");
    }
}

/// Whatever is asked of a session is asked for each letter of it, so it must not depend on how many there are.
#[test]
fn a_long_session_is_asked_as_quickly_as_a_short_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = schema::open(&folder.path().join("lanes.db"), 1).expect("it opens");
    let fill = |lane: i64, count: i64, state: i64| {
        let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
            INSERT INTO deliveries SELECT ?1 * 1000000 + i, 1, 1, 1, 1, 1, ?1, ?3, 0, NULL, 1, 0, NULL, NULL, NULL,
                NULL, NULL, NULL, NULL FROM n";
        connection.execute(insert, (lane, count, state)).expect("it is SQL");
    };
    let steps = |sql: &str, lane: i64| {
        let mut statement = connection.prepare(sql).expect("it is SQL");
        let more = [2_000_000, 10];
        let values = [&[lane], &more[..statement.parameter_count() - 1]].concat();
        let mut rows = statement.query(rusqlite::params_from_iter(values)).expect("it runs");
        while rows.next().expect("it runs").is_some() {}
        drop(rows);
        statement.get_status(StatementStatus::VmStep)
    };
    for state in [-1, 2] {
        let (short, long) = (20 + state, 30 + state);
        fill(short, 20, state);
        fill(long, 5_000, state);
        for sql in [
            session_order::HEAD_OF_LANE,
            session_order::HAS_HEAD,
            session_order::HAS_EARLIER,
            session_order::FROM_TURN,
        ] {
            assert_eq!(steps(sql, short), steps(sql, long), "state {state}: {sql}");
        }
    }
}

/// A statement whose plan depends on what is bound is made anew whenever it comes from the cache.
#[test]
fn no_statement_is_planned_anew_for_each_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("uses.db");
    let writes = schema::open(&path, 1).expect("it opens");
    let reads = schema::open_to_read(&path).expect("it opens");
    let statements = [
        rows::WAITING,
        rows::READY_PAGE,
        rows::DUE_PAGE,
        session_order::HEAD_OF_LANE,
        session_order::HAS_HEAD,
    ];
    let more =
        [settle::FIND_HEAD, settle::DYING, letters::UNCOUNT_KIND, replay::send::CLAIMED, select::OF_DELIVERY];
    for (connection, statement) in [&writes, &reads].into_iter().flat_map(|connection| {
        statements.into_iter().chain(more).map(move |statement| (connection, statement))
    }) {
        if connection.is_readonly("main").expect("it is open") && statement == letters::UNCOUNT_KIND {
            continue;
        }
        for used in 0..3 {
            let mut cached = connection.prepare_cached(statement).expect("it is SQL");
            for parameter in 1..=cached.parameter_count() {
                cached.raw_bind_parameter(parameter, used).expect("it has that many");
            }
            let mut rows = cached.raw_query();
            while rows.next().expect("it runs").is_some() {}
            drop(rows);
            assert_eq!(cached.get_status(StatementStatus::RePrepare), 0, "{statement}");
        }
    }
}

//! The plans of the queries: none goes through all of a table that grows.

mod format;
mod plans;
mod select;

use rusqlite::Connection;

use super::{changes, names, reader, rows, schema, session_order};

/// How SQLite answers a query: one line a table.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("it is SQL");
    let parameters = vec![1_i64; statement.parameter_count()];
    let mut lines = statement.query(rusqlite::params_from_iter(parameters)).expect("it explains");
    let mut plan = Vec::new();
    while let Some(line) = lines.next().expect("it explains") {
        plan.push(line.get::<_, String>(3).expect("a text"));
    }
    plan.join("; ")
}

#[test]
fn no_query_goes_through_a_table_that_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = schema::open(&folder.path().join("plans.db"), 1).expect("it opens");
    #[rustfmt::skip]
    let cases = [
        ("what may start",      rows::READY_PAGE,    "SEARCH deliveries USING INDEX ready (queue=? AND rowid>?)"),
        ("what is due",         rows::DUE_PAGE,      "SEARCH deliveries USING INDEX due (queue=? AND due_at<?)"),
        ("when the next is",    rows::NEXT_DUE,      "SEARCH deliveries USING COVERING INDEX due (queue=? AND due_at>?)"),
        ("a delivery",          rows::WAITING,       "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("the head of a session", session_order::HEAD_OF_LANE, "SEARCH deliveries USING INDEX lanes (lane=?)"),
        ("what is parked",      changes::RELEASE,      "SEARCH deliveries USING INDEX due (queue=? AND due_at=?)"),
        ("how much is parked",  names::PARKED,       "SEARCH deliveries USING COVERING INDEX due (queue=? AND due_at=?)"),
        ("and what is behind",  names::BEHIND_PARKED, "CO-ROUTINE head; SEARCH deliveries USING INDEX due (queue=? AND due_at=?); SCAN head; SEARCH d USING COVERING INDEX lanes (lane=?)"),
        ("a list of the ready", reader::list::READY,  "SEARCH deliveries USING COVERING INDEX ready (queue=? AND rowid<?)"),
        ("of the patient",      reader::list::PATIENT, "SEARCH deliveries USING INDEX patient (queue=? AND rowid<?)"),
        ("of all by events",    reader::list::ALL_WITH_EVENTS, "SEARCH d USING INTEGER PRIMARY KEY (rowid<?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("an event",            reader::list::EVENT,   "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("of the dead",         reader::list::DEAD,   "SEARCH deliveries USING COVERING INDEX dead (queue=? AND rowid<?)"),
        ("the first ready",     reader::oldest::FIRST_READY,   "SEARCH deliveries USING COVERING INDEX ready (queue=?)"),
        ("the first patient",   reader::oldest::FIRST_PATIENT, "SEARCH deliveries USING INDEX patient (queue=?)"),
        ("when it came",        reader::oldest::ACCEPTED_AT,   "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("of the unrouted",     reader::UNROUTED,    "SEARCH events USING COVERING INDEX unrouted (deliveries=? AND rowid>?)"),
    ];
    for (name, sql, expected) in cases {
        assert_eq!(plan(&connection, sql), expected, "{name}");
    }
}

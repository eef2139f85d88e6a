//! The plans of what is asked while letters are changed.

use super::plan;
use crate::store::sqlite::{held, letters, purge, replay_send, retention, schema, select, settle};

#[test]
fn no_change_goes_through_a_table_that_grows() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = schema::open(&folder.path().join("plans.db"), 1).expect("it opens");
    #[rustfmt::skip]
    let cases = [
        ("whether anything may start", held::HAS_HEAD,     "SEARCH deliveries USING INDEX lanes (lane=?)"),
        ("whether others come first",  held::HAS_EARLIER,  "SEARCH deliveries USING INDEX lanes (lane=? AND <expr><?)"),
        ("how many wait behind",       held::COUNT_BEHIND, "SEARCH deliveries USING INDEX lanes (lane=?)"),
        ("what is to be settled",      settle::FIND_HEAD,  "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)"),
        ("what dies",                  settle::DYING,      "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("one letter less",            letters::UNCOUNT_KIND, "SEARCH kinds USING INTEGER PRIMARY KEY (rowid=?); SCALAR SUBQUERY 1; SEARCH letters USING INDEX letters_of_kind (kind=?); SCALAR SUBQUERY 2; SEARCH letters USING INDEX letters_of_kind (kind=?)"),
        ("letters of a millisecond",   letters::LATEST_BETWEEN, "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("all letters",                select::ALL,        "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("letters of a kind",          select::OF_KIND,    "SEARCH letters USING INDEX letters_of_kind (kind=? AND rowid>? AND rowid<?)"),
        ("of a session",               select::OF_SESSION, "SEARCH letters USING INDEX letters_of_session (session=? AND rowid>? AND rowid<?)"),
        ("of a correlation id",        select::OF_CORRELATION, "SEARCH letters USING INDEX letters_of_correlation (correlation=? AND rowid>? AND rowid<?)"),
        ("of a delivery",              select::OF_DELIVERY, "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH l USING INDEX sqlite_autoindex_letters_1 (delivery=?)"),
        ("a letter's event",           select::EVENT_OF,   "SEARCH l USING INTEGER PRIMARY KEY (rowid=?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("what a replay may send",     replay_send::LETTERS, "SEARCH replay_letters USING INDEX replay_waiting (replay=? AND turn>?)"),
        ("one that it sends",          replay_send::CORPSE, "SEARCH l USING INDEX sqlite_autoindex_letters_1 (delivery=?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?)"),
        ("whether all is purged",      purge::ALL_PURGED,  "SCAN CONSTANT ROW; SCALAR SUBQUERY 1; SEARCH e USING INTEGER PRIMARY KEY (rowid=?); SEARCH d USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("some kinds",                 retention::KINDS,   "SEARCH kinds USING INTEGER PRIMARY KEY (rowid>?)"),
        ("the oldest of a kind",       retention::OLDEST,  "SEARCH l USING INDEX letters_of_kind (kind=? AND rowid>?); SEARCH d USING INTEGER PRIMARY KEY (rowid=?); CORRELATED SCALAR SUBQUERY 1; SEARCH r USING INTEGER PRIMARY KEY (rowid=?)"),
        ("whether a kind is over",     retention::TIRED,   "SCAN CONSTANT ROW; SCALAR SUBQUERY 1; SEARCH trend USING PRIMARY KEY (kind=? AND span<?); SCALAR SUBQUERY 2; SEARCH trend USING PRIMARY KEY (kind=? AND span>?); SCALAR SUBQUERY 3; SEARCH letters USING COVERING INDEX letters_of_kind (kind=?)"),
        ("the record of an hour",      retention::SAME_HOUR, "SEARCH audit USING COVERING INDEX audit_retention (what=? AND at>? AND at<?)"),
    ];
    for (name, sql, expected) in cases {
        assert_eq!(plan(&connection, sql), expected, "{name}");
    }
}

//! The plans of the queries: none goes through all of a table that grows, but where all of it is asked for.

use rusqlite::Connection;

use super::super::find::{self, ScanOrder};
use super::super::kinds::{KindDetail, KindQuery};
use super::super::{ReadView, access_store, delivery, groups, list, replays};
use super::of;
use crate::store::letter::LetterFilter;
use crate::store::sqlite::{replay, schema};

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
fn no_question_goes_through_all_letters() {
    let folder = tempfile::tempdir().expect("a folder");
    let connection = schema::open(&folder.path().join("plans.db"), 1).expect("it opens");
    let delivery_plan = "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?); \
        SEARCH s USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN; \
        SEARCH l USING INDEX sqlite_autoindex_letters_1 (delivery=?) LEFT-JOIN; \
        SEARCH k USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN; \
        SEARCH r USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN; \
        SEARCH h USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN; \
        SEARCH i USING COVERING INDEX imported_deliveries (delivery=?) LEFT-JOIN";
    #[rustfmt::skip]
    let cases: [(&str, String, &str); 17] = [
        ("a delivery",               delivery::DELIVERY.into(),          delivery_plan),
        ("what holds",               list::HOLDING.into(),                "SEARCH deliveries USING COVERING INDEX holding (queue=? AND rowid<?)"),
        ("all letters, back",        find::all(ScanOrder::Back),               "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("all letters, forth",       find::all(ScanOrder::Forth),              "SEARCH letters USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("a session, back",          find::of_session(ScanOrder::Back),        "SEARCH letters USING INDEX letters_of_session (session=? AND rowid>? AND rowid<?)"),
        ("a session, forth",         find::of_session(ScanOrder::Forth),       "SEARCH letters USING INDEX letters_of_session (session=? AND rowid>? AND rowid<?)"),
        ("a correlation, back",      find::of_correlation(ScanOrder::Back),    "SEARCH letters USING INDEX letters_of_correlation (correlation=? AND rowid>? AND rowid<?)"),
        ("a correlation, forth",     find::of_correlation(ScanOrder::Forth),   "SEARCH letters USING INDEX letters_of_correlation (correlation=? AND rowid>? AND rowid<?)"),
        ("a kind, back",             find::of_kind(ScanOrder::Back),           "SEARCH letters USING COVERING INDEX letters_of_kind (kind=? AND rowid>? AND rowid<?)"),
        ("a kind, forth",            find::of_kind(ScanOrder::Forth),          "SEARCH letters USING COVERING INDEX letters_of_kind (kind=? AND rowid>? AND rowid<?)"),
        ("a letter by number",       find::BY_NUMBER.into(),             "SEARCH letters USING INTEGER PRIMARY KEY (rowid=?)"),
        ("a letter by delivery",     find::BY_DELIVERY.into(),           "SEARCH letters USING INDEX sqlite_autoindex_letters_1 (delivery=?)"),
        ("what tells more",          find::OPEN.into(),                  "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("how many of a kind",       groups::COUNT.into(),               "SEARCH letters USING COVERING INDEX letters_of_kind (kind=? AND rowid>? AND rowid<?)"),
        ("the latest of a kind",     groups::LATEST.into(),              "SEARCH letters USING COVERING INDEX letters_of_kind (kind=?)"),
        ("a trend",                  groups::TREND.into(),               "SEARCH trend USING PRIMARY KEY (kind=? AND span>? AND span<?)"),
        ("open replays",             replay::OPEN.into(),                "SEARCH replays USING COVERING INDEX open_replays (state<?)"),
    ];
    for (name, sql, expected) in cases {
        assert_eq!(plan(&connection, &sql), expected, "{name}");
    }
    #[rustfmt::skip]
    let cases = [
        ("replays",          &*replays::replays_before(), "SEARCH replays USING INTEGER PRIMARY KEY (rowid<?)"),
        ("what is on record", replays::AUDIT,  "SEARCH audit USING INTEGER PRIMARY KEY (rowid<?)"),
        ("held sessions",    replays::HELD,    "SEARCH held USING INTEGER PRIMARY KEY (rowid>?)"),
        ("who holds one",    replays::HOLDER,  "SEARCH d USING INTEGER PRIMARY KEY (rowid=?); SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"),
        ("refused bodies",   access_store::REFUSED,      "SEARCH refused USING INTEGER PRIMARY KEY (rowid<?)"),
        ("one of them",      access_store::REFUSED_BODY, "SEARCH refused USING INTEGER PRIMARY KEY (rowid=?)"),
        ("accepted events",  access_store::ACCEPTED,     "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"),
    ];
    for (name, sql, expected) in cases {
        assert_eq!(plan(&connection, sql), expected, "{name}");
    }
}

#[test]
fn kinds_are_gone_through_only_where_nothing_names_them() {
    let table = super::Table::new();
    let any = LetterFilter::default;
    let service = Some("service-1".to_owned());
    #[rustfmt::skip]
    let cases = [
        ("of a cause",              LetterFilter { fingerprint: Some(of::cause(1)), ..any() }, "SEARCH kinds USING INDEX sqlite_autoindex_kinds_1 (fingerprint=?)"),
        ("of a cause of a service", LetterFilter { fingerprint: Some(of::cause(1)), service: service.clone(), ..any() },
            "SEARCH kinds USING INDEX sqlite_autoindex_kinds_1 (fingerprint=? AND queue=?)"),
        ("of a service",            LetterFilter { service, ..any() },                         "SCAN kinds"),
        ("all of them",             any(),                                                     "SCAN kinds"),
    ];
    for (name, filter, expected) in cases {
        let ask = |look: &ReadView<'_>| {
            let query = KindQuery::new(look, &filter, KindDetail::Counters)?.expect("kinds may fit");
            let one = query.only(1);
            Ok((query.sql, one.sql))
        };
        let (all, one) = table.reader.read(ask).expect("it answers");
        assert_eq!(plan(&table.connection, &all), expected, "{name}");
        assert_eq!(
            plan(&table.connection, &one),
            "SEARCH kinds USING INTEGER PRIMARY KEY (rowid=?)",
            "{name}"
        );
    }
}

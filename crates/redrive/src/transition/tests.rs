//! The life of a message: created, queued, and then completed or failed.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Created,
    Queued,
    Completed,
    Failed,
    Unheard,
}
use Status::{Completed, Created, Failed, Queued, Unheard};

fn message() -> Transitions<Status> {
    Transitions::new(&[(Created, &[Queued, Failed]), (Queued, &[Completed, Failed])]).expect("a table")
}

#[rustfmt::skip]
const CASES: [(&str, Option<Status>, Status, Applied<Status>); 11] = [
    ("it is queued",                     Some(Created),   Queued,    Applied::Changed),
    ("it is done",                       Some(Queued),    Completed, Applied::Changed),
    ("it fails",                         Some(Queued),    Failed,    Applied::Changed),
    ("it fails before it is queued",     Some(Created),   Failed,    Applied::Changed),
    ("it cannot be done before that",    Some(Created),   Completed, Applied::NotExpected { actual: Created }),
    ("the same again",                   Some(Completed), Completed, Applied::NotExpected { actual: Completed }),
    ("what is done does not fail later", Some(Completed), Failed,    Applied::NotExpected { actual: Completed }),
    ("nor is what failed done",          Some(Failed),    Completed, Applied::NotExpected { actual: Failed }),
    ("nothing goes back",                Some(Queued),    Created,   Applied::NotExpected { actual: Queued }),
    ("nothing leads there",              Some(Queued),    Unheard,   Applied::NotExpected { actual: Queued }),
    ("there is none",                    None,            Completed, Applied::Missing),
];

#[test]
fn a_thing_moves_only_as_the_table_says() {
    let table = message();
    for (name, from, to, expected) in CASES {
        let mut state = from;
        assert_eq!(table.apply(state.as_mut(), to), expected, "{name}");
        let is_changed = expected == Applied::Changed;
        assert_eq!(state, if is_changed { Some(to) } else { from }, "{name}");
    }
    assert_eq!(table.expected(Failed), [Created, Queued]);
    assert!(table.is_final(Failed));
    assert!(!table.is_final(Queued));
}

#[test]
fn a_table_that_cannot_be_meant_is_refused() {
    type Rows<'a> = &'a [(Status, &'a [Status])];
    #[rustfmt::skip]
    let cases: [(Rows<'_>, &str); 5] = [
        (&[],                                         "the table of transitions is empty"),
        (&[(Created, &[Queued]), (Created, &[Failed])], "Created has two rows"),
        (&[(Created, &[Queued]), (Queued, &[])],      "Queued has no successors: leave final states out"),
        (&[(Created, &[Queued, Created])],            "Created leads to itself"),
        (&[(Created, &[Queued, Failed, Queued])],     "Created leads to Queued twice"),
    ];
    for (rows, expected) in cases {
        let refused = Transitions::new(rows).expect_err("it cannot be meant");
        assert_eq!(refused.to_string(), expected);
    }
}

#[cfg(feature = "embedded")]
mod in_sqlite {
    use rusqlite::Connection;

    use super::super::sqlite::{ApplyError, StateColumn, StateText};
    use super::*;

    impl StateText for Status {
        fn name(&self) -> &str {
            match self {
                Created => "created",
                Queued => "queued",
                Completed => "completed",
                Failed => "failed",
                Unheard => "unheard",
            }
        }
    }

    /// Names that need their quotes.
    const COLUMN: StateColumn<'_> =
        StateColumn { table: "the \"messages\"", key: "message id", state: "status" };

    fn database(status: Option<&str>) -> Connection {
        let connection = Connection::open_in_memory().expect("it opens");
        let made = "CREATE TABLE \"the \"\"messages\"\"\" (\"message id\" TEXT PRIMARY KEY, status TEXT)";
        connection.execute(made, []).expect("it is SQL");
        if let Some(status) = status {
            let added = "INSERT INTO \"the \"\"messages\"\"\" VALUES ('m-1', ?1)";
            connection.execute(added, [status]).expect("it is SQL");
        }
        connection
    }

    fn status(connection: &Connection) -> Option<String> {
        connection.query_row("SELECT status FROM \"the \"\"messages\"\"\"", [], |row| row.get(0)).ok()
    }

    #[test]
    fn a_row_moves_as_what_is_in_memory_does() {
        let table = message();
        for (name, from, to, expected) in CASES {
            let connection = database(from.as_ref().map(StateText::name));
            let applied = table.apply_at(&connection, COLUMN, "m-1", to).expect("it is tried");
            assert_eq!(applied, expected, "{name}");
            let left = if expected == Applied::Changed { Some(to) } else { from };
            assert_eq!(status(&connection).as_deref(), left.as_ref().map(StateText::name), "{name}");
            assert!(connection.is_autocommit(), "{name}: nothing is left open");
        }
    }

    #[test]
    fn a_transition_is_part_of_the_callers_transaction() {
        let (table, mut connection) = (message(), database(Some("queued")));
        let transaction = connection.transaction().expect("it begins");
        let applied = table.apply_at(&transaction, COLUMN, "m-1", Completed).expect("it is tried");
        assert_eq!(applied, Applied::Changed);
        transaction.rollback().expect("it is taken back");
        assert_eq!(status(&connection).as_deref(), Some("queued"));
    }

    #[test]
    fn a_state_that_nobody_names_is_an_error() {
        let (table, connection) = (message(), database(Some("lost")));
        let error = table.apply_at(&connection, COLUMN, "m-1", Completed).expect_err("nobody names it");
        assert!(matches!(&error, ApplyError::UnknownState { name } if name == "lost"), "{error}");
        assert!(connection.is_autocommit(), "nothing is left open");
    }

    /// Of many who complete and fail the same message over one file, one is told that it did.
    #[test]
    fn of_many_who_come_at_once_one_changes_the_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("messages.db");
        let open = || {
            let connection = Connection::open(&path).expect("it opens");
            connection.busy_timeout(std::time::Duration::from_secs(30)).expect("it can wait");
            connection
        };
        let made = "CREATE TABLE messages (id INTEGER PRIMARY KEY, status TEXT);
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
            INSERT INTO messages SELECT i, 'queued' FROM n";
        open().execute_batch(made).expect("it is SQL");
        let column = StateColumn { table: "messages", key: "id", state: "status" };
        let changed: usize = std::thread::scope(|scope| {
            let threads = [Completed, Failed, Completed, Failed].map(|to| {
                let open = &open;
                scope.spawn(move || {
                    let (table, connection) = (message(), open());
                    let apply = |id: i64| table.apply_at(&connection, column, id, to).expect("it is tried");
                    (1..=50).map(apply).filter(|applied| *applied == Applied::Changed).count()
                })
            });
            threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
        });
        assert_eq!(changed, 50);
    }
}

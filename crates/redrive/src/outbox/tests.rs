//! A consumer with a ledger of its own.

use std::path::Path;

use super::*;

fn ledger(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("it opens");
    connection.busy_timeout(Duration::from_secs(30)).expect("it can wait");
    create_tables(&connection).expect("the table is made");
    let made = "CREATE TABLE IF NOT EXISTS entries (event_id TEXT)";
    connection.execute_batch(made).expect("it is SQL");
    connection
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Committed,
    TakenBack,
}

fn handle(connection: &mut Connection, event: DedupKey<'_>, ends: Ends) -> Occurrence {
    // It is going to write, and says so before it reads, as who shares a file with others should.
    let begun = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
    let transaction = begun.expect("it begins");
    let seen = first_time_from(&transaction, event).expect("it is written");
    if seen == Occurrence::First {
        transaction.execute("INSERT INTO entries VALUES (?1)", [event.event_id]).expect("it is SQL");
    }
    match ends {
        Ends::Committed => transaction.commit().expect("it is kept"),
        Ends::TakenBack => transaction.rollback().expect("it is taken back"),
    }
    seen
}

fn entries(connection: &Connection) -> u32 {
    connection.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).expect("it is SQL")
}

fn event<'a>(source: &'a str, event_id: &'a str) -> DedupKey<'a> {
    DedupKey { source, event_id }
}

#[test]
fn an_event_changes_the_ledger_once_and_with_its_id_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = ledger(&folder.path().join("ledger.db"));
    #[rustfmt::skip]
    let steps = [
        ("taken back: as if it had not come", event("shop", "1"),   Ends::TakenBack, Occurrence::First,  0),
        ("the first that is kept",            event("shop", "1"),   Ends::Committed, Occurrence::First,  1),
        ("the same again",                    event("shop", "1"),   Ends::Committed, Occurrence::Before, 1),
        ("the same id from elsewhere",        event("bank", "1"),   Ends::Committed, Occurrence::First,  2),
        ("another",                           event("shop", "2"),   Ends::Committed, Occurrence::First,  3),
        ("a shifted boundary",                event("shop2", ""),   Ends::Committed, Occurrence::First,  4),
    ];
    for (name, event, ends, expected, total) in steps {
        assert_eq!(handle(&mut connection, event, ends), expected, "{name}");
        assert_eq!(entries(&connection), total, "{name}");
    }
}

#[test]
fn ids_are_dropped_when_they_are_old_a_few_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut connection = ledger(&folder.path().join("ledger.db"));
    for number in 0..5 {
        handle(&mut connection, event("shop", &number.to_string()), Ends::Committed);
    }
    let day = Duration::from_hours(24);
    assert_eq!(forget_older(&connection, day, 100).expect("it is SQL"), 0, "none is old");
    let aged = "UPDATE redrive_seen SET seen_at = seen_at - ?1 + event_id WHERE event_id < '4'";
    connection.execute(aged, [2 * 24 * 60 * 60 * 1_000_i64]).expect("it is SQL");
    assert_eq!(forget_older(&connection, day, 3).expect("it is SQL"), 3, "the oldest three");
    let seen = ["2", "3", "4"].map(|id| handle(&mut connection, event("shop", id), Ends::TakenBack));
    assert_eq!(seen, [Occurrence::First, Occurrence::Before, Occurrence::Before]);
    assert_eq!(forget_older(&connection, day, 3).expect("it is SQL"), 1);
    create_tables(&connection).expect("it is there already");
    assert_eq!(handle(&mut connection, event("shop", "4"), Ends::Committed), Occurrence::Before);
}

#[test]
fn of_many_who_handle_an_event_at_once_one_is_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    drop(ledger(&path));
    let firsts: usize = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let mut connection = ledger(&path);
                let ids = (0..25).map(|number| format!("event {number}"));
                let mut seen = |id: String| handle(&mut connection, event("", &id), Ends::Committed);
                ids.filter(|id| seen(id.clone()) == Occurrence::First).count()
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    assert_eq!((firsts, entries(&ledger(&path))), (25, 25));
}

/// Writes events in one transaction each.
fn write_events(connection: &mut Connection, ids: &[&str], ends: Ends) {
    for id in ids {
        let transaction = connection.transaction().expect("it begins");
        send_later(&transaction, id, format!("payload of {id}").as_bytes()).expect("it is written");
        match ends {
            Ends::Committed => transaction.commit().expect("it is kept"),
            Ends::TakenBack => transaction.rollback().expect("it is taken back"),
        }
    }
}

#[tokio::test]
async fn events_are_handed_over_in_order_and_one_that_fails_holds_up_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let mut connection = ledger(&path);
    write_events(&mut connection, &["a", "b"], Ends::Committed);
    write_events(&mut connection, &["never"], Ends::TakenBack);
    write_events(&mut connection, &["c"], Ends::Committed);
    let relay = Relay::open(&path).expect("it opens");
    let mut sent = Vec::new();
    let mut failing = |event: Outgoing| {
        let is_fine = event.event_id != "b";
        sent.push(event.event_id);
        async move { if is_fine { Ok(()) } else { Err("no luck") } }
    };
    for _ in 0..2 {
        let error = relay.pass(&mut failing).await.expect_err("`b` fails");
        assert_eq!(error.to_string(), "could not send event b: no luck");
    }
    assert_eq!(sent, ["a", "b", "b"]);
    let mut sent = Vec::new();
    let all = relay.pass(|event: Outgoing| {
        sent.push(event);
        async { Ok::<_, std::convert::Infallible>(()) }
    });
    assert_eq!(all.await.expect("all goes well"), RelayPass::All { sent: 2 });
    let ids: Vec<&str> = sent.iter().map(|event| event.event_id.as_str()).collect();
    assert_eq!((ids, sent[0].payload.as_slice()), (vec!["b", "c"], b"payload of b".as_slice()));
    let none = relay.pass(async |_| Ok::<_, std::convert::Infallible>(())).await.expect("nothing is left");
    assert_eq!(none, RelayPass::All { sent: 0 });
}

#[tokio::test]
async fn of_two_relays_one_works_and_the_other_takes_over_when_its_lease_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let mut connection = ledger(&path);
    write_events(&mut connection, &["a"], Ends::Committed);
    let send = async |_| Ok::<_, std::convert::Infallible>(());
    let [one, other] = [(); 2].map(|()| Relay::open(&path).expect("it opens"));
    assert_eq!(one.pass(send).await.expect("all goes well"), RelayPass::All { sent: 1 });
    write_events(&mut connection, &["b"], Ends::Committed);
    assert_eq!(other.pass(send).await.expect("all goes well"), RelayPass::NotOurs);
    connection.execute_batch("UPDATE redrive_relay SET lease_ends_at = since").expect("it is SQL");
    assert_eq!(other.pass(send).await.expect("all goes well"), RelayPass::All { sent: 1 });
    assert_eq!(one.pass(send).await.expect("all goes well"), RelayPass::NotOurs);
    let later = "UPDATE redrive_relay SET since = since + 3600000, lease_ends_at = lease_ends_at + 3600000";
    connection.execute_batch(later).expect("it is SQL");
    assert_eq!(one.pass(send).await.expect("the clock was set back"), RelayPass::All { sent: 0 });
}

/// A guard may take minutes to send an event, and nobody else is to send it meanwhile.
#[tokio::test]
async fn a_relay_keeps_its_lease_while_it_sends() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.db");
    let mut connection = ledger(&path);
    write_events(&mut connection, &["a"], Ends::Committed);
    let relay = Relay::open(&path).expect("it opens").lease(Duration::from_millis(300));
    let (is_sent, sent) = tokio::sync::oneshot::channel::<()>();
    let mut sent = Some(sent);
    let pass = relay.pass(|_| sent.take().expect("there is one event"));
    let watch = async {
        let ends_at = || -> i64 {
            let sql = "SELECT lease_ends_at FROM redrive_relay";
            connection.query_row(sql, [], |row| row.get(0)).expect("it is SQL")
        };
        let mut seen = std::collections::BTreeSet::new();
        let mut looks = 0;
        // None, the first lease, and the one after it.
        while seen.len() < 3 {
            seen.insert(ends_at());
            looks += 1;
            assert!(looks < 2_000, "the lease is renewed: {seen:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        is_sent.send(()).expect("it waits for that");
    };
    let (watched, passed) = tokio::join!(biased; watch, pass);
    let () = watched;
    assert_eq!(passed.expect("all goes well"), RelayPass::All { sent: 1 });
}

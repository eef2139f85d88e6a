//! What goes wrong inside is told to the log, and outside only that it did.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::client::Answer;
use crate::run::Folder;
use crate::server::{Server, in_folder, serve};

/// What only those know who made it: files, queries, types, and what libraries say.
const INSIDE: [&str; 12] = [
    "data/", "/tmp", "sqlite", "select ", "insert ", "database", "::", ".rs", "struct ", "panicked",
    "os error", "i/o",
];

#[track_caller]
fn assert_discreet(answer: &Answer, folder: &Folder) {
    let told = format!("{:?} {}", answer.headers, answer.body).to_lowercase();
    let own = folder.path(".").display().to_string().to_lowercase();
    for word in INSIDE.into_iter().chain([own.trim_end_matches('.')]) {
        assert!(!told.contains(word), "{word}: {told}");
    }
}

/// Overwrites what the store has with nothing, in its place: a file that shrinks would end the server.
pub(crate) fn break_the_store(data: &Path) {
    for entry in fs::read_dir(data).expect("the store is there") {
        let path = entry.expect("it can be listed").path();
        let is_shared = path.extension().is_some_and(|end| end.to_string_lossy().ends_with("-shm"));
        if is_shared || path.is_dir() {
            continue;
        }
        let length = fs::metadata(&path).expect("it is there").len();
        let nothing = vec![0; usize::try_from(length).expect("it is small")];
        let mut file = OpenOptions::new().write(true).open(&path).expect("it is ours");
        file.write_all(&nothing).expect("it can be written");
    }
}

#[test]
fn a_store_that_cannot_be_read_is_a_fault_of_ours_and_no_more_is_told() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    server.accept("orders.placed", "o-1", "");
    server.out.wait_for("o-1");
    break_the_store(&folder.path("data"));
    let paths = [
        "/v1/events/o-1",
        "/v1/deliveries",
        "/v1/dead-letters",
        "/v1/failure-groups",
        "/v1/audit",
        "/v1/status",
    ];
    let answers = paths.map(|path| server.get(path));
    let faults: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 500).collect();
    assert!(!faults.is_empty(), "{answers:?}");
    for answer in faults {
        assert_eq!(answer.error(), (500, "INTERNAL_SERVER_ERROR".to_owned()));
        assert_discreet(answer, &folder);
        let id = answer.header("x-correlation-id").expect("every answer has one");
        server.err.wait_for(id);
    }
}

/// A server that may not write large files.
fn cramped(folder: &Folder, arguments: &[&str]) -> Server {
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 600; exec \"$0\" \"$@\""]);
    let plain = serve(folder, arguments);
    command.arg(plain.get_program()).args(plain.get_args());
    Server::run(in_folder(command, folder))
}

/// Sends until nothing more can be written; gives the first refusal.
fn fill(server: &Server) -> Answer {
    let body = format!("\"{}\"", "x".repeat(200_000));
    let mut refused = (0..1_000).map(|_| server.post("/v1/events/orders.placed", "", &body));
    refused.find(|answer| answer.status != 202).expect("the disk is full at last")
}

#[test]
fn a_new_book_waits_for_a_store_that_cannot_be_written() {
    const BOOK: &str =
        "version: 1\nservices:\n  old:\n    target: { log: stdout }\n    events: [orders.placed]\n";
    let folder = Folder::with("redrive.yaml", BOOK);
    let server = cramped(&folder, &["--rules", "redrive.yaml"]);
    let id = i32::try_from(server.id()).ok().and_then(Pid::from_raw).expect("a process");
    let may_write = |bytes: Option<u64>| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(id), Resource::Fsize, limit).expect("it is ours");
    };
    may_write(Some(0));
    let services = || {
        let status = server.status();
        let services = status["services"].as_array().cloned().unwrap_or_default();
        services.iter().map(|one| one["service"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    folder.write("redrive.yaml", BOOK.replace("old:", "new:"));
    server.err.wait_for("rule book reload deferred");
    assert_eq!(services(), ["old"]);
    may_write(None);
    server.err.wait_for("rule book reloaded:");
    assert!(services().contains(&"new".to_owned()), "{:?}", services());
    let said = server.err.so_far().matches("rule book reload deferred").count();
    assert_eq!(said, 1, "it is told once");
}

#[test]
fn a_store_that_cannot_be_written_is_told_without_its_reasons() {
    let folder = Folder::new();
    let server = cramped(&folder, &[]);
    let refused = fill(&server);
    let (status, code) = refused.error();
    assert_eq!(status, 503, "{refused:?}");
    assert!(["OUTCOME_UNKNOWN", "SERVICE_UNAVAILABLE"].contains(&code.as_str()), "{refused:?}");
    assert_discreet(&refused, &folder);
    for (path, body) in [
        ("/v1/services/log/pause", ""),
        ("/v1/unrouted/route", ""),
        ("/v1/dead-letters/purge", "{\"all\":true}"),
    ] {
        let answer = server.post(path, "", body);
        assert!(matches!(answer.status, 200 | 503), "{answer:?}");
        assert_discreet(&answer, &folder);
    }
}

#[test]
fn what_is_no_request_of_ours_is_refused_without_a_name_from_the_inside() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    let bodies = [
        "null",
        "7",
        "\"text\"",
        "[]",
        "{\"x\":1}",
        "{",
        "{\"data\":{\"a\":1},\"note\":7}",
        "{\"folder\":7}",
    ];
    let paths = [
        "/v1/backup",
        "/v1/dead-letters/a/edit",
        "/v1/dead-letters/a/skip",
        "/v1/dead-letters/import",
        "/v1/dead-letters/purge",
        "/v1/replays",
    ];
    for (path, body) in paths.iter().flat_map(|path| bodies.iter().map(move |body| (path, body))) {
        let answer = server.post(path, "", body);
        assert!((400..500).contains(&answer.status), "{path} {body}: {answer:?}");
        assert_discreet(&answer, &folder);
    }
    server.stop().assert_calm();
}

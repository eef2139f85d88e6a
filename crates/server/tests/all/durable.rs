//! What is on disk when: an answer follows the disk, and a disk that refuses loses nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::run::Folder;
use crate::server::{Server, contents, in_folder, serve, until};
use crate::target::{Gate, Target, book, status};

/// What can be seen in a trace, in the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    RequestRead,
    LogWritten,
    LogSynced,
    Answered,
}

#[test]
fn the_answer_follows_the_disk() {
    let folder = Folder::new();
    let server = Server::run(under_strace(&folder));
    assert_eq!(server.post("/v1/services/log/pause", "", "").status, 200);
    for number in 0..5 {
        server.accept("orders.placed", &format!("traced-{number}"), "");
    }
    server.stop().assert_calm();
    let trace = until("the trace is whole", || {
        fs::read_to_string(folder.path("trace")).ok().filter(|trace| trace.contains("+++ exited"))
    });
    let syncs: Vec<&str> =
        trace.lines().filter(|line| line.contains("sync(") && line.contains("redrive.db-wal")).collect();
    assert!(
        syncs.len() >= 5 && syncs.iter().all(|line| line.contains(" fdatasync(")),
        "a commit waits for its data and no more: {syncs:?}"
    );
    for number in 0..5 {
        let steps = steps(&trace, &format!("traced-{number}"));
        let place = |step: Step| steps.iter().position(|one| *one == step);
        let (written, synced, answered) =
            (place(Step::LogWritten), place(Step::LogSynced), place(Step::Answered));
        assert_eq!(steps[0], Step::RequestRead);
        assert!(written.is_some() && written < synced && synced < answered, "{steps:?}");
    }
}

/// The server, with what it reads, writes and waits for on record in `trace`.
fn under_strace(folder: &Folder) -> Command {
    let mut command = Command::new("strace");
    let calls = "trace=fsync,fdatasync,pwrite64,recvfrom,read,sendto,write,writev,sendmsg";
    // The tracer is no parent of the server (`-D`): signals go where they are meant to.
    command.args(["-D", "-f", "-y", "-s", "400", "-o", "trace", "-e", calls]);
    let server = serve(folder, &[]);
    command.arg(server.get_program()).args(server.get_args());
    in_folder(command, folder)
}

/// What happened from the moment that the request with those words came until its answer.
fn steps(trace: &str, words: &str) -> Vec<Step> {
    let lines = trace.lines().skip_while(|line| !line.contains(words));
    let mut syncing: Vec<&str> = Vec::new();
    let mut steps = vec![Step::RequestRead];
    for line in lines {
        let thread = line.split(' ').next().unwrap_or_default();
        let is_sync = line.contains("sync(") && line.contains("redrive.db-wal");
        let has_ended = line.ends_with("= 0");
        if is_sync && !has_ended {
            syncing.push(thread);
        } else if is_sync || (line.contains("sync resumed") && syncing.contains(&thread)) {
            assert!(has_ended, "{line}");
            steps.push(Step::LogSynced);
        } else if line.contains("pwrite64(") && line.contains("redrive.db-wal") {
            steps.push(Step::LogWritten);
        } else if line.contains("HTTP/1.1 202") {
            steps.push(Step::Answered);
            return steps;
        }
    }
    panic!("{words} was never answered: {steps:?}");
}

#[test]
fn a_full_disk_refuses_events_and_loses_none() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let target = Target::start(move |call| {
        if call.event_id() == "o-first" {
            waiting.pass();
        }
        status(200)
    });
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    server.accept("orders.placed", "o-first", "");
    target.until(1);
    let post =
        |id: &str| server.post("/v1/events/orders.placed", &format!("idempotency-key: {id}\r\n"), "{}");
    let mut taken = vec!["o-first".to_owned()];
    for number in 1..20 {
        let id = format!("o-{number}");
        assert_eq!(post(&id).status, 202);
        taken.push(id);
    }
    bound_files(&server, "0:unlimited");
    let refused = post("o-too-much");
    // The batch whose commit failed may be in the log or not; what comes after it is refused for certain.
    let (status, code) = refused.error();
    assert_eq!(status, 503, "{refused:?}");
    assert!(["OUTCOME_UNKNOWN", "SERVICE_UNAVAILABLE"].contains(&code.as_str()), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    server.err.wait_for("store writes failing");
    // The target takes what it was called with; that cannot be written down yet, and is not forgotten.
    gate.open();
    until("the target has answered", || target.calls()[0].answered);
    assert_eq!(post("o-more").error(), (503, "SERVICE_UNAVAILABLE".to_owned()));
    assert_eq!(server.get("/healthz").status, 200);
    let unready = server.get("/readyz");
    assert_eq!(unready.error(), (503, "SERVICE_UNAVAILABLE".to_owned()));
    let details = unready.json()["error"]["details"].clone();
    assert_eq!(
        (&details["status"], &details["because"][0]["what"]),
        (&json!("not-ready"), &json!("store-failing"))
    );
    for id in &taken {
        assert_eq!(server.event(id)["event"]["id"], id.as_str(), "what was accepted can be read");
    }

    bound_files(&server, "unlimited:unlimited");
    server.err.wait_for("store writes recovered");
    until("it takes events again", || matches!(post("o-more").status, 200 | 202).then_some(()));
    taken.push("o-more".to_owned());
    for id in &taken {
        server.until(id, "delivered");
        let times = target.calls().iter().filter(|call| call.event_id() == id).count();
        assert_eq!(times, 1, "{id} was called for once");
    }
    assert_eq!(server.status()["stranded"], 0);
    assert_eq!(server.get("/readyz").status, 200);
    server.stop().assert_calm();
}

#[test]
fn a_book_that_comes_while_the_disk_is_full_holds_once_it_is_not() {
    let (first, second) = (Target::willing(), Target::willing());
    let folder = Folder::with("redrive.yaml", &book(&first, &[]));
    let server = Server::start(&folder);
    bound_files(&server, "0:unlimited");
    assert_eq!(server.post("/v1/events/orders.placed", "", "{}").status, 503);
    let before = server.status()["book"].clone();
    folder.write("redrive.yaml", book(&second, &[]));
    server.err.wait_for("rule book reload deferred");
    assert!(!server.err.so_far().contains("rule book reloaded"), "{}", server.err.so_far());
    assert_eq!(server.status()["book"], before, "the old one stays");

    bound_files(&server, "unlimited:unlimited");
    server.err.wait_for("rule book reloaded");
    assert_ne!(server.status()["book"], before);
    until("it takes events again", || {
        (server.post("/v1/events/orders.placed", "", "{}").status == 202).then_some(())
    });
    second.until(1);
    assert_eq!(server.err.so_far().matches("rule book reload deferred").count(), 1);
    server.stop().assert_calm();
}

/// Lets no file grow beyond that many bytes (soft and hard bound): a write beyond it fails as on a full disk.
pub(crate) fn bound_files(server: &Server, bytes: &str) {
    bound(server, "fsize", bytes);
}

fn bound(server: &Server, what: &str, bytes: &str) {
    let id = server.id().to_string();
    let bounded = Command::new("prlimit").args([&format!("--{what}={bytes}"), "--pid", &id]).status();
    assert!(bounded.expect("util-linux is everywhere").success());
}

#[test]
fn a_store_without_memory_refuses_events_and_goes_on_without_a_restart() {
    let target = Target::willing();
    let folder = Folder::with("redrive.yaml", &book(&target, &[]));
    let server = Server::start(&folder);
    assert_eq!(server.post("/v1/services/orders/pause", "", "").status, 200);
    let body = format!("{{\"d\":\"{}\"}}", "x".repeat(500_000));
    let post =
        |id: &str| server.post("/v1/events/orders.placed", &format!("idempotency-key: {id}\r\n"), &body);
    assert_eq!(post("o-0").status, 202);
    // No more memory than it has: the index of the write-ahead log grows with the log, and cannot now.
    bound(&server, "as", "4096:unlimited");
    let refused = (1..500).find(|number| post(&format!("o-{number}")).status != 202).expect("it needs more");
    server.err.wait_for("store writes failing");

    bound(&server, "as", "unlimited:unlimited");
    let again = format!("o-{refused}");
    until("it takes events again", || matches!(post(&again).status, 200 | 202).then_some(()));
    until("it is ready again", || (server.get("/readyz").status == 200).then_some(()));
    assert_eq!(server.post("/v1/services/orders/resume", "", "").status, 200);
    for number in 0..=refused {
        server.until(&format!("o-{number}"), "delivered");
    }
    assert_eq!((target.count(), &server.status()["stranded"]), (refused + 1, &json!(0)));
    server.stop().assert_calm();
}

/// A limit that leaves room for stacks leaves room for the store, whatever an allocator reserves for itself.
#[test]
fn a_server_starts_under_any_limit_on_its_address_space_that_it_fits_in() {
    let target = Target::willing();
    let bare = {
        let folder = Folder::with("redrive.yaml", &book(&target, &[]));
        let server = Server::start(&folder);
        let maps = fs::read_to_string(format!("/proc/{}/maps", server.id())).expect("it runs");
        server.stop().assert_calm();
        // What the program and its libraries take, however they were built.
        let kib = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let at = |hex| u64::from_str_radix(hex, 16).ok();
            Some((at(to)? - at(from)?) / 1_024)
        };
        maps.lines()
            .filter(|line| line.contains('/') && !line.contains(" /dev/"))
            .filter_map(kib)
            .sum::<u64>()
    };
    // Steps of less than the 64 MiB that glibc would reserve for a thread.
    for room in (0..6).map(|step| 192_000 + step * 40_000) {
        let folder = Folder::with("redrive.yaml", &book(&target, &[]));
        let mut command = Command::new("bash");
        command.args(["-c", &format!("ulimit -v {}; exec \"$0\" \"$@\"", bare + room)]);
        let plain = serve(&folder, &["--rules", "redrive.yaml"]);
        command.arg(plain.get_program()).args(plain.get_args());
        let server = Server::run(in_folder(command, &folder));
        server.accept("orders.placed", "o-1", "");
        server.until("o-1", "delivered");
        assert!(!server.err.so_far().contains("memory"), "{room}: {}", server.err.so_far());
        server.stop().assert_calm();
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused() {
    let folder = Folder::new();
    fs::create_dir(folder.path("data")).expect("a folder");
    fs::set_permissions(folder.path("data"), fs::Permissions::from_mode(0o555)).expect("it is ours");
    let Err(refused) = Server::try_run(without_privileges(&folder)) else { panic!("it serves") };
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("could not open data"), "{}", refused.stderr);
    assert!(refused.stderr.contains("permission denied for writing"), "{}", refused.stderr);

    let folder = Folder::with("data", "a file");
    let Err(refused) = Server::try_run(serve(&folder, &[])) else { panic!("it serves") };
    assert!(refused.stderr.contains("could not open data"), "{}", refused.stderr);
}

/// The server as one whom permissions bind, which root is not.
fn without_privileges(folder: &Folder) -> Command {
    let server = serve(folder, &[]);
    let owner = fs::metadata("/proc/self").expect("Linux has it");
    if std::os::unix::fs::MetadataExt::uid(&owner) != 0 {
        return server;
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search"]);
    command.arg(server.get_program()).args(server.get_args());
    in_folder(command, folder)
}

#[test]
fn a_stop_leaves_everything_in_one_file() {
    let folder = Folder::new();
    let server = Server::run(serve(&folder, &[]));
    server.accept("orders.placed", "o-1", "");
    server.until("o-1", "delivered");
    server.stop().assert_calm();
    let names = |(path, _): &(PathBuf, Vec<u8>)| {
        path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
    };
    let files: Vec<String> = contents(&folder.path("data")).iter().map(names).collect();
    assert_eq!(files, ["redrive.db"]);
    let server = Server::run(serve(&folder, &[]));
    assert_eq!(server.delivery("o-1")["state"], "delivered");
}

#[test]
fn a_damaged_file_is_reported_and_left_as_it_is() {
    type Damage = fn(&mut File);
    #[rustfmt::skip]
    let cases: [(&str, &str, Damage); 4] = [
        ("another file altogether", "is damaged", |file| overwrite(file, 0, &[b'x'; 4096])),
        ("nonsense in the header",  "is damaged", |file| overwrite(file, 16, &[0xff; 84])),
        ("half of it",              "is damaged", |file| {
            let length = file.metadata().expect("it is open").len();
            file.set_len(length / 2).expect("it is ours");
        }),
        ("a later format",          "use a newer redrive", |file| overwrite(file, 60, &[0, 0, 3, 231])),
    ];
    for (name, words, damage) in cases {
        let folder = Folder::new();
        let server = Server::run(serve(&folder, &[]));
        for number in 0..200 {
            server.accept("orders.placed", &format!("o-{number}"), "");
        }
        server.stop().assert_calm();
        let path = folder.path("data").join("redrive.db");
        damage(&mut OpenOptions::new().read(true).write(true).open(path).expect("it is there"));
        let before = contents(&folder.path("data"));
        let Err(refused) = Server::try_run(serve(&folder, &[])) else { panic!("{name}: it serves") };
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{name}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("redrive.db") && refused.stderr.contains(words),
            "{name}: {}",
            refused.stderr
        );
        let ours = |(path, bytes): &(PathBuf, Vec<u8>)| {
            (!path.ends_with("lock")).then(|| (path.clone(), bytes.clone()))
        };
        let after = contents(&folder.path("data"));
        let (before, after): (Vec<_>, Vec<_>) =
            (before.iter().filter_map(ours).collect(), after.iter().filter_map(ours).collect());
        assert!(before == after, "{name}: not a byte was changed");
    }
}

fn overwrite(file: &mut File, at: u64, bytes: &[u8]) {
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("it is ours");
}

/// The server on a disk of 64 MiB; none where permission denied mount one, which root always may.
fn on_a_small_disk(folder: &Folder) -> Option<Command> {
    let private = |namespaces: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        // Not a child of the shell, but in its place: signals go where they are meant to.
        command.args(namespaces).args(["sh", "-c", script, "sh"]);
        in_folder(command, folder)
    };
    let mount = "mount -t tmpfs -o size=64m tmpfs data";
    fs::create_dir(folder.path("data")).expect("a folder");
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];
    let works = |way: &&&[&str]| private(way, mount).status().is_ok_and(|status| status.success());
    let Some(way) = ways.iter().find(works) else {
        let owner = fs::metadata("/proc/self").expect("Linux has it");
        assert_ne!(std::os::unix::fs::MetadataExt::uid(&owner), 0, "root may mount a disk");
        return None;
    };
    let server = serve(folder, &[]);
    let mut command = private(way, &format!("{mount} && exec \"$@\""));
    command.arg(server.get_program()).args(server.get_args());
    Some(command)
}

#[test]
fn the_disk_is_looked_at_before_the_first_event() {
    let folder = Folder::new();
    let Some(command) = on_a_small_disk(&folder) else {
        eprintln!("left out: permission denied mount a disk");
        return;
    };
    let server = Server::run(command);
    let first = server.post("/v1/events/orders.placed", "idempotency-key: o-1\r\n", "{}");
    assert_eq!(first.status, 503, "{first:?}");
    assert!(first.header("retry-after").is_some(), "{first:?}");
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 503, "{ready:?}");
    assert_eq!(ready.json()["error"]["details"]["because"][0]["what"], "disk-short", "{ready:?}");
    assert_eq!(server.get("/v1/events/o-1").status, 404);
    server.stop().assert_calm();
}

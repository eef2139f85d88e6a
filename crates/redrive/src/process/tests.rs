//! Runs of real programs, most of them small shell scripts with bad manners.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::family::{Process, RunMark};
use super::*;

/// Long enough for any machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long does a program run that is meant to outlive its run.
const FOR_EVER: &str = "sleep 1000";

fn sh(script: &str) -> ProgramCommand {
    ProgramCommand::new("sh").argument("-c").argument(script)
}

fn python(script: &str) -> ProgramCommand {
    ProgramCommand::new("python3").argument("-c").argument(script)
}

/// Enough of everything.
fn limits() -> RunLimits {
    RunLimits { time: PATIENCE, grace: Duration::from_millis(300), ..RunLimits::default() }
}

fn within(time: Duration) -> RunLimits {
    RunLimits { time, ..limits() }
}

async fn run(command: ProgramCommand, limits: RunLimits) -> ProgramRun {
    let supervisor = Supervisor::new();
    tokio::time::timeout(PATIENCE, supervisor.run(command, limits)).await.expect("a run has limits")
}

/// Waits until something is so.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The processes whose ids stand in the files of a folder, once there are so many.
async fn processes_in(folder: &Path, count: usize) -> Vec<Process> {
    let read = || {
        let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
        let pids = files.filter(|file| file.extension().is_some_and(|end| end == "pid"));
        let pids = pids.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        let found: Vec<Process> = pids.filter_map(Process::now).collect();
        (found.len() == count).then_some(found)
    };
    until("they have all started", read).await
}

/// Whether it runs; one that has ended and that its parent has not asked about does not.
fn runs(process: &Process) -> bool {
    let stat = fs::read(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let is_over = stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'));
    Process::now(process.pid) == Some(*process) && !is_over
}

#[tokio::test]
async fn a_run_ends_in_the_way_it_ends() {
    let long = Duration::from_secs(1_000);
    let limit = Duration::from_millis(200);
    let missing = "/nonexistent/program: No such file or directory (os error 2)";
    let code = |code| (RunEnd::Exited(code), Some(Exit::Code(code)));
    let signal = |signal| (RunEnd::Signalled(signal), Some(Exit::Signal(signal)));
    let reported = |code| (RunEnd::Exited(code), Some(Exit::ReportedError));
    let failed = |reason: &str| (RunEnd::SpawnFailed { reason: reason.to_owned() }, Some(Exit::SpawnFailed));
    #[rustfmt::skip]
    let cases = [
        ("well",                  sh("exit 0"),                        long,  code(0)),
        ("with a status",         sh("exit 3"),                        long,  code(3)),
        ("by a signal",           sh("kill -SEGV $$"),                 long,  signal(11)),
        ("killed by another",     sh("kill -KILL $$"),                 long,  signal(9)),
        ("with a report",         sh(r#"echo working; echo '{"status":"error","error":"no such project"}'; exit 1"#), long, reported(1)),
        ("with a polite report",  sh(r#"echo '{"status":"error","error":"no such project"}'"#), long, reported(0)),
        ("of many lines",         sh(r#"printf '{\n "status": "error",\n "error": "x"\n}\n'; exit 1"#), long, reported(1)),
        ("another word",          sh(r#"echo '{"status":"completed"}'"#), long, code(0)),
        ("past its time",         sh(FOR_EVER),                        limit, (RunEnd::TimeLimit { limit }, Some(Exit::TimeLimit))),
        ("there is none",         ProgramCommand::new("/nonexistent/program"), long, failed(missing)),
        ("not a program",         ProgramCommand::new("/etc"),                long,  failed("/etc: Permission denied (os error 13)")),
        ("no such folder",        sh("exit 0").folder("/nonexistent"), long,  failed("sh: there is no folder /nonexistent to run it in")),
    ];
    for (name, command, time, (end, exit)) in cases {
        let run = run(command, within(time.min(PATIENCE))).await;
        assert_eq!((&run.end, run.exit()), (&end, exit), "{name}: {run:?}");
    }
    // What is left out of a long output is never the report.
    let long_winded = sh(r#"seq 100000; printf '{"status":"error","error":"%01000d"}\n' 7"#);
    let run_short = run(long_winded, RunLimits { output_bytes: 1_000, ..limits() }).await;
    assert_eq!(run_short.exit(), Some(Exit::ReportedError), "{run_short:?}");
    let wordless = run(sh(r#"echo '{"status":"error","error":" "}'"#), limits()).await;
    assert_eq!(wordless.reported_error().as_deref(), Some("it does not say which"));
    let silent = run(sh("exit 0"), limits()).await;
    assert!(silent.stdout.is_empty() && silent.stderr.is_empty() && silent.reported_error().is_none());
    let error = run(sh(r#"echo '{"status":"error","error":"no such project"}'"#), limits()).await;
    assert_eq!(error.reported_error().as_deref(), Some("no such project"));
}

#[tokio::test]
async fn neither_side_waits_for_the_other() {
    const MUCH: usize = 8 * 1024 * 1024;
    let much = || vec![b'x'; MUCH];
    let flood = "head -c 100000000 /dev/zero; head -c 100000000 /dev/zero >&2; echo done >&2";
    #[rustfmt::skip]
    let cases = [
        ("all of it arrives",           sh("wc -c").input(much()),                        format!("{MUCH}\n")),
        ("it answers while it reads",   sh("cat | head -c 5").input(much()),              "xxxxx".to_owned()),
        ("it never reads",              sh("sleep 0.2; echo well").input(much()),         "well\n".to_owned()),
        ("it closes its input",         sh("exec <&-; echo well").input(much()),          "well\n".to_owned()),
        ("there is no input",           sh("cat; echo well"),                             "well\n".to_owned()),
        ("it prints before it reads",   sh("head -c 9000000 /dev/zero >&2; wc -c").input(much()), format!("{MUCH}\n")),
    ];
    for (name, command, expected) in cases {
        let run = run(command, limits()).await;
        assert_eq!((run.end, run.stdout.text()), (RunEnd::Exited(0), expected), "{name}");
    }
    let run = run(sh(flood), limits()).await;
    assert_eq!(run.end, RunEnd::Exited(0));
    assert_eq!(run.stdout.left_out(), 100_000_000 - 64 * 1024);
    assert_eq!(run.stderr.last_line().expect("it says so").trim_start_matches('\0'), "done");
}

#[tokio::test]
async fn of_our_environment_only_what_is_named_is_inherited() {
    // Cargo sets this one for every test; what is set here would be set for all.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let folder = tempfile::tempdir().expect("a folder");
    let script = "echo ${CARGO_PKG_NAME-none} ${OWN-none} ${HOME-none}; pwd";
    let plain = run(sh(script).variable("HOME", "/elsewhere"), limits()).await;
    assert_eq!(plain.stdout.text().lines().next(), Some("none none /elsewhere"));
    let named = sh(script).inherit("CARGO_PKG_NAME").variable("OWN", "o n e").folder(folder.path());
    let named = run(named.variable("HOME", "/h"), limits()).await;
    let place = folder.path().canonicalize().expect("it is there");
    assert_eq!(named.stdout.text(), format!("redrive o n e /h\n{}\n", place.display()));
    let all = run(sh("env | cut -d= -f1 | sort"), limits()).await.stdout.text();
    let own = ["OLDPWD", "PWD", "SHLVL", "_", MARK_VARIABLE];
    let strange = all.lines().find(|name| !INHERITED.contains(name) && !own.contains(name));
    assert_eq!(strange, None, "{all}");
}

#[tokio::test]
async fn no_file_of_ours_is_open_in_a_program() {
    let _open = fs::File::open("/etc/hostname").expect("a file");
    let files = run(sh("ls -l /proc/self/fd"), limits()).await.stdout.text();
    assert!(files.contains("pipe:") && !files.contains("hostname"), "{files}");
}

/// Programs that leave something behind which does not want to end, each of so many processes.
fn nasty() -> Vec<(&'static str, String, usize)> {
    let script = |text: &str| text.replace("FOR_EVER", FOR_EVER);
    vec![
        ("a child", script("FOR_EVER & echo $! >child.pid"), 1),
        ("a child that ignores TERM", script("(trap '' TERM; sh -c 'echo $$ >child.pid; FOR_EVER')&"), 1),
        ("one with a session of its own", script("setsid sh -c 'echo $$ >own.pid; FOR_EVER' &"), 1),
        (
            "a daemon: two forks, a session of its own, and TERM ignored",
            script(
                "(setsid sh -c 'trap \"\" TERM; (echo $$ >one.pid; sh -c \"echo \\$\\$ >two.pid; FOR_EVER\") & wait' &)",
            ),
            2,
        ),
        (
            "a tree",
            script(
                "for i in 1 2 3; do sh -c 'echo $$ >'$i'.pid; sh -c \"echo \\$\\$ >'$i'b.pid; FOR_EVER\"; true' & done",
            ),
            6,
        ),
        (
            "one without an environment, in the group",
            script("env -i sh -c 'echo $$ >bare.pid; FOR_EVER' &"),
            1,
        ),
        (
            "one whose name is no text, as names become that the system cuts short",
            script("setsid sh -c 'printf \"\\303\" >/proc/$$/comm; echo $$ >odd.pid; FOR_EVER; true' &"),
            1,
        ),
    ]
}

#[tokio::test]
async fn nothing_that_a_program_leaves_behind_outlives_its_run() {
    for (name, script, count) in nasty() {
        let folder = tempfile::tempdir().expect("a folder");
        // It ends by itself, once its children have started.
        let all_there = format!("while [ $(ls *.pid 2>/dev/null | wc -l) -lt {count} ]; do sleep 0.01; done");
        let script =
            format!("{script}\n{all_there}\ntouch ready; while [ ! -e go ]; do sleep 0.01; done; exit 7");
        let running = tokio::spawn(run(sh(&script).folder(folder.path()), limits()));
        until("it is ready", || folder.path().join("ready").exists().then_some(())).await;
        let left = processes_in(folder.path(), count).await;
        assert!(left.iter().all(runs), "{name}");
        fs::write(folder.path().join("go"), "").expect("written");
        let ended = running.await.expect("no panic");
        assert_eq!(ended.end, RunEnd::Exited(7), "{name}");
        assert!(!left.iter().any(runs), "{name}: {left:?}");
    }
}

#[tokio::test]
async fn nothing_outlives_a_time_limit_or_one_who_stopped_waiting() {
    for (name, script, count) in nasty() {
        let script = format!("{script}\ntrap '' TERM\nwhile :; do sleep 0.1; done");
        let folder = tempfile::tempdir().expect("a folder");
        let command = sh(&script).folder(folder.path());
        let running = tokio::spawn(run(command, limits()));
        let left = processes_in(folder.path(), count).await;
        running.abort();
        until(&format!("{name}: aborted"), || (!left.iter().any(runs)).then_some(())).await;

        let folder = tempfile::tempdir().expect("a folder");
        let command = sh(&script).folder(folder.path());
        let limit = Duration::from_secs(2);
        let running = tokio::spawn(run(command, within(limit)));
        let left = processes_in(folder.path(), count).await;
        assert_eq!(running.await.expect("no panic").end, RunEnd::TimeLimit { limit }, "{name}");
        assert!(!left.iter().any(runs), "{name}: {left:?}");
    }
}

/// Whoever is seen of them has ended when it is signalled, and its child goes on.
#[tokio::test]
async fn nothing_outlives_its_run_by_forking_on_and_on() {
    let hops = "import os, time\nopen('leader.pid', 'w').write(str(os.getpid()))\nuntil = time.time() + 90\n\
                for i in range(30):\n if os.fork() == 0:\n  while time.time() < until:\n   if os.fork(): os._exit(0)\n  os._exit(0)";
    let folder = tempfile::tempdir().expect("a folder");
    assert_eq!(run(python(hops).folder(folder.path()), limits()).await.end, RunEnd::Exited(0));
    let leader = fs::read_to_string(folder.path().join("leader.pid")).expect("it wrote it down");
    let group = rustix::process::Pid::from_raw(leader.parse().expect("a number")).expect("a process");
    until("nobody is left", || rustix::process::test_kill_process_group(group).is_err().then_some(())).await;
}

/// The start is made by another thread: whoever wanted it may be gone before it hears of it.
#[tokio::test]
async fn nothing_outlives_one_who_did_not_even_wait_for_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("{FOR_EVER} & echo $! >child.pid; wait");
    let command = sh(&script).folder(folder.path());
    let mut running = Box::pin(run(command, limits()));
    // Polled once, which begins the start, and never again.
    assert!(
        std::future::poll_fn(|context| std::task::Poll::Ready(running.as_mut().poll(context).is_pending()))
            .await
    );
    while pid_files(folder.path()) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let left = processes_in(folder.path(), 1).await;
    drop(running);
    until("it is ended", || (!left.iter().any(runs)).then_some(())).await;
}

/// How many have written down who they are.
fn pid_files(folder: &Path) -> usize {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    files.filter(|file| fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'))).count()
}

#[tokio::test]
async fn a_program_that_ends_when_it_is_asked_may_say_a_last_word() {
    let script = "trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.05; done";
    let limits = RunLimits { grace: PATIENCE, ..within(Duration::from_millis(500)) };
    let run = run(sh(script), limits).await;
    assert!(matches!(run.end, RunEnd::TimeLimit { .. }), "it did not do its work: {run:?}");
    assert_eq!(run.stdout.text(), "hello\nbye\n");
}

#[tokio::test]
async fn memory_has_a_limit_over_all_processes_together() {
    const MIB: u64 = 1024 * 1024;
    let limits = |mib: u64| RunLimits { memory_bytes: Some(mib * MIB), ..limits() };
    let eat =
        "import time\nb=bytearray(200*1024*1024)\nfor i in range(0,len(b),4096): b[i]=1\ntime.sleep(1000)";
    let together = "import os,time\nos.fork();os.fork()\nb=bytearray(60*1024*1024)\nfor i in range(0,len(b),4096): b[i]=1\ntime.sleep(1000)";
    let fast = "b=[]\nwhile True: b.append(bytearray(b'x')*(64*1024*1024))";
    let shared = "import os,time\nb=bytearray(60*1024*1024)\nfor i in range(0,len(b),4096): b[i]=1\nfor i in range(3):\n  if os.fork()==0: time.sleep(0.5);os._exit(0)\nfor i in range(3): os.wait()\nprint('well')";
    for (name, script, mib) in [("one", eat, 100), ("four", together, 150)] {
        let run = run(python(script), limits(mib)).await;
        assert!(
            matches!(run.end, RunEnd::OutOfMemory { used: Some(used) } if used > mib * MIB),
            "{name}: {run:?}"
        );
        assert_eq!(run.exit(), Some(Exit::OutOfMemory), "{name}");
    }
    // It runs into the limit on its data before anybody looks, or is seen before that.
    let run_fast = run(python(fast), limits(64)).await;
    let is_out =
        matches!(run_fast.end, RunEnd::OutOfMemory { .. }) || run_fast.stderr.text().contains("MemoryError");
    assert!(is_out, "{run_fast:?}");
    // What they share counts once: four processes, and not four times as much.
    let run_shared = run(python(shared), limits(150)).await;
    assert_eq!((run_shared.end, run_shared.stdout.text().as_str()), (RunEnd::Exited(0), "well\n"));
}

/// The children of ours that have ended and that nobody has asked about.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").expect("Linux").flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let is_ours = |stat: &String| {
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {own} ")))
    };
    stats.filter(is_ours).count()
}

#[tokio::test]
async fn runs_leave_neither_files_nor_dead_processes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (supervisor, _) = Supervisor::recording(folder.path()).expect("a folder");
    let open = || {
        let of_ours = |entry: fs::DirEntry| fs::read_link(entry.path()).ok();
        let links = fs::read_dir("/proc/self/fd").expect("Linux").flatten().filter_map(of_ours);
        links.filter(|link| link.to_string_lossy().starts_with("pipe:")).count()
    };
    let mut most = 0;
    for _ in 0..50 {
        let runs = (0..4).map(|_| {
            let supervisor = supervisor.clone();
            tokio::spawn(async move { supervisor.run(sh("sleep 1000 & exit 0").input("x"), limits()).await })
        });
        for run in runs.collect::<Vec<_>>() {
            assert_eq!(run.await.expect("no panic").end, RunEnd::Exited(0));
        }
        most = most.max(open());
    }
    // Other tests of this process run beside it: what they have open at a moment is bounded, a leak is not.
    assert!(most < 200, "{most} pipes are open after 200 runs");
    until("nobody is left", || (zombies() < 10).then_some(())).await;
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "no record is left");
}

#[tokio::test]
async fn what_outlived_us_is_ended_and_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |mark: &str| {
        let mut command = std::process::Command::new("setsid");
        command.args(["sh", "-c", "trap '' TERM; sleep 1000; true"]).env(MARK_VARIABLE, mark);
        let silent = std::process::Stdio::null;
        command.stdin(silent()).stdout(silent()).stderr(silent()).spawn().expect("setsid is there")
    };
    let mark = RunMark::new();
    let (mut marked, mut known) = (start(mark.as_str()), start("none"));
    let (mut other, mut reused) = (start(RunMark::new().as_str()), start("none"));
    let process = |child: &std::process::Child| {
        Process::now(i32::try_from(child.id()).expect("a small number")).expect("it runs")
    };
    let (of_marked, of_known, of_reused) = (process(&marked), process(&known), process(&reused));
    // One run is known by its mark alone: we went down between its start and the record of it.
    fs::write(folder.path().join(mark.as_str()), "").expect("written");
    let write = |pid: i32, started: u64| {
        fs::write(folder.path().join(RunMark::new().as_str()), format!("{pid} {started}\n"))
            .expect("written");
    };
    write(of_known.pid, of_known.started);
    write(of_reused.pid, of_reused.started - 1);
    fs::write(folder.path().join("README"), "not a record").expect("written");
    let begun = std::time::Instant::now();
    let ended = tokio::task::spawn_blocking({
        let folder = folder.path().to_owned();
        move || Supervisor::recording(&folder).expect("a folder").1
    });
    assert_eq!(ended.await.expect("no panic"), 2);
    assert!(begun.elapsed() < PATIENCE);
    assert!(!runs(&of_marked) && !runs(&of_known));
    // They were children of ours, and may have been buried by whoever ended them.
    let _ = (marked.wait(), known.wait());
    for child in [&mut other, &mut reused] {
        assert_eq!(child.try_wait().expect("ours"), None, "it has nothing to do with us");
        family::kill_group(i32::try_from(child.id()).expect("a small number"));
        child.wait().expect("ours");
    }
    let left: Vec<_> =
        fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["README"]);
}

#[tokio::test]
async fn stopping_ends_every_run_within_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let supervisor = Supervisor::new();
    let scripts = [
        "trap 'exit 0' TERM; echo $$ >polite.pid; while :; do sleep 0.05; done",
        "trap '' TERM; echo $$ >rude.pid; while :; do sleep 0.05; done",
    ];
    let runs: Vec<_> = scripts
        .into_iter()
        .map(|script| {
            let (supervisor, command) = (supervisor.clone(), sh(script).folder(folder.path()));
            tokio::spawn(async move { supervisor.run(command, limits()).await })
        })
        .collect();
    let left = processes_in(folder.path(), 2).await;
    supervisor.stop(Duration::from_secs(1));
    for run in runs {
        let run = run.await.expect("no panic");
        assert_eq!((&run.end, run.exit()), (&RunEnd::Stopped, None), "{run:?}");
    }
    assert!(!left.iter().any(self::runs));
    assert_eq!(supervisor.run(sh("exit 0"), limits()).await.end, RunEnd::Stopped);
}

#[tokio::test]
async fn stopping_cuts_short_the_time_that_a_run_past_its_limit_has_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let supervisor = Supervisor::new();
    let rude = sh("trap 'echo $$ >asked.pid' TERM; while :; do sleep 0.05; done").folder(folder.path());
    let limits = RunLimits { grace: 10 * PATIENCE, ..within(Duration::from_millis(500)) };
    let running = tokio::spawn({
        let supervisor = supervisor.clone();
        async move { supervisor.run(rude, limits).await }
    });
    let left = processes_in(folder.path(), 1).await;
    supervisor.stop(Duration::from_secs(1));
    let run = tokio::time::timeout(PATIENCE, running).await.expect("it is stopped").expect("no panic");
    assert_eq!(run.end, RunEnd::TimeLimit { limit: limits.time });
    assert!(!left.iter().any(runs));
}

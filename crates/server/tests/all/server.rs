//! A real `redrive serve` in a folder of its own, on a port that the system chose.
//!
//! Invariants: nothing here waits without a limit, and a server never outlives the test that started it.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::client::{Answer, Client};
use crate::run::Folder;

/// Long enough for any machine; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A server that runs as long as the test does.
pub(crate) struct Server {
    child: Child,
    pub(crate) client: Client,
    pub(crate) out: Lines,
    pub(crate) err: Lines,
}

/// What a server left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `redrive serve` in that folder, with `data` as its data folder.
pub(crate) fn serve(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "data"]).args(arguments);
    in_folder(command, folder)
}

/// The command with that folder to run in, and nothing of a developer's own shell.
pub(crate) fn in_folder(mut command: Command, folder: &Folder) -> Command {
    for variable in [
        "CLICOLOR_FORCE",
        "FORCE_COLOR",
        "REDRIVE_CA",
        "REDRIVE_KEY",
        "REDRIVE_LOG",
        "REDRIVE_LOG_FORMAT",
        "REDRIVE_SERVER",
    ] {
        command.env_remove(variable);
    }
    command.current_dir(folder.path("."));
    command
}

impl Server {
    /// Serves the book `redrive.yaml` of the folder.
    #[track_caller]
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::run(serve(folder, &["--rules", "redrive.yaml"]))
    }

    /// Runs a command that serves.
    #[track_caller]
    pub(crate) fn run(command: Command) -> Self {
        Self::try_run(command).unwrap_or_else(|ended| panic!("it does not serve: {ended:?}"))
    }

    /// Runs a command that serves, or says how it ended instead.
    pub(crate) fn try_run(mut command: Command) -> Result<Self, Ended> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary was built for this test");
        let out = Lines::of(child.stdout.take().expect("it is piped"));
        let err = Lines::of(child.stderr.take().expect("it is piped"));
        let first = out.wait(|lines| lines.first().cloned());
        let url = first.as_deref().and_then(|line| {
            line.strip_prefix("redrive serves on ").or_else(|| line.strip_prefix("redrive demo on "))
        });
        let address = url.and_then(|url| url.split_once("://")).map(|(_scheme, address)| address);
        if let Some(address) = address {
            return Ok(Self { child, client: Client::new(address), out, err });
        }
        let status = wait_for(&mut child);
        Err(Ended { code: status.code(), stdout: out.whole(), stderr: err.whole() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Asks it to stop, and says how it ended.
    pub(crate) fn stop(self) -> Ended {
        self.signal("TERM");
        self.ended()
    }

    /// How long its threads were ready to run and had no core; the longest of them counts.
    pub(crate) fn waited_for_a_core(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("it runs");
        let of_thread = |path: PathBuf| {
            let figures = std::fs::read_to_string(path.join("schedstat")).ok()?;
            figures.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
        };
        threads.filter_map(|thread| of_thread(thread.ok()?.path())).max().unwrap_or_default()
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().expect("it runs");
        wait_for(&mut self.child);
        self.err.whole()
    }

    /// Waits for it to end.
    pub(crate) fn ended(mut self) -> Ended {
        let status = wait_for(&mut self.child);
        Ended { code: status.code(), stdout: self.out.whole(), stderr: self.err.whole() }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.client.get(path)
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        self.client.post(path, headers, body)
    }

    /// Posts an event with that id that is taken, and says its first delivery's id, if it has one.
    #[track_caller]
    pub(crate) fn accept(&self, event_type: &str, id: &str, session: &str) -> String {
        let path = match session {
            "" => format!("/v1/events/{event_type}"),
            _ => format!("/v1/events/{event_type}?partitionkey={session}"),
        };
        let answer = self.post(&path, &format!("idempotency-key: {id}\r\n"), format!("{{\"id\":\"{id}\"}}"));
        assert_eq!(answer.status, 202, "{answer:?}");
        answer.json()["receipt"].as_str().expect("a receipt").to_owned()
    }

    /// The only event with that id or receipt.
    #[track_caller]
    pub(crate) fn event(&self, id: &str) -> Value {
        let answer = self.get(&format!("/v1/events/{id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let events = answer.json();
        assert_eq!(events["events"].as_array().map(Vec::len), Some(1), "{events}");
        events["events"][0].clone()
    }

    /// The only delivery of the event with that id, with its attempts.
    #[track_caller]
    pub(crate) fn delivery(&self, event_id: &str) -> Value {
        let event = self.event(event_id);
        let id = event["deliveries"][0]["id"].as_str().expect("it has a delivery");
        self.get(&format!("/v1/deliveries/{id}")).json()
    }

    /// Waits until the only delivery of an event is in that state.
    #[track_caller]
    pub(crate) fn until(&self, event_id: &str, state: &str) -> Value {
        let what = format!("{event_id} is {state}");
        until(&what, || {
            let event = self.event(event_id);
            (event["deliveries"][0]["state"] == state).then_some(())
        });
        self.delivery(event_id)
    }

    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let answer = self.get("/v1/status");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The largest amount of memory that it has had so far, in kilobytes.
    pub(crate) fn memory_peak_kb(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Nobody who reads the log finds that something panicked.
    #[track_caller]
    pub(crate) fn assert_calm(&self) {
        let said = self.err.so_far();
        assert!(!said.contains("panicked"), "{said}");
    }
}

impl Ended {
    #[track_caller]
    pub(crate) fn assert_calm(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

pub(crate) fn signal(id: u32, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), id.to_string()]).status();
    assert!(sent.expect("kill is everywhere").success());
}

fn wait_for(child: &mut Child) -> ExitStatus {
    until("it ends", || child.try_wait().expect("it is our child"))
}

/// Looks again and again until there is something to see.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

#[track_caller]
pub(crate) fn until_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < limit, "within {limit:?}: {what}");
        thread::sleep(LOOK_EVERY);
    }
}

/// What a process prints, line by line, as it comes.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Heard>);

#[derive(Default)]
struct Heard {
    state: Mutex<Printed>,
    news: Condvar,
}

#[derive(Default)]
struct Printed {
    lines: Vec<String>,
    is_over: bool,
}

impl Lines {
    pub(crate) fn of(from: impl Read + Send + 'static) -> Self {
        let heard = Arc::new(Heard::default());
        let lines = Self(Arc::clone(&heard));
        thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let mut line = Vec::new();
                let is_over = from.read_until(b'\n', &mut line).map_or(true, |count| count == 0);
                let mut state = heard.state.lock().expect("nobody panics while adding a line");
                if is_over {
                    state.is_over = true;
                } else {
                    state.lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                drop(state);
                heard.news.notify_all();
                if is_over {
                    return;
                }
            }
        });
        lines
    }

    /// What can be seen in the lines once there is something; none if they end before.
    pub(crate) fn wait<T>(&self, mut look: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let started = Instant::now();
        let mut state = self.0.state.lock().expect("nobody panics while adding a line");
        loop {
            if let Some(seen) = look(&state.lines) {
                return Some(seen);
            }
            if state.is_over {
                return None;
            }
            assert!(started.elapsed() < PATIENCE, "it was never printed: {:?}", state.lines);
            state = self.0.news.wait_timeout(state, LOOK_EVERY).expect("nobody panics").0;
        }
    }

    /// Waits for a line with those words.
    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str) -> String {
        self.wait(|lines| lines.iter().find(|line| line.contains(words)).cloned())
            .unwrap_or_else(|| panic!("{words:?} was never printed: {}", self.so_far()))
    }

    pub(crate) fn so_far(&self) -> String {
        self.0.state.lock().expect("nobody panics while adding a line").lines.join("\n")
    }

    /// All of it, when it is over.
    fn whole(&self) -> String {
        self.wait(|_| None::<()>);
        self.so_far()
    }
}

/// Everything in a folder, with its bytes.
pub(crate) fn contents(folder: &PathBuf) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<(PathBuf, Vec<u8>)> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), std::fs::read(path).expect("it can be read")))
        .collect();
    files.sort();
    files
}

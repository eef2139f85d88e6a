//! The processes of a run: its leader, its group and session, processes that carry its mark, and descendants
//! of these, as far as they were seen.
//!
//! A process that starts its own session still has the mark in its environment; one that also clears its
//! environment is known if it was seen while its parent lived. Both are found in `/proc`; without it only the
//! group is known.
//!
//! Invariant: no process is signalled by its id alone. It is identified by id and start time, which are
//! checked again between opening and signalling it. A group is killed as a whole, because processes that keep
//! forking are gone when looked at again, right after a check that its number is still its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process_group};

/// Carries the mark.
pub const MARK_VARIABLE: &str = "REDRIVE_RUN";
/// The largest environment that systems allow.
const ENVIRONMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The page size, if the system does not report it.
const PAGE_BYTES: u64 = 4_096;

/// Identifies the processes of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunMark(String);

impl RunMark {
    pub(super) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let draw = || RandomState::new().hash_one(std::time::SystemTime::now());
        Self(format!("{:016x}{:016x}", draw(), draw()))
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        let is_mark = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_mark.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A process by id and start time, in clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) started: u64,
}

impl Process {
    pub(super) fn now(pid: i32) -> Option<Self> {
        Some(Stat::of(pid)?.process)
    }

    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
            // A process held by its pidfd cannot be replaced by another.
            let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return };
            if Self::now(self.pid) == Some(self) {
                let _ = pidfd_send_signal(&held, signal);
            }
        }
        #[cfg(not(target_os = "linux"))]
        if Self::now(self.pid) == Some(self) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    process: Process,
    parent: i32,
    group: i32,
    session: i32,
    /// A zombie.
    is_over: bool,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        // A name may contain any bytes and be cut inside a character.
        Self::read(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// `7 (a name (with) anything) S 1 7 7 …`; the start time is field 22.
    fn read(text: &str) -> Option<Self> {
        let pid = text.split(' ').next()?.parse().ok()?;
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_over = matches!(fields.next()?, "Z" | "X" | "x");
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let started = fields.nth(15)?.parse().ok()?;
        Some(Self { process: Process { pid, started }, parent, group, session, is_over })
    }
}

fn everybody() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Stat::of).collect()
}

/// `None` for processes of other users.
fn mark_of(pid: i32) -> Option<RunMark> {
    let mut environment = Vec::new();
    let file = fs::File::open(format!("/proc/{pid}/environ")).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let value =
        variables.find_map(|variable| variable.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"="))?;
    RunMark::read(std::str::from_utf8(value).ok()?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyReach {
    All,
    /// Of a runtime's client: processes outside its group belong to the container.
    Group,
}

#[derive(Clone, Debug)]
pub(super) struct Family {
    mark: RunMark,
    reach: FamilyReach,
    /// Leads group and session; `None` if unknown.
    leader: Option<Process>,
    /// Every process seen that may still run.
    known: BTreeSet<Process>,
}

impl Family {
    pub(super) fn new(mark: RunMark, leader: Option<Process>, reach: FamilyReach) -> Self {
        Self { mark, reach, leader, known: leader.into_iter().collect() }
    }

    /// A run from a record; its group is not known for sure.
    pub(super) fn left(mark: RunMark, known: Vec<Process>) -> Self {
        Self { mark, reach: FamilyReach::All, leader: None, known: known.into_iter().collect() }
    }

    pub(super) const fn known(&self) -> &BTreeSet<Process> {
        &self.known
    }

    /// Finds children of known processes, cheaply.
    pub(super) fn watch(&mut self) {
        self.known.retain(|process| Process::now(process.pid) == Some(*process));
        if self.reach == FamilyReach::Group {
            return;
        }
        let mut to_ask: Vec<Process> = self.known.iter().copied().collect();
        while let Some(process) = to_ask.pop() {
            for child in children(process.pid).into_iter().filter_map(Process::now) {
                if self.known.insert(child) {
                    to_ask.push(child);
                }
            }
        }
    }

    pub(super) fn members(&mut self) -> Vec<Process> {
        self.look().0
    }

    /// The running members, and the group's number if it is known and still its own.
    fn look(&mut self) -> (Vec<Process>, Option<i32>) {
        let everybody = everybody();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        // A group with a member keeps its number.
        let is_reused = self.leader.is_some_and(|leader| {
            everybody
                .iter()
                .any(|stat| stat.process.pid == leader.pid && stat.process.started != leader.started)
        });
        let group = self.leader.filter(|_| !is_reused).map(|leader| leader.pid);
        let mut found: BTreeSet<Process> = BTreeSet::new();
        for stat in &everybody {
            let is_member = self.known.contains(&stat.process)
                || group.is_some_and(|group| stat.group == group || stat.session == group)
                || (self.reach == FamilyReach::All && mark_of(stat.process.pid).as_ref() == Some(&self.mark));
            if is_member && stat.process.pid != own {
                found.insert(stat.process);
            }
        }
        let is_only_group = self.reach == FamilyReach::Group;
        loop {
            let is_child = |stat: &&Stat| {
                stat.process.pid != own
                    && !found.contains(&stat.process)
                    && found.iter().any(|parent| parent.pid == stat.parent)
            };
            let children: Vec<Process> = everybody.iter().filter(is_child).map(|stat| stat.process).collect();
            if is_only_group || children.is_empty() {
                break;
            }
            found.extend(children);
        }
        self.known.clone_from(&found);
        let is_alive = |stat: &&Stat| !stat.is_over && found.contains(&stat.process);
        (everybody.iter().filter(is_alive).map(|stat| stat.process).collect(), group)
    }

    /// Signals all members and returns whether any is left.
    pub(super) fn signal(&mut self, signal: Signal) -> Survivors {
        let (members, group) = self.look();
        if signal == Signal::KILL {
            group.into_iter().for_each(kill_group);
        }
        for process in &members {
            process.signal(signal);
        }
        // As init of a machine or container we must reap orphans.
        for process in &self.known {
            bury(process.pid, self.leader);
        }
        if members.is_empty() { Survivors::Nobody } else { Survivors::Some }
    }

    /// Memory of all members in bytes; shared pages count once if the system reports them.
    pub(super) fn memory(&self, limit: u64) -> u64 {
        let resident: u64 = self.known.iter().map(|process| resident(process.pid)).sum();
        if resident <= limit {
            return resident;
        }
        self.known
            .iter()
            .map(|process| proportional(process.pid).unwrap_or_else(|| resident_of(*process)))
            .sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Survivors {
    Nobody,
    Some,
}

/// Kills a group at once, so that no member escapes by forking.
pub(super) fn kill_group(leader: i32) {
    if let Some(group) = Pid::from_raw(leader) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The marks that running processes carry.
pub(super) fn marked(marks: &BTreeSet<RunMark>) -> BTreeSet<RunMark> {
    let pids = everybody().into_iter().filter(|stat| !stat.is_over).map(|stat| stat.process.pid);
    pids.filter_map(mark_of).filter(|mark| marks.contains(mark)).collect()
}

/// The kernel's count of out-of-memory kills; `None` if unavailable.
pub(super) fn kills_for_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Reaps an orphaned child; the leader is waited for elsewhere.
fn bury(pid: i32, leader: Option<Process>) {
    let own = i32::try_from(std::process::id()).ok();
    let is_leader = leader.is_some_and(|leader| leader.pid == pid);
    if is_leader || Stat::of(pid).is_none_or(|stat| !stat.is_over || Some(stat.parent) != own) {
        return;
    }
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    }
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let files = tasks.flatten().map(|task| -> PathBuf { task.path().join("children") });
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn resident_of(process: Process) -> u64 {
    resident(process.pid)
}

/// Resident memory without pages shared with files.
fn resident(pid: i32) -> u64 {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (all, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    all.saturating_sub(shared) * page_bytes()
}

/// The same, with shared pages divided among their users.
fn proportional(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib: u64 =
        text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib * 1_024)
}

fn page_bytes() -> u64 {
    let bytes = rustix::param::page_size();
    u64::try_from(bytes).unwrap_or(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_processes_whatever_they_are_called() {
        let numbers = "0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        #[rustfmt::skip]
        let cases = [
            ("plain",          format!("7 (sh) S 1 7 7 {numbers}"),           Some((7, 4711, 1, 7, 7, false))),
            ("a nasty name",   format!("7 (a) Z 9 (b) R 1 6 5 {numbers}"),    Some((7, 4711, 1, 6, 5, false))),
            ("one that ended", format!("7 (sh) Z 1 7 7 {numbers}"),           Some((7, 4711, 1, 7, 7, true))),
            ("cut short",      "7 (sh) S 1 7".to_owned(),                     None),
            ("nothing",        String::new(),                                 None),
        ];
        for (name, text, expected) in cases {
            let read = Stat::read(&text).map(|stat| {
                (stat.process.pid, stat.process.started, stat.parent, stat.group, stat.session, stat.is_over)
            });
            assert_eq!(read, expected, "{name}");
        }
    }

    #[test]
    fn marks_are_read_back_and_nothing_else_is_one() {
        let mark = RunMark::new();
        assert_eq!(RunMark::read(mark.as_str()), Some(mark.clone()));
        assert_ne!(RunMark::new(), mark);
        for wrong in ["", "abc", "../../../../../../etc/passwd-00000", "0123456789abcdef0123456789abcdeg"] {
            assert_eq!(RunMark::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_start_too() {
        let own = i32::try_from(std::process::id()).expect("a small number");
        let real = Process::now(own).expect("we run");
        // Its number belonged to another process before: the signal would end this test.
        Process { started: real.started - 1, ..real }.signal(Signal::KILL);
        assert_eq!(Process::now(own), Some(real));
    }
}

//! The processes of a benchmark: started, measured, and ended on drop.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

const START_MAX: Duration = Duration::from_secs(120);

/// The unit of CPU time in `/proc`: 100 per second on every Linux that Rust supports.
const TICK: Duration = Duration::from_millis(10);

pub(super) struct Listener {
    child: Child,
    pub address: SocketAddr,
    /// From the start until it listens.
    pub ready_after: Duration,
    /// Kept open, so that further output does not fail.
    _out: BufReader<ChildStdout>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub cpu: Duration,
    /// Time its threads were ready to run and waited for a core, added up.
    pub queued: Duration,
    pub memory_bytes: u64,
    pub memory_bytes_peak: u64,
}

impl Listener {
    /// Starts a command whose first line ends with its address.
    pub(super) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let errors = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let started = Instant::now();
        let mut child = command.spawn().context("could not start a process of the bench")?;
        let out = child.stdout.take().expect("it is piped");
        let (said, first) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut line = String::new();
            // A process that ends silently has an empty first line.
            let _ = out.read_line(&mut line);
            let _ = said.send((line, started.elapsed(), out));
        });
        let said = first.recv_timeout(START_MAX).ok();
        let parsed = said.and_then(|(line, after, out)| Some((address_in(&line)?, after, out)));
        let Some((address, ready_after, out)) = parsed else {
            end(&mut child);
            bail!("a process of the bench did not start: {}", fs::read_to_string(log).unwrap_or_default());
        };
        Ok(Self { child, address, ready_after, _out: out })
    }

    pub(super) fn usage(&self) -> anyhow::Result<Usage> {
        usage(self.child.id())
    }

    /// As a power cut would.
    pub(super) fn kill(&mut self) {
        end(&mut self.child);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let last = line.split_whitespace().last()?;
    last.strip_prefix("http://").unwrap_or(last).parse().ok()
}

/// A process that prints its result at the end.
pub(super) struct Worker {
    child: Option<Child>,
    log: PathBuf,
}

impl Worker {
    pub(super) fn start(mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let errors = File::create(&log).with_context(|| format!("could not create {}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let child = command.spawn().context("could not start a process of the bench")?;
        Ok(Self { child: Some(child), log })
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        let mut child = self.child.take().expect("it is taken here and on drop only");
        // The process would end with its standard input.
        let keep_alive = child.stdin.take();
        let output = child.wait_with_output().context("could not wait for a process of the bench")?;
        drop(keep_alive);
        if !output.status.success() || output.stdout.is_empty() {
            bail!("the load failed: {}", fs::read_to_string(&self.log).unwrap_or_default());
        }
        Ok(output.stdout)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
    }
}

fn usage(id: u32) -> anyhow::Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{id}/{name}");
        fs::read_to_string(&path).with_context(|| format!("could not read {path}"))
    };
    let cpu = cpu_in(&read("stat")?).context("no CPU time in /proc")?;
    let status = read("status")?;
    let memory = |name| kibibytes_in(&status, name).map(|kibibytes| kibibytes * 1_024);
    Ok(Usage {
        cpu,
        queued: queued(id),
        memory_bytes: memory("VmRSS:").context("no memory size in /proc")?,
        memory_bytes_peak: memory("VmHWM:").context("no memory size in /proc")?,
    })
}

/// The second figure of each thread's `schedstat`; ended threads and kernels without it count as zero.
fn queued(id: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let of_thread = |path: PathBuf| queued_in(&fs::read_to_string(path.join("schedstat")).ok()?);
    threads.filter_map(|thread| of_thread(thread.path())).sum()
}

fn queued_in(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// User and system time: fields 14 and 15 of `stat`.
fn cpu_in(stat: &str) -> Option<Duration> {
    // The second field is the name in brackets, which may contain anything.
    let fields = stat.get(stat.rfind(')')? + 1..)?;
    let mut ticks = fields.split_whitespace().skip(11);
    let mut next = || ticks.next()?.parse::<u32>().ok();
    Some(TICK * (next()?.checked_add(next()?)?))
}

pub(super) fn kibibytes_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

pub(super) fn folder_bytes(folder: &Path) -> u64 {
    // A file that disappears meanwhile counts as zero.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_understood() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 3 0 1 2 3";
        assert_eq!(cpu_in(stat), Some(Duration::from_secs(2)));
        assert_eq!(queued_in("41018 2500000000 7\n"), Some(Duration::from_millis(2_500)));
        assert_eq!(queued_in(""), None);
        let status = "Name:\tredrive\nVmHWM:\t   10240 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(kibibytes_in(status, "VmRSS:"), Some(2_048));
        assert_eq!(kibibytes_in(status, "VmSwap:"), None);
    }

    #[test]
    fn the_first_line_says_where_it_listens() {
        let expected = Some(SocketAddr::from(([127, 0, 0, 1], 7_373)));
        assert_eq!(address_in("redrive serves on http://127.0.0.1:7373\n"), expected);
        assert_eq!(address_in("listening on 127.0.0.1:7373\n"), expected);
        assert_eq!(address_in(""), None);
    }
}

//! The machine: what it is, and the cost of a durable write.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use super::latency::{Latencies, Latency};
use super::process::kibibytes_in;

/// Limits of the timed syncs: count and time.
const SYNCS_MAX: usize = 300;
const SYNCS_TIME_MAX: Duration = Duration::from_secs(2);
/// One database page.
const PAGE: [u8; 4_096] = [0x5a; 4_096];

const WATCHED: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub cores: usize,
    pub model: String,
    pub memory_mib: u64,
    /// Of the data folder.
    pub file_system: String,
    /// `fdatasync` after writing a page.
    pub sync: Latency,
    /// Builds without optimisation say nothing about speed.
    pub build: &'static str,
}

impl Machine {
    pub(super) fn look(folder: &Path) -> anyhow::Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model: model_in(&cpu).unwrap_or("unknown").to_owned(),
            memory_mib: kibibytes_in(&memory, "MemTotal:").unwrap_or_default() / 1_024,
            file_system: file_system_of(folder).unwrap_or_else(|| "unknown".to_owned()),
            sync: time_syncs(folder).context("could not write to the data folder")?,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        })
    }
}

pub(super) fn others_busy() -> f64 {
    let times = || fs::read_to_string("/proc/stat").ok().and_then(|text| times_in(&text));
    let before = times();
    std::thread::sleep(WATCHED);
    match (before, times()) {
        (Some(before), Some(after)) => {
            let (busy, all) = (after.busy.saturating_sub(before.busy), after.all.saturating_sub(before.all));
            busy as f64 / all.max(1) as f64
        }
        // Unknown counts as idle.
        _ => 0.0,
    }
}

/// All cores since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    busy: u64,
    all: u64,
}

/// First line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; the following are
/// included in the first two.
fn times_in(stat: &str) -> Option<Times> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<u64>);
    let mut next = || fields.next()?.ok();
    let working = next()? + next()? + next()?;
    let idle = next()? + next()?;
    let taken = next()? + next()? + next()?;
    Some(Times { busy: working + taken, all: working + idle + taken })
}

fn model_in(cpu: &str) -> Option<&str> {
    let line = cpu.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn file_system_of(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    kind_in(&mounts, &folder).map(str::to_owned)
}

fn kind_in<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((Path::new(words.next()?), words.next()?))
    });
    // Of two mounts on one path, the later one counts.
    let above = mounts.filter(|(place, _)| folder.starts_with(place));
    above.max_by_key(|(place, _)| place.components().count()).map(|(_, kind)| kind)
}

fn time_syncs(folder: &Path) -> std::io::Result<Latency> {
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let mut latencies = Latencies::default();
    let begun = Instant::now();
    for _ in 0..SYNCS_MAX {
        let started = Instant::now();
        file.write_all(&PAGE)?;
        file.sync_data()?;
        latencies.add(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
        if begun.elapsed() > SYNCS_TIME_MAX {
            break;
        }
    }
    drop(file);
    fs::remove_file(path)?;
    Ok(latencies.quantiles())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_understood() {
        assert_eq!(model_in("processor\t: 0\nmodel name\t: A Fast One\n"), Some("A Fast One"));
        let stat = "cpu  10 20 30 400 500 1 2 3 99 99\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(times_in(stat), Some(Times { busy: 66, all: 966 }));
        assert_eq!(times_in("intr 1 2"), None);
        let mounts = "a / ext4 rw 0 0\nb /data xfs rw 0 0\nc /data tmpfs rw 0 0\n";
        #[rustfmt::skip]
        let cases = [("/etc", Some("ext4")), ("/data/bench", Some("tmpfs")), ("/database", Some("ext4"))];
        for (folder, expected) in cases {
            assert_eq!(kind_in(mounts, Path::new(folder)), expected, "{folder}");
        }
    }
}

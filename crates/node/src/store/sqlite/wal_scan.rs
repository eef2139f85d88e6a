//! Scans a write-ahead log before SQLite opens it, and finds commits that SQLite would drop silently.
//!
//! SQLite reads up to the first frame with a wrong checksum and ignores the rest as unfinished. That is right at
//! the end of a log. But each commit is synced before the next is written: if more frames of the same log follow
//! the bad frame's transaction, it is damage, and commits from there on were acknowledged. In the very last
//! transaction, damage cannot be distinguished from a torn write.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The lowest bit is the byte order of checksums.
const MAGIC: u32 = 0x377f_0682;
const VERSION: u32 = 3_007_000;
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalScan {
    Whole,
    /// The last transaction is damaged or was never finished.
    Unfinished,
    /// First unreadable frame, from 1, and the number of commits from there on.
    Lost {
        frame: u64,
        commits: u64,
    },
}

/// `page_bytes` is used if the log's header is unreadable.
pub(super) fn walk(path: &Path, page_bytes: u32) -> io::Result<WalScan> {
    match File::open(path) {
        Ok(file) => walk_log(BufReader::with_capacity(1 << 18, file), page_bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(WalScan::Whole),
        Err(error) => Err(error),
    }
}

fn walk_log(mut log: impl Read, page_bytes: u32) -> io::Result<WalScan> {
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut log, &mut header)? {
        return Ok(WalScan::Whole);
    }
    let start = WalHeader::read(&header);
    let page_bytes = start.map_or(page_bytes, |start| start.page_bytes);
    let mut chain = start.map(|start| start.chain);
    let mut salts = start.map(|start| start.salts);
    let mut page = vec![0; page_bytes as usize];
    let mut head = [0; FRAME_HEADER_BYTES];
    let (mut frame, mut first_bad, mut commits, mut followed) = (0, None, 0_u64, false);
    while fill(&mut log, &mut head)? && fill(&mut log, &mut page)? {
        frame += 1;
        // Without a header, the first frame identifies the log.
        let is_ours = *salts.get_or_insert(word_pair(&head, 8)) == word_pair(&head, 8) && word(&head, 0) > 0;
        if first_bad.is_none() {
            chain = chain.filter(|_| is_ours).and_then(|chain| chain.follow(&head, &page));
            if chain.is_some() {
                continue;
            }
            first_bad = Some(frame);
        }
        if is_ours {
            followed |= commits > 0;
            commits += u64::from(word(&head, 4) > 0);
        }
    }
    Ok(match first_bad {
        Some(frame) if followed => WalScan::Lost { frame, commits },
        Some(_) if commits > 0 => WalScan::Unfinished,
        Some(_) | None => WalScan::Whole,
    })
}

#[derive(Clone, Copy)]
struct WalHeader {
    page_bytes: u32,
    salts: (u32, u32),
    chain: WalChecksum,
}

impl WalHeader {
    /// `None` if it is damaged.
    fn read(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (magic, page_bytes) = (word(header, 0), word(header, 8));
        if magic & !1 != MAGIC || word(header, 4) != VERSION {
            return None;
        }
        if !PAGE_BYTES.contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return None;
        }
        let number = if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
        let chain = WalChecksum { sums: (0, 0), number }.over(&header[..24]);
        (chain.sums == word_pair(header, 24)).then(|| Self {
            page_bytes,
            salts: word_pair(header, 16),
            chain,
        })
    }
}

/// Running checksum up to a frame.
#[derive(Clone, Copy)]
struct WalChecksum {
    sums: (u32, u32),
    number: fn([u8; 4]) -> u32,
}

impl WalChecksum {
    fn over(mut self, bytes: &[u8]) -> Self {
        let (mut one, mut two) = self.sums;
        for pair in bytes.chunks_exact(8) {
            let number = |at: usize| (self.number)([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
            one = one.wrapping_add(number(0)).wrapping_add(two);
            two = two.wrapping_add(number(4)).wrapping_add(one);
        }
        self.sums = (one, two);
        self
    }

    /// `None` if the frame's checksum is wrong.
    fn follow(self, head: &[u8; FRAME_HEADER_BYTES], page: &[u8]) -> Option<Self> {
        let next = self.over(&head[..8]).over(page);
        (next.sums == word_pair(head, 16)).then_some(next)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn word_pair(bytes: &[u8], at: usize) -> (u32, u32) {
    (word(bytes, at), word(bytes, at + 4))
}

/// False at the end of the file.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    const PAGE_OF_LOG: u32 = 512;
    const PAGE: usize = PAGE_OF_LOG as usize;
    const FRAME: usize = FRAME_HEADER_BYTES + PAGE;

    /// A log of four commits with several frames each, as SQLite writes it, and where each commit ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.db");
        let connection = Connection::open(&path).expect("it opens");
        let setup = "PRAGMA page_size = 512; PRAGMA journal_mode = wal; PRAGMA wal_autocheckpoint = 0;
            CREATE TABLE t (data BLOB)";
        connection.execute_batch(setup).expect("it is SQL");
        let log = folder.path().join("a.db-wal");
        let mut ends = vec![];
        for _ in 0..4 {
            connection.execute("INSERT INTO t VALUES (randomblob(1500))", []).expect("it is written");
            ends.push(std::fs::read(&log).expect("a log").len());
        }
        (std::fs::read(&log).expect("a log"), ends)
    }

    #[test]
    fn commits_behind_a_bad_frame_are_found() {
        let (log, ends) = log();
        let walk = |bytes: &[u8]| walk_log(bytes, PAGE_OF_LOG).expect("memory can be read");
        let flip = |at: usize| {
            let mut bytes = log.clone();
            bytes[at] ^= 1;
            walk(&bytes)
        };
        let frame_at = |at: usize| (at - HEADER_BYTES) / FRAME + 1;
        let lost = |at: usize, commits| WalScan::Lost { frame: frame_at(at) as u64, commits };
        assert_eq!(walk(&log), WalScan::Whole);
        assert_eq!(walk(&[]), WalScan::Whole);
        let page_of = |end: usize| end + FRAME_HEADER_BYTES + 30;
        #[rustfmt::skip]
        let cases = [
            ("in the second commit",        page_of(ends[0]),      lost(page_of(ends[0]), 3)),
            ("in the third",                page_of(ends[1]),      lost(page_of(ends[1]), 2)),
            ("in the page that ends it",    ends[2] - 9,           lost(ends[2] - 9, 2)),
            ("in a frame's salt",           ends[1] + 9,           lost(ends[1] + 9, 2)),
            ("in the last commit",          page_of(ends[2]),      WalScan::Unfinished),
            ("in the very last page",       ends[3] - 9,           WalScan::Unfinished),
            ("in the header's salt",        17,                    WalScan::Lost { frame: 1, commits: 5 }),
            ("in the header's magic",       0,                     WalScan::Lost { frame: 1, commits: 5 }),
        ];
        for (name, at, expected) in cases {
            assert_eq!(flip(at), expected, "{name}");
        }
        for cut in (0..=log.len()).step_by(77) {
            assert_eq!(walk(&log[..cut]), WalScan::Whole, "what was never written is no loss: cut at {cut}");
        }
    }

    #[test]
    fn what_an_earlier_round_of_the_log_left_is_no_loss() {
        let (old, _) = log();
        let (new, ends) = log();
        let mut both = new[..ends[1]].to_vec();
        both.extend_from_slice(&old[ends[1]..]);
        assert_eq!(walk_log(&both[..], PAGE_OF_LOG).expect("memory can be read"), WalScan::Whole);
    }
}

//! A real folder: what is written to it, what is found in it, and what is in the way.

use std::os::unix::fs::{PermissionsExt, symlink};

use redrive_core::ids::{Receipt, Seq};
use rustix::fs::FileType;
use tempfile::TempDir;

use super::super::entry::tests::view;
use super::*;

const DAY: &str = "2025-10-21";

fn entry(place: u64, id: &str, data: &'static [u8]) -> Arc<ArchiveEntry> {
    Arc::new(ArchiveEntry::of(&view(place, id, data)))
}

fn archive() -> (TempDir, PathBuf, FolderArchive) {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("deep/archive");
    let archive = FolderArchive::new(&folder).expect("a thread");
    (home, folder, archive)
}

fn by_id(id: &str) -> ArchiveKey {
    ArchiveKey::Id(id.to_owned())
}

/// Every path below a folder.
fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("it is there");
        if entry.file_type().expect("it has one").is_dir() {
            found.extend(paths(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

#[tokio::test]
async fn events_are_found_by_id_and_by_receipt() {
    let (_home, folder, archive) = archive();
    archive.put(entry(1, "a", b"one")).await.expect("it is written");
    archive.put(entry(3, "b", b"two")).await.expect("it is written");
    // The same id of another source, or of another time.
    archive.put(entry(5, "a", b"three")).await.expect("it is written");
    archive.sync().await.expect("it is durable");
    let mut found: Vec<_> =
        archive.get(by_id("a")).await.expect("it looks").kept.into_iter().map(|one| one.data).collect();
    found.sort();
    assert_eq!(found, [&b"one"[..], b"three"]);
    let receipt = ArchiveKey::Receipt(Receipt::of(Seq::new(3)));
    let found = find(&folder, &receipt).expect("it looks").kept;
    assert_eq!((found.len(), found[0].id.as_str(), &found[0].data[..]), (1, "b", &b"two"[..]));
    assert!(find(&folder, &by_id("c")).expect("it looks").kept.is_empty());
    assert!(find(&folder, &ArchiveKey::Receipt(Receipt::of(Seq::new(9)))).expect("it looks").kept.is_empty());
}

#[tokio::test]
async fn writing_twice_changes_nothing_and_leaves_nothing() {
    let (_home, folder, archive) = archive();
    let one = entry(1, "a", b"one");
    archive.put(Arc::clone(&one)).await.expect("it is written");
    let before = paths(&folder);
    let file = folder.join(DAY).join(&one.bucket).join(&one.file);
    // What a crash has left behind.
    let temporary = file.with_file_name(format!(".{}", one.file));
    fs::write(&temporary, "half").expect("it is written");
    archive.put(Arc::clone(&one)).await.expect("it is written");
    archive.sync().await.expect("it is durable");
    archive.sync().await.expect("nothing is to be done");
    assert_eq!(paths(&folder), before);
    assert_eq!(fs::read(file).expect("it is there"), one.bytes);
}

#[tokio::test]
async fn only_the_owner_can_read_it() {
    let (_home, folder, archive) = archive();
    archive.put(entry(1, "a", b"one")).await.expect("it is written");
    for path in paths(&folder).into_iter().chain([folder]) {
        let found = fs::metadata(&path).expect("it is there");
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.permissions().mode() & 0o777, expected, "{}", path.display());
    }
}

#[tokio::test]
async fn an_id_that_looks_like_a_path_goes_nowhere_else() {
    let (home, folder, archive) = archive();
    for id in ["../../etc/passwd", "/etc/passwd", "..", "a/../../b"] {
        archive.put(entry(1, id, b"x")).await.expect("it is written");
        assert_eq!(find(&folder, &by_id(id)).expect("it looks").kept.len(), 1, "{id}");
    }
    let outside = paths(home.path()).into_iter().filter(|path| !path.starts_with(&folder));
    assert_eq!(outside.collect::<Vec<_>>(), [home.path().join("deep")]);
}

#[tokio::test]
async fn a_link_within_the_archive_is_not_followed() {
    let (home, folder, archive) = archive();
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).expect("it is made");
    let one = entry(1, "a", b"one");
    fs::create_dir_all(&folder).expect("it is made");
    symlink(&elsewhere, folder.join(DAY)).expect("it is linked");
    let refused = archive.put(Arc::clone(&one)).await;
    assert!(matches!(refused, Err(ArchiveFailure::Credentials { .. })), "{refused:?}");
    assert!(paths(&elsewhere).is_empty());
    assert!(find(&folder, &by_id("a")).expect("it looks").kept.is_empty());
    fs::remove_file(folder.join(DAY)).expect("it is removed");
    // A link in the place of a file is replaced, and what it led to stays.
    let victim = home.path().join("victim");
    fs::write(&victim, "precious").expect("it is written");
    fs::create_dir_all(folder.join(DAY).join(&one.bucket)).expect("it is made");
    symlink(&victim, folder.join(DAY).join(&one.bucket).join(&one.file)).expect("it is linked");
    symlink(&victim, folder.join(DAY).join(&one.bucket).join(format!(".{}", one.file)))
        .expect("it is linked");
    archive.put(one).await.expect("it is written");
    assert_eq!(fs::read_to_string(victim).expect("it is there"), "precious");
    assert_eq!(find(&folder, &by_id("a")).expect("it looks").kept.len(), 1);
}

#[tokio::test]
async fn a_file_in_the_place_of_the_folder_needs_somebody() {
    let (home, folder, archive) = archive();
    fs::write(home.path().join("deep"), "no folder").expect("it is written");
    let refused = archive.put(entry(1, "a", b"one")).await;
    assert!(matches!(refused, Err(ArchiveFailure::Credentials { .. })), "{refused:?}");
    fs::remove_file(home.path().join("deep")).expect("it is removed");
    archive.put(entry(1, "a", b"one")).await.expect("it goes on by itself");
    assert_eq!(find(&folder, &by_id("a")).expect("it looks").kept.len(), 1);
}

#[test]
fn errors_of_the_file_system_say_what_follows() {
    #[rustfmt::skip]
    let cases = [
        ("a full disk",       Errno::NOSPC,  "Throttled"),
        ("a full share",      Errno::DQUOT,  "Throttled"),
        ("no right to",       Errno::ACCESS, "Credentials"),
        ("nobody may",        Errno::ROFS,   "Credentials"),
        ("a file in the way", Errno::NOTDIR, "Credentials"),
        ("a link",            Errno::LOOP,   "Credentials"),
        ("a broken disk",     Errno::IO,     "Other"),
    ];
    for (name, error, expected) in cases {
        let failure = failure(Path::new("/a"), &error.into());
        assert!(format!("{failure:?}").starts_with(expected), "{name}: {failure:?}");
        assert!(failure.to_string().contains("/a: "), "{failure}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_told_of_by_name() {
    let (_home, folder, archive) = archive();
    let one = entry(1, "a", b"one");
    archive.put(Arc::clone(&one)).await.expect("it is written");
    let file = folder.join(DAY).join(&one.bucket).join(&one.file);
    fs::write(&file, &one.bytes[..20]).expect("it is torn");
    let ArchiveMatches { kept, damaged } = find(&folder, &by_id("a")).expect("it looks");
    assert!(kept.is_empty() && damaged.len() == 1, "{kept:?} {damaged:?}");
    assert!(damaged[0].contains(&one.file) && damaged[0].contains("damaged"), "{damaged:?}");
}

#[tokio::test]
async fn what_somebody_has_put_beside_an_event_does_not_hide_it() {
    let (home, folder, archive) = archive();
    let one = entry(1, "a", b"one");
    archive.put(Arc::clone(&one)).await.expect("it is written");
    let bucket = folder.join(DAY).join(&one.bucket);
    let beside = |end: &str| bucket.join(format!("{}-{end}.json", entry::hash_of("a")));
    fs::create_dir(beside("folder")).expect("it is made");
    fs::write(beside("junk"), "junk").expect("it is written");
    File::create(beside("huge")).and_then(|file| file.set_len(1 << 40)).expect("it takes no room");
    symlink(bucket.join(&one.file), beside("link")).expect("it is linked");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, beside("pipe"), FileType::Fifo, mode, 0).expect("it is made");
    // A link to what looks like an archive leads nowhere either.
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).expect("it is made");
    fs::copy(bucket.join(&one.file), elsewhere.join(&one.file)).expect("it is copied");
    fs::create_dir(folder.join("2025-10-20")).expect("it is made");
    symlink(&elsewhere, folder.join("2025-10-20").join(&one.bucket)).expect("it is linked");

    let ArchiveMatches { kept, damaged } = find(&folder, &by_id("a")).expect("it looks");
    assert_eq!(kept.iter().map(|one| &one.data[..]).collect::<Vec<_>>(), [b"one"]);
    assert_eq!(damaged.len(), 5, "{damaged:?}");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_holds_up_nobody() {
    let (_home, folder, archive) = archive();
    let one = entry(1, "a", b"one");
    archive.put(Arc::clone(&one)).await.expect("it is written");
    let file = folder.join(DAY).join(&one.bucket).join(&one.file);
    fs::remove_file(&file).expect("it is ours");
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, FileType::Fifo, mode, 0).expect("it is made");
    assert!(archive.sync().await.is_err(), "nobody says that it is durable");
    archive.put(one).await.expect("it is written again");
    archive.sync().await.expect("it is durable");
    assert_eq!(find(&folder, &by_id("a")).expect("it looks").kept.len(), 1);
}

#[tokio::test]
async fn only_old_days_are_deleted() {
    let (home, folder, archive) = archive();
    let day = |name: &str| Day::parse(name).expect("a day");
    assert_eq!(archive.forget(day("2026-01-01")).await.expect("nothing is there yet"), 0);
    archive.put(entry(1, "a", b"one")).await.expect("it is written");
    let precious = home.path().join("precious");
    fs::create_dir_all(precious.join("inside")).expect("it is made");
    for name in ["2024-12-31/00", "2025-10-22", "1999-99-99", "lost+found", "backup"] {
        fs::create_dir_all(folder.join(name)).expect("it is made");
    }
    fs::write(folder.join("2020-01-01"), "a file").expect("it is written");
    symlink(&precious, folder.join("2021-01-01")).expect("it is linked");
    assert_eq!(archive.forget(day("2025-10-22")).await.expect("it is done"), 2);
    let mut left: Vec<_> =
        fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("one").file_name()).collect();
    left.sort();
    assert_eq!(left, ["1999-99-99", "2020-01-01", "2021-01-01", "2025-10-22", "backup", "lost+found"]);
    assert!(precious.join("inside").exists());
}

#[tokio::test]
async fn a_day_with_what_is_not_ours_keeps_no_other_from_being_deleted() {
    let (_home, folder, archive) = archive();
    for name in ["2024-12-31/00/deep/deeper", "2024-12-30/00", "2025-01-01/00"] {
        fs::create_dir_all(folder.join(name)).expect("it is made");
    }
    fs::write(folder.join("2024-12-30/00/file"), "x").expect("it is written");
    fs::write(folder.join("2024-12-30/file"), "x").expect("it is written");
    symlink("/", folder.join("2024-12-30/link")).expect("it is linked");
    let error = archive.forget(Day::parse("2025-10-22").expect("a day")).await.expect_err("one stays");
    assert!(error.to_string().contains("2024-12-31: "), "{error}");
    assert_eq!(days(&folder).expect("it looks").iter().map(Day::as_str).collect::<Vec<_>>(), ["2024-12-31"]);
}

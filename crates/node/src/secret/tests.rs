//! Secrets from real files and commands, and their outages in virtual time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redrive_core::book::connectors::built_in;
use tokio::time::{Instant, advance, sleep};

use super::*;

fn book_of(text: &str) -> RuleBook {
    let reading = redrive_core::book::read(text, built_in());
    reading.book.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

fn book(secret: &str) -> Arc<RuleBook> {
    Arc::new(book_of(&format!("version: 1\nsecrets:\n  hooks: {{ {secret} }}\n")))
}

/// The values as text, or the error.
fn told(values: Result<Arc<SecretValues>, SecretError>) -> Result<Vec<String>, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    values.map(|values| values.iter().map(text).collect()).map_err(|error| error.to_string())
}

/// What a command prints that a shell runs: the shell is the book's own choice here.
fn sh(script: &str) -> String {
    format!("command: [sh, -c, {}]", serde_json::Value::from(script))
}

#[tokio::test]
async fn secrets_are_found_where_the_book_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
        format!("file: \"{}\"", path(name))
    };
    let large = vec![b'x'; SECRET_BYTES_MAX + 1];
    let missing = format!("file: \"{}\"", path("missing"));
    let itself = format!("file: \"{}\"", folder.path().display());
    let error = |why: String| Err(format!("no value: {why}"));
    #[rustfmt::skip]
    let cases = [
        ("a file",              file("one", b"hunter2\n"),                  Ok(vec!["hunter2"])),
        ("two at once",         file("two", b" new \r\n\nold"),             Ok(vec!["new", "old"])),
        ("PEM text is one",     file("pem", b"# a key\n-----BEGIN X-----\na\n-----END X-----\n"), Ok(vec!["# a key\n-----BEGIN X-----\na\n-----END X-----"])),
        ("eight at once",       file("eight", b"1\n2\n3\n4\n5\n6\n7\n8"),   Ok(vec!["1", "2", "3", "4", "5", "6", "7", "8"])),
        ("nine at once",        file("nine", b"1\n2\n3\n4\n5\n6\n7\n8\n9"), error(format!("{} has more than 8 lines, one value each", path("nine")))),
        ("an empty file",       file("empty", b" \n"),                      error(format!("{} is empty", path("empty")))),
        ("no file",             missing,                                    error(format!("could not read {}: No such file or directory (os error 2)", path("missing")))),
        ("a folder",            itself,                                     error(format!("{} is not a file", folder.path().display()))),
        ("a large file",        file("large", &large),                      error(format!("{} is larger than 64 KiB", path("large")))),
        // Cargo sets this one for every test.
        ("a variable",          "env: CARGO_PKG_NAME".to_owned(),           Ok(vec!["redrive-node"])),
        ("no variable",         "env: REDRIVE_TEST_UNSET".to_owned(),       error("environment variable REDRIVE_TEST_UNSET is not set".to_owned())),
        ("a command",           sh("echo new; echo old >&1"),               Ok(vec!["new", "old"])),
        ("without a shell",     "command: [echo, $HOME; id]".to_owned(),    Ok(vec!["$HOME; id"])),
        ("a failing command",   sh("echo hunter2; echo hunter2 >&2; exit 3"), error("sh failed with exit code 3 (stderr is hidden, it may contain the secret)".to_owned())),
        ("a killed command",    sh("kill -9 $$"),                           error("sh was ended by signal 9 (SIGKILL) (stderr is hidden, it may contain the secret)".to_owned())),
        ("a silent command",    "command: [\"true\"]".to_owned(),           error("what true prints is empty".to_owned())),
        ("an endless command",  "command: [\"yes\"]".to_owned(),            error("what yes prints is larger than 64 KiB".to_owned())),
        ("no such command",     "command: [redrive-test-nobody]".to_owned(), error("could not run redrive-test-nobody: No such file or directory (os error 2)".to_owned())),
        ("a vault",             "key-vault: \"https://v.test/s\"".to_owned(), error("secret kind `key-vault` is not available in this version: use `env`, `file` or `command`".to_owned())),
    ];
    for (name, secret, expected) in cases {
        let expected = expected.map(|values| values.into_iter().map(str::to_owned).collect());
        assert_eq!(
            told(Secrets::new(&book(&secret), Drivers::built_in()).get("hooks").await),
            expected,
            "{name}"
        );
    }
    let other = Secrets::new(&book("env: A"), Drivers::built_in()).get("other").await;
    assert_eq!(told(other), Err("not defined in the rule book".to_owned()));
}

#[tokio::test]
async fn a_command_that_hangs_is_ended_with_its_children() {
    let folder = tempfile::tempdir().expect("a folder");
    let pids = folder.path().join("pids");
    let script = format!("sleep 600 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait", pids.display());
    let secrets = Secrets::new(&book(&sh(&script)), Drivers::built_in());
    let asked = {
        let secrets = secrets.clone();
        tokio::spawn(async move { told(secrets.get("hooks").await) })
    };
    // The clock stands still for nobody but the limit.
    let child = until(|| std::fs::read_to_string(&pids).ok()).await;
    let is_running = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).ok()?;
        (!stat.contains(") Z ")).then_some(())
    };
    assert!(is_running().is_some());
    tokio::time::pause();
    advance(FETCH_MAX).await;
    tokio::time::resume();
    assert_eq!(asked.await.expect("it ends"), Err("no value: no result within 10s".to_owned()));
    until(|| is_running().is_none().then_some(())).await;
}

/// Waits for what must come about by itself, and for no longer than a test may take.
async fn until<T>(look: impl Fn() -> Option<T>) -> T {
    for _ in 0..20_000 {
        if let Some(seen) = look() {
            return seen;
        }
        sleep(Duration::from_millis(1)).await;
    }
    panic!("it did not come about");
}

#[tokio::test]
async fn a_file_that_changes_is_read_within_a_second_and_a_bad_one_drops_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hooks");
    std::fs::write(&file, "first").expect("written");
    let secrets = Secrets::new(&book(&format!("file: \"{}\"", file.display())), Drivers::built_in());
    let later = async || {
        tokio::time::pause();
        advance(LOOK_EVERY).await;
        tokio::time::resume();
        told(secrets.get("hooks").await)
    };
    let values = |text: &str| Ok(text.split(' ').map(str::to_owned).collect::<Vec<_>>());
    // A look may take too long on a machine that is busy; the next one sees the same.
    let in_the_end = async |expected: &str, name: &str| {
        let mut last = later().await;
        for _ in 0..100 {
            if last == values(expected) {
                return;
            }
            last = later().await;
        }
        panic!("{name}: {last:?}");
    };
    in_the_end("first", "as it is").await;
    std::fs::write(&file, "other\nfirst").expect("written");
    assert_eq!(told(secrets.get("hooks").await), values("first"), "nobody looks twice in a second");
    in_the_end("other first", "written anew").await;
    let new = folder.path().join("new");
    std::fs::write(&new, "third").expect("written");
    std::fs::rename(&new, &file).expect("renamed");
    in_the_end("third", "put in its place").await;
    std::fs::write(&file, "").expect("written");
    assert_eq!(later().await, values("third"), "half written");
    std::fs::remove_file(&file).expect("removed");
    assert_eq!(later().await, values("third"), "on its way");
    std::fs::write(&file, "third").expect("written");
    assert_eq!(later().await, values("third"), "the same again");
    std::fs::write(&file, "forth").expect("written");
    in_the_end("forth", "of the same length").await;
}

/// A vault that counts how often it is asked, and answers with that number.
#[derive(Default)]
struct Vault {
    asked: AtomicU32,
    is_down: AtomicBool,
    takes: Mutex<Duration>,
}

impl SecretSource for Vault {
    fn fetch(&self) -> ConnectorFuture<'_, Result<SecretValues, SecretError>> {
        let takes = *self.takes.lock().expect("lock is not poisoned");
        Box::pin(async move {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(takes).await;
            if self.is_down.load(Ordering::SeqCst) {
                return Err(SecretError::Vault("the vault is sealed".into()));
            }
            SecretValues::from_lines(format!("hunter{number}").as_bytes(), "the vault")
        })
    }
}

const VAULT: &str = "key-vault: \"https://v.test/s\"";

/// Secrets of a vault, and the news of them.
fn kept_in(vault: &Arc<Vault>, book: &Arc<RuleBook>) -> (Secrets, Arc<Mutex<Vec<SecretChange>>>) {
    let vault = Arc::clone(vault);
    let open = Box::new(move |_: &Endpoint| Arc::clone(&vault) as Arc<dyn SecretSource>);
    let secrets = Secrets::opened_by(book, open);
    let news = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&news);
    secrets.listen(move |news| heard.lock().expect("lock is not poisoned").push(news));
    (secrets, news)
}

/// Lets what runs in the background end, without a moment passing.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_vault_is_bridged_for_half_an_hour_and_then_refused_and_told_once() {
    let vault = Arc::new(Vault::default());
    let (secrets, news) = kept_in(&vault, &book(VAULT));
    let gone = |age: &str| format!("value expired after {age}: the vault is sealed");
    #[rustfmt::skip]
    let steps = [
        ("the first fetch",           0,     "up",   Ok("hunter1"),       0),
        ("fresh",                     299,   "down", Ok("hunter1"),       0),
        ("past its time, it serves",  300,   "down", Ok("hunter1"),       0),
        ("and serves",                1_740, "down", Ok("hunter1"),       0),
        ("to the last",               1_799, "down", Ok("hunter1"),       0),
        ("no longer",                 1_800, "down", Err(gone("30m")),    1),
        ("which is told once",        2_400, "down", Err(gone("40m")),    1),
        ("it is back",                2_460, "up",   Ok("hunter6"),       2),
        ("and stays",                 2_520, "up",   Ok("hunter6"),       2),
    ];
    let began = Instant::now();
    for (name, seconds, state, expected, told_so_far) in steps {
        vault.is_down.store(state == "down", Ordering::SeqCst);
        advance(Duration::from_secs(seconds).saturating_sub(began.elapsed())).await;
        let expected = expected.map(|value| vec![value.to_owned()]);
        assert_eq!(told(secrets.get("hooks").await), expected, "{name}");
        settle().await;
        assert_eq!(news.lock().expect("lock is not poisoned").len(), told_so_far, "{name}");
    }
    let expected = [
        SecretChange::Gone { name: "hooks".to_owned(), why: "the vault is sealed".to_owned() },
        SecretChange::Back { name: "hooks".to_owned() },
    ];
    assert_eq!(*news.lock().expect("lock is not poisoned"), expected);
}

#[tokio::test(start_paused = true)]
async fn who_asks_after_the_secrets_hears_of_those_that_ail_and_of_no_others() {
    let vault = Arc::new(Vault::default());
    let (secrets, _) = kept_in(&vault, &book(VAULT));
    #[rustfmt::skip]
    let steps = [
        ("all is well",             0,     "up",   None),
        ("the old value serves",    300,   "down", Some("stale")),
        ("it serves no more",       1_800, "down", Some("gone")),
        ("it is back, unasked for", 1_860, "up",   None),
    ];
    let began = Instant::now();
    for (name, seconds, state, expected) in steps {
        vault.is_down.store(state == "down", Ordering::SeqCst);
        advance(Duration::from_secs(seconds).saturating_sub(began.elapsed())).await;
        if state == "down" || seconds == 0 {
            // What is past its time is fetched in the background, so the second to ask knows of it.
            for _ in 0..2 {
                let _ = secrets.get("hooks").await;
                settle().await;
            }
        }
        let ailing = secrets.failing().await;
        let shown = ailing.iter().map(|(name, ailing)| (name.as_str(), ailing.state.as_str()));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            Vec::from_iter(expected.map(|state| ("hooks", state))),
            "{name}"
        );
        assert!(ailing.iter().all(|(_, ailing)| ailing.why == "the vault is sealed"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_book_says_how_long_a_value_is_fresh_and_how_long_it_serves() {
    let vault = Arc::new(Vault::default());
    let (secrets, _) = kept_in(&vault, &book(&format!("{VAULT}, cached: 10s, kept: 1m")));
    secrets.get("hooks").await.expect("the first fetch");
    vault.is_down.store(true, Ordering::SeqCst);
    advance(Duration::from_secs(59)).await;
    assert_eq!(told(secrets.get("hooks").await), Ok(vec!["hunter1".to_owned()]));
    settle().await;
    assert_eq!(vault.asked.load(Ordering::SeqCst), 2);
    advance(Duration::from_secs(1)).await;
    assert!(told(secrets.get("hooks").await).is_err());
}

#[tokio::test(start_paused = true)]
async fn another_book_keeps_what_was_fetched_from_the_same_place() {
    let vault = Arc::new(Vault::default());
    let (secrets, _) = kept_in(&vault, &book(VAULT));
    assert_eq!(told(secrets.get("hooks").await), Ok(vec!["hunter1".to_owned()]));
    secrets.change(&book(&format!("{VAULT}, cached: 10s")));
    assert_eq!(told(secrets.get("hooks").await), Ok(vec!["hunter1".to_owned()]), "the same place");
    advance(Duration::from_secs(10)).await;
    secrets.get("hooks").await.expect("it serves");
    settle().await;
    assert_eq!(vault.asked.load(Ordering::SeqCst), 2, "the new lifetimes hold");
    let renamed = format!("version: 1\nsecrets: {{ calls: {{ {VAULT} }}, twin: {{ {VAULT} }} }}\n");
    secrets.change(&Arc::new(book_of(&renamed)));
    assert_eq!(told(secrets.get("calls").await), Ok(vec!["hunter2".to_owned()]), "by another name");
    assert_eq!(told(secrets.get("twin").await), Ok(vec!["hunter3".to_owned()]), "only one has it");
    secrets.change(&book(VAULT));
    assert_eq!(vault.asked.load(Ordering::SeqCst), 3);
    secrets.change(&book("key-vault: \"https://v.test/other\""));
    assert_eq!(told(secrets.get("hooks").await), Ok(vec!["hunter4".to_owned()]), "another place");
    secrets.change(&Arc::new(book_of("version: 1\n")));
    assert_eq!(told(secrets.get("hooks").await), Err("not defined in the rule book".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_fetched_anew_soon_but_not_often() {
    let vault = Arc::new(Vault::default());
    let (secrets, _) = kept_in(&vault, &book(VAULT));
    let one = |value: &str| Ok(vec![value.to_owned()]);
    assert_eq!(told(secrets.get("hooks").await), one("hunter1"));
    advance(Duration::from_secs(9)).await;
    assert_eq!(told(secrets.renewed("hooks").await), one("hunter1"), "that was a moment ago");
    advance(Duration::from_secs(1)).await;
    assert_eq!(told(secrets.renewed("hooks").await), one("hunter2"));
    *vault.takes.lock().expect("lock is not poisoned") = Duration::from_secs(3);
    advance(RENEW_EVERY).await;
    let began = Instant::now();
    assert_eq!(told(secrets.renewed("hooks").await), one("hunter2"), "what there is");
    assert_eq!(began.elapsed(), RENEW_WAIT_MAX);
    sleep(Duration::from_secs(3)).await;
    settle().await;
    assert_eq!(told(secrets.get("hooks").await), one("hunter3"), "which came in the end");

    let (empty, _) = kept_in(&vault, &book(VAULT));
    let slow = Err("still being fetched".to_owned());
    assert_eq!(told(empty.renewed("hooks").await), slow);
    let (empty, _) = kept_in(&vault, &book(VAULT));
    assert_eq!(told(empty.get_within("hooks", Duration::from_secs(1)).await), slow);
    assert!(empty.get_within("hooks", Duration::from_secs(3)).await.is_ok(), "it comes in all the same");
}

#[tokio::test(start_paused = true)]
async fn what_is_warmed_is_there_and_what_cannot_be_had_is_told() {
    let vault = Arc::new(Vault::default());
    let unused = "idle: { key-vault: \"https://v.test/i\" }";
    let source = "g: { webhook: { scheme: github, secret: hooks }, type: a.b }";
    let book = Arc::new(book_of(&format!(
        "version: 1\nsecrets:\n  hooks: {{ {VAULT} }}\n  {unused}\nsources:\n  {source}\n"
    )));
    let (secrets, news) = kept_in(&vault, &book);
    secrets.warm(&book);
    settle().await;
    assert_eq!(vault.asked.load(Ordering::SeqCst), 1);
    assert_eq!(told(secrets.get("hooks").await), Ok(vec!["hunter1".to_owned()]));
    assert!(news.lock().expect("lock is not poisoned").is_empty());
    vault.is_down.store(true, Ordering::SeqCst);
    let (secrets, news) = kept_in(&vault, &book);
    secrets.warm(&book);
    settle().await;
    assert_eq!(news.lock().expect("lock is not poisoned").len(), 1);
}

#[test]
fn only_secrets_that_are_used_and_can_be_read_at_once_are_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing").display().to_string();
    let book = book_of(&format!(
        "version: 1
secrets:
  idle: {{ env: REDRIVE_TEST_UNSET }}
  target: {{ env: REDRIVE_TEST_UNSET }}
  channel: {{ file: \"{missing}\" }}
  hook: {{ key-vault: \"https://v.test/s\" }}
  token: {{ env: REDRIVE_TEST_UNSET }}
  good: {{ env: CARGO_PKG_NAME }}
  unsure: {{ command: [redrive-test-nobody] }}
access: {{ jwt: {{ secret: token, issuer: me, audience: you }} }}
sources:
  a: {{ webhook: {{ scheme: github, secret: hook }}, type: a.b }}
  b: {{ webhook: {{ scheme: github, secret: unsure }}, type: a.b }}
services:
  shop:
    target: {{ http: \"http://h/\", secret: target }}
    events: [a.b]
    channels:
      mail: {{ target: {{ http: \"http://h/\", secret: channel }}, events: [a.b] }}
      push: {{ target: {{ http: \"http://h/\", secret: good }}, events: [a.b] }}
"
    ));
    let told = Secrets::check(&book, Drivers::built_in()).into_iter().map(|problem| {
        let Problem { severity, code, span, message, help: _ } = problem;
        format!("{} {severity} {code}: {message}", span.position).replace(&missing, "FILE")
    });
    let mut told: Vec<String> = told.collect();
    told.sort();
    assert_eq!(
        told,
        [
            "4:3 error secret-unavailable: the secret `target`: environment variable REDRIVE_TEST_UNSET is not set",
            "5:3 error secret-unavailable: the secret `channel`: could not read FILE: No such file or directory (os error 2)",
            "6:3 error secret-unavailable: the secret `hook`: secret kind `key-vault` is not available in this version: use `env`, `file` or `command`",
            "7:3 error secret-unavailable: the secret `token`: environment variable REDRIVE_TEST_UNSET is not set",
        ]
    );
}

/// Writes down what is logged, message and fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, _metadata: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &tracing::field::Field, value: &dyn fmt::Debug| {
            line.push_str(&format!(" {field}={value:?}"));
        });
        self.0.lock().expect("lock is not poisoned").push(line);
    }

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_once_a_minute_and_its_end_is_too_and_never_the_value() {
    let vault = Arc::new(Vault::default());
    let (secrets, news) = kept_in(&vault, &book(VAULT));
    let log = Log::default();
    // With a single listener, whoever logs first decides for all whether a line is of interest, and other
    // tests log too.
    let _second = tracing::Dispatch::new(Log::default());
    let _logging = tracing::subscriber::set_default(log.clone());
    // Every ten seconds for an hour; the vault is away from the first minute to the fiftieth.
    for step in 0..360 {
        vault.is_down.store((6..300).contains(&step), Ordering::SeqCst);
        let _ = secrets.get("hooks").await;
        settle().await;
        advance(Duration::from_secs(10)).await;
    }
    let log = log.0.lock().expect("lock is not poisoned");
    let of = |level: &str| log.iter().filter(|line| line.starts_with(level)).count();
    assert_eq!(log.len(), 27, "{log:#?}");
    assert_eq!((of("WARN"), of("ERROR"), of("INFO")), (25, 1, 1));
    assert_eq!(
        log[0],
        "WARN message=secret not fetched, using cached value secret=\"hooks\" age=\"5m10s\" error=the vault is sealed"
    );
    let shown = format!("{log:?} {:?}", news.lock().expect("lock is not poisoned"));
    assert!(!shown.contains("hunter"), "{shown}");
}

#[tokio::test]
async fn nothing_shows_a_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hooks");
    std::fs::write(&file, "hunter2\n".repeat(9)).expect("written");
    let secrets = Secrets::new(&book(&format!("file: \"{}\"", file.display())), Drivers::built_in());
    let too_many = secrets.get("hooks").await.expect_err("nine values");
    let failing = Secrets::new(&book(&sh("echo hunter2; echo hunter2 >&2; exit 1")), Drivers::built_in());
    let failed = failing.get("hooks").await.expect_err("it fails");
    std::fs::write(&file, "hunter2").expect("written");
    let values = SecretValues::from_lines(b"hunter2", "here").expect("a value");
    // The arguments of a command are the book's, and are shown by nothing but the book.
    let shown = [
        format!("{secrets:?} {secrets:#?} {values:?} {values:#?}"),
        format!("{too_many} {too_many:?} {failed} {failed:?}"),
    ];
    for shown in shown {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!shown.contains("104, 117"), "{shown}");
    }
}

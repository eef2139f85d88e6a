//! A rule book for a program's calls: guards, and how they follow a changed book.
//!
//! Invariants:
//! - a guard reads one book or the next, never parts of both;
//! - a book with an error changes nothing, and the error has its position;
//! - the state of a dependency, its breaker included, survives a reload.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard as Peeked};
use redrive_core::book::problem::{Problem, ProblemSeverity, suggest};
use redrive_core::book::{ParsedBook, RuleBook, connectors, read_bytes};
use redrive_core::ids::DependencyName;
use redrive_core::policy::admission::AdmissionSettings;
use redrive_core::policy::budget::BudgetSettings;
use redrive_core::policy::rule::Rule;
use tokio::runtime::Handle;

use super::Guard;
use super::clock::GuardClock;
use super::dependency::GuardedDependency;
use super::fast_path::RuleNeeds;
use super::link::Link;
use crate::load::{LoadError, load};
use crate::shared::SharedState;

const WATCH_EVERY: Duration = Duration::from_secs(1);
/// How often idle shared breakers are compared.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

/// A rule book. Clones are cheap and are the same book.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redrive::Book;
///
/// let book = Book::parse("version: 1\ndependencies: { ntfy: { kind: ntfy, timeout: 2s } }\n")?;
/// let ntfy = book.guard("ntfy")?;
/// // A new book holds for guards that there are; one with an error changes nothing and says why.
/// book.reload("version: 1\ndependencies: { ntfy: { kind: ntfy, timeout: 5s } }\n")?;
/// let wrong = book.reload("version: 1\ndependencies: { ntfy: { kind: ntfyy } }\n").unwrap_err();
/// assert!(wrong.to_string().contains("rule book:2:31: error"), "{wrong}");
///
/// let limit = ntfy.call(|attempt| async move { Ok::<_, Never>(attempt.limit()) }).await?;
/// assert_eq!(limit.as_secs(), 5);
/// # Ok(()) }
/// # #[derive(Debug, thiserror::Error)] #[error("never")] struct Never;
/// # impl redrive::Classify for Never { fn answer(&self) -> redrive::core::policy::answer::TargetAnswer<'_> { unreachable!() } }
/// ```
#[derive(Clone, Debug)]
pub struct Book {
    shelf: Arc<BookState>,
}

/// A text is not a valid book, or its file could not be read.
///
/// Its `Debug` form is readable, with positions: a `main` that returns it prints that.
#[non_exhaustive]
pub enum BookError {
    /// The file could not be read.
    Unreadable(LoadError),
    /// The book has errors.
    Wrong {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// The errors, in the order of the book.
        problems: Vec<Problem>,
    },
    /// The book was parsed from a text, so there is no file to read again.
    NoFile,
}

impl fmt::Display for BookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::NoFile => f.write_str("rule book was parsed from a text and has no file"),
            Self::Wrong { path, problems } => {
                let name = path.as_ref().map_or("rule book".into(), |path| path.display().to_string());
                let errors =
                    problems.iter().filter(|problem| problem.severity == ProblemSeverity::Error).count();
                write!(f, "{name} has {errors} {}", if errors == 1 { "error" } else { "errors" })?;
                for Problem { severity, span, message, help, .. } in problems {
                    let place = span.position;
                    write!(f, "\n{name}:{}:{}: {severity}: {message}", place.line, place.column)?;
                    if !help.is_empty() {
                        write!(f, "\n  {help}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for BookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.source().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl Error for BookError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreadable(error) => error.source(),
            Self::Wrong { .. } | Self::NoFile => None,
        }
    }
}

/// The book does not define this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rule book has no {wanted}: {help}")]
pub struct UnknownGuard {
    wanted: String,
    help: String,
}

impl Book {
    /// Parses a book.
    pub fn parse(text: &str) -> Result<Self, BookError> {
        let book = checked(text.as_bytes(), None)?;
        Ok(Self { shelf: Arc::new(BookState::new(book, None)) })
    }

    /// Reads a book from a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, BookError> {
        let path = path.as_ref();
        let stamp = stamp(path);
        let book = read_file(path)?;
        let file = BookFile { path: path.to_owned(), stamp: Mutex::new(stamp) };
        Ok(Self { shelf: Arc::new(BookState::new(book, Some(file))) })
    }

    /// The guard of a dependency, with the values of the dependency, its kind and the defaults.
    pub fn guard(&self, dependency: &str) -> Result<Guard, UnknownGuard> {
        self.shelf.guard(GuardName::GuardedDependency(dependency.to_owned())).ok_or_else(|| {
            let book = self.rules();
            let known = book.sections().dependencies.keys().map(DependencyName::as_str);
            let help = suggest(dependency, known);
            UnknownGuard { wanted: format!("dependency `{dependency}`"), help }
        })
    }

    /// The guard for events of a type to a service or one of its channels: the rule of a delivery.
    pub fn guard_for(
        &self,
        service: &str,
        channel: Option<&str>,
        event_type: &str,
    ) -> Result<Guard, UnknownGuard> {
        let wanted = GuardName::Row {
            service: service.to_owned(),
            channel: channel.map(str::to_owned),
            event_type: event_type.to_owned(),
        };
        let shown = wanted.to_string();
        self.shelf.guard(wanted).ok_or_else(|| {
            let book = self.rules();
            let help = if book.service(service).is_some() {
                "the service does not take such an event there".to_owned()
            } else {
                suggest(service, book.sections().services.iter().map(|entry| entry.name.as_str()))
            };
            UnknownGuard { wanted: shown, help }
        })
    }

    /// Replaces the book for existing and new guards. A book with an error changes nothing.
    ///
    /// A guard whose dependency or row is gone keeps its last rule.
    pub fn reload(&self, text: &str) -> Result<(), BookError> {
        let book = checked(text.as_bytes(), None)?;
        self.shelf.change_to(book);
        Ok(())
    }

    /// Reads the file again and replaces the book.
    pub fn reload_file(&self) -> Result<(), BookError> {
        self.shelf.reload_file()
    }

    /// Watches the file, once a second, and reloads it when it changes. A file with an error is logged, and
    /// the old book stays.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn watch(&self) -> Result<(), BookError> {
        if self.shelf.file.is_none() {
            return Err(BookError::NoFile);
        }
        tokio::spawn(follow(Arc::downgrade(&self.shelf)));
        Ok(())
    }

    /// Shares the breakers of all dependencies with other processes; see [`crate::shared`].
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn shared(self, state: Arc<dyn SharedState>) -> Self {
        self.shared_every(state, REFRESH_EVERY)
    }

    /// The same, with the interval at which idle breakers are compared.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    #[must_use]
    pub fn shared_every(self, state: Arc<dyn SharedState>, every: Duration) -> Self {
        let shared = SharedBreakers { state, every, runtime: Handle::current() };
        let mut contents = self.shelf.lock();
        for dependency in contents.dependencies.values() {
            shared.link(dependency, self.shelf.clock);
        }
        contents.shared = Some(shared);
        drop(contents);
        self
    }

    /// The current rules.
    #[must_use]
    pub fn rules(&self) -> Arc<RuleBook> {
        Arc::clone(&self.shelf.lock().book)
    }
}

/// The book and all that depends on it.
pub(super) struct BookState {
    clock: GuardClock,
    file: Option<BookFile>,
    contents: Mutex<Contents>,
}

struct BookFile {
    path: PathBuf,
    /// Taken before the file was last read, so that later writes are noticed.
    stamp: Mutex<TripStamp>,
}

struct Contents {
    book: Arc<RuleBook>,
    dependencies: BTreeMap<DependencyName, Arc<GuardedDependency>>,
    seats: BTreeMap<GuardName, Weak<GuardSlot>>,
    shared: Option<SharedBreakers>,
}

struct SharedBreakers {
    state: Arc<dyn SharedState>,
    every: Duration,
    /// Runs the exchange, also for guards made outside a runtime.
    runtime: Handle,
}

impl SharedBreakers {
    fn link(&self, dependency: &Arc<GuardedDependency>, clock: GuardClock) {
        Link::begin(dependency, Arc::clone(&self.state), self.every, clock, &self.runtime);
    }
}

impl fmt::Debug for BookState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("hash", &self.lock().book.hash()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GuardName {
    GuardedDependency(String),
    Row { service: String, channel: Option<String>, event_type: String },
}

impl fmt::Display for GuardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GuardedDependency(name) => write!(f, "dependency `{name}`"),
            Self::Row { service, channel: None, event_type } => {
                write!(f, "rule for `{event_type}` of service `{service}`")
            }
            Self::Row { service, channel: Some(channel), event_type } => {
                write!(f, "rule for `{event_type}` of channel `{channel}` of service `{service}`")
            }
        }
    }
}

impl GuardName {
    fn rule(&self, book: &RuleBook) -> Option<Arc<Rule>> {
        match self {
            Self::GuardedDependency(name) => book.dependency_rule(name).map(Arc::new),
            Self::Row { service, channel, event_type } => {
                book.rule(service, channel.as_deref(), event_type).cloned()
            }
        }
    }
}

/// The state shared by all guards of one name.
pub(super) struct GuardSlot {
    wanted: GuardName,
    terms: ArcSwap<Terms>,
    shelf: Arc<BookState>,
}

/// The rule of an attempt.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) rule: Arc<Rule>,
    pub(super) dependency: Arc<GuardedDependency>,
    pub(super) wants: RuleNeeds,
}

impl fmt::Debug for GuardSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl GuardSlot {
    pub(super) fn terms(&self) -> Arc<Terms> {
        self.terms.load_full()
    }

    /// A short-lived reference without a shared counter.
    #[inline]
    pub(super) fn peek(&self) -> Peeked<Arc<Terms>> {
        self.terms.load()
    }

    pub(super) fn clock(&self) -> &GuardClock {
        &self.shelf.clock
    }

    pub(super) fn share(&self, state: Arc<dyn SharedState>) {
        let shared = SharedBreakers { state, every: REFRESH_EVERY, runtime: Handle::current() };
        shared.link(&self.terms().dependency, self.shelf.clock);
    }
}

impl BookState {
    fn new(book: RuleBook, file: Option<BookFile>) -> Self {
        let contents = Contents {
            book: Arc::new(book),
            dependencies: BTreeMap::new(),
            seats: BTreeMap::new(),
            shared: None,
        };
        Self { clock: GuardClock::start(), file, contents: Mutex::new(contents) }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        // Everything that can fail happens before a book is replaced.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guard(self: &Arc<Self>, wanted: GuardName) -> Option<Guard> {
        let mut contents = self.lock();
        if let Some(seat) = contents.seats.get(&wanted).and_then(Weak::upgrade) {
            return Some(Guard::new(seat));
        }
        let rule = wanted.rule(&contents.book)?;
        let terms = contents.terms(rule, self.clock);
        let seat = Arc::new(GuardSlot {
            wanted: wanted.clone(),
            terms: ArcSwap::from_pointee(terms),
            shelf: Arc::clone(self),
        });
        contents.seats.retain(|_, seat| seat.strong_count() > 0);
        contents.seats.insert(wanted, Arc::downgrade(&seat));
        Some(Guard::new(seat))
    }

    fn change_to(&self, book: RuleBook) {
        let book = Arc::new(book);
        let Some(gone) = self.replace(&book) else { return };
        // Subscribers may ask this book for a guard.
        for wanted in gone {
            tracing::warn!(%wanted, "guard is not in the new rule book and keeps its last rule");
        }
        tracing::info!(hash = %format_args!("{:016x}", book.hash()), "rule book changed");
    }

    /// Replaces the book and returns the guards that have no rule in it; `None` if it is the same book.
    fn replace(&self, book: &Arc<RuleBook>) -> Option<Vec<GuardName>> {
        let mut contents = self.lock();
        if book.hash() == contents.book.hash() {
            return None;
        }
        contents.book = Arc::clone(book);
        let seats: Vec<Arc<GuardSlot>> = contents.seats.values().filter_map(Weak::upgrade).collect();
        let mut gone = Vec::new();
        for seat in seats {
            match seat.wanted.rule(&contents.book) {
                Some(rule) => seat.terms.store(Arc::new(contents.terms(rule, self.clock))),
                None => gone.push(seat.wanted.clone()),
            }
        }
        Some(gone)
    }

    fn reload_file(&self) -> Result<(), BookError> {
        let file = self.file.as_ref().ok_or(BookError::NoFile)?;
        *file.stamp() = stamp(&file.path);
        let book = read_file(&file.path)?;
        self.change_to(book);
        Ok(())
    }
}

impl Contents {
    fn terms(&mut self, rule: Arc<Rule>, clock: GuardClock) -> Terms {
        let stated = self.book.admission(&rule.dependency);
        let budget = stated.budget.or_else(|| Some(BudgetSettings::of_guards()));
        let settings = AdmissionSettings { budget, ..stated };
        let dependency = self.dependencies.entry(rule.dependency.clone()).or_insert_with(|| {
            let dependency = Arc::new(GuardedDependency::new(rule.dependency.clone(), settings));
            if let Some(shared) = &self.shared {
                shared.link(&dependency, clock);
            }
            dependency
        });
        let wants = dependency.follow(settings, &rule);
        Terms { dependency: Arc::clone(dependency), wants, rule }
    }
}

impl BookFile {
    fn stamp(&self) -> MutexGuard<'_, TripStamp> {
        self.stamp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_changed(&self) -> bool {
        // A file that is being replaced may be missing for a moment.
        stamp(&self.path).is_some_and(|now| Some(now) != *self.stamp())
    }
}

/// Modification time and size; `None` without a file.
type TripStamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> TripStamp {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_file(path: &Path) -> Result<RuleBook, BookError> {
    let bytes = load(path).map_err(BookError::Unreadable)?;
    checked(&bytes, Some(path))
}

fn checked(bytes: &[u8], path: Option<&Path>) -> Result<RuleBook, BookError> {
    let ParsedBook { book, problems } = read_bytes(bytes, connectors::built_in());
    book.ok_or_else(|| BookError::Wrong { path: path.map(Path::to_owned), problems: problems.into_sorted() })
}

async fn follow(shelf: Weak<BookState>) {
    loop {
        tokio::time::sleep(WATCH_EVERY).await;
        let Some(shelf) = shelf.upgrade() else { return };
        let look = tokio::task::spawn_blocking(move || {
            let Some(file) = &shelf.file else { return };
            if file.has_changed()
                && let Err(error) = shelf.reload_file()
            {
                tracing::error!(%error, "rule book reload failed, keeping the old one");
            }
        });
        // A panic is a bug, and the next look is as good.
        let _ = look.await;
    }
}

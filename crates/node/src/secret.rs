//! The secrets of the rule book: fetched from their providers, and kept through an outage there.
//!
//! A value is fresh for `cached` (5 minutes). While its provider is down it is still served, with a warning,
//! until `kept` (30 minutes) after the last good fetch; after that its users fail and an alert is raised. A
//! changed file is read at once, since that is how secrets are rotated.
//!
//! Invariants: a value is in no error, log or `Debug`; every buffer that held one is wiped; a caller waits
//! only if there is nothing to serve.

mod command;
mod env;
mod file;
mod known_values;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::connectors::{Endpoint, secrets};
use redrive_core::book::model::{JwtKeys, SecretEntry, Sections};
use redrive_core::book::problem::{Problem, ProblemSeverity};
use redrive_core::freshness::Lifetimes;
use redrive_core::limits;
use redrive_core::text::show_rounded;
use redrive_core::time::Timestamp;
use tokio::time::timeout;
use zeroize::Zeroizing;

use self::known_values::KnownValues;
use crate::connectors::{ConnectorFuture, Driver, Drivers, Make, settings};
use crate::outage::{OutageRecord, OutageReport};
use redrive::stale::{
    Cached, ClockFn, FetchError, Missing, StaleCache, StalePlan, UnavailableValue, timer_clock,
};

const SECRET_BYTES_MAX: usize = 64 * 1024;
const VALUES_MAX: usize = 8;
const FAILURE_REMEMBERED: Duration = Duration::from_secs(5);
const FETCH_MAX: Duration = Duration::from_secs(10);
/// How often a value that did not match is fetched again.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How long a caller waits for a newer value.
const RENEW_WAIT_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a health check waits for each failing secret.
const ASK_AFTER_MAX: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_millis(100);

pub struct SecretValues(Vec<Zeroizing<Vec<u8>>>);

impl SecretValues {
    /// Each non-empty line is a value, trimmed, newest first; PEM text is one value. Errors name the place.
    pub fn from_lines(bytes: &[u8], place: &str) -> Result<Self, SecretError> {
        if bytes.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLarge(place.to_owned()));
        }
        if bytes.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"-----BEGIN ")) {
            return Ok(Self(vec![Zeroizing::new(bytes.trim_ascii().to_vec())]));
        }
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let values: Vec<_> =
            lines.filter(|line| !line.is_empty()).map(|line| Zeroizing::new(line.to_vec())).collect();
        match values.len() {
            0 => Err(SecretError::Empty(place.to_owned())),
            1..=VALUES_MAX => Ok(Self(values)),
            _ => Err(SecretError::TooMany(place.to_owned())),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|value| value.as_slice())
    }
}

/// Shows the number of values only.
impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret values", self.0.len())
    }
}

/// A secret provider: the environment, a file, a command, or a vault of one's own.
pub trait SecretSource: Send + Sync {
    /// Fetches the current values. The future is dropped after 10 seconds.
    fn fetch(&self) -> ConnectorFuture<'_, Result<SecretValues, SecretError>>;

    /// The values, if they can be read without waiting: `check` and `serve` validate them before anything
    /// runs.
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        None
    }

    /// Looks for a change since the last fetch, where that is cheap; called once a second at most. Changed
    /// values are fetched before they are served again.
    fn look(&self) -> Option<ConnectorFuture<'_, ChangeCheck>> {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeCheck {
    Same,
    Changed,
}

pub type SecretOpener = Box<dyn Fn(&Endpoint) -> Arc<dyn SecretSource> + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretChange {
    /// No value: its users fail.
    Gone {
        name: String,
        /// Without anything of the value.
        why: String,
    },
    Back {
        name: String,
    },
}

impl fmt::Display for SecretChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { name, why } => {
                write!(f, "secret `{name}` is unavailable, its users fail: {why}")
            }
            Self::Back { name } => write!(f, "secret `{name}` is available again"),
        }
    }
}

#[derive(Clone)]
pub struct Secrets {
    shared: Arc<SecretsShared>,
}

struct SecretsShared {
    by_name: RwLock<BTreeMap<String, Arc<CachedSecret>>>,
    open: SecretOpener,
    clock: ClockFn,
    listener: OnceLock<Box<dyn Fn(SecretChange) + Send + Sync>>,
    seen: Arc<KnownValues>,
    /// Apart, since they change often and must not displace the others.
    tokens: KnownValues,
}

struct CachedSecret {
    name: String,
    from: Endpoint,
    source: Arc<dyn SecretSource>,
    cache: StaleCache<SecretValues, SecretError>,
    looked_at: Mutex<Option<Timestamp>>,
    record: Mutex<OutageRecord>,
}

impl Secrets {
    #[must_use]
    pub fn new(book: &Arc<RuleBook>, drivers: &Drivers) -> Self {
        let drivers = drivers.clone();
        Self::opened_by(book, Box::new(move |endpoint| drivers.secret(endpoint)))
    }

    /// With secret providers of one's own.
    #[must_use]
    pub fn opened_by(book: &Arc<RuleBook>, open: SecretOpener) -> Self {
        let secrets = Self::none(open);
        secrets.change(book);
        secrets
    }

    fn none(open: SecretOpener) -> Self {
        let by_name = RwLock::new(BTreeMap::new());
        let shared = SecretsShared {
            by_name,
            open,
            clock: timer_clock(),
            listener: OnceLock::new(),
            seen: Arc::default(),
            tokens: KnownValues::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Problems with the secrets that a book uses, as far as they show without running a command.
    #[must_use]
    pub fn check(book: &RuleBook, drivers: &Drivers) -> Vec<Problem> {
        let sections = book.sections();
        let used = sections.secrets.iter().filter(|(name, _)| is_used(sections, name));
        let problems = used.filter_map(|(name, at)| {
            let error = drivers.read_now(&at.value.endpoint)?.err()?;
            Some(Problem {
                severity: ProblemSeverity::Error,
                code: "secret-unavailable",
                span: at.span,
                message: format!("the secret `{name}`: {error}"),
                help: String::new(),
            })
        });
        problems.collect()
    }

    /// Switches to another book; values from the same provider are kept, even under another name.
    pub fn change(&self, book: &Arc<RuleBook>) {
        let mut by_name = self.shared.by_name.write().expect("lock is not poisoned");
        let (book, mut before) = (&book.sections().secrets, std::mem::take(&mut *by_name));
        // Unchanged names come first, so that they keep their values.
        let (same, new): (Vec<_>, Vec<_>) = book
            .iter()
            .partition(|(name, at)| before.get(*name).is_some_and(|kept| kept.from == at.value.endpoint));
        for (name, at) in same {
            let kept = before.remove(name).expect("it is there");
            kept.cache.change(lifetimes(&at.value));
            by_name.insert(name.clone(), kept);
        }
        for (name, at) in new {
            let other = before.iter().find(|(_, kept)| kept.from == at.value.endpoint);
            let other = other.map(|(other, _)| other.clone()).and_then(|other| before.remove(&other));
            let kept = match other {
                Some(kept) => {
                    kept.cache.change(lifetimes(&at.value));
                    kept.renamed(name)
                }
                None => self.shared.kept(name, &at.value),
            };
            by_name.insert(name.clone(), Arc::new(kept));
        }
    }

    /// Fetches in the background what the book uses, so that the first user need not wait and problems show
    /// early.
    pub fn warm(&self, book: &RuleBook) {
        let sections = book.sections();
        for name in sections.secrets.keys().filter(|name| is_used(sections, name)) {
            let (secrets, name) = (self.clone(), name.clone());
            tokio::spawn(async move { drop(secrets.get(&name).await) });
        }
    }

    /// Only the first listener is called.
    pub fn listen(&self, listener: impl Fn(SecretChange) + Send + Sync + 'static) {
        let _ = self.shared.listener.set(Box::new(listener));
    }

    /// The values: at once if any are usable, otherwise within 10 seconds.
    pub async fn get(&self, name: &str) -> Result<Arc<SecretValues>, SecretError> {
        let kept = self.shared.find(name)?;
        kept.look((self.shared.clock)()).await;
        let found = kept.cache.get().await;
        self.shared.judge(&kept, found)
    }

    /// With a shorter limit; a running fetch continues.
    pub async fn get_within(&self, name: &str, limit: Duration) -> Result<Arc<SecretValues>, SecretError> {
        timeout(limit, self.get(name)).await.unwrap_or(Err(SecretError::StillFetching))
    }

    /// Removes known values from a text. Never waits, so it is safe to call while logging.
    #[must_use]
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.shared.seen.hide(text) {
            Cow::Borrowed(text) => self.shared.tokens.hide(text),
            Cow::Owned(text) => Cow::Owned(self.shared.tokens.hide(&text).into_owned()),
        }
    }

    /// Remembers a token that was got for a secret, to be removed from texts as well.
    pub(crate) fn note_token(&self, token: &str) {
        self.shared.tokens.note_text(token);
    }

    /// Secrets that cannot be fetched. Each is fetched once more, so that recovered ones are not reported.
    pub async fn failing(&self) -> Vec<(String, UnavailableValue)> {
        let all: Vec<Arc<CachedSecret>> = {
            let by_name = self.shared.by_name.read().expect("lock is not poisoned");
            by_name.values().map(Arc::clone).collect()
        };
        let mut ailing = Vec::new();
        for kept in all.iter().filter(|kept| kept.failing().is_some()) {
            let _ = self.get_within(&kept.name, ASK_AFTER_MAX).await;
            ailing.extend(kept.failing().map(|ailing| (kept.name.clone(), ailing)));
        }
        ailing
    }

    /// The values after the known ones did not match: fetched again, unless that was just done or takes
    /// longer than half a second.
    pub async fn renewed(&self, name: &str) -> Result<Arc<SecretValues>, SecretError> {
        let kept = self.shared.find(name)?;
        kept.look((self.shared.clock)()).await;
        match timeout(RENEW_WAIT_MAX, kept.cache.renewed(RENEW_EVERY)).await {
            Ok(found) => self.shared.judge(&kept, found),
            Err(_) => kept.cache.known().map(|found| found.value).ok_or(SecretError::StillFetching),
        }
    }
}

/// Without secrets until there is a book.
impl Default for Secrets {
    fn default() -> Self {
        Self::none(Box::new(|endpoint| Drivers::built_in().secret(endpoint)))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_name = self.shared.by_name.read().expect("lock is not poisoned");
        f.debug_set().entries(by_name.keys()).finish()
    }
}

impl SecretsShared {
    fn kept(&self, name: &str, secret: &SecretEntry) -> CachedSecret {
        let source = (self.open)(&secret.endpoint);
        let plan =
            StalePlan { lifetimes: lifetimes(secret), limit: FETCH_MAX, clock: Arc::clone(&self.clock) };
        let (fetched, seen) = (Arc::clone(&source), Arc::clone(&self.seen));
        let cache = StaleCache::new(plan, move || {
            let (source, seen) = (Arc::clone(&fetched), Arc::clone(&seen));
            async move { source.fetch().await.inspect(|values| seen.note(values)) }
        });
        CachedSecret {
            name: name.to_owned(),
            from: secret.endpoint.clone(),
            source,
            cache,
            looked_at: Mutex::new(None),
            record: Mutex::new(OutageRecord::new()),
        }
    }

    fn find(&self, name: &str) -> Result<Arc<CachedSecret>, SecretError> {
        let by_name = self.by_name.read().expect("lock is not poisoned");
        by_name.get(name).map(Arc::clone).ok_or(SecretError::Unknown)
    }

    fn judge(
        &self,
        kept: &CachedSecret,
        found: Result<Cached<SecretValues, SecretError>, Missing<SecretError>>,
    ) -> Result<Arc<SecretValues>, SecretError> {
        let report = kept.record.lock().expect("lock is not poisoned").observe(&found, (self.clock)());
        let secret = kept.name.as_str();
        match found {
            Ok(Cached { value, age, failure, .. }) => {
                match (report, failure) {
                    (OutageReport::Warning, Some(error)) => {
                        let age = show_rounded(age);
                        tracing::warn!(secret, age, %error, "secret not fetched, using cached value");
                    }
                    (OutageReport::Recovered, _) => tracing::info!(secret, "secret fetched again"),
                    (OutageReport::Back, _) => {
                        tracing::info!(secret, "secret available again");
                        self.report(|| SecretChange::Back { name: secret.to_owned() });
                    }
                    (OutageReport::Nothing | OutageReport::Alert | OutageReport::Warning, _) => {}
                }
                Ok(value)
            }
            Err(Missing { failure, age }) => {
                if report == OutageReport::Alert {
                    tracing::error!(secret, error = %failure, "secret unavailable");
                    self.report(|| SecretChange::Gone { name: secret.to_owned(), why: failure.to_string() });
                }
                Err(match age {
                    Some(age) => SecretError::Expired { age, why: failure },
                    None => SecretError::Unavailable(failure),
                })
            }
        }
    }

    fn report(&self, change: impl FnOnce() -> SecretChange) {
        if let Some(listener) = self.listener.get() {
            listener(change());
        }
    }
}

impl CachedSecret {
    fn renamed(&self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            from: self.from.clone(),
            source: Arc::clone(&self.source),
            cache: self.cache.clone(),
            looked_at: Mutex::new(None),
            record: Mutex::new(OutageRecord::new()),
        }
    }

    fn failing(&self) -> Option<UnavailableValue> {
        self.record.lock().expect("lock is not poisoned").failing()
    }

    async fn look(&self, now: Timestamp) {
        {
            let mut looked_at = self.looked_at.lock().expect("lock is not poisoned");
            if looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY) {
                return;
            }
            *looked_at = Some(now);
        }
        let Some(look) = self.source.look() else { return };
        if timeout(LOOK_MAX, look).await == Ok(ChangeCheck::Changed) {
            // If this fails, the old values are served by their age, and the next look finds the change
            // again.
            let _ = timeout(RENEW_WAIT_MAX, self.cache.renewed(Duration::ZERO)).await;
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("not defined in the rule book")]
    Unknown,
    #[error("no value: {0}")]
    Unavailable(Arc<FetchError<SecretError>>),
    /// The provider has been unavailable for longer than a value is kept.
    #[error("value expired after {}: {why}", show_rounded(*.age))]
    Expired { age: Duration, why: Arc<FetchError<SecretError>> },
    /// No value yet, and the fetch is slow.
    #[error("still being fetched")]
    StillFetching,
    #[error("environment variable {0} is not set")]
    NoVariable(String),
    #[error("could not read {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{0} is not a file")]
    NoFile(String),
    #[error("the command is empty")]
    NoCommand,
    #[error("could not run {program}: {source}")]
    NotRun { program: String, source: std::io::Error },
    /// Its output is not shown: it may be the secret.
    #[error("{program} {} (stderr is hidden, it may contain the secret)", how_it_ended(*.status))]
    CommandFailed { program: String, status: std::process::ExitStatus },
    #[error("{0} is larger than 64 KiB")]
    TooLarge(String),
    #[error("{0} is empty")]
    Empty(String),
    #[error("{0} has more than 8 lines, one value each")]
    TooMany(String),
    #[error("secret kind `{0}` is not available in this version: use `env`, `file` or `command`")]
    NotBuiltIn(&'static str),
    #[error("{0}")]
    Vault(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn how_it_ended(status: std::process::ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("failed with exit code {code}"),
        None => format!("was ended by {}", status.to_string().replacen("signal: ", "signal ", 1)),
    }
}

pub(crate) const ENV: Driver = Driver {
    connector: &secrets::ENV,
    make: Make::Secret(|endpoint| Arc::new(env::EnvVariable(settings::<String>(endpoint).clone()))),
};

pub(crate) const FILE: Driver = Driver {
    connector: &secrets::FILE,
    make: Make::Secret(|endpoint| Arc::new(file::SecretFile::new(settings::<String>(endpoint)))),
};

pub(crate) const COMMAND: Driver = Driver {
    connector: &secrets::COMMAND,
    make: Make::Secret(|endpoint| Arc::new(command::SecretCommand::new(settings::<Vec<String>>(endpoint)))),
};

pub(crate) struct MissingProvider(pub(crate) &'static str);

impl SecretSource for MissingProvider {
    fn read_now(&self) -> Option<Result<SecretValues, SecretError>> {
        Some(Err(SecretError::NotBuiltIn(self.0)))
    }

    fn fetch(&self) -> ConnectorFuture<'_, Result<SecretValues, SecretError>> {
        Box::pin(std::future::ready(Err(SecretError::NotBuiltIn(self.0))))
    }
}

fn lifetimes(secret: &SecretEntry) -> Lifetimes {
    Lifetimes {
        fresh: secret.cached.as_ref().map_or(limits::SECRET_CACHED_DEFAULT, |at| at.value),
        kept: secret.kept.as_ref().map_or(limits::SECRET_KEPT_DEFAULT, |at| at.value),
        failure: FAILURE_REMEMBERED,
    }
}

fn is_used(book: &Sections, name: &str) -> bool {
    let targets = book.targets().map(|target| &target.endpoint);
    let receivers = book.receivers.values().map(|at| &at.value.endpoint);
    let sources = book.sources.values().map(|at| &at.value.endpoint);
    let archive = book.archive.iter().map(|archive| &archive.endpoint);
    let by_tokens = |keys: &JwtKeys| match keys {
        JwtKeys::Secret(secret) => secret == name,
        JwtKeys::Jwks(_) => false,
    };
    let mut endpoints = targets.chain(receivers).chain(sources).chain(archive);
    endpoints.any(|endpoint| endpoint.profile.secrets.iter().any(|secret| secret == name))
        || book.access.jwt.as_ref().is_some_and(|jwt| by_tokens(&jwt.keys))
}

#[cfg(test)]
mod tests;

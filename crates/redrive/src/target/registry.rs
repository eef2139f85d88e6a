//! The targets of a rule book, one for each queue.
//!
//! Invariants: a book gets all of its targets or none; and a reload keeps every connection that is still
//! of use, since connections belong to hosts and not to books.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::book::RuleBook;
use redrive_core::book::model::{self, ChannelEntry, ServiceEntry, TargetKind};
use redrive_core::book::problem::{Problem, Severity};
use redrive_core::engine::QueueName;
use redrive_core::limits::IN_FLIGHT_DEFAULT;

use super::Target;
use super::http::{Form, HttpOptions, HttpTarget, Pool, Roots};
use super::log::LogTarget;

/// The kinds of target that this program can serve.
pub const BUILT_IN_TARGETS: &[&str] = &["http", "log"];

/// Finds the values of a secret by its name in the book, the newest first; the error says why it cannot
/// and never what it found.
pub type Secrets<'a> = &'a dyn Fn(&str) -> Result<Vec<Vec<u8>>, String>;

/// Where the deliveries of each queue go.
pub struct Targets {
    by_queue: BTreeMap<QueueName, Arc<dyn Target>>,
    pool: Arc<Pool>,
    log: Arc<LogTarget>,
}

impl Targets {
    /// The targets of a book, or everything that is wrong with them. What the previous ones had open is
    /// used again.
    pub fn new(book: &RuleBook, secrets: Secrets<'_>, previous: Option<&Self>) -> Result<Self, Vec<Problem>> {
        let (pool, log) = match previous {
            Some(previous) => (Arc::clone(&previous.pool), Arc::clone(&previous.log)),
            None => (Arc::new(Pool::new(Roots::System)), Arc::new(LogTarget::stdout())),
        };
        let mut targets = Self { by_queue: BTreeMap::new(), pool, log };
        let mut problems = Vec::new();
        for service in &book.sections().services {
            let own = std::iter::once(None);
            for channel in own.chain(service.channels.iter().map(Some)) {
                let queue = QueueName {
                    service: service.name.clone(),
                    channel: channel.map(|channel| channel.name.clone()),
                };
                match targets.make(book, service, channel, secrets) {
                    Ok(target) => drop(targets.by_queue.insert(queue, target)),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        // A channel without a target of its own has its service's problem over again.
        problems.dedup();
        if problems.is_empty() { Ok(targets) } else { Err(problems) }
    }

    /// Where the deliveries of that queue go; none if the book does not know it.
    #[must_use]
    pub fn get(&self, queue: &QueueName) -> Option<Arc<dyn Target>> {
        self.by_queue.get(queue).map(Arc::clone)
    }

    fn make(
        &self,
        book: &RuleBook,
        service: &ServiceEntry,
        channel: Option<&ChannelEntry>,
        secrets: Secrets<'_>,
    ) -> Result<Arc<dyn Target>, Problem> {
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        match &target.kind {
            TargetKind::Log => Ok(Arc::clone(&self.log) as Arc<dyn Target>),
            TargetKind::Http(address) => {
                let options = HttpOptions {
                    form: target.format.as_deref().and_then(Form::from_word).unwrap_or_default(),
                    secrets: secrets_of(target, secrets)?,
                    permits: permits(book, service, channel),
                };
                let made = HttpTarget::new(address, options, Arc::clone(&self.pool));
                let made = made.map_err(|error| problem(target, "bad-target", error.to_string()))?;
                Ok(Arc::new(made))
            }
            TargetKind::Ntfy(_)
            | TargetKind::Smtp(_)
            | TargetKind::Exec(_)
            | TargetKind::Kafka(_)
            | TargetKind::RedisStream(_)
            | TargetKind::Sqs(_)
            | TargetKind::ServiceBus(_) => {
                let kind = target.kind.as_str();
                let message = format!("a target of kind `{kind}` is not built into this program");
                Err(problem(target, "not-built-in", message))
            }
        }
    }
}

fn secrets_of(target: &model::Target, secrets: Secrets<'_>) -> Result<Vec<Vec<u8>>, Problem> {
    let Some(name) = &target.secret else { return Ok(Vec::new()) };
    let unusable = |why: String| problem(target, "secret-unavailable", format!("the secret `{name}`: {why}"));
    match secrets(name) {
        // Calls that should be signed must not go out unsigned.
        Ok(values) if values.is_empty() => Err(unusable("it has no value".to_owned())),
        Ok(values) => Ok(values),
        Err(why) => Err(unusable(why)),
    }
}

/// The calls that may be under way to a queue's target at once: its rows may depend on different things.
fn permits(book: &RuleBook, service: &ServiceEntry, channel: Option<&ChannelEntry>) -> u32 {
    let rows = channel.map_or(&service.rows, |channel| &channel.rows);
    let permits = rows.iter().map(|row| book.sections().resolve(service, channel, row).in_flight.value);
    permits.max().unwrap_or(IN_FLIGHT_DEFAULT)
}

fn problem(target: &model::Target, code: &'static str, message: String) -> Problem {
    Problem { severity: Severity::Error, code, span: target.span, message, help: String::new() }
}

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
use super::http::{Form, HttpOptions, HttpTarget, Pool};
use super::log::LogTarget;
use crate::tls::Roots;

/// The kinds of target that this program can serve.
pub const BUILT_IN_TARGETS: &[&str] = &["http", "log"];

/// Finds the values of a secret by its name in the book, the newest first; the error says why it cannot
/// and never what it found.
pub type Secrets<'a> = &'a dyn Fn(&str) -> Result<Vec<Vec<u8>>, String>;

/// Where the deliveries of each queue go.
#[derive(Clone)]
pub struct Targets {
    by_queue: BTreeMap<QueueName, Arc<dyn Target>>,
    pool: Arc<Pool>,
    log: Option<Arc<LogTarget>>,
}

impl Targets {
    /// The targets of a book, or everything that is wrong with them. What the previous ones had open is
    /// used again.
    pub fn new(book: &RuleBook, secrets: Secrets<'_>, previous: Option<&Self>) -> Result<Self, Vec<Problem>> {
        let (pool, log) = match previous {
            Some(previous) => (Arc::clone(&previous.pool), previous.log.clone()),
            None => (Arc::new(Pool::new(Roots::System)), None),
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
                    // A channel without a target of its own has its service's problem over again.
                    Err(problem) if problems.contains(&problem) => {}
                    Err(problem) => problems.push(problem),
                }
            }
        }
        if problems.is_empty() { Ok(targets) } else { Err(problems) }
    }

    /// None yet, over those connections: the targets of a first book are made after these.
    #[must_use]
    pub fn none(pool: Arc<Pool>) -> Self {
        Self { by_queue: BTreeMap::new(), pool, log: None }
    }

    /// The same target for every queue of a book, whatever the book says.
    #[cfg(test)]
    pub(crate) fn all_to(book: &RuleBook, target: &Arc<dyn Target>) -> Self {
        let mut targets = Self::new(book, &|_| Ok(Vec::new()), None).expect("a book of a test");
        targets.by_queue.values_mut().for_each(|place| *place = Arc::clone(target));
        targets
    }

    /// Where the deliveries of that queue go; none if the book does not know it.
    #[must_use]
    pub fn get(&self, queue: &QueueName) -> Option<Arc<dyn Target>> {
        self.by_queue.get(queue).map(Arc::clone)
    }

    fn make(
        &mut self,
        book: &RuleBook,
        service: &ServiceEntry,
        channel: Option<&ChannelEntry>,
        secrets: Secrets<'_>,
    ) -> Result<Arc<dyn Target>, Problem> {
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        match &target.kind {
            TargetKind::Log => {
                let log = self.log.get_or_insert_with(|| Arc::new(LogTarget::stdout()));
                Ok(Arc::clone(log) as Arc<dyn Target>)
            }
            TargetKind::Http(address) => {
                let options = HttpOptions {
                    form: target.format.as_deref().and_then(Form::from_word).unwrap_or_default(),
                    secrets: secrets_of(target, secrets)?,
                    permits: permits(book, service, channel),
                    network: target.network,
                    place: place(service, channel, target),
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

/// Whose target it is, and where the book says so.
fn place(service: &ServiceEntry, channel: Option<&ChannelEntry>, target: &model::Target) -> String {
    let (service, line) = (&service.name, target.span.position.line);
    match channel {
        Some(channel) => format!("service {service}, channel {}, line {line}", channel.name),
        None => format!("service {service}, line {line}"),
    }
}

fn problem(target: &model::Target, code: &'static str, message: String) -> Problem {
    Problem { severity: Severity::Error, code, span: target.span, message, help: String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use redrive_core::ids::{ChannelName, ServiceName};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::target::call_test::{book_of, call, order};

    fn queue(service: &str, channel: Option<&str>) -> QueueName {
        QueueName {
            service: ServiceName::new(service).expect("a name"),
            channel: channel.map(|name| ChannelName::new(name).expect("a name")),
        }
    }

    fn none(_name: &str) -> Result<Vec<Vec<u8>>, String> {
        Err("it is away".to_owned())
    }

    /// Counts connections and keeps the first line of every request with its signature.
    async fn server() -> (String, Arc<Mutex<(usize, Vec<String>)>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let seen = Arc::new(Mutex::new((0, Vec::new())));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                log.lock().expect("nobody panics").0 += 1;
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut buffer = [0; 4_096];
                    // Small requests come in one piece.
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                        log.lock().expect("nobody panics").1.push(text);
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(answer).await.expect("sent");
                    }
                });
            }
        });
        (address, seen)
    }

    #[tokio::test]
    async fn every_queue_has_its_target() {
        let (address, seen) = server().await;
        let book = book_of(&format!(
            "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://{address}/shop\" }}\n    events: [a.b]\n    channels:\n      mail: {{ events: [a.b] }}\n      push: {{ target: {{ http: \"http://{address}/push\", format: structured }}, events: [a.b] }}\n  audit:\n    target: {{ log: stdout }}\n    events: [a.b]\n"
        ));
        let targets = Targets::new(&book, &none, None).expect("all can be made");
        for (service, channel) in [("shop", None), ("shop", Some("mail")), ("shop", Some("push"))] {
            let target = targets.get(&queue(service, channel)).expect("it is there");
            target.call(call("60s", vec![order(7, "e-1")])).await;
        }
        assert!(targets.get(&queue("audit", None)).is_some());
        assert!(targets.get(&queue("audit", Some("mail"))).is_none());
        assert!(targets.get(&queue("nobody", None)).is_none());
        let seen = seen.lock().expect("nobody panics");
        let paths: Vec<&str> = seen.1.iter().filter_map(|text| text.split(' ').nth(1)).collect();
        assert_eq!(paths, ["/shop", "/shop", "/push"]);
        assert!(seen.1[2].contains("application/cloudevents+json"));
    }

    #[tokio::test]
    async fn a_reload_keeps_connections_and_takes_new_secrets() {
        let (address, seen) = server().await;
        let book = book_of(&format!(
            "version: 1\nsecrets:\n  hooks: {{ env: HOOKS }}\nservices:\n  shop:\n    target: {{ http: \"http://{address}/\", secret: hooks }}\n    events: [a.b]\n"
        ));
        let mut previous: Option<Targets> = None;
        for secret in ["first", "second", "second"] {
            let secrets = |name: &str| {
                assert_eq!(name, "hooks");
                Ok(vec![secret.as_bytes().to_vec()])
            };
            let targets = Targets::new(&book, &secrets, previous.as_ref()).expect("all can be made");
            let target = targets.get(&queue("shop", None)).expect("it is there");
            target.call(call("60s", vec![order(7, "e-1")])).await;
            previous = Some(targets);
        }
        let seen = seen.lock().expect("nobody panics");
        let signature = |text: &String| {
            text.lines()
                .find_map(|line| line.strip_prefix("webhook-signature: "))
                .expect("it is signed")
                .to_owned()
        };
        let signatures: Vec<String> = seen.1.iter().map(signature).collect();
        assert_eq!(seen.0, 1, "one connection for all");
        assert_ne!(signatures[0], signatures[1]);
        assert_eq!(signatures[1], signatures[2]);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let book = book_of(
            "version: 1\nsecrets:\n  hooks: { env: HOOKS }\nservices:\n  a:\n    target: { http: \"http://h:0/\" }\n    events: [a.b]\n    channels:\n      x: { target: { log: stdout }, events: [a.b] }\n      y: { events: [a.b] }\n  b:\n    target: { kafka: topic }\n    events: [a.b]\n  c:\n    target: { http: \"http://h/\", secret: hooks }\n    events: [a.b]\n",
        );
        let problems = Targets::new(&book, &none, None).err().expect("none of it works");
        let told: Vec<String> = problems
            .iter()
            .map(|problem| format!("{} {} {}", problem.span.position, problem.code, problem.message))
            .collect();
        assert_eq!(
            told,
            [
                "6:13 bad-target a port is a number from 1 to 65535",
                "12:13 not-built-in a target of kind `kafka` is not built into this program",
                "15:13 secret-unavailable the secret `hooks`: it is away",
            ]
        );
        let unsigned = Targets::new(&book, &|_| Ok(Vec::new()), None).err().expect("none of it works");
        assert_eq!(unsigned[2].message, "the secret `hooks`: it has no value");
        let bad =
            Targets::new(&book, &|_| Ok(vec![b"whsec_hunter2!".to_vec()]), None).err().expect("neither");
        assert_eq!(bad[2].message, "the secret begins with `whsec_`, and what follows is no base64");
    }

    #[test]
    fn what_is_built_in_can_be_made() {
        let book = book_of(
            "version: 1\nservices:\n  a:\n    target: { http: \"http://h/\" }\n    events: [a.b]\n  b:\n    target: { log: stdout }\n    events: [a.b]\n",
        );
        let kinds: Vec<&str> = book.sections().services.iter().map(|one| one.target.kind.as_str()).collect();
        assert_eq!(kinds, BUILT_IN_TARGETS);
        assert!(Targets::new(&book, &none, None).is_ok());
    }
}

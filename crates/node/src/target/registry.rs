//! The targets of a rule book, one per queue.
//!
//! Invariants: a book gets all of its targets or none; a reload keeps connections, since they belong to hosts
//! and not to books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::book::alert_rules::OWN_SERVICE;
use redrive_core::book::model::{self, ChannelEntry, ServiceEntry};
use redrive_core::book::problem::{Problem, ProblemSeverity};
use redrive_core::engine::QueueName;
use redrive_core::limits::IN_FLIGHT_DEFAULT;

use super::Target;
use super::http::Pool;
use crate::connectors::{Drivers, Site};
use crate::secret::Secrets;
use crate::tls::Roots;
use redrive::process::Supervisor;

#[derive(Clone)]
pub struct Targets {
    by_queue: BTreeMap<QueueName, Arc<dyn Target>>,
    drivers: Drivers,
    pool: Arc<Pool>,
    supervisor: Supervisor,
}

impl Targets {
    /// The targets of a book, or all problems with them. Connections of the previous ones are reused. Secrets
    /// are fetched with each call: see [`Secrets::check`].
    pub fn new(book: &RuleBook, secrets: &Secrets, previous: Option<&Self>) -> Result<Self, Vec<Problem>> {
        let mut targets = match previous {
            Some(previous) => Self { by_queue: BTreeMap::new(), ..previous.clone() },
            None => Self::unused(Drivers::built_in()),
        };
        let mut problems = Vec::new();
        let services = book.sections().services.iter().flat_map(|service| {
            std::iter::once((service, None))
                .chain(service.channels.iter().map(move |one| (service, Some(one))))
        });
        let own = book.own().into_iter().flat_map(|own| &own.sections().services);
        let receivers =
            own.flat_map(|service| service.channels.iter().map(move |channel| (service, Some(channel))));
        for (service, channel) in services.chain(receivers) {
            let queue = QueueName {
                service: service.name.clone(),
                channel: channel.map(|channel| channel.name.clone()),
            };
            match targets.make(book, service, channel, secrets) {
                Ok(target) => drop(targets.by_queue.insert(queue, target)),
                // A channel without its own target repeats the problem of its service.
                Err(problem) if problems.contains(&problem) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(targets) } else { Err(problems) }
    }

    pub fn made_by(drivers: &Drivers, book: &RuleBook, secrets: &Secrets) -> Result<Self, Vec<Problem>> {
        Self::new(book, secrets, Some(&Self::unused(drivers)))
    }

    fn unused(drivers: &Drivers) -> Self {
        Self::none(drivers, Arc::new(Pool::new(Roots::System)), Supervisor::new())
    }

    /// No targets yet: the base for those of a first book.
    #[must_use]
    pub fn none(drivers: &Drivers, pool: Arc<Pool>, supervisor: Supervisor) -> Self {
        Self { by_queue: BTreeMap::new(), drivers: drivers.clone(), pool, supervisor }
    }

    /// Ends running programs within that time; no more are started.
    pub(crate) fn stop(&self, within: Duration) {
        self.supervisor.stop(within);
    }

    #[cfg(test)]
    pub(crate) fn all_to(book: &RuleBook, target: &Arc<dyn Target>) -> Self {
        let mut targets = Self::new(book, &Secrets::default(), None).expect("a book of a test");
        targets.by_queue.values_mut().for_each(|place| *place = Arc::clone(target));
        targets
    }

    #[must_use]
    pub fn get(&self, queue: &QueueName) -> Option<Arc<dyn Target>> {
        self.by_queue.get(queue).map(Arc::clone)
    }

    /// Also for other outgoing HTTP calls.
    #[must_use]
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }

    fn make(
        &self,
        book: &RuleBook,
        service: &ServiceEntry,
        channel: Option<&ChannelEntry>,
        secrets: &Secrets,
    ) -> Result<Arc<dyn Target>, Problem> {
        let target = channel.and_then(|channel| channel.target.as_ref()).unwrap_or(&service.target);
        let site = Site {
            drivers: &self.drivers,
            sections: book.sections(),
            secrets,
            pool: &self.pool,
            supervisor: &self.supervisor,
            permits: permits(book, service, channel),
            place: place(service, channel, target),
        };
        let Some(made) = self.drivers.target(&target.endpoint, &site) else {
            let missing = book.connectors().missing(target.endpoint.connector, target.span);
            return Err(missing.expect("whatever is in the table can be made"));
        };
        made.map_err(|error| problem(target, "bad-target", error.to_string()))
    }
}

/// Concurrent calls to a queue's target; its rows may have different dependencies.
fn permits(book: &RuleBook, service: &ServiceEntry, channel: Option<&ChannelEntry>) -> u32 {
    let rows = channel.map_or(&service.rows, |channel| &channel.rows);
    let permits = rows.iter().map(|row| book.sections().resolve(service, channel, row).in_flight.value);
    permits.max().unwrap_or(IN_FLIGHT_DEFAULT)
}

/// Owner and line in the book.
fn place(service: &ServiceEntry, channel: Option<&ChannelEntry>, target: &model::TargetEntry) -> String {
    let (service, line) = (&service.name, target.span.position.line);
    match channel {
        Some(channel) if service.as_str() == OWN_SERVICE => format!("receiver {}, line {line}", channel.name),
        Some(channel) => format!("service {service}, channel {}, line {line}", channel.name),
        None => format!("service {service}, line {line}"),
    }
}

fn problem(target: &model::TargetEntry, code: &'static str, message: String) -> Problem {
    Problem { severity: ProblemSeverity::Error, code, span: target.span, message, help: String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use redrive_core::engine::Ending;
    use redrive_core::ids::{ChannelName, ServiceName};
    use redrive_core::policy::answer::ReplyKind;
    use ring::hmac;
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

    /// Counts connections and keeps the first line of every request with its signature.
    async fn server() -> (String, Arc<Mutex<(usize, Vec<String>)>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let seen = Arc::new(Mutex::new((0, Vec::new())));
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                log.lock().expect("lock is not poisoned").0 += 1;
                let log = Arc::clone(&log);
                tokio::spawn(async move {
                    let mut buffer = [0; 4_096];
                    // Small requests come in one piece.
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                        log.lock().expect("lock is not poisoned").1.push(text);
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(answer).await.expect("sent");
                    }
                });
            }
        });
        (address, seen)
    }

    /// Whether the signature of a request is that of the secret.
    fn is_signed_with(secret: &str, request: &str) -> bool {
        let (head, body) = request.split_once("\r\n\r\n").expect("a head and a body");
        let header = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.expect("it is stated")
        };
        let signed = format!("{}.{}.{body}", header("webhook-id"), header("webhook-timestamp"));
        let signature = STANDARD.decode(&header("webhook-signature")["v1,".len()..]).expect("base64");
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
    }

    #[tokio::test]
    async fn every_queue_has_its_target() {
        let (address, seen) = server().await;
        let book = book_of(&format!(
            "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://{address}/shop\" }}\n    events: [a.b]\n    channels:\n      mail: {{ events: [a.b] }}\n      push: {{ target: {{ http: \"http://{address}/push\", format: structured }}, events: [a.b] }}\n  audit:\n    target: {{ log: stdout }}\n    events: [a.b]\n"
        ));
        let targets = Targets::new(&book, &Secrets::default(), None).expect("all can be made");
        for (service, channel) in [("shop", None), ("shop", Some("mail")), ("shop", Some("push"))] {
            let target = targets.get(&queue(service, channel)).expect("it is there");
            target.call(call("60s", vec![order(7, "e-1")])).await;
        }
        assert!(targets.get(&queue("audit", None)).is_some());
        assert!(targets.get(&queue("audit", Some("mail"))).is_none());
        assert!(targets.get(&queue("nobody", None)).is_none());
        let seen = seen.lock().expect("lock is not poisoned");
        let paths: Vec<&str> = seen.1.iter().filter_map(|text| text.split(' ').nth(1)).collect();
        assert_eq!(paths, ["/shop", "/shop", "/push"]);
        assert!(seen.1[2].contains("application/cloudevents+json"));
    }

    #[tokio::test]
    async fn a_reload_keeps_connections() {
        let (address, seen) = server().await;
        let book = book_of(&format!(
            "version: 1\nservices:\n  shop:\n    target: {{ http: \"http://{address}/\" }}\n    events: [a.b]\n"
        ));
        let mut previous: Option<Targets> = None;
        for _ in 0..3 {
            let targets =
                Targets::new(&book, &Secrets::default(), previous.as_ref()).expect("all can be made");
            let target = targets.get(&queue("shop", None)).expect("it is there");
            target.call(call("60s", vec![order(7, "e-1")])).await;
            previous = Some(targets);
        }
        let seen = seen.lock().expect("lock is not poisoned");
        assert_eq!((seen.0, seen.1.len()), (1, 3), "one connection for all");
    }

    #[tokio::test]
    async fn a_rotated_secret_signs_the_next_call_and_a_missing_one_keeps_it_back() {
        let (address, seen) = server().await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hooks");
        let book = Arc::new(book_of(&format!(
            "version: 1\nsecrets:\n  hooks: {{ file: \"{}\" }}\nservices:\n  shop:\n    target: {{ http: \"http://{address}/\", secret: hooks }}\n    events: [a.b]\n",
            file.display()
        )));
        let call = || call("60s", vec![order(7, "e-1")]);
        std::fs::write(&file, "the first").expect("written");
        let targets =
            Targets::new(&book, &Secrets::new(&book, Drivers::built_in()), None).expect("all can be made");
        let target = targets.get(&queue("shop", None)).expect("it is there");
        for secret in ["the first", "the second", "the second", "the third"] {
            std::fs::write(&file, secret).expect("written");
            let mut is_used = false;
            // A look at the file may take too long on a machine that is busy; the next one sees the same.
            for _ in 0..100 {
                tokio::time::pause();
                tokio::time::advance(Duration::from_secs(1)).await;
                tokio::time::resume();
                target.call(call()).await;
                let seen = seen.lock().expect("lock is not poisoned");
                is_used = is_signed_with(secret, seen.1.last().expect("a call"));
                if is_used {
                    break;
                }
            }
            assert!(is_used, "{secret}");
        }
        let targets = Targets::new(&book, &Secrets::default(), None).expect("all can be made");
        let target = targets.get(&queue("shop", None)).expect("it is there");
        let before = seen.lock().expect("lock is not poisoned").1.len();
        let Ending::Reply(reply) = target.call(call()).await else { panic!("no call is made") };
        assert_eq!(seen.lock().expect("lock is not poisoned").1.len(), before, "no call is made");
        assert_eq!(reply.seen, ReplyKind::SecretUnavailable);
        assert_eq!(
            reply.message,
            "call not made, signing failed: secret `hooks`: not defined in the rule book"
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hooks");
        std::fs::write(&file, "whsec_hunter2!").expect("written");
        let book = book_of(&format!(
            "version: 1\nsecrets:\n  hooks: {{ file: \"{}\" }}\nservices:\n  a:\n    target: {{ http: \"http://h/\" }}\n    events: [a.b]\n    channels:\n      x: {{ target: {{ log: stdout }}, events: [a.b] }}\n      y: {{ events: [a.b] }}\n  b:\n    target: {{ kafka: topic }}\n    events: [a.b]\n  c:\n    target: {{ http: \"http://h/\", secret: hooks }}\n    events: [a.b]\n",
            file.display()
        ));
        let problems = Targets::new(&book, &Secrets::default(), None).err().expect("none of it works");
        let told: Vec<String> = problems
            .iter()
            .map(|problem| format!("{} {} {}", problem.span.position, problem.code, problem.message))
            .collect();
        assert_eq!(
            told,
            [
                "12:13 not-built-in target kind `kafka` is not available in this version",
                "15:13 bad-target secret begins with `whsec_`, but the rest is not base64",
            ]
        );
    }

    #[test]
    fn what_is_built_in_can_be_made() {
        let book = book_of(
            "version: 1\nservices:\n  a:\n    target: { exec: [work] }\n    events: [a.b]\n  b:\n    target: { http: \"http://h/\" }\n    events: [a.b]\n  c:\n    target: { log: stdout }\n    events: [a.b]\n",
        );
        let kinds: Vec<&str> = book.sections().targets().map(|target| target.endpoint.key()).collect();
        assert_eq!(kinds, ["exec", "http", "log"]);
        assert!(Targets::new(&book, &Secrets::default(), None).is_ok());
    }
}

//! Lowers the book's edges: targets, sources and secrets.

use std::collections::BTreeMap;

use super::layer::{depends_on, facts};
use super::{Lowering, at, count_at, duration_at, duration_of, excluded, name_at, text_of, texts};
use crate::book::model::{
    Access, Algorithm, Archive, At, Encoding, Hmac, Jwt, JwtKeys, Missed, Network, ProcessLimits, Schedule,
    Scheme, Secret, SecretFrom, Source, SourceKind, Target, TargetKind, Webhook,
};
use crate::book::pattern::EventPattern;
use crate::book::source_template::SourceTemplate;
use crate::book::yaml::Node;
use crate::engine::worker;
use crate::event::attribute::{SessionKey, Subject};
use crate::limits;
use crate::text;

impl Lowering<'_> {
    pub(super) fn target(&mut self, node: &Node, owner: &Node) -> Option<Target> {
        let kind = target_kind(node)?;
        let states_whole = |timeout: &&Node| {
            timeout.text().is_some() || ["whole", "first"].iter().any(|key| timeout.get(key).is_some())
        };
        if let (Some(_), Some(timeout)) = (node.get("time_limit"), owner.get("timeout").filter(states_whole))
        {
            let message = "the target's `time_limit` says how long a run may take";
            self.problems.error(
                "said-twice",
                timeout.span,
                message,
                "keep one of them; a row may still state its own `timeout`",
            );
        }
        if !matches!(kind, TargetKind::Http(_)) {
            excluded(node, &["secret", "network"], "it belongs to `http`", self.problems);
        }
        let format = text_of(node, "format");
        self.check_format(node, &kind);
        if format.as_deref() != Some("batch") {
            excluded(node, &["batch_max"], "it belongs to `format: batch`", self.problems);
        }
        if !matches!(kind, TargetKind::Exec(_)) {
            excluded(node, &OF_PROCESSES, "it belongs to `exec`", self.problems);
        }
        self.check_output(node);
        Some(Target {
            span: node.span,
            kind,
            format,
            batch_max: count_at(node, "batch_max"),
            secret: text_of(node, "secret"),
            network: match text_of(node, "network").as_deref() {
                Some("private") => Network::Private,
                _ => Network::Public,
            },
            process: ProcessLimits {
                time_limit: duration_at(node, "time_limit"),
                spawn_limit: duration_at(node, "spawn_limit"),
                on_timeout: node.get("on_timeout").map(texts).unwrap_or_default(),
                output: text_of(node, "output"),
                grace: duration_of(node, "grace"),
                memory_bytes: size_of(node, "memory"),
                output_bytes_max: size_of(node, "output_max"),
                folder: text_of(node, "folder"),
                env: variables(node),
                inherit: node.get("inherit").map(texts).unwrap_or_default(),
            },
        })
    }

    /// Reports a form that such a target does not take.
    fn check_format(&mut self, node: &Node, kind: &TargetKind) {
        let Some(format) = node.get("format") else { return };
        let (takes, belongs): (&[&str], _) = match kind {
            TargetKind::Http(_) => (&["binary", "structured", "batch"], "`data` belongs to `exec`"),
            TargetKind::Exec(_) => (&["structured", "data"], "`exec` takes `structured` or `data`"),
            _ => (&[], "it belongs to `http` and `exec`"),
        };
        if format.text().is_some_and(|word| !takes.contains(&word)) {
            let message = format!("`format` has no meaning here: {belongs}");
            self.problems.error("excluded-key", format.span, message, "remove it, or state another");
        }
    }

    /// Reports an `output` that could never be the type of an event.
    fn check_output(&mut self, node: &Node) {
        let Some((value, output)) = node.get("output").and_then(|value| Some((value, value.text()?))) else {
            return;
        };
        let is_type = EventPattern::parse(output).is_ok_and(|pattern| pattern.is_exact());
        if !is_type || output == worker::LIFECYCLE {
            let message = format!("`{output}` cannot be the type of results");
            let help = "name a type of their own, such as `worker.result`";
            self.problems.error("bad-event-type", value.span, message, help);
        }
    }

    pub(super) fn sources(&mut self, section: &[(Node, Node)]) -> BTreeMap<String, At<Source>> {
        if let Some((one_too_many, _)) = section.get(limits::SOURCES_MAX) {
            let message = format!("more than {} sources", limits::SOURCES_MAX);
            self.problems.error("too-many-sources", one_too_many.span, message, "split the book");
            return BTreeMap::new();
        }
        let entries = section.iter().filter_map(|(key, node)| {
            let source = Source {
                kind: source_kind(node)?,
                event_type: text_of(node, "type"),
                subject: text_of(node, "subject"),
                session: text_of(node, "session"),
                id: text_of(node, "id"),
                depends_on: depends_on(node),
                facts: node.get("facts").map(facts).unwrap_or_default(),
            };
            self.check_event_type(node, &source.kind);
            self.check_webhook(node);
            self.check_schedule(node);
            let is_built_in = matches!(source.kind, SourceKind::Schedule(_) | SourceKind::Webhook(_));
            if is_built_in {
                let reason =
                    "webhooks and schedules call no dependency, and no breaker guards them; remove it";
                excluded(node, &["depends_on"], reason, self.problems);
            }
            if is_built_in && source.event_type.is_none() {
                let help = "add `type:`, such as `type: report.daily`";
                self.problems.error(
                    "missing-key",
                    key.span,
                    "this source needs a `type` for its events",
                    help,
                );
            }
            Some((key.text()?.to_owned(), At { value: source, span: key.span }))
        });
        entries.collect()
    }

    /// Reports a `type` that could never be the type of an event.
    fn check_event_type(&mut self, node: &Node, kind: &SourceKind) {
        let Some(value) = node.get("type") else { return };
        let Some(template) = value.text().and_then(|text| SourceTemplate::parse(text).ok()) else { return };
        let fits = |text: &str| {
            text.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':' | '/' | '.'))
        };
        let wrong = match template.literal() {
            Some(text) => EventPattern::parse(text).map_or_else(
                |error| Some(error.to_string()),
                |pattern| {
                    (!pattern.is_exact()).then(|| format!("`{text}` is a pattern, and an event has one type"))
                },
            ),
            None if matches!(kind, SourceKind::Schedule(_)) => {
                Some("a schedule has no headers and no data to fill in".to_owned())
            }
            None if !template.texts().all(fits) => Some(format!("`{template}` makes no event type")),
            None => None,
        };
        if let Some(message) = wrong {
            self.problems.error(
                "bad-event-type",
                value.span,
                message,
                "such as report.daily or \"github.{data.action}\"",
            );
        }
    }

    /// Reports keys of a webhook that its scheme has no use for.
    fn check_webhook(&mut self, node: &Node) {
        let Some(webhook) = node.get("webhook") else { return };
        let scheme = text_of(webhook, "scheme").unwrap_or_default();
        if scheme != "hmac" {
            let keys = ["header", "algorithm", "encoding", "prefix"];
            excluded(webhook, &keys, "it belongs to `scheme: hmac`", self.problems);
        }
        if matches!(scheme.as_str(), "hmac" | "github") {
            excluded(webhook, &["tolerance"], "this scheme signs no time", self.problems);
        }
    }

    /// Reports what cannot be the subject, the session or the id of a schedule's events.
    fn check_schedule(&mut self, node: &Node) {
        if node.get("schedule").is_none() {
            return;
        }
        excluded(node, &["id"], "a schedule's events are known by their fire time", self.problems);
        for key in ["subject", "session"] {
            let Some(value) = node.get(key) else { continue };
            let Some(template) = value.text().and_then(|text| SourceTemplate::parse(text).ok()) else {
                continue;
            };
            let wrong = match template.literal() {
                None => Some("a schedule has no headers and no data to fill in".to_owned()),
                Some(text) if key == "subject" => Subject::new(text).err().map(|e| e.to_string()),
                Some(text) => SessionKey::new(text).err().map(|e| e.to_string()),
            };
            if let Some(message) = wrong {
                self.problems.error("bad-template", value.span, message, "write a plain, short text");
            }
        }
    }

    pub(super) fn access(node: &Node) -> Access {
        let jwt = node.get("jwt").and_then(|node| {
            let keys = text_of(node, "jwks")
                .map(JwtKeys::Jwks)
                .or_else(|| text_of(node, "secret").map(JwtKeys::Secret))?;
            Some(Jwt {
                keys,
                issuer: text_of(node, "issuer")?,
                audience: text_of(node, "audience")?,
                role_claim: text_of(node, "role_claim").unwrap_or_else(|| "role".to_owned()),
            })
        });
        let jwt_at = node.get("jwt").map(|node| node.span);
        Access { rate: rate_of(node), jwt, jwt_at }
    }

    pub(super) fn archive(node: &Node) -> Option<Archive> {
        Some(Archive {
            folder: text_of(node, "folder")?,
            timeout: duration_of(node, "timeout"),
            breaker: name_at(node, "breaker"),
            retention: duration_of(node, "retention"),
        })
    }

    pub(super) fn secrets(section: &[(Node, Node)]) -> BTreeMap<String, At<Secret>> {
        let entries = section.iter().filter_map(|(key, node)| {
            let from = text_of(node, "env")
                .map(SecretFrom::Env)
                .or_else(|| text_of(node, "file").map(SecretFrom::File))
                .or_else(|| node.get("command").map(|list| SecretFrom::Command(texts(list))))
                .or_else(|| text_of(node, "key-vault").map(SecretFrom::KeyVault))?;
            let secret =
                Secret { from, cached: duration_at(node, "cached"), kept: duration_at(node, "kept") };
            Some((key.text()?.to_owned(), At { value: secret, span: key.span }))
        });
        entries.collect()
    }
}

/// The keys of targets that run something.
const OF_PROCESSES: [&str; 10] = [
    "time_limit",
    "spawn_limit",
    "on_timeout",
    "output",
    "grace",
    "memory",
    "output_max",
    "folder",
    "env",
    "inherit",
];

fn size_of(node: &Node, key: &str) -> Option<u64> {
    text::parse_size(node.get(key)?.text()?).ok()
}

fn variables(node: &Node) -> BTreeMap<String, String> {
    let entries = node.get("env").map(Node::entries).unwrap_or_default();
    let pairs = entries.iter().filter_map(|(key, value)| Some((key.text()?, value.text()?)));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn target_kind(node: &Node) -> Option<TargetKind> {
    let text = |key| text_of(node, key);
    text("http")
        .map(TargetKind::Http)
        .or_else(|| text("ntfy").map(TargetKind::Ntfy))
        .or_else(|| text("smtp").map(TargetKind::Smtp))
        .or_else(|| node.get("exec").map(|list| TargetKind::Exec(texts(list))))
        .or_else(|| text("kafka").map(TargetKind::Kafka))
        .or_else(|| text("redis-stream").map(TargetKind::RedisStream))
        .or_else(|| text("sqs").map(TargetKind::Sqs))
        .or_else(|| text("service-bus").map(TargetKind::ServiceBus))
        .or_else(|| text("log").map(|_| TargetKind::Log))
}

fn source_kind(node: &Node) -> Option<SourceKind> {
    let inner = |key| node.get(key);
    if let Some(webhook) = inner("webhook") {
        let body_max = webhook.get("body_max").and_then(|n| at(n, |text| text::parse_size(text).ok()));
        return Some(SourceKind::Webhook(Webhook {
            scheme: scheme(webhook)?,
            secret: text_of(webhook, "secret")?,
            body_max: body_max.map(|at| at.value),
            rate: rate_of(webhook),
            tolerance: duration_of(webhook, "tolerance"),
        }));
    }
    if let Some(schedule) = inner("schedule") {
        let missed = match text_of(schedule, "missed").as_deref() {
            Some("none") => Missed::None,
            Some("all") => Missed::All,
            _ => Missed::One,
        };
        return Some(SourceKind::Schedule(Schedule {
            cron: text_of(schedule, "cron")?,
            zone: text_of(schedule, "zone"),
            missed,
            missed_within: duration_of(schedule, "missed_within"),
            data: text_of(schedule, "data"),
        }));
    }
    if let Some(kafka) = inner("kafka") {
        return Some(SourceKind::Kafka {
            brokers: texts(kafka.get("brokers")?),
            topics: texts(kafka.get("topics")?),
            group: text_of(kafka, "group"),
        });
    }
    if let Some(redis) = inner("redis-stream") {
        return Some(SourceKind::RedisStream {
            url: text_of(redis, "url")?,
            stream: text_of(redis, "stream")?,
            group: text_of(redis, "group"),
        });
    }
    if let Some(sqs) = inner("sqs") {
        return Some(SourceKind::Sqs { queue: text_of(sqs, "queue")? });
    }
    let bus = inner("service-bus")?;
    Some(SourceKind::ServiceBus { namespace: text_of(bus, "namespace")?, queue: text_of(bus, "queue")? })
}

fn scheme(webhook: &Node) -> Option<Scheme> {
    Some(match text_of(webhook, "scheme")?.as_str() {
        "github" => Scheme::Github,
        "standard-webhooks" => Scheme::StandardWebhooks,
        "stripe" => Scheme::Stripe,
        "slack" => Scheme::Slack,
        "hmac" => Scheme::Hmac(Hmac {
            header: text_of(webhook, "header")
                .unwrap_or_else(|| "x-signature".to_owned())
                .to_ascii_lowercase(),
            algorithm: match text_of(webhook, "algorithm").as_deref() {
                Some("sha1") => Algorithm::Sha1,
                Some("sha512") => Algorithm::Sha512,
                _ => Algorithm::Sha256,
            },
            encoding: match text_of(webhook, "encoding").as_deref() {
                Some("base64") => Encoding::Base64,
                _ => Encoding::Hex,
            },
            prefix: text_of(webhook, "prefix").unwrap_or_default(),
        }),
        _ => return None,
    })
}

fn rate_of(node: &Node) -> Option<text::Rate> {
    text::parse_rate(node.get("rate")?.text()?).ok()
}

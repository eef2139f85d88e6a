//! A rule value by value, each with where it came from: one list for the terminal, for machines and
//! for the page, so that they cannot tell different stories.
//!
//! Times are milliseconds for machines and as the book writes them for people.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    count, criticality, data_loss, failure, idempotency_by, letter_form, letter_name, limit, matcher, order,
    reaction, reprocess, severity, trip, when_full, when_open,
};
use redrive_core::book::model::{At, ConsumerPattern, Facts, ReactionName, Switch};
use redrive_core::book::problem::Span;
use redrive_core::book::resolve::{Known, Level, Origin, Resolved, ResolvedTimeouts};
use redrive_core::book::{EMBEDDED, RuleBook};
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::budget::BudgetSettings;
use redrive_core::policy::catalog::Kind;
use redrive_core::policy::category::{Category, Code};
use redrive_core::policy::rule::{FailureMatch, Meaning, Reaction};
use redrive_core::position::Position;
use redrive_core::text::{Rate, show_duration, show_size};

/// Values that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// For machines.
    pub key: &'static str,
    /// For people.
    pub title: &'static str,
    /// Its values.
    pub values: Vec<Explained>,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// For machines.
    pub key: String,
    /// What it is called, for people.
    pub label: String,
    /// For machines.
    pub value: Value,
    /// For people.
    pub shown: String,
    /// What else helps to understand it.
    pub note: String,
    /// Where it came from.
    pub stated: Stated,
}

/// Where a value is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stated {
    /// At one of the levels that values fall through.
    At(Origin),
    /// For the whole book.
    ForTheBook(Span),
}

impl Stated {
    /// Whether nothing in the book states it.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self.position().is_none()
    }

    /// Where in the book.
    #[must_use]
    pub fn position(self) -> Option<Position> {
        match self {
            Self::At(origin) => origin.position(),
            Self::ForTheBook(span) => Some(span.position),
        }
    }

    /// The word for machines.
    const fn level(self) -> &'static str {
        match self {
            Self::ForTheBook(_) => "book",
            Self::At(origin) => match origin.level {
                Level::Row => "row",
                Level::Channel => "channel",
                Level::Service => "service",
                Level::Dependency => "dependency",
                Level::Kind => "kind",
                Level::Defaults => "defaults",
                Level::BuiltIn => "built-in",
            },
        }
    }
}

/// For people: `the defaults, line 9`.
impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self {
            Self::At(origin) => origin.level.to_string(),
            Self::ForTheBook(_) => "the whole book".to_owned(),
        };
        f.pad(&match self.position() {
            Some(position) => format!("{level}, line {}", position.line),
            None => level,
        })
    }
}

/// All that holds, in groups.
#[must_use]
pub fn explain(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<Group> {
    let group = |key, title, values| Group { key, title, values };
    let groups = vec![
        group("delivery", "Delivery", delivery(resolved)),
        group("on_failure", "On failure", on_failure(resolved)),
        group("classify", "Classified otherwise", classify(resolved)),
        group("breaker", "Breaker", breaker(resolved)),
        group("timeouts", "Timeouts", timeouts(resolved)),
        group("permits", "Permits", permits(resolved)),
        group("waiting", "Waiting", waiting(resolved)),
        group("idempotency", "Idempotency", idempotency(resolved)),
        group("dead_letter", "Dead letters", dead_letter(resolved)),
        group("alerts", "Alerts", alerts(book, resolved)),
        group("facts", "Facts", facts(book, resolved)),
    ];
    groups.into_iter().filter(|group| !group.values.is_empty()).collect()
}

/// The same for machines: each value with its level, line and column.
#[must_use]
pub fn to_json(book: &RuleBook, resolved: &Resolved<'_>) -> Value {
    let mut object = Map::new();
    object.insert("service".to_owned(), json!(resolved.service.name.as_str()));
    object.insert("channel".to_owned(), json!(resolved.channel.map(|channel| channel.name.as_str())));
    object.insert("pattern".to_owned(), json!(resolved.row.pattern.value.as_str()));
    object.insert("subscription".to_owned(), json!(resolved.subscription()));
    for Group { key, values, .. } in explain(book, resolved) {
        // What has no name of its own stands in a list.
        let group = if matches!(key, "classify" | "alerts") {
            Value::Array(values.iter().map(Explained::to_json).collect())
        } else {
            values.iter().map(|value| (value.key.clone(), value.to_json())).collect::<Map<_, _>>().into()
        };
        object.insert(key.to_owned(), group);
    }
    Value::Object(object)
}

impl Explained {
    fn new(key: &str, value: impl Into<Value>, shown: impl Into<String>, origin: Origin) -> Self {
        let label = key.replace('_', " ");
        let (key, note) = (key.to_owned(), String::new());
        Self { key, label, value: value.into(), shown: shown.into(), note, stated: Stated::At(origin) }
    }

    fn word(key: &str, word: &str, origin: Origin) -> Self {
        Self::new(key, word, word, origin)
    }

    fn span(key: &str, span: Duration, origin: Origin) -> Self {
        let value = Self::new(&format!("{key}_ms"), millis(span), show_duration(span), origin);
        Self { label: key.replace('_', " "), ..value }
    }

    fn rate(key: &str, rate: Rate, origin: Origin) -> Self {
        let value = Self::new(&format!("{key}_per_second"), rate.as_per_second(), rate.to_string(), origin);
        Self { label: key.replace('_', " "), ..value }
    }

    /// Takes the items of another list.
    fn add(&mut self, more: Self) {
        if let (Value::Array(items), Value::Array(more)) = (&mut self.value, more.value) {
            items.extend(more);
        }
        self.shown = format!("{}, {}", self.shown, more.shown);
    }

    fn noting(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    fn to_json(&self) -> Value {
        let position = self.stated.position();
        json!({
            "value": self.value,
            "origin": {
                "level": self.stated.level(),
                "line": position.map(|position| position.line),
                "column": position.map(|position| position.column),
            },
        })
    }
}

/// Milliseconds, whole where they are whole.
#[must_use]
pub fn millis(span: Duration) -> Value {
    if span.subsec_nanos().is_multiple_of(1_000_000)
        && let Ok(whole) = u64::try_from(span.as_millis())
    {
        return whole.into();
    }
    (span.as_secs_f64() * 1_000.0).into()
}

const fn at_level(level: Level, span: Span) -> Origin {
    Origin { level, span: Some(span) }
}

fn delivery(resolved: &Resolved<'_>) -> Vec<Explained> {
    let target_level = match resolved.channel {
        Some(channel) if channel.target.is_some() => Level::Channel,
        Some(_) | None => Level::Service,
    };
    let target = &resolved.target.endpoint;
    let (kind, place) = (target.key(), target.profile.shown.as_str());
    let target_origin = at_level(target_level, resolved.target.span);
    let Known { value: dependency, origin } = &resolved.dependency;
    let mut values = vec![
        Explained::new("target", json!({ "kind": kind, "address": place }), kind, target_origin)
            .noting(place),
    ];
    if let Some(batch) = &target.profile.batch {
        let origin = batch.stated_at.map_or(Origin::BUILT_IN, |span| at_level(target_level, span));
        values.push(Explained::new("batch_max", batch.max, batch.max.to_string(), origin));
    }
    values.extend([
        Explained::word("dependency", dependency.as_str(), *origin)
            .noting(format!("of kind {}", resolved.kind)),
        Explained::word("order", order(resolved.order.value), resolved.order.origin),
        Explained::word("consumer_group", &resolved.consumer_group.value, resolved.consumer_group.origin),
        Explained::span("keep_delivered", resolved.keep_delivered.value, resolved.keep_delivered.origin),
    ]);
    let critical = resolved.criticality.as_ref();
    values
        .extend(critical.map(|known| Explained::word("criticality", criticality(known.value), known.origin)));
    let loss = resolved.data_loss.as_ref();
    values.extend(loss.map(|known| Explained::word("data_loss", data_loss(known.value), known.origin)));
    values
}

fn on_failure(resolved: &Resolved<'_>) -> Vec<Explained> {
    let mut values: Vec<Explained> = Vec::new();
    for (kind, known) in &resolved.reactions {
        let value = Explained::word(&failure(*kind), reaction(&known.value), known.origin);
        let note = match &known.value {
            ReactionName::Policy(name) => resolved
                .rule
                .reactions
                .policies()
                .iter()
                .find(|policy| policy.name == *name)
                .map(|policy| backoff(&policy.backoff))
                .unwrap_or_default(),
            ReactionName::DeadLetter => "no retry".to_owned(),
            ReactionName::Pause => "the service waits for somebody".to_owned(),
        };
        values.push(value.noting(note + &capped(resolved, *kind)));
    }
    values.extend(
        resolved.deadline.as_ref().map(|known| Explained::span("deadline", known.value, known.origin)),
    );
    values.extend(
        resolved.fatal_after.as_ref().map(|known| Explained::span("fatal_after", known.value, known.origin)),
    );
    values
}

/// What a policy is cut to where the book states it for other failures only.
fn capped(resolved: &Resolved<'_>, on: FailureMatch) -> String {
    let FailureMatch::Category(category) = on else { return String::new() };
    match (category, resolved.rule.reactions.to(category, None).value) {
        (Category::Unknown, Reaction::RetryCautiously(_)) => {
            format!(", here at most {} retries", limits::UNKNOWN_RETRIES_MAX)
        }
        (Category::Internal, Reaction::RetryCautiously(_)) => {
            format!(", here at most {} attempts", limits::INTERNAL_ATTEMPTS_MAX)
        }
        (_, Reaction::Retry(_) | Reaction::RetryCautiously(_) | Reaction::DeadLetter | Reaction::Pause) => {
            String::new()
        }
    }
}

/// A policy in a line: `5 retries, 1s doubling to 30s, within 5m`.
#[must_use]
pub fn backoff(backoff: &Backoff) -> String {
    let retries = match backoff.retries() {
        0 => return "no retry".to_owned(),
        1 => "1 retry".to_owned(),
        _ if backoff.is_unlimited() => "unlimited retries".to_owned(),
        more => format!("{more} retries"),
    };
    let delays = match (backoff.listed(), backoff.factor()) {
        (Some(delays), _) => delays.iter().copied().map(show_duration).collect::<Vec<_>>().join(", "),
        (None, factor) => {
            let growth = match factor {
                Some(2.0) => "doubling".to_owned(),
                Some(factor) => format!("×{factor}"),
                None => String::new(),
            };
            format!("{} {growth} to {}", show_duration(backoff.initial()), show_duration(backoff.max()))
        }
    };
    let window = backoff.window().map(|window| format!(", within {}", show_duration(window)));
    format!("{retries}, {delays}{}, jitter {}", window.unwrap_or_default(), backoff.jitter())
}

fn classify(resolved: &Resolved<'_>) -> Vec<Explained> {
    let rows = resolved.classify.iter().map(|(row, level)| {
        let meaning = match row.meaning {
            Meaning::Failure(category) => category.as_str(),
            Meaning::Delivered => "delivered",
        };
        let when = matcher(&row.when);
        let span = Span { position: row.position, ..Span::default() };
        let value = json!({
            "when": when,
            "as": meaning,
            "code": row.code.as_ref().map(Code::as_str),
            "because": row.because.as_deref(),
        });
        let row_value = Explained::new("", value, meaning, at_level(*level, span));
        let note = row.because.as_deref().unwrap_or_default();
        Explained { label: when, ..row_value }.noting(note)
    });
    rows.collect()
}

fn breaker(resolved: &Resolved<'_>) -> Vec<Explained> {
    let origin = resolved.breaker_origin;
    let mut values = vec![Explained::word("name", &super::breaker_name(resolved), origin)];
    let Some(breaker) = &resolved.rule.breaker else { return values };
    let settings = &breaker.settings;
    values.push(Explained::word("trip", &trip(settings.trip()), origin));
    values.push(Explained::span("open", settings.open(), origin));
    values.push(Explained::new("probes", settings.probes().get(), settings.probes().to_string(), origin));
    let close = settings.close_after();
    values.push(Explained::new("close_after", close.get(), close.to_string(), origin));
    values.extend(settings.reset().map(|reset| Explained::span("reset", reset, origin)));
    values.push(Explained::word("count", count(settings.count()), origin));
    for (key, kinds) in [("ignores", &breaker.ignores), ("counts", &breaker.counts)] {
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().copied().map(failure).collect();
            values.push(Explained::new(key, kinds.clone(), kinds.join(", "), origin));
        }
    }
    let Known { value, origin } = resolved.when_open;
    values.push(Explained::word("when_open", when_open(value), origin));
    let Known { value, origin } = resolved.hold_max;
    values.push(Explained::span("hold_max", value, origin));
    values
}

fn timeouts(resolved: &Resolved<'_>) -> Vec<Explained> {
    let ResolvedTimeouts { connect, tls, headers, whole, category, name } = &resolved.timeouts;
    let value = json!({
        "name": name,
        "first_ms": millis(whole.value.first),
        "factor": whole.value.factor,
        "max_ms": millis(whole.value.max),
    });
    let named = name.as_ref().map(|name| format!("named {name}"));
    vec![
        Explained::new("whole", value, limit(whole.value), whole.origin).noting(named.unwrap_or_default()),
        Explained::span("connect", connect.value, connect.origin),
        Explained::span("tls", tls.value, tls.origin),
        Explained::span("headers", headers.value, headers.origin),
        Explained::word("as", category.value.as_str(), category.origin),
    ]
}

fn permits(resolved: &Resolved<'_>) -> Vec<Explained> {
    let Known { value, origin } = resolved.in_flight;
    let by_cores = resolved.kind == Kind::Process && origin.level == Level::Kind;
    let note = if by_cores { "as many as this machine has cores" } else { "" };
    let mut values = vec![Explained::new("in_flight", value, value.to_string(), origin).noting(note)];
    values.extend(resolved.rate.as_ref().map(|known| Explained::rate("rate", known.value, known.origin)));
    let note = if resolved.ramp.value.is_zero() {
        "after an outage all at once"
    } else {
        "after an outage, to twice the usual rate"
    };
    values.push(Explained::span("ramp", resolved.ramp.value, resolved.ramp.origin).noting(note));
    let Known { value, origin } = resolved.rate_growth;
    let growth = Explained::new("rate_growth", value.get(), value.to_string(), origin);
    values.push(growth.noting("in a second, after it was throttled"));
    let memory = Explained::span("rate_memory", resolved.rate_memory.value, resolved.rate_memory.origin);
    values.push(memory.noting("of the limit at which it was throttled"));
    values.extend(resolved.retry_budget.as_ref().map(|known| {
        let BudgetSettings { share, at_least } = known.value;
        let value = json!({ "share": share.get(), "at_least_per_second": at_least.as_per_second() });
        let shown = format!("{share} of the calls, at least {at_least}");
        let budget = Explained::new("retry_budget", value, shown, known.origin);
        Explained { label: "retry budget".to_owned(), ..budget }
    }));
    values
}

fn waiting(resolved: &Resolved<'_>) -> Vec<Explained> {
    let own = &resolved.waiting;
    let size = own.size_bytes.value;
    let of_webhook = own.when_full_of_webhook();
    let apart = (of_webhook != own.when_full.value)
        .then(|| format!("{} if it came in through a webhook", when_full(of_webhook)));
    vec![
        Explained::new("events", own.events.value, own.events.value.to_string(), own.events.origin)
            .noting("at most, for the whole service"),
        Explained {
            label: "size".to_owned(),
            ..Explained::new("size_bytes", size, show_size(size), own.size_bytes.origin)
        },
        Explained::new(
            "per_session",
            own.per_session.value,
            own.per_session.value.to_string(),
            own.per_session.origin,
        )
        .noting("behind a dead letter that holds their session"),
        Explained::word("when_full", when_full(own.when_full.value), own.when_full.origin)
            .noting(apart.unwrap_or_default()),
    ]
}

fn store_note(store: &str) -> &'static str {
    if store == EMBEDDED { "" } else { "not available: write `embedded`" }
}

fn idempotency(resolved: &Resolved<'_>) -> Vec<Explained> {
    let own = &resolved.idempotency;
    vec![
        Explained::word("by", idempotency_by(own.by.value), own.by.origin),
        Explained::word("store", &own.store.value, own.store.origin).noting(store_note(&own.store.value)),
        Explained::word("key", own.key_shown(), own.key.as_ref().map_or(Origin::BUILT_IN, |key| key.origin)),
        Explained::span("ttl", own.ttl.value, own.ttl.origin),
    ]
}

fn dead_letter(resolved: &Resolved<'_>) -> Vec<Explained> {
    let letter = &resolved.dead_letter;
    let name = letter_name(resolved);
    let mut values = vec![
        Explained::word("name", &name, letter.template.origin)
            .noting(letter.name.as_ref().err().cloned().unwrap_or_default()),
        Explained::word("form", letter_form(letter.form.value), letter.form.origin),
        Explained::span("retention", letter.retention.value, letter.retention.origin),
    ];
    values.extend(letter.alert.as_ref().map(|known| Explained::rate("alert", known.value, known.origin)));
    let categories: Vec<&str> = letter.categories.iter().map(|category| category.as_str()).collect();
    let Known { value, origin } = letter.reprocess;
    values.push(Explained::word("reprocess", reprocess(value), origin).noting(categories.join(", ")));
    let Known { value, origin } = letter.reprocess_max;
    values.push(Explained::new("reprocess_max", value, value.to_string(), origin));
    if let Some(Known { value, origin }) = &letter.reprocess_cron {
        values.push(Explained::word("reprocess_cron", value.as_str(), *origin).noting("in UTC".to_owned()));
    }
    values
}

fn alerts(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<Explained> {
    let of_rule =
        resolved.alerts.iter().map(|(alert, level)| (*alert, Stated::At(at_level(*level, alert.span))));
    let of_book = book.sections().alerts.iter().map(|alert| (alert, Stated::ForTheBook(alert.span)));
    let values = of_rule.chain(of_book).map(|(alert, stated)| {
        let when = alert.when.to_string();
        let value = json!({
            "when": when,
            "name": alert.name,
            "severity": severity(alert.severity),
            "to": alert.to,
            "escalate": alert.escalate,
            "repeat": show_duration(alert.repeats_every()),
            "action": alert.action,
            "off": alert.switch == Switch::Off,
        });
        let note = match alert.switch {
            Switch::Off => "off".to_owned(),
            Switch::On if alert.to.is_empty() => String::new(),
            Switch::On => format!("to {}", alert.to.join(", ")),
        };
        let shown = severity(alert.severity).to_owned();
        Explained { key: String::new(), label: when, value, shown, note, stated }
    });
    values.collect()
}

/// The facts of every level; the most specific of each kind holds, and all `uses` do.
fn facts(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<Explained> {
    let mut found: Vec<Explained> = Vec::new();
    for (level, layer) in resolved.levels(book.sections()) {
        for fact in facts_of(&layer.facts, level) {
            match found.iter_mut().find(|known| known.key == fact.key) {
                None => found.push(fact),
                Some(known) if fact.key == "uses" => known.add(fact),
                Some(_) => {}
            }
        }
    }
    found
}

fn facts_of(facts: &Facts, level: Level) -> Vec<Explained> {
    let Facts {
        rate,
        p99,
        sla,
        lease,
        heartbeat,
        redelivery,
        poll_limit,
        callers,
        caller_timeout,
        instances,
        rate_limit_window,
        broker_attempts,
        uses,
        idempotent_by,
    } = facts;
    let origin = |span| at_level(level, span);
    let span = |key, at: &Option<At<Duration>>| {
        at.as_ref().map(|at| Explained::span(key, at.value, origin(at.span)))
    };
    let number = |key, at: &Option<At<u64>>| {
        at.as_ref().map(|at| Explained::new(key, at.value, at.value.to_string(), origin(at.span)))
    };
    let idempotent_by = idempotent_by.as_ref().map(|at| {
        let pattern = match at.value.pattern {
            ConsumerPattern::EventId => "event-id",
            ConsumerPattern::Upsert => "upsert",
            ConsumerPattern::StateCheck => "state-check",
            ConsumerPattern::Outbox => "outbox",
            ConsumerPattern::Nothing => "nothing",
        };
        let value = json!({ "pattern": pattern, "store": at.value.store });
        let store = at.value.store.as_ref().map(|store| format!("in {store}"));
        Explained::new("idempotent_by", value, pattern, origin(at.span)).noting(store.unwrap_or_default())
    });
    let values = [
        rate.as_ref().map(|at| Explained::rate("rate", at.value, origin(at.span))),
        span("p99", p99),
        span("sla", sla),
        span("lease", lease),
        span("heartbeat", heartbeat),
        span("redelivery", redelivery),
        span("poll_limit", poll_limit),
        number("callers", callers),
        span("caller_timeout", caller_timeout),
        number("instances", instances),
        span("rate_limit_window", rate_limit_window),
        number("broker_attempts", broker_attempts),
        idempotent_by,
    ];
    let mut values: Vec<Explained> = values.into_iter().flatten().collect();
    if let Some(first) = uses.first() {
        let names: Vec<&str> = uses.iter().map(|at| at.value.as_str()).collect();
        values.push(Explained::new("uses", names.clone(), names.join(", "), origin(first.span)));
    }
    values
}

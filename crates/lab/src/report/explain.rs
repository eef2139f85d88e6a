//! A rule value by value, each with where it came from: one list for the terminal, for machines and
//! for the page, so that they cannot tell different stories.
//!
//! Times are milliseconds for machines and as the book writes them for people.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{letter_name, limit, matcher, reaction, trip};
use redrive_core::book::model::{At, Facts, ReactionName, Switch};
use redrive_core::book::problem::Span;
use redrive_core::book::resolve::{Known, Level, Origin, Resolved, ResolvedTimeouts};
use redrive_core::book::words::Word;
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

    fn setting(key: &str, known: &Known<impl Word>) -> Self {
        Self::word(key, known.value.as_word(), known.origin)
    }

    fn number<N: Copy + Into<Value> + ToString>(key: &str, known: &Known<N>) -> Self {
        Self::new(key, known.value, known.value.to_string(), known.origin)
    }

    fn span(key: &str, known: &Known<Duration>) -> Self {
        let (value, shown) = (millis(known.value), show_duration(known.value));
        Self { label: key.replace('_', " "), ..Self::new(&format!("{key}_ms"), value, shown, known.origin) }
    }

    fn rate(key: &str, known: &Known<Rate>) -> Self {
        let (value, shown) = (known.value.as_per_second(), known.value.to_string());
        let rate = Self::new(&format!("{key}_per_second"), value, shown, known.origin);
        Self { label: key.replace('_', " "), ..rate }
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
        Explained::setting("order", &resolved.order),
        Explained::word("consumer_group", &resolved.consumer_group.value, resolved.consumer_group.origin),
        Explained::span("keep_delivered", &resolved.keep_delivered),
    ]);
    values.extend(resolved.criticality.as_ref().map(|known| Explained::setting("criticality", known)));
    values.extend(resolved.data_loss.as_ref().map(|known| Explained::setting("data_loss", known)));
    values
}

fn on_failure(resolved: &Resolved<'_>) -> Vec<Explained> {
    let mut values: Vec<Explained> = Vec::new();
    for (kind, known) in &resolved.reactions {
        let value = Explained::word(&kind.to_string(), reaction(&known.value), known.origin);
        let note = match &known.value {
            ReactionName::Policy(name) => {
                let policy = resolved.rule.reactions.policy(name);
                policy.map(|policy| backoff(&policy.backoff)).unwrap_or_default()
            }
            ReactionName::DeadLetter => "no retry".to_owned(),
            ReactionName::Pause => "the service waits for somebody".to_owned(),
        };
        values.push(value.noting(note + &capped(resolved, *kind)));
    }
    values.extend(resolved.deadline.as_ref().map(|known| Explained::span("deadline", known)));
    values.extend(resolved.fatal_after.as_ref().map(|known| Explained::span("fatal_after", known)));
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
    values.push(Explained::span("open", &Known { value: settings.open(), origin }));
    for (key, count) in [("probes", settings.probes()), ("close_after", settings.close_after())] {
        values.push(Explained::number(key, &Known { value: count.get(), origin }));
    }
    values.extend(settings.reset().map(|value| Explained::span("reset", &Known { value, origin })));
    values.push(Explained::word("count", settings.count().as_word(), origin));
    for (key, kinds) in [("ignores", &breaker.ignores), ("counts", &breaker.counts)] {
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(FailureMatch::to_string).collect();
            values.push(Explained::new(key, kinds.clone(), kinds.join(", "), origin));
        }
    }
    values.push(Explained::setting("when_open", &resolved.when_open));
    values.push(Explained::span("hold_max", &resolved.hold_max));
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
        Explained::span("connect", connect),
        Explained::span("tls", tls),
        Explained::span("headers", headers),
        Explained::word("as", category.value.as_str(), category.origin),
    ]
}

fn permits(resolved: &Resolved<'_>) -> Vec<Explained> {
    let by_cores = resolved.kind == Kind::Process && resolved.in_flight.origin.level == Level::Kind;
    let note = if by_cores { "as many as this machine has cores" } else { "" };
    let mut values = vec![Explained::number("in_flight", &resolved.in_flight).noting(note)];
    values.extend(resolved.rate.as_ref().map(|known| Explained::rate("rate", known)));
    let note = if resolved.ramp.value.is_zero() {
        "after an outage all at once"
    } else {
        "after an outage, to twice the usual rate"
    };
    values.push(Explained::span("ramp", &resolved.ramp).noting(note));
    let Known { value, origin } = resolved.rate_growth;
    let growth = Explained::new("rate_growth", value.get(), value.to_string(), origin);
    values.push(growth.noting("in a second, after it was throttled"));
    let memory = Explained::span("rate_memory", &resolved.rate_memory);
    values.push(memory.noting("of the limit at which it was throttled"));
    values.extend(resolved.retry_budget.as_ref().map(|known| {
        let BudgetSettings { share, at_least } = known.value;
        let value = json!({ "share": share.get(), "at_least_per_second": at_least.as_per_second() });
        let shown = format!("{share} of the calls, at least {at_least}");
        Explained::new("retry_budget", value, shown, known.origin)
    }));
    values
}

fn waiting(resolved: &Resolved<'_>) -> Vec<Explained> {
    let own = &resolved.waiting;
    let size = own.size_bytes.value;
    let of_webhook = own.when_full_of_webhook();
    let apart = (of_webhook != own.when_full.value)
        .then(|| format!("{} if it came in through a webhook", of_webhook.as_word()));
    vec![
        Explained::number("events", &own.events).noting("at most, for the whole service"),
        Explained {
            label: "size".to_owned(),
            ..Explained::new("size_bytes", size, show_size(size), own.size_bytes.origin)
        },
        Explained::number("per_session", &own.per_session)
            .noting("behind a dead letter that holds their session"),
        Explained::setting("when_full", &own.when_full).noting(apart.unwrap_or_default()),
    ]
}

fn store_note(store: &str) -> &'static str {
    if store == EMBEDDED { "" } else { "not available: write `embedded`" }
}

fn idempotency(resolved: &Resolved<'_>) -> Vec<Explained> {
    let own = &resolved.idempotency;
    vec![
        Explained::setting("by", &own.by),
        Explained::word("store", &own.store.value, own.store.origin).noting(store_note(&own.store.value)),
        Explained::word("key", own.key_shown(), own.key.as_ref().map_or(Origin::BUILT_IN, |key| key.origin)),
        Explained::span("ttl", &own.ttl),
    ]
}

fn dead_letter(resolved: &Resolved<'_>) -> Vec<Explained> {
    let letter = &resolved.dead_letter;
    let name = letter_name(resolved);
    let mut values = vec![
        Explained::word("name", &name, letter.template.origin)
            .noting(letter.name.as_ref().err().cloned().unwrap_or_default()),
        Explained::setting("form", &letter.form),
        Explained::span("retention", &letter.retention),
    ];
    values.extend(letter.alert.as_ref().map(|known| Explained::rate("alert", known)));
    let categories: Vec<&str> = letter.categories.iter().map(|category| category.as_str()).collect();
    values.push(Explained::setting("reprocess", &letter.reprocess).noting(categories.join(", ")));
    values.push(Explained::number("reprocess_max", &letter.reprocess_max));
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
            "severity": alert.severity.as_str(),
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
        let shown = alert.severity.as_str().to_owned();
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
        at.as_ref().map(|at| Explained::span(key, &Known::stated(level, at)))
    };
    let number =
        |key, at: &Option<At<u64>>| at.as_ref().map(|at| Explained::number(key, &Known::stated(level, at)));
    let idempotent_by = idempotent_by.as_ref().map(|at| {
        let pattern = at.value.pattern.as_word();
        let value = json!({ "pattern": pattern, "store": at.value.store });
        let store = at.value.store.as_ref().map(|store| format!("in {store}"));
        Explained::new("idempotent_by", value, pattern, origin(at.span)).noting(store.unwrap_or_default())
    });
    let values = [
        rate.as_ref().map(|at| Explained::rate("rate", &Known::stated(level, at))),
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

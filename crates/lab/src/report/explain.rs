//! A rule value by value, each with its origin: one list for the terminal, the API and the page.
//!
//! Times are milliseconds in JSON, and as in the rule book in texts.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{letter_name, limit, matcher, reaction, trip};
use redrive_core::book::keywords::Keyword;
use redrive_core::book::model::{AlertSwitch, At, DeclaredFacts, ReactionName};
use redrive_core::book::problem::BookSpan;
use redrive_core::book::problem::Position;
use redrive_core::book::resolve::{Resolved, ResolvedTimeouts, ResolvedValue, RuleLevel, ValueOrigin};
use redrive_core::book::{EMBEDDED, RuleBook};
use redrive_core::limits;
use redrive_core::policy::backoff::Backoff;
use redrive_core::policy::budget::BudgetSettings;
use redrive_core::policy::catalog::DependencyKind;
use redrive_core::policy::category::{Category, FailureCode};
use redrive_core::policy::rule::{FailureMatch, OverrideMeaning, Reaction};
use redrive_core::text::{Rate, show_duration, show_size};

#[derive(Clone, Debug, PartialEq)]
pub struct RuleSection {
    pub key: &'static str,
    pub title: &'static str,
    pub values: Vec<ExplainedValue>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedValue {
    pub key: String,
    pub label: String,
    pub value: Value,
    pub shown: String,
    pub note: String,
    pub stated: ExplainedOrigin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainedOrigin {
    At(ValueOrigin),
    ForTheBook(BookSpan),
}

impl ExplainedOrigin {
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self.position().is_none()
    }

    #[must_use]
    pub fn position(self) -> Option<Position> {
        match self {
            Self::At(origin) => origin.position(),
            Self::ForTheBook(span) => Some(span.position),
        }
    }

    const fn level(self) -> &'static str {
        match self {
            Self::ForTheBook(_) => "book",
            Self::At(origin) => match origin.level {
                RuleLevel::Row => "row",
                RuleLevel::Channel => "channel",
                RuleLevel::Service => "service",
                RuleLevel::Dependency => "dependency",
                RuleLevel::Kind => "kind",
                RuleLevel::Defaults => "defaults",
                RuleLevel::BuiltIn => "built-in",
            },
        }
    }
}

/// `the defaults, line 9`.
impl fmt::Display for ExplainedOrigin {
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

#[must_use]
pub fn explain(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<RuleSection> {
    let group = |key, title, values| RuleSection { key, title, values };
    let groups = vec![
        group("delivery", "Delivery", delivery(resolved)),
        group("on_failure", "On failure", on_failure(resolved)),
        group("classify", "Classification", classify(resolved)),
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

/// The same as JSON: each value with its level, line and column.
#[must_use]
pub fn to_json(book: &RuleBook, resolved: &Resolved<'_>) -> Value {
    let mut object = Map::new();
    object.insert("service".to_owned(), json!(resolved.service.name.as_str()));
    object.insert("channel".to_owned(), json!(resolved.channel.map(|channel| channel.name.as_str())));
    object.insert("pattern".to_owned(), json!(resolved.row.pattern.value.as_str()));
    object.insert("subscription".to_owned(), json!(resolved.subscription()));
    for RuleSection { key, values, .. } in explain(book, resolved) {
        // Values without a key are a list.
        let group = if matches!(key, "classify" | "alerts") {
            Value::Array(values.iter().map(ExplainedValue::to_json).collect())
        } else {
            values.iter().map(|value| (value.key.clone(), value.to_json())).collect::<Map<_, _>>().into()
        };
        object.insert(key.to_owned(), group);
    }
    Value::Object(object)
}

impl ExplainedValue {
    fn new(key: &str, value: impl Into<Value>, shown: impl Into<String>, origin: ValueOrigin) -> Self {
        let label = key.replace('_', " ");
        let (key, note) = (key.to_owned(), String::new());
        Self {
            key,
            label,
            value: value.into(),
            shown: shown.into(),
            note,
            stated: ExplainedOrigin::At(origin),
        }
    }

    fn word(key: &str, word: &str, origin: ValueOrigin) -> Self {
        Self::new(key, word, word, origin)
    }

    fn setting(key: &str, known: &ResolvedValue<impl Keyword>) -> Self {
        Self::word(key, known.value.as_word(), known.origin)
    }

    fn number<N: Copy + Into<Value> + ToString>(key: &str, known: &ResolvedValue<N>) -> Self {
        Self::new(key, known.value, known.value.to_string(), known.origin)
    }

    fn span(key: &str, known: &ResolvedValue<Duration>) -> Self {
        let (value, shown) = (millis(known.value), show_duration(known.value));
        Self { label: key.replace('_', " "), ..Self::new(&format!("{key}_ms"), value, shown, known.origin) }
    }

    fn rate(key: &str, known: &ResolvedValue<Rate>) -> Self {
        let (value, shown) = (known.value.as_per_second(), known.value.to_string());
        let rate = Self::new(&format!("{key}_per_second"), value, shown, known.origin);
        Self { label: key.replace('_', " "), ..rate }
    }

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

const fn at_level(level: RuleLevel, span: BookSpan) -> ValueOrigin {
    ValueOrigin { level, span: Some(span) }
}

fn delivery(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let target_level = match resolved.channel {
        Some(channel) if channel.target.is_some() => RuleLevel::Channel,
        Some(_) | None => RuleLevel::Service,
    };
    let target = &resolved.target.endpoint;
    let (kind, place) = (target.key(), target.profile.shown.as_str());
    let target_origin = at_level(target_level, resolved.target.span);
    let ResolvedValue { value: dependency, origin } = &resolved.dependency;
    let mut values = vec![
        ExplainedValue::new("target", json!({ "kind": kind, "address": place }), kind, target_origin)
            .noting(place),
    ];
    values.extend(resolved.row.condition.as_ref().map(|condition| {
        ExplainedValue::word("where", condition.value.as_str(), at_level(RuleLevel::Row, condition.span))
    }));
    if let Some(batch) = &target.profile.batch {
        let origin = batch.stated_at.map_or(ValueOrigin::BUILT_IN, |span| at_level(target_level, span));
        values.push(ExplainedValue::new("batch_max", batch.max, batch.max.to_string(), origin));
    }
    values.extend([
        ExplainedValue::word("dependency", dependency.as_str(), *origin)
            .noting(format!("of kind {}", resolved.kind)),
        ExplainedValue::setting("order", &resolved.order),
        ExplainedValue::word(
            "consumer_group",
            &resolved.consumer_group.value,
            resolved.consumer_group.origin,
        ),
        ExplainedValue::span("keep_delivered", &resolved.keep_delivered),
    ]);
    values.extend(resolved.criticality.as_ref().map(|known| ExplainedValue::setting("criticality", known)));
    values.extend(resolved.data_loss.as_ref().map(|known| ExplainedValue::setting("data_loss", known)));
    values
}

fn on_failure(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let mut values: Vec<ExplainedValue> = Vec::new();
    for (kind, known) in &resolved.reactions {
        let value = ExplainedValue::word(&kind.to_string(), reaction(&known.value), known.origin);
        let note = match &known.value {
            ReactionName::Policy(name) => {
                let policy = resolved.rule.reactions.policy(name);
                policy.map(|policy| backoff(&policy.backoff)).unwrap_or_default()
            }
            ReactionName::DeadLetter => "no retry".to_owned(),
            ReactionName::Pause => "the service pauses until it is resumed".to_owned(),
        };
        values.push(value.noting(note + &capped(resolved, *kind)));
    }
    values.extend(resolved.deadline.as_ref().map(|known| ExplainedValue::span("deadline", known)));
    values.extend(resolved.fatal_after.as_ref().map(|known| ExplainedValue::span("fatal_after", known)));
    values
}

/// The cap on a policy that the book states for other failures only.
fn capped(resolved: &Resolved<'_>, on: FailureMatch) -> String {
    let FailureMatch::Category(category) = on else { return String::new() };
    match (category, resolved.rule.reactions.to(category, None).value) {
        (Category::Unknown, Reaction::RetryCautiously(_)) => {
            format!(", at most {} retries", limits::UNKNOWN_RETRIES_MAX)
        }
        (Category::Internal, Reaction::RetryCautiously(_)) => {
            format!(", at most {} attempts", limits::INTERNAL_ATTEMPTS_MAX)
        }
        (_, Reaction::Retry(_) | Reaction::RetryCautiously(_) | Reaction::DeadLetter | Reaction::Pause) => {
            String::new()
        }
    }
}

/// `5 retries, 1s doubling to 30s, within 5m`.
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

fn classify(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let rows = resolved.classify.iter().map(|(row, level)| {
        let meaning = match row.meaning {
            OverrideMeaning::Failure(category) => category.as_str(),
            OverrideMeaning::Delivered => "delivered",
        };
        let when = matcher(&row.when);
        let span = BookSpan { position: row.position, ..BookSpan::default() };
        let value = json!({
            "when": when,
            "as": meaning,
            "code": row.code.as_ref().map(FailureCode::as_str),
            "because": row.because.as_deref(),
        });
        let row_value = ExplainedValue::new("", value, meaning, at_level(*level, span));
        let note = row.because.as_deref().unwrap_or_default();
        ExplainedValue { label: when, ..row_value }.noting(note)
    });
    rows.collect()
}

fn breaker(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let origin = resolved.breaker_origin;
    let mut values = vec![ExplainedValue::word("name", &super::breaker_name(resolved), origin)];
    let Some(breaker) = &resolved.rule.breaker else { return values };
    let settings = &breaker.settings;
    values.push(ExplainedValue::word("trip", &trip(settings.trip()), origin));
    values.push(ExplainedValue::span("open", &ResolvedValue { value: settings.open(), origin }));
    for (key, count) in [("probes", settings.probes()), ("close_after", settings.close_after())] {
        values.push(ExplainedValue::number(key, &ResolvedValue { value: count.get(), origin }));
    }
    values.extend(
        settings.reset().map(|value| ExplainedValue::span("reset", &ResolvedValue { value, origin })),
    );
    values.push(ExplainedValue::word("count", settings.count().as_word(), origin));
    for (key, kinds) in [("ignores", &breaker.ignores), ("counts", &breaker.counts)] {
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.iter().map(FailureMatch::to_string).collect();
            values.push(ExplainedValue::new(key, kinds.clone(), kinds.join(", "), origin));
        }
    }
    values.push(ExplainedValue::setting("when_open", &resolved.when_open));
    values.push(ExplainedValue::span("hold_max", &resolved.hold_max));
    values
}

fn timeouts(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let ResolvedTimeouts { connect, tls, headers, whole, category, name } = &resolved.timeouts;
    let value = json!({
        "name": name,
        "first_ms": millis(whole.value.first),
        "factor": whole.value.factor,
        "max_ms": millis(whole.value.max),
    });
    let named = name.as_ref().map(|name| format!("named {name}"));
    vec![
        ExplainedValue::new("whole", value, limit(whole.value), whole.origin)
            .noting(named.unwrap_or_default()),
        ExplainedValue::span("connect", connect),
        ExplainedValue::span("tls", tls),
        ExplainedValue::span("headers", headers),
        ExplainedValue::word("as", category.value.as_str(), category.origin),
    ]
}

fn permits(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let by_cores =
        resolved.kind == DependencyKind::Process && resolved.in_flight.origin.level == RuleLevel::Kind;
    let note = if by_cores { "the number of CPU cores" } else { "" };
    let mut values = vec![ExplainedValue::number("in_flight", &resolved.in_flight).noting(note)];
    values.extend(resolved.rate.as_ref().map(|known| ExplainedValue::rate("rate", known)));
    let note = if resolved.ramp.value.is_zero() {
        "no ramp-up after an outage"
    } else {
        "ramp-up to twice the usual rate after an outage"
    };
    values.push(ExplainedValue::span("ramp", &resolved.ramp).noting(note));
    let ResolvedValue { value, origin } = resolved.rate_growth;
    let growth = ExplainedValue::new("rate_growth", value.get(), value.to_string(), origin);
    values.push(growth.noting("per second, after throttling"));
    let memory = ExplainedValue::span("rate_memory", &resolved.rate_memory);
    values.push(memory.noting("how long a throttling limit is remembered"));
    values.extend(resolved.retry_budget.as_ref().map(|known| {
        let BudgetSettings { share, at_least } = known.value;
        let value = json!({ "share": share.get(), "at_least_per_second": at_least.as_per_second() });
        let shown = format!("{share} of calls, at least {at_least}");
        ExplainedValue::new("retry_budget", value, shown, known.origin)
    }));
    values
}

fn waiting(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let own = &resolved.waiting;
    let size = own.size_bytes.value;
    let of_webhook = own.when_full_of_webhook();
    let apart =
        (of_webhook != own.when_full.value).then(|| format!("{} for webhook sources", of_webhook.as_word()));
    vec![
        ExplainedValue::number("events", &own.events).noting("maximum for the whole service"),
        ExplainedValue {
            label: "size".to_owned(),
            ..ExplainedValue::new("size_bytes", size, show_size(size), own.size_bytes.origin)
        },
        ExplainedValue::number("per_session", &own.per_session)
            .noting("behind a dead letter that blocks their session"),
        ExplainedValue::setting("when_full", &own.when_full).noting(apart.unwrap_or_default()),
    ]
}

fn store_note(store: &str) -> &'static str {
    if store == EMBEDDED { "" } else { "not available: write `embedded`" }
}

fn idempotency(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let own = &resolved.idempotency;
    vec![
        ExplainedValue::setting("by", &own.by),
        ExplainedValue::word("store", &own.store.value, own.store.origin)
            .noting(store_note(&own.store.value)),
        ExplainedValue::word(
            "key",
            own.key_shown(),
            own.key.as_ref().map_or(ValueOrigin::BUILT_IN, |key| key.origin),
        ),
        ExplainedValue::span("ttl", &own.ttl),
    ]
}

fn dead_letter(resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let letter = &resolved.dead_letter;
    let name = letter_name(resolved);
    let mut values = vec![
        ExplainedValue::word("name", &name, letter.template.origin)
            .noting(letter.name.as_ref().err().cloned().unwrap_or_default()),
        ExplainedValue::setting("form", &letter.form),
        ExplainedValue::span("retention", &letter.retention),
    ];
    values.extend(letter.alert.as_ref().map(|known| ExplainedValue::rate("alert", known)));
    let categories: Vec<&str> = letter.categories.iter().map(|category| category.as_str()).collect();
    values.push(ExplainedValue::setting("reprocess", &letter.reprocess).noting(categories.join(", ")));
    values.push(ExplainedValue::number("reprocess_max", &letter.reprocess_max));
    if let Some(ResolvedValue { value, origin }) = &letter.reprocess_cron {
        values.push(
            ExplainedValue::word("reprocess_cron", value.as_str(), *origin).noting("in UTC".to_owned()),
        );
    }
    values
}

fn alerts(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let of_rule = resolved
        .alerts
        .iter()
        .map(|(alert, level)| (*alert, ExplainedOrigin::At(at_level(*level, alert.span))));
    let of_book = book.sections().alerts.iter().map(|alert| (alert, ExplainedOrigin::ForTheBook(alert.span)));
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
            "off": alert.switch == AlertSwitch::Off,
        });
        let note = match alert.switch {
            AlertSwitch::Off => "off".to_owned(),
            AlertSwitch::On if alert.to.is_empty() => String::new(),
            AlertSwitch::On => format!("to {}", alert.to.join(", ")),
        };
        let shown = alert.severity.as_str().to_owned();
        ExplainedValue { key: String::new(), label: when, value, shown, note, stated }
    });
    values.collect()
}

/// The most specific of each fact, and all `uses`.
fn facts(book: &RuleBook, resolved: &Resolved<'_>) -> Vec<ExplainedValue> {
    let mut found: Vec<ExplainedValue> = Vec::new();
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

fn facts_of(facts: &DeclaredFacts, level: RuleLevel) -> Vec<ExplainedValue> {
    let DeclaredFacts {
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
        at.as_ref().map(|at| ExplainedValue::span(key, &ResolvedValue::stated(level, at)))
    };
    let number = |key, at: &Option<At<u64>>| {
        at.as_ref().map(|at| ExplainedValue::number(key, &ResolvedValue::stated(level, at)))
    };
    let idempotent_by = idempotent_by.as_ref().map(|at| {
        let pattern = at.value.pattern.as_word();
        let value = json!({ "pattern": pattern, "store": at.value.store });
        let store = at.value.store.as_ref().map(|store| format!("in {store}"));
        ExplainedValue::new("idempotent_by", value, pattern, origin(at.span))
            .noting(store.unwrap_or_default())
    });
    let values = [
        rate.as_ref().map(|at| ExplainedValue::rate("rate", &ResolvedValue::stated(level, at))),
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
    let mut values: Vec<ExplainedValue> = values.into_iter().flatten().collect();
    if let Some(first) = uses.first() {
        let names: Vec<&str> = uses.iter().map(|at| at.value.as_str()).collect();
        values.push(ExplainedValue::new("uses", names.clone(), names.join(", "), origin(first.span)));
    }
    values
}

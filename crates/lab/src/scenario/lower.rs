//! Turns validated nodes into a [`Scenario`], and checks what concerns several keys: overlapping phases, contradicting
//! numbers, invalid expectations.
//!
//! Invariant: a value that validation has reported is skipped here, so that no mistake is reported twice.

use std::collections::BTreeMap;
use std::time::Duration;

use super::expectation::Expectation;
use super::{
    Arrival, ArrivalPattern, ArrivalScope, Behaviour, Capacity, FailureMode, FailurePhase, FaultKind,
    InnerCall, Latency, NodeFault, Scenario, Spacing, layers,
};
use redrive_core::book::model::At;
use redrive_core::book::parse::{at, duration_of, key_span, number_of, text_of};
use redrive_core::book::problem::{BookSpan, Problem, ProblemSeverity, Problems};
use redrive_core::book::yaml::{YamlNode, YamlValue};
use redrive_core::event::attribute::EventType;
use redrive_core::ids::DependencyName;
use redrive_core::limits;
use redrive_core::text::{self, Rate, Share};

const DAY: Duration = Duration::from_hours(24);

/// None without a duration.
pub(super) fn lower(root: &YamlNode, problems: &mut Problems) -> Option<Scenario> {
    let duration = duration_of(root, "duration")?;
    if duration.is_zero() {
        let help = "state how long events arrive, such as 30m";
        problems.error(
            "out-of-range",
            key_span(root, "duration"),
            "`duration` must be greater than zero",
            help,
        );
    }
    let nodes = number_of(root, "nodes").unwrap_or(1);
    let settle = duration_of(root, "settle").unwrap_or(limits::SIMULATION_SETTLE_DEFAULT);
    check_unreached(root, duration, settle, problems);
    Some(Scenario {
        about: text_of(root, "about"),
        duration,
        settle,
        nodes,
        arrivals: arrivals(root, duration, problems),
        dependencies: dependencies(root, problems),
        faults: faults(root, nodes, problems),
        expectations: expectations(root, problems),
    })
}

fn items<'a>(root: &'a YamlNode, key: &str) -> &'a [YamlNode] {
    root.get(key).map(YamlNode::items).unwrap_or_default()
}

/// Events arrive within the duration only. Phases and faults matter until the run ends.
fn check_unreached(root: &YamlNode, duration: Duration, settle: Duration, problems: &mut Problems) {
    let shown = text::show_duration;
    let all = items(root, "arrivals");
    let is_late = |node: &YamlNode| duration_of(node, "from").is_some_and(|from| from >= duration);
    let severity = if all.iter().all(is_late) { ProblemSeverity::Error } else { ProblemSeverity::Warning };
    for node in all.iter().filter(|node| is_late(node)) {
        problems.add(Problem {
            severity,
            code: "never-happens",
            span: key_span(node, "from"),
            message: format!("none of these arrive: the duration is {}", shown(duration)),
            help: "make `from` earlier, or `duration` longer".to_owned(),
        });
    }
    let over_at = duration.saturating_add(settle);
    let dependencies = root.get("dependencies").map(YamlNode::entries).unwrap_or_default();
    let phases = dependencies.iter().flat_map(|(_, node)| items(node, "phases")).map(|node| (node, "phase"));
    let faults = items(root, "faults").iter().map(|node| (node, "fault"));
    for (node, what) in phases.chain(faults) {
        if duration_of(node, "at").is_none_or(|at| at < over_at) {
            continue;
        }
        let (duration, settle) = (shown(duration), shown(settle));
        problems.add(Problem {
            severity: ProblemSeverity::Warning,
            code: "never-happens",
            span: key_span(node, "at"),
            message: format!(
                "this {what} starts after the end of the run, {duration} of events and {settle} to settle"
            ),
            help: format!("start the {what} earlier, or make `duration` or `settle` longer"),
        });
    }
}

fn arrivals(root: &YamlNode, duration: Duration, problems: &mut Problems) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    let mut events = 0.0;
    for node in items(root, "arrivals") {
        let Some(arrival) = arrival(node, duration, problems) else { continue };
        if arrival.until <= arrival.from && arrival.from < duration {
            let message = "`until` is not after `from`, so nothing arrives";
            problems.error(
                "out-of-range",
                key_span(node, "until"),
                message,
                "make `until` later than `from`",
            );
        }
        events += expected_events(&arrival);
        if events > limits::SIMULATION_EVENTS_MAX as f64 {
            let most = text::show_count(limits::SIMULATION_EVENTS_MAX);
            let message = format!("the scenario has more than {most} events");
            problems.error("too-many-events", node.span, message, "shorten the scenario, or lower its rates");
            break;
        }
        arrivals.push(arrival);
    }
    arrivals
}

/// The approximate number of events.
pub(super) fn expected_events(arrival: &Arrival) -> f64 {
    let lasting = arrival.until.saturating_sub(arrival.from);
    match &arrival.flow {
        ArrivalPattern::Steady { rate, .. } => rate.as_per_second() * lasting.as_secs_f64(),
        ArrivalPattern::Wave { low, high, .. } => {
            f64::midpoint(low.as_per_second(), high.as_per_second()) * lasting.as_secs_f64()
        }
        ArrivalPattern::Bursts { size, every: None } => f64::from(*size),
        ArrivalPattern::Bursts { size, every: Some(every) } => {
            f64::from(*size) * (lasting.as_secs_f64() / every.as_secs_f64() + 1.0)
        }
        ArrivalPattern::Trace { times, .. } => times.len() as f64,
    }
}

fn arrival(node: &YamlNode, duration: Duration, problems: &mut Problems) -> Option<Arrival> {
    // A pattern becomes one matching type, which the same rows receive.
    let event_type = at(node.get("type")?, |text| EventType::new(&text.replace('*', "any")).ok())?;
    let is_every = node.get("type").and_then(YamlNode::text) == Some("*");
    Some(Arrival {
        event_type,
        scope: if is_every { ArrivalScope::EveryRow } else { ArrivalScope::OneType },
        sessions: number_of(node, "sessions"),
        poison: share_of(node, "poison").unwrap_or(Share::NONE),
        from: duration_of(node, "from").unwrap_or_default(),
        until: duration_of(node, "until").unwrap_or(duration).min(duration),
        flow: flow(node, problems)?,
    })
}

fn flow(node: &YamlNode, problems: &mut Problems) -> Option<ArrivalPattern> {
    let spacing = match node.get("spacing").and_then(YamlNode::text) {
        Some("even") => Spacing::Even,
        Some(_) | None => Spacing::Random,
    };
    if node.get("rate").is_some() {
        return Some(ArrivalPattern::Steady { rate: rate_of(node, "rate")?, spacing });
    }
    if node.get("spacing").is_some() && node.get("wave").is_none() {
        let message = "`spacing` applies to `rate` and `wave` only";
        problems.error("excluded-key", key_span(node, "spacing"), message, "remove `spacing`");
    }
    if let Some(wave) = node.get("wave") {
        let (low, high) = (rate_of(wave, "low")?, rate_of(wave, "high")?);
        if high < low {
            let message = format!("`high` ({high}) is below `low` ({low})");
            problems.error("out-of-range", key_span(wave, "high"), message, "make `high` the larger one");
        }
        let every = not_zero(wave, "every", problems).unwrap_or(DAY);
        return Some(ArrivalPattern::Wave { low, high, every, spacing });
    }
    if let Some(bursts) = node.get("bursts") {
        let every = not_zero(bursts, "every", problems);
        return Some(ArrivalPattern::Bursts { size: number_of(bursts, "size")?, every });
    }
    let file = at(node.get("trace")?, |text| Some(text.to_owned()))?;
    Some(ArrivalPattern::Trace { file, times: Vec::new() })
}

fn not_zero(node: &YamlNode, key: &str, problems: &mut Problems) -> Option<Duration> {
    let span = duration_of(node, key)?;
    if span.is_zero() {
        let message = format!("`{key}` must be greater than zero");
        problems.error("out-of-range", key_span(node, key), message, "such as 10m");
        return None;
    }
    Some(span)
}

fn dependencies(root: &YamlNode, problems: &mut Problems) -> BTreeMap<DependencyName, At<Behaviour>> {
    let entries = root.get("dependencies").map(YamlNode::entries).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (key, node) in entries {
        let Some(name) = key.text().and_then(|text| DependencyName::new(text).ok()) else { continue };
        let value = Behaviour {
            latency: latency_at(node, "latency", problems),
            capacity: node.get("capacity").map(|node| capacity(node, problems)),
            phases: phases(node, problems),
            calls: inner_calls(node),
        };
        found.insert(name, At { value, span: key.span });
    }
    layers::count(&found, problems);
    layers::check(&found, problems);
    found
}

fn inner_calls(node: &YamlNode) -> Vec<InnerCall> {
    let entries = node.get("calls").map(YamlNode::entries).unwrap_or_default();
    let call = |(key, node): &(YamlNode, YamlNode)| {
        Some(InnerCall {
            dependency: at(key, |text| DependencyName::new(text).ok())?,
            attempts: number_of(node, "attempts").unwrap_or(1),
            wait: duration_of(node, "wait").unwrap_or_default(),
            timeout: duration_of(node, "timeout").unwrap_or(limits::SIMULATION_INNER_TIMEOUT_DEFAULT),
        })
    };
    entries.iter().filter_map(call).collect()
}

/// A single duration is both p50 and p99.
fn latency_at(node: &YamlNode, key: &str, problems: &mut Problems) -> Option<Latency> {
    if let Some(both) = duration_of(node, key) {
        return Some(Latency { p50: both, p99: both });
    }
    let node = node.get(key)?;
    let (p50, p99) = (duration_of(node, "p50")?, duration_of(node, "p99")?);
    let help = "such as { p50: 20ms, p99: 200ms }";
    if p50.is_zero() {
        problems.error("out-of-range", key_span(node, "p50"), "`p50` must be greater than zero", help);
    } else if p99 < p50 {
        let message = "`p99` is below `p50`";
        problems.error("out-of-range", key_span(node, "p99"), message, help);
    }
    Some(Latency { p50, p99 })
}

fn capacity(node: &YamlNode, problems: &mut Problems) -> Capacity {
    let capacity = Capacity {
        rate: rate_of(node, "rate"),
        concurrent: number_of(node, "concurrent"),
        queue: number_of(node, "queue"),
        collapse: share_of(node, "collapse"),
    };
    if node.get("rate").is_none()
        && node.get("concurrent").is_none()
        && matches!(node.value, YamlValue::Map(_))
    {
        let help = "add `rate`, `concurrent` or both";
        problems.error("missing-key", node.span, "a capacity needs `rate` or `concurrent`", help);
    }
    capacity
}

fn phases(node: &YamlNode, problems: &mut Problems) -> Vec<FailurePhase> {
    let read = |node: &YamlNode, problems: &mut Problems| {
        let phase = FailurePhase {
            at: duration_of(node, "at")?,
            lasting: not_zero(node, "for", problems)?,
            mode: failure_mode(node, problems)?,
        };
        Some((phase, node.span))
    };
    let mut phases: Vec<(FailurePhase, BookSpan)> =
        items(node, "phases").iter().filter_map(|node| read(node, problems)).collect();
    phases.sort_by_key(|(phase, _)| phase.at);
    for pair in phases.windows(2) {
        let [(first, first_span), (second, span)] = pair else { continue };
        if second.at < first.until() {
            let line = first_span.position.line;
            let until = text::show_duration(first.until());
            let message = format!("this phase overlaps that on line {line}, which lasts until {until}");
            problems.error("phases-overlap", *span, message, "start one after the other has ended");
        }
    }
    phases.into_iter().map(|(phase, _)| phase).collect()
}

fn failure_mode(node: &YamlNode, problems: &mut Problems) -> Option<FailureMode> {
    match node.get("is").and_then(YamlNode::text) {
        Some("down") => return Some(FailureMode::Down),
        Some("hanging") => return Some(FailureMode::Hanging),
        Some(_) | None => {}
    }
    if node.get("slow").is_some() {
        return latency_at(node, "slow", problems).map(FailureMode::Slow);
    }
    if let Some(throttled) = node.get("throttled") {
        let retry_after = duration_of(throttled, "retry_after");
        return Some(FailureMode::Throttled { rate: rate_of(throttled, "rate")?, retry_after });
    }
    let fails = node.get("fails")?;
    let one = std::slice::from_ref(fails);
    let rows = if fails.items().is_empty() { one } else { fails.items() };
    // A status alone applies to all calls.
    let row = |node: &YamlNode| match node.text() {
        Some(status) => Some((status.parse().ok()?, Share::ALL)),
        None => Some((number_of(node, "status")?, share_of(node, "share").unwrap_or(Share::ALL))),
    };
    let rows: Vec<(u16, Share)> = rows.iter().filter_map(row).collect();
    if rows.iter().map(|(_, share)| share.get()).sum::<f64>() > 1.0 + 1e-9 {
        let message = "the shares of these failures add up to more than 100%";
        problems.error("out-of-range", fails.span, message, "reduce them to 100% at most");
    }
    Some(FailureMode::Failing(rows))
}

fn faults(root: &YamlNode, nodes: u32, problems: &mut Problems) -> Vec<NodeFault> {
    let mut faults = Vec::new();
    for node in items(root, "faults") {
        let kinds = [("restart", FaultKind::Restart), ("store_stall", FaultKind::StoreStall)];
        let found = kinds.iter().find_map(|(key, kind)| Some((*kind, duration_of(node, key)?)));
        let (Some(from), Some((kind, lasting))) = (duration_of(node, "at"), found) else { continue };
        let of_node = number_of(node, "node");
        if let Some(missing) = of_node.filter(|of_node: &u32| *of_node > nodes) {
            let message = format!("there is no node {missing}: the scenario has {nodes}");
            problems.error(
                "out-of-range",
                key_span(node, "node"),
                message,
                "raise `nodes`, or use another node",
            );
        }
        let fault = NodeFault { at: from, lasting, node: of_node, kind };
        let beside = |other: &NodeFault| {
            let same = other.node.is_none() || fault.node.is_none() || other.node == fault.node;
            same && fault.at < other.until() && other.at < fault.until()
        };
        if faults.iter().any(beside) {
            let message = "this fault overlaps another one of that node";
            problems.error("faults-overlap", node.span, message, "start one after the other has ended");
        }
        faults.push(fault);
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn expectations(root: &YamlNode, problems: &mut Problems) -> Vec<At<Expectation>> {
    let mut found = Vec::new();
    for node in items(root, "expect") {
        let Some(text) = node.text() else { continue };
        match Expectation::parse(text) {
            Ok(value) => found.push(At { value, span: node.span }),
            Err(error) => problems.error("bad-expectation", node.span, error.to_string(), error.help()),
        }
    }
    found
}

fn rate_of(node: &YamlNode, key: &str) -> Option<Rate> {
    text::parse_rate(node.get(key)?.text()?).ok()
}

fn share_of(node: &YamlNode, key: &str) -> Option<Share> {
    text::parse_share(node.get(key)?.text()?).ok()
}

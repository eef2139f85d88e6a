//! Handlers of the rule book: its text, findings, policies, and the rule for one event.
//!
//! Invariant: no password of an address leaves the server, and nothing secret of one reaches roles below
//! admin.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive_core::book::RuleBook;
use redrive_core::ids::PolicyName;
use redrive_core::mask::AddressMask;
use redrive_core::policy::backoff::{self, Backoff};
use redrive_core::text::show_duration;
use redrive_lab::lint;
use redrive_lab::report::explain::explain;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::addresses::VisibleAddresses;
use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult};
use crate::api::openapi::query_keys::QueryKeys;
use crate::api::request::Query;
use crate::api::{App, reply};
use crate::connectors;
use crate::rules::json::{
    BookJson, BookServiceJson, FindingJson, PolicyJson, RetryStepJson, RuleJson, RuleValueJson,
};
use crate::services::handlers::millis;

/// The response for the latest book, reused until another book is loaded.
#[derive(Default)]
pub(crate) struct BookJsonCache(Mutex<Option<(u64, Arc<BookJsonPair>)>>);

/// For admins, and for all other roles.
struct BookJsonPair {
    whole: BookJson,
    masked: BookJson,
}

/// The active rule book, with the findings of `redrive check`.
#[utoipa::path(
    get, path = "/v1/book", operation_id = "getRuleBook", tag = "operating",
    responses((status = 200, description = "the rule book; passwords in addresses are removed, and for roles below admin query values and webhook paths are masked", body = BookJson))
)]
pub(crate) async fn book(app: App, caller: ApiCaller) -> ApiResult {
    let (book, text) = app.node.book_and_text();
    let hash = book.hash();
    let lock = || app.book_shown.0.lock().expect("never poisoned");
    let known = lock().as_ref().filter(|(known, _)| *known == hash).map(|(_, shown)| Arc::clone(shown));
    let both = if let Some(known) = known {
        known
    } else {
        let made = tokio::task::spawn_blocking(move || BookJsonPair {
            whole: shown(&book, &text, &VisibleAddresses::Whole),
            masked: shown(&book, &text, &VisibleAddresses::Masked(AddressMask::of(&book))),
        });
        let made = made.await;
        let made = Arc::new(made.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())));
        *lock() = Some((hash, Arc::clone(&made)));
        made
    };
    let mut shown = match VisibleAddresses::for_caller(&caller, &app.node.book()) {
        VisibleAddresses::Whole => both.whole.clone(),
        VisibleAddresses::Masked(_) => both.masked.clone(),
    };
    shown.path = app.book_path.as_ref().map(|path| path.display().to_string());
    shown.read_at = app.node.book_read_at();
    reply::ok(&shown)
}

fn shown(book: &RuleBook, text: &str, addresses: &VisibleAddresses) -> BookJson {
    let finding = |problem| {
        let found = FindingJson::from(problem);
        let (message, help) = (addresses.shown(&found.message), addresses.shown(&found.help));
        FindingJson { message, help, ..found }
    };
    BookJson {
        text: addresses.shown_book(text),
        hash: format!("{:016x}", book.hash()),
        path: None,
        read_at: redrive_core::time::Timestamp::EPOCH,
        findings: lint::check_for(text.as_bytes(), connectors::table())
            .problems
            .into_iter()
            .map(finding)
            .collect(),
        policies: policies(book),
        services: book.sections().services.iter().map(service_json).collect(),
    }
}

fn service_json(service: &redrive_core::book::model::ServiceEntry) -> BookServiceJson {
    let rows = service.rows.iter().chain(service.channels.iter().flat_map(|channel| &channel.rows));
    let mut types: Vec<String> = rows.map(|row| row.pattern.value.to_string()).collect();
    types.sort_unstable();
    types.dedup();
    BookServiceJson {
        service: service.name.to_string(),
        channels: service.channels.iter().map(|channel| channel.name.to_string()).collect(),
        types,
    }
}

fn policies(book: &RuleBook) -> Vec<PolicyJson> {
    let sections = book.sections();
    let mut all: BTreeMap<PolicyName, (Backoff, Vec<String>)> = BTreeMap::new();
    for (name, entry) in &sections.policies {
        all.insert(name.clone(), (entry.value.backoff.clone(), Vec::new()));
    }
    for (service, channel, row) in sections.rows() {
        let resolved = sections.resolve(service, channel, row);
        let user = match channel {
            Some(channel) => format!("{}/{} {}", service.name, channel.name, row.pattern.value),
            None => format!("{} {}", service.name, row.pattern.value),
        };
        for policy in resolved.rule.reactions.policies() {
            let (_, users) =
                all.entry(policy.name.clone()).or_insert_with(|| (policy.backoff.clone(), Vec::new()));
            if !users.contains(&user) {
                users.push(user.clone());
            }
        }
    }
    let shown = |(name, (backoff, used_by)): (PolicyName, (Backoff, Vec<String>))| PolicyJson {
        line: sections.policies.get(&name).map(|at| at.span.position.line),
        name: name.to_string(),
        used_by,
        summary: summary(&backoff),
        steps: steps(&backoff),
        gives_up_after_ms: gives_up_after(&backoff).map(millis),
    };
    all.into_iter().map(shown).collect()
}

pub(crate) fn summary(backoff: &Backoff) -> String {
    let tries = u64::from(backoff.retries()) + 1;
    match (backoff.is_unlimited(), gives_up_after(backoff)) {
        (false, _) if backoff.retries() == 0 => "1 try".to_owned(),
        (false, Some(within)) => format!("{tries} tries within {}", show_duration(within)),
        (true, Some(within)) => format!("unlimited tries within {}", show_duration(within)),
        (_, None) => "unlimited tries".to_owned(),
    }
}

/// Latest start of the last retry; `None` if there is no last one.
fn gives_up_after(backoff: &Backoff) -> Option<Duration> {
    if backoff.is_unlimited() {
        return backoff.window();
    }
    let longest = backoff.wait_max_total();
    Some(backoff.window().map_or(longest, |window| window.min(longest)))
}

fn steps(backoff: &Backoff) -> Vec<RetryStepJson> {
    let ms = |span: Duration| (span.as_secs_f64() * 1e6).round() / 1e3;
    let (mut at_min, mut at_max) = (Duration::ZERO, Duration::ZERO);
    let steps = backoff::timeline(backoff).into_iter().map(|step| {
        at_min += step.min;
        at_max += step.max;
        (step, at_min, at_max)
    });
    // Retries that start past the window even at their earliest are never made.
    let window = backoff.window().unwrap_or(Duration::MAX);
    let made = steps.take_while(|(_, at_min, _)| *at_min <= window);
    made.map(|(step, at_min, at_max)| RetryStepJson {
        retry: step.retry,
        delay_ms: ms(step.nominal),
        min_ms: ms(step.min),
        max_ms: ms(step.max),
        at_min_ms: ms(at_min),
        at_max_ms: ms(at_max.min(window)),
    })
    .collect()
}

/// The rule to show; `service` and `type` are required.
#[derive(Deserialize, ToSchema)]
pub(crate) struct RuleKeys {
    #[schema(min_length = 1)]
    service: String,
    #[schema(min_length = 1)]
    channel: Option<String>,
    /// The event type.
    #[serde(rename = "type")]
    #[schema(min_length = 1)]
    event_type: String,
}

/// The rule that applies to one event type of a service, value by value.
#[utoipa::path(
    get, path = "/v1/rule", operation_id = "getRule", tag = "operating",
    params(QueryKeys<RuleKeys>),
    responses((status = 200, description = "every value with its origin", body = RuleJson))
)]
pub(crate) async fn rule(
    app: App,
    caller: ApiCaller,
    Query(RuleKeys { service, channel, event_type }): Query<RuleKeys>,
) -> ApiResult {
    caller.check_service(&service)?;
    let book = app.node.book();
    if book.service(&service).is_none() {
        return Err(ApiError::new(ApiCode::ServiceNotFound, format!("there is no service `{service}`")));
    }
    let Some(resolved) = book.explain(&service, channel.as_deref(), &event_type) else {
        let message = format!("`{service}` does not subscribe to events of type `{event_type}`");
        return Err(ApiError::new(ApiCode::EventNotWanted, message));
    };
    let values = explain(&book, &resolved).into_iter().flat_map(|group| {
        group.values.into_iter().map(move |value| RuleValueJson {
            group: group.title.to_owned(),
            name: value.label,
            value: value.shown,
            note: value.note,
            from: value.stated.to_string(),
            line: value.stated.position().map(|position| position.line),
        })
    });
    let rule = RuleJson {
        line: resolved.row.pattern.span.position.line,
        service,
        channel,
        event_type,
        values: values.collect(),
    };
    VisibleAddresses::for_caller(&caller, &book).ok(&rule)
}

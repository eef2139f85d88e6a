//! The API's description, OpenAPI 3.1, generated from the handlers.
//!
//! Invariants: a route cannot be added without its description and errors; every response has its headers;
//! the server, `redrive openapi` and `docs/reference/openapi.json` have the same document.

pub(crate) mod query_keys;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::MethodRouter;
use bytes::Bytes;
use clap::Args;
use redrive_core::access::Role;
use redrive_node::activity::ActivityLine;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{OpenApi as Description, Ref, RefOr, Response};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::access::{RouteAccess, RouteGuard, guard};
use crate::api::code::ApiCode;
use crate::api::error::ErrorBody;
use crate::api::{self, App};
use crate::status::live::Pulse;
use crate::storage::backup::BackupStep;
use crate::terminal::print_json;

/// Prints the OpenAPI 3.1 description of the HTTP API.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  redrive openapi > openapi.json

A running server serves it at /openapi.json.")]
pub(crate) struct OpenapiArgs {}

const EVERYWHERE: [ApiCode; 6] = [
    ApiCode::BadRequest,
    ApiCode::Forbidden,
    ApiCode::UriTooLong,
    ApiCode::HeadersTooLarge,
    ApiCode::Internal,
    ApiCode::Unavailable,
];

const WITH_BODY: [ApiCode; 4] =
    [ApiCode::Validation, ApiCode::RequestTimeout, ApiCode::PayloadTooLarge, ApiCode::UnsupportedEncoding];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Redrive",
        description = "Accepts events, delivers each to the services that subscribe to it, and records one outcome for each delivery.\n\nEvery response has an `X-Correlation-Id`: that of the request if it has at most 128 visible characters, else a new one. Every error has the form of `ErrorBody`, and its `code` never changes its meaning."
    ),
    servers((url = "http://127.0.0.1:7373", description = "the default address of `redrive serve`")),
    tags(
        (name = "events", description = "send and find events"),
        (name = "deliveries", description = "deliveries of events to services"),
        (name = "dead letters", description = "deliveries that failed for good"),
        (name = "replays", description = "replays of dead letters"),
        (name = "operating", description = "services, breakers, alerts and the server"),
    ),
    components(schemas(ErrorBody, BackupStep, Pulse, ActivityLine))
)]
struct OpenApiFrame;

pub(crate) struct Routes {
    promised: Vec<DescribedRoute>,
    /// Routes outside the API.
    beside: Vec<(&'static str, MethodRouter<App>)>,
}

struct DescribedRoute {
    need: RouteAccess,
    described: UtoipaMethodRouter<App>,
    errors: &'static [ApiCode],
}

impl Routes {
    pub(crate) const fn new() -> Self {
        Self { promised: Vec::new(), beside: Vec::new() }
    }

    pub(crate) fn add(
        mut self,
        need: RouteAccess,
        described: UtoipaMethodRouter<App>,
        errors: &'static [ApiCode],
    ) -> Self {
        self.promised.push(DescribedRoute { need, described, errors });
        self
    }

    /// An undocumented route with open access.
    pub(crate) fn beside(mut self, path: &'static str, answer: MethodRouter<App>) -> Self {
        self.beside.push((path, answer));
        self
    }

    pub(crate) fn serve(self, app: &App) -> (Router<App>, Router<App>) {
        let (mut open, mut guarded) = (Router::new(), Router::new());
        for DescribedRoute { need, described: (_, paths, answer), .. } in self.promised {
            for path in paths.paths.keys() {
                open = open.route(path, answer.clone());
                guarded = guarded.route(path, guard_by(need, answer.clone(), app));
            }
        }
        for (path, answer) in self.beside {
            open = open.route(path, answer.clone());
            guarded = guarded.route(path, answer);
        }
        (open, guarded)
    }

    fn describe(self) -> Description {
        let mut router = OpenApiRouter::with_openapi(OpenApiFrame::openapi());
        let mut common = BTreeMap::new();
        for DescribedRoute { need, described: (schemas, mut paths, answer), errors } in self.promised {
            for (does, operation) in paths.paths.values_mut().flat_map(operations) {
                describe_headers(operation);
                operation.security = Some(security(need));
                let asked: &[ApiCode] = match need {
                    RouteAccess::Nothing => &[],
                    RouteAccess::Key | RouteAccess::Permission(..) => {
                        &[ApiCode::Unauthorized, ApiCode::RateLimitExceeded]
                    }
                };
                for (status, codes) in errors_of(operation, &[errors, asked, does.errors()].concat()) {
                    let name = name_of(&codes);
                    operation.responses.responses.insert(status, Ref::from_response_name(&name).into());
                    common.entry(name).or_insert_with(|| RefOr::T(error(&codes)));
                }
            }
            router = router.routes((schemas, paths, answer));
        }
        let mut description = router.into_openapi();
        description.components.get_or_insert_default().responses.extend(common);
        description
    }

    #[cfg(test)]
    pub(crate) fn needs(&self) -> Vec<(String, RouteAccess)> {
        let of = |route: &DescribedRoute| {
            let (path, item) = route.described.1.paths.first_key_value().expect("a route has a path");
            let method = if item.get.is_some() { "GET" } else { "POST" };
            (format!("{method} {path}"), route.need)
        };
        let beside = self.beside.iter().map(|(path, _)| (format!("GET {path}"), RouteAccess::Nothing));
        self.promised.iter().map(of).chain(beside).collect()
    }
}

fn guard_by(need: RouteAccess, answer: MethodRouter<App>, app: &App) -> MethodRouter<App> {
    let asked = match need {
        RouteAccess::Nothing => return answer,
        RouteAccess::Key => None,
        RouteAccess::Permission(permission, reach) => Some((permission, reach)),
    };
    answer.route_layer(from_fn_with_state(RouteGuard { app: app.clone(), asked }, guard))
}

/// Open without keys; otherwise one of the roles is needed.
fn security(need: RouteAccess) -> Vec<SecurityRequirement> {
    let roles = match need {
        RouteAccess::Nothing => return Vec::new(),
        RouteAccess::Key => Role::ALL.to_vec(),
        RouteAccess::Permission(permission, _) => permission.roles(),
    };
    let roles = roles.into_iter().map(Role::as_str);
    vec![SecurityRequirement::default(), SecurityRequirement::new("bearer", roles)]
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (RouteEffect, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let writes =
        [put, post, delete, patch].into_iter().flatten().map(|operation| (RouteEffect::Write, operation));
    get.iter_mut().map(|operation| (RouteEffect::Read, operation)).chain(writes)
}

#[derive(Clone, Copy)]
enum RouteEffect {
    Read,
    Write,
}

impl RouteEffect {
    const fn errors(self) -> &'static [ApiCode] {
        match self {
            Self::Read => &[],
            Self::Write => &[ApiCode::OutcomeUnknown],
        }
    }
}

fn describe_headers(operation: &mut Operation) {
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            let reference = RefOr::Ref(Ref::new("#/components/headers/X-Correlation-Id"));
            response.headers.insert("X-Correlation-Id".to_owned(), reference);
        }
    }
}

fn errors_of(operation: &Operation, own: &[ApiCode]) -> BTreeMap<String, Vec<ApiCode>> {
    let mut codes = [&EVERYWHERE, own].concat();
    if operation.request_body.is_some() {
        codes.extend(WITH_BODY);
    }
    if operation.parameters.is_some() {
        codes.push(ApiCode::Validation);
    }
    codes.sort_unstable();
    codes.dedup();
    let mut by_status: BTreeMap<String, Vec<ApiCode>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.status().as_str().to_owned()).or_default().push(code);
    }
    by_status
}

fn name_of(codes: &[ApiCode]) -> String {
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    words.join(".")
}

fn error(codes: &[ApiCode]) -> Response {
    let meanings: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.meaning())).collect();
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let mut headers = json!({ "X-Correlation-Id": { "$ref": "#/components/headers/X-Correlation-Id" } });
    if codes.iter().any(|code| code.has_retry_after()) {
        headers["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
    }
    let code = json!({ "type": "string", "enum": words });
    let one_of_those = json!({ "allOf": [
        { "$ref": "#/components/schemas/ErrorJson" },
        { "type": "object", "properties": { "code": code } },
    ] });
    let schema = json!({ "type": "object", "required": ["error"], "properties": { "error": one_of_those } });
    let response = json!({
        "description": meanings.join("\n\n"),
        "headers": headers,
        "content": { "application/json": { "schema": schema } },
    });
    serde_json::from_value(response).expect("it is written as OpenAPI writes it")
}

pub(crate) fn document() -> Value {
    let mut document = serde_json::to_value(api::routes().describe()).expect("descriptions are JSON");
    let components = &mut document["components"];
    components["headers"] = json!({
        "X-Correlation-Id": {
            "description": "identifies the request in logs",
            "schema": { "type": "string", "minLength": 1 },
        },
        "Retry-After": {
            "description": "seconds to wait before the next request",
            "schema": { "type": "integer", "minimum": 1 },
        },
        "Content-Location": {
            "description": "permanent address of the resource",
            "schema": { "type": "string" },
        },
    });
    components["securitySchemes"] = json!({
        "bearer": { "type": "http", "scheme": "bearer", "description": "an API key or a token" },
    });
    refine(&mut document);
    inline_scalars(&mut document);
    document
}

/// Inlines scalar types: tools handle references to objects and enumerations best.
fn inline_scalars(document: &mut Value) {
    let is_scalar = |schema: &Value| {
        matches!(schema["type"].as_str(), Some("string" | "integer")) && schema.get("enum").is_none()
    };
    let schemas = document["components"]["schemas"].as_object_mut().expect("it has schemas");
    let (scalars, others) = std::mem::take(schemas).into_iter().partition(|(_, schema)| is_scalar(schema));
    *schemas = others;
    inline(document, &scalars);
}

fn inline(value: &mut Value, scalars: &Map<String, Value>) {
    let scalar_of = |schema: &Value| {
        let name = schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")?;
        let mut scalar = scalars.get(name)?.clone();
        if let Some(description) = schema.get("description") {
            scalar["description"] = description.clone();
        }
        Some(scalar)
    };
    if let Some(scalar) = scalar_of(value) {
        *value = scalar;
    } else if let Some(scalar) = value["oneOf"].get(0).and_then(scalar_of) {
        *value = scalar;
        value["type"] = json!([value["type"], "null"]);
    }
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| inline(value, scalars)),
        Value::Object(values) => values.values_mut().for_each(|value| inline(value, scalars)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn refine(document: &mut Value) {
    for name in ["MoveRemovedWanted", "PurgeWanted", "ReplayWanted"] {
        let whole = merged(document, name);
        document["components"]["schemas"][name] = whole;
    }
    // These bodies are optional.
    for path in [
        "/v1/events/{name}",
        "/v1/dead-letters/{id}/skip",
        "/v1/dead-letters/import",
        "/v1/keys/{id}/revoke",
        "/v1/dependencies/{name}/trip",
        "/v1/dependencies/{name}/reset",
    ] {
        document["paths"][path]["post"]["requestBody"]["required"] = json!(false);
    }
    let schemas = &mut document["components"]["schemas"];
    schemas["ErrorJson"]["properties"]["code"]["enum"] = ApiCode::ALL.map(ApiCode::as_str).as_slice().into();
    let event = &mut schemas["CloudEvent"];
    event["not"] = json!({ "required": ["data", "data_base64"] });
    event["propertyNames"] = json!({ "pattern": "^([a-z0-9]{1,64}|data_base64)$" });
    event["additionalProperties"] = json!({
        "description": "an extension attribute",
        "type": ["string", "integer", "boolean", "null"],
        "pattern": event["properties"]["id"]["pattern"],
        "minimum": i32::MIN,
        "maximum": i32::MAX,
    });
}

/// The schema of a request in one piece, so that additional properties can be refused.
fn merged(document: &Value, name: &str) -> Value {
    let schemas = &document["components"]["schemas"];
    let mut whole = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    whole["description"] = schemas[name]["description"].clone();
    for part in schemas[name]["allOf"].as_array().into_iter().flatten() {
        let path = part["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let part = path.map_or(part, |path| document.pointer(path).expect("what is referred to is there"));
        for (key, value) in part["properties"].as_object().into_iter().flatten() {
            whole["properties"][key] = value.clone();
        }
        if let Some(required) = part.get("required") {
            whole["required"] = required.clone();
        }
    }
    whole
}

static SERVED: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "describe", tag = "operating",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(crate) async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], SERVED.clone())
}

pub(crate) fn run(OpenapiArgs {}: &OpenapiArgs) -> anyhow::Result<()> {
    print_json(&document())
}

//! The API's description, OpenAPI 3.1, generated from the handlers.
//!
//! Invariants: a route cannot be added without its description and errors; every response has its headers;
//! the server, `redrive openapi` and `docs/reference/openapi.json` have the same document.

pub(crate) mod query_keys;

use std::collections::{BTreeMap, BTreeSet};
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
use utoipa::openapi::{OpenApi as Description, Ref, RefOr};
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

    /// What describes them, and the error responses that several have in common, by their names.
    fn describe(self) -> (Description, Map<String, Value>) {
        let mut router = OpenApiRouter::with_openapi(OpenApiFrame::openapi());
        let mut common = Map::new();
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
                    common.entry(name).or_insert_with(|| error(&codes));
                }
            }
            router = router.routes((schemas, paths, answer));
        }
        (router.into_openapi(), common)
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

/// Such as `BadRequestOrValidationError`: generators of clients make type names of it.
fn name_of(codes: &[ApiCode]) -> String {
    let capitalized = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
    let type_name = |code: &ApiCode| -> String {
        code.as_str().trim_end_matches("_ERROR").split('_').map(capitalized).collect()
    };
    let names: Vec<String> = codes.iter().map(type_name).collect();
    names.join("Or") + "Error"
}

/// An error response with one of those codes, which have one status.
///
/// Generators of clients read the reference and make one error type of it; validators read the codes beside it too.
fn error(codes: &[ApiCode]) -> Value {
    let meanings: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.meaning())).collect();
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let mut headers = json!({ "X-Correlation-Id": { "$ref": "#/components/headers/X-Correlation-Id" } });
    if codes.iter().any(|code| code.has_retry_after()) {
        headers["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
    }
    let error = json!({
        "$ref": "#/components/schemas/ErrorJson",
        "properties": { "code": { "type": "string", "enum": words } },
    });
    json!({
        "description": meanings.join("\n\n"),
        "headers": headers,
        "content": { "application/json": { "schema": {
            "$ref": "#/components/schemas/ErrorBody",
            "properties": { "error": error },
        } } },
    })
}

pub(crate) fn document() -> Value {
    let (description, responses) = api::routes().describe();
    let mut document = serde_json::to_value(description).expect("descriptions are JSON");
    let components = &mut document["components"];
    components["responses"] = responses.into();
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
    inline_scalars(&mut document);
    flatten_objects(&mut document);
    refine(&mut document);
    remove_unused(&mut document);
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
    for name in ["MoveRemovedRequest", "PurgeRequest", "NewReplayRequest"] {
        schema(document, name)["additionalProperties"] = json!(false);
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
    let import = &mut document["paths"]["/v1/dead-letters/import"]["post"]["requestBody"];
    import["content"]["application/octet-stream"]["schema"]["format"] = json!("binary");
    let codes = ApiCode::ALL.map(ApiCode::as_str);
    schema(document, "ErrorJson")["properties"]["code"]["enum"] = codes.as_slice().into();
    let event = schema(document, "CloudEvent");
    event["not"] = json!({ "required": ["data", "data_base64"] });
    event["propertyNames"] = json!({ "pattern": "^([a-z0-9]{1,64}|data_base64)$" });
    // Without a type, since a Go generator cannot write one that is several.
    event["additionalProperties"] = json!({
        "description": "an extension attribute: string, integer, boolean or null",
        "not": { "type": ["array", "object"] },
        "pattern": event["properties"]["id"]["pattern"],
        "multipleOf": 1,
        "minimum": i32::MIN,
        "maximum": i32::MAX,
    });
}

fn schema<'a>(document: &'a mut Value, name: &str) -> &'a mut Value {
    document["components"]["schemas"].get_mut(name).expect("a schema that is refined is described")
}

/// Writes each object in one piece, since generators of clients drop an object that is composed of others:
/// the parts that are read as one, and the variants of an enum, whose tag says which properties there are.
fn flatten_objects(document: &mut Value) {
    let schemas = document["components"]["schemas"].as_object_mut().expect("it has schemas");
    let is_composed = |schema: &Value| schema.get("allOf").or(schema.get("oneOf")).is_some();
    let composed = schemas.iter().filter(|(_, schema)| is_composed(schema));
    let flat: Vec<_> =
        composed.filter_map(|(name, schema)| Some((name.clone(), flattened(schema, schemas)?))).collect();
    schemas.extend(flat);
}

/// The schema as one object; none where it is something else too.
fn flattened(schema: &Value, schemas: &Map<String, Value>) -> Option<Value> {
    let name = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
    let schema = name.map_or(schema, |name| &schemas[name]);
    let parts_of = |word: &str| -> Option<Option<Vec<Value>>> {
        let parts = schema[word].as_array()?;
        Some(parts.iter().map(|part| flattened(part, schemas)).collect())
    };
    if let Some(parts) = parts_of("allOf") {
        let parts = parts?;
        let required: Vec<Value> = parts.iter().flat_map(required).cloned().collect();
        Some(object(schema, &required, &joined(&parts)))
    } else if let Some(variants) = parts_of("oneOf") {
        let variants = variants?;
        let tag = variants.first()?["properties"].as_object()?.keys().find(|key| {
            variants
                .iter()
                .all(|variant| variant["properties"][key]["enum"].as_array().is_some_and(|is| is.len() == 1))
        })?;
        let in_all = |key: &&Value| variants.iter().all(|variant| required(variant).contains(key));
        let required: Vec<Value> = required(&variants[0]).iter().filter(in_all).cloned().collect();
        let mut properties = joined(&variants);
        let meaning = |variant: &Value| {
            let is = variant["properties"][tag]["enum"][0].as_str()?;
            Some(format!("`{is}`: {}", variant["description"].as_str()?))
        };
        let meanings: Vec<String> = variants.iter().filter_map(meaning).collect();
        properties[tag]["description"] = meanings.join("\n").into();
        Some(object(schema, &required, &properties))
    } else {
        let is_map = schema["additionalProperties"].is_object();
        (schema["properties"].is_object() && !is_map).then(|| schema.clone())
    }
}

fn required(schema: &Value) -> &[Value] {
    schema["required"].as_array().map_or(&[], Vec::as_slice)
}

fn object(schema: &Value, required: &[Value], properties: &Map<String, Value>) -> Value {
    let mut object = json!({ "type": "object", "required": required, "properties": properties });
    if let Some(description) = schema.get("description") {
        object["description"] = description.clone();
    }
    object
}

/// The properties of all; one that several have is whatever it is in one of them.
fn joined(parts: &[Value]) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, property) in parts.iter().filter_map(|part| part["properties"].as_object()).flatten() {
        let Some(known) = all.get_mut(key) else {
            all.insert(key.clone(), property.clone());
            continue;
        };
        for word in ["enum", "type"] {
            let mut values = listed(&known[word]);
            values.extend(listed(&property[word]));
            let mut seen = BTreeSet::new();
            values.retain(|value| seen.insert(value.to_string()));
            match values.as_slice() {
                [] => {}
                [only] if word == "type" => known[word] = only.clone(),
                _ => known[word] = values.into(),
            }
        }
    }
    all
}

fn listed(value: &Value) -> Vec<Value> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => values.clone(),
        one => vec![one.clone()],
    }
}

/// Removes the schemas that only others were composed of.
fn remove_unused(document: &mut Value) {
    // These describe the lines of streams, to which nothing refers.
    const STREAMED: [&str; 3] = ["ActivityLine", "BackupStep", "Pulse"];
    loop {
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object_mut().expect("it has schemas");
        let before = schemas.len();
        schemas.retain(|name, _| {
            STREAMED.contains(&name.as_str()) || text.contains(&format!("\"#/components/schemas/{name}\""))
        });
        if schemas.len() == before {
            return;
        }
    }
}

static SERVED: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "getOpenapi", tag = "operating",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value))
)]
pub(crate) async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], SERVED.clone())
}

pub(crate) fn run(OpenapiArgs {}: &OpenapiArgs) -> anyhow::Result<()> {
    print_json(&document())
}

//! Handlers for API keys.
//!
//! Invariants: a key is shown once, in the answer to its creation; a durable change applies to authentication
//! even if its caller has gone.

use axum::http::{HeaderValue, StatusCode, header};
use redrive_core::access::{AccessScope, Role};
use redrive_core::text::{parse_duration, parse_rate};
use redrive_node::runtime::KeyError;
use redrive_node::store::access_store::{AuditEntry, KeyRecord};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::access::caller::ApiCaller;
use crate::api::code::ApiCode;
use crate::api::error::{ApiError, ApiResult, PathName};
use crate::api::request::{JsonBody, NoteRequest, read};
use crate::api::{App, reply, run_to_end};
use crate::keys::json::{CreateKeyResponse, KeyJson, KeyRevocation, KeysResponse};
use crate::keys::{self, CreatedKey, KeyCreationError, KeySpec};

/// A key to create.
#[derive(Deserialize, ToSchema)]
pub(crate) struct CreateKeyRequest {
    /// The key's name.
    #[schema(min_length = 1)]
    name: String,
    /// `viewer`, `operator`, `admin` or `ingest`; the first key must be `admin`.
    #[schema(value_type = String, pattern = "^(viewer|operator|admin|ingest)$")]
    role: Role,
    /// Only events of these sources.
    sources: Option<Vec<String>>,
    /// Only these services.
    services: Option<Vec<String>>,
    /// Maximum request rate, such as `100/s`.
    #[schema(pattern = "^[1-9][0-9]{0,3}/(s|m|h)$")]
    rate: Option<String>,
    /// Lifetime, such as `90d`.
    #[schema(pattern = "^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    expires: Option<String>,
}

/// Keys without their secrets, oldest first.
#[utoipa::path(
    get, path = "/v1/keys", operation_id = "listApiKeys", tag = "operating",
    responses((status = 200, description = "all keys", body = KeysResponse))
)]
pub(crate) async fn list(app: App) -> ApiResult {
    let records = app.node.keys().await?;
    let keys = records.iter().map(|record| shown(&app, record)).collect();
    reply::ok(&KeysResponse { keys })
}

fn shown(app: &App, record: &KeyRecord) -> KeyJson {
    KeyJson::new(record, app.access.last_used_at(&record.id), app.node.now())
}

/// Creates a key. The first one turns on authentication for everyone.
#[utoipa::path(
    post, path = "/v1/keys", operation_id = "createApiKey", tag = "operating",
    request_body = CreateKeyRequest,
    responses((status = 201, description = "the key, shown only once", body = CreateKeyResponse))
)]
pub(crate) async fn create(
    app: App,
    caller: ApiCaller,
    JsonBody(wanted): JsonBody<CreateKeyRequest>,
) -> ApiResult {
    let CreateKeyRequest { name, role, sources, services, rate, expires } = wanted;
    let spec = KeySpec {
        name,
        role,
        scope: AccessScope { sources: sources.unwrap_or_default(), services: services.unwrap_or_default() },
        rate: read("rate", rate.as_deref(), parse_rate)?,
        lives: read("expires", expires.as_deref(), parse_duration)?,
    };
    if !app.access.is_on() && spec.role != Role::Admin {
        return Err(ApiError::invalid("role", keys::FIRST_IS_ADMIN));
    }
    let made = run_to_end(make(app, caller, spec)).await?;
    let mut response = reply::json(StatusCode::CREATED, &made);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn make(app: App, caller: ApiCaller, spec: KeySpec) -> Result<CreateKeyResponse, ApiError> {
    let _turn = app.access.turn().await;
    let known = app.node.keys().await?;
    let is_taken = |id: &str| known.iter().any(|record| record.id == id);
    let CreatedKey { text, record } =
        keys::make(spec, is_taken, app.node.now()).map_err(|why| unmade(&why))?;
    let deed = AuditEntry { act: "key-create", what: keys::describe(&record), by: caller.by(), note: None };
    app.node.put_key(record.clone(), deed).await?;
    app.access.put(record.clone());
    Ok(CreateKeyResponse { key: text, shown: shown(&app, &record) })
}

fn unmade(why: &KeyCreationError) -> ApiError {
    let field = match why {
        KeyCreationError::Name => "name",
        KeyCreationError::TooManyNames | KeyCreationError::ScopeName(_) | KeyCreationError::Unfit(_) => {
            "scope"
        }
        KeyCreationError::Dead => "expires",
        KeyCreationError::NoRandom => return ApiError::unavailable(why.to_string()),
    };
    ApiError::invalid(field, format!("is invalid: {why}"))
}

/// Revokes a key. Revoking it again changes nothing.
#[utoipa::path(
    post, path = "/v1/keys/{id}/revoke", operation_id = "revokeApiKey", tag = "operating",
    params(("id" = String, Path, description = "key id")),
    request_body = NoteRequest,
    responses((status = 200, description = "the key after the change", body = KeyRevocation))
)]
pub(crate) async fn revoke(
    app: App,
    caller: ApiCaller,
    PathName(id): PathName,
    JsonBody(NoteRequest { note }): JsonBody<NoteRequest>,
) -> ApiResult {
    let ended = run_to_end(end(app, caller, id, note)).await?;
    reply::ok(&ended)
}

async fn end(
    app: App,
    caller: ApiCaller,
    id: String,
    note: Option<String>,
) -> Result<KeyRevocation, ApiError> {
    let _turn = app.access.turn().await;
    let known = app.node.keys().await?;
    let Some(mut record) = known.iter().find(|record| record.id == id).cloned() else {
        let message = format!("no key `{id}`");
        return Err(ApiError::new(ApiCode::KeyNotFound, message));
    };
    // Idempotent, since the answer may have been lost.
    if record.revoked_at.is_none() {
        record.revoked_at = Some(app.node.now());
        let deed = AuditEntry { act: "key-revoke", what: keys::describe(&record), by: caller.by(), note };
        app.node.put_key(record.clone(), deed).await?;
    }
    app.access.put(record.clone());
    let note = keys::note_on_end(&record, known.iter(), app.node.now()).map(ToOwned::to_owned);
    Ok(KeyRevocation { shown: shown(&app, &record), note })
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::TooMany => Self::new(ApiCode::Conflict, error.to_string()),
            KeyError::NotRead(error) => error.into(),
            KeyError::NotWritten(error) => error.into(),
        }
    }
}

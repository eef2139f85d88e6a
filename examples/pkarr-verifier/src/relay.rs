//! A relay: an HTTP door to the distributed table, small enough to read, for trying things out.
//!
//! It speaks the relays' protocol: `GET /{key}` and `PUT /{key}` with the packet's payload. It caches nothing, so
//! what it answers is what the table says now.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use pkarr::dht::{DhtClient, PublishError, ResolveError};
use pkarr::{PKARR_DHT_STORED_NODES, PKARR_INVALID_SIGNED_PACKET_SEQ, PublicKey, SignedPacket};

/// The relay over that table.
pub fn router(dht: DhtClient) -> Router {
    Router::new().route("/{key}", get(resolve).put(publish)).with_state(Arc::new(dht))
}

async fn resolve(State(dht): State<Arc<DhtClient>>, Path(key): Path<String>) -> Response {
    let Ok(key) = PublicKey::try_from(key.as_str()) else { return StatusCode::BAD_REQUEST.into_response() };
    match dht.resolve(&key, None).await.complete().await.most_recent {
        Ok(packet) => packet.to_relay_payload().into_response(),
        Err(ResolveError::NotFound) => StatusCode::NOT_FOUND.into_response(),
        Err(ResolveError::InvalidSignedPacket { seq }) => {
            (StatusCode::NOT_FOUND, [(PKARR_INVALID_SIGNED_PACKET_SEQ, seq.to_string())]).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn publish(
    State(dht): State<Arc<DhtClient>>,
    Path(key): Path<String>,
    payload: Bytes,
) -> Result<Response, StatusCode> {
    let key = PublicKey::try_from(key.as_str()).map_err(|_| StatusCode::BAD_REQUEST)?;
    let packet = SignedPacket::from_relay_payload(&key, &payload).map_err(|_| StatusCode::BAD_REQUEST)?;
    match dht.publish(&packet).await {
        Ok(nodes) => {
            Ok((StatusCode::NO_CONTENT, [(PKARR_DHT_STORED_NODES, nodes.to_string())]).into_response())
        }
        Err(PublishError::NotMostRecent) => Err(StatusCode::CONFLICT),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

//! Reads request bodies within memory and time limits, before their content is checked.
//!
//! Invariants: all bodies being read stay within a total memory bound, counted by received bytes, not by
//! announced length. Small bodies do not count, so that a flood of large ones does not block them; their
//! number is bounded by connections.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::App;
use crate::api::code::ApiCode;
use crate::api::error::ApiError;

/// Bytes of all bodies being read or validated.
const READING_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Bodies up to this size do not count.
const SMALL_BYTES: usize = 32 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyReadError {
    #[error("the body is too large")]
    TooLarge,
    #[error("the body was not received in time")]
    TooSlow,
    #[error("the body is incomplete")]
    Broken,
    #[error("too many bytes are being read at once")]
    NoRoom,
    #[error("the body is encoded")]
    Encoded,
}

impl BodyReadError {
    pub(crate) fn refusal(self, bytes_max: usize) -> ApiError {
        match self {
            Self::TooLarge => ApiError::too_large(bytes_max),
            Self::TooSlow => ApiError::too_slow(),
            Self::Broken => ApiError::invalid("body", "is incomplete"),
            Self::Encoded => ApiError::new(
                ApiCode::UnsupportedEncoding,
                "`content-encoding` is not supported: send the body uncompressed",
            ),
            Self::NoRoom => ApiError::unavailable("too many large requests at once: try again in a moment"),
        }
    }
}

/// A whole body with its share of the bound, released on drop.
#[derive(Debug)]
pub(crate) struct BufferedBody {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

/// The shared bound; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READING_BYTES_MAX)))
    }
}

impl std::ops::Deref for BufferedBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

pub(crate) async fn read(
    reading: &BodyBudget,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
    within: Duration,
) -> Result<BufferedBody, BodyReadError> {
    let is_encoded = |value: &HeaderValue| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().any(is_encoded) {
        return Err(BodyReadError::Encoded);
    }
    let stated =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|stated| stated > bytes_max as u64) {
        return Err(BodyReadError::TooLarge);
    }
    tokio::time::timeout(within, collect(&reading.0, body, bytes_max))
        .await
        .unwrap_or(Err(BodyReadError::TooSlow))
}

async fn collect(
    reading: &Arc<Semaphore>,
    mut body: Body,
    bytes_max: usize,
) -> Result<BufferedBody, BodyReadError> {
    let mut place = take(reading, 0)?;
    let mut whole = Vec::new();
    // Copied, because each piece holds a whole read buffer: a client that sends byte by byte would make us
    // keep thousands of bytes for each.
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyReadError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        let bytes = whole.len() + data.len();
        if bytes > bytes_max {
            return Err(BodyReadError::TooLarge);
        }
        if bytes > whole.capacity() {
            let grown = (2 * whole.capacity()).clamp(bytes, bytes_max);
            place.merge(take(reading, counted(grown) - counted(whole.capacity()))?);
            whole.reserve_exact(grown - whole.len());
        }
        whole.extend_from_slice(data);
    }
    // An event may wait in memory for long.
    whole.shrink_to_fit();
    Ok(BufferedBody { bytes: whole.into(), _place: place })
}

const fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(SMALL_BYTES)
}

fn take(reading: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, BodyReadError> {
    let bytes = u32::try_from(bytes).map_err(|_| BodyReadError::NoRoom)?;
    Arc::clone(reading).try_acquire_many_owned(bytes).map_err(|_| BodyReadError::NoRoom)
}

pub(crate) async fn read_limited(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<BufferedBody, ApiError> {
    read_up_to(app, headers, body, app.limits.body_bytes_max).await
}

pub(crate) async fn read_up_to(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<BufferedBody, ApiError> {
    let held = read(&app.reading, headers, body, bytes_max, app.limits.body_time).await;
    held.map_err(|not_read| not_read.refusal(bytes_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_each_and_together() {
        let reading = BodyBudget(Arc::new(Semaphore::new(10)));
        let within = Duration::from_secs(5);
        let read = |bytes: usize, stated: Option<&'static str>, bytes_max: usize| {
            let mut headers = HeaderMap::new();
            headers.extend(stated.map(|length| (header::CONTENT_LENGTH, length.parse().expect("a value"))));
            let (reading, body) = (reading.clone(), Body::from(vec![b'x'; bytes]));
            async move { read(&reading, &headers, body, bytes_max, within).await }
        };
        let large = SMALL_BYTES + 7;
        let held = read(large, None, large + 1).await.expect("there is room");
        assert_eq!((held.len(), reading.0.available_permits()), (large, 3));
        assert_eq!(read(large, None, large).await.err(), Some(BodyReadError::NoRoom), "two are too many");
        assert!(read(SMALL_BYTES, None, large).await.is_ok(), "a small one finds room");
        drop(held);
        assert_eq!(reading.0.available_permits(), 10, "a response frees its share");
        assert!(read(4, None, 4).await.is_ok());
        assert_eq!(read(4, None, 3).await.err(), Some(BodyReadError::TooLarge));
        assert_eq!(
            read(0, Some("9999999999999"), 3).await.err(),
            Some(BodyReadError::TooLarge),
            "as announced"
        );
        assert_eq!(reading.0.available_permits(), 10, "and so does a refusal");
    }
}

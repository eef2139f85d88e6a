//! Reads bodies of which nobody has said yet that they are worth it.
//!
//! Invariant: all that are being read take no more memory than the bound, which is counted by what came and
//! not by what was announced: whoever only announces keeps nobody out.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Why there is no whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotRead {
    #[error("the body is too large")]
    TooLarge,
    #[error("the body did not come in time")]
    TooSlow,
    #[error("the body could not be read to its end")]
    Broken,
    #[error("too many bytes are being read at once")]
    NoRoom,
}

/// The whole body and its place in the bound; it leaves room when that is dropped.
pub(super) async fn read(
    reading: &Arc<Semaphore>,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
    within: Duration,
) -> Result<(Bytes, OwnedSemaphorePermit), NotRead> {
    let stated =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|stated| stated > bytes_max as u64) {
        return Err(NotRead::TooLarge);
    }
    tokio::time::timeout(within, collect(reading, body, bytes_max)).await.unwrap_or(Err(NotRead::TooSlow))
}

async fn collect(
    reading: &Arc<Semaphore>,
    mut body: Body,
    bytes_max: usize,
) -> Result<(Bytes, OwnedSemaphorePermit), NotRead> {
    let take = |bytes: usize| {
        let bytes = u32::try_from(bytes).map_err(|_| NotRead::NoRoom)?;
        Arc::clone(reading).try_acquire_many_owned(bytes).map_err(|_| NotRead::NoRoom)
    };
    let mut place = take(0)?;
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| NotRead::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(NotRead::TooLarge);
        }
        place.merge(take(data.len())?);
        whole.extend_from_slice(data);
    }
    // An event may wait in memory for long: it takes what it needs.
    whole.shrink_to_fit();
    Ok((whole.into(), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_each_and_together() {
        let reading = Arc::new(Semaphore::new(10));
        let within = Duration::from_secs(5);
        let read = |body: &'static str, stated: Option<&'static str>, bytes_max: usize| {
            let mut headers = HeaderMap::new();
            headers.extend(stated.map(|length| (header::CONTENT_LENGTH, length.parse().expect("a value"))));
            let reading = Arc::clone(&reading);
            async move { read(&reading, &headers, Body::from(body), bytes_max, within).await }
        };
        let (kept, place) = read("seven77", None, 8).await.expect("it is small");
        assert_eq!((&kept[..], reading.available_permits()), (&b"seven77"[..], 3));
        assert_eq!(read("four", None, 8).await.err(), Some(NotRead::NoRoom), "together they are too many");
        drop(place);
        assert_eq!(reading.available_permits(), 10, "whoever is answered leaves room");
        assert!(read("four", None, 4).await.is_ok());
        assert_eq!(read("four", None, 3).await.err(), Some(NotRead::TooLarge));
        assert_eq!(read("", Some("9999999999999"), 3).await.err(), Some(NotRead::TooLarge), "as announced");
        assert_eq!(reading.available_permits(), 10, "and so does whoever is turned away");
    }
}

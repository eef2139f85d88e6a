//! Responses of handlers: JSON, and streams of lines.

use std::future::Future;
use std::pin::Pin;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::StreamBody;

use crate::api::error::ApiResult;

#[expect(clippy::unnecessary_wraps, reason = "handlers end with it")]
pub(crate) fn ok(value: &impl serde::Serialize) -> ApiResult {
    Ok(json(StatusCode::OK, value))
}

pub(crate) fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("what we answer with is always JSON");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

type NextLine<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

pub(crate) fn lines<S, T>(
    source: S,
    next: for<'a> fn(&'a mut S) -> NextLine<'a, T>,
    show: fn(&T) -> String,
) -> Body
where
    S: Send + 'static,
    T: Send + 'static,
{
    let stream = futures_util::stream::unfold(source, move |mut source| async move {
        let item = next(&mut source).await?;
        let mut line = show(&item);
        line.push('\n');
        let frame = hyper::body::Frame::data(Bytes::from(line));
        Some((Ok::<_, std::convert::Infallible>(frame), source))
    });
    Body::new(StreamBody::new(stream))
}

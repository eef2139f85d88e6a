//! Answers that go on line by line.

use std::future::Future;
use std::pin::Pin;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::StreamBody;

/// The next item of a source, when it comes.
type Coming<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// A body of lines, each made when something comes.
pub(crate) fn lines<S, T>(
    source: S,
    next: for<'a> fn(&'a mut S) -> Coming<'a, T>,
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

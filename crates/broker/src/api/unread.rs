//! What is left of a request's body when it is answered: who may not ask is told so before the body is read. Were the rest not read, HTTP/1.1 would
//! have to close the connection, and a client that still sends, or that has its next request under way, would hear of that instead of an answer
//! (RFC 9112, section 9.6).

use super::PATIENCE;
use agent::message::LARGEST_PLAN;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Longest pause between two pieces of a body that nobody wants.
const PAUSE: Duration = Duration::from_secs(2);

/// Answers at once, and then reads what is left, as far as a body may reach and as long as a request may take. Whoever waits for `100 Continue` has
/// sent nothing yet: its connection is closed.
pub(super) async fn read_out(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
        return next.run(request).await;
    }
    let left = Left::default();
    let lent = |body: Body| Body::from_stream(Lent { body: Some(body.into_data_stream()), left: left.clone() });
    let response = next.run(request.map(lent)).await;
    let rest = left.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(rest) = rest {
        tokio::spawn(tokio::time::timeout(PATIENCE, drop_all(rest)));
    }
    response
}

/// Reads without keeping. It ends with the connection, if not before.
async fn drop_all(mut rest: BodyDataStream) {
    let mut most = LARGEST_PLAN;
    while let Ok(Some(Ok(piece))) = tokio::time::timeout(PAUSE, poll_fn(|cx| Pin::new(&mut rest).poll_next(cx))).await {
        match most.checked_sub(piece.len()) {
            Some(less) => most = less,
            None => return,
        }
    }
}

/// Where a body comes back to.
type Left = Arc<Mutex<Option<BodyDataStream>>>;

/// A body that comes back if it is dropped before its end.
struct Lent {
    /// `None` at its end.
    body: Option<BodyDataStream>,
    left: Left,
}

impl Stream for Lent {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_next(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

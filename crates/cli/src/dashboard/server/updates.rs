//! The stream of states that a page gets.

use super::Snapshot;
use axum::response::sse::Event;
use futures_core::Stream;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::watch;

/// States, as they come. A slow page misses some, and delays nobody.
pub(super) struct Updates {
    first: Vec<Event>,
    later: Pin<Box<dyn Future<Output = Later> + Send>>,
}

/// The next state, and the receiver that it came from; `None` at the end.
type Later = Option<(Snapshot, watch::Receiver<Option<Snapshot>>)>;

impl Updates {
    /// First these, then each new state.
    pub(super) fn new(first: Vec<Event>, states: watch::Receiver<Option<Snapshot>>) -> Self {
        Self { first, later: later(states) }
    }
}

fn later(mut receiver: watch::Receiver<Option<Snapshot>>) -> Pin<Box<dyn Future<Output = Later> + Send>> {
    Box::pin(async move {
        loop {
            receiver.changed().await.ok()?;
            let now = receiver.borrow_and_update().clone();
            if let Some(now) = now {
                return Some((now, receiver));
            }
        }
    })
}

impl Stream for Updates {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(event) = self.first.pop() {
            return Poll::Ready(Some(Ok(event)));
        }
        let next = match self.later.as_mut().poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(next) => next,
        };
        Poll::Ready(next.map(|(snapshot, receiver)| {
            self.later = later(receiver);
            Ok(Event::default().data(&*snapshot.state))
        }))
    }
}

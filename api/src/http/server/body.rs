//! Both bodies of a request, and where they end.

use super::delivery::Shared;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep};

/// The error that the body of a request ends with when it takes longer than it may.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request did not come in time")]
pub struct BodyTooSlow;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request: must have come by a deadline.
pub(super) struct Inbound {
    inner: Incoming,
    shared: Arc<Shared>,
    deadline: Instant,
    /// Made when the body makes us wait for the first time: most bodies come with their head.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Inbound {
    pub(super) fn new(inner: Incoming, shared: Arc<Shared>, deadline: Instant) -> Self {
        Self {
            inner,
            shared,
            deadline,
            timer: None,
        }
    }
}

impl HttpBody for Inbound {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            let timer = this
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(this.deadline)));
            ready!(timer.as_mut().poll(cx));
            return Poll::Ready(Some(Err(BodyTooSlow.into())));
        };
        if frame.is_none() || this.inner.is_end_stream() {
            this.shared.body_read();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer: says when the HTTP library has taken all of it.
pub(super) struct Outbound {
    inner: Body,
    shared: Arc<Shared>,
    ended: bool,
}

impl Outbound {
    pub(super) fn new(inner: Body, shared: Arc<Shared>) -> Self {
        let mut body = Self {
            inner,
            shared,
            ended: false,
        };
        if body.inner.is_end_stream() {
            body.end();
        }
        body
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.answered();
        }
    }
}

impl HttpBody for Outbound {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let failed = matches!(frame, Some(Err(_)));
        if frame.is_none() || (!failed && self.inner.is_end_stream()) {
            self.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Outbound {
    /// A body that nobody took to its end, as in the answer to a HEAD, carries no leases; but the connection is at rest
    /// again.
    fn drop(&mut self) {
        if !self.ended {
            self.shared.give_back();
            self.end();
        }
    }
}

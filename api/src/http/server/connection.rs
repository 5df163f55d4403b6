//! One connection, from its first byte to its last.

use super::body::{Inbound, Outbound};
use super::delivery::{Connection, Shared};
use super::io::{Socket, Transport};
use super::turn_away::linger;
use super::{Bounds, Stage, precheck};
use crate::drain::Drain;
use crate::limit::Limit;
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Body;
use axum::routing::future::RouteFuture;
use futures_util::FutureExt;
use http::header::{CONNECTION, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tower::Service;

/// How long the rest of a body is taken whose request has been answered already.
const LINGER: Duration = Duration::from_secs(2);

/// What every connection is served with.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) router: Router,
    pub(super) bounds: Bounds,
    pub(super) drain: Drain,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stage: watch::Receiver<Stage>,
    /// For `Strict-Transport-Security`. None over plain HTTP, where anybody could have written it.
    pub(super) hsts: Option<HeaderValue>,
}

impl Server {
    /// Serves a connection until it ends, is closed or runs into one of its bounds.
    pub(super) async fn serve<T: Transport>(self, stream: T, shared: Arc<Shared>) {
        serve(stream, shared, self).await;
    }
}

async fn serve<T: Transport>(mut stream: T, shared: Arc<Shared>, server: Server) {
    let Server {
        router,
        bounds,
        drain,
        metrics,
        mut stage,
        hsts,
    } = server;
    let peer = shared.peer();
    let service = service_fn({
        let (shared, metrics) = (shared.clone(), metrics.clone());
        move |request: Request<Incoming>| {
            let bare_line_feed = shared.request(!request.body().is_end_stream());
            let call = if let Some(refusal) = precheck::refuse(&request, bare_line_feed, &metrics) {
                Call::Refused(refusal)
            } else {
                let by = Instant::now() + bounds.body;
                let mut request = request.map(|body| Inbound::new(body, shared.clone(), by));
                request.extensions_mut().insert(Connection(shared.clone()));
                Call::Routed(router.clone().call(request))
            };
            answer(call, shared.clone(), drain.clone(), hsts.clone())
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .half_close(false)
        .pipeline_flush(false)
        // This file does it: the library's own would also end connections at rest.
        .header_read_timeout(None)
        .max_header_size(bounds.header_bytes)
        .max_buf_size(bounds.header_bytes.max(MAX_BUFFER));
    if bounds.headers != LIBRARY_HEADERS {
        builder.max_headers(bounds.headers);
    }
    let mut deadline = Deadline::default();
    let mut ended_in_error = false;
    let last = {
        let mut served =
            pin!(builder.serve_connection(Socket::new(&mut stream, shared.clone()), service));
        loop {
            tokio::select! {
                biased;
                end = poll_fn(|cx| poll(served.as_mut(), &mut deadline, &shared, &bounds, cx)) => match end {
                    End::Served(result) => {
                        if let Err(error) = result {
                            ended_in_error = error.is_parse();
                            if error.is_parse_too_large() {
                                metrics.limited(Limit::HeaderSize);
                            }
                            tracing::debug!(%error, "a connection ended early");
                        }
                        break Last::Whole;
                    }
                    End::TimedOut(limit) => {
                        tracing::debug!(%peer, limit = limit.name(), "a connection took too long");
                        metrics.limited(limit);
                        break Last::TimedOut(limit);
                    }
                },
                changed = stage.changed() => {
                    let now = *stage.borrow_and_update();
                    match now {
                        Stage::Closing => served.as_mut().graceful_shutdown(),
                        Stage::Open if changed.is_ok() => {}
                        _ => break Last::Dropped,
                    }
                }
            }
        }
    };
    // Leases that are parked by now were in no answer that left.
    drop(shared.take_all());
    match last {
        Last::Whole if ended_in_error || shared.unread() => {
            let _ = tokio::time::timeout(LINGER, leave(&mut stream)).await;
        }
        // The kernel holds megabytes that nobody took, and freeing them takes longer than a request.
        Last::TimedOut(Limit::WriteStall) => drop(tokio::task::spawn_blocking(|| drop(stream))),
        // A client at rest is told that this is an end and no accident, if that can be had at once.
        Last::TimedOut(_) if !stream.holds_back() => drop(stream.shutdown().now_or_never()),
        _ => {}
    }
}

/// Ends the session if there is one, then lingers.
async fn leave<T: Transport>(stream: &mut T) -> std::io::Result<()> {
    stream.shutdown().await?;
    linger(stream.tcp()).await
}

/// How the serving of a connection ended.
enum Last {
    /// With the last answer, or with an error of the client's.
    Whole,
    /// It ran into one of its bounds.
    TimedOut(Limit),
    /// The server gave it up.
    Dropped,
}

/// Header lines that the library allows by itself, in room that costs no allocation.
const LIBRARY_HEADERS: usize = 100;
/// Buffer of a connection, in bytes. A body passes through it in pieces.
const MAX_BUFFER: usize = 128 << 10;

enum End {
    Served(hyper::Result<()>),
    TimedOut(Limit),
}

/// A timer that is only set back when its time has come: it is armed at the earliest deadline that it was ever asked for
/// and looks again when that comes, so that a request that is in time sets no timer.
#[derive(Default)]
struct Deadline {
    timer: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl Deadline {
    fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            if self.armed.is_none_or(|armed| at < armed) {
                timer.as_mut().reset(at);
                self.armed = Some(at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.armed = None;
            if Instant::now() >= at {
                return Poll::Ready(());
            }
        }
    }
}

fn poll<C>(
    served: Pin<&mut C>,
    deadline: &mut Deadline,
    shared: &Shared,
    bounds: &Bounds,
    cx: &mut Context<'_>,
) -> Poll<End>
where
    C: Future<Output = hyper::Result<()>>,
{
    if let Poll::Ready(result) = served.poll(cx) {
        return Poll::Ready(End::Served(result));
    }
    match shared.deadline(bounds) {
        Some((at, limit)) => deadline.poll(at, cx).map(|()| End::TimedOut(limit)),
        None => Poll::Pending,
    }
}

enum Call {
    Refused(Response<Body>),
    Routed(RouteFuture<Infallible>),
}

async fn answer(
    call: Call,
    shared: Arc<Shared>,
    drain: Drain,
    hsts: Option<HeaderValue>,
) -> Result<Response<Outbound>, Infallible> {
    let mut answer = match call {
        Call::Refused(refusal) => refusal,
        Call::Routed(answer) => answer.await?,
    };
    if drain.is_draining() {
        answer
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(hsts) = hsts {
        let headers = answer.headers_mut();
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts);
    }
    if !answer.status().is_success() {
        shared.give_back();
    }
    Ok(answer.map(|body| Outbound::new(body, shared)))
}

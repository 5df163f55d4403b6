//! The accept loop: sockets in, requests to the router, bounds on everything in between.
//!
//! Reading order: [`Edge`] (accepts, counts and stops) → `connection` (one connection from its first byte to its last) →
//! `io` (what went over the socket, and when) → [`tls`], `pem` and `handshake` (when it goes through TLS) → [`delivery`] (when an answer counts as delivered) → `body` (where both
//! bodies end) → `precheck` (requests that the HTTP library lets through and nobody should).
//!
//! Why a loop of our own: a queue must know whether an answer has left, since a receive that never arrived is given back
//! (product 4.6), and it must stop without cutting an answer. Both need hands on the connection.

mod body;
mod connection;
pub mod delivery;
mod handshake;
mod io;
pub mod pem;
mod precheck;
pub mod tls;
mod turn_away;

pub use body::BodyTooSlow;
pub use delivery::Connection;

use crate::config::Config;
use crate::drain::Drain;
use crate::limit::Limit;
use crate::metrics::Metrics;
use crate::open_files;
use axum::Router;
use connection::Server;
use delivery::Shared;
use io::Tcp;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tls::Tls;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use turn_away::TurnAway;

/// Pause after an error of `accept` that says that something has run out, so that others can return it.
const OUT_OF_RESOURCES_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a connection. See [`Config`] for what each means.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// From the first byte of a request to the end of its head; also from accept to there.
    pub header: Duration,
    /// From the end of the head to the end of the body.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Without the client taking a byte.
    pub write_stall: Duration,
    /// Header lines.
    pub headers: usize,
    /// Bytes of the head.
    pub header_bytes: usize,
}

impl Bounds {
    /// The bounds that the settings name.
    pub fn of(config: &Config) -> Self {
        Self {
            connections: config.connection_cap(),
            header: config.header_timeout_seconds,
            body: config.body_timeout_seconds,
            idle: config.idle_timeout_seconds,
            write_stall: config.write_stall_seconds,
            headers: config.max_headers as usize,
            header_bytes: config.max_header_bytes as usize,
        }
    }
}

/// How far the edge has come on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Accepts and serves.
    Open,
    /// Accepts nothing; a connection ends with its present answer.
    Closing,
    /// Connections are dropped where they are.
    Aborted,
}

/// A running accept loop and its connections.
pub struct Edge {
    stage: watch::Sender<Stage>,
    places: Arc<Semaphore>,
    connections: u32,
    accepting: JoinHandle<()>,
}

impl Edge {
    /// Starts to accept, with TLS or without. Once `drain` has begun, every answer says `Connection: close`.
    pub fn start(
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        router: Router,
        bounds: Bounds,
        drain: Drain,
        metrics: Arc<Metrics>,
    ) -> Self {
        let connections = bounds
            .connections
            .clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        open_files::reserve(connections, &listener);
        let places = Arc::new(Semaphore::new(connections));
        let (stage, seen) = watch::channel(Stage::Open);
        let accepting = Accepting {
            server: Server {
                router,
                bounds,
                drain,
                metrics,
                stage: seen,
                hsts: tls.as_ref().and_then(|tls| tls.hsts()),
            },
            tls,
            places: places.clone(),
        };
        Self {
            stage,
            places,
            connections: connections as u32,
            accepting: tokio::spawn(accepting.run(listener)),
        }
    }

    /// Stops to accept, closes connections at rest and lets the others finish their present answer.
    pub fn close(&self) {
        self.stage.send_replace(Stage::Closing);
    }

    /// Drops all connections; messages in answers that have not left are given back.
    pub fn abort(&self) {
        self.stage.send_replace(Stage::Aborted);
    }

    /// Waits until no connection is left. Only sensible after [`Edge::close`].
    pub async fn finished(&self) {
        drop(self.places.acquire_many(self.connections).await);
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.connections as usize - self.places.available_permits()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.abort();
        self.accepting.abort();
    }
}

struct Accepting {
    server: Server,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
}

impl Accepting {
    async fn run(self, listener: TcpListener) {
        let turned_away = TurnAway::default();
        let mut stage = self.server.stage.clone();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stage.wait_for(|stage| *stage != Stage::Open) => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => self.accepted(stream, peer, &turned_away),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    fn accepted(&self, stream: TcpStream, peer: SocketAddr, turned_away: &TurnAway) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            // With TLS nothing can be said before a handshake, which is what there is no room for.
            match self.tls {
                None => turned_away.answer(stream, &self.server.metrics),
                Some(_) => self.server.metrics.limited(Limit::Connections),
            }
            return;
        };
        prepare(&stream, &self.server.bounds);
        let shared = Arc::new(Shared::new(peer));
        let server = self.server.clone();
        // Two tasks, so that a plain connection has no room for a session in its own.
        match self.tls.clone() {
            None => tokio::spawn(async move {
                let stream = Tcp::new(stream, shared.clone());
                server.serve(stream, shared).await;
                drop(place);
            }),
            Some(tls) => tokio::spawn(async move {
                handshake::serve(stream, shared, tls, server).await;
                drop(place);
            }),
        };
    }

    /// A connection that broke before it was accepted is no event; a lack of descriptors or memory is worth a pause, since
    /// `accept` would fail again at once.
    async fn failed(&self, error: &std::io::Error) {
        match error.kind() {
            ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused => {}
            _ => {
                tracing::error!(%error, open = self.server.bounds.connections - self.places.available_permits(), "could not accept a connection");
                tokio::time::sleep(OUT_OF_RESOURCES_PAUSE).await;
            }
        }
    }
}

fn prepare(stream: &TcpStream, bounds: &Bounds) {
    // Small answers leave at once.
    let _ = stream.set_nodelay(true);
    // Bytes that the kernel holds and the client never takes end the connection just as bytes that we hold.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(bounds.write_stall));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = bounds;
}

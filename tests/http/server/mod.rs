//! The edge: connections, their bounds, and when an answer counts as delivered. Most cases run on a router of their own, so
//! that they can make a handler do what no route does.

mod bounds;
mod delivery;
mod dev;
mod malformed;
mod process;
mod reload;
mod stop;
mod tls;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::routing::{get, post};
use quita_api::Drain;
use quita_api::http::server::tls::Tls;
use quita_api::http::server::{Bounds, Edge};
use quita_api::metrics::{Format, Metrics, Present};
use quita_tests::wire::Wire;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};

/// A time-out that a test waits for.
const SHORT: Duration = Duration::from_millis(200);
/// One that it never reaches.
const LONG: Duration = Duration::from_mins(1);

/// Bounds that no case reaches by accident.
fn wide() -> Bounds {
    Bounds {
        connections: 1_000,
        header: LONG,
        body: LONG,
        idle: LONG,
        write_stall: LONG,
        headers: 100,
        header_bytes: 64 << 10,
    }
}

/// An edge over a router.
struct TestEdge {
    edge: Edge,
    drain: Drain,
    metrics: Arc<Metrics>,
    address: SocketAddr,
    /// Requests that reached a handler.
    reached: Arc<AtomicUsize>,
    /// Handlers that are running.
    running: Arc<AtomicUsize>,
}

impl TestEdge {
    async fn start(bounds: Bounds) -> Self {
        Self::with(bounds, Router::new()).await
    }

    async fn with(bounds: Bounds, routes: Router) -> Self {
        Self::over(None, bounds, routes).await
    }

    async fn over(tls: Option<Arc<Tls>>, bounds: Bounds, routes: Router) -> Self {
        let (reached, running) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let drain = Drain::default();
        let router = routes.merge(plain_routes(&reached, &running));
        let listener = match &tls {
            None => TcpListener::bind("127.0.0.1:0").await.unwrap(),
            Some(_) => narrow_listener(),
        };
        let address = listener.local_addr().unwrap();
        let metrics = Arc::<Metrics>::default();
        let edge = Edge::start(
            listener,
            tls,
            router,
            bounds,
            drain.clone(),
            metrics.clone(),
        );
        Self {
            edge,
            drain,
            metrics,
            address,
            reached,
            running,
        }
    }

    async fn wire(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// What it has counted under this name and these labels.
    fn counted(&self, name: &str) -> u64 {
        let text = self.metrics.write(Present::default(), Format::Prometheus);
        let text = text.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |count| count.trim().parse().unwrap())
    }

    fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }
}

/// Connections inherit its buffer: the kernel takes so little that a session has to hold bytes back.
fn narrow_listener() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.set_send_buffer_size(4_096).unwrap();
    socket.listen(1_024).unwrap()
}

struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn plain_routes(reached: &Arc<AtomicUsize>, running: &Arc<AtomicUsize>) -> Router {
    let hello = {
        let reached = reached.clone();
        move || {
            reached.fetch_add(1, Ordering::SeqCst);
            async { "hello" }
        }
    };
    let echo = {
        let reached = reached.clone();
        move |body: Bytes| {
            reached.fetch_add(1, Ordering::SeqCst);
            async move { body }
        }
    };
    let sleep = {
        let running = running.clone();
        move |Path(ms): Path<u64>| async move {
            let _running = Running::new(&running);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            "slept"
        }
    };
    let large =
        |Path(megabytes): Path<usize>| async move { Body::from(vec![b'x'; megabytes << 20]) };
    // Answers without looking at what is sent.
    let deaf = || async { "deaf" };
    Router::new()
        .route("/hello", get(hello))
        .route("/echo", post(echo))
        .route("/sleep/{ms}", get(sleep))
        .route("/large/{megabytes}", get(large))
        .route("/deaf", post(deaf))
}

/// Waits until `fact` holds, which must be soon.
async fn soon(what: &str, fact: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !fact() {
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "not within a second: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

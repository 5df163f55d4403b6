//! A message in an answer that did not leave is given back: at once, and without costing an attempt (product 4.6).

use super::{SHORT, TestEdge, soon, wide};
use axum::body::Body;
use axum::extract::{Extension, Path};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use quita_api::auth::Principal;
use quita_api::http::server::tls::Tls;
use quita_api::http::server::{Bounds, Connection};
use quita_api::service::publish::NewMessage;
use quita_api::service::receive::Ask;
use quita_api::service::{Service, ServiceSettings};
use quita_storage::coalescer::{Coalescer, Limits};
use quita_tests::wire::Wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

fn service() -> Arc<Service> {
    let backend = quita_storage::memory::open();
    let coalescer = Coalescer::start(backend, Arc::default(), Arc::default(), Limits::default());
    Service::new(coalescer, ServiceSettings::default())
}

pub(super) async fn publish(service: &Service, bytes: usize) {
    let message = NewMessage {
        client_request_id: None,
        key: None,
        delay_ms: None,
        priority: 4,
        headers: None,
        payload: format!("\"{}\"", "x".repeat(bytes)).into(),
        expires_in_ms: None,
        max_attempts: None,
        backoff: None,
    };
    service
        .publish(&Principal::admin("test"), "q", message)
        .await
        .unwrap();
}

/// A receive of up to 100 messages that answers their attempts and payloads, with the status it is told.
async fn receive(
    service: Arc<Service>,
    connection: Connection,
    wait_ms: i64,
    status: u16,
) -> Response {
    let ask = Ask {
        queue: "q",
        max: 100,
        lease_ms: Some(60_000),
        wait_ms: Some(wait_ms),
        worker: None,
    };
    let got = service
        .receive(&Principal::admin("test"), ask, std::future::pending())
        .await
        .unwrap();
    if let Some(held) = got.held {
        connection.hold(held);
    }
    let messages: Vec<_> = got
        .messages
        .iter()
        .map(|m| {
            (
                m.message.life.attempts + 1,
                String::from_utf8_lossy(&m.payload).into_owned(),
            )
        })
        .collect();
    (StatusCode::from_u16(status).unwrap(), Json(messages)).into_response()
}

async fn start(bounds: Bounds) -> (TestEdge, Arc<Service>) {
    start_over(None, bounds).await
}

pub(super) async fn start_over(tls: Option<Arc<Tls>>, bounds: Bounds) -> (TestEdge, Arc<Service>) {
    let service = service();
    let routes = Router::new().route(
        "/receive/{wait_ms}/{status}",
        post({
            let service = service.clone();
            move |Path((wait_ms, status)): Path<(i64, u16)>,
                  Extension(connection): Extension<Connection>| {
                receive(service.clone(), connection, wait_ms, status)
            }
        }),
    );
    (TestEdge::over(tls, bounds, routes).await, service)
}

pub(super) async fn ask<S>(wire: &mut Wire<S>, wait_ms: u32, status: u16)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    wire.request("POST", &format!("/receive/{wait_ms}/{status}"), "", "")
        .await;
}

/// The attempts of the messages that another client receives, waiting at most a second for them.
async fn attempts(edge: &TestEdge) -> Vec<i64> {
    attempts_on(&mut edge.wire().await).await
}

pub(super) async fn attempts_on<S>(wire: &mut Wire<S>) -> Vec<i64>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ask(wire, 1_000, 200).await;
    let answer = wire.answer().await;
    answer
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m[0].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn a_delivered_message_stays_with_its_holder() {
    let (edge, service) = start(wide()).await;
    publish(&service, 10).await;
    let mut wire = edge.wire().await;
    ask(&mut wire, 0, 200).await;
    assert_eq!(wire.answer().await.json()[0][0], 1);
    drop(wire);
    assert!(attempts(&edge).await.is_empty());
}

#[tokio::test]
async fn a_message_for_a_client_that_hung_up_while_it_waited_goes_to_another_at_once() {
    let (edge, service) = start(wide()).await;
    publish(&service, 1).await;
    assert_eq!(attempts(&edge).await, [1]);
    for reset in [true, false] {
        let mut gone = edge.wire().await;
        ask(&mut gone, 30_000, 200).await;
        soon("it waits", || service.coalescer().wakeup().waiting() == 1).await;
        if reset {
            gone.reset();
        } else {
            drop(gone);
        }
        publish(&service, 10).await;
        let began = std::time::Instant::now();
        assert_eq!(attempts(&edge).await, [1]);
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}

/// So many receives wait, and their clients hang up at once; then so many messages come, and other clients get them all.
async fn hang_up_together(waiters: usize, messages: usize) {
    let (edge, service) = start(Bounds {
        connections: waiters + 100,
        ..wide()
    })
    .await;
    publish(&service, 1).await;
    assert_eq!(attempts(&edge).await, [1]);
    let mut waiting = Vec::new();
    for _ in 0..waiters {
        let mut wire = edge.wire().await;
        ask(&mut wire, 30_000, 200).await;
        waiting.push(wire);
    }
    soon("all wait", || {
        service.coalescer().wakeup().waiting() == waiters
    })
    .await;
    waiting.into_iter().for_each(Wire::reset);
    for _ in 0..messages {
        publish(&service, 10).await;
    }
    soon("none waits", || service.coalescer().wakeup().waiting() == 0).await;
    let mut received = Vec::new();
    while received.len() < messages {
        let more = attempts(&edge).await;
        assert!(!more.is_empty(), "only {} came", received.len());
        received.extend(more);
    }
    assert!(received.iter().all(|attempt| *attempt == 1), "{received:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_hang_up_together_are_gone_within_a_second() {
    hang_up_together(4_000, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs 21,000 descriptors, more than many machines give"]
async fn ten_thousand_waiters_that_hang_up_together_are_gone_within_a_second() {
    assert!(quita_api::open_files::raise_to(21_000) >= 21_000);
    hang_up_together(10_000, 50).await;
}

#[tokio::test]
async fn a_large_answer_that_nobody_takes_gives_its_messages_back() {
    let (edge, service) = start(Bounds {
        write_stall: SHORT,
        ..wide()
    })
    .await;
    for _ in 0..30 {
        publish(&service, 250_000).await;
    }
    let mut deaf = Wire::narrow(edge.address).await;
    ask(&mut deaf, 0, 200).await;
    // They are leased to the deaf one until its time is over.
    tokio::time::sleep(SHORT / 2).await;
    assert_eq!(attempts(&edge).await, [1; 30]);
}

#[tokio::test]
async fn a_large_answer_that_is_taken_slowly_is_delivered() {
    let (edge, service) = start(Bounds {
        write_stall: SHORT * 5,
        ..wide()
    })
    .await;
    for _ in 0..30 {
        publish(&service, 250_000).await;
    }
    let mut slow = Wire::narrow(edge.address).await;
    ask(&mut slow, 0, 200).await;
    tokio::time::sleep(SHORT).await;
    assert_eq!(slow.answer().await.json().as_array().unwrap().len(), 30);
    assert!(attempts(&edge).await.is_empty());
}

#[tokio::test]
async fn an_answer_that_became_an_error_gives_its_messages_back() {
    let (edge, service) = start(wide()).await;
    publish(&service, 10).await;
    let mut wire = edge.wire().await;
    ask(&mut wire, 0, 500).await;
    assert_eq!(wire.answer().await.status, 500);
    assert_eq!(attempts(&edge).await, [1]);
}

#[tokio::test]
async fn one_connection_delivers_answer_after_answer() {
    let (edge, service) = start(wide()).await;
    let mut wire = edge.wire().await;
    for _ in 0..20 {
        publish(&service, 10).await;
        ask(&mut wire, 0, 200).await;
        assert_eq!(wire.answer().await.json()[0][0], 1);
    }
    assert!(attempts(&edge).await.is_empty());
}

#[tokio::test]
async fn connections_dropped_by_force_give_back_what_they_carry() {
    let (edge, service) = start(wide()).await;
    for _ in 0..30 {
        publish(&service, 250_000).await;
    }
    let mut deaf = Wire::narrow(edge.address).await;
    ask(&mut deaf, 0, 200).await;
    tokio::time::sleep(SHORT).await;
    edge.edge.abort();
    soon("it is gone", || edge.edge.open() == 0).await;
    let ask = Ask {
        queue: "q",
        max: 100,
        lease_ms: None,
        wait_ms: Some(1_000),
        worker: None,
    };
    let got = service
        .receive(&Principal::admin("test"), ask, std::future::pending())
        .await
        .unwrap();
    assert_eq!(got.messages.len(), 30);
    assert!(got.messages.iter().all(|m| m.message.life.attempts == 0));
    got.held.unwrap().delivered();
}

/// An answer that fails in the middle is not ended as if it were whole.
#[tokio::test]
async fn an_answer_that_fails_in_the_middle_has_no_end() {
    let broken = || async {
        let parts = [Ok("whole"), Err(std::io::Error::other("the store is gone"))];
        Body::from_stream(futures_util::stream::iter(parts))
    };
    let edge = TestEdge::with(wide(), Router::new().route("/broken", get(broken))).await;
    let mut wire = edge.wire().await;
    wire.send("GET /broken HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    assert_eq!(wire.next().await, None);
}

//! A stop cuts no answer, and makes nobody wait.

use super::{SHORT, TestEdge, soon, wide};
use quita_storage::backend::Call;
use quita_storage::memory;
use quita_tests::server::{TestServer, json_headers};
use quita_tests::wire::Wire;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test]
async fn in_flight_requests_finish_and_connections_at_rest_are_closed() {
    let edge = TestEdge::start(wide()).await;
    let mut resting = edge.wire().await;
    assert_eq!(resting.get("/hello").await.status, 200);
    let mut busy = edge.wire().await;
    busy.send("GET /sleep/500 HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    soon("it runs", || edge.running.load(Ordering::SeqCst) == 1).await;
    edge.edge.close();
    assert!(resting.closes_within(SHORT).await.is_some());
    let answer = busy.answer().await;
    assert_eq!(
        (answer.text().as_str(), answer.header("connection")),
        ("slept", Some("close"))
    );
    assert!(busy.closes_within(SHORT).await.is_some());
    edge.edge.finished().await;
    soon("nobody is let in", || {
        std::net::TcpStream::connect(edge.address).is_err()
    })
    .await;
}

#[tokio::test]
async fn while_draining_every_answer_closes_its_connection_and_requests_still_succeed() {
    let edge = TestEdge::start(wide()).await;
    let mut open = edge.wire().await;
    assert_eq!(open.get("/hello").await.header("connection"), None);
    edge.drain.begin();
    for wire in [&mut open, &mut edge.wire().await] {
        let answer = wire.get("/hello").await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("close"))
        );
        assert!(wire.closes_within(SHORT).await.is_some());
    }
}

#[tokio::test]
async fn readiness_ends_at_once_and_the_socket_after_the_delay() {
    let server = TestServer::start_with(memory::open(), |config| {
        config.drain_delay_seconds = SHORT * 3;
    })
    .await;
    let address = server.address;
    assert_eq!(Wire::to(address).await.get("/readyz").await.status, 200);
    let began = Instant::now();
    let stopping = server.stop_meanwhile();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(Wire::to(address).await.get("/readyz").await.status, 503);
    assert_eq!(Wire::to(address).await.get("/healthz").await.status, 200);
    assert!(began.elapsed() < SHORT * 2, "too slow to tell");
    stopping.await.unwrap();
    assert!(began.elapsed() >= SHORT * 3);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn eight_servers_share_a_store_and_its_first_key() {
    let backend = memory::open();
    let key = quita_api::auth::ApiKey::generate()
        .unwrap()
        .reveal()
        .to_owned();
    let starts = (0..8).map(|_| {
        let (backend, key) = (backend.clone(), key.clone());
        tokio::spawn(TestServer::start_with(backend, |config| {
            config.admin_key = Some(key);
        }))
    });
    let mut servers = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        servers.push(start.await.unwrap());
    }
    assert_eq!(backend.keys().await.unwrap().len(), 1);
    for server in servers {
        assert_eq!(server.wire().await.get("/readyz").await.status, 200);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_stop_ends_waiting_receives_empty_and_keeps_what_was_published() {
    let server = TestServer::start().await;
    let (address, backend, key) = (server.address, server.backend.clone(), server.key.clone());
    let published = server
        .post("/v1/queue/publish", r#"{"queue":"a","message":1}"#)
        .await;
    assert_eq!(published.status, 201);
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let mut wire = Wire::to(address).await;
        let body = r#"{"queue":"b","wait_seconds":30}"#;
        wire.request("POST", "/v1/queue/receive", &json_headers(&key), body)
            .await;
        waiting.push(wire);
    }
    tokio::time::sleep(SHORT).await;
    let began = Instant::now();
    let stopping = server.stop_meanwhile();
    for mut wire in waiting {
        let answer = wire.answer().await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("close"))
        );
        assert_eq!(answer.json()["messages"], serde_json::json!([]));
    }
    stopping.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    let queue = backend.queue("a").await.unwrap().unwrap();
    let numbers = backend.numbers(queue.uid, None).await.unwrap();
    assert_eq!(numbers.counts.ready, 1);
}

#[tokio::test]
async fn a_revoked_key_is_refused_within_5_seconds() {
    let server = TestServer::start().await;
    assert_eq!(server.get("/v1/queues").await.status, 200);
    let id = server.backend.keys().await.unwrap()[0].id.clone();
    server
        .backend
        .revoke_key(&Call::by("test"), &id, None)
        .await
        .unwrap();
    let began = Instant::now();
    while server.get("/v1/queues").await.status != 401 {
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(SHORT).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_low_disk_refuses_messages_and_nothing_else() {
    let server =
        TestServer::start_with(memory::open(), |config| config.min_free_bytes = u64::MAX).await;
    tokio::time::sleep(SHORT).await;
    let refused = server
        .post("/v1/queue/publish", r#"{"queue":"a","message":1}"#)
        .await;
    assert_eq!(refused.status, 507);
    assert_eq!(refused.json()["code"], "disk_low");
    assert_eq!(server.get("/v1/queues").await.status, 200);
    server.stop().await;
}

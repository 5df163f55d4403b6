//! A bound on everything that a connection may take.

use super::{SHORT, TestEdge, soon, wide};
use crate::client::checked;
use futures_util::future::join_all;
use quita_api::http::server::Bounds;
use quita_tests::wire::Wire;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;

/// A bound of [`SHORT`] is noticed by then, also on a busy machine.
const BY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_head_that_drips_ends_its_connection() {
    let edge = TestEdge::start(Bounds {
        header: SHORT,
        ..wide()
    })
    .await;
    let mut wire = edge.wire().await;
    let began = std::time::Instant::now();
    for byte in "GET /hello HTTP/1.1\r\nhost: test\r\nx-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".bytes() {
        if wire.try_send([byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(wire.closes_within(BY).await.is_some() && began.elapsed() >= SHORT);
}

#[tokio::test]
async fn a_connection_that_asks_nothing_ends() {
    let edge = TestEdge::start(Bounds {
        header: SHORT,
        ..wide()
    })
    .await;
    assert!(edge.wire().await.closes_within(BY).await.unwrap() >= SHORT / 2);
    soon("its place is free", || edge.edge.open() == 0).await;
}

#[tokio::test]
async fn a_second_head_has_its_own_time_and_rest_is_longer_than_a_head() {
    let edge = TestEdge::start(Bounds {
        header: SHORT,
        idle: SHORT * 5,
        ..wide()
    })
    .await;
    let mut wire = edge.wire().await;
    let hello = wire.get("/hello").await;
    assert_eq!(hello.status, 200);
    assert_eq!(hello.header("strict-transport-security"), None);
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(wire.get("/hello").await.status, 200);
    wire.send("GET /hel").await;
    assert!(wire.closes_within(BY).await.unwrap() < SHORT * 4);
    let mut wire = edge.wire().await;
    assert_eq!(wire.get("/hello").await.status, 200);
    assert!(wire.closes_within(BY).await.unwrap() >= SHORT * 4);
}

#[tokio::test]
async fn a_request_in_service_is_under_no_time_out() {
    let edge = TestEdge::start(Bounds {
        header: SHORT,
        idle: SHORT,
        write_stall: SHORT,
        ..wide()
    })
    .await;
    assert_eq!(edge.wire().await.get("/sleep/700").await.text(), "slept");
}

#[tokio::test]
async fn a_body_that_does_not_come_fails_in_time() {
    let edge = TestEdge::start(Bounds {
        body: SHORT,
        ..wide()
    })
    .await;
    let mut wire = edge.wire().await;
    wire.send("POST /echo HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\n{")
        .await;
    let answer = tokio::time::timeout(BY, wire.answer()).await.unwrap();
    assert!((400..500).contains(&answer.status));
    assert!(wire.closes_within(Duration::from_secs(5)).await.is_some());
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_connection() {
    let edge = TestEdge::start(Bounds {
        write_stall: SHORT,
        ..wide()
    })
    .await;
    let mut wire = Wire::narrow(edge.address).await;
    wire.send("GET /large/16 HTTP/1.1\r\nhost: test\r\n\r\n")
        .await;
    let began = std::time::Instant::now();
    while edge.edge.open() == 0 || began.elapsed() < SHORT / 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    soon("it is closed", || edge.edge.open() == 0).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_handler() {
    let edge = TestEdge::start(wide()).await;
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let mut wire = edge.wire().await;
        wire.send("GET /sleep/30000 HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        waiting.push(wire);
    }
    soon("all run", || edge.running.load(Ordering::SeqCst) == 200).await;
    for (n, wire) in waiting.into_iter().enumerate() {
        if n % 2 == 0 { wire.reset() } else { drop(wire) }
    }
    soon("none runs", || {
        edge.running.load(Ordering::SeqCst) == 0 && edge.edge.open() == 0
    })
    .await;
}

#[tokio::test]
async fn over_the_cap_a_connection_is_told_so_and_a_place_that_is_freed_is_used() {
    let edge = TestEdge::start(Bounds {
        connections: 3,
        ..wide()
    })
    .await;
    let mut inside = Vec::new();
    for _ in 0..3 {
        let mut wire = edge.wire().await;
        assert_eq!(wire.get("/hello").await.status, 200);
        inside.push(wire);
    }
    for _ in 0..300 {
        let mut wire = edge.wire().await;
        let answer = wire.get("/hello").await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("1"))
        );
        assert_eq!(checked(&answer).1["limit"], "connections");
        assert_eq!(answer.json()["code"], "overloaded");
        assert!(wire.next().await.is_none());
    }
    for name in [
        "quita_limited_total{limit=\"connections\"}",
        "quita_problems_total{code=\"overloaded\"}",
    ] {
        assert_eq!(edge.counted(name), 300, "{name}");
    }
    inside.pop();
    soon("a place is free", || edge.edge.open() == 2).await;
    assert_eq!(edge.wire().await.get("/hello").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_connections_leaves_no_descriptor_behind() {
    let edge = TestEdge::start(Bounds {
        connections: 50,
        ..wide()
    })
    .await;
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..100 {
        let storm = (0..100).map(|_| TcpStream::connect(edge.address));
        drop(join_all(storm).await);
    }
    soon("all are gone", || edge.edge.open() == 0).await;
    assert_eq!(edge.wire().await.get("/hello").await.status, 200);
    soon("descriptors are back", || descriptors() <= before + 20).await;
}

//! Requests that are no HTTP, or that two servers could read in two ways. None reaches a handler, and after each the
//! connection is closed, since nobody can say where the next request would begin.

use super::{LONG, SHORT, TestEdge, soon, wide};
use std::time::Duration;

const OK: &str = "GET /hello HTTP/1.1\r\nhost: test\r\n\r\n";

/// Sends the request and a good one behind it: the answer's status, and that nothing else was served.
async fn status(edge: &TestEdge, request: &[u8]) -> u16 {
    let before = edge.reached();
    let mut wire = edge.wire().await;
    wire.send(request).await;
    let _ = wire.try_send(OK).await;
    let status = wire.next().await.map_or(0, |answer| answer.status);
    assert!(wire.next().await.is_none(), "a second request was served");
    assert_eq!(edge.reached(), before, "it reached a handler");
    status
}

#[tokio::test]
async fn what_is_not_a_request_is_answered_400_and_the_connection_closed() {
    let edge = TestEdge::start(wide()).await;
    let post =
        |headers: &str| format!("POST /echo HTTP/1.1\r\nhost: test\r\n{headers}\r\n0\r\n\r\n");
    let rows = [
        (
            "two lengths",
            post("content-length: 5\r\ncontent-length: 6\r\n"),
        ),
        ("a length with a sign", post("content-length: +5\r\n")),
        ("a list of lengths", post("content-length: 5, 5\r\n")),
        ("a hexadecimal length", post("content-length: 0x5\r\n")),
        ("an unknown coding", post("transfer-encoding: xchunked\r\n")),
        (
            "chunked is not last",
            post("transfer-encoding: chunked, identity\r\n"),
        ),
        (
            "a body that stays compressed",
            post("transfer-encoding: gzip, chunked\r\n"),
        ),
        (
            "chunked twice",
            post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        ),
        (
            "a space before the colon",
            post("transfer-encoding : chunked\r\n"),
        ),
        (
            "a tab before the colon",
            post("transfer-encoding\t: chunked\r\n"),
        ),
        ("a folded line", post("x-a: b\r\n c\r\n")),
        ("no host", "GET /hello HTTP/1.1\r\n\r\n".into()),
        (
            "two hosts",
            "GET /hello HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n".into(),
        ),
        (
            "a host with a path",
            "GET /hello HTTP/1.1\r\nhost: a/b\r\n\r\n".into(),
        ),
        ("HTTP/0.9", "GET /hello\r\n\r\n".into()),
        ("HTTP/3.0", "GET /hello HTTP/3.0\r\nhost: a\r\n\r\n".into()),
        (
            "two spaces",
            "GET  /hello HTTP/1.1\r\nhost: a\r\n\r\n".into(),
        ),
        ("bare line feeds", "GET /hello HTTP/1.1\nhost: a\n\n".into()),
        (
            "one bare line feed",
            "GET /hello HTTP/1.1\r\nhost: a\nx-a: b\r\n\r\n".into(),
        ),
        (
            "a NUL in a value",
            "GET /hello HTTP/1.1\r\nhost: a\r\nx-a: \0\r\n\r\n".into(),
        ),
        ("nonsense", "\u{1}\u{2}\u{3}\r\n\r\n".into()),
        ("TLS", "\u{16}\u{3}\u{1}\0\u{f1}\u{1}\0\r\n\r\n".into()),
    ];
    for (what, request) in rows {
        let status = status(&edge, request.as_bytes()).await;
        assert!(status == 400, "{what}: {status}");
    }
    assert_eq!(edge.wire().await.get("/hello").await.status, 200);
}

#[tokio::test]
async fn with_a_length_and_a_coding_the_second_request_is_never_served() {
    let edge = TestEdge::start(wide()).await;
    for headers in [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
    ] {
        let mut wire = edge.wire().await;
        wire.send(format!(
            "POST /echo HTTP/1.1\r\nhost: test\r\n{headers}\r\n0\r\n\r\n{OK}"
        ))
        .await;
        let first = wire.next().await;
        assert!(first.is_none_or(|a| a.status == 400 || a.header("connection") == Some("close")));
        assert!(wire.next().await.is_none());
    }
}

#[tokio::test]
async fn heads_beyond_their_bounds_are_answered_431_or_414() {
    let edge = TestEdge::start(wide()).await;
    let many = (0..101).fold(String::new(), |many, n| many + &format!("x-{n}: a\r\n"));
    let with = |headers: &str| format!("GET /hello HTTP/1.1\r\nhost: test\r\n{headers}\r\n");
    assert_eq!(status(&edge, with(&many).as_bytes()).await, 431);
    let long = format!("x-a: {}\r\n", "a".repeat(64 << 10));
    assert_eq!(status(&edge, with(&long).as_bytes()).await, 431);
    let huge = format!("x-a: {}\r\n", "a".repeat(400 << 10));
    assert_eq!(status(&edge, with(&huge).as_bytes()).await, 431);
    let refused = "quita_limited_total{limit=\"header_size\"}";
    soon("they are counted", || edge.counted(refused) == 3).await;
    let target = |length| format!("GET /{} HTTP/1.1\r\nhost: test\r\n\r\n", "a".repeat(length));
    assert_eq!(status(&edge, target(16 << 10).as_bytes()).await, 414);
    assert!(matches!(
        status(&edge, target(1 << 20).as_bytes()).await,
        414 | 431
    ));
}

#[tokio::test]
async fn an_expectation_other_than_100_continue_fails() {
    let edge = TestEdge::start(wide()).await;
    let request =
        "POST /echo HTTP/1.1\r\nhost: test\r\nexpect: 200-ok\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(status(&edge, request.as_bytes()).await, 417);
    let mut wire = edge.wire().await;
    wire.send(
        "POST /echo HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
    )
    .await;
    assert_eq!(wire.answer().await.status, 100);
    wire.send("{}").await;
    assert_eq!(wire.answer().await.text(), "{}");
}

#[tokio::test]
async fn an_answer_without_the_body_comes_before_the_connection_ends() {
    let edge = TestEdge::start(wide()).await;
    let mut wire = edge.wire().await;
    wire.send("POST /deaf HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: 10737418240\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 200);
    // Also to a client that has begun to send: a reset must not overtake the answer.
    let mut wire = edge.wire().await;
    wire.send("POST /deaf HTTP/1.1\r\nhost: test\r\ncontent-length: 10737418240\r\n\r\n")
        .await;
    for _ in 0..64 {
        if wire.try_send(vec![b'x'; 64 << 10]).await.is_err() {
            break;
        }
    }
    assert_eq!(wire.answer().await.status, 200);
    assert!(wire.closes_within(Duration::from_secs(5)).await.is_some());
}

#[tokio::test]
async fn an_upgrade_is_ignored() {
    let edge = TestEdge::start(wide()).await;
    for upgrade in [
        "h2c\r\nhttp2-settings: AAMAAABkAAQAAP__",
        "websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AA==",
    ] {
        let mut wire = edge.wire().await;
        for _ in 0..2 {
            wire.send(format!("GET /hello HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: {upgrade}\r\n\r\n")).await;
            assert_eq!(wire.answer().await.text(), "hello");
        }
    }
    let mut wire = edge.wire().await;
    wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(wire.closes_within(SHORT * 5).await.is_some());
}

#[tokio::test]
async fn old_clients_and_pipelines_are_served() {
    let edge = TestEdge::start(wide()).await;
    let mut wire = edge.wire().await;
    wire.send("GET /hello HTTP/1.0\r\n\r\n").await;
    assert_eq!(wire.answer().await.text(), "hello");
    assert!(wire.closes_within(LONG).await.is_some());
    let mut wire = edge.wire().await;
    wire.send(OK.repeat(3)).await;
    for _ in 0..3 {
        assert_eq!(wire.answer().await.text(), "hello");
    }
}

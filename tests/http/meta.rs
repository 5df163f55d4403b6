//! The server itself, and what all answers have in common.

use crate::client::checked;
use quita_tests::server::TestServer;
use serde_json::Value;

#[tokio::test]
async fn open_routes_need_no_key() {
    let server = TestServer::start().await;
    for (path, media_type) in [
        ("/healthz", "application/json"),
        ("/readyz", "application/json"),
        ("/openapi.json", "application/json"),
        ("/problems", "application/json"),
        ("/problems/queue_full", "application/json"),
        ("/docs/index.html", "text/html"),
        ("/docs/swagger-ui-bundle.js", "text/javascript"),
    ] {
        let answer = server.wire().await.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer
                .header("content-type")
                .unwrap()
                .starts_with(media_type),
            "{path}: {}",
            answer.head
        );
    }
    let answer = server.wire().await.get("/docs").await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some("/docs/index.html"))
    );
    let initializer = server
        .wire()
        .await
        .get("/docs/swagger-initializer.js")
        .await
        .text();
    assert!(initializer.contains("/openapi.json"));
    server.stop().await;
}

#[tokio::test]
async fn the_page_of_a_problem_is_for_people_or_programs() {
    let server = TestServer::start().await;
    let mut wire = server.wire().await;
    wire.send("GET /problems/lease_superseded HTTP/1.1\r\nhost: test\r\naccept: text/html\r\n\r\n")
        .await;
    let answer = wire.answer().await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(answer.text().contains("lease_superseded"));
    let answer = wire.get("/problems/nonsense").await;
    assert_eq!(checked(&answer).0, 404);
    server.stop().await;
}

#[tokio::test]
async fn who_has_no_key_is_asked_for_one() {
    let server = TestServer::start().await;
    for (header, code) in [
        ("", "missing_credentials"),
        ("authorization:\r\n", "missing_credentials"),
        ("authorization: Basic dTpw\r\n", "unsupported_scheme"),
        ("authorization: Bearer nonsense\r\n", "invalid_key"),
    ] {
        let mut wire = server.wire().await;
        wire.send(format!(
            "GET /v1/queues?api_key=x HTTP/1.1\r\nhost: test\r\n{header}\r\n"
        ))
        .await;
        let (status, json) = checked(&wire.answer().await);
        assert_eq!((status, json["code"].as_str()), (401, Some(code)));
    }
    let mut wire = server.wire().await;
    wire.send(format!(
        "GET /v1/queues HTTP/1.1\r\nhost: test\r\nauthorization: bearer {}\r\n\r\n",
        server.key
    ))
    .await;
    assert_eq!(checked(&wire.answer().await).0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_plain_request_id_is_kept_and_another_is_replaced() {
    let server = TestServer::start().await;
    for (sent, kept) in [("abc-1", true), ("a b", false), ("<x>", false)] {
        let mut wire = server.wire().await;
        wire.send(format!(
            "GET /nowhere HTTP/1.1\r\nhost: test\r\nrequest-id: {sent}\r\n\r\n"
        ))
        .await;
        let answer = wire.answer().await;
        let (_, json) = checked(&answer);
        assert_eq!(answer.header("request-id") == Some(sent), kept);
        assert_eq!(json["request_id"].as_str() == Some(sent), kept);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_served_document_is_the_committed_one() {
    let server = TestServer::start().await;
    let served: Value = server.wire().await.get("/openapi.json").await.json();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(served, committed);
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_is_not_ready() {
    let server = TestServer::start().await;
    let mut wire = server.wire().await;
    assert_eq!(wire.get("/readyz").await.status, 200);
    server.stop().await;
}

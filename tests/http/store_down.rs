//! A store that is not there: every request says so, surely did nothing, and may be repeated.

use crate::client::checked;
use quita_tests::server::TestServer;
use quita_tests::store::{self, Store};
use serde_json::json;

fn on(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let Some(opened) = store::open(store).await else {
            return;
        };
        let server = TestServer::start_with(opened.backend.clone(), |_| {}).await;
        let made = server
            .post("/v1/queue/publish", r#"{"queue":"q","message":1}"#)
            .await;
        assert_eq!(made.status, 201);
        opened.backend.close().await;
        for (method, path, body) in [
            (
                "POST",
                "/v1/queue/publish",
                json!({"queue": "q", "message": 2}),
            ),
            ("POST", "/v1/queue/receive", json!({"queue": "q"})),
            ("PUT", "/v1/queues/new", json!({})),
            ("GET", "/v1/queues", json!(null)),
            ("GET", "/v1/audit", json!(null)),
            ("GET", "/readyz", json!(null)),
        ] {
            // A file that is closed for writing may still be read.
            if store == Store::Sqlite && method == "GET" {
                continue;
            }
            let answer = if method == "GET" {
                server.get(path).await
            } else {
                let mut wire = server.wire().await;
                let headers = quita_tests::server::json_headers(&server.key);
                wire.request(method, path, &headers, &body.to_string())
                    .await;
                wire.answer().await
            };
            let (status, json) = checked(&answer);
            assert_eq!(
                (status, &json["effect"], &json["retryable"]),
                (503, &json!("none"), &json!(true)),
                "{method} {path}: {json}"
            );
            // A file is never away, only closed.
            let code = json["code"].as_str().unwrap();
            assert!(
                code == "storage_unavailable" || store == Store::Sqlite && code == "draining",
                "{method} {path}: {json}"
            );
            assert!(answer.header("retry-after").is_some());
        }
        // The process is alive, and says so.
        assert_eq!(server.get("/healthz").await.status, 200);
        server.stop().await;
        opened.close().await;
    });
}

#[test]
fn sqlite() {
    on(Store::Sqlite);
}

#[test]
fn postgres() {
    on(Store::Postgres);
}

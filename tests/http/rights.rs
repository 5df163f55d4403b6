//! What a caller without rights sees: nothing, and nothing that tells whether there is something.

use crate::client::{Client, checked, on_every_store};
use quita_api::auth::{ApiKey, admin_record};
use quita_storage::backend::{Call, KeyRecord};
use quita_tests::server::json_headers;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A key of a scope that this version does not know.
async fn powerless(client: &Client) -> String {
    let key = ApiKey::generate().unwrap();
    let record = KeyRecord {
        scope: "unheard_of".into(),
        ..admin_record(&key, "test")
    };
    let backend = &client.server.backend;
    assert!(
        backend
            .add_key(&Call::by("test"), record, false)
            .await
            .unwrap()
    );
    let key = key.reveal().to_owned();
    let began = Instant::now();
    while call(client, &key, "GET", "/v1/queues", "").await.0 == 401 {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    key
}

async fn call(client: &Client, key: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut wire = client.server.wire().await;
    wire.request(method, path, &json_headers(key), body).await;
    checked(&wire.answer().await)
}

async fn who_has_no_right_learns_nothing(client: &Client) {
    let id = client.bury("q", json!(1), "E1", "").await;
    let body = json!({"queue": "q"});
    let made = client.ok("/v1/dead-letters/selections", body).await;
    let selection = made["selection_id"].as_str().unwrap();
    let body = json!({"selection_id": selection, "expected_count": 1, "dry_run": true});
    let begun = client.ok("/v1/redrives", body.clone()).await;
    let redrive = format!("/v1/redrives/{}", begun["redrive_id"].as_str().unwrap());
    let letter = format!("/v1/queues/q/dead-letters/{id}");
    let key = powerless(client).await;
    let (start, body) = ("/v1/redrives", body.to_string());
    let selection = format!("/v1/dead-letters/selections/{selection}");
    for (method, path, body, status, code) in [
        ("GET", "/v1/dead-letters", "", 403, "insufficient_scope"),
        (
            "GET",
            "/v1/dead-letters/groups",
            "",
            403,
            "insufficient_scope",
        ),
        ("GET", start, "", 403, "insufficient_scope"),
        ("GET", "/v1/audit", "", 403, "insufficient_scope"),
        ("GET", "/v1/audit?queue=q", "", 404, "queue_not_found"),
        ("GET", "/v1/redrives?queue=q", "", 404, "queue_not_found"),
        (
            "GET",
            "/v1/queues/q/dead-letters",
            "",
            404,
            "queue_not_found",
        ),
        (
            "GET",
            "/v1/queues/q/dead-letters/groups",
            "",
            404,
            "queue_not_found",
        ),
        (
            "POST",
            "/v1/dead-letters/selections",
            r#"{"queue":"q"}"#,
            404,
            "queue_not_found",
        ),
        ("GET", &selection, "", 404, "not_found"),
        ("POST", start, &body, 404, "not_found"),
        ("GET", &redrive, "", 404, "not_found"),
        (
            "PATCH",
            &redrive,
            r#"{"rate_per_second":1}"#,
            404,
            "not_found",
        ),
        ("POST", &format!("{redrive}/cancel"), "{}", 404, "not_found"),
        (
            "PATCH",
            &letter,
            r#"{"message":1,"reason":"x"}"#,
            404,
            "queue_not_found",
        ),
        (
            "POST",
            &format!("{letter}/undo-edit"),
            "{}",
            404,
            "queue_not_found",
        ),
        (
            "POST",
            &format!("{letter}/redrive"),
            "{}",
            404,
            "queue_not_found",
        ),
        (
            "POST",
            &format!("{letter}/discard"),
            r#"{"code":"duplicate","justification":"long enough to count"}"#,
            404,
            "queue_not_found",
        ),
        (
            "POST",
            &format!("{letter}/reopen"),
            r#"{"reason":"x"}"#,
            404,
            "queue_not_found",
        ),
    ] {
        let (got, json) = call(client, &key, method, path, body).await;
        assert_eq!(
            (got, json["code"].as_str()),
            (status, Some(code)),
            "{method} {path}"
        );
    }
    assert_eq!(client.counts("q").await, [0, 0, 0, 1]);
}

on_every_store!(who_has_no_right_learns_nothing);

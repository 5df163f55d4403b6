//! What a caller without rights sees: nothing, and nothing that tells whether there is something.

mod cell;
pub(crate) mod matrix;
mod rows;

use crate::client::{Client, checked, on_every_store};
use quita_api::auth::{ApiKey, admin_record};
use quita_storage::backend::{Call, KeyRecord};
use quita_tests::server::json_headers;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A key with these scopes.
async fn key_with(client: &Client, scopes: &str) -> String {
    let key = ApiKey::generate().unwrap();
    let record = KeyRecord {
        scope: scopes.into(),
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
    // A scope that this version does not know.
    let key = key_with(client, "unheard_of").await;
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
        ("GET", "/v1/audit?queue=q", "", 403, "insufficient_scope"),
        ("GET", "/v1/redrives?queue=q", "", 403, "insufficient_scope"),
        (
            "GET",
            "/v1/queues/q/dead-letters",
            "",
            403,
            "insufficient_scope",
        ),
        (
            "GET",
            "/v1/queues/q/dead-letters/groups",
            "",
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            "/v1/dead-letters/selections",
            r#"{"queue":"q"}"#,
            403,
            "insufficient_scope",
        ),
        ("GET", &selection, "", 403, "insufficient_scope"),
        ("POST", start, &body, 403, "insufficient_scope"),
        ("GET", &redrive, "", 403, "insufficient_scope"),
        (
            "PATCH",
            &redrive,
            r#"{"rate_per_second":1}"#,
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            &format!("{redrive}/cancel"),
            "{}",
            403,
            "insufficient_scope",
        ),
        (
            "PATCH",
            &letter,
            r#"{"message":1,"reason":"x"}"#,
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            &format!("{letter}/undo-edit"),
            "{}",
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            &format!("{letter}/redrive"),
            "{}",
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            &format!("{letter}/discard"),
            r#"{"code":"duplicate","justification":"long enough to count"}"#,
            403,
            "insufficient_scope",
        ),
        (
            "POST",
            &format!("{letter}/reopen"),
            r#"{"reason":"x"}"#,
            403,
            "insufficient_scope",
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

async fn a_page_of_queues_ends_behind_one_that_may_be_read(client: &Client) {
    for name in ["a1", "b1", "b2", "c1", "d1"] {
        client.queue(name, json!({})).await;
    }
    let key = key_with(client, "read:a* read:c* read:d1").await;
    let (mut names, mut path) = (Vec::new(), "/v1/queues?page_size=1".to_owned());
    loop {
        let (status, page) = call(client, &key, "GET", &path, "").await;
        assert_eq!((status, page["queues"].as_array().unwrap().len()), (200, 1));
        names.push(page["queues"][0]["name"].as_str().unwrap().to_owned());
        let Some(token) = page["next_page_token"].as_str() else {
            break;
        };
        path = format!("/v1/queues?page_size=1&page_token={token}");
    }
    assert_eq!(names, ["a1", "c1", "d1"]);
}

async fn who_may_change_a_queue_is_answered_without_the_right_to_read(client: &Client) {
    let key = key_with(client, "manage:q redrive:q discard:q").await;
    for (method, path, body, status) in [
        ("PUT", "/v1/queues/q", "{}", 201),
        ("PATCH", "/v1/queues/q", r#"{"max_attempts":9}"#, 200),
        ("POST", "/v1/queues/q/pause", "", 200),
        ("GET", "/v1/queues/q", "", 403),
    ] {
        assert_eq!(call(client, &key, method, path, body).await.0, status);
    }
    // Dead letters are purged by who may discard them.
    let purge = r#"{"confirm":"q","dead_letters":true,"justification":"long enough to count"}"#;
    let manager = key_with(client, "manage:q").await;
    let forced = call(client, &manager, "DELETE", "/v1/queues/q?force=true", "").await;
    assert_eq!(
        (forced.0, &forced.1["code"]),
        (403, &json!("insufficient_scope"))
    );
    let got = call(client, &manager, "POST", "/v1/queues/q/purge", purge).await;
    assert_eq!((got.0, &got.1["code"]), (403, &json!("insufficient_scope")));
    assert_eq!(
        call(client, &key, "POST", "/v1/queues/q/purge", purge)
            .await
            .0,
        200
    );
}

/// In any order: what comes first decides for nothing else.
async fn every_item_of_a_batch_is_authorised_by_itself(client: &Client) {
    let key = key_with(client, "consume:a").await;
    for order in [["a", "b", "a"], ["b", "a", "b"]] {
        let mut settlements = Vec::new();
        for queue in order {
            client.publish(queue, json!(1)).await;
            settlements.push(json!({"receipt": client.receipt(queue).await, "action": "ack"}));
        }
        let body = json!({ "settlements": settlements }).to_string();
        let (status, json) = call(client, &key, "POST", "/v1/queue/settle", &body).await;
        assert_eq!(status, 200);
        for (index, queue) in order.into_iter().enumerate() {
            let wanted = if queue == "a" { 200 } else { 404 };
            assert_eq!(json["results"][index]["status"], wanted, "{json}");
        }
    }
    assert_eq!(client.counts("a").await, [0, 0, 0, 0]);
    assert_eq!(client.counts("b").await, [0, 0, 3, 0]);
}

on_every_store!(
    a_page_of_queues_ends_behind_one_that_may_be_read,
    who_may_change_a_queue_is_answered_without_the_right_to_read,
    every_item_of_a_batch_is_authorised_by_itself,
    who_has_no_right_learns_nothing,
);

//! Receive: leases, waiting, and the ends of waiting.

use crate::client::{Client, checked, on_every_store};
use quita_api::auth::{ApiKey, admin_record};
use quita_storage::backend::Call;
use quita_tests::server::json_headers;
use serde_json::json;
use std::time::{Duration, Instant};

const RECEIVE: &str = "/v1/queue/receive";

async fn an_empty_queue_answers_at_once_or_when_the_wait_is_over(client: &Client) {
    client.queue("q", json!({})).await;
    let began = Instant::now();
    let json = client.ok(RECEIVE, json!({"queue": "q"})).await;
    assert_eq!(json["messages"], json!([]));
    assert!(json["server_time"].is_string() && json.get("paused").is_none());
    assert!(began.elapsed() < Duration::from_millis(500));
    client
        .ok(RECEIVE, json!({"queue": "q", "wait_seconds": 0.5}))
        .await;
    assert!(began.elapsed() >= Duration::from_millis(500));
}

async fn a_waiting_receive_gets_what_is_published(client: &Client) {
    client.queue("q", json!({})).await;
    let waiting = client.ok(
        RECEIVE,
        json!({"queue": "q", "wait_seconds": 20, "worker": "w"}),
    );
    let publishing = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let began = Instant::now();
        client.publish("q", json!("hello")).await;
        began
    };
    let (json, began) = tokio::join!(waiting, publishing);
    assert_eq!(json["messages"][0]["message"], "hello");
    assert!(began.elapsed() < Duration::from_secs(2));
}

async fn a_receive_waits_for_a_queue_that_is_not_there_yet(client: &Client) {
    let waiting = client.ok(RECEIVE, json!({"queue": "later", "wait_seconds": 20}));
    let publishing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.publish("later", json!(1)).await;
    };
    let began = Instant::now();
    let (json, ()) = tokio::join!(waiting, publishing);
    assert_eq!(json["messages"][0]["message"], 1);
    assert!(began.elapsed() < Duration::from_secs(3));
    let json = client.ok(RECEIVE, json!({"queue": "never"})).await;
    assert_eq!(json["messages"], json!([]));
    let (status, _) = client.get("/v1/queues/never").await;
    assert_eq!(status, 404, "a receive creates nothing");
}

async fn a_pause_stops_hand_outs_and_is_said(client: &Client) {
    client.publish("q", json!(1)).await;
    client.ok("/v1/queues/q/pause", json!(null)).await;
    for wait in [0.0, 0.3] {
        let json = client
            .ok(RECEIVE, json!({"queue": "q", "wait_seconds": wait}))
            .await;
        assert_eq!(
            (&json["messages"], &json["paused"]),
            (&json!([]), &json!(true))
        );
    }
    client.publish("q", json!(2)).await;
    let waiting = client.ok(RECEIVE, json!({"queue": "q", "wait_seconds": 20}));
    let resuming = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.ok("/v1/queues/q/resume", json!({})).await;
    };
    let began = Instant::now();
    let (json, ()) = tokio::join!(waiting, resuming);
    assert_eq!(json["messages"][0]["message"], 1);
    assert!(began.elapsed() < Duration::from_secs(2));
}

async fn the_receives_of_a_deleted_queue_end_as_not_found(client: &Client) {
    client.queue("q", json!({})).await;
    let waiting = client.post(RECEIVE, json!({"queue": "q", "wait_seconds": 20}));
    let deleting = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.call("DELETE", "/v1/queues/q", json!(null)).await
    };
    let began = Instant::now();
    let ((status, json), (deleted, _)) = tokio::join!(waiting, deleting);
    assert_eq!(
        (deleted, status, &json["code"]),
        (200, 404, &json!("queue_not_found"))
    );
    assert!(began.elapsed() < Duration::from_secs(2));
}

async fn k_messages_wake_k_of_many(client: &Client) {
    client.queue("q", json!({})).await;
    let waits = (0..20).map(|_| client.ok(RECEIVE, json!({"queue": "q", "wait_seconds": 1.5})));
    let publishing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let messages: Vec<_> = (0..5).map(|n| json!({"message": n})).collect();
        let body = json!({"queue": "q", "messages": messages});
        client.ok("/v1/queue/publish-batch", body).await;
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(waits), publishing);
    let mut got: Vec<i64> = answers
        .iter()
        .filter_map(|json| json["messages"][0]["message"].as_i64())
        .collect();
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 4]);
}

async fn a_lease_that_runs_out_comes_again_to_who_waits(client: &Client) {
    client.publish("q", json!(1)).await;
    client
        .ok(
            RECEIVE,
            json!({"queue": "q", "visibility_timeout_seconds": 1}),
        )
        .await;
    let json = client
        .ok(RECEIVE, json!({"queue": "q", "wait_seconds": 10}))
        .await;
    let message = &json["messages"][0];
    assert_eq!(message["attempt"], 2);
    assert_eq!(message["last_failure"]["cause"], "lease_expired");
}

async fn a_waiting_receive_ends_when_its_key_is_revoked(client: &Client) {
    client.queue("q", json!({})).await;
    let key = ApiKey::generate().unwrap();
    let backend = &client.server.backend;
    let record = admin_record(&key, "test");
    assert!(
        backend
            .add_key(&Call::by("test"), record, false)
            .await
            .unwrap()
    );
    let body = json!({"queue": "q", "wait_seconds": 20}).to_string();
    let ask = async |wait: &str| {
        let mut wire = client.server.wire().await;
        let body = body.replace("20", wait);
        wire.request("POST", RECEIVE, &json_headers(key.reveal()), &body)
            .await;
        checked(&wire.answer().await)
    };
    let began = Instant::now();
    while ask("0").await.0 == 401 {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let revoked = backend.revoke_key(&Call::by("test"), key.id(), None).await;
        assert!(revoked.unwrap());
        Instant::now()
    };
    let ((status, json), revoked) = tokio::join!(ask("20"), revoking);
    assert_eq!((status, &json["code"]), (401, &json!("invalid_key")));
    assert!(revoked.elapsed() < Duration::from_secs(5));
}

on_every_store!(
    an_empty_queue_answers_at_once_or_when_the_wait_is_over,
    a_waiting_receive_gets_what_is_published,
    a_receive_waits_for_a_queue_that_is_not_there_yet,
    a_pause_stops_hand_outs_and_is_said,
    the_receives_of_a_deleted_queue_end_as_not_found,
    k_messages_wake_k_of_many,
    a_lease_that_runs_out_comes_again_to_who_waits,
    a_waiting_receive_ends_when_its_key_is_revoked,
);

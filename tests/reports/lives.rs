//! One message on its way through everything.

use quita_tests::served::Client;
use quita_tests::served_on_every_store;
use quita_tests::server::{TestServer, json_headers};
use quita_tests::store::{self, Store};
use serde_json::{Value, json};
use sqlx::Connection;
use std::time::{Duration, Instant};

/// B001, B089: dead letters need no queue of their own that could be missing, and a queue that holds some is not deleted.
async fn dead_letters_need_no_other_queue(client: &Client) {
    for policy in [
        json!({"dead_letter_queue": "ghost"}),
        json!({"redrive_policy": {"target": "ghost"}}),
    ] {
        client
            .refused("PUT", "/v1/queues/q", policy, 422, "unknown_field")
            .await;
    }
    client.queue("q", json!({"max_attempts": 1})).await;
    let id = client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    client
        .ok("/v1/queue/nack", json!({"receipt": receipt}))
        .await;
    client
        .refused(
            "DELETE",
            "/v1/queues/q",
            Value::Null,
            409,
            "queue_not_empty",
        )
        .await;
    assert_eq!(client.counts("q").await, [0, 0, 0, 1]);
    let (_, listed) = client.get("/v1/queues/q/dead-letters").await;
    assert_eq!(Client::ids(&listed), [id]);
}

/// B061, B064, B086, B087, B143: retries, death and a redrive change no id, key, body or time of publish, and lose no
/// message; the limit holds to the number, and after a redrive anew; what failed last is told.
async fn a_message_stays_itself_until_it_is_acked(client: &Client) {
    let policy = json!({"max_attempts": 4, "backoff": {"type": "fixed", "base_seconds": 0, "jitter": "none"}});
    client.queue("q", policy).await;
    let published = client
        .ok(
            "/v1/queue/publish",
            json!({"queue": "q", "message": {"a": [1]}, "client_request_id": "r", "key": "k", "headers": {"h": "v"}}),
        )
        .await;
    let id = published["message_id"].as_str().unwrap();
    let path = format!("/v1/messages/{id}");
    for round in 0..2 {
        for attempt in 1..=4 {
            let held = client.receive("q").await;
            let is = |name: &str| held[name].clone();
            assert_eq!(
                (is("message_id"), is("attempt")),
                (json!(id), json!(attempt))
            );
            assert_eq!(
                (is("client_request_id"), is("key")),
                (json!("r"), json!("k"))
            );
            assert_eq!(
                (is("message"), is("headers")),
                (json!({"a": [1]}), json!({"h": "v"}))
            );
            assert_eq!(
                (is("published_at"), is("redrive_count")),
                (published["published_at"].clone(), json!(round))
            );
            assert_eq!(client.counts("q").await, [0, 0, 1, 0]);
            let error = json!({"code": format!("E{attempt}"), "detail": "down"});
            let nack = json!({"receipt": is("receipt"), "error": error});
            let nacked = client.ok("/v1/queue/nack", nack).await;
            assert_eq!(nacked["attempts_left"], 4 - attempt);
        }
        assert_eq!(client.counts("q").await, [0, 0, 0, 1]);
        let (_, dead) = client.get(&path).await;
        assert_eq!(dead["dead_letter"]["reason"], "max_attempts");
        assert_eq!(dead["dead_letter"]["error_code"], "E4");
        assert_eq!(dead["history"].as_array().unwrap().len(), 4 * (round + 1));
        client
            .ok(
                &format!("/v1/queues/q/dead-letters/{id}/redrive"),
                json!({}),
            )
            .await;
    }
    let receipt = client.receipt("q").await;
    client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
    let (_, ended) = client.get(&path).await;
    assert_eq!(
        (&ended["state"], &ended["end"]),
        (&json!("ended"), &json!("acked"))
    );
}

/// B108: a lease ends with its time, also when the key that took it is revoked meanwhile.
async fn a_lease_needs_no_living_owner(client: &Client) {
    client.publish("q", json!(1)).await;
    let made = client
        .ok("/v1/keys", json!({"scopes": ["consume:q"]}))
        .await;
    let key = made["key"].as_str().unwrap();
    let mut wire = client.server.wire().await;
    let receive = json!({"queue": "q", "visibility_timeout_seconds": 1}).to_string();
    wire.request("POST", "/v1/queue/receive", &json_headers(key), &receive)
        .await;
    let got = wire.answer().await;
    assert_eq!(got.json()["messages"][0]["attempt"], 1);
    let revoke = format!("/v1/keys/{}/revoke", made["key_id"].as_str().unwrap());
    client
        .ok(&revoke, json!({"reason": "its owner is gone"}))
        .await;
    let again = json!({"queue": "q", "wait_seconds": 10});
    let again = client.ok("/v1/queue/receive", again).await;
    assert_eq!(again["messages"][0]["attempt"], 2);
}

served_on_every_store!(
    dead_letters_need_no_other_queue,
    a_message_stays_itself_until_it_is_acked,
    a_lease_needs_no_living_owner,
);

/// Counts dead letters beside the server, which is asked nothing.
async fn dead_rows(store: Store, url: &str) -> i64 {
    const SQL: &str = "SELECT count(*) FROM dead";
    if store == Store::Sqlite {
        let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
        sqlx::query_scalar(SQL)
            .fetch_one(&mut connection)
            .await
            .unwrap()
    } else {
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        sqlx::query_scalar(SQL)
            .fetch_one(&mut connection)
            .await
            .unwrap()
    }
}

/// B020, B144: a message that is given up dies by itself: nobody receives, lists or counts.
async fn it_dies_with_nobody_asking(store: Store) {
    let Some(opened) = store::open(store).await else {
        return;
    };
    let server = TestServer::start_with(opened.backend.clone(), |_| {}).await;
    let publish = r#"{"queue":"q","message":1,"max_attempts":1}"#;
    assert_eq!(server.post("/v1/queue/publish", publish).await.status, 201);
    let receive = r#"{"queue":"q","visibility_timeout_seconds":1}"#;
    let got = server.post("/v1/queue/receive", receive).await.json();
    let handed_out = Instant::now();
    while dead_rows(store, &opened.url).await == 0 {
        // The lease, and the two seconds that the contract allows.
        assert!(handed_out.elapsed() < Duration::from_secs(3));
    }
    let id = got["messages"][0]["message_id"].as_str().unwrap();
    let message = server.get(&format!("/v1/messages/{id}")).await.json();
    assert_eq!(message["dead_letter"]["reason"], "lease_expired");
    server.stop().await;
    opened.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_message_dies_with_nobody_asking_on_sqlite() {
    it_dies_with_nobody_asking(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exhausted_message_dies_with_nobody_asking_on_postgres() {
    it_dies_with_nobody_asking(Store::Postgres).await;
}

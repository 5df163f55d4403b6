//! What counts against the limit of a message.

use quita_tests::served::Client;
use quita_tests::served_on_every_store;
use serde_json::{Value, json};

const LIMIT: usize = 262_144;

async fn publish(client: &Client, body: Value) -> u16 {
    client.post("/v1/queue/publish", body).await.0
}

/// B151: bytes count, not characters, and those of each message of a batch by itself.
async fn bytes_count_and_not_characters(client: &Client) {
    let text = |characters: usize| "é".repeat(characters);
    let fits = LIMIT / 2 - 1;
    assert_eq!(
        publish(client, json!({"queue": "q", "message": text(fits)})).await,
        201
    );
    assert_eq!(
        publish(client, json!({"queue": "q", "message": text(fits + 1)})).await,
        413
    );
    let batch = json!({"queue": "q", "messages": [{"message": text(fits)}, {"message": text(fits + 1)}, {"message": text(fits)}]});
    let answer = client.ok("/v1/queue/publish-batch", batch).await;
    assert_eq!(
        (&answer["created"], &answer["rejected"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(client.counts("q").await[1], 3);
}

/// B152: the key counts with its bytes, and the headers with those of their JSON text.
async fn key_and_headers_count(client: &Client) {
    let (quotes, key, headers) = (2, 2, r#"{"h":"vvv"}"#.len());
    let message = "x".repeat(LIMIT - quotes - key - headers);
    let with = |key: &str, value: &str| json!({"queue": "q", "message": message, "key": key, "headers": {"h": value}});
    assert_eq!(publish(client, with("kk", "vvv")).await, 201);
    assert_eq!(publish(client, with("kkk", "vvv")).await, 413);
    assert_eq!(publish(client, with("kk", "vvvv")).await, 413);
    assert_eq!(client.counts("q").await[1], 1);
}

served_on_every_store!(bytes_count_and_not_characters, key_and_headers_count);

//! Many settles at once.

use quita_tests::served::Client;
use quita_tests::served_on_every_store;
use serde_json::{Value, json};

async fn receipts(client: &Client, count: usize) -> Vec<Value> {
    let messages = vec![json!({"message": 1}); count];
    client
        .ok(
            "/v1/queue/publish-batch",
            json!({"queue": "q", "messages": messages}),
        )
        .await;
    let receive = json!({"queue": "q", "max_messages": count});
    let answer = client.ok("/v1/queue/receive", receive).await;
    let messages = answer["messages"].as_array().unwrap();
    assert_eq!(messages.len(), count);
    messages.iter().map(|m| m["receipt"].clone()).collect()
}

/// B075: what one receive gives, one settle takes; beyond the limit nothing is settled.
async fn what_one_receive_gives_one_settle_takes(client: &Client) {
    let mut acks: Vec<Value> = receipts(client, 100)
        .await
        .into_iter()
        .map(|receipt| json!({"receipt": receipt, "action": "ack"}))
        .collect();
    let whole = acks.clone();
    acks.resize(1_001, json!({"receipt": "x", "action": "ack"}));
    let (status, _) = client
        .post("/v1/queue/settle", json!({"settlements": acks}))
        .await;
    assert_eq!(status, 422);
    assert_eq!(client.counts("q").await, [0, 0, 100, 0]);
    let answer = client
        .ok("/v1/queue/settle", json!({"settlements": whole}))
        .await;
    assert_eq!(answer["succeeded"], 100);
    assert_eq!(client.counts("q").await, [0; 4]);
}

/// B060, B077: of ten, nine are acked and one fails alone; the whole request again is no error.
async fn one_that_fails_fails_alone_and_a_repeat_is_no_error(client: &Client) {
    client
        .queue(
            "q",
            json!({"backoff": {"type": "fixed", "base_seconds": 60, "jitter": "none"}}),
        )
        .await;
    let settlements: Vec<Value> = receipts(client, 10)
        .await
        .into_iter()
        .enumerate()
        .map(|(n, receipt)| json!({"receipt": receipt, "action": if n == 4 { "nack" } else { "ack" }}))
        .collect();
    let body = json!({"settlements": settlements});
    for already in [false, true] {
        let answer = client.ok("/v1/queue/settle", body.clone()).await;
        assert_eq!(
            (&answer["succeeded"], &answer["failed"]),
            (&json!(10), &json!(0))
        );
        for (n, result) in answer["results"].as_array().unwrap().iter().enumerate() {
            let first = if n == 4 { "retry_scheduled" } else { "acked" };
            let wanted = if already { "already_settled" } else { first };
            assert_eq!(result["result"], wanted, "{answer}");
        }
        assert_eq!(client.counts("q").await, [1, 0, 0, 0]);
    }
}

served_on_every_store!(
    what_one_receive_gives_one_settle_takes,
    one_that_fails_fails_alone_and_a_repeat_is_no_error,
);

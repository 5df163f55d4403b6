//! Ack, nack, release, extend, and many of them at once.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

async fn ack_is_final_and_safe_to_repeat(client: &Client) {
    client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    let json = client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
    assert_eq!(
        (&json["result"], &json["late"]),
        (&json!("acked"), &json!(false))
    );
    let json = client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
    assert_eq!(json["result"], "already_settled");
    let refused = client
        .refused(
            "POST",
            "/v1/queue/nack",
            json!({"receipt": receipt}),
            409,
            "receipt_spent",
        )
        .await;
    assert_eq!(refused["effect"], "none");
    assert_eq!(client.counts("q").await, [0; 4]);
}

async fn an_outcome_is_kept(client: &Client) {
    let id = client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    client
        .ok(
            "/v1/queue/ack",
            json!({"receipt": receipt, "outcome": {"charge": "ch_1"}}),
        )
        .await;
    let (status, json) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!((status, &json["end"]), (200, &json!("acked")));
    assert_eq!(
        (&json["outcome"], &json["state"]),
        (&json!({"charge": "ch_1"}), &json!("ended"))
    );
    client.publish("q", json!(2)).await;
    let receipt = client.receipt("q").await;
    let body = json!({"receipt": receipt, "outcome": "x".repeat(16 << 10)});
    client
        .refused("POST", "/v1/queue/ack", body, 422, "too_long")
        .await;
}

async fn a_nack_schedules_the_next_attempt_and_the_last_one_buries(client: &Client) {
    client.queue("q", json!({"max_attempts": 2, "backoff": {"type": "fixed", "base_seconds": 0, "jitter": "none"}})).await;
    let id = client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    let body = json!({"receipt": receipt, "error": {"code": "E1", "detail": "first"}});
    let json = client.ok("/v1/queue/nack", body).await;
    assert_eq!(
        (&json["result"], &json["attempts_left"]),
        (&json!("retry_scheduled"), &json!(1))
    );
    assert!(json["next_attempt_at"].is_string());
    let message = client.receive("q").await;
    assert_eq!(
        (
            &message["attempt"],
            &message["last_failure"]["error"]["code"]
        ),
        (&json!(2), &json!("E1"))
    );
    let body = json!({"receipt": message["receipt"], "error": {"code": 7, "detail": "\u{0}x"}});
    let json = client.ok("/v1/queue/nack", body).await;
    assert_eq!(
        (&json["result"], &json["attempts_left"]),
        (&json!("dead_lettered"), &json!(0))
    );
    let (_, json) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(json["dead_letter"]["reason"], "max_attempts");
    assert_eq!(json["dead_letter"]["error_code"], "7");
    assert_eq!(json["history"][1]["error"]["detail"], "\u{fffd}x");
    assert_eq!(client.counts("q").await, [0, 0, 0, 1]);
}

async fn a_release_counts_no_attempt(client: &Client) {
    client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    let json = client
        .ok("/v1/queue/release", json!({"receipt": receipt}))
        .await;
    assert_eq!(
        (&json["result"], &json["late"]),
        (&json!("released"), &json!(false))
    );
    assert_eq!(client.receive("q").await["attempt"], 1);
}

async fn an_extend_moves_the_end_and_is_cut_to_a_day(client: &Client) {
    client.publish("q", json!(1)).await;
    let message = client.receive("q").await;
    let receipt = &message["receipt"];
    let extend = async |seconds: f64| {
        let body = json!({"receipt": receipt, "visibility_timeout_seconds": seconds});
        client.ok("/v1/queue/extend", body).await
    };
    let json = extend(43_200.0).await;
    assert!(json["lease_expires_at"].as_str() > message["lease_expires_at"].as_str());
    assert!(json.get("capped").is_none());
    let json = extend(5.5).await;
    assert!(json["lease_expires_at"].as_str() < message["lease_expires_at"].as_str());
    client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
}

async fn a_superseded_ack_is_remembered(client: &Client) {
    client
        .queue("q", json!({"visibility_timeout_seconds": 1}))
        .await;
    client.publish("q", json!(1)).await;
    let first = client.receipt("q").await;
    let body = json!({"queue": "q", "wait_seconds": 5, "visibility_timeout_seconds": 60});
    let second = client.ok("/v1/queue/receive", body).await["messages"][0]["receipt"].clone();
    let json = client
        .refused(
            "POST",
            "/v1/queue/ack",
            json!({"receipt": first}),
            409,
            "lease_superseded",
        )
        .await;
    assert_eq!(json["effect"], "completion_remembered");
    let json = client
        .refused(
            "POST",
            "/v1/queue/nack",
            json!({"receipt": first}),
            409,
            "lease_superseded",
        )
        .await;
    assert_eq!(json["effect"], "none");
    let body = json!({"receipt": second, "visibility_timeout_seconds": 60});
    assert_eq!(
        client.ok("/v1/queue/extend", body).await["superseded_completion"],
        true
    );
    let json = client
        .ok("/v1/queue/nack", json!({"receipt": second}))
        .await;
    assert_eq!(json["result"], "acked_superseded");
    assert_eq!(client.counts("q").await, [0; 4]);
}

async fn many_settlements_are_answered_each_by_itself(client: &Client) {
    for n in 0..4 {
        client.publish("q", json!(n)).await;
    }
    let got = client
        .ok(
            "/v1/queue/receive",
            json!({"queue": "q", "max_messages": 4}),
        )
        .await;
    let receipt = |n: usize| got["messages"][n]["receipt"].clone();
    let json = client
        .ok(
            "/v1/queue/settle",
            json!({"settlements": [
                {"receipt": receipt(0), "action": "ack"},
                {"receipt": receipt(0), "action": "ack"},
                {"receipt": receipt(0), "action": "nack"},
                {"receipt": receipt(1), "action": "nack", "delay_seconds": 60},
                {"receipt": "forged", "action": "ack"},
                {"receipt": receipt(2), "action": "extend", "visibility_timeout_seconds": 5},
                {"receipt": receipt(3), "action": "release", "outcome": 1},
                {"receipt": receipt(3), "action": "release"},
                "x",
            ]}),
        )
        .await;
    let results = json["results"].as_array().unwrap();
    let statuses: Vec<u64> = results
        .iter()
        .map(|r| r["status"].as_u64().unwrap())
        .collect();
    assert_eq!(
        statuses,
        [200, 200, 409, 200, 422, 200, 422, 200, 422],
        "{json}"
    );
    let said: Vec<&Value> = results
        .iter()
        .map(|r| {
            if r["result"].is_null() {
                &r["error"]["code"]
            } else {
                &r["result"]
            }
        })
        .collect();
    assert_eq!(
        said,
        [
            "acked",
            "already_settled",
            "receipt_spent",
            "retry_scheduled",
            "invalid_receipt",
            "extended",
            "unknown_field",
            "released",
            "expected_object"
        ]
    );
    assert_eq!(
        results[4]["error"]["errors"][0]["pointer"],
        "/settlements/4/receipt"
    );
    assert_eq!(
        (&json["succeeded"], &json["failed"]),
        (&json!(5), &json!(4))
    );
    assert_eq!(client.counts("q").await, [1, 1, 1, 0]);
}

async fn the_receipts_of_a_deleted_queue_say_so(client: &Client) {
    client.publish("q", json!(1)).await;
    client.publish("q", json!(2)).await;
    let (first, second) = (client.receipt("q").await, client.receipt("q").await);
    client
        .refused(
            "DELETE",
            "/v1/queues/q",
            json!(null),
            409,
            "queue_not_empty",
        )
        .await;
    let (status, json) = client
        .call("DELETE", "/v1/queues/q?force=true", json!(null))
        .await;
    assert_eq!((status, &json["purged"]), (200, &json!(2)));
    let json = client.ok("/v1/queue/ack", json!({"receipt": first})).await;
    assert_eq!(
        (&json["result"], &json["end"]),
        (&json!("already_settled"), &json!("purged"))
    );
    client
        .refused(
            "POST",
            "/v1/queue/nack",
            json!({"receipt": second}),
            409,
            "message_gone",
        )
        .await;
}

on_every_store!(
    ack_is_final_and_safe_to_repeat,
    an_outcome_is_kept,
    a_nack_schedules_the_next_attempt_and_the_last_one_buries,
    a_release_counts_no_attempt,
    an_extend_moves_the_end_and_is_cut_to_a_day,
    a_superseded_ack_is_remembered,
    many_settlements_are_answered_each_by_itself,
    the_receipts_of_a_deleted_queue_say_so,
);

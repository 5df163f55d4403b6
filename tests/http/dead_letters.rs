//! Dead letters.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

async fn bury(client: &Client, message: Value, code: &str) -> String {
    let id = client.publish("q", message).await;
    let receipt = client.receipt("q").await;
    let body = json!({"receipt": receipt, "permanent": true, "error": {"code": code}});
    client.ok("/v1/queue/nack", body).await;
    id
}

async fn they_are_listed_oldest_first_with_what_is_known(client: &Client) {
    let first = bury(client, json!(1), "E1").await;
    let second = client.publish("q", json!(2)).await;
    client
        .ok(
            &format!("/v1/messages/{second}/dead-letter"),
            json!({"reason": "bad batch"}),
        )
        .await;
    let (_, json) = client.get("/v1/queues/q/dead-letters").await;
    let ids: Vec<&Value> = json["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["message_id"])
        .collect();
    assert_eq!(ids, [&json!(first), &json!(second)]);
    assert_eq!(json["messages"][0]["dead_letter"]["error_code"], "E1");
    let (_, json) = client
        .get("/v1/queues/q/dead-letters?reason=operator")
        .await;
    assert_eq!(json["messages"].as_array().unwrap().len(), 1);
    let path = "/v1/queues/q/dead-letters?reason=operater";
    client
        .refused("GET", path, Value::Null, 422, "invalid_value")
        .await;
}

async fn a_redrive_gives_another_round_once(client: &Client) {
    client.queue("q", json!({"max_redrives": 1})).await;
    let id = bury(client, json!(1), "E1").await;
    let path = format!("/v1/queues/q/dead-letters/{id}/redrive");
    let body = json!({"client_request_id": "d1"});
    let json = client.ok(&path, body.clone()).await;
    assert_eq!(json["state"], "ready");
    assert_eq!(client.ok(&path, body).await, json);
    client
        .refused("POST", &path, json!({}), 409, "not_dead")
        .await;
    let message = client.receive("q").await;
    assert_eq!(
        (&message["attempt"], &message["redrive_count"]),
        (&json!(1), &json!(1))
    );
    client
        .ok(
            "/v1/queue/nack",
            json!({"receipt": message["receipt"], "permanent": true}),
        )
        .await;
    client
        .refused("POST", &path, Value::Null, 409, "redrive_limit")
        .await;
    assert_eq!(
        client.ok(&path, json!({"force": true})).await["state"],
        "ready"
    );
    let other = format!("/v1/queues/other/dead-letters/{id}/redrive");
    client.queue("other", json!({})).await;
    client
        .refused("POST", &other, Value::Null, 404, "not_found")
        .await;
}

async fn a_discard_needs_a_reason_and_keeps_the_payload_for_a_while(client: &Client) {
    let id = bury(client, json!({"n": 1}), "E1").await;
    let path = format!("/v1/queues/q/dead-letters/{id}/discard");
    client
        .refused(
            "POST",
            &path,
            json!({"justification": "   "}),
            422,
            "reason_required",
        )
        .await;
    client
        .refused(
            "POST",
            &path,
            json!({"justification": "\u{0}aaaaaaaaaaa"}),
            422,
            "control_character",
        )
        .await;
    let body = json!({"justification": "refunded by hand,\nticket 7"});
    assert_eq!(client.ok(&path, body.clone()).await["state"], "ended");
    assert_eq!(client.counts("q").await, [0; 4]);
    let (_, json) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&json["end"], &json["message"]),
        (&json!("discarded"), &json!({"n": 1}))
    );
    client.refused("POST", &path, body, 404, "not_found").await;
}

async fn a_bounded_redrive_moves_the_oldest(client: &Client) {
    for n in 0..5 {
        bury(client, json!(n), "E1").await;
    }
    let path = "/v1/queues/q/redrives";
    client
        .refused("POST", path, json!({}), 422, "missing_field")
        .await;
    client
        .refused("POST", path, json!({"limit": 1001}), 422, "out_of_range")
        .await;
    let body = json!({"limit": 3, "client_request_id": "d1"});
    let json = client.ok(path, body.clone()).await;
    assert_eq!((&json["moved"], &json["remaining"]), (&json!(3), &json!(2)));
    assert_eq!(
        client.ok(path, body).await,
        json,
        "a repeat moves nothing more"
    );
    assert_eq!(client.counts("q").await, [0, 3, 0, 2]);
    client
        .refused(
            "POST",
            path,
            json!({"limit": 2, "client_request_id": "d1"}),
            422,
            "client_request_id_conflict",
        )
        .await;
}

async fn a_late_completion_is_kept_on_what_an_operator_took(client: &Client) {
    let id = client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    client
        .ok(
            &format!("/v1/messages/{id}/dead-letter"),
            json!({"reason": "stop"}),
        )
        .await;
    let json = client
        .refused(
            "POST",
            "/v1/queue/ack",
            json!({"receipt": receipt}),
            409,
            "taken_by_operator",
        )
        .await;
    assert_eq!(json["effect"], "completion_remembered");
    let path = format!("/v1/queues/q/dead-letters/{id}/redrive");
    client
        .refused("POST", &path, Value::Null, 409, "completion_remembered")
        .await;
    client.ok(&path, json!({"force": true})).await;
}

on_every_store!(
    they_are_listed_oldest_first_with_what_is_known,
    a_redrive_gives_another_round_once,
    a_discard_needs_a_reason_and_keeps_the_payload_for_a_while,
    a_bounded_redrive_moves_the_oldest,
    a_late_completion_is_kept_on_what_an_operator_took,
);

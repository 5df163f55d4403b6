//! Messages as resources.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};
use std::collections::HashSet;

async fn pages_cover_everything_once(client: &Client) {
    let entries: Vec<Value> = (0..25)
        .map(|n| json!({"message": n, "priority": n % 3}))
        .collect();
    client
        .ok(
            "/v1/queue/publish-batch",
            json!({"queue": "q", "messages": entries}),
        )
        .await;
    let (mut ids, mut order, mut token) = (HashSet::new(), Vec::new(), String::new());
    loop {
        let (status, json) = client
            .get(&format!("/v1/queues/q/messages?page_size=4{token}"))
            .await;
        assert_eq!(status, 200, "{json}");
        for message in json["messages"].as_array().unwrap() {
            assert!(ids.insert(message["message_id"].to_string()));
            assert!(message.get("message").is_none() && message["state"] == "ready");
            order.push(message["priority"].as_i64().unwrap());
        }
        let Some(next) = json["next_page_token"].as_str() else {
            break;
        };
        token = format!("&page_token={next}");
    }
    assert_eq!(ids.len(), 25);
    assert!(order.is_sorted_by(|a, b| a >= b));
    let foreign = format!("/v1/queues/q/messages?state=dead{token}");
    client
        .refused("GET", &foreign, Value::Null, 422, "invalid_page_token")
        .await;
}

async fn filters_find_by_key_and_request_id(client: &Client) {
    for n in 0..3 {
        let body = json!({"queue": "q", "message": n, "key": format!("k {n}"), "client_request_id": format!("r{n}")});
        client.ok("/v1/queue/publish", body).await;
    }
    for filter in ["key=k%201", "key=k+1", "client_request_id=r1"] {
        let (_, json) = client.get(&format!("/v1/queues/q/messages?{filter}")).await;
        assert_eq!(json["messages"].as_array().unwrap().len(), 1, "{filter}");
        assert_eq!(json["messages"][0]["client_request_id"], "r1");
    }
}

async fn a_message_tells_its_whole_life(client: &Client) {
    client
        .queue(
            "q",
            json!({"backoff": {"type": "fixed", "base_seconds": 0}}),
        )
        .await;
    let id = client.publish("q", json!({"n": 1})).await;
    let body = json!({"queue": "q", "worker": "w-1"});
    let receipt = client.ok("/v1/queue/receive", body).await["messages"][0]["receipt"].clone();
    client
        .ok(
            "/v1/queue/nack",
            json!({"receipt": receipt, "error": {"code": "E1"}}),
        )
        .await;
    let path = format!("/v1/messages/{id}");
    let (_, json) = client.get(&path).await;
    assert_eq!(
        (&json["message"], &json["headers"]),
        (&json!({"n": 1}), &json!({}))
    );
    let delivery = &json["history"][0];
    assert_eq!(
        (&delivery["cause"], &delivery["worker"]),
        (&json!("nack"), &json!("w-1"))
    );
    assert_eq!(
        (&json["deliveries"], &json["attempts"]),
        (&json!(1), &json!(1))
    );
    client
        .ok(&format!("{path}/dead-letter"), json!({"reason": "stop"}))
        .await;
    let (_, json) = client.get(&path).await;
    assert_eq!(json["dead_letter"]["reason"], "operator");
    let decision = &json["decisions"][0];
    assert_eq!(
        (&decision["action"], &decision["reason"]),
        (&json!("dead_letter"), &json!("stop"))
    );
    client
        .refused(
            "POST",
            &format!("{path}/dead-letter"),
            json!({"reason": "stop"}),
            409,
            "already_dead",
        )
        .await;
}

async fn a_cancelled_message_is_gone_for_good(client: &Client) {
    let id = client.publish("q", json!(1)).await;
    let path = format!("/v1/messages/{id}/cancel");
    for justification in [
        json!("too short"),
        json!("          "),
        json!("a b c d e f g h i"),
    ] {
        let body = json!({"justification": justification});
        client
            .refused("POST", &path, body, 422, "reason_required")
            .await;
    }
    client
        .refused("POST", &path, json!({}), 422, "reason_required")
        .await;
    let body = json!({"justification": "ordered twice by mistake", "client_request_id": "c1"});
    let json = client.ok(&path, body.clone()).await;
    assert_eq!(json["state"], "ended");
    assert_eq!(
        client.ok(&path, body).await,
        json,
        "a repeat gets the first answer"
    );
    let (_, json) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&json["state"], &json["end"]),
        (&json!("ended"), &json!("cancelled"))
    );
    assert_eq!(client.counts("q").await, [0; 4]);
    let id = client.publish("q", json!(2)).await;
    client.receive("q").await;
    let body = json!({"justification": "ordered twice by mistake"});
    client
        .refused(
            "POST",
            &format!("/v1/messages/{id}/cancel"),
            body,
            409,
            "not_waiting",
        )
        .await;
}

async fn a_promoted_message_is_ready_now(client: &Client) {
    let json = client
        .ok(
            "/v1/queue/publish",
            json!({"queue": "q", "message": 1, "delay_seconds": 3600}),
        )
        .await;
    let path = format!(
        "/v1/messages/{}/promote",
        json["message_id"].as_str().unwrap()
    );
    assert_eq!(client.ok(&path, Value::Null).await["state"], "ready");
    client
        .refused("POST", &path, json!({}), 409, "not_delayed")
        .await;
    assert_eq!(client.receive("q").await["message"], 1);
}

on_every_store!(
    pages_cover_everything_once,
    filters_find_by_key_and_request_id,
    a_message_tells_its_whole_life,
    a_cancelled_message_is_gone_for_good,
    a_promoted_message_is_ready_now,
);

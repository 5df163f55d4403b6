//! Dead letters that are left undone, and the way back.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

async fn bury(client: &Client, body: Value) -> String {
    let id = client.ok("/v1/queue/publish", body).await["message_id"].clone();
    client.nack_for_good("q", "E1", "declined").await;
    id.as_str().unwrap().to_owned()
}

fn path(id: &str, verb: &str) -> String {
    format!("/v1/queues/q/dead-letters/{id}/{verb}")
}

async fn a_discard_needs_a_code_and_a_reason(client: &Client) {
    let id = bury(client, json!({"queue": "q", "message": {"n": 1}})).await;
    let path = path(&id, "discard");
    for (body, code) in [
        (
            json!({"code": "duplicate", "justification": "   "}),
            "reason_required",
        ),
        (json!({"code": "duplicate"}), "reason_required"),
        (
            json!({"justification": "refunded by hand"}),
            "missing_field",
        ),
        (
            json!({"code": "lost", "justification": "refunded by hand"}),
            "invalid_value",
        ),
        (
            json!({"code": "duplicate", "justification": "\u{0}aaaaaaaaaaa"}),
            "control_character",
        ),
    ] {
        client.refused("POST", &path, body, 422, code).await;
    }
    let body = json!({"code": "not_applicable", "justification": "refunded by hand,\nticket 7"});
    assert_eq!(client.ok(&path, body.clone()).await["state"], "ended");
    assert_eq!(client.counts("q").await, [0; 4]);
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&detail["end"], &detail["message"]),
        (&json!("discarded"), &json!({"n": 1}))
    );
    let discarded = &detail["discarded"];
    assert_eq!(
        (&discarded["code"], &discarded["justification"]),
        (
            &json!("not_applicable"),
            &json!("refunded by hand,\nticket 7")
        )
    );
    assert!(discarded["actor"].is_string());
    assert!(discarded["undo_until"].as_str() > discarded["at"].as_str());
    client.refused("POST", &path, body, 404, "not_found").await;
}

async fn a_discard_can_be_taken_back(client: &Client) {
    let id = bury(client, json!({"queue": "q", "message": 1})).await;
    let reopen = path(&id, "reopen");
    let body = json!({"reason": "the refund bounced", "client_request_id": "r1"});
    client
        .refused("POST", &reopen, body.clone(), 409, "not_discarded")
        .await;
    let discard = json!({"code": "written_off", "justification": "customer is gone"});
    client.ok(&path(&id, "discard"), discard).await;
    client
        .refused("POST", &reopen, json!({}), 422, "reason_required")
        .await;
    let json = client.ok(&reopen, body.clone()).await;
    assert_eq!(json, json!({"message_id": id, "state": "dead"}));
    assert_eq!(
        client.ok(&reopen, body).await,
        json,
        "a repeat gets the first answer"
    );
    assert_eq!(client.counts("q").await, [0, 0, 0, 1]);
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert!(detail.get("discarded").is_none());
    let actions: Vec<&Value> = detail["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| &d["action"])
        .collect();
    assert_eq!(actions, [&json!("discard"), &json!("reopen")]);
    client.ok(&path(&id, "redrive"), Value::Null).await;
    assert_eq!(client.receive("q").await["message"], 1);
}

async fn what_is_not_there_cannot_be_reopened(client: &Client) {
    client.queue("q", json!({})).await;
    let body = json!({"reason": "why not"});
    let absent = path("msg_0000000000001", "reopen");
    client
        .refused("POST", &absent, body.clone(), 404, "not_found")
        .await;
    let elsewhere = "/v1/queues/none/dead-letters/msg_0000000000001/reopen";
    client
        .refused("POST", elsewhere, body, 404, "queue_not_found")
        .await;
}

async fn a_key_that_another_message_has_by_now_is_not_taken_away(client: &Client) {
    // Keys are forgotten at once when they need not be unique: it is switched on between the two messages.
    client.queue("q", json!({})).await;
    let id = bury(client, json!({"queue": "q", "message": 1, "key": "k"})).await;
    let discard = json!({"code": "superseded", "justification": "sent again by hand"});
    client.ok(&path(&id, "discard"), discard).await;
    let body = json!({"queue": "q", "message": 2, "key": "k"});
    client.ok("/v1/queue/publish", body).await;
    client.queue("q", json!({"unique_key": true})).await;
    let body = json!({"reason": "it was not sent"});
    client
        .refused("POST", &path(&id, "reopen"), body, 409, "key_taken")
        .await;
}

on_every_store!(
    a_discard_needs_a_code_and_a_reason,
    a_discard_can_be_taken_back,
    what_is_not_there_cannot_be_reopened,
    a_key_that_another_message_has_by_now_is_not_taken_away,
);

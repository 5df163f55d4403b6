//! What operators make of a dead letter, and the way back.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

const LIST: &str = "/v1/queues/q/dead-letters";

/// A dead letter with this JSON text.
async fn buried(client: &Client, message: &str) -> String {
    let body = format!(
        r#"{{"queue":"q","message":{message},"key":"k-1","client_request_id":"r-1","headers":{{"trace":"t1"}}}}"#
    );
    let answer = client.raw("POST", "/v1/queue/publish", body).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    // No parser for values reads every message of these cases.
    let taken = client
        .raw("POST", "/v1/queue/receive", r#"{"queue":"q"}"#)
        .await
        .text();
    let (_, rest) = taken.split_once("\"receipt\":\"").unwrap();
    let (receipt, _) = rest.split_once('"').unwrap();
    let nack = json!({"receipt": receipt, "permanent": true, "error": {"code": "E1"}});
    client.ok("/v1/queue/nack", nack).await;
    answer.json()["message_id"].as_str().unwrap().to_owned()
}

async fn patch(client: &Client, id: &str, body: Value) -> Value {
    let (status, json) = client.call("PATCH", &format!("{LIST}/{id}"), body).await;
    assert_eq!(status, 200, "{json}");
    json
}

async fn refused(client: &Client, id: &str, body: Value, status: u16, code: &str) -> Value {
    let path = format!("{LIST}/{id}");
    client.refused("PATCH", &path, body, status, code).await
}

/// The message as text.
async fn text(client: &Client, id: &str) -> String {
    let answer = client
        .send("GET", &format!("/v1/messages/{id}"), "", b"")
        .await;
    let text = answer.text();
    let at = text.find("\"message\":").unwrap() + "\"message\":".len();
    let end = text.find(",\"history\":").unwrap();
    text[at..end].to_owned()
}

async fn a_merge_patch_changes_what_it_names_and_nothing_else(client: &Client) {
    let before = r#"{"amount":"12,50","big":1e400,"n":12345678901234567890.10,"s":"\ud800","twice":{"a":1,"a":2},"deep":{"x":1.50,"y":0}}"#;
    let id = buried(client, before).await;
    let body = json!({"merge_patch": {"amount": "12.50", "deep": {"y": null, "z": []}}, "reason": "amount had a comma"});
    let json = patch(client, &id, body).await;
    assert_eq!(
        json,
        json!({"message_id": id, "state": "dead", "revision": 1, "edited": true})
    );
    let after = r#"{"amount":"12.50","big":1e400,"n":12345678901234567890.10,"s":"\ud800","twice":{"a":1,"a":2},"deep":{"x":1.50,"z":[]}}"#;
    assert_eq!(text(client, &id).await, after);

    client
        .ok(&format!("{LIST}/{id}/redrive"), Value::Null)
        .await;
    let answer = client
        .raw("POST", "/v1/queue/receive", r#"{"queue":"q"}"#)
        .await;
    assert!(answer.text().contains(after), "{}", answer.text());
    // What a repeated publish is compared with stays as it was published.
    let again = format!(
        r#"{{"queue":"q","message":{before},"key":"k-1","client_request_id":"r-1","headers":{{"trace":"t1"}}}}"#
    );
    let answer = client.raw("POST", "/v1/queue/publish", again).await;
    assert_eq!(
        (answer.status, &answer.json()["message_id"]),
        (200, &json!(id))
    );
}

async fn every_change_is_a_revision_with_its_difference(client: &Client) {
    let id = buried(client, r#"{"a":1,"b":[1,2]}"#).await;
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&detail["revision"], &detail["revisions"]),
        (&json!(0), &json!([]))
    );
    let body = json!({"merge_patch": {"a": 2}, "headers": {"trace": "t2", "new": ""}, "reason": "wrong a"});
    patch(client, &id, body).await;
    let body = json!({"message": "all new", "reason": "wrong all"});
    patch(client, &id, body).await;
    patch(
        client,
        &id,
        json!({"headers": null, "reason": "no headers"}),
    )
    .await;
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&detail["revision"], &detail["message"], &detail["headers"]),
        (&json!(3), &json!("all new"), &json!({}))
    );
    assert_eq!(detail["dead_letter"]["edited"], true);
    let revisions = detail["revisions"].as_array().unwrap();
    let numbers: Vec<&Value> = revisions.iter().map(|r| &r["revision"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(2), &json!(3)]);
    assert_eq!(
        revisions[0]["diff"],
        json!([{"op": "replace", "path": "/a", "value": 2}])
    );
    assert_eq!(
        revisions[0]["headers_diff"],
        json!([{"op": "add", "path": "/new", "value": ""}, {"op": "replace", "path": "/trace", "value": "t2"}])
    );
    assert_eq!(revisions[0]["reason"], "wrong a");
    assert!(revisions[0]["actor"].is_string());
    assert_eq!(
        revisions[1]["diff"],
        json!([{"op": "replace", "path": "", "value": "all new"}])
    );
    assert_eq!(
        (&revisions[1]["headers_diff"], &revisions[2]["diff"]),
        (&json!([]), &json!([]))
    );
    // The audit row holds no payload.
    let decision = &detail["decisions"][0];
    assert_eq!(
        (&decision["action"], &decision["after"]["revision"]),
        (&json!("edit"), &json!(1))
    );
    assert!(decision["after"]["sha256"].is_string() && decision["request_id"].is_string());
}

async fn an_undo_goes_back_to_what_it_died_with(client: &Client) {
    let id = buried(client, r#"{ "a" : 1 }"#).await;
    let undo = format!("{LIST}/{id}/undo-edit");
    client
        .refused("POST", &undo, Value::Null, 409, "not_edited")
        .await;
    patch(
        client,
        &id,
        json!({"merge_patch": {"a": 2}, "headers": null, "reason": "x"}),
    )
    .await;
    patch(client, &id, json!({"merge_patch": {"a": 3}, "reason": "x"})).await;
    let body = json!({"reason": "it was right", "client_request_id": "u1"});
    let json = client.ok(&undo, body.clone()).await;
    assert_eq!(
        json,
        json!({"message_id": id, "state": "dead", "revision": 3, "edited": false})
    );
    assert_eq!(client.ok(&undo, body).await, json);
    assert_eq!(text(client, &id).await, r#"{ "a" : 1 }"#);
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&detail["headers"], &detail["revisions"][2]["undone"]),
        (&json!({"trace": "t1"}), &json!(true))
    );
    client
        .refused("POST", &undo, Value::Null, 409, "not_edited")
        .await;
}

async fn what_a_patch_would_damage_is_refused(client: &Client) {
    let id = buried(client, r#"{"o":{"a":1,"a":2},"l":"x","\ud800":1}"#).await;
    for (body, code) in [
        (json!({"merge_patch": {"l": "y"}}), "not_patchable"),
        (json!({"merge_patch": {"o": {"b": 1}}}), "not_patchable"),
    ] {
        let mut body = body;
        body["reason"] = json!("a try");
        let json = refused(client, &id, body, 422, code).await;
        assert_eq!(json["errors"][0]["pointer"], "/merge_patch");
    }
    assert_eq!(
        text(client, &id).await,
        r#"{"o":{"a":1,"a":2},"l":"x","\ud800":1}"#
    );
    // What is no object is replaced by one, as RFC 7396 says.
    patch(client, &id, json!({"message": [1], "reason": "x"})).await;
    patch(
        client,
        &id,
        json!({"merge_patch": {"a": {"b": null}}, "reason": "x"}),
    )
    .await;
    assert_eq!(text(client, &id).await, r#"{"a":{}}"#);
}

async fn the_result_is_checked_as_a_publish_is(client: &Client) {
    client.queue("q", json!({"max_message_bytes": 100})).await;
    let id = buried(client, r#"{"a":1}"#).await;
    let long = "x".repeat(95);
    for (body, pointer) in [
        (json!({"message": long, "reason": "x"}), "/message"),
        (
            json!({"merge_patch": {"b": long}, "reason": "x"}),
            "/merge_patch",
        ),
        (json!({"headers": {"h": long}, "reason": "x"}), "/headers"),
    ] {
        let json = refused(client, &id, body, 413, "payload_too_large").await;
        assert_eq!(json["errors"][0]["pointer"], pointer);
    }
    client.queue("q", json!({})).await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let path = format!("{LIST}/{id}");
    let send = async |patch: String| {
        let body = format!(r#"{{"merge_patch":{patch},"reason":"x"}}"#);
        client.raw("PATCH", &path, body).await
    };
    let answer = send(format!(r#"{{"a":{}}}"#, deep(128))).await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (400, &json!("nesting_too_deep"))
    );
    let answer = send(format!(r#"{{"a":{}}}"#, deep(127))).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (headers, code) in [
        (json!({"h": 1}), "wrong_type"),
        (json!({"": "x"}), "out_of_range"),
        (json!({"h": "a\u{1}"}), "control_character"),
    ] {
        let body = json!({"headers": headers, "reason": "x"});
        refused(client, &id, body, 422, code).await;
    }
}

async fn a_repeat_gets_the_first_answer_whatever_became_of_it(client: &Client) {
    let id = buried(client, r#"{"a":1}"#).await;
    let body = json!({"merge_patch": {"a": 2}, "reason": "x", "client_request_id": "e1"});
    let first = patch(client, &id, body.clone()).await;
    patch(client, &id, json!({"message": {"a": 7}, "reason": "x"})).await;
    assert_eq!(patch(client, &id, body.clone()).await, first);
    assert_eq!(text(client, &id).await, r#"{"a":7}"#, "nothing was done");
    // Not to be patched any more.
    let answer = client
        .raw(
            "PATCH",
            &format!("{LIST}/{id}"),
            r#"{"message":{"a":1,"a":2},"reason":"x"}"#,
        )
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(patch(client, &id, body.clone()).await, first);
    client
        .ok(&format!("{LIST}/{id}/redrive"), Value::Null)
        .await;
    assert_eq!(patch(client, &id, body.clone()).await, first);
    let receipt = client.receipt("q").await;
    client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
    assert_eq!(patch(client, &id, body).await, first);
    let other = json!({"merge_patch": {"a": 3}, "reason": "x", "client_request_id": "e1"});
    refused(client, &id, other, 422, "client_request_id_conflict").await;
    let new = json!({"merge_patch": {"a": 3}, "reason": "x", "client_request_id": "e2"});
    let (status, _) = client.call("PATCH", &format!("{LIST}/{id}"), new).await;
    assert_eq!(status, 404);
}

async fn patches_of_one_moment_are_all_there(client: &Client) {
    let id = buried(client, r#"{"a":0,"b":0,"c":0}"#).await;
    let change = |name: &str| json!({"merge_patch": {name: 1}, "reason": "x"});
    tokio::join!(
        patch(client, &id, change("a")),
        patch(client, &id, change("b")),
        patch(client, &id, change("c")),
    );
    assert_eq!(text(client, &id).await, r#"{"a":1,"b":1,"c":1}"#);
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(detail["revision"], 3);
}

async fn only_a_dead_letter_can_be_changed_and_not_for_ever(client: &Client) {
    let live = client.publish("q", json!(1)).await;
    let body = json!({"message": 2, "reason": "x"});
    refused(client, &live, body.clone(), 409, "not_dead").await;
    refused(client, "msg_0000000000001", body.clone(), 404, "not_found").await;
    client.queue("other", json!({})).await;
    client.nack_for_good("q", "E1", "").await;
    let elsewhere = format!("/v1/queues/other/dead-letters/{live}");
    client
        .refused("PATCH", &elsewhere, body.clone(), 404, "not_found")
        .await;
    for number in 0..20 {
        patch(client, &live, json!({"message": [number], "reason": "x"})).await;
    }
    refused(client, &live, body, 409, "revision_limit").await;
}

on_every_store!(
    a_merge_patch_changes_what_it_names_and_nothing_else,
    every_change_is_a_revision_with_its_difference,
    an_undo_goes_back_to_what_it_died_with,
    what_a_patch_would_damage_is_refused,
    the_result_is_checked_as_a_publish_is,
    a_repeat_gets_the_first_answer_whatever_became_of_it,
    patches_of_one_moment_are_all_there,
    only_a_dead_letter_can_be_changed_and_not_for_ever,
);

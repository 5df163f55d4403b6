//! Repeats of one call at the same moment: one effect, and the first answer for each of them.

use crate::client::{Client, on_every_store};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// Sends the same call so many times at once.
async fn at_once(client: &Client, path: &str, body: &Value) {
    let calls = (0..12).map(|_| client.post(path, body.clone()));
    let answers = join_all(calls).await;
    assert_eq!(answers[0].0, 200, "{path}: {}", answers[0].1);
    for answer in &answers {
        assert_eq!(answer, &answers[0], "{path}");
    }
}

async fn repeats_of_one_moment_answer_alike(client: &Client) {
    client.queue("q", json!({})).await;
    let id = client.publish("q", json!(1)).await;
    let message = format!("/v1/messages/{id}");
    let dead = format!("/v1/queues/q/dead-letters/{id}");
    let call = |request: &str, more: Value| {
        let mut body = json!({"client_request_id": request});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let reason = json!({"reason": "poison"});
    at_once(
        client,
        &format!("{message}/dead-letter"),
        &call("a", reason),
    )
    .await;
    let discard = json!({"code": "duplicate", "justification": "done by another one"});
    at_once(client, &format!("{dead}/discard"), &call("b", discard)).await;
    let reopen = json!({"reason": "by mistake"});
    at_once(client, &format!("{dead}/reopen"), &call("c", reopen)).await;
    at_once(client, &format!("{dead}/redrive"), &call("d", json!({}))).await;
    let cancel = json!({"justification": "not wanted any more"});
    at_once(client, &format!("{message}/cancel"), &call("e", cancel)).await;
    let (_, trail) = client.get(&format!("/v1/audit?message_id={id}")).await;
    let rows = trail["entries"].as_array().unwrap().len();
    assert_eq!(rows, 5, "{trail}");
}

on_every_store!(repeats_of_one_moment_answer_alike);

//! Repeats, and what only looks like one.

use quita_tests::served::{Client, checked};
use quita_tests::served_on_every_store;
use quita_tests::server::json_headers;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const PUBLISH: &str = "/v1/queue/publish";

async fn published(client: &Client, queue: &str, id: &str) -> (u16, String) {
    let body = json!({"queue": queue, "message": {"id": id}, "client_request_id": id});
    let (status, answer) = client.post(PUBLISH, body).await;
    let message = answer["message_id"].as_str().unwrap_or_default().to_owned();
    (status, message)
}

/// B006, B007: ids are compared whole and byte by byte, in their queue.
async fn ids_that_look_alike_are_different(client: &Client) {
    let long = "x".repeat(127);
    let pairs = [
        ("q", "a"),
        ("q", "A"),
        ("q", " a"),
        ("q", "a "),
        ("q", "á"),
        ("q", "a\u{301}"),
        ("q", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("q", "7c9e6679-7425-40de-944b-e07fc1f90ae8"),
        ("q", &*format!("{long}1")),
        ("q", &*format!("{long}2")),
        // What a careless join of queue and id would mix up.
        ("q", "a.b"),
        ("q.a", "b"),
        ("q", "aa"),
        ("qa", "a"),
    ];
    let mut messages = BTreeMap::new();
    for (queue, id) in pairs {
        let (status, message) = published(client, queue, id).await;
        assert_eq!(status, 201, "{queue} {id}");
        assert_eq!(messages.insert(message, (queue, id)), None);
    }
    for (message, (queue, id)) in &messages {
        let again = published(client, queue, id).await;
        assert_eq!((again.0, &again.1), (200, message), "{queue} {id}");
    }
    let (status, _) = published(client, "q", &format!("{long}12")).await;
    assert_eq!(status, 422, "an id that is too long is not cut");
    assert_eq!(client.counts("q").await[1], 12);
}

/// B006: an id is read from its own field and its own header, and from no other whose name ends or begins so.
async fn fields_that_look_alike_are_not_read(client: &Client) {
    for name in [
        "orig_client_request_id",
        "client_request_ids",
        "Client_Request_Id",
    ] {
        let body = json!({"queue": "q", "message": 1, name: "x"});
        client
            .refused("POST", PUBLISH, body, 422, "unknown_field")
            .await;
    }
    let mut messages = BTreeSet::new();
    for header in [
        "X-Idempotency-Key",
        "Idempotency-Key-2",
        "Orig-Idempotency-Key",
    ] {
        let headers = format!("content-type: application/json\r\n{header}: x\r\n");
        let body = br#"{"queue":"q","message":1}"#;
        let (status, answer) = checked(&client.send("POST", PUBLISH, &headers, body).await);
        assert_eq!((status, &answer["deduplicated"]), (201, &json!(false)));
        messages.insert(answer["message_id"].to_string());
    }
    assert_eq!(messages.len(), 3);
}

/// B050: a batch knows what was published before it, and its own earlier entries.
async fn a_batch_repeats_what_came_before_and_itself(client: &Client) {
    let (_, first) = published(client, "q", "x").await;
    let entry = |id: &str| json!({"message": {"id": id}, "client_request_id": id});
    let batch = json!({"queue": "q", "messages": [entry("x"), entry("y"), entry("y"), entry("z")]});
    let answer = client.ok("/v1/queue/publish-batch", batch).await;
    let results = answer["results"].as_array().unwrap();
    let statuses: Vec<u64> = results
        .iter()
        .map(|r| r["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [200, 201, 200, 201], "{answer}");
    assert_eq!(results[0]["message_id"], first);
    assert_eq!(results[1]["message_id"], results[2]["message_id"]);
    assert_eq!(client.counts("q").await[1], 3);
}

/// B076: each result belongs to the entry of its index, also where new entries and repeats are mixed.
async fn each_result_names_its_own_message(client: &Client) {
    let entry = |n: usize| json!({"message": n, "client_request_id": format!("id-{n}")});
    let some: Vec<Value> = (0..500).rev().step_by(10).map(entry).collect();
    client
        .ok(
            "/v1/queue/publish-batch",
            json!({"queue": "q", "messages": some}),
        )
        .await;
    let all: Vec<Value> = (0..500).map(|n| entry(n * 7 % 500)).collect();
    let answer = client
        .ok(
            "/v1/queue/publish-batch",
            json!({"queue": "q", "messages": all}),
        )
        .await;
    assert_eq!(
        (&answer["created"], &answer["duplicates"]),
        (&json!(450), &json!(50))
    );
    let mut ids = BTreeMap::new();
    while ids.len() < 500 {
        let receive = json!({"queue": "q", "max_messages": 100, "visibility_timeout_seconds": 600});
        for message in client.ok("/v1/queue/receive", receive).await["messages"]
            .as_array()
            .unwrap()
        {
            let number = message["message"].as_u64().unwrap();
            ids.insert(message["message_id"].as_str().unwrap().to_owned(), number);
        }
    }
    for (index, result) in answer["results"].as_array().unwrap().iter().enumerate() {
        assert_eq!(result["index"], index);
        let number = ids[result["message_id"].as_str().unwrap()];
        assert_eq!(number, index as u64 * 7 % 500);
    }
}

/// B104, B105: a publish whose client hangs up is there or is not, and the repeat settles which.
async fn a_publish_that_was_hung_up_on_is_there_once(client: &Client) {
    const COUNT: u64 = 200;
    client.queue("q", json!({})).await;
    let headers = json_headers(&client.server.key);
    let body = |n: u64| json!({"queue": "q", "message": {"id": n.to_string()}, "client_request_id": n.to_string()});
    let hang_up = async |n: u64| {
        let mut wire = client.server.wire().await;
        wire.request("POST", PUBLISH, &headers, &body(n).to_string())
            .await;
        // At another moment each time: before it is read, while it waits for the commit, after the answer.
        tokio::time::sleep(Duration::from_micros(n * 7_919 % 4_000)).await;
        if n.is_multiple_of(2) {
            wire.reset();
        } else {
            drop(wire);
        }
    };
    futures_util::future::join_all((0..COUNT).map(hang_up)).await;
    let (mut messages, mut created) = (BTreeSet::new(), 0);
    for n in 0..COUNT {
        let answer = client.ok(PUBLISH, body(n)).await;
        assert!(messages.insert(answer["message_id"].to_string()));
        created += u64::from(answer["deduplicated"] == json!(false));
    }
    assert_eq!(client.counts("q").await, [0, COUNT as i64, 0, 0]);
    println!("{created} of {COUNT} had not been stored");
}

served_on_every_store!(
    ids_that_look_alike_are_different,
    fields_that_look_alike_are_not_read,
    a_batch_repeats_what_came_before_and_itself,
    each_result_names_its_own_message,
    a_publish_that_was_hung_up_on_is_there_once,
);

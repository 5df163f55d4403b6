//! Publish, one and many.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

const PUBLISH: &str = "/v1/queue/publish";
const BATCH: &str = "/v1/queue/publish-batch";

async fn a_message_comes_back_byte_for_byte(client: &Client) {
    for (index, message) in [
        r#"{"b":1,"a":1e999,"a":"\ud800\u0000"}"#,
        "\"\u{e4}\u{1f600}\\u0000\"",
        "-0.0e-5",
        "null",
        r#"[ {"x" : [ ] } ]"#,
        &format!("{}{}", "[".repeat(128), "]".repeat(128)),
        &"9".repeat(100_000),
    ]
    .iter()
    .enumerate()
    {
        let queue = format!("q{index}");
        let body = format!("{{\"queue\":\"{queue}\",\"message\":  {message} }}");
        let answer = client.raw("POST", PUBLISH, body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let ask = format!("{{\"queue\":\"{queue}\"}}");
        let received = client.raw("POST", "/v1/queue/receive", ask).await.text();
        let expected = format!("\"message\":{message},\"attempt\":1");
        assert!(received.contains(&expected), "{received}");
        let (_, listed) = client
            .get(&format!("/v1/queues/{queue}/messages?state=leased"))
            .await;
        assert_eq!(listed["messages"][0]["size_bytes"], message.len());
        let id = listed["messages"][0]["message_id"].as_str().unwrap();
        let path = format!("/v1/messages/{id}");
        let read = client.send("GET", &path, "", b"").await.text();
        assert!(read.contains(&format!("\"message\":{message},")), "{read}");
    }
}

async fn everything_about_a_message_arrives(client: &Client) {
    let (status, published) = client
        .post(
            PUBLISH,
            json!({"queue": "orders", "message": {"n": 1}, "client_request_id": "r-\u{0}\"ä", "key": "k1", "priority": 9,
                "headers": {"b": "2", "a": "1\u{e4}"}, "expires_in_seconds": 60, "max_attempts": 7}),
        )
        .await;
    assert_eq!(status, 201);
    assert_eq!(published["deduplicated"], false);
    assert_eq!(published["state"], "ready");
    assert_eq!(published["queue"], "orders");
    let message = client.receive("orders").await;
    assert_eq!(message["message_id"], published["message_id"]);
    assert_eq!(message["message"], json!({"n": 1}));
    assert_eq!(message["client_request_id"], "r-\u{0}\"ä");
    assert_eq!(message["key"], "k1");
    assert_eq!(message["headers"], json!({"a": "1ä", "b": "2"}));
    assert_eq!(
        (&message["priority"], &message["attempt"]),
        (&json!(9), &json!(1))
    );
    assert_eq!(
        (&message["max_attempts"], &message["lease_seconds"]),
        (&json!(7), &json!(30))
    );
    assert_eq!(message["redrive_count"], 0);
    assert_eq!(message["published_at"], published["published_at"]);
    assert!(message["published_at"].as_str().unwrap().ends_with('Z'));
}

async fn a_repeat_is_answered_with_the_first_message(client: &Client) {
    let body = json!({"queue": "q", "message": {"a": [1, 2]}, "client_request_id": "r", "headers": {"x": "1"}});
    let first = client.ok(PUBLISH, body).await;
    // White space, order of headers, delay and priority make no difference.
    let again = "{\"queue\":\"q\",\"client_request_id\":\"r\",\"message\":{ \"a\" : [1, 2] },\"headers\":{\"x\":\"1\"},\"delay_seconds\":5,\"priority\":1}";
    let answer = client.raw("POST", PUBLISH, again).await;
    let json: Value = answer.json();
    assert_eq!((answer.status, &json["deduplicated"]), (200, &json!(true)));
    assert_eq!(json["message_id"], first["message_id"]);
    assert_eq!(
        (&json["duplicate_of"], &json["same_body"]),
        (&json!("client_request_id"), &json!(true))
    );
    for other in [
        json!({"queue": "q", "message": {"a": [1, 3]}, "client_request_id": "r", "headers": {"x": "1"}}),
        json!({"queue": "q", "message": {"a": [1, 2]}, "client_request_id": "r", "headers": {"x": "2"}}),
        json!({"queue": "q", "message": {"a": [1, 2]}, "client_request_id": "r", "key": "k", "headers": {"x": "1"}}),
    ] {
        client
            .refused("POST", PUBLISH, other, 422, "client_request_id_conflict")
            .await;
    }
    let receipt = client.receipt("q").await;
    client
        .ok(
            "/v1/queue/ack",
            json!({"receipt": receipt, "outcome": {"done": true}}),
        )
        .await;
    let json = client
        .ok(PUBLISH, serde_json::from_str(again).unwrap())
        .await;
    assert_eq!(
        (&json["state"], &json["end"]),
        (&json!("ended"), &json!("acked"))
    );
    assert_eq!(client.counts("q").await, [0; 4]);
}

async fn sixty_four_at_once_make_one_message(client: &Client) {
    let body = json!({"queue": "race", "message": 1, "client_request_id": "same"});
    let calls = (0..64).map(|_| client.post(PUBLISH, body.clone()));
    let answers = futures_util::future::join_all(calls).await;
    let created = answers.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(created, 1);
    assert!(answers.iter().all(|(status, json)| {
        (*status == 201 || *status == 200) && json["message_id"] == answers[0].1["message_id"]
    }));
    assert_eq!(client.counts("race").await, [0, 1, 0, 0]);
}

async fn the_header_is_another_way_to_give_the_id(client: &Client) {
    let send = async |header: &str, body: &str| {
        let headers = format!("content-type: application/json\r\nidempotency-key: {header}\r\n");
        let answer = client
            .send("POST", PUBLISH, &headers, body.as_bytes())
            .await;
        crate::client::checked(&answer)
    };
    let plain = r#"{"queue":"q","message":1}"#;
    assert_eq!(send("h-1", plain).await.0, 201);
    assert_eq!(send("h-1", plain).await.0, 200);
    let both = r#"{"queue":"q","message":1,"client_request_id":"h-1"}"#;
    assert_eq!(send("h-1", both).await.0, 200);
    let (status, json) = send("h-2", both).await;
    assert_eq!((status, &json["code"]), (422, &json!("mutually_exclusive")));
    let (status, json) = send(&"x".repeat(129), plain).await;
    assert_eq!((status, &json["code"]), (422, &json!("out_of_range")));
}

async fn a_key_is_taken_from_the_message(client: &Client) {
    client.queue("unique", json!({"unique_key": true})).await;
    let message = json!({"idempotency_key": "cob-1", "amount": 10});
    let first = client
        .ok(PUBLISH, json!({"queue": "unique", "message": message}))
        .await;
    let (status, json) = client
        .post(
            PUBLISH,
            json!({"queue": "unique", "key": "cob-1", "message": 2}),
        )
        .await;
    assert_eq!((status, &json["duplicate_of"]), (200, &json!("key")));
    assert_eq!(
        (&json["same_body"], &json["message_id"]),
        (&json!(false), &first["message_id"])
    );
    for message in [
        json!({"idempotency_key": 1}),
        json!({"idempotency_key": "x".repeat(257)}),
        json!([]),
    ] {
        let body = json!({"queue": "unique", "message": message});
        client
            .refused("POST", PUBLISH, body, 422, "key_required")
            .await;
    }
}

async fn limits_are_what_the_contract_says(client: &Client) {
    let publish = async |queue: &str, size: usize| {
        let message = "x".repeat(size - 2);
        let body = format!("{{\"queue\":\"{queue}\",\"message\":\"{message}\"}}");
        crate::client::checked(&client.raw("POST", PUBLISH, body).await)
    };
    assert_eq!(publish("q", 262_144).await.0, 201);
    let (status, json) = publish("q", 262_145).await;
    assert_eq!((status, &json["code"]), (413, &json!("payload_too_large")));
    assert!(json["detail"].as_str().unwrap().contains("262144"));
    client
        .queue("small", json!({"max_message_bytes": 10, "max_depth": 1}))
        .await;
    assert_eq!(publish("small", 11).await.0, 413);
    assert_eq!(publish("small", 10).await.0, 201);
    let (status, json) = publish("small", 9).await;
    assert_eq!(
        (status, &json["code"], &json["retryable"]),
        (429, &json!("queue_full"), &json!(true))
    );
}

async fn a_delay_makes_it_wait(client: &Client) {
    let json = client
        .ok(
            PUBLISH,
            json!({"queue": "q", "message": 1, "delay_seconds": 60.5}),
        )
        .await;
    assert_eq!(json["state"], "delayed");
    assert_eq!(client.counts("q").await, [1, 0, 0, 0]);
    let body = json!({"queue": "q", "message": 1, "delay_seconds": 60, "expires_in_seconds": 60});
    client
        .refused("POST", PUBLISH, body, 422, "out_of_range")
        .await;
}

async fn a_batch_answers_each_entry(client: &Client) {
    let json = client
        .ok(
            BATCH,
            json!({"queue": "q", "messages": [
                {"message": 1, "client_request_id": "a"},
                {"message": 2, "priority": 10},
                {"message": 1, "client_request_id": "a"},
                {"message": 3, "client_request_id": "a"},
                {"message": {"big": "x".repeat(262_144)}},
                7,
                {"message": 4, "queue": "other"},
            ]}),
        )
        .await;
    let results = json["results"].as_array().unwrap();
    let statuses: Vec<u64> = results
        .iter()
        .map(|r| r["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [201, 422, 200, 422, 413, 422, 422]);
    assert_eq!(
        (&json["created"], &json["duplicates"], &json["rejected"]),
        (&json!(1), &json!(1), &json!(5))
    );
    assert!(
        results
            .iter()
            .enumerate()
            .all(|(index, result)| result["index"] == index)
    );
    assert_eq!(results[0]["message_id"], results[2]["message_id"]);
    assert_eq!(
        results[1]["error"]["errors"][0]["pointer"],
        "/messages/1/priority"
    );
    assert_eq!(results[3]["error"]["code"], "client_request_id_conflict");
    assert_eq!(
        results[3]["error"]["errors"][0]["pointer"],
        "/messages/3/client_request_id"
    );
    assert_eq!(results[5]["error"]["code"], "expected_object");
    assert_eq!(client.counts("q").await, [0, 1, 0, 0]);
}

async fn a_thousand_entries_are_one_batch(client: &Client) {
    let entries: Vec<Value> = (0..1_000).map(|n| json!({"message": n})).collect();
    let json = client
        .ok(BATCH, json!({"queue": "q", "messages": entries}))
        .await;
    assert_eq!(json["created"], 1_000);
    let got = client
        .ok(
            "/v1/queue/receive",
            json!({"queue": "q", "max_messages": 100}),
        )
        .await;
    let numbers: Vec<i64> = got["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["message"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<i64>>());
}

on_every_store!(
    a_message_comes_back_byte_for_byte,
    everything_about_a_message_arrives,
    a_repeat_is_answered_with_the_first_message,
    sixty_four_at_once_make_one_message,
    the_header_is_another_way_to_give_the_id,
    a_key_is_taken_from_the_message,
    limits_are_what_the_contract_says,
    a_delay_makes_it_wait,
    a_batch_answers_each_entry,
    a_thousand_entries_are_one_batch,
);

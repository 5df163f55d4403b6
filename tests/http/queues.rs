//! Queues as resources.

use crate::client::{Client, checked, on_every_store};
use serde_json::{Value, json};

async fn put_creates_and_replaces_and_patch_merges(client: &Client) {
    let path = "/v1/queues/q";
    let (status, json) = client
        .call("PUT", path, json!({"max_attempts": 9, "max_depth": 5}))
        .await;
    assert_eq!((status, &json["policy"]["max_attempts"]), (201, &json!(9)));
    let (status, json) = client
        .call("PATCH", path, json!({"delay_seconds": 1.5, "max_depth": null, "backoff": {"type": "schedule", "schedule_seconds": [300, 3600]}}))
        .await;
    assert_eq!(status, 200);
    let policy = &json["policy"];
    assert_eq!(
        (&policy["max_attempts"], &policy["delay_seconds"]),
        (&json!(9), &json!(1.5))
    );
    assert_eq!(policy["max_depth"], Value::Null);
    assert_eq!(
        policy["backoff"],
        json!({"type": "schedule", "schedule_seconds": [300, 3600], "jitter": "none"})
    );
    let (status, json) = client.call("PUT", path, json!({"max_redrives": 0})).await;
    assert_eq!((status, &json["policy"]["max_attempts"]), (200, &json!(5)));
    // What was read can be written again as it is.
    let (status, again) = client.call("PUT", path, json["policy"].clone()).await;
    assert_eq!((status, &again["policy"]), (200, &json["policy"]));
    client
        .refused(
            "PATCH",
            "/v1/queues/absent",
            json!({}),
            404,
            "queue_not_found",
        )
        .await;
}

async fn a_stale_version_is_refused(client: &Client) {
    let path = "/v1/queues/q";
    let send = async |method: &str, header: &str| {
        let headers = format!("content-type: application/json\r\n{header}\r\n");
        let body: &[u8] = if method == "DELETE" { b"" } else { b"{}" };
        let headers = if method == "DELETE" {
            format!("{header}\r\n")
        } else {
            headers
        };
        let answer = client.send(method, path, &headers, body).await;
        (
            checked(&answer).0,
            answer.header("etag").unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(send("PUT", "if-match: *").await.0, 412);
    let (status, first) = send("PUT", "if-none-match: *").await;
    assert_eq!(status, 201);
    assert_eq!(send("PUT", "if-none-match: *").await.0, 412);
    let (status, second) = send("PATCH", &format!("if-match: {first}")).await;
    assert_eq!(status, 200);
    for method in ["PUT", "PATCH", "DELETE"] {
        if first != second {
            assert_eq!(
                send(method, &format!("if-match: {first}")).await.0,
                412,
                "{method}"
            );
        }
        assert_eq!(send(method, "if-match: W/\"x\"").await.0, 412, "{method}");
    }
    assert_eq!(send("DELETE", &format!("if-match: {second}")).await.0, 200);
}

async fn numbers_are_exact(client: &Client) {
    for n in 0..3 {
        client.publish("q", json!(n)).await;
    }
    client
        .ok(
            "/v1/queue/publish",
            json!({"queue": "q", "message": 9, "delay_seconds": 60}),
        )
        .await;
    client.receive("q").await;
    let receipt = client.receipt("q").await;
    client
        .ok(
            "/v1/queue/nack",
            json!({"receipt": receipt, "permanent": true}),
        )
        .await;
    let (_, json) = client.get("/v1/queues/q").await;
    assert_eq!(
        json["counts"],
        json!({"delayed": 1, "ready": 1, "leased": 1, "dead": 1})
    );
    assert_eq!(
        (&json["totals"]["accepted"], &json["totals"]["delivered"]),
        (&json!(4), &json!(2))
    );
    assert!(
        json["oldest_ready_age_seconds"].is_number() && json["oldest_dead_age_seconds"].is_number()
    );
}

async fn queues_are_listed_page_by_page(client: &Client) {
    for n in 0..7 {
        client.queue(&format!("q{n}"), json!({})).await;
    }
    let (mut names, mut path) = (Vec::new(), "/v1/queues?page_size=3".to_owned());
    loop {
        let (status, json) = client.get(&path).await;
        assert_eq!(status, 200);
        names.extend(
            json["queues"]
                .as_array()
                .unwrap()
                .iter()
                .map(|q| q["name"].clone()),
        );
        let Some(token) = json["next_page_token"].as_str() else {
            break;
        };
        path = format!("/v1/queues?page_size=3&page_token={token}");
    }
    assert_eq!(names, ["q0", "q1", "q2", "q3", "q4", "q5", "q6"]);
}

async fn a_purge_wants_a_confirmation_and_spares_dead_letters(client: &Client) {
    for n in 0..3 {
        client.publish("q", json!(n)).await;
    }
    let receipt = client.receipt("q").await;
    client
        .ok(
            "/v1/queue/nack",
            json!({"receipt": receipt, "permanent": true}),
        )
        .await;
    let path = "/v1/queues/q/purge";
    client
        .refused(
            "POST",
            path,
            json!({"confirm": "other"}),
            422,
            "confirmation_required",
        )
        .await;
    let body = json!({"confirm": "q", "dead_letters": true});
    client
        .refused("POST", path, body, 422, "reason_required")
        .await;
    let body = json!({"confirm": "q", "client_request_id": "p1"});
    assert_eq!(client.ok(path, body.clone()).await["purged"], 2);
    client.publish("q", json!(4)).await;
    let answer = client.raw("POST", path, body.to_string()).await;
    assert_eq!(
        (
            answer.json()["purged"].clone(),
            answer.header("idempotency-replayed")
        ),
        (json!(2), Some("true"))
    );
    let body = json!({"confirm": "q", "dead_letters": true, "client_request_id": "p1", "justification": "test data, all of it"});
    client
        .refused("POST", path, body, 422, "client_request_id_conflict")
        .await;
    assert_eq!(client.counts("q").await, [0, 1, 0, 1]);
    let body =
        json!({"confirm": "q", "dead_letters": true, "justification": "test data, all of it"});
    assert_eq!(client.ok(path, body).await["purged"], 2);
}

async fn a_name_that_is_not_there_gets_the_nearest_one(client: &Client) {
    client.queue("orders", json!({})).await;
    let json = client
        .refused(
            "GET",
            "/v1/queues/odrers",
            Value::Null,
            404,
            "queue_not_found",
        )
        .await;
    assert!(
        json["detail"].as_str().unwrap().contains("orders"),
        "{json}"
    );
    client
        .refused("GET", "/v1/queues/zzz", Value::Null, 404, "queue_not_found")
        .await;
}

async fn names_are_case_sensitive(client: &Client) {
    client.queue("Orders", json!({"max_attempts": 2})).await;
    let (status, json) = client.call("PUT", "/v1/queues/orders", json!({})).await;
    assert_eq!((status, &json["name"]), (201, &json!("orders")));
}

async fn repeated_keys_cannot_become_unique(client: &Client) {
    for _ in 0..2 {
        client
            .ok(
                "/v1/queue/publish",
                json!({"queue": "q", "message": 1, "key": "k"}),
            )
            .await;
    }
    client
        .refused(
            "PATCH",
            "/v1/queues/q",
            json!({"unique_key": true}),
            409,
            "keys_not_unique",
        )
        .await;
}

on_every_store!(
    put_creates_and_replaces_and_patch_merges,
    a_stale_version_is_refused,
    numbers_are_exact,
    queues_are_listed_page_by_page,
    a_purge_wants_a_confirmation_and_spares_dead_letters,
    a_name_that_is_not_there_gets_the_nearest_one,
    names_are_case_sensitive,
    repeated_keys_cannot_become_unique,
);

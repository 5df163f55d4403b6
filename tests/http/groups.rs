//! Which dead letters failed alike.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

async fn what_failed_alike_is_one_group(client: &Client) {
    for n in 0..3 {
        let text = format!("timeout after {} ms for order {n}", 3_000 + n);
        client.bury("q", json!(n), "503", &text).await;
    }
    let last = client
        .bury("q", json!(9), "503", "timeout after 7 ms for order 9")
        .await;
    client
        .bury("q", json!(4), "503", "connection refused")
        .await;
    client
        .bury("other", json!(5), "503", "timeout after 8 ms for order 5")
        .await;

    let (status, found) = client.get("/v1/queues/q/dead-letters/groups").await;
    assert_eq!((status, &found["more"]), (200, &json!(false)));
    let groups = found["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    let largest = &groups[0];
    assert_eq!(
        (&largest["count"], &largest["queue"], &largest["reason"]),
        (&json!(4), &json!("q"), &json!("permanent_failure"))
    );
    assert_eq!(
        (
            &largest["error_code"],
            &largest["error_text"],
            &largest["failure_kind"]
        ),
        (
            &json!("503"),
            &json!("timeout after # ms for order #"),
            &json!("permanent")
        )
    );
    assert_eq!(largest["example_message_id"], last);
    assert!(largest["first_died_at"].as_str() <= largest["last_died_at"].as_str());

    let group = largest["group"].as_str().unwrap();
    let (_, page) = client
        .get(&format!("/v1/queues/q/dead-letters?group={group}"))
        .await;
    assert_eq!(Client::ids(&page).len(), 4);
    let (_, page) = client.get(&format!("/v1/dead-letters?group={group}")).await;
    assert_eq!(
        Client::ids(&page).len(),
        5,
        "a group has the same name in all queues"
    );

    let (_, all) = client.get("/v1/dead-letters/groups").await;
    assert_eq!(all["groups"].as_array().unwrap().len(), 3);
    let (_, cut) = client.get("/v1/dead-letters/groups?limit=1").await;
    assert_eq!(
        (cut["groups"].as_array().unwrap().len(), &cut["more"]),
        (1, &json!(true))
    );
    let (_, some) = client.get("/v1/dead-letters/groups?key=none").await;
    assert_eq!(some, json!({"groups": [], "more": false}));
}

async fn what_cannot_be_asked_is_refused(client: &Client) {
    client.queue("q", json!({})).await;
    for (path, status, code) in [
        ("/v1/dead-letters/groups?limit=0", 422, "out_of_range"),
        ("/v1/dead-letters/groups?limit=501", 422, "out_of_range"),
        (
            "/v1/dead-letters/groups?page_size=5",
            422,
            "unknown_parameter",
        ),
        (
            "/v1/queues/none/dead-letters/groups",
            404,
            "queue_not_found",
        ),
        (
            "/v1/queues/q/dead-letters/groups?reason=x",
            422,
            "invalid_value",
        ),
    ] {
        client.refused("GET", path, Value::Null, status, code).await;
    }
}

on_every_store!(
    what_failed_alike_is_one_group,
    what_cannot_be_asked_is_refused
);

//! What a bulk decision is about, before anybody decides.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

const PATH: &str = "/v1/dead-letters/selections";

async fn a_selection_is_counted_and_frozen(client: &Client) {
    client.queue("q", json!({"max_redrives": 0})).await;
    let first = client.bury("q", json!(1), "E1", "").await;
    for n in 2..14 {
        client.bury("q", json!(n), "E1", "").await;
    }
    let taken = client.publish("q", json!(14)).await;
    client
        .ok(
            &format!("/v1/messages/{taken}/dead-letter"),
            json!({"reason": "stop"}),
        )
        .await;
    let edit = json!({"message": 0, "reason": "wrong"});
    let (status, _) = client
        .call("PATCH", &format!("/v1/queues/q/dead-letters/{taken}"), edit)
        .await;
    assert_eq!(status, 200);
    let body = json!({"queue": "q", "client_request_id": "s1"});
    let (status, made) = client.post(PATH, body.clone()).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(
        (&made["count"], &made["queue"], &made["filter"]),
        (&json!(14), &json!("q"), &json!({}))
    );
    assert_eq!(
        made["by_reason"],
        json!([{"reason": "permanent_failure", "count": 13}, {"reason": "operator", "count": 1}])
    );
    assert_eq!(
        made["by_error_code"],
        json!([{"error_code": "E1", "count": 13}, {"error_code": null, "count": 1}])
    );
    assert_eq!(
        made["by_age"][0],
        json!({"age": "under_1_hour", "count": 14})
    );
    assert_eq!(made["by_age"][3], json!({"age": "over_7_days", "count": 0}));
    assert_eq!(
        [
            "edited",
            "over_max_redrives",
            "completion_remembered",
            "outcome_recorded"
        ]
        .map(|name| &made[name]),
        [&json!(1), &json!(14), &json!(0), &json!(0)]
    );
    let sample = made["sample"].as_array().unwrap();
    assert_eq!(
        (sample.len(), &sample[0]["message_id"]),
        (10, &json!(first))
    );
    assert_eq!(sample[0]["dead_letter"]["error_code"], "E1");
    assert!(made["created_at"].as_str() < made["expires_at"].as_str());

    // What dies later is not in it.
    client.bury("q", json!(15), "E1", "").await;
    let path = format!("{PATH}/{}", made["selection_id"].as_str().unwrap());
    let (status, read) = client.get(&path).await;
    assert_eq!((status, &read["count"]), (200, &json!(14)));
    assert!(read.get("sample").is_none());
    let (status, again) = client.post(PATH, body).await;
    assert_eq!(
        (status, &again),
        (201, &made),
        "a repeat names the first one"
    );
}

async fn a_filter_is_said_back_as_it_was_understood(client: &Client) {
    client.bury("q", json!(1), "E1", "").await;
    client.bury("q", json!(2), "E2", "").await;
    let filter = json!({"failure_kind": "permanent", "error_code": "E2", "key_prefix": "a", "min_attempts": 1,
        "died_after": "2020-01-01T00:00:00+01:00", "edited": false});
    let made = client
        .ok(PATH, json!({"queue": "q", "filter": filter}))
        .await;
    assert_eq!(made["count"], 0);
    assert_eq!(
        made["filter"],
        json!({"reason": "permanent_failure", "error_code": "E2", "key_prefix": "a", "min_attempts": 1,
            "died_after": "2019-12-31T23:00:00.000Z", "edited": false})
    );
    let made = client
        .ok(PATH, json!({"queue": "q", "filter": {"error_code": "E2"}}))
        .await;
    assert_eq!(
        (
            &made["count"],
            &made["sample"][0]["dead_letter"]["error_code"]
        ),
        (&json!(1), &json!("E2"))
    );
}

async fn what_cannot_be_selected_is_refused(client: &Client) {
    client.queue("q", json!({})).await;
    client
        .refused(
            "POST",
            PATH,
            json!({"queue": "none"}),
            404,
            "queue_not_found",
        )
        .await;
    for id in ["sel_0000000000009", "sel_x", "rdv_0000000000001"] {
        client
            .refused(
                "GET",
                &format!("{PATH}/{id}"),
                Value::Null,
                404,
                "not_found",
            )
            .await;
    }
}

on_every_store!(
    a_selection_is_counted_and_frozen,
    a_filter_is_said_back_as_it_was_understood,
    what_cannot_be_selected_is_refused,
);

//! Bulk decisions: begun over a selection, going on by themselves, steered meanwhile.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

const PATH: &str = "/v1/redrives";

/// Buries so many messages in `q`.
async fn bury(client: &Client, count: usize) {
    for n in 0..count {
        client.bury("q", json!(n), "E1", "").await;
    }
}

async fn select(client: &Client) -> Value {
    let made = client
        .ok("/v1/dead-letters/selections", json!({"queue": "q"}))
        .await;
    made["selection_id"].clone()
}

/// Begins a redrive of all dead letters of `q`, with more members; answers it and its path.
async fn start(client: &Client, count: usize, more: Value) -> (Value, String) {
    let mut body = json!({"selection_id": select(client).await, "expected_count": count,
        "rate_per_second": null, "canary": null, "abort_if": null});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let (status, redrive) = client.post(PATH, body).await;
    assert_eq!(status, 202, "{redrive}");
    let path = format!("{PATH}/{}", redrive["redrive_id"].as_str().unwrap());
    (redrive, path)
}

fn is(state: &'static str) -> impl Fn(&Value) -> bool {
    move |redrive| redrive["state"] == state
}

async fn a_redrive_goes_on_by_itself_to_its_end(client: &Client) {
    client.queue("q", json!({"max_redrives": 1})).await;
    bury(client, 5).await;
    let (begun, path) = start(client, 5, json!({"reason": "the gateway is back"})).await;
    assert_eq!(
        (
            &begun["queue"],
            &begun["action"],
            &begun["count"],
            &begun["max"]
        ),
        (&json!("q"), &json!("redrive"), &json!(5), &Value::Null)
    );
    assert_eq!(begun["reason"], "the gateway is back");
    let done = client.until(&path, is("done")).await;
    assert_eq!((&done["moved"], &done["remaining"]), (&json!(5), &json!(0)));
    assert!(done["finished_at"].is_string() && done["actor"].is_string());
    assert_eq!(client.counts("q").await, [0, 5, 0, 0]);
    for verb in ["pause", "resume", "cancel"] {
        client
            .refused(
                "POST",
                &format!("{path}/{verb}"),
                Value::Null,
                409,
                "redrive_finished",
            )
            .await;
    }
    let change = json!({"rate_per_second": 1});
    client
        .refused("PATCH", &path, change, 409, "redrive_finished")
        .await;
    // Those that die again are counted.
    client.nack_for_good("q", "E1", "").await;
    client.until(&path, |r| r["failed_again"] == 1).await;
    let (again, path) = start(client, 1, json!({})).await;
    let done = client.until(&path, is("done")).await;
    assert_eq!(
        (
            &done["moved"],
            &done["skipped"]["total"],
            &done["skipped"]["redrive_limit"]
        ),
        (&json!(0), &json!(1), &json!(1))
    );
    let body = json!({"selection_id": again["selection_id"], "expected_count": 1, "force": true});
    client
        .refused("POST", PATH, body, 422, "reason_required")
        .await;
    let (_, path) = start(client, 1, json!({"force": true, "reason": "once more"})).await;
    assert_eq!(client.until(&path, is("done")).await["moved"], 1);
}

async fn its_messages_tell_which_redrive_it_was(client: &Client) {
    bury(client, 1).await;
    let (begun, path) = start(client, 1, json!({"reason": "fixed"})).await;
    client.until(&path, is("done")).await;
    let (_, page) = client.get("/v1/queues/q/messages").await;
    let id = page["messages"][0]["message_id"].as_str().unwrap();
    let (_, detail) = client.get(&format!("/v1/messages/{id}")).await;
    let decision = &detail["decisions"][0];
    assert_eq!(
        (
            &decision["redrive_id"],
            &decision["action"],
            &decision["reason"]
        ),
        (&begun["redrive_id"], &json!("redrive"), &json!("fixed"))
    );
}

async fn a_dry_run_counts_and_changes_nothing(client: &Client) {
    bury(client, 3).await;
    let (begun, path) = start(client, 3, json!({"dry_run": true})).await;
    assert_eq!(begun["dry_run"], true);
    let done = client.until(&path, is("done")).await;
    assert_eq!(
        (&done["moved"], &done["skipped"]["total"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(client.counts("q").await, [0, 0, 0, 3]);
}

async fn a_wrong_count_begins_nothing(client: &Client) {
    bury(client, 2).await;
    let selection = select(client).await;
    let body = json!({"selection_id": selection, "expected_count": 3, "client_request_id": "x"});
    let json = client
        .refused("POST", PATH, body, 409, "count_mismatch")
        .await;
    assert_eq!(
        (&json["expected_count"], &json["actual_count"]),
        (&json!(3), &json!(2))
    );
    assert!(json["detail"].as_str().unwrap().contains('2'));
    let (_, page) = client.get(PATH).await;
    assert_eq!(page["redrives"], json!([]));
    for id in ["sel_000000000000z", "sel_", "rdv_0000000000001"] {
        let body = json!({"selection_id": id, "expected_count": 1});
        client.refused("POST", PATH, body, 404, "not_found").await;
    }
}

async fn a_repeated_start_begins_one(client: &Client) {
    bury(client, 2).await;
    let body = json!({"selection_id": select(client).await, "expected_count": 2, "rate_per_second": 0.001,
        "canary": null, "client_request_id": "start-1"});
    let answer = client.raw("POST", PATH, body.to_string()).await;
    let first = answer.json();
    let location = format!("{PATH}/{}", first["redrive_id"].as_str().unwrap());
    assert_eq!(
        (answer.status, answer.header("location")),
        (202, Some(&*location))
    );
    let answer = client.raw("POST", PATH, body.to_string()).await;
    assert_eq!(
        (answer.status, answer.header("idempotency-replayed")),
        (202, Some("true"))
    );
    assert_eq!(answer.json()["redrive_id"], first["redrive_id"]);
    let (_, page) = client.get(PATH).await;
    assert_eq!(page["redrives"].as_array().unwrap().len(), 1);
    let mut other = body;
    other["expected_count"] = json!(3);
    client
        .refused("POST", PATH, other, 422, "client_request_id_conflict")
        .await;
}

async fn it_can_be_paused_changed_resumed_and_cancelled(client: &Client) {
    bury(client, 6).await;
    let (_, path) = start(client, 6, json!({"rate_per_second": 0.001})).await;
    let slow = client.until(&path, |r| r["moved"] == 1).await;
    assert!(slow["estimated_end_at"].as_str() > slow["created_at"].as_str());
    let body = json!({"reason": "let me look", "client_request_id": "p1"});
    let paused = client.ok(&format!("{path}/pause"), body.clone()).await;
    assert_eq!(
        (&paused["state"], &paused["remaining"]),
        (&json!("paused"), &json!(5))
    );
    assert!(paused.get("estimated_end_at").is_none());
    assert_eq!(
        client.ok(&format!("{path}/pause"), body).await["state"],
        "paused"
    );
    let change = json!({"rate_per_second": null});
    let (status, changed) = client.call("PATCH", &path, change).await;
    assert_eq!(
        (status, &changed["state"], &changed["rate_per_second"]),
        (200, &json!("paused"), &Value::Null)
    );
    assert_eq!(client.counts("q").await, [0, 1, 0, 5]);
    client.ok(&format!("{path}/resume"), Value::Null).await;
    assert_eq!(client.until(&path, is("done")).await["moved"], 6);

    client.queue("q", json!({})).await;
    for _ in 0..6 {
        client.nack_for_good("q", "E1", "").await;
    }
    let (_, path) = start(client, 6, json!({"rate_per_second": 0.001, "max": 4})).await;
    client.until(&path, |r| r["moved"] == 1).await;
    let body = json!({"reason": "enough"});
    let cancelled = client.ok(&format!("{path}/cancel"), body).await;
    assert_eq!(
        (
            &cancelled["state"],
            &cancelled["moved"],
            &cancelled["remaining"],
            &cancelled["max"]
        ),
        (&json!("cancelled"), &json!(1), &json!(3), &json!(4))
    );
    assert_eq!(client.counts("q").await, [0, 1, 0, 5]);
    client
        .refused("PATCH", &path, json!({}), 422, "missing_field")
        .await;
    for id in ["rdv_000000000000z", "rdv_x", "sel_0000000000001"] {
        let path = format!("{PATH}/{id}");
        client
            .refused("GET", &path, Value::Null, 404, "not_found")
            .await;
        client
            .refused(
                "POST",
                &format!("{path}/pause"),
                Value::Null,
                404,
                "not_found",
            )
            .await;
    }
}

async fn the_canary_goes_first(client: &Client) {
    bury(client, 5).await;
    let canary = json!({"canary": {"count": 2, "wait_seconds": 3600}});
    let (begun, path) = start(client, 5, canary).await;
    assert_eq!(begun["canary"], json!({"count": 2, "wait_seconds": 3600}));
    let waits = client
        .until(&path, |r| r["canary"]["until"].is_string())
        .await;
    assert_eq!(
        (&waits["state"], &waits["moved"]),
        (&json!("canary"), &json!(2))
    );
    assert_eq!(client.counts("q").await, [0, 2, 0, 3]);
    for _ in 0..2 {
        let receipt = client.receipt("q").await;
        client
            .ok("/v1/queue/ack", json!({"receipt": receipt}))
            .await;
    }
    let done = client.until(&path, is("done")).await;
    assert_eq!(
        (&done["moved"], &done["failed_again"]),
        (&json!(5), &json!(0))
    );
}

async fn it_stops_by_itself_when_too_many_die_again(client: &Client) {
    bury(client, 5).await;
    let careful = json!({"canary": {"count": 2, "wait_seconds": 3600}, "abort_if": {"failed_fraction": 0.5, "min_sample": 2}});
    let (_, path) = start(client, 5, careful).await;
    client.until(&path, |r| r["moved"] == 2).await;
    client.nack_for_good("q", "E1", "").await;
    let aborted = client.until(&path, is("aborted")).await;
    assert_eq!(
        (&aborted["failed_again"], &aborted["moved"]),
        (&json!(1), &json!(2))
    );
    assert!(
        aborted["state_reason"]
            .as_str()
            .unwrap()
            .contains("died again")
    );
    client
        .refused(
            "POST",
            &format!("{path}/resume"),
            Value::Null,
            409,
            "redrive_finished",
        )
        .await;
}

async fn many_can_be_discarded_at_once(client: &Client) {
    bury(client, 4).await;
    let words = json!({"action": "discard", "code": "written_off", "justification": "cards were cancelled"});
    let (begun, path) = start(client, 4, words).await;
    assert_eq!(
        (&begun["action"], &begun["code"], &begun["justification"]),
        (
            &json!("discard"),
            &json!("written_off"),
            &json!("cards were cancelled")
        )
    );
    assert!(begun.get("reason").is_none());
    assert_eq!(client.until(&path, is("done")).await["moved"], 4);
    assert_eq!(client.counts("q").await, [0; 4]);
}

async fn they_are_listed_youngest_first(client: &Client) {
    bury(client, 2).await;
    client.queue("other", json!({})).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let (begun, path) = start(client, 2, json!({"dry_run": true})).await;
        client.until(&path, is("done")).await;
        ids.insert(0, begun["redrive_id"].clone());
    }
    let list = format!("{PATH}?queue=q&state=done&page_size=2");
    let (mut found, mut token) = (Vec::new(), String::new());
    loop {
        let (status, page) = client.get(&format!("{list}{token}")).await;
        assert_eq!(status, 200, "{page}");
        let redrives = page["redrives"].as_array().unwrap();
        found.extend(redrives.iter().map(|r| r["redrive_id"].clone()));
        let Some(next) = page["next_page_token"].as_str() else {
            break;
        };
        token = format!("&page_token={next}");
    }
    assert_eq!(found, ids);
    for filter in ["queue=other", "state=running"] {
        let (_, page) = client.get(&format!("{PATH}?{filter}")).await;
        assert_eq!(page, json!({"redrives": []}));
    }
    let (_, page) = client.get(&format!("{PATH}?page_size=1")).await;
    let token = page["next_page_token"].as_str().unwrap();
    for (path, status, code) in [
        (
            format!("{PATH}?queue=q&page_token={token}"),
            422,
            "invalid_page_token",
        ),
        (format!("{PATH}?queue=none"), 404, "queue_not_found"),
        (format!("{PATH}?queue=.."), 422, "invalid_queue_name"),
        (format!("{PATH}?state=over"), 422, "invalid_value"),
    ] {
        client
            .refused("GET", &path, Value::Null, status, code)
            .await;
    }
}

/// Whoever waits is woken by a redrive of one, and of many, as by a publish.
async fn a_waiting_receive_is_woken(client: &Client) {
    client.queue("q", json!({})).await;
    let receive = json!({"queue": "q", "wait_seconds": 20});
    let id = client.bury("q", json!(1), "E1", "").await;
    let one = format!("/v1/queues/q/dead-letters/{id}/redrive");
    let (answer, _) = tokio::join!(
        client.ok("/v1/queue/receive", receive.clone()),
        client.ok(&one, Value::Null)
    );
    let receipt = answer["messages"][0]["receipt"].clone();
    client
        .ok("/v1/queue/ack", json!({"receipt": receipt}))
        .await;
    client.bury("q", json!(2), "E1", "").await;
    let (answer, _) = tokio::join!(
        client.ok("/v1/queue/receive", receive),
        start(client, 1, json!({}))
    );
    assert_eq!(answer["messages"][0]["message"], 2);
}

on_every_store!(
    a_waiting_receive_is_woken,
    a_redrive_goes_on_by_itself_to_its_end,
    its_messages_tell_which_redrive_it_was,
    a_dry_run_counts_and_changes_nothing,
    a_wrong_count_begins_nothing,
    a_repeated_start_begins_one,
    it_can_be_paused_changed_resumed_and_cancelled,
    the_canary_goes_first,
    it_stops_by_itself_when_too_many_die_again,
    many_can_be_discarded_at_once,
    they_are_listed_youngest_first,
);

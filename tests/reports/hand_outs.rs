//! Who gets a message, and for how long.

use futures_util::future::join_all;
use quita_tests::served::Client;
use quita_tests::served_on_every_store;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const RECEIVE: &str = "/v1/queue/receive";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn fill(client: &Client, queue: &str, count: usize) {
    let messages = vec![json!({"message": 1}); count];
    client
        .ok(
            "/v1/queue/publish-batch",
            json!({"queue": queue, "messages": messages}),
        )
        .await;
}

async fn receive(client: &Client, queue: &str, max: usize, lease: u32, wait: f64) -> Vec<Value> {
    let body = json!({"queue": queue, "max_messages": max, "visibility_timeout_seconds": lease, "wait_seconds": wait});
    let mut answer = client.ok(RECEIVE, body).await;
    let messages = answer["messages"].as_array_mut().unwrap();
    std::mem::take(messages)
}

/// Many receive until all messages of the queue are out: each is handed to one of them, as this attempt.
async fn share_out(client: &Client, queue: &str, count: usize, attempt: u64) {
    let got = RefCell::new(BTreeSet::new());
    let began = Instant::now();
    let worker = async || {
        while got.borrow().len() < count {
            assert!(began.elapsed() < PATIENCE, "{}", got.borrow().len());
            for message in receive(client, queue, 10, 600, 0.2).await {
                assert_eq!(message["attempt"], attempt);
                let id = message["message_id"].to_string();
                assert!(got.borrow_mut().insert(id), "handed out twice: {message}");
            }
        }
    };
    join_all((0..48).map(|_| worker())).await;
    assert!(receive(client, queue, 100, 600, 0.0).await.is_empty());
}

/// B051, B052: a message has one holder, at the first hand-out and when its lease ran out under the eyes of many.
async fn a_message_has_one_holder(client: &Client) {
    fill(client, "first", 400).await;
    share_out(client, "first", 400, 1).await;
    fill(client, "again", 200).await;
    for _ in 0..2 {
        assert_eq!(receive(client, "again", 100, 1, 0.0).await.len(), 100);
    }
    share_out(client, "again", 200, 2).await;
}

/// B025: an attempt is a hand-out: asking in vain, while another has it or while the queue is paused, is none.
async fn asking_in_vain_is_no_attempt(client: &Client) {
    let id = client.publish("q", json!(1)).await;
    let asked = join_all((0..50).map(|_| receive(client, "q", 1, 600, 0.3))).await;
    assert_eq!(asked.concat().len(), 1);
    client.ok("/v1/queues/q/pause", json!({})).await;
    let paused = client.publish("q", json!(2)).await;
    join_all((0..20).map(|_| receive(client, "q", 1, 600, 0.0))).await;
    client.ok("/v1/queues/q/resume", json!({})).await;
    let (_, held) = client.get(&format!("/v1/messages/{id}")).await;
    assert_eq!(
        (&held["state"], &held["history"]),
        (&json!("leased"), &json!([]))
    );
    let got = receive(client, "q", 10, 600, 2.0).await;
    assert_eq!((got.len(), &got[0]["message_id"]), (1, &json!(paused)));
    assert_eq!(got[0]["attempt"], 1);
}

/// Milliseconds of the minute.
fn millis(time: &Value) -> i64 {
    let time = time.as_str().unwrap();
    let (_, seconds) = time.rsplit_once(':').unwrap();
    let seconds: f64 = seconds.trim_end_matches('Z').parse().unwrap();
    (seconds * 1_000.0).round() as i64
}

/// B057: a lease begins with the hand-out, not with the wait for it, and the answer says when it ends and what time it is.
async fn a_lease_begins_with_its_hand_out(client: &Client) {
    client.queue("q", json!({})).await;
    let receiving = async {
        let body = json!({"queue": "q", "max_messages": 100, "visibility_timeout_seconds": 2, "wait_seconds": 20});
        client.ok(RECEIVE, body).await
    };
    let publishing = async {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1_200) {
            client.get("/v1/queues/q").await;
        }
        fill(client, "q", 100).await;
    };
    let (got, ()) = tokio::join!(receiving, publishing);
    for message in got["messages"].as_array().unwrap() {
        let left = millis(&message["lease_expires_at"]) - millis(&got["server_time"]);
        assert_eq!(left.rem_euclid(60_000), 2_000, "{got}");
        assert_eq!(message["lease_seconds"], 2.0);
    }
}

/// B111: a thousand leases that run out at once hold up neither a publish nor a fresh message.
async fn many_leases_that_run_out_hold_up_nobody(client: &Client) {
    const COUNT: usize = 1_000;
    for _ in 0..2 {
        fill(client, "q", COUNT / 2).await;
    }
    for _ in 0..COUNT / 100 {
        assert_eq!(receive(client, "q", 100, 2, 0.0).await.len(), 100);
    }
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    for number in 0.. {
        let asked = Instant::now();
        let urgent = json!({"queue": "q", "message": number, "priority": 9});
        client.ok("/v1/queue/publish", urgent).await;
        let got = receive(client, "q", 1, 600, 0.0).await;
        assert_eq!(got[0]["message"], number);
        slowest = slowest.max(asked.elapsed());
        let receipt = &got[0]["receipt"];
        client
            .ok("/v1/queue/ack", json!({"receipt": receipt}))
            .await;
        if client.counts("q").await == [0, COUNT as i64, 0, 0] {
            break;
        }
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

served_on_every_store!(
    a_message_has_one_holder,
    asking_in_vain_is_no_attempt,
    a_lease_begins_with_its_hand_out,
    many_leases_that_run_out_hold_up_nobody,
);

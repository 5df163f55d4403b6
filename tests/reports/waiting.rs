//! Who waits for a message is told when there is one.

use futures_util::future::{join, join_all};
use quita_tests::served::Client;
use quita_tests::served_on_every_store;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longest wait of a receive here; whoever was not woken is told apart by it.
const WAIT: u32 = 20;
/// A wake-up is quicker than this, also where everything is slow.
const SOON: Duration = Duration::from_secs(5);

async fn wait_for_one(client: &Client, queue: &str) -> Value {
    let body = json!({"queue": queue, "wait_seconds": WAIT});
    let mut answer = client.ok("/v1/queue/receive", body).await;
    answer["messages"][0].take()
}

/// Resolves when so many receives wait.
async fn until_waiting(client: &Client, count: u64) {
    let began = Instant::now();
    loop {
        let text = client.server.get("/metrics").await.text();
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("quita_waiting_receives "));
        if line.unwrap().parse::<u64>().unwrap() == count {
            return;
        }
        assert!(began.elapsed() < SOON);
    }
}

/// Does something while a receive waits, and answers what that got, which must be soon.
async fn woken_by(client: &Client, queue: &str, what: impl AsyncFnOnce()) -> Value {
    let doing = async {
        until_waiting(client, 1).await;
        what().await;
        Instant::now()
    };
    let (message, done) = join(wait_for_one(client, queue), doing).await;
    assert!(message.is_object() && done.elapsed() < SOON, "{message}");
    message
}

/// B112: a receive that waits gets a delayed message when it is due.
async fn a_delay_that_ends_wakes_who_waits(client: &Client) {
    let began = Instant::now();
    let delayed = json!({"queue": "q", "message": 1, "delay_seconds": 1});
    client.ok("/v1/queue/publish", delayed).await;
    assert_eq!(wait_for_one(client, "q").await["message"], 1);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1) && took < SOON, "{took:?}");
}

/// B128: whatever makes a message ready wakes a receive that waits.
async fn whatever_makes_ready_wakes_who_waits(client: &Client) {
    client.queue("q", json!({"max_redrives": 9})).await;
    let id = client.publish("q", json!(1)).await;
    let mut held = client.receive("q").await;
    let receipt = |held: &Value| held["receipt"].clone();
    let settle = async |path: &str, body: Value| drop(client.ok(path, body).await);
    let nack = json!({"receipt": receipt(&held), "delay_seconds": 0});
    held = woken_by(client, "q", async || settle("/v1/queue/nack", nack).await).await;
    assert_eq!(held["attempt"], 2);
    let release = json!({"receipt": receipt(&held)});
    held = woken_by(client, "q", async || {
        settle("/v1/queue/release", release).await;
    })
    .await;
    let later = json!({"receipt": receipt(&held), "delay_seconds": 600});
    client.ok("/v1/queue/release", later).await;
    let promote = format!("/v1/messages/{id}/promote");
    held = woken_by(client, "q", async || settle(&promote, json!({})).await).await;
    let dead = json!({"receipt": receipt(&held), "permanent": true});
    client.ok("/v1/queue/nack", dead).await;
    let redrive = format!("/v1/queues/q/dead-letters/{id}/redrive");
    held = woken_by(client, "q", async || settle(&redrive, json!({})).await).await;
    let shorter = json!({"receipt": receipt(&held), "visibility_timeout_seconds": 1});
    held = woken_by(client, "q", async || {
        settle("/v1/queue/extend", shorter).await;
    })
    .await;
    client.ok("/v1/queues/q/pause", json!({})).await;
    let release = json!({"receipt": receipt(&held)});
    client.ok("/v1/queue/release", release).await;
    held = woken_by(client, "q", async || {
        settle("/v1/queues/q/resume", json!({})).await;
    })
    .await;
    assert_eq!(held["message_id"], json!(id));
}

/// B119: pausing and resuming over and over ends as the last word says, for those who wait, too.
async fn the_last_of_many_pauses_and_resumes_holds(client: &Client) {
    client.queue("q", json!({})).await;
    let waiting = join_all((0..20).map(|_| wait_for_one(client, "q")));
    let steering = async {
        until_waiting(client, 20).await;
        for _ in 0..15 {
            client.ok("/v1/queues/q/pause", json!({})).await;
            client.ok("/v1/queues/q/resume", json!({})).await;
        }
        client.ok("/v1/queues/q/pause", json!({})).await;
        let messages = vec![json!({"message": 1}); 20];
        client
            .ok(
                "/v1/queue/publish-batch",
                json!({"queue": "q", "messages": messages}),
            )
            .await;
        assert_eq!(client.counts("q").await, [0, 20, 0, 0]);
        client.ok("/v1/queues/q/resume", json!({})).await;
        Instant::now()
    };
    let (got, resumed) = join(waiting, steering).await;
    assert!(resumed.elapsed() < SOON && got.iter().all(Value::is_object));
    assert_eq!(client.counts("q").await, [0, 0, 20, 0]);
}

/// B021, B146: publishes beside purge after purge are all answered, and each of them was purged or is there.
async fn publishes_beside_purges_are_answered_and_counted(client: &Client) {
    client.queue("q", json!({})).await;
    let (done, slowest) = (Cell::new(0), Cell::new(Duration::ZERO));
    let publishing = async || {
        for n in 0..25 {
            let body = json!({"queue": "q", "message": n});
            loop {
                let asked = Instant::now();
                let (status, answer) = client.post("/v1/queue/publish", body.clone()).await;
                slowest.set(slowest.get().max(asked.elapsed()));
                if status == 201 {
                    break;
                }
                // Purges come as fast as they are answered: a publish may be told to come again.
                assert_eq!(
                    (status, &answer["effect"]),
                    (503, &json!("none")),
                    "{answer}"
                );
            }
        }
        done.set(done.get() + 1);
    };
    let purging = async {
        let mut purged = 0;
        while done.get() < 8 {
            let answer = client
                .ok("/v1/queues/q/purge", json!({"confirm": "q"}))
                .await;
            purged += answer["purged"].as_i64().unwrap();
        }
        purged
    };
    let (purged, _) = join(purging, join_all((0..8).map(|_| publishing()))).await;
    assert_eq!(purged + client.counts("q").await[1], 200);
    assert!(slowest.get() < SOON, "{slowest:?}");
    let after = client.publish("q", json!("after")).await;
    client
        .until(&format!("/v1/messages/{after}"), |m| m["state"] == "ready")
        .await;
}

served_on_every_store!(
    a_delay_that_ends_wakes_who_waits,
    whatever_makes_ready_wakes_who_waits,
    the_last_of_many_pauses_and_resumes_holds,
    publishes_beside_purges_are_answered_and_counted,
);

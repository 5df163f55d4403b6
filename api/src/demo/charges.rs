//! The batch: one charge per subscription and month.

use super::Outcome;
use super::client::Client;
use serde_json::{Value, json};

/// The month that is charged.
const COMPETENCE: &str = "2026-10";
/// Messages per request; the limit is 1,000.
const CHUNK: u32 = 500;

/// What a run of the producer was told.
#[derive(Debug, Default)]
pub(super) struct Published {
    pub(super) created: u64,
    pub(super) duplicates: u64,
    pub(super) rejected: u64,
    /// Of all messages that a result named.
    pub(super) ids: Vec<String>,
}

/// Name of the n-th subscription.
pub(super) fn subscription(n: u32) -> String {
    format!("sub_{n:04}")
}

/// The business key: a second charge for the same subscription and month has the same one.
pub(super) fn key(subscription: &str) -> String {
    format!("cob-{subscription}-{COMPETENCE}")
}

/// Publishes all charges. In the second run every other message is a retry of the first run, with its
/// `client_request_id`; the rest is a new attempt that has only the key in common.
pub(super) async fn publish(
    client: &Client,
    queue: &str,
    messages: u32,
    run: u32,
) -> Outcome<Published> {
    let mut published = Published::default();
    let all: Vec<Value> = (0..messages).map(|n| charge(n, run)).collect();
    for chunk in all.chunks(CHUNK as usize) {
        let body = json!({ "queue": queue, "messages": chunk });
        let answer = client
            .post("/v1/queue/publish-batch", &body)
            .await?
            .success("publish-batch")?;
        let count = |name: &str| {
            answer[name]
                .as_u64()
                .ok_or_else(|| format!("publish-batch answered no {name}"))
        };
        published.created += count("created")?;
        published.duplicates += count("duplicates")?;
        published.rejected += count("rejected")?;
        let results = answer["results"]
            .as_array()
            .ok_or("publish-batch answered no results")?;
        published.ids.extend(
            results
                .iter()
                .filter_map(|result| result["message_id"].as_str().map(str::to_owned)),
        );
    }
    Ok(published)
}

fn charge(n: u32, run: u32) -> Value {
    let subscription = subscription(n);
    let key = key(&subscription);
    let request_run = if n.is_multiple_of(2) { 1 } else { run };
    json!({
        "client_request_id": format!("{key}/run-{request_run}"),
        "key": key,
        "message": {
            "subscription": subscription,
            "competence": COMPETENCE,
            "amount_cents": 4_990 + u64::from(n % 40) * 500,
            "currency": "BRL",
        },
    })
}

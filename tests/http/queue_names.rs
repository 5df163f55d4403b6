//! Names of queues: each one is refused or is a queue of its own, whatever a path, an address or a statement would make of it.

use crate::client::{Client, on_every_store};
use serde_json::json;
use std::fmt::Write;

/// Every byte that is not surely itself as an escape.
fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(byte as char);
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// Publishes, counts and purges it, and sees that nothing else changed.
async fn usable(client: &Client, name: &str) {
    let path = format!("/v1/queues/{}", escaped(name));
    let (status, made) = client.call("PUT", &path, json!({})).await;
    assert_eq!((status, &made["name"]), (201, &json!(name)));
    client.publish(name, json!(name)).await;
    assert_eq!(client.counts(&escaped(name)).await, [0, 1, 0, 0], "{name}");
    assert_eq!(client.receive(name).await["message"], name);
    let body = json!({"confirm": name, "justification": "long enough to count"});
    client.ok(&format!("{path}/purge"), body).await;
    assert_eq!(client.counts("bystander").await, [0, 1, 0, 0], "{name}");
}

async fn a_name_is_refused_or_is_a_queue_of_its_own(client: &Client) {
    client.publish("bystander", json!(1)).await;
    let longest = "q".repeat(80);
    for name in [
        "a--b",
        "a.b",
        "a_b",
        "drop-table",
        "select",
        "null",
        "true",
        "0",
        "messages",
        "dead-letters",
        "selections",
        &longest,
    ] {
        usable(client, name).await;
    }
    let before = client.snapshot().await;
    let long = "q".repeat(200);
    for name in [
        "a/b", "a%2Fb", "a?x=1", "a#b", "..", "%2e%2e", "a..b", "é", "a b", "a'b", "a;--", "a$b",
        "a\"b", "a\\b", "a`b", "a\0b", "a\nb", "a*", "a%", "a:b", "a,b", "a@b", "$1", "{queue}",
        &long,
    ] {
        for path in ["", "/pause", "/purge"] {
            let method = if path.is_empty() { "PUT" } else { "POST" };
            let path = format!("/v1/queues/{}{path}", escaped(name));
            let body = json!({"confirm": name});
            client
                .refused(method, &path, body, 422, "invalid_queue_name")
                .await;
        }
        for path in ["/v1/queue/publish", "/v1/queue/receive"] {
            let mut body = json!({"queue": name});
            if path.ends_with("publish") {
                body["message"] = json!(1);
            }
            let (status, json) = client.post(path, body).await;
            assert_eq!(status, 422, "{name}: {json}");
        }
    }
    assert_eq!(client.snapshot().await, before);
}

async fn capitals_make_another_queue(client: &Client) {
    client.publish("jobs", json!("small")).await;
    client.publish("Jobs", json!("large")).await;
    client.publish("JOBS", json!("all")).await;
    for (name, message) in [("Jobs", "large"), ("jobs", "small"), ("JOBS", "all")] {
        assert_eq!(client.counts(name).await, [0, 1, 0, 0]);
        assert_eq!(client.receive(name).await["message"], message);
    }
    client
        .call("DELETE", "/v1/queues/Jobs?force=true", json!(null))
        .await;
    client
        .refused(
            "GET",
            "/v1/queues/Jobs",
            json!(null),
            404,
            "queue_not_found",
        )
        .await;
    assert_eq!(client.counts("jobs").await, [0, 0, 1, 0]);
}

on_every_store!(
    a_name_is_refused_or_is_a_queue_of_its_own,
    capitals_make_another_queue,
);

//! A page token is good for its own listing, queue, filter and order, and for no other.

use crate::client::{Client, on_every_store};
use serde_json::{Value, json};

/// Listings of which there is more than a page of one entry.
const LISTINGS: &[&str] = &[
    "/v1/queues?",
    "/v1/keys?",
    "/v1/queues/a/messages?",
    "/v1/queues/b/messages?",
    "/v1/queues/a/messages?key=k&",
    "/v1/queues/a/messages?state=delayed&",
    "/v1/queues/a/messages?state=leased&",
    "/v1/queues/a/messages?state=dead&",
    "/v1/queues/a/dead-letters?",
    "/v1/queues/b/dead-letters?",
    "/v1/queues/a/dead-letters?order=newest&",
    "/v1/queues/a/dead-letters?error_code=E1&",
    "/v1/dead-letters?",
    "/v1/redrives?",
    "/v1/redrives?queue=a&",
    "/v1/redrives?queue=a&state=done&",
    "/v1/audit?",
    "/v1/audit?order=oldest&",
    "/v1/audit?queue=a&",
];
/// Listings that are too short for a token of their own.
const SHORT: &[&str] = &[
    "/v1/queues/a/messages?key=other&",
    "/v1/queues/a/messages?client_request_id=r1&",
    "/v1/redrives?queue=b&",
    "/v1/audit?queue=b&action=dead_letter_expired&",
];

/// Makes all of [`LISTINGS`] longer than one entry.
async fn fill(client: &Client) {
    for queue in ["a", "b"] {
        client.queue(queue, json!({})).await;
        client.queue(queue, json!({"max_attempts": 7})).await;
        for _ in 0..2 {
            client.bury(queue, json!(1), "E1", "").await;
        }
    }
    for _ in 0..2 {
        client.publish("a", json!("leased")).await;
    }
    let receive = json!({"queue": "a", "max_messages": 2});
    client.ok("/v1/queue/receive", receive).await;
    for delay in [0, 0, 3_600, 3_600] {
        for queue in ["a", "b"] {
            let body = json!({"queue": queue, "message": 1, "key": "k", "delay_seconds": delay});
            client.ok("/v1/queue/publish", body).await;
        }
    }
    for _ in 0..2 {
        client.ok("/v1/keys", json!({"scopes": ["read"]})).await;
        let selection = json!({"queue": "a"});
        let selection = client.ok("/v1/dead-letters/selections", selection).await;
        let id = &selection["selection_id"];
        let body = json!({"selection_id": id, "expected_count": 2, "dry_run": true});
        let begun = client.ok("/v1/redrives", body).await;
        let path = format!("/v1/redrives/{}", begun["redrive_id"].as_str().unwrap());
        client
            .until(&path, |redrive| redrive["state"] == "done")
            .await;
    }
}

async fn each_is_good_for_its_own_listing_alone(client: &Client) {
    fill(client).await;
    let mut tokens = Vec::new();
    for listing in LISTINGS {
        let path = format!("{listing}page_size=1");
        let (status, page) = client.get(&path).await;
        assert_eq!(status, 200, "{path}: {page}");
        let token = page["next_page_token"].as_str();
        let token = token.unwrap_or_else(|| panic!("{path} has one page: {page}"));
        tokens.push((*listing, token.to_owned()));
    }
    for (of, token) in &tokens {
        for listing in LISTINGS.iter().chain(SHORT) {
            let path = format!("{listing}page_token={token}");
            let (status, page) = client.get(&path).await;
            if of == listing {
                assert_eq!(status, 200, "{path}: {page}");
            } else {
                let said = (status, page["code"].as_str());
                assert_eq!(said, (422, Some("invalid_page_token")), "{of} in {listing}");
                assert_eq!(page["errors"][0]["pointer"], "query:page_token");
            }
        }
    }
    // Another size of the page is the same listing.
    let (of, token) = &tokens[0];
    let (status, page) = client
        .get(&format!("{of}page_size=7&page_token={token}"))
        .await;
    assert_eq!(
        (status, &page["queues"][0]["name"]),
        (200, &json!("b")),
        "{page}"
    );
    assert_eq!(page.get("next_page_token"), None::<&Value>);
}

on_every_store!(each_is_good_for_its_own_listing_alone);

//! How much one caller may take: rates, failed logins, waiting receives, and what is counted of it.

use crate::client::Client;
use quita_api::config::{Config, LimitConfig};
use quita_storage::memory;
use quita_tests::server::TestServer;
use quita_tests::wire::{Answer, Wire};
use serde_json::{Value, json};
use std::time::Duration;

const PUBLISH: &str = "/v1/queue/publish";
const RECEIVE: &str = "/v1/queue/receive";
const BYTES: &str = "quita_body_bytes_in_flight ";
const REQUESTS: &str = "quita_requests_in_flight ";
const WAITING: &str = "quita_waiting_receives ";
/// Longer than anything takes here, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with limits as the command line would set them.
async fn server(settings: &[&str]) -> Client {
    use clap::{Args, Command, FromArgMatches};
    let command = LimitConfig::augment_args(Command::new("quita"));
    let arguments = std::iter::once("quita").chain(settings.iter().copied());
    let matches = command.get_matches_from(arguments);
    let limits = LimitConfig::from_arg_matches(&matches).unwrap();
    let change = move |config: &mut Config| config.limits = limits;
    let server = TestServer::start_with(memory::open(), change).await;
    Client { server }
}

async fn metric(client: &Client, line: &str) -> u64 {
    let text = client.server.get("/metrics").await.text();
    let found = text.lines().find_map(|l| l.strip_prefix(line));
    found
        .unwrap_or_else(|| panic!("{line}: {text}"))
        .trim()
        .parse()
        .unwrap()
}

async fn limited(client: &Client, limit: &str) -> u64 {
    metric(client, &format!("quita_limited_total{{limit=\"{limit}\"}}")).await
}

fn publish() -> String {
    json!({"queue": "q", "message": 1}).to_string()
}

/// A refusal for rate, and its limit.
fn refused(answer: &Answer, limit: &str) {
    let json: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer.status, 429, "{json}");
    assert_eq!(json["code"], "rate_limited");
    assert_eq!(json["limit"], limit);
    assert_eq!(json["effect"], "none");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(wait >= 1);
}

#[tokio::test]
async fn a_publish_over_its_rate_is_refused_and_told_when() {
    let client = server(&["--rate-publish", "0.01:3"]).await;
    for left in [2, 1, 0] {
        let answer = client.server.post(PUBLISH, &publish()).await;
        assert_eq!(answer.status, 201);
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some("\"publish\";q=3;w=300")
        );
        let stands = answer.header("ratelimit").unwrap();
        assert!(
            stands.starts_with(&format!("\"publish\";r={left};t=")),
            "{stands}"
        );
    }
    let answer = client.server.post(PUBLISH, &publish()).await;
    refused(&answer, "publish_rate");
    assert_eq!(answer.header("retry-after"), Some("100"));
    assert!(
        answer
            .header("ratelimit")
            .unwrap()
            .starts_with("\"publish\";r=0;t=")
    );
    assert_eq!(client.counts("q").await[1], 3);
    // Other classes and other keys have buckets of their own, without a limit none is spoken of.
    let other = client.server.post(RECEIVE, r#"{"queue":"q"}"#).await;
    assert_eq!((other.status, other.header("ratelimit")), (200, None));
    assert_eq!(limited(&client, "publish_rate").await, 1);
    assert_eq!(
        metric(&client, "quita_problems_total{code=\"rate_limited\"}").await,
        1
    );
}

#[tokio::test]
async fn a_batch_costs_what_it_holds_and_a_large_one_is_not_refused_for_ever() {
    let client = server(&["--rate-publish", "0.01:3"]).await;
    let batch = |n: usize| {
        let messages = vec![json!({"message": 1}); n];
        json!({"queue": "q", "messages": messages}).to_string()
    };
    let path = "/v1/queue/publish-batch";
    assert_eq!(client.server.post(path, &batch(2)).await.status, 200);
    refused(&client.server.post(path, &batch(2)).await, "publish_rate");
    // It was read before it was refused: that took the last one.
    refused(&client.server.post(path, &batch(1)).await, "publish_rate");
    assert_eq!(client.counts("q").await[1], 2);
    let bad = server(&["--rate-publish", "0.01:1"]).await;
    assert_eq!(bad.server.post(path, "no JSON").await.status, 400);
    refused(&bad.server.post(path, "no JSON").await, "publish_rate");
    let fresh = server(&["--rate-publish", "0.01:3"]).await;
    assert_eq!(fresh.server.post(path, &batch(10)).await.status, 200);
    refused(&fresh.server.post(path, &batch(1)).await, "publish_rate");
}

#[tokio::test]
async fn settles_are_never_refused_and_the_next_receive_waits_for_them() {
    let client = server(&["--rate-receive", "0.01:4"]).await;
    for _ in 0..4 {
        client.publish("q", json!(1)).await;
    }
    let got = client
        .ok(RECEIVE, json!({"queue": "q", "max_messages": 3}))
        .await;
    let receipts = got["messages"].as_array().unwrap();
    assert_eq!(receipts.len(), 3);
    for message in receipts {
        let body = json!({"receipt": message["receipt"]}).to_string();
        let answer = client.server.post("/v1/queue/extend", &body).await;
        assert_eq!(
            answer.status, 422,
            "the length is missing: refused for that, not for rate"
        );
        assert_eq!(client.server.post("/v1/queue/ack", &body).await.status, 200);
    }
    let answer = client.server.post(RECEIVE, r#"{"queue":"q"}"#).await;
    refused(&answer, "receive_rate");
    assert_eq!(client.counts("q").await[..3], [0, 1, 0]);
    assert_eq!(limited(&client, "receive_rate").await, 1);
}

#[tokio::test]
async fn each_message_of_a_receive_counts_also_beyond_the_bucket() {
    let client = server(&["--rate-receive", "0.1:1"]).await;
    for _ in 0..10 {
        client.publish("q", json!(1)).await;
    }
    let body = r#"{"queue":"q","max_messages":10}"#;
    let got = client.server.post(RECEIVE, body).await;
    assert_eq!(got.json()["messages"].as_array().unwrap().len(), 10);
    let answer = client.server.post(RECEIVE, body).await;
    refused(&answer, "receive_rate");
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((95..=100).contains(&wait), "{wait}");
    let stands = format!("\"receive\";r=0;t={wait}");
    assert_eq!(answer.header("ratelimit"), Some(&*stands));
}

#[tokio::test]
async fn what_is_refused_inside_a_batch_is_counted() {
    let client = server(&[]).await;
    client
        .queue("q", json!({"max_depth": 1, "max_message_bytes": 100}))
        .await;
    let large = "x".repeat(200);
    let batch =
        json!({"queue": "q", "messages": [{"message": 1}, {"message": 2}, {"message": large}]});
    let (status, json) = client.post("/v1/queue/publish-batch", batch).await;
    assert_eq!((status, &json["rejected"]), (200, &json!(2)));
    assert_eq!(limited(&client, "queue_depth").await, 1);
    assert_eq!(limited(&client, "payload_size").await, 1);
    let bad = json!({"settlements": [{"receipt": "x", "action": "ack"}]});
    assert_eq!(client.post("/v1/queue/settle", bad).await.0, 200);
    assert_eq!(
        metric(&client, "quita_problems_total{code=\"invalid_receipt\"}").await,
        1
    );
}

#[tokio::test]
async fn lists_and_changes_have_rates_of_their_own() {
    let client = server(&["--rate-listing", "0.01:1", "--rate-management", "0.01:1"]).await;
    assert_eq!(client.server.get("/v1/queues").await.status, 200);
    refused(&client.server.get("/v1/queues").await, "listing_rate");
    assert_eq!(client.raw("PUT", "/v1/queues/a", "{}").await.status, 201);
    refused(
        &client.raw("PUT", "/v1/queues/b", "{}").await,
        "management_rate",
    );
    assert_eq!(client.server.post(PUBLISH, &publish()).await.status, 201);
}

#[tokio::test]
async fn wrong_keys_from_one_address_are_slowed_and_good_ones_are_not() {
    let client = server(&["--rate-failed-logins", "20"]).await;
    let knock = async |authorization: &str| {
        let mut wire = client.server.wire().await;
        wire.send(format!(
            "GET /v1/queues HTTP/1.1\r\nhost: test\r\n{authorization}\r\n"
        ))
        .await;
        wire.answer().await
    };
    // Who sends nothing does not guess.
    for _ in 0..30 {
        assert_eq!(knock("").await.status, 401);
    }
    let wrong = format!("authorization: Bearer {}x\r\n", &client.server.key);
    let token = "authorization: Bearer eyJhbGciOiJub25lIn0.e30.\r\n";
    for n in 0..20 {
        let answer = knock(if n % 2 == 0 { &wrong } else { token }).await;
        assert_eq!(answer.status, 401);
    }
    for authorization in [&*wrong, token] {
        let answer = knock(authorization).await;
        let json = answer.json();
        assert_eq!(
            (answer.status, &json["code"]),
            (429, &json!("too_many_failed_logins"))
        );
        assert_eq!(
            (&json["limit"], &json["retryable"]),
            (&json!("failed_logins"), &json!(false))
        );
        assert!(answer.header("retry-after").is_some());
        assert!(
            answer
                .header("www-authenticate")
                .unwrap()
                .contains("invalid_token")
        );
    }
    assert_eq!(client.server.get("/v1/queues").await.status, 200);
    assert_eq!(limited(&client, "failed_logins").await, 2);
}

#[tokio::test]
async fn receives_that_wait_are_bounded_for_each_key() {
    let client = server(&["--max-waiting-receives-per-key", "1"]).await;
    client.queue("q", json!({})).await;
    let body = r#"{"queue":"q","wait_seconds":30}"#;
    let mut first = client.server.wire().await;
    let headers = quita_tests::server::json_headers(&client.server.key);
    first.request("POST", RECEIVE, &headers, body).await;
    while metric(&client, "quita_waiting_receives ").await == 0 {
        tokio::task::yield_now().await;
    }
    let second = client.server.post(RECEIVE, body).await;
    refused(&second, "waiting_receives_per_key");
    let empty = client.server.post(RECEIVE, r#"{"queue":"q"}"#).await;
    assert_eq!(empty.status, 200, "one that does not wait needs no place");
    client.publish("q", json!(7)).await;
    assert_eq!(first.answer().await.json()["messages"][0]["message"], 7);
    assert_eq!(metric(&client, "quita_waiting_receives ").await, 0);
}

#[tokio::test]
async fn the_waiting_place_of_a_key_comes_back_when_its_connection_is_cut() {
    let client = server(&["--max-waiting-receives-per-key", "1"]).await;
    client.queue("q", json!({})).await;
    let body = r#"{"queue":"q","wait_seconds":30}"#;
    let headers = quita_tests::server::json_headers(&client.server.key);
    for politely in [true, false] {
        let mut waiting = client.server.wire().await;
        waiting.request("POST", RECEIVE, &headers, body).await;
        until(&client, WAITING, 1).await;
        let second = client.server.post(RECEIVE, body).await;
        refused(&second, "waiting_receives_per_key");
        if politely {
            drop(waiting);
        } else {
            waiting.reset();
        }
        until(&client, WAITING, 0).await;
    }
    // The next one waits, and gets what comes.
    let mut next = client.server.wire().await;
    next.request("POST", RECEIVE, &headers, body).await;
    until(&client, WAITING, 1).await;
    client.publish("q", json!(7)).await;
    assert_eq!(next.answer().await.json()["messages"][0]["message"], 7);
}

#[tokio::test]
async fn gauges_return_when_clients_hang_up_in_the_middle() {
    const EACH: u64 = 64;
    let client = server(&[]).await;
    client.queue("q", json!({})).await;
    let headers = quita_tests::server::json_headers(&client.server.key);
    let (mut publishing, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..EACH {
        let mut wire = client.server.wire().await;
        let head = format!("POST {PUBLISH} HTTP/1.1\r\nhost: test\r\n{headers}");
        wire.send(format!("{head}content-length: 100\r\n\r\n{{"))
            .await;
        publishing.push(wire);
        let mut wire = client.server.wire().await;
        let body = r#"{"queue":"q","wait_seconds":30}"#;
        wire.request("POST", RECEIVE, &headers, body).await;
        waiting.push(wire);
    }
    // And the one that asks.
    until(&client, REQUESTS, EACH + 1).await;
    until(&client, WAITING, EACH).await;
    for (n, wire) in publishing.into_iter().chain(waiting).enumerate() {
        if n % 2 == 0 { wire.reset() } else { drop(wire) }
    }
    until(&client, REQUESTS, 1).await;
    until(&client, WAITING, 0).await;
    until(&client, BYTES, 0).await;
    assert_eq!(client.counts("q").await, [0; 4]);
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_a_settle_still_gets_in() {
    let client = server(&["--max-requests", "1"]).await;
    client.publish("q", json!(1)).await;
    let receipt = client.receipt("q").await;
    // A publish whose body is still to come is in flight.
    let mut slow = client.server.wire().await;
    let key = &client.server.key;
    slow.send(format!(
        "POST {PUBLISH} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        publish().len()
    ))
    .await;
    // Told to go on: its body is being read.
    assert_eq!(slow.answer().await.status, 100);
    let (status, json) = client
        .post(PUBLISH, json!({"queue": "q", "message": 2}))
        .await;
    assert_eq!(
        (status, &json["code"], &json["limit"]),
        (503, &json!("overloaded"), &json!("requests"))
    );
    let body = json!({ "receipt": receipt });
    assert_eq!(client.post("/v1/queue/ack", body).await.0, 200);
    // Who watches sees it, too.
    assert_eq!(metric(&client, "quita_requests_in_flight ").await, 1);
    slow.send(publish()).await;
    assert_eq!(slow.answer().await.status, 201);
    assert_eq!(limited(&client, "requests").await, 1);
    assert_eq!(metric(&client, "quita_requests_in_flight ").await, 0);
}

/// A request of which `megabytes` of an unfinished body have come.
async fn half_sent(client: &Client, path: &str, megabytes: usize) -> Wire {
    let mut wire = client.server.wire().await;
    let headers = quita_tests::server::json_headers(&client.server.key);
    wire.send(format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\n{headers}transfer-encoding: chunked\r\n\r\n"
    ))
    .await;
    let chunk = [b"100000\r\n", &*vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..megabytes {
        // A server that has refused it reads no further.
        let _ = wire.try_send(&chunk).await;
    }
    wire
}

async fn until(client: &Client, gauge: &str, wanted: u64) {
    let began = std::time::Instant::now();
    loop {
        let is = metric(client, gauge).await;
        if is == wanted {
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{gauge}is {is} and not {wanted}"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bytes_of_bodies_in_flight_are_bounded_and_given_back() {
    const BATCH: &str = "/v1/queue/publish-batch";
    let client = server(&["--max-body-bytes", "16777216"]).await;
    let first = half_sent(&client, BATCH, 7).await;
    let second = half_sent(&client, BATCH, 7).await;
    until(&client, BYTES, 14 << 20).await;
    // No length told the server how much was to come.
    let mut third = half_sent(&client, BATCH, 3).await;
    let answer = third.answer().await;
    let json = answer.json();
    assert_eq!(
        (answer.status, &json["code"], &json["limit"]),
        (503, &json!("overloaded"), &json!("bodies_in_flight"))
    );
    assert_eq!(json["effect"], "none");
    assert!(answer.header("retry-after").is_some());
    until(&client, BYTES, 14 << 20).await;
    assert_eq!(limited(&client, "bodies_in_flight").await, 1);
    // What fits still comes in, and a settle also beyond.
    assert_eq!(client.server.post(PUBLISH, &publish()).await.status, 201);
    let mut settle = half_sent(&client, "/v1/queue/settle", 7).await;
    until(&client, BYTES, 21 << 20).await;
    let refused = client.server.post(PUBLISH, &publish()).await;
    assert_eq!(refused.json()["limit"], "bodies_in_flight");
    settle
        .send("13\r\n{\"settlements\": []}\r\n0\r\n\r\n")
        .await;
    assert_eq!(
        settle.answer().await.json()["errors"][0]["code"],
        "batch_size"
    );
    until(&client, BYTES, 14 << 20).await;
    // Whoever hangs up has nothing any more, politely or not.
    first.reset();
    drop(second);
    until(&client, BYTES, 0).await;
    assert_eq!(client.server.post(PUBLISH, &publish()).await.status, 201);
}

#[tokio::test]
async fn counts_come_in_both_formats_and_only_to_who_may_read_everything() {
    let client = server(&[]).await;
    let text = client.server.get("/metrics").await;
    assert_eq!(
        text.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(text.text().contains("# TYPE quita_limited_total counter"));
    let accept = "accept: application/openmetrics-text; version=1.0.0\r\n";
    let open = client.send("GET", "/metrics", accept, b"").await;
    assert_eq!(
        open.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(open.text().ends_with("# EOF\n"));
}

//! Bad requests and what they get. Each row is sent to each store: the answer is a problem with this status and code, comes
//! within a second, repeats nothing of what was sent, and changes nothing.

pub(crate) mod access;
mod bulk;
mod credentials;
mod desk;
mod json;
mod names;
mod queues;

use crate::client::{Client, checked, on_every_store};
use quita_tests::server::TestServer;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A text that is part of many rows and of no answer.
const MARK: &str = "zqx<b>";
const JSON: &str = "content-type: application/json\r\n";
const PUBLISH: &str = "/v1/queue/publish";
const RECEIVE: &str = "/v1/queue/receive";
const ACK: &str = "/v1/queue/ack";

struct Row {
    name: String,
    method: &'static str,
    path: String,
    headers: String,
    body: Vec<u8>,
    status: u16,
    code: &'static str,
}

#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    #[expect(clippy::too_many_arguments, reason = "one column each")]
    fn add(
        &mut self,
        name: &str,
        method: &'static str,
        path: &str,
        headers: &str,
        body: impl AsRef<[u8]>,
        status: u16,
        code: &'static str,
    ) {
        self.0.push(Row {
            name: name.to_owned(),
            method,
            path: path.to_owned(),
            headers: headers.to_owned(),
            body: body.as_ref().to_vec(),
            status,
            code,
        });
    }

    fn post(
        &mut self,
        name: &str,
        path: &str,
        body: impl AsRef<[u8]>,
        status: u16,
        code: &'static str,
    ) {
        self.add(name, "POST", path, JSON, body, status, code);
    }

    /// A publish with one more member.
    fn member(&mut self, name: &str, member: &str, status: u16, code: &'static str) {
        let body = format!("{{\"queue\":\"there\",\"message\":1,{member}}}");
        self.post(name, PUBLISH, body, status, code);
    }

    fn get(&mut self, name: &str, path: &str, status: u16, code: &'static str) {
        self.add(name, "GET", path, "", "", status, code);
    }
}

/// What is sent byte by byte: no length that could be right, or no body at all.
async fn heads_are_answered_before_the_body_comes(client: &Client) {
    let key = &client.server.key;
    for (path, extra, status, code) in [
        (
            PUBLISH,
            "content-length: 10737418240\r\n",
            413,
            "body_too_large",
        ),
        (
            PUBLISH,
            "expect: 100-continue\r\ncontent-length: 10737418240\r\n",
            413,
            "body_too_large",
        ),
        (
            "/v1/queue/publish-batch",
            "content-length: 20971520\r\n",
            413,
            "body_too_large",
        ),
        (
            PUBLISH,
            "expect: 200-ok\r\ncontent-length: 2\r\n",
            417,
            "expectation_failed",
        ),
    ] {
        let mut wire = client.server.wire().await;
        let began = Instant::now();
        wire.send(format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{JSON}{extra}\r\n"
        ))
        .await;
        let (got, json) = checked(&wire.answer().await);
        assert_eq!((got, json["code"].as_str()), (status, Some(code)));
        assert!(began.elapsed() < Duration::from_secs(1));
    }
}

async fn a_chunked_body_over_the_limit_is_cut_off(client: &Client) {
    let mut wire = client.server.wire().await;
    let key = &client.server.key;
    wire.send(format!("POST {PUBLISH} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{JSON}transfer-encoding: chunked\r\n\r\n")).await;
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16));
    for _ in 0..64 {
        if wire.try_send(&chunk).await.is_err() {
            break;
        }
    }
    let (status, json) = checked(&wire.answer().await);
    assert_eq!((status, &json["code"]), (413, &json!("body_too_large")));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = TestServer::start_with(quita_storage::memory::open(), |config| {
        config.body_timeout_seconds = Duration::from_millis(300);
    })
    .await;
    let mut wire = server.wire().await;
    let headers = format!("{JSON}authorization: Bearer {}\r\n", server.key);
    wire.send(format!(
        "POST {PUBLISH} HTTP/1.1\r\nhost: test\r\n{headers}content-length: 9\r\n\r\n{{"
    ))
    .await;
    let (status, json) = checked(&wire.answer().await);
    assert_eq!((status, &json["code"]), (408, &json!("request_timeout")));
    server.stop().await;
}

async fn every_bad_request_is_refused_and_changes_nothing(client: &Client) {
    let live = client.publish("there", json!("live")).await;
    client.queue("other", json!({})).await;
    client.queue("full", json!({"max_depth": 1})).await;
    client.publish("full", json!(1)).await;
    client
        .ok(
            PUBLISH,
            json!({"queue": "there", "message": "first", "client_request_id": "taken"}),
        )
        .await;
    // Its name is repeated, so that no patch can be applied to it.
    let grave = r#"{"queue":"grave","message":{"a":1,"a":2}}"#;
    client.raw("POST", PUBLISH, grave).await;
    client.nack_for_good("grave", "E1", "").await;
    let (_, page) = client.get("/v1/queues/grave/dead-letters").await;
    let dead = Client::ids(&page).remove(0);
    let body = json!({"queue": "grave"});
    let selection = client.ok("/v1/dead-letters/selections", body).await["selection_id"].clone();
    let body = json!({"selection_id": selection, "expected_count": 1, "dry_run": true});
    let redrive = client.ok("/v1/redrives", body).await["redrive_id"].clone();
    let named = |text: &str| {
        text.replace("{live}", &live)
            .replace("{dead}", &dead)
            .replace("{selection}", selection.as_str().unwrap())
            .replace("{redrive}", redrive.as_str().unwrap())
    };
    let over = named("/v1/redrives/{redrive}");
    client
        .until(&over, |redrive| redrive["state"] == "done")
        .await;
    let trail = "/v1/audit?page_size=500";
    let before = (client.snapshot().await, client.get(trail).await);
    let mut wrong = String::new();
    let mut sent = 0;
    for row in json::rows()
        .0
        .into_iter()
        .chain(names::rows().0)
        .chain(queues::rows().0)
        .chain(desk::rows().0)
        .chain(bulk::rows().0)
    {
        sent += 1;
        let path = named(&row.path);
        let body = match std::str::from_utf8(&row.body) {
            Ok(text) if text.contains("{selection}") => named(text).into_bytes(),
            _ => row.body.clone(),
        };
        let began = Instant::now();
        let answer = client.send(row.method, &path, &row.headers, &body).await;
        let took = began.elapsed();
        let (status, json) = checked(&answer);
        let shown = String::from_utf8_lossy(&row.body[..row.body.len().min(120)]).into_owned();
        let path = &path[..path.len().min(120)];
        if (status, json["code"].as_str()) != (row.status, Some(row.code)) {
            let _ = writeln!(
                wrong,
                "{}: {} {path} {shown}\n  wanted {} {}\n  got {status} {json}",
                row.name, row.method, row.status, row.code
            );
        }
        if json["effect"] != "none"
            || answer.text().contains("zqx")
            || took > Duration::from_secs(1)
        {
            let _ = writeln!(
                wrong,
                "{}: {} {path} {shown}\n  {took:?} {json}",
                row.name, row.method
            );
        }
        if status == 405 && answer.header("allow").is_none() {
            let _ = writeln!(wrong, "{}: no Allow", row.name);
        }
    }
    println!("{sent} rows");
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!((client.snapshot().await, client.get(trail).await), before);
}

/// Rows that look bad and are not.
async fn what_only_looks_bad_is_accepted(client: &Client) {
    client.queue("there", json!({})).await;
    let ok = async |path: &str, body: &str| {
        let answer = client.raw("POST", path, body).await;
        assert!(answer.status < 300, "{body}: {}", answer.text());
        checked(&answer).1
    };
    for member in [
        "\"delay_seconds\":-0",
        "\"delay_seconds\":1.5",
        "\"client_request_id\":\"a\\u0000b\"",
        "\"max_attempts\":1e1",
        "\"headers\":{}",
    ] {
        ok(
            PUBLISH,
            &format!("{{\"queue\":\"there\",\"message\":\"\\u0000\\ud800\",{member}}}"),
        )
        .await;
    }
    // A12: a number in a message is nobody's business.
    for number in ["1e400", &"9".repeat(100_000), "-0", "1E+2"] {
        ok(
            PUBLISH,
            &format!("{{\"queue\":\"there\",\"message\":{number}}}"),
        )
        .await;
    }
    // A18: an error of a worker is cleaned.
    client.publish("nacked", json!(1)).await;
    let receipt = client.receipt("nacked").await;
    let nack = format!(
        "{{\"receipt\":\"{receipt}\",\"error\":{{\"code\":\"E1\",\"detail\":\"a\\u0000b\"}}}}"
    );
    ok("/v1/queue/nack", &nack).await;
    for media_type in ["application/json; charset=utf-8", "APPLICATION/JSON"] {
        let headers = format!("content-type: {media_type}\r\n");
        let answer = client
            .send(
                "POST",
                PUBLISH,
                &headers,
                br#"{"queue":"there","message":1}"#,
            )
            .await;
        assert_eq!(answer.status, 201);
    }
    // B13, B14: filters are compared, not run.
    for filter in [
        "%27%20OR%201=1%20--",
        "1;%20select%20pg_sleep(5)",
        "(a%2B)%2B$",
    ] {
        let began = Instant::now();
        let (status, json) = client
            .get(&format!("/v1/queues/there/messages?key={filter}"))
            .await;
        assert_eq!((status, &json["messages"]), (200, &json!([])));
        assert!(began.elapsed() < Duration::from_secs(1));
    }
    // B24: no grants to other origins.
    let answer = client
        .send(
            "OPTIONS",
            PUBLISH,
            "origin: https://evil.example\r\naccess-control-request-method: POST\r\n",
            b"",
        )
        .await;
    assert_eq!(answer.status, 204);
    assert!(!answer.head.to_lowercase().contains("access-control"));
    assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
    // C29: a paused queue takes messages.
    client.ok("/v1/queues/there/pause", Value::Null).await;
    ok(PUBLISH, r#"{"queue":"there","message":1}"#).await;
    // E17: upgrades are not offered.
    let headers = "connection: upgrade\r\nupgrade: websocket\r\n";
    assert_eq!(
        client.send("GET", "/v1/queues", headers, b"").await.status,
        200
    );
}

on_every_store!(
    every_bad_request_is_refused_and_changes_nothing,
    heads_are_answered_before_the_body_comes,
    a_chunked_body_over_the_limit_is_cut_off,
    what_only_looks_bad_is_accepted,
);

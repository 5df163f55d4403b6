//! Bad requests and what they get. Each row is sent to each store: the answer is a problem with this status and code, comes
//! within a second, repeats nothing of what was sent, and changes nothing.

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

fn json_rows() -> Rows {
    let mut rows = Rows::default();
    rows.post("A1", PUBLISH, "", 400, "body_required");
    rows.post("A2", PUBLISH, "{\"message\":", 400, "malformed_json");
    for body in [
        "{} x",
        "{}{}",
        "{\"queue\":\"q\",}",
        "{/* */}",
        "// x\n{}",
        "{'queue':1}",
        "{queue:1}",
        MARK,
    ] {
        rows.post("A3 A4", PUBLISH, body, 400, "malformed_json");
    }
    for body in ["[]", "\"x\"", "null", "1"] {
        rows.post("A5", PUBLISH, body, 422, "expected_object");
    }
    rows.post(
        "A6",
        PUBLISH,
        r#"{"queue":"there","message":1,"message":2}"#,
        400,
        "duplicate_field",
    );
    rows.member(
        "A6",
        r#""headers":{"a":"1","a":"2"}"#,
        400,
        "duplicate_field",
    );
    rows.member("A8", r#""dealy_seconds":1"#, 422, "unknown_field");
    rows.member("A8", &format!("\"{MARK}\":1"), 422, "unknown_field");
    for member in [
        "\"attempt\":0",
        "\"tenant_id\":\"b\"",
        "\"message_id\":\"msg_1\"",
        "\"receipt\":\"x\"",
        "\"fence\":1",
    ] {
        rows.member("A9", member, 422, "unknown_field");
    }
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    rows.member(
        "A10",
        &format!("\"headers\":{}", nested(64)),
        400,
        "nesting_too_deep",
    );
    rows.post(
        "A10",
        PUBLISH,
        format!("{{\"queue\":\"there\",\"message\":{}}}", nested(129)),
        400,
        "nesting_too_deep",
    );
    rows.post("A10", PUBLISH, "[".repeat(100_000), 400, "nesting_too_deep");
    rows.post(
        "A10",
        "/v1/queue/publish-batch",
        format!("{{\"queue\":\"there\",\"messages\":{}}}", nested(200)),
        400,
        "nesting_too_deep",
    );
    for number in ["NaN", "Infinity", "-Infinity", "+1", "01", ".5", "0x1"] {
        rows.member(
            "A11",
            &format!("\"delay_seconds\":{number}"),
            400,
            "malformed_json",
        );
    }
    for number in [
        "1e400",
        &"9".repeat(100_000),
        "9007199254740993",
        "18446744073709551616",
        "-1",
        "604800.001",
    ] {
        rows.member(
            "A12 A13 A15 A16",
            &format!("\"delay_seconds\":{number}"),
            422,
            "out_of_range",
        );
    }
    for value in ["\"5\"", "true", "[5]", "null", "{}"] {
        rows.member(
            "A14",
            &format!("\"delay_seconds\":{value}"),
            422,
            "wrong_type",
        );
    }
    for value in ["0", "1001", "-5"] {
        rows.member(
            "A17",
            &format!("\"max_attempts\":{value}"),
            422,
            "out_of_range",
        );
    }
    rows.member("A17", "\"max_attempts\":1.5", 422, "wrong_type");
    rows.member("priority", "\"priority\":10", 422, "out_of_range");
    rows.post(
        "A18",
        PUBLISH,
        r#"{"queue":"a\u0000b","message":1}"#,
        422,
        "control_character",
    );
    rows.member("A18", r#""key":"a\u0000b""#, 422, "control_character");
    rows.member(
        "A18",
        r#""headers":{"a":"\u0000"}"#,
        422,
        "control_character",
    );
    rows.member(
        "A18",
        r#""headers":{"\u0000":"a"}"#,
        422,
        "control_character",
    );
    rows.post(
        "A18",
        "/v1/messages/{live}/cancel",
        r#"{"justification":"abcdefghij\u0000klm"}"#,
        422,
        "control_character",
    );
    rows.post(
        "A20",
        PUBLISH,
        r#"{"queue":"\ud800","message":1}"#,
        422,
        "invalid_unicode",
    );
    for member in [
        r#""client_request_id":"\ud800""#,
        r#""key":"\udc00""#,
        r#""headers":{"a":"\ud800"}"#,
        r#""headers":{"\ud800":"a"}"#,
    ] {
        rows.member("A20", member, 422, "invalid_unicode");
    }
    for bytes in [
        &b"\xff\xfe"[..],
        b"{\"queue\":\"\xc0\x80\"}",
        b"{\"queue\":\"\xed\xa0\x80\"}",
        b"{\"message\":\"\xf4\x90\x80\x80\"}",
    ] {
        rows.post("A21", PUBLISH, bytes, 400, "invalid_utf8");
    }
    let big = format!(
        "{{\"queue\":\"there\",\"message\":\"{}\"}}",
        "x".repeat(262_143)
    );
    rows.post("A24", PUBLISH, big, 413, "payload_too_large");
    for headers in [
        "content-type: text/plain\r\n",
        "",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: multipart/form-data; boundary=x\r\n",
        "content-type: application/xml\r\n",
        "content-type: application/json; charset=utf-16\r\n",
    ] {
        rows.add(
            "A28 A30",
            "POST",
            PUBLISH,
            headers,
            "{}",
            415,
            "unsupported_media_type",
        );
    }
    for encoding in ["gzip", "br", "gzip, gzip"] {
        rows.add(
            "A31",
            "POST",
            PUBLISH,
            &format!("{JSON}content-encoding: {encoding}\r\n"),
            "x",
            415,
            "unsupported_encoding",
        );
    }
    for path in [
        "/v1/queues",
        "/v1/queues/there",
        "/v1/queues/there/messages",
        "/v1/messages/{live}",
        "/healthz",
        "/problems",
    ] {
        rows.add("A35", "GET", path, JSON, "{}", 400, "body_not_allowed");
    }
    rows.add(
        "A35",
        "DELETE",
        "/v1/queues/there",
        JSON,
        "{}",
        400,
        "body_not_allowed",
    );
    rows
}

fn name_rows() -> Rows {
    let mut rows = Rows::default();
    let (long, longest) = ("q".repeat(81), "q".repeat(129));
    for name in [
        "", ".", "..", "-x", "_x", "a..b", "a b", "a/b", "ä", &long, &longest,
    ] {
        let queue = json!(name);
        rows.post(
            "B1",
            PUBLISH,
            json!({"queue": queue, "message": 1}).to_string(),
            422,
            "invalid_queue_name",
        );
        rows.post(
            "B1",
            RECEIVE,
            json!({"queue": queue}).to_string(),
            422,
            "invalid_queue_name",
        );
    }
    rows.get("B2", "/v1/queues/a/b", 404, "not_found");
    for name in [
        "a%2Fb",
        "a%252Fb",
        "..%2f..%2fetc%2fpasswd",
        "..;%2Fadmin",
        "-x",
        "%20",
        "%00",
        "a%0d%0ab",
    ] {
        rows.get(
            "B2 B3",
            &format!("/v1/queues/{name}"),
            422,
            "invalid_queue_name",
        );
        rows.add(
            "B2 B3",
            "PUT",
            &format!("/v1/queues/{name}"),
            JSON,
            "{}",
            422,
            "invalid_queue_name",
        );
    }
    rows.get("B2", "/v1/queues/%ff", 422, "invalid_unicode");
    let (ones, other) = ("1".repeat(26), "k".repeat(26));
    for id in [
        "1",
        &ones,
        &other,
        "key_0123456789abc",
        "msg_0123456789ABC",
        "msg_zzzzzzzzzzzzz",
        "msg_01234567",
        "%00",
        "..%2f",
    ] {
        rows.get("B9", &format!("/v1/messages/{id}"), 404, "not_found");
        rows.post(
            "B9",
            &format!("/v1/messages/{id}/promote"),
            "{}",
            404,
            "not_found",
        );
    }
    rows.post(
        "B10",
        "/v1/queues/other/dead-letters/{live}/redrive",
        "{}",
        404,
        "not_found",
    );
    rows.get("B11", "/docs/..%2f..%2fCargo.toml", 404, "not_found");
    rows.get("B11", "/problems/..%2f", 404, "not_found");
    let long = "x".repeat(5_000);
    for parameter in ["key", "client_request_id"] {
        rows.get(
            "B14",
            &format!("/v1/queues/there/messages?{parameter}={long}"),
            422,
            "too_long",
        );
    }
    for (size, code) in [
        ("0", "out_of_range"),
        ("-1", "out_of_range"),
        ("501", "out_of_range"),
        ("9223372036854775808", "out_of_range"),
        ("1e3", "wrong_type"),
        ("abc", "wrong_type"),
        ("", "wrong_type"),
        ("1.5", "wrong_type"),
    ] {
        rows.get("B15", &format!("/v1/queues?page_size={size}"), 422, code);
        rows.get(
            "B15",
            &format!("/v1/queues/there/messages?page_size={size}"),
            422,
            code,
        );
    }
    for token in ["x", "AAAA", "AQ", "%00", &"A".repeat(2_000)] {
        rows.get(
            "page token",
            &format!("/v1/queues/there/messages?page_token={token}"),
            422,
            "invalid_page_token",
        );
        rows.get(
            "page token",
            &format!("/v1/queues?page_token={token}-"),
            422,
            "invalid_page_token",
        );
    }
    for query in [
        "tenant=b",
        "message_id=x",
        "sort=created_at;drop",
        "sort=x",
        "Key=1",
        "zqx%3Cb%3E=1",
    ] {
        rows.get(
            "B17 B19",
            &format!("/v1/queues/there/messages?{query}"),
            422,
            "unknown_parameter",
        );
        rows.get(
            "B17",
            &format!("/v1/queues/there?{query}"),
            422,
            "unknown_parameter",
        );
        rows.post(
            "B17",
            &format!("{PUBLISH}?{query}"),
            r#"{"queue":"there","message":1}"#,
            422,
            "unknown_parameter",
        );
    }
    rows.get(
        "state",
        "/v1/queues/there/messages?state=ended",
        422,
        "invalid_value",
    );
    rows.get(
        "state",
        "/v1/queues/there/messages?state=ready&state=dead",
        422,
        "invalid_value",
    );
    for path in [
        "/v1//queues",
        "/v1/queues/./x",
        "/v1/queues/",
        "/V1/queues",
        "/v1",
        "/",
        "/v1/queues/there/",
        "//v1/queues",
    ] {
        rows.get("B21", path, 404, "not_found");
    }
    for method in ["PUT", "GET", "DELETE", "TRACE", "FOO"] {
        rows.add("B22", method, PUBLISH, "", "", 405, "method_not_allowed");
    }
    rows.add(
        "B22",
        "POST",
        "/v1/queues",
        JSON,
        "{}",
        405,
        "method_not_allowed",
    );
    rows.add(
        "B22",
        "CONNECT",
        "example.org:443",
        "",
        "",
        405,
        "method_not_allowed",
    );
    rows
}

fn queue_rows() -> Rows {
    let mut rows = Rows::default();
    rows.member("C1", "\"client_request_id\":\"\"", 422, "out_of_range");
    rows.member(
        "C1",
        &format!("\"client_request_id\":\"{}\"", "x".repeat(129)),
        422,
        "out_of_range",
    );
    rows.member(
        "C2",
        "\"client_request_id\":\"taken\"",
        422,
        "client_request_id_conflict",
    );
    rows.member("key", "\"key\":\"\"", 422, "out_of_range");
    rows.member(
        "key",
        &format!("\"key\":\"{}\"", "x".repeat(257)),
        422,
        "out_of_range",
    );
    let mut headers = String::new();
    for n in 0..33 {
        let _ = write!(headers, "{}\"h{n}\":\"\"", if n == 0 { "" } else { "," });
    }
    rows.member(
        "headers",
        &format!("\"headers\":{{{headers}}}"),
        422,
        "out_of_range",
    );
    rows.member(
        "headers",
        &format!("\"headers\":{{\"a\":\"{}\"}}", "x".repeat(1_025)),
        422,
        "too_long",
    );
    rows.member("headers", "\"headers\":{\"a\":1}", 422, "wrong_type");
    rows.member("headers", "\"headers\":[]", 422, "wrong_type");
    rows.member("expiry", "\"expires_in_seconds\":0", 422, "out_of_range");
    rows.member(
        "expiry",
        "\"expires_in_seconds\":5,\"delay_seconds\":5",
        422,
        "out_of_range",
    );
    rows.member(
        "backoff",
        "\"backoff\":{\"type\":\"linear\"}",
        422,
        "invalid_value",
    );
    rows.post(
        "missing",
        PUBLISH,
        r#"{"queue":"there"}"#,
        422,
        "missing_field",
    );
    rows.post("missing", PUBLISH, r#"{"message":1}"#, 422, "missing_field");
    let id = format!("{JSON}idempotency-key: other\r\n");
    rows.add(
        "C4",
        "POST",
        PUBLISH,
        &id,
        r#"{"queue":"there","message":1,"client_request_id":"x"}"#,
        422,
        "mutually_exclusive",
    );
    rows.add(
        "C4",
        "POST",
        "/v1/queue/publish-batch",
        &id,
        r#"{"queue":"there","messages":[{"message":1}]}"#,
        422,
        "mutually_exclusive",
    );
    let entries = |n: usize| {
        let entries = vec!["{\"message\":1}"; n].join(",");
        format!("{{\"queue\":\"there\",\"messages\":[{entries}]}}")
    };
    rows.post(
        "C5",
        "/v1/queue/publish-batch",
        entries(0),
        422,
        "batch_size",
    );
    rows.post(
        "C5",
        "/v1/queue/publish-batch",
        entries(1_001),
        422,
        "batch_size",
    );
    rows.post(
        "C5",
        "/v1/queue/publish-batch",
        format!(
            "{{\"queue\":\"there\",\"messages\":[{}0]}}",
            "0,".repeat(2_000_000)
        ),
        422,
        "batch_size",
    );
    rows.post(
        "C5",
        "/v1/queue/publish-batch",
        r#"{"queue":"there","messages":{}}"#,
        422,
        "wrong_type",
    );
    for member in [
        "\"max_messages\":0",
        "\"max_messages\":101",
        "\"wait_seconds\":-1",
        "\"wait_seconds\":31",
        "\"visibility_timeout_seconds\":0",
        "\"visibility_timeout_seconds\":0.999",
        "\"visibility_timeout_seconds\":43201",
    ] {
        rows.post(
            "C9 C10",
            RECEIVE,
            format!("{{\"queue\":\"there\",{member}}}"),
            422,
            "out_of_range",
        );
    }
    for receipt in ["", "x", "!!!", &"A".repeat(60), &"A".repeat(1 << 20), MARK] {
        let body = json!({"receipt": receipt}).to_string();
        for verb in ["ack", "nack", "release"] {
            rows.post(
                "C12",
                &format!("/v1/queue/{verb}"),
                &body,
                422,
                "invalid_receipt",
            );
        }
    }
    rows.post(
        "C12",
        "/v1/queue/extend",
        r#"{"receipt":"x","visibility_timeout_seconds":1}"#,
        422,
        "invalid_receipt",
    );
    rows.post("receipt", ACK, "{}", 422, "missing_field");
    rows.post("receipt", ACK, r#"{"receipt":7}"#, 422, "wrong_type");
    rows.post(
        "extend",
        "/v1/queue/extend",
        r#"{"receipt":"x"}"#,
        422,
        "missing_field",
    );
    let settlements = vec!["{}"; 1_001].join(",");
    rows.post(
        "C21",
        "/v1/queue/settle",
        format!("{{\"settlements\":[{settlements}]}}"),
        422,
        "batch_size",
    );
    rows.post(
        "C21",
        "/v1/queue/settle",
        r#"{"settlements":[]}"#,
        422,
        "batch_size",
    );
    rows.post(
        "C23",
        "/v1/queues/there/dead-letters/msg_0000000000001/redrive",
        "{}",
        404,
        "not_found",
    );
    rows.post(
        "C23",
        "/v1/queues/there/dead-letters/{live}/redrive",
        "{}",
        409,
        "not_dead",
    );
    rows.post(
        "C23",
        "/v1/queues/there/dead-letters/{live}/discard",
        r#"{"justification":"long enough to count"}"#,
        409,
        "not_dead",
    );
    for body in [
        "{}",
        r#"{"justification":""}"#,
        r#"{"justification":"              "}"#,
        r#"{"justification":"123456789 "}"#,
    ] {
        rows.post(
            "C24",
            "/v1/queues/there/dead-letters/{live}/discard",
            body,
            422,
            "reason_required",
        );
    }
    for body in ["{}", r#"{"confirm":"other"}"#, r#"{"confirm":""}"#] {
        rows.post(
            "C25",
            "/v1/queues/there/purge",
            body,
            422,
            "confirmation_required",
        );
    }
    rows.add(
        "C26",
        "DELETE",
        "/v1/queues/there",
        "",
        "",
        409,
        "queue_not_empty",
    );
    for method in ["PUT", "PATCH"] {
        let headers = format!("{JSON}if-match: \"999999\"\r\n");
        rows.add(
            "C27 C36",
            method,
            "/v1/queues/there",
            &headers,
            "{}",
            412,
            "precondition_failed",
        );
    }
    rows.post(
        "C30",
        PUBLISH,
        r#"{"queue":"full","message":2}"#,
        429,
        "queue_full",
    );
    rows
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
    let before = client.snapshot().await;
    let mut wrong = String::new();
    for row in json_rows()
        .0
        .into_iter()
        .chain(name_rows().0)
        .chain(queue_rows().0)
    {
        let path = row.path.replace("{live}", &live);
        let began = Instant::now();
        let answer = client
            .send(row.method, &path, &row.headers, &row.body)
            .await;
        let took = began.elapsed();
        let (status, json) = checked(&answer);
        let sent = String::from_utf8_lossy(&row.body[..row.body.len().min(120)]).into_owned();
        let path = &path[..path.len().min(120)];
        if (status, json["code"].as_str()) != (row.status, Some(row.code)) {
            let _ = writeln!(
                wrong,
                "{}: {} {path} {sent}\n  wanted {} {}\n  got {status} {json}",
                row.name, row.method, row.status, row.code
            );
        }
        if json["effect"] != "none"
            || answer.text().contains("zqx")
            || took > Duration::from_secs(1)
        {
            let _ = writeln!(
                wrong,
                "{}: {} {path} {sent}\n  {took:?} {json}",
                row.name, row.method
            );
        }
        if status == 405 && answer.header("allow").is_none() {
            let _ = writeln!(wrong, "{}: no Allow", row.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(client.snapshot().await, before);
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

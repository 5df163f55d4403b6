//! C: what a queue refuses.

use super::{ACK, JSON, MARK, PUBLISH, RECEIVE, Rows};
use serde_json::json;
use std::fmt::Write;

pub(super) fn rows() -> Rows {
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
    for member in [
        r#""client_request_id":"first","key":"another""#,
        r#""client_request_id":"first","headers":{"a":"b"}"#,
    ] {
        let body = format!(
            "{{\"queue\":\"there\",\"message\":\"first\",{}}}",
            member.replace("\"first\"", "\"taken\"")
        );
        rows.post("C2", PUBLISH, body, 422, "client_request_id_conflict");
    }
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
        r#"{"code":"duplicate","justification":"long enough to count"}"#,
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

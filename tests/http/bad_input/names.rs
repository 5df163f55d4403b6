//! B: names, ids, filters, paging, methods.

use super::{JSON, PUBLISH, RECEIVE, Rows};
use serde_json::json;

pub(super) fn rows() -> Rows {
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
    for path in [
        "/problems/..%2f",
        "/docs/../Cargo.toml",
        "/docs/%2e%2e%2fCargo.toml",
        "/v1/keys/..%2fqueues",
        "/v1/dead-letters/selections/..%2f",
        "/v1/redrives/..%2f",
        "/v1/redrives/msg_0123456789abc",
        "/v1/dead-letters/selections/rdv_0123456789abc",
    ] {
        rows.get("B11", path, 404, "not_found");
    }
    let long = "x".repeat(5_000);
    for parameter in ["key", "client_request_id"] {
        rows.get(
            "B14",
            &format!("/v1/queues/there/messages?{parameter}={long}"),
            422,
            "too_long",
        );
    }
    let longest = "x".repeat(10_000);
    let path = format!("/v1/queues/there/messages?key={longest}");
    rows.get("B14", &path, 414, "uri_too_long");
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

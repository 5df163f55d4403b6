//! A: JSON and media types.

use super::{JSON, MARK, PUBLISH, Rows};

pub(super) fn rows() -> Rows {
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
        // A bomb is not looked at: only its name for itself is.
        let bomb = [&b"\x1f\x8b\x08\0\0\0\0\0"[..], &[0; 1 << 10]].concat();
        rows.add(
            "A31",
            "POST",
            PUBLISH,
            &format!("{JSON}content-encoding: {encoding}\r\n"),
            bomb,
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

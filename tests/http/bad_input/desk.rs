//! What an operator can get wrong about dead letters: every field and every parameter.

use super::{JSON, Rows};

const LIST: &str = "/v1/queues/grave/dead-letters";
const SELECT: &str = "/v1/dead-letters/selections";

pub(super) fn rows() -> Rows {
    let mut rows = Rows::default();
    filters(&mut rows);
    edits(&mut rows);
    decisions(&mut rows);
    selections(&mut rows);
    rows
}

impl Rows {
    pub(super) fn patch(
        &mut self,
        path: &str,
        body: impl AsRef<[u8]>,
        status: u16,
        code: &'static str,
    ) {
        self.add("desk", "PATCH", path, JSON, body, status, code);
    }

    pub(super) fn desk(
        &mut self,
        path: &str,
        body: impl AsRef<[u8]>,
        status: u16,
        code: &'static str,
    ) {
        self.post("desk", path, body, status, code);
    }
}

fn filters(rows: &mut Rows) {
    let long = "x".repeat(1_000);
    for (query, code) in [
        ("reason=operater", "invalid_value"),
        ("failure_kind=max_attempts", "invalid_value"),
        ("reason=expired&failure_kind=nack", "mutually_exclusive"),
        ("key=a&key_prefix=a", "mutually_exclusive"),
        ("key_prefix=", "out_of_range"),
        ("key=%00", "control_character"),
        ("key=%ff", "invalid_unicode"),
        (&*format!("key={long}"), "too_long"),
        (&*format!("key_prefix={long}"), "too_long"),
        (&*format!("error_code={long}"), "too_long"),
        ("group=zqx%3Cb%3E", "invalid_value"),
        ("group=grp_FFFFFFFFFFFFFFFF", "invalid_value"),
        ("died_after=1700000000", "invalid_value"),
        ("died_before=2026-02-30T00:00:00Z", "invalid_value"),
        ("published_after=2026-01-01T00:00:00 01:00", "invalid_value"),
        ("published_before=now", "invalid_value"),
        (
            "died_after=2026-01-02T00:00:00Z&died_before=2026-01-01T00:00:00Z",
            "out_of_range",
        ),
        ("min_attempts=-1", "out_of_range"),
        ("max_attempts=1e3", "wrong_type"),
        ("min_redrive_count=x", "wrong_type"),
        ("max_redrive_count=9223372036854775808", "out_of_range"),
        ("min_attempts=2&max_attempts=1", "out_of_range"),
        ("edited=1", "wrong_type"),
        ("client_request_id=x", "unknown_parameter"),
        ("state=dead", "unknown_parameter"),
    ] {
        for path in [LIST, "/v1/dead-letters", "/v1/dead-letters/groups"] {
            let path = format!("{path}?{}", query.replace(' ', "+"));
            rows.get("filter", &path, 422, code);
        }
    }
    for (query, code) in [
        ("order=died_at;drop", "invalid_value"),
        ("page_size=0", "out_of_range"),
        ("page_size=501", "out_of_range"),
        ("page_token=x", "invalid_page_token"),
        ("page_token=", "invalid_page_token"),
        (
            &*format!("page_token={}", "A".repeat(46)),
            "invalid_page_token",
        ),
    ] {
        rows.get("listing", &format!("{LIST}?{query}"), 422, code);
        rows.get("listing", &format!("/v1/dead-letters?{query}"), 422, code);
    }
    rows.get(
        "listing",
        "/v1/queues/none/dead-letters",
        404,
        "queue_not_found",
    );
    rows.get(
        "listing",
        "/v1/queues/-x/dead-letters",
        422,
        "invalid_queue_name",
    );
    rows.add("A35", "GET", LIST, JSON, "{}", 400, "body_not_allowed");
}

fn edits(rows: &mut Rows) {
    let path = format!("{LIST}/{{dead}}");
    let reasoned = |members: &str| format!("{{{members},\"reason\":\"a reason\"}}");
    rows.patch(&path, "", 400, "body_required");
    rows.patch(&path, "[]", 422, "expected_object");
    for (members, status, code) in [
        (r#""reason":"x""#, 422, "missing_field"),
        (r#""message":1"#, 422, "reason_required"),
        (r#""message":1,"reason":"  ""#, 422, "reason_required"),
        (r#""message":1,"reason":7"#, 422, "wrong_type"),
        (r#""message":1,"reason":"\u0000""#, 422, "control_character"),
    ] {
        rows.patch(&path, format!("{{{members}}}"), status, code);
    }
    for (members, status, code) in [
        (r#""message":1,"merge_patch":{}"#, 422, "mutually_exclusive"),
        (r#""merge_patch":1"#, 422, "wrong_type"),
        (r#""merge_patch":null"#, 422, "wrong_type"),
        (r#""merge_patch":[]"#, 422, "wrong_type"),
        (r#""merge_patch":{"a":1,"a":2}"#, 400, "duplicate_field"),
        (r#""merge_patch":{"\ud800":1}"#, 422, "invalid_unicode"),
        (r#""merge_patch":{"b":1}"#, 422, "not_patchable"),
        (r#""headers":[]"#, 422, "wrong_type"),
        (r#""headers":{"a":1}"#, 422, "wrong_type"),
        (r#""headers":{"a":"b","a":"c"}"#, 400, "duplicate_field"),
        (r#""headers":{"a":"\u0000"}"#, 422, "control_character"),
        (r#""message":1,"client_request_id":"""#, 422, "out_of_range"),
        (r#""message":1,"key":"k""#, 422, "unknown_field"),
        (r#""mesage":1"#, 422, "unknown_field"),
        (r#""message":NaN"#, 400, "malformed_json"),
    ] {
        rows.patch(&path, reasoned(members), status, code);
    }
    let large = format!("\"message\":\"{}\"", "x".repeat(262_144));
    rows.patch(&path, reasoned(&large), 413, "payload_too_large");
    let deep = format!("\"message\":{}1{}", "[".repeat(129), "]".repeat(129));
    rows.patch(&path, reasoned(&deep), 400, "nesting_too_deep");
    let good = reasoned("\"message\":1");
    rows.patch(
        &format!("{LIST}/msg_0000000000001"),
        &good,
        404,
        "not_found",
    );
    rows.patch(&format!("{LIST}/1"), &good, 404, "not_found");
    rows.patch(
        "/v1/queues/there/dead-letters/{live}",
        &good,
        409,
        "not_dead",
    );
    rows.patch(
        "/v1/queues/there/dead-letters/{dead}",
        &good,
        404,
        "not_found",
    );
    rows.patch(
        "/v1/queues/none/dead-letters/{dead}",
        &good,
        404,
        "queue_not_found",
    );
    let undo = format!("{path}/undo-edit");
    rows.desk(&undo, "{}", 409, "not_edited");
    rows.desk(&undo, r#"{"reason":1}"#, 422, "wrong_type");
    rows.desk(&undo, r#"{"message":1}"#, 422, "unknown_field");
}

fn decisions(rows: &mut Rows) {
    let path = |verb: &str| format!("{LIST}/{{dead}}/{verb}");
    for (body, code) in [
        (r#"{"force":true}"#, "reason_required"),
        (r#"{"force":true,"reason":"   "}"#, "reason_required"),
        (r#"{"force":"yes"}"#, "wrong_type"),
        (r#"{"expires_in_seconds":0}"#, "out_of_range"),
        (r#"{"expires_in_seconds":null}"#, "wrong_type"),
        (r#"{"justification":"because it is so"}"#, "unknown_field"),
    ] {
        rows.desk(&path("redrive"), body, 422, code);
    }
    for (body, code) in [
        (
            r#"{"justification":"long enough to count"}"#,
            "missing_field",
        ),
        (
            r#"{"code":"lost","justification":"long enough to count"}"#,
            "invalid_value",
        ),
        (
            r#"{"code":1,"justification":"long enough to count"}"#,
            "wrong_type",
        ),
        (
            r#"{"code":"duplicate","justification":"short"}"#,
            "reason_required",
        ),
        (
            r#"{"code":"duplicate","reason":"long enough to count"}"#,
            "unknown_field",
        ),
    ] {
        rows.desk(&path("discard"), body, 422, code);
    }
    rows.desk(&path("reopen"), "{}", 422, "reason_required");
    rows.desk(
        &path("reopen"),
        r#"{"reason":"x","code":"duplicate"}"#,
        422,
        "unknown_field",
    );
    rows.desk(&path("reopen"), r#"{"reason":"x"}"#, 409, "not_discarded");
    rows.desk(&path("explode"), "{}", 404, "not_found");
    rows.add(
        "B22",
        "DELETE",
        &format!("{LIST}/{{dead}}"),
        "",
        "",
        405,
        "method_not_allowed",
    );
}

fn selections(rows: &mut Rows) {
    for (body, status, code) in [
        ("{}", 422, "missing_field"),
        (r#"{"queue":".."}"#, 422, "invalid_queue_name"),
        (r#"{"queue":7}"#, 422, "wrong_type"),
        (r#"{"queue":"none"}"#, 404, "queue_not_found"),
        (r#"{"queue":"grave","filter":[]}"#, 422, "wrong_type"),
        (r#"{"queue":"grave","filter":null}"#, 422, "wrong_type"),
        (
            r#"{"queue":"grave","filter":{"reasn":"x"}}"#,
            422,
            "unknown_field",
        ),
        (
            r#"{"queue":"grave","filter":{"reason":"x"}}"#,
            422,
            "invalid_value",
        ),
        (
            r#"{"queue":"grave","filter":{"key":"a","key_prefix":"a"}}"#,
            422,
            "mutually_exclusive",
        ),
        (
            r#"{"queue":"grave","filter":{"min_attempts":"1"}}"#,
            422,
            "wrong_type",
        ),
        (
            r#"{"queue":"grave","filter":{"min_attempts":1.5}}"#,
            422,
            "wrong_type",
        ),
        (
            r#"{"queue":"grave","filter":{"died_after":0}}"#,
            422,
            "wrong_type",
        ),
        (
            r#"{"queue":"grave","filter":{"edited":"true"}}"#,
            422,
            "wrong_type",
        ),
        (
            r#"{"queue":"grave","filter":{"key":"\u0000"}}"#,
            422,
            "control_character",
        ),
        (
            r#"{"queue":"grave","filter":{"group":"grp_"}}"#,
            422,
            "invalid_value",
        ),
        (
            r#"{"queue":"grave","filter":{"reason":"expired","reason":"expired"}}"#,
            400,
            "duplicate_field",
        ),
        (
            r#"{"queue":"grave","client_request_id":""}"#,
            422,
            "out_of_range",
        ),
    ] {
        rows.desk(SELECT, body, status, code);
    }
    rows.get(
        "selection",
        &format!("{SELECT}/sel_zzzzzzzzzzzzz"),
        404,
        "not_found",
    );
    rows.get("selection", &format!("{SELECT}/..%2fx"), 404, "not_found");
    rows.get(
        "selection",
        &format!("{SELECT}/{{selection}}?sample=true"),
        422,
        "unknown_parameter",
    );
}

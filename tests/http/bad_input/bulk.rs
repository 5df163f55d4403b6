//! What an operator can get wrong about redrives of many and the audit trail: every field and every parameter.

use super::Rows;

const START: &str = "/v1/redrives";
/// One that is there, and is over.
const REDRIVE: &str = "/v1/redrives/{redrive}";

pub(super) fn rows() -> Rows {
    let mut rows = Rows::default();
    redrives(&mut rows);
    audit(&mut rows);
    rows
}

fn redrives(rows: &mut Rows) {
    rows.desk(START, "{}", 422, "missing_field");
    rows.desk(
        START,
        r#"{"selection_id":"{selection}"}"#,
        422,
        "missing_field",
    );
    rows.desk(START, r#"{"expected_count":1}"#, 422, "missing_field");
    rows.desk(
        START,
        r#"{"selection_id":7,"expected_count":1}"#,
        422,
        "wrong_type",
    );
    rows.desk(
        START,
        r#"{"selection_id":"x","expected_count":1}"#,
        404,
        "not_found",
    );
    for (count, status, code) in [
        ("-1", 422, "out_of_range"),
        ("1.5", 422, "wrong_type"),
        ("\"1\"", 422, "wrong_type"),
        ("7", 409, "count_mismatch"),
    ] {
        let body = format!(r#"{{"selection_id":"{{selection}}","expected_count":{count}}}"#);
        rows.desk(START, body, status, code);
    }
    for (members, code) in [
        (r#""max":0"#, "out_of_range"),
        (r#""max":null"#, "wrong_type"),
        (r#""rate_per_second":0"#, "out_of_range"),
        (r#""rate_per_second":-5"#, "out_of_range"),
        (r#""rate_per_second":1e400"#, "out_of_range"),
        (r#""rate_per_second":"50""#, "wrong_type"),
        (r#""canary":7"#, "wrong_type"),
        (r#""canary":{"count":0}"#, "out_of_range"),
        (r#""canary":{"count":1.5}"#, "wrong_type"),
        (r#""canary":{"wait_seconds":86401}"#, "out_of_range"),
        (
            r#""canary":{"until":"2026-01-01T00:00:00Z"}"#,
            "unknown_field",
        ),
        (r#""abort_if":[]"#, "wrong_type"),
        (r#""abort_if":{"failed_fraction":0}"#, "out_of_range"),
        (r#""abort_if":{"failed_fraction":1.5}"#, "out_of_range"),
        (r#""abort_if":{"min_sample":0}"#, "out_of_range"),
        (r#""force":1"#, "wrong_type"),
        (r#""force":true"#, "reason_required"),
        (r#""dry_run":"yes""#, "wrong_type"),
        (r#""action":"purge""#, "invalid_value"),
        (r#""action":"discard""#, "missing_field"),
        (
            r#""action":"discard","code":"duplicate""#,
            "reason_required",
        ),
        (
            r#""action":"discard","code":"duplicate","justification":"short""#,
            "reason_required",
        ),
        (
            r#""action":"discard","code":"x","justification":"long enough to count""#,
            "invalid_value",
        ),
        (
            r#""action":"discard","code":"duplicate","justification":"long enough to count","force":true"#,
            "mutually_exclusive",
        ),
        (
            r#""action":"discard","code":"duplicate","justification":"long enough to count","canary":{}"#,
            "mutually_exclusive",
        ),
        (r#""code":"duplicate""#, "mutually_exclusive"),
        (
            r#""justification":"long enough to count""#,
            "mutually_exclusive",
        ),
        (r#""reason":"\u0007""#, "control_character"),
        (r#""queue":"grave""#, "unknown_field"),
    ] {
        let body = format!(r#"{{"selection_id":"{{selection}}","expected_count":1,{members}}}"#);
        rows.desk(START, body, 422, code);
    }
    for (body, status, code) in [
        ("{}", 422, "missing_field"),
        (r#"{"rate_per_second":0}"#, 422, "out_of_range"),
        (r#"{"rate_per_second":"1"}"#, 422, "wrong_type"),
        (r#"{"rate":1}"#, 422, "unknown_field"),
        (r#"{"rate_per_second":1,"reason":1}"#, 422, "wrong_type"),
        (r#"{"rate_per_second":1}"#, 409, "redrive_finished"),
    ] {
        rows.patch(REDRIVE, body, status, code);
    }
    for verb in ["pause", "resume", "cancel"] {
        let path = format!("{REDRIVE}/{verb}");
        rows.desk(&path, r#"{"force":true}"#, 422, "unknown_field");
        rows.desk(&path, r#"{"reason":[]}"#, 422, "wrong_type");
        rows.desk(&path, "{}", 409, "redrive_finished");
        let absent = format!("{START}/rdv_zzzzzzzzzzzzz/{verb}");
        rows.desk(&absent, "{}", 404, "not_found");
    }
    rows.desk(
        "/v1/queues/grave/redrives",
        r#"{"limit":3}"#,
        404,
        "not_found",
    );
    for (query, status, code) in [
        ("queue=none", 404, "queue_not_found"),
        ("queue=..", 422, "invalid_queue_name"),
        ("state=over", 422, "invalid_value"),
        ("page_size=0", 422, "out_of_range"),
        ("page_token=AQA", 422, "invalid_page_token"),
        ("order=oldest", 422, "unknown_parameter"),
    ] {
        rows.get("redrives", &format!("{START}?{query}"), status, code);
    }
}

fn audit(rows: &mut Rows) {
    let long = format!("actor={}", "x".repeat(1_000));
    for (query, status, code) in [
        ("from=0", 422, "invalid_value"),
        ("to=tomorrow", 422, "invalid_value"),
        (
            "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
            422,
            "out_of_range",
        ),
        (&*long, 422, "too_long"),
        ("actor=%00", 422, "control_character"),
        ("action=explode", 422, "invalid_value"),
        ("queue=none", 404, "queue_not_found"),
        ("queue=a%2Fb", 422, "invalid_queue_name"),
        ("message_id=1", 422, "invalid_value"),
        ("redrive_id=msg_0000000000001", 422, "invalid_value"),
        ("order=at", 422, "invalid_value"),
    ] {
        let path = format!("/v1/audit?{query}");
        rows.get("audit", &path, status, code);
        let lines = "accept: application/x-ndjson\r\n";
        rows.add("audit", "GET", &path, lines, "", status, code);
    }
    rows.get("audit", "/v1/audit?page_token=x", 422, "invalid_page_token");
    rows.get("audit", "/v1/audit?page_size=501", 422, "out_of_range");
    rows.add(
        "audit",
        "DELETE",
        "/v1/audit",
        "",
        "",
        405,
        "method_not_allowed",
    );
}

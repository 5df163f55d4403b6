//! Reading the audit.

use crate::fake::{Fake, Say, ok, problem};
use serde_json::{Value, json};
use std::fmt::Write;

const READ: &str = "GET /v1/audit";

fn entry(n: u32) -> Value {
    json!({"audit_id": n, "at": "2026-11-30T10:00:00.000Z", "actor": "key_a", "action": "discard", "queue": "charges", "message_id": "msg_1",
        "reason": "because\u{9b}31m", "before": {"state": "dead"}})
}

fn export(count: u32) -> String {
    (0..count).fold(String::new(), |mut all, n| {
        let _ = writeln!(all, "{}", entry(n));
        all
    })
}

#[test]
fn filters_go_into_the_query_and_pages_into_a_table() {
    let fake = Fake::new(&[(READ, ok(json!({"entries": [entry(1), entry(2)]})))]);
    let line = [
        "audit",
        "--queue",
        "charges",
        "--action",
        "discard",
        "--actor",
        "key_a",
        "--message",
        "msg_1",
        "--redrive",
        "rdv_1",
        "--from",
        "2026-11-30T00:00:00Z",
        "--to",
        "2026-12-01T00:00:00Z",
        "--order",
        "oldest",
    ];
    let ran = fake.quita(&line).ended(0);
    assert_eq!(
        fake.seen()[0].query,
        "from=2026-11-30T00%3A00%3A00.000Z&to=2026-12-01T00%3A00%3A00.000Z&actor=key_a&action=discard&queue=charges&message_id=msg_1\
         &redrive_id=rdv_1&order=oldest&page_size=50"
    );
    assert_eq!(ran.lines().len(), 3);
    assert!(ran.out.contains("because\\u{9b}31m"), "{}", ran.out);
}

#[test]
fn an_export_is_streamed_whole() {
    let fake = Fake::new(&[(READ, Say::Text(export(1_200)))]);
    let ran = fake.quita(&["audit", "-o", "jsonl"]).ended(0);
    let seen = fake.last(READ);
    assert_eq!(
        (
            seen.headers["accept"].to_str().unwrap(),
            seen.query.as_str()
        ),
        ("application/x-ndjson", "")
    );
    assert_eq!(ran.lines().len(), 1_200);
    assert_eq!(
        serde_json::from_str::<Value>(ran.lines()[7]).unwrap(),
        entry(7)
    );
    assert!(!ran.out.contains('\u{9b}'));
    let some = fake
        .quita(&["audit", "-o", "jsonl", "--limit", "3"])
        .ended(0);
    assert_eq!(some.lines().len(), 3);
}

#[test]
fn an_export_that_breaks_off_is_not_taken_for_a_whole_one() {
    let fake = Fake::new(&[(READ, Say::BreakOff(export(3)))]);
    let ran = fake
        .quita(&["audit", "-o", "jsonl"])
        .ended(6)
        .says("after 3 entries");
    assert_eq!(ran.lines().len(), 3);
    let fake = Fake::new(&[(READ, problem(403, "insufficient_scope"))]);
    fake.quita(&["audit", "-o", "jsonl"]).ended(4);
}

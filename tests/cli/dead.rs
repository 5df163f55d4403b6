//! Decisions about single dead letters.

use crate::fake::{Fake, Say, ok, problem};
use serde_json::{Value, json};

pub(crate) const READ: &str = "GET /v1/messages/msg_1";
pub(crate) const REDRIVE: &str = "POST /v1/queues/charges/dead-letters/msg_1/redrive";

pub(crate) fn message() -> Say {
    Say::Text(
        r#"{"message_id":"msg_1","queue":"charges","state":"dead","key":"k","published_at":"2026-11-30T10:00:00.000Z","attempts":3,"redrive_count":0,
        "dead_letter":{"reason":"max_attempts","failure_kind":"nack","died_at":"2026-11-30T10:02:00.000Z","group":"grp_1"},
        "headers":{"a":"1","b":"2"},"message":{"amount":1e400,"note":"\ud800"},"history":[],"decisions":[],"revision":0,"revisions":[]}"#
            .to_owned(),
    )
}

pub(crate) fn decided(state: &str) -> Say {
    ok(json!({"message_id": "msg_1", "state": state}))
}

#[test]
fn one_message_is_redriven_discarded_and_reopened_in_its_queue() {
    let fake = Fake::new(&[
        (READ, message()),
        (REDRIVE, decided("ready")),
        (
            "POST /v1/queues/charges/dead-letters/msg_1/discard",
            decided("ended"),
        ),
        (
            "POST /v1/queues/charges/dead-letters/msg_1/reopen",
            decided("dead"),
        ),
    ]);
    let ran = fake
        .quita(&["dead", "redrive", "msg_1", "--request-id", "r-1"])
        .ended(0);
    assert_eq!(ran.out, "message  msg_1\nstate    ready\n");
    assert_eq!(
        fake.last(REDRIVE).json(),
        json!({"client_request_id": "r-1"})
    );
    let line = [
        "dead",
        "redrive",
        "msg_1",
        "--force",
        "--reason",
        "checked by hand",
        "--expires-in",
        "60",
        "--request-id",
        "r-2",
    ];
    fake.quita(&line).ended(0);
    assert_eq!(
        fake.last(REDRIVE).json(),
        json!({"client_request_id": "r-2", "force": true, "reason": "checked by hand", "expires_in_seconds": 60.0})
    );
    let line = [
        "dead",
        "discard",
        "msg_1",
        "--code",
        "duplicate",
        "--justification",
        "charged by hand",
        "-o",
        "name",
        "--request-id",
        "r-3",
    ];
    assert_eq!(fake.quita(&line).ended(0).out, "msg_1\n");
    assert_eq!(
        fake.last("POST /v1/queues/charges/dead-letters/msg_1/discard")
            .json(),
        json!({"client_request_id": "r-3", "code": "duplicate", "justification": "charged by hand"})
    );
    fake.quita(&["dead", "reopen", "msg_1", "--reason", "by mistake"])
        .ended(0);
    fake.quita(&["dead", "discard", "msg_1", "--code", "because"])
        .ended(2);
    fake.quita(&["dead", "reopen", "msg_1"]).ended(2);
    fake.quita(&["dead", "redrive"]).ended(2);
}

#[test]
fn a_refusal_is_a_refusal_and_a_stranger_is_not_found() {
    for (code, exit) in [
        ("redrive_limit", 5),
        ("completion_remembered", 5),
        ("not_dead", 5),
    ] {
        let fake = Fake::new(&[(READ, message()), (REDRIVE, problem(409, code))]);
        fake.quita(&["dead", "redrive", "msg_1"])
            .ended(exit)
            .says(code);
    }
    Fake::new(&[]).quita(&["dead", "redrive", "msg_1"]).ended(3);
}

#[test]
fn of_several_messages_each_is_decided_by_itself() {
    let fake = Fake::new(&[(READ, message()), (REDRIVE, decided("ready"))]);
    let ran = fake
        .quita(&["dead", "redrive", "msg_0", "msg_1"])
        .ended(7)
        .says("not_found");
    assert_eq!(ran.lines(), ["MESSAGE  STATE", "msg_1    ready"]);
    fake.quita(&["dead", "redrive", "msg_0", "msg_2"]).ended(3);
    fake.quita(&["dead", "redrive", "msg_1", "msg_2", "--request-id", "r"])
        .ended(2);
    fake.quita(&["dead", "redrive", "msg_1", "--error-code", "E1"])
        .ended(2)
        .says("--queue");
}

#[test]
fn a_dry_run_of_one_sends_nothing() {
    let fake = Fake::new(&[(READ, message()), (REDRIVE, decided("ready"))]);
    let ran = fake
        .quita(&["dead", "redrive", "msg_1", "--dry-run"])
        .ended(0);
    for part in [
        "the server has not checked this",
        "\nPOST /v1/queues/charges/dead-letters/msg_1/redrive\n",
        "state     dead: max_attempts",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in\n{}",
            ran.out
        );
    }
    assert_eq!(ran.err, "");
    assert_eq!(fake.asked(), [READ]);
    let json = fake
        .quita(&["dead", "redrive", "msg_1", "--dry-run", "-o", "json"])
        .ended(0)
        .json();
    assert_eq!(json["dry_run"], true);
    assert_eq!(json["present"]["queue"], "charges");
    assert_eq!(json["present"]["attempts"], 3);
    assert_eq!(json.get("refusal"), Some(&Value::Null));
    let name = fake
        .quita(&["dead", "redrive", "msg_1", "--dry-run", "-o", "name"])
        .ended(0);
    assert_eq!(name.out, "msg_1\n");
}

#[test]
fn the_story_of_a_dead_letter_is_told() {
    let fake = Fake::new(&[(READ, message())]);
    let ran = fake.quita(&["dead", "show", "msg_1"]).ended(0);
    assert!(
        ran.out.contains("dead letter: max_attempts") && ran.out.contains("1e400"),
        "{}",
        ran.out
    );
    let json = fake
        .quita(&["dead", "show", "msg_1", "-o", "jsonl"])
        .ended(0);
    assert!(
        json.out
            .contains(r#""message":{"amount":1e400,"note":"\ud800"}"#)
    );
    let gone: Value =
        json!({"message_id": "msg_1", "queue": "charges", "state": "ended", "end": "acked"});
    let fake = Fake::new(&[(READ, ok(gone))]);
    fake.quita(&["dead", "show", "msg_1"])
        .ended(0)
        .says("not a dead letter");
}

#[test]
fn a_message_that_is_elsewhere_is_found_there() {
    let ready = json!({"message_id": "msg_1", "queue": "charges", "state": "ready"});
    let acked = json!({"message_id": "msg_1", "queue": "charges", "state": "ended", "end": "acked",
        "ended_at": "2026-11-30T10:00:00.123Z"});
    for (now, code, found) in [
        (&ready, "not_dead", "it is ready"),
        (&acked, "not_dead", "it was acked at 2026-11-30T10:00:00Z"),
        (&acked, "message_gone", "it was acked"),
        (&acked, "not_found", "it was acked"),
    ] {
        let status = if code == "not_found" { 404 } else { 409 };
        let fake = Fake::new(&[(READ, ok(now.clone())), (REDRIVE, problem(status, code))]);
        fake.quita(&["dead", "redrive", "msg_1"])
            .ended(5)
            .says("msg_1 is not a dead letter")
            .says(found)
            .says(code);
        let before = fake.asked().len();
        let dry = fake
            .quita(&["dead", "redrive", "msg_1", "--dry-run"])
            .ended(5)
            .says("This would be refused: msg_1 is not a dead letter")
            .says(found);
        assert!(dry.out.contains("POST /v1/queues/charges"), "{}", dry.out);
        assert_eq!(fake.asked()[before..], [READ]);
        let line = [
            "dead",
            "reopen",
            "msg_1",
            "--reason",
            "by mistake",
            "--dry-run",
        ];
        fake.quita(&line).ended(5).says("not a discarded");
        let line = ["dead", "fix", "msg_1", "--undo", "--dry-run"];
        fake.quita(&line).ended(5).says(found);
    }
    Fake::new(&[])
        .quita(&["dead", "redrive", "msg_1", "--dry-run"])
        .ended(3);
    let fake = Fake::new(&[(READ, message())]);
    fake.quita(&["dead", "redrive", "msg_0", "msg_1", "--dry-run"])
        .ended(7);
}

#[test]
fn neither_ids_nor_a_queue_is_a_mistake_that_says_both() {
    for line in [
        &["dead", "redrive"][..],
        &[
            "dead",
            "discard",
            "--code",
            "duplicate",
            "--justification",
            "charged by hand",
        ],
    ] {
        Fake::new(&[])
            .quita(line)
            .ended(2)
            .says("name messages by ID, or many with --queue");
    }
}

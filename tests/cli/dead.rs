//! Decisions about single dead letters.

use crate::fake::{Fake, Say, ok, problem};
use crate::run::{prepared, quita, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

const READ: &str = "GET /v1/messages/msg_1";
const REDRIVE: &str = "POST /v1/queues/charges/dead-letters/msg_1/redrive";
const EDIT: &str = "PATCH /v1/queues/charges/dead-letters/msg_1";

fn message() -> Say {
    Say::Text(
        r#"{"message_id":"msg_1","queue":"charges","state":"dead","key":"k","published_at":"2026-11-30T10:00:00.000Z","attempts":3,"redrive_count":0,
        "dead_letter":{"reason":"max_attempts","failure_kind":"nack","died_at":"2026-11-30T10:02:00.000Z","group":"grp_1"},
        "headers":{"a":"1","b":"2"},"message":{"amount":1e400,"note":"\ud800"},"history":[],"decisions":[],"revision":0,"revisions":[]}"#
            .to_owned(),
    )
}

fn decided(state: &str) -> Say {
    ok(json!({"message_id": "msg_1", "state": state}))
}

fn edited() -> Say {
    ok(json!({"message_id": "msg_1", "state": "dead", "revision": 1, "edited": true}))
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
    assert!(
        ran.out
            .starts_with("POST /v1/queues/charges/dead-letters/msg_1/redrive\n"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("state     dead: max_attempts"),
        "{}",
        ran.out
    );
    assert_eq!(fake.asked(), [READ]);
    let json = fake
        .quita(&["dead", "redrive", "msg_1", "--dry-run", "-o", "json"])
        .ended(0)
        .json();
    assert_eq!(json["dry_run"], true);
    assert_eq!(json["present"]["queue"], "charges");
}

#[test]
fn a_fix_sends_json_as_it_was_given() {
    let fake = Fake::new(&[
        (READ, message()),
        (EDIT, edited()),
        (REDRIVE, decided("ready")),
    ]);
    let patch = r#"{"amount": 1e500, "x": "\udfff"}"#;
    let line = [
        "dead",
        "fix",
        "msg_1",
        "--merge-patch",
        patch,
        "--reason",
        "typo",
        "--request-id",
        "r",
    ];
    let ran = fake.quita(&line).ended(0);
    assert_eq!(ran.out, "message   msg_1\nstate     dead\nrevision  1\n");
    assert_eq!(
        fake.last(EDIT).text,
        format!(r#"{{"client_request_id":"r","merge_patch":{patch},"reason":"typo"}}"#)
    );
    let line = [
        "dead",
        "fix",
        "msg_1",
        "--message",
        "-",
        "--header",
        "a=3",
        "--remove-header",
        "b",
        "--reason",
        "typo",
        "--redrive",
    ];
    let ran = quita(&fake.url(), "k", &line, "[1]\n").ended(0);
    assert!(ran.out.contains("ready"));
    let sent = fake.last(EDIT).json();
    assert_eq!(
        (&sent["message"], &sent["headers"]),
        (&json!([1]), &json!({"a": "3"}))
    );
    assert!(fake.last(REDRIVE).json().get("force").is_none());
    fake.quita(&[
        "dead",
        "fix",
        "msg_1",
        "--merge-patch",
        "{",
        "--reason",
        "typo",
    ])
    .ended(2);
    fake.quita(&["dead", "fix", "msg_1", "--merge-patch", "{}"])
        .ended(2)
        .says("--reason");
}

#[test]
fn an_undo_goes_back() {
    let undo = "POST /v1/queues/charges/dead-letters/msg_1/undo-edit";
    let fake = Fake::new(&[(READ, message()), (undo, edited())]);
    fake.quita(&["dead", "fix", "msg_1", "--undo"]).ended(0);
    let fake = Fake::new(&[(READ, message()), (undo, problem(409, "not_edited"))]);
    fake.quita(&["dead", "fix", "msg_1", "--undo"])
        .ended(5)
        .says("not_edited");
}

#[test]
fn an_edit_sends_what_the_editor_left() {
    let edit = |script: &str| {
        let fake = Fake::new(&[(READ, message()), (EDIT, edited())]);
        let folder = TempDir::new().unwrap();
        let editor = folder.path().join("editor");
        fs::write(&editor, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o700)).unwrap();
        let line = ["dead", "fix", "msg_1", "--edit", "--reason", "typo"];
        let mut command = prepared(folder.path(), &fake.url(), "k", &line);
        command.env("EDITOR", &editor).env("PATH", "/usr/bin:/bin");
        (run(&mut command, ""), fake)
    };
    let (ran, fake) = edit("sed -i s/1e400/12/ \"$1\"");
    ran.ended(0);
    assert!(
        fake.last(EDIT)
            .text
            .contains(r#""message":{"amount":12,"note":"\ud800"}"#)
    );
    let (ran, fake) = edit("true");
    ran.ended(0).says("Nothing was changed");
    assert_eq!(fake.asked(), [READ]);
    let (ran, fake) = edit("echo oops > \"$1\"");
    let ran = ran.ended(2).says("not JSON");
    let kept = ran
        .err
        .split("what you wrote is in ")
        .nth(1)
        .unwrap()
        .trim();
    assert_eq!(fs::read_to_string(kept).unwrap(), "oops\n");
    fs::remove_file(kept).unwrap();
    assert_eq!(fake.asked(), [READ]);
    let (ran, _fake) = edit("exit 1");
    ran.ended(1).says("editor");
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

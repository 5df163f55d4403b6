//! Edits of dead letters, and taking them back.

use crate::dead::{READ, REDRIVE, decided, message};
use crate::fake::{Fake, Say, ok, problem};
use crate::run::{at_a_terminal, prepared, quita};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

const EDIT: &str = "PATCH /v1/queues/charges/dead-letters/msg_1";

fn edited() -> Say {
    ok(json!({"message_id": "msg_1", "state": "dead", "revision": 1, "edited": true}))
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
        ran.err,
        "Revision 1 is there now: payload and headers as just edited.\n"
    );
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
    fake.quita(&["dead", "fix", "msg_1", "--undo"])
        .ended(0)
        .says("Revision 1 is there now: payload and headers as the message died with them.");
    let help = fake.quita(&["dead", "fix", "--help"]).ended(0).out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("what the message died with"), "{help}");
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
        (at_a_terminal(&command, ""), fake)
    };
    let (ran, fake) = edit("sed -i s/1e400/12/ \"$1\"");
    ran.ended(0);
    assert!(
        fake.last(EDIT)
            .text
            .contains(r#""message":{"amount":12,"note":"\ud800"}"#)
    );
    let (ran, fake) = edit("true");
    let ran = ran.ended(0);
    assert!(
        ran.out
            .contains("Nothing was changed, and nothing was sent"),
        "{}",
        ran.out
    );
    assert_eq!(fake.asked(), [READ]);
    let (ran, fake) = edit("echo oops > \"$1\"");
    let ran = ran.ended(2);
    assert!(ran.out.contains("not JSON"), "{}", ran.out);
    let kept = ran
        .out
        .split("what you wrote is in ")
        .nth(1)
        .unwrap()
        .trim();
    assert_eq!(fs::read_to_string(kept).unwrap(), "oops\n");
    fs::remove_file(kept).unwrap();
    assert_eq!(fake.asked(), [READ]);
    let (ran, _fake) = edit("exit 1");
    let ran = ran.ended(1);
    assert!(ran.out.contains("editor"), "{}", ran.out);
    let fake = Fake::new(&[(READ, message()), (EDIT, edited())]);
    fake.quita(&["dead", "fix", "msg_1", "--edit", "--reason", "typo"])
        .ended(2)
        .says("needs a terminal");
    assert_eq!(fake.asked(), [""; 0]);
}

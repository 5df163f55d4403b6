//! The operators' desk of a server of ours, from one end to the other.

use crate::server::Server;
use quita_tests::client::Client;
use serde_json::{Value, json};

/// A queue with eight messages that a worker gave up on after one attempt, and four that it called hopeless.
fn prepared() -> Server {
    let server = Server::start();
    let line = ["queue", "set", "charges", "--create", "max_attempts=1"];
    server.quita(&line).ended(0);
    let numbers: Vec<String> = (1..=12).map(|n| format!("{{\"n\":{n}}}")).collect();
    server
        .quita_with(&["publish", "charges", "--lines"], &numbers.join("\n"))
        .ended(0);
    fail(&server, 12);
    server
}

/// A worker receives `count` messages and fails with each; with the last four of twelve for good.
fn fail(server: &Server, count: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = Client::new(server.address(), server.key());
        let ask = json!({"queue": "charges", "max_messages": count, "wait_seconds": 10, "worker": "w\u{202e}1"});
        let received = client.must("POST", "/v1/queue/receive", &ask).await;
        let messages = received["messages"].as_array().unwrap();
        assert_eq!(messages.len(), count);
        for (n, message) in messages.iter().enumerate() {
            let error = json!({"code": if n < 8 { "E1" } else { "E2" }, "detail": "no \u{202e} luck"});
            let nack = json!({"receipt": message["receipt"], "error": error, "permanent": n >= 8});
            client.must("POST", "/v1/queue/nack", &nack).await;
        }
    });
}

fn ids(server: &Server, filter: &[&str]) -> Vec<String> {
    let line = [
        &["dead", "list", "--queue", "charges", "-o", "name"],
        filter,
    ]
    .concat();
    let ran = server.quita(&line).ended(0);
    ran.lines().into_iter().map(str::to_owned).collect()
}

fn counts(server: &Server) -> Value {
    let queue = server
        .quita(&["queue", "show", "charges", "-o", "json"])
        .ended(0);
    queue.json()["counts"].clone()
}

#[test]
fn dead_letters_are_found_and_grouped() {
    let server = prepared();
    assert_eq!(ids(&server, &[]).len(), 12);
    assert_eq!(ids(&server, &["--failure-kind", "nack"]).len(), 8);
    assert_eq!(
        ids(&server, &["--error-code", "E2", "--died-after", "1h"]).len(),
        4
    );
    assert_eq!(ids(&server, &["--died-before", "1h"]).len(), 0);
    let oldest = ids(&server, &[]);
    let newest = ids(&server, &["--order", "newest", "--all"]);
    assert_eq!(oldest, newest.into_iter().rev().collect::<Vec<_>>());
    let groups = server
        .quita(&["dead", "groups", "-o", "json"])
        .ended(0)
        .json();
    let sizes: Vec<_> = groups
        .as_array()
        .unwrap()
        .iter()
        .map(|g| g["count"].clone())
        .collect();
    assert_eq!(sizes, [json!(8), json!(4)]);
    let group = groups[1]["group"].as_str().unwrap();
    assert_eq!(ids(&server, &["--group", group]).len(), 4);
    let table = server.quita(&["dead", "list"]).ended(0);
    assert!(
        table.out.contains("no \\u{202e} luck") && !table.out.contains('\u{202e}'),
        "{}",
        table.out
    );
    server.quita(&["dead", "list", "--queue", "other"]).ended(3);
}

#[test]
fn one_dead_letter_is_fixed_redriven_discarded_and_reopened() {
    let server = prepared();
    let all = ids(&server, &[]);
    let (first, second) = (all[0].as_str(), all[1].as_str());
    server
        .quita(&[
            "dead",
            "fix",
            first,
            "--merge-patch",
            r#"{"amount":12}"#,
            "--header",
            "a=b",
            "--reason",
            "typo",
        ])
        .ended(0);
    let story = server.quita(&["dead", "show", first]).ended(0);
    for part in [
        "revision",
        "because: typo",
        "add /amount 12",
        "\"amount\": 12",
        "dead letter: max_attempts",
        "w\\u{202e}1",
    ] {
        assert!(
            story.out.contains(part),
            "{part:?} is missing in\n{}",
            story.out
        );
    }
    assert_eq!(ids(&server, &["--edited"]), [first]);
    server.quita(&["dead", "fix", first, "--undo"]).ended(0);
    server
        .quita(&["dead", "fix", second, "--undo"])
        .ended(5)
        .says("not_edited");
    server
        .quita(&[
            "dead",
            "fix",
            first,
            "--message",
            "[1]",
            "--reason",
            "typo",
            "--redrive",
        ])
        .ended(0);
    assert_eq!(counts(&server)["ready"], 1);
    server
        .quita(&["dead", "redrive", first])
        .ended(5)
        .says("not_dead");

    let discard = [
        "dead",
        "discard",
        second,
        "--code",
        "duplicate",
        "--justification",
        "charged by hand",
    ];
    server.quita(&discard).ended(0);
    assert_eq!(counts(&server)["dead"], 10);
    server
        .quita(&["dead", "reopen", first, "--reason", "by mistake"])
        .ended(5);
    server
        .quita(&["dead", "reopen", second, "--reason", "by mistake"])
        .ended(0);
    assert_eq!(counts(&server)["dead"], 11);
    server
        .quita(&[
            "dead",
            "discard",
            second,
            "--code",
            "duplicate",
            "--justification",
            "short",
        ])
        .ended(5)
        .says("reason_required");
}

#[test]
fn many_are_redriven_over_a_selection_whose_count_was_said() {
    let server = prepared();
    let many = [
        "dead",
        "redrive",
        "--queue",
        "charges",
        "--error-code",
        "E1",
        "--no-rate-limit",
        "--no-canary",
    ];
    server
        .quita(&many)
        .ended(5)
        .says("8 dead letters of charges");
    let dry = server
        .quita(&[&many[..], &["--dry-run", "-o", "json"]].concat())
        .ended(0)
        .json();
    assert_eq!((&dry["dry_run"], &dry["moved"]), (&json!(true), &json!(8)));
    assert_eq!(counts(&server)["dead"], 12);
    let said =
        |count: &str| server.quita(&[&many[..], &["--yes", "--expect-count", count]].concat());
    said("9").ended(5);
    let done = said("8").ended(0);
    assert!(done.out.contains("done"), "{}", done.out);
    assert_eq!(
        (&counts(&server)["dead"], &counts(&server)["ready"]),
        (&json!(4), &json!(8))
    );
    said("8").ended(5);

    let listed = server
        .quita(&["redrive", "list", "--queue", "charges", "-o", "name"])
        .ended(0);
    assert_eq!(listed.lines().len(), 1);
    let line = ["redrive", "list", "--dry-runs", "-o", "name"];
    assert_eq!(server.quita(&line).ended(0).lines().len(), 2);
    let id = listed.lines()[0].to_owned();
    server.quita(&["redrive", "show", &id]).ended(0);
    server.quita(&["redrive", "watch", &id]).ended(0);
    server
        .quita(&["redrive", "cancel", &id])
        .ended(5)
        .says("redrive_finished");
}

#[test]
fn a_slow_redrive_is_paused_made_faster_and_cancelled() {
    let server = prepared();
    let line = [
        "dead",
        "redrive",
        "--queue",
        "charges",
        "--rate",
        "0.1",
        "--no-canary",
        "--yes",
        "--expect-count",
        "12",
        "--detach",
        "-o",
        "name",
    ];
    let id = server.quita(&line).ended(0).out.trim().to_owned();
    server
        .quita(&["redrive", "pause", &id, "--reason", "looking"])
        .ended(0);
    let state = || {
        server
            .quita(&["redrive", "show", &id, "-o", "json"])
            .ended(0)
            .json()["state"]
            .clone()
    };
    assert_eq!(state(), "paused");
    server.quita(&["redrive", "rate", &id, "0.2"]).ended(0);
    server.quita(&["redrive", "resume", &id]).ended(0);
    assert_eq!(state(), "running");
    server.quita(&["redrive", "cancel", &id]).ended(0);
    server.quita(&["redrive", "watch", &id]).ended(1);
}

#[test]
fn what_was_done_is_in_the_audit() {
    let server = prepared();
    let id = &ids(&server, &[])[0];
    server
        .quita(&["dead", "redrive", id, "--reason", "try again"])
        .ended(0);
    server.quita(&["queue", "pause", "charges"]).ended(0);
    let all = server.quita(&["audit", "-o", "jsonl"]).ended(0);
    let actions: Vec<Value> = all
        .lines()
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["action"].clone())
        .collect();
    for action in ["create_queue", "redrive", "pause"] {
        assert!(actions.contains(&json!(action)), "{action}: {actions:?}");
    }
    let one = server
        .quita(&["audit", "--message", id, "-o", "json"])
        .ended(0)
        .json();
    assert_eq!(
        (&one[0]["action"], &one[0]["reason"]),
        (&json!("redrive"), &json!("try again"))
    );
    server.quita(&["audit", "--action", "dance"]).ended(2);
    // The actions that the help lists are those that there are.
    let help = server.quita(&["audit", "--help"]).ended(0).out;
    let (_, listed) = help.split_once("ACTIONS\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let listed: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(listed.len(), 24, "{listed:?}");
    for action in listed {
        server.quita(&["audit", "--action", action]).ended(0);
    }
}

#[test]
fn the_repeat_of_a_decision_about_many_is_the_first_one_again() {
    let server = prepared();
    let line = [
        "dead",
        "redrive",
        "--queue",
        "charges",
        "--error-code",
        "E1",
        "--no-rate-limit",
        "--no-canary",
        "--yes",
        "--expect-count",
        "8",
        "--request-id",
        "incident-77",
        "-o",
        "name",
    ];
    let first = server.quita(&line).ended(0);
    assert_eq!(counts(&server)["ready"], 8);
    // One more has died meanwhile; it is not in the selection.
    fail(&server, 1);
    let again = server.quita(&line).ended(7);
    assert_eq!(again.out, first.out);
    assert_eq!(counts(&server)["ready"], 7);
    let detached = [&line[..], &["--detach"]].concat();
    assert_eq!(server.quita(&detached).ended(0).out, first.out);
    let other: Vec<&str> = line
        .iter()
        .map(|word| if *word == "E1" { "E2" } else { *word })
        .collect();
    server
        .quita(&other)
        .ended(2)
        .says("client_request_id_conflict");
}

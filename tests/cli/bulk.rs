//! Decisions about many: nothing starts before somebody has seen the count.

use crate::fake::{Fake, Say, ok, problem};
use crate::run::on_terminal;
use serde_json::{Value, json};

const SELECT: &str = "POST /v1/dead-letters/selections";
const START: &str = "POST /v1/redrives";
const LOOK: &str = "GET /v1/redrives/rdv_1";

fn selection(count: u64) -> Say {
    Say::Json(
        201,
        json!({"selection_id": "sel_1", "queue": "charges", "filter": {}, "count": count, "by_reason": [{"reason": "max_attempts", "count": count}],
            "by_error_code": [{"error_code": null, "count": count}], "by_age": [{"age": "under_1_hour", "count": count}],
            "sample": [{"message_id": "msg_7", "key": "k\u{1b}", "dead_letter": {"reason": "max_attempts"}}], "edited": 1, "over_max_redrives": 2,
            "completion_remembered": 0, "outcome_recorded": 0, "created_at": "2026-11-30T10:00:00.000Z", "expires_at": "2026-11-30T11:00:00.000Z"}),
    )
}

fn redrive(state: &str, change: &Value) -> Value {
    let mut redrive = json!({"redrive_id": "rdv_1", "selection_id": "sel_1", "queue": "charges", "action": "redrive", "state": state, "dry_run": false,
        "count": 3, "max": 3, "moved": 3, "skipped": {"total": 0, "redrive_limit": 0, "completion_remembered": 0, "expired": 0, "changed": 0},
        "failed_again": 0, "remaining": 0, "rate_per_second": 50, "canary": null, "abort_if": {"failed_fraction": 0.2, "min_sample": 10}, "force": false,
        "actor": "key_a", "created_at": "2026-11-30T10:00:00.000Z"});
    let members = change.as_object().unwrap().clone();
    redrive.as_object_mut().unwrap().extend(members);
    redrive
}

/// A selection of three, and a redrive that goes on once and then ends like this.
fn fake(state: &str, change: &Value) -> Fake {
    Fake::new(&[
        (SELECT, selection(3)),
        (
            START,
            Say::Json(
                202,
                redrive("running", &json!({"moved": 0, "remaining": 3})),
            ),
        ),
        (
            LOOK,
            ok(redrive("running", &json!({"moved": 1, "remaining": 2}))),
        ),
        (LOOK, ok(redrive(state, change))),
    ])
}

const YES: [&str; 7] = [
    "dead",
    "redrive",
    "--queue",
    "charges",
    "--yes",
    "--expect-count",
    "3",
];

#[test]
fn without_a_terminal_nothing_starts_unless_it_was_said_how_many() {
    let fake = fake("done", &json!({}));
    let ran = fake
        .quita(&["dead", "redrive", "--queue", "charges"])
        .ended(5);
    for part in [
        "3 dead letters of charges",
        "max_attempts",
        "(none)",
        "1 edited, 2 over max_redrives",
        "msg_7",
        "k\\x1b",
        "--expect-count",
    ] {
        assert!(
            ran.err.contains(part),
            "{part:?} is missing in\n{}",
            ran.err
        );
    }
    assert_eq!(ran.out, "");
    assert_eq!(fake.asked(), [SELECT]);
    fake.quita(&["dead", "redrive", "--queue", "charges", "--yes"])
        .ended(2)
        .says("--expect-count");
    fake.quita(&[
        "dead",
        "redrive",
        "--queue",
        "charges",
        "--yes",
        "--expect-count",
        "4",
    ])
    .ended(5)
    .says("4 dead letters were expected, and the selection holds 3");
    assert_eq!(fake.asked(), [SELECT, SELECT]);
}

#[test]
fn a_count_that_was_said_starts_it_and_watches_it() {
    let fake = fake("done", &json!({}));
    let line = [
        &YES[..],
        &[
            "--error-code",
            "E1",
            "--rate",
            "5",
            "--no-canary",
            "--max",
            "2",
        ],
    ]
    .concat();
    let ran = fake.quita(&line).ended(0);
    assert!(
        ran.out.contains("state         done") && ran.out.contains("moved         3"),
        "{}",
        ran.out
    );
    assert!(ran.err.contains("1 of 3, running"), "{}", ran.err);
    assert_eq!(
        fake.last(SELECT).json(),
        json!({"queue": "charges", "filter": {"error_code": "E1"}})
    );
    let mut start = fake.last(START).json();
    let id = start
        .as_object_mut()
        .unwrap()
        .remove("client_request_id")
        .unwrap();
    assert!(id.as_str().unwrap().starts_with("cli-"));
    assert_eq!(
        start,
        json!({"selection_id": "sel_1", "action": "redrive", "expected_count": 3, "max": 2, "rate_per_second": 5.0, "canary": null})
    );
    assert_eq!(fake.asked(), [SELECT, START, LOOK, LOOK]);
}

#[test]
fn the_exit_code_says_how_it_ended() {
    for (state, change, exit) in [
        ("done", json!({"skipped": {"total": 1, "expired": 1}}), 7),
        ("done", json!({"failed_again": 2}), 7),
        (
            "aborted",
            json!({"state_reason": "3 of 10 failed again"}),
            5,
        ),
        ("cancelled", json!({}), 1),
    ] {
        let fake = fake(state, &change);
        let ran = fake.quita(&YES).ended(exit);
        assert!(ran.out.contains(state), "{}", ran.out);
    }
}

#[test]
fn guards_of_the_server_are_refusals() {
    for (status, code) in [
        (409, "count_mismatch"),
        (409, "selection_expired"),
        (422, "reason_required"),
    ] {
        let fake = Fake::new(&[(SELECT, selection(3)), (START, problem(status, code))]);
        fake.quita(&YES).ended(5).says(code);
    }
    let fake = Fake::new(&[(SELECT, selection(3)), (START, problem(503, "overloaded"))]);
    fake.quita(&YES)
        .ended(6)
        .says("quita redrive list --queue charges");
}

#[test]
fn nothing_selected_is_nothing_to_do() {
    let fake = Fake::new(&[(SELECT, selection(0))]);
    fake.quita(&["dead", "redrive", "--queue", "charges"])
        .ended(0)
        .says("Nothing to do");
    fake.quita(&YES).ended(5);
    assert_eq!(fake.asked(), [SELECT, SELECT]);
}

#[test]
fn a_detached_one_is_started_and_not_watched() {
    let fake = fake("done", &json!({}));
    let ran = fake
        .quita(&[&YES[..], &["--detach", "-o", "name"]].concat())
        .ended(0);
    assert_eq!(ran.out, "rdv_1\n");
    assert_eq!(fake.asked(), [SELECT, START]);
}

#[test]
fn a_dry_run_asks_nobody_and_shows_what_would_happen() {
    let fake = fake(
        "done",
        &json!({"dry_run": true, "skipped": {"total": 1, "redrive_limit": 1}, "moved": 2}),
    );
    let ran = fake
        .quita(&["dead", "redrive", "--queue", "charges", "--dry-run"])
        .ended(0);
    assert!(
        ran.out.contains("done (dry run)") && ran.out.contains("1 (redrive_limit 1)"),
        "{}",
        ran.out
    );
    assert_eq!(fake.last(START).json()["dry_run"], true);
}

#[test]
fn a_discard_of_many_says_why() {
    let fake = fake("done", &json!({"action": "discard"}));
    let mut line = YES.to_vec();
    line[1] = "discard";
    fake.quita(&line).ended(2).says("--justification");
    line.extend([
        "--code",
        "written_off",
        "--justification",
        "the bank is closed",
    ]);
    for flag in [
        "--canary",
        "--canary-wait",
        "--abort-fraction",
        "--abort-min-sample",
    ] {
        fake.quita(&[&line[..], &[flag, "1"]].concat())
            .ended(2)
            .says(flag);
    }
    fake.quita(&["dead", "discard", "--help"]).ended(0);
    let help = fake.quita(&["dead", "discard", "--help"]).out;
    assert!(
        !help.contains("canary") && !help.contains("abort"),
        "{help}"
    );
    let mut short = line.clone();
    *short.last_mut().unwrap() = "too short";
    fake.quita(&short).ended(5).says("reason_required");
    assert_eq!(fake.asked(), [""; 0]);
    let ran = fake.quita(&line).ended(0);
    assert!(ran.out.starts_with("discard    rdv_1\n"), "{}", ran.out);
    assert!(
        !ran.out.contains("canary") && !ran.out.contains("aborts"),
        "{}",
        ran.out
    );
    let start = fake.last(START).json();
    assert_eq!(start["action"], "discard");
    assert_eq!(start["code"], "written_off");
    assert_eq!(start["justification"], "the bank is closed");
    assert!(start.get("force").is_none());
}

#[test]
fn force_needs_a_reason() {
    let fake = fake("done", &json!({}));
    fake.quita(&[&YES[..], &["--force"]].concat())
        .ended(2)
        .says("--reason");
    fake.quita(&[&YES[..], &["--force", "--reason", "the bank said so"]].concat())
        .ended(0);
    let start = fake.last(START).json();
    assert_eq!(
        (&start["force"], &start["reason"]),
        (&json!(true), &json!("the bank said so"))
    );
}

#[test]
fn on_a_terminal_the_count_has_to_be_typed() {
    let line = ["dead", "redrive", "--queue", "charges"];
    let fake_one = fake("done", &json!({}));
    let ran = on_terminal(&fake_one.url(), &line, "3\n").ended(0);
    for part in [
        "Type 3 to redrive them:",
        "charges on http://127.0.0.1:",
        "50 per second; 10 first, then up to 60 s of waiting; stops when 0.2 of them or more died again",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in\n{}",
            ran.out
        );
    }
    assert!(ran.out.contains("done"), "{}", ran.out);
    let some = [&line[..], &["--max", "2", "--rate", "5", "--no-canary"]].concat();
    let ran = on_terminal(&fake("done", &json!({})).url(), &some, "3\n").ended(0);
    for part in [
        "Type 3 to redrive 2 of them (the oldest first):",
        "5 per second; no canary;",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in\n{}",
            ran.out
        );
    }
    for answer in ["y\n", "\n", "33\n"] {
        let fake = fake("done", &json!({}));
        on_terminal(&fake.url(), &line, answer).ended(5);
        assert_eq!(fake.asked(), [SELECT], "{answer:?}");
    }
}

#[test]
fn a_request_id_names_the_selection_too() {
    let fake = fake("done", &json!({}));
    let line = [&YES[..], &["--request-id", "incident-77", "--detach"]].concat();
    fake.quita(&line).ended(0);
    let id = |what: &str| fake.last(what).json()["client_request_id"].clone();
    assert_eq!(
        (id(SELECT), id(START)),
        (json!("incident-77-selection"), json!("incident-77"))
    );
    let conflict = Fake::new(&[(SELECT, problem(422, "client_request_id_conflict"))]);
    conflict.quita(&line).ended(2).says("counts back from now");
}

#[test]
fn the_limits_that_stop_it_are_explained_and_in_their_ranges() {
    let fake = fake("done", &json!({}));
    for fraction in ["0", "1.5", "x"] {
        fake.quita(&[&YES[..], &["--abort-fraction", fraction]].concat())
            .ended(2)
            .says("above 0 and at most 1");
    }
    assert_eq!(fake.asked(), [""; 0]);
    let ran = fake.quita(&YES).ended(0);
    assert!(
        ran.out
            .contains("when 0.2 or more of them died again, of at least 10"),
        "{}",
        ran.out
    );
    let help = fake.quita(&["dead", "redrive", "--help"]).ended(0).out;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "when this part or more of the redriven ones died again",
        "needs --expect-count",
    ] {
        assert!(help.contains(part), "{part:?} is missing in\n{help}");
    }
}

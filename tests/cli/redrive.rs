//! Following and steering redrives.

use crate::fake::{Fake, Say, ok, problem};
use crate::run::{finished, on_terminal, prepared, started};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LOOK: &str = "GET /v1/redrives/rdv_1";

fn redrive(state: &str, moved: u64) -> Value {
    json!({"redrive_id": "rdv_1", "queue": "charges", "action": "redrive", "state": state, "count": 10, "max": null, "moved": moved,
        "skipped": {"total": 0}, "failed_again": 0, "remaining": 10 - moved, "rate_per_second": 1, "canary": {"count": 1, "wait_seconds": 60,
        "until": "2026-11-30T10:01:00.000Z"}, "reason": "a\u{1b}b", "actor": "key_a", "created_at": "2026-11-30T10:00:00.000Z"})
}

#[test]
fn they_are_listed_and_shown() {
    let fake = Fake::new(&[
        (
            "GET /v1/redrives",
            ok(json!({"redrives": [redrive("running", 1)]})),
        ),
        (LOOK, ok(redrive("canary", 1))),
    ]);
    let list = fake
        .quita(&[
            "redrive", "list", "--queue", "charges", "--state", "running",
        ])
        .ended(0);
    assert_eq!(
        fake.seen()[0].query,
        "queue=charges&state=running&page_size=50"
    );
    assert!(
        list.out
            .contains("rdv_1    redrive  running  charges     10      1        0       0"),
        "{}",
        list.out
    );
    let show = fake.quita(&["redrive", "show", "rdv_1"]).ended(0);
    assert!(
        show.out.contains("a\\x1bb") && show.out.contains("until 2026-11-30T10:01:00Z"),
        "{}",
        show.out
    );
    fake.quita(&["redrive", "show", "rdv_2"]).ended(3);
}

#[test]
fn they_are_steered() {
    let fake = Fake::new(&[
        ("POST /v1/redrives/rdv_1/pause", ok(redrive("paused", 1))),
        ("POST /v1/redrives/rdv_1/resume", ok(redrive("running", 1))),
        (
            "POST /v1/redrives/rdv_1/cancel",
            problem(409, "redrive_finished"),
        ),
        ("PATCH /v1/redrives/rdv_1", ok(redrive("running", 1))),
        (LOOK, ok(redrive("running", 1))),
    ]);
    fake.quita(&[
        "redrive",
        "pause",
        "rdv_1",
        "--reason",
        "slow gateway",
        "--request-id",
        "r",
    ])
    .ended(0);
    assert_eq!(
        fake.last("POST /v1/redrives/rdv_1/pause").json(),
        json!({"reason": "slow gateway", "client_request_id": "r"})
    );
    fake.quita(&["redrive", "resume", "rdv_1"]).ended(0);
    fake.quita(&["redrive", "cancel", "rdv_1"])
        .ended(5)
        .says("redrive_finished");
    fake.quita(&["redrive", "rate", "rdv_1", "none"]).ended(0);
    let sent = fake.last("PATCH /v1/redrives/rdv_1").json();
    assert_eq!(sent.get("rate_per_second"), Some(&Value::Null));
    fake.quita(&["redrive", "rate", "rdv_1", "fast"]).ended(2);
    let before = fake.asked().len();
    let dry = fake
        .quita(&["redrive", "cancel", "rdv_1", "--dry-run"])
        .ended(0);
    assert!(dry.out.contains("state         running"), "{}", dry.out);
    assert_eq!(fake.asked()[before..], [LOOK]);
}

#[test]
fn a_watch_lives_through_a_restart_of_the_server() {
    let fake = Fake::new(&[
        (LOOK, ok(redrive("canary", 1))),
        (LOOK, problem(503, "draining")),
        (LOOK, Say::BreakOff("{".into())),
        (LOOK, ok(redrive("done", 10))),
    ]);
    fake.quita(&["redrive", "watch", "rdv_1"])
        .ended(0)
        .says("1 of 10, canary, until 2026-11-30T10:01:00Z")
        .says("trying again");
}

#[test]
fn an_interrupted_watch_says_that_the_redrive_goes_on() {
    let fake = Fake::new(&[(LOOK, ok(redrive("running", 1)))]);
    let folder = TempDir::new().unwrap();
    let line = ["redrive", "watch", "rdv_1"];
    let child = started(&mut prepared(folder.path(), &fake.url(), "k", &line));
    let began = Instant::now();
    while fake.asked().is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it asked nothing"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let interrupted = Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    finished(child)
        .ended(130)
        .says("\n1 of 10, running\nrdv_1 goes on without being watched");
    assert!(fake.asked().iter().all(|what| what == LOOK));
}

#[test]
fn a_terminal_shows_a_bar_with_rate_and_estimate() {
    let fake = Fake::new(&[
        (LOOK, ok(redrive("running", 2))),
        (LOOK, ok(redrive("running", 6))),
        (LOOK, ok(redrive("running", 6))),
        (LOOK, ok(redrive("running", 8))),
        (LOOK, ok(redrive("done", 10))),
    ]);
    let ran = on_terminal(&fake.url(), &["redrive", "watch", "rdv_1"], "").ended(0);
    assert!(
        ran.out.contains("6/10") && ran.out.contains("/s") && ran.out.contains("left"),
        "{:?}",
        ran.out
    );
}

#[test]
fn dry_runs_are_listed_only_when_they_are_asked_for() {
    let mut dry = redrive("done", 10);
    dry["dry_run"] = json!(true);
    dry["redrive_id"] = json!("rdv_2");
    let mut discard = redrive("done", 10);
    discard["action"] = json!("discard");
    discard["justification"] = json!("the bank is closed");
    discard.as_object_mut().unwrap().remove("reason");
    let page = json!({"redrives": [dry, discard]});
    let fake = Fake::new(&[("GET /v1/redrives", ok(page))]);
    let names = ["redrive", "list", "--state", "done", "-o", "name"];
    assert_eq!(fake.quita(&names).ended(0).out, "rdv_1\n");
    let all = [&names[..], &["--dry-runs"]].concat();
    assert_eq!(fake.quita(&all).ended(0).out, "rdv_2\nrdv_1\n");
    let table = fake.quita(&["redrive", "list", "--dry-runs"]).ended(0);
    for part in ["done (dry run)", "discard", "the bank is closed"] {
        assert!(
            table.out.contains(part),
            "{part:?} is missing in\n{}",
            table.out
        );
    }
}

#[test]
fn what_was_ended_early_says_what_was_not_done() {
    for (state, label) in [
        ("aborted", "not done"),
        ("cancelled", "not done"),
        ("paused", "remaining"),
    ] {
        let fake = Fake::new(&[(LOOK, ok(redrive(state, 4)))]);
        let show = fake.quita(&["redrive", "show", "rdv_1"]).ended(0);
        let line = format!("{label:<12}  6");
        assert!(show.out.contains(&line), "{state}: {}", show.out);
    }
}

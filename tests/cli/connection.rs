//! Which server, which key, and what the exit code says about their answer.

use crate::fake::{Fake, Say, ok, problem};
use crate::run::{at_a_terminal, on_terminal, prepared, quita, run};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

#[test]
fn the_exit_code_says_what_kind_of_problem_it_was() {
    for (status, code, exit) in [
        (400, "malformed_json", 2),
        (401, "invalid_key", 4),
        (403, "insufficient_scope", 4),
        (404, "queue_not_found", 3),
        (409, "keys_not_unique", 5),
        (422, "invalid_queue_name", 2),
        (422, "confirmation_required", 5),
        (429, "rate_limited", 6),
        (500, "internal", 1),
        (503, "overloaded", 6),
        (507, "disk_low", 6),
    ] {
        let fake = Fake::new(&[("GET /v1/queues/q", problem(status, code))]);
        let ran = fake.quita(&["queue", "show", "q"]).ended(exit);
        assert_eq!(ran.out, "");
        assert_eq!(
            ran.err,
            format!(
                "quita: Title of {code} ({code})\n  The detail\\x1b[31m.\n  hint: {}\n  request id: req-1\n",
                match code {
                    "invalid_key" =>
                        "QUITA_API_KEY or the profile has to hold a key that exists and is not revoked",
                    "queue_not_found" =>
                        "quita queue list shows the queues; quita queue set NAME --create makes one",
                    "confirmation_required" => "--confirm repeats the queue's name",
                    _ => "The hint.",
                }
            )
        );
    }
}

#[test]
fn a_server_that_is_not_there_or_not_one_of_ours_is_told_apart() {
    let nobody = quita("http://127.0.0.1:1", "k", &["queue", "list"], "").ended(6);
    assert!(
        nobody.err.contains("no answer from http://127.0.0.1:1"),
        "{nobody:?}"
    );
    let other = Fake::new(&[("GET /v1/queues", Say::Text("<html>".into()))]);
    other
        .quita(&["queue", "list"])
        .ended(1)
        .says("quita server");
    let proxy = Fake::new(&[("GET /v1/queues", Say::Json(502, json!("bad\u{202e}")))]);
    proxy
        .quita(&["queue", "list"])
        .ended(6)
        .says("bad\\u{202e}");
}

#[test]
fn the_key_comes_from_the_environment_or_from_a_private_profile() {
    let fake = Fake::new(&[("GET /v1/queues", ok(json!({"queues": []})))]);
    let bearer = || {
        let seen = fake.last("GET /v1/queues");
        let value = seen.headers.get("authorization");
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    fake.quita(&["queue", "list"]).ended(0).says("no queues");
    assert_eq!(bearer().unwrap(), "Bearer the-key");
    quita(&fake.url(), "", &["queue", "list"], "").ended(0);
    assert_eq!(bearer(), None);

    let folder = TempDir::new().unwrap();
    let file = folder.path().join(".config/quita/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "[profiles.default]\nurl = \"http://127.0.0.1:1\"\n[profiles.here]\nurl = \"{}\"\napi_key = \"from-file\"\n",
        fake.url()
    );
    fs::write(&file, text).unwrap();
    let with_profile = |mode| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let line = ["queue", "list", "--profile", "here"];
        run(&mut prepared(folder.path(), "", "", &line), "")
    };
    with_profile(0o600).ended(0);
    assert_eq!(bearer().unwrap(), "Bearer from-file");
    with_profile(0o644).ended(2).says("chmod 600");
    // The profile called default is the default.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    run(&mut prepared(folder.path(), "", "", &["queue", "list"]), "").ended(6);
    for option in ["--api-key", "--key"] {
        fake.quita(&["queue", "list", option, "k"]).ended(2);
    }
}

#[test]
fn a_change_whose_answer_was_lost_is_repeated_with_the_same_request_id() {
    let queue = json!({"name": "q", "paused": true, "counts": {}, "policy": {}});
    let fake = Fake::new(&[
        (
            "POST /v1/queues/q/pause",
            Say::BreakOff("{\"name\":".into()),
        ),
        ("POST /v1/queues/q/pause", ok(queue)),
    ]);
    fake.quita(&["queue", "pause", "q", "-o", "name"])
        .ended(0)
        .says("the request is sent again");
    let ids: Vec<_> = fake
        .seen()
        .iter()
        .map(|s| s.json()["client_request_id"].clone())
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);

    let broken = Fake::new(&[("POST /v1/queues/q/pause", Say::BreakOff("{".into()))]);
    broken
        .quita(&["queue", "pause", "q", "--request-id", "r-1"])
        .ended(6)
        .says("Whether it took effect is not known.")
        .says("--request-id r-1");
    assert_eq!(broken.seen().len(), 3);
}

#[test]
fn a_table_fits_the_terminal_and_is_plain_when_piped() {
    let queues: Vec<_> = (0..3)
        .map(|n| json!({"name": format!("queue-{n}-{}", "x".repeat(20)), "counts": {"ready": n, "delayed": 0, "leased": 0, "dead": 0},
            "oldest_ready_age_seconds": 90_061, "oldest_dead_age_seconds": null, "paused": n == 1}))
        .collect();
    let fake = Fake::new(&[("GET /v1/queues", ok(json!({"queues": queues})))]);
    let piped = fake.quita(&["queue", "list"]).ended(0);
    assert_eq!(piped.lines().len(), 4);
    assert!(piped.lines()[0].starts_with("NAME "));
    let terminal = on_terminal(&fake.url(), &["queue", "list"], "").ended(0);
    for line in terminal.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line:?}");
    }
    let folder = TempDir::new().unwrap();
    let mut wide = prepared(folder.path(), &fake.url(), "k", &["queue", "list"]);
    wide.env("COLUMNS", "200");
    let wide = at_a_terminal(&wide, "").ended(0);
    assert!(
        wide.out.contains("OLDEST DEAD") && !wide.out.contains("too narrow"),
        "{}",
        wide.out
    );
    for part in ["queue-1-xxxxxxxxxxxxxxxxxxxx", "too narrow: OLDEST DEAD"] {
        assert!(terminal.out.contains(part), "{}", terminal.out);
    }
}

#[test]
fn a_script_for_each_shell_is_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = quita("", "", &["completions", shell], "").ended(0);
        assert!(
            ran.out.contains("redrive") && ran.out.contains("quita"),
            "{shell}"
        );
    }
    quita("", "", &["completions", "tcsh"], "")
        .ended(2)
        .says("bash, zsh, fish");
    let bash = quita("", "", &["completions", "bash"], "").ended(0).out;
    assert!(!bash.contains("demo-worker") && !bash.contains("demo__worker"));
    let completes = bash.split("quita__subcmd__completions)").nth(1);
    let completes = completes.or_else(|| bash.split("quita__completions)").nth(1));
    assert!(completes.unwrap().contains("bash zsh fish"));
}

#[test]
fn options_of_the_connection_stand_before_and_after_the_words_of_a_command() {
    let fake = Fake::new(&[("GET /v1/queues", ok(json!({"queues": [{"name": "q"}]})))]);
    let url = fake.url();
    for line in [
        [
            "queue",
            "--url",
            &url,
            "-o",
            "name",
            "--timeout",
            "5",
            "list",
        ],
        [
            "queue",
            "list",
            "--url",
            &url,
            "-o",
            "name",
            "--timeout",
            "5",
        ],
    ] {
        let ran = quita("http://127.0.0.1:1", "k", &line, "").ended(0);
        assert_eq!(ran.out, "q\n");
    }
    for wrong in ["0", "x", "-1"] {
        fake.quita(&["queue", "list", "--timeout", wrong]).ended(2);
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up_on_in_time() {
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", deaf.local_addr().unwrap());
    let line = ["queue", "set", "q", "--create", "--timeout", "1"];
    let began = std::time::Instant::now();
    quita(&url, "k", &line, "").ended(6).says("no answer from");
    assert!(began.elapsed() < std::time::Duration::from_secs(8));
}

#[test]
fn a_profile_that_was_typed_goes_before_what_was_exported() {
    let fake = Fake::new(&[("GET /v1/queues", ok(json!({"queues": []})))]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(".config/quita/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "[profiles.here]\nurl = \"{}\"\napi_key = \"from-file\"\n",
        fake.url()
    );
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let line = ["queue", "list", "--profile", "here"];
    let elsewhere = "http://127.0.0.1:1";
    run(
        &mut prepared(folder.path(), elsewhere, "exported", &line),
        "",
    )
    .ended(0)
    .says(&format!("The server is {}", fake.url()))
    .says("QUITA_URL names another one");
    let seen = fake.last("GET /v1/queues");
    assert_eq!(seen.headers["authorization"], "Bearer from-file");
}

#[test]
fn no_proxy_is_asked_about_this_machine() {
    let fake = Fake::new(&[("GET /v1/queues", ok(json!({"queues": []})))]);
    let folder = TempDir::new().unwrap();
    let mut command = prepared(folder.path(), &fake.url(), "k", &["queue", "list"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env(name, "http://127.0.0.1:1");
    }
    run(&mut command, "").ended(0);
}

#[test]
fn help_says_where_server_and_key_come_from() {
    for line in [
        &["help"][..],
        &["--help"],
        &["queue", "--help"],
        &["dead", "--help"],
        &["redrive", "--help"],
        &["message", "--help"],
        &["publish", "--help"],
        &["audit", "--help"],
    ] {
        let ran = quita("", "", line, "").ended(0);
        for part in [
            "ENVIRONMENT",
            "QUITA_URL",
            "QUITA_API_KEY",
            "QUITA_PROFILE",
            "~/.config/quita/config.toml",
            "chmod 600",
            "[profiles.default]",
        ] {
            assert!(ran.out.contains(part), "{part:?} is missing in {line:?}");
        }
    }
}

#[test]
fn what_was_typed_is_harmless_in_our_own_words_too() {
    for line in [
        &["queue", "list", "--limit", "\u{1b}[2J"][..],
        &["queue", "\u{1b}[2J"],
        &["publish", "q", "@/no\u{1b}[2J"],
        &["dead", "list", "--died-after", "\u{1b}[2J"],
        &["queue", "list", "--profile", "\u{1b}[2J"],
        &["queue", "set", "q", "\u{1b}[2J=1", "\u{1b}[2J=2"],
    ] {
        let ran = quita("http://127.0.0.1:1", "k", line, "").ended(2);
        assert!(
            ran.err.contains("\\x1b[2J") && !ran.err.contains('\u{1b}'),
            "{line:?}: {:?}",
            ran.err
        );
    }
}

#[test]
fn a_missing_key_is_explained_in_words_of_the_command_line() {
    let fake = Fake::new(&[("GET /v1/queues", problem(401, "missing_credentials"))]);
    fake.quita(&["queue", "list"])
        .ended(4)
        .says("QUITA_API_KEY")
        .says("config.toml");
}

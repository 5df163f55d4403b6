//! Against a server of ours.

use crate::run::{Ran, quita};
use quita_tests::server::Process;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use tempfile::TempDir;

/// A server on an empty store, and its first key.
pub(crate) struct Server {
    process: Process,
    key: String,
    _folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let process = Process::start(folder.path(), &[]);
        let key = fs::read_to_string(folder.path().join("data/admin.key")).unwrap();
        Self {
            process,
            key: key.trim().to_owned(),
            _folder: folder,
        }
    }

    pub(crate) fn quita(&self, line: &[&str]) -> Ran {
        self.quita_with(line, "")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn quita_with(&self, line: &[&str], input: &str) -> Ran {
        let url = format!("http://{}", self.process.address);
        quita(&url, &self.key, line, input)
    }
}

#[test]
fn a_queue_is_made_changed_paused_and_purged() {
    let server = Server::start();
    server
        .quita(&["queue", "show", "charges"])
        .ended(3)
        .says("queue_not_found");
    server
        .quita(&["queue", "set", "charges", "max_attempts=8"])
        .ended(3);
    server
        .quita(&[
            "queue",
            "set",
            "charges",
            "--create",
            "max_attempts=2",
            "late_ack=strict",
        ])
        .ended(0);
    server
        .quita(&["queue", "set", "charges", "--create", "--dry-run"])
        .ended(5)
        .says("the queue exists");
    server
        .quita(&["queue", "set", "charges", "--create"])
        .ended(5)
        .says("without --create");
    let policy = |field: &str| {
        server
            .quita(&["queue", "show", "charges", "-o", "json"])
            .ended(0)
            .json()["policy"][field]
            .clone()
    };
    assert_eq!(
        (policy("max_attempts"), policy("late_ack")),
        (json!(2), json!("strict"))
    );

    let dry = server
        .quita(&["queue", "set", "charges", "max_attempts=9", "--dry-run"])
        .ended(0);
    assert!(
        dry.out.contains("PATCH /v1/queues/charges") && dry.out.contains("max_attempts  2"),
        "{}",
        dry.out
    );
    assert_eq!(policy("max_attempts"), 2);
    let line = ["queue", "set", "charges", "max_attempts=9", "--dry-run"];
    let json = server.quita(&[&line[..], &["-o", "json"]].concat());
    assert_eq!(
        json.ended(0).json()["present"],
        json!({"exists": true, "policy": {"max_attempts": 2}})
    );
    let name = server.quita(&[&line[..], &["-o", "name"]].concat());
    assert_eq!(name.ended(0).out, "charges\n");
    for (field, value) in [
        ("unique_key=yes", json!(true)),
        ("unique_key=false", json!(false)),
        ("max_depth=5", json!(5)),
        ("max_depth=none", json!(null)),
        ("key_retention_seconds=null", json!(null)),
        ("late_ack=accept", json!("accept")),
        ("late_ack=\"strict\"", json!("strict")),
    ] {
        server.quita(&["queue", "set", "charges", field]).ended(0);
        let (name, _) = field.split_once('=').unwrap();
        assert_eq!(policy(name), value, "{field}");
    }
    let help = server.quita(&["queue", "set", "--help"]).ended(0).out;
    let queue = server
        .quita(&["queue", "show", "charges", "-o", "json"])
        .json();
    for field in queue["policy"].as_object().unwrap().keys() {
        assert!(help.contains(&format!("\n  {field} ")), "{field}: {help}");
    }
    server
        .quita(&["queue", "show", "chargse"])
        .ended(3)
        .says("quita queue set NAME --create");
    server
        .quita(&[
            "queue",
            "set",
            "charges",
            "max_attempts=9",
            r#"backoff={"type":"fixed","base_seconds":5}"#,
        ])
        .ended(0);
    assert_eq!(
        (policy("max_attempts"), policy("late_ack")),
        (json!(9), json!("strict"))
    );
    assert_eq!(policy("backoff")["base_seconds"], 5);
    server
        .quita(&["queue", "set", "charges", "max_atempts=9"])
        .ended(2)
        .says("max_attempts");
    server.quita(&["queue", "set", "charges"]).ended(2);

    let paused = |expected: bool| {
        let queue = server
            .quita(&["queue", "show", "charges", "-o", "json"])
            .json();
        assert_eq!(queue["paused"], expected);
    };
    server
        .quita(&["queue", "pause", "charges", "--dry-run"])
        .ended(0);
    paused(false);
    server.quita(&["queue", "pause", "charges"]).ended(0);
    paused(true);
    server.quita(&["queue", "resume", "charges"]).ended(0);
    paused(false);

    server.quita(&["publish", "charges", "1"]).ended(0);
    server
        .quita(&["queue", "purge", "charges"])
        .ended(5)
        .says("1 ready");
    server
        .quita(&["queue", "purge", "charges", "--confirm", "other"])
        .ended(5);
    server
        .quita(&["queue", "purge", "charges", "--dead-letters"])
        .ended(2);
    let purged = server
        .quita(&[
            "queue",
            "purge",
            "charges",
            "--confirm",
            "charges",
            "-o",
            "json",
        ])
        .ended(0);
    assert_eq!(purged.json(), json!({"purged": 1}));
    assert_eq!(
        server.quita(&["queue", "list", "-o", "name"]).ended(0).out,
        "charges\n"
    );
}

#[test]
fn a_message_is_published_once_and_shown_as_it_was_sent() {
    let server = Server::start();
    let message = "{\"n\":1e400,\"s\":\"\\ud800\",\"t\":\"a\u{202e}b\"}";
    let line = [
        "publish",
        "charges",
        message,
        "--key",
        "k\u{202e}1",
        "--header",
        "a=b",
        "--request-id",
        "r-1",
    ];
    let first = server.quita(&line).ended(0);
    let id = first.out.trim();
    assert!(id.starts_with("msg_"));
    let again = server.quita(&line).ended(0).says("published before");
    assert_eq!(again.out, first.out);
    server
        .quita(&["publish", "charges", "[2]", "--request-id", "r-1"])
        .ended(2)
        .says("client_request_id_conflict");
    let from_input = server
        .quita_with(
            &["publish", "charges", "-", "--delay", "60", "-o", "json"],
            "{\"x\":1}\n",
        )
        .ended(0);
    assert_eq!(from_input.json()["state"], "delayed");
    server
        .quita(&["publish", "charges", "hello"])
        .ended(2)
        .says("double quotes");
    let dry = server
        .quita(&["publish", "charges", "5", "--dry-run"])
        .ended(0);
    assert!(dry.out.contains("POST /v1/queue/publish"), "{}", dry.out);

    let shown = server.quita(&["message", "show", id]).ended(0);
    for part in [
        "published",
        "1e400",
        r#""\ud800""#,
        r#""a\u202eb""#,
        "k\\u{202e}1",
        r#"{"a":"b"}"#,
    ] {
        assert!(
            shown.out.contains(part),
            "{part:?} is missing in\n{}",
            shown.out
        );
    }
    assert!(!shown.out.contains('\u{202e}'));
    let whole = server
        .quita(&["message", "show", id, "-o", "jsonl"])
        .ended(0);
    assert!(
        whole
            .out
            .contains(r#""message":{"n":1e400,"s":"\ud800","t":"a\u202eb"}"#),
        "{}",
        whole.out
    );
    server.quita(&["message", "show", "msg_nowhere"]).ended(3);
}

#[test]
fn lines_become_messages_once() {
    let server = Server::start();
    let numbers: Vec<String> = (1..=2_300).map(|n| n.to_string()).collect();
    let input = numbers.join(
        "
",
    );
    let line = [
        "publish",
        "charges",
        "--lines",
        "--request-id-prefix",
        "import",
    ];
    let first = server
        .quita_with(&line, &input)
        .ended(0)
        .says("2300 published, 0 published before, 0 refused");
    assert_eq!(first.lines().len(), 2_300);
    let again = server
        .quita_with(&line, &input)
        .ended(0)
        .says("0 published, 2300 published before");
    assert_eq!(again.out, first.out);
    let some = server
        .quita_with(&["publish", "charges", "--lines"], "1\n\nnope\n3")
        .ended(7);
    assert!(
        some.err.contains("line 3:")
            && some
                .err
                .contains("2 published, 0 published before, 1 refused"),
        "{}",
        some.err
    );
    server
        .quita_with(&["publish", "charges", "--lines"], "nope\n")
        .ended(2);
    let json = server
        .quita_with(
            &["publish", "other", "--lines", "-o", "json"],
            "1\n\nnope\n3",
        )
        .ended(7)
        .json();
    let lines: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["index"].clone())
        .collect();
    assert_eq!(lines, [json!(1), json!(4)]);
    let none = server.quita_with(&["publish", "other", "--lines", "-o", "json"], "nope\n");
    assert_eq!(none.ended(2).json(), json!([]));
    let queue = server
        .quita(&["queue", "show", "charges", "-o", "json"])
        .json();
    assert_eq!(queue["counts"]["ready"], 2_302);
}

#[test]
fn a_wrong_key_and_no_key_may_nothing() {
    let server = Server::start();
    let url = format!("http://{}", server.process.address);
    for key in ["", "wrong", "qta_aaaaaaaaaaaa_bbb"] {
        quita(&url, key, &["queue", "list"], "").ended(4);
    }
}

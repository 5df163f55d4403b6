//! What must never be seen: secrets and contents are planted wherever a client can put them, in good requests and in bad ones,
//! into a server that logs all it can. Not one of them is in its output or in a problem.
//!
//! Names of queues, ids and a plain `Request-Id` may be logged. Business keys and a client's request ids may not: they are
//! contents.

mod attack;
mod spy;
mod story;

use crate::issuer::{but, good, issuers_with, sign};
use quita_tests::postgres;
use quita_tests::server::{Process, command};
use serde_json::json;
use spy::Spy;
use std::path::Path;
use tempfile::TempDir;

/// Part of everything that is planted. Digits and capitals are in it, as they are in secrets.
const MARK: &str = "x7Q9zK";
const PASSWORD: &str = "password-x7Q9zK";
const SECRET: &str = "a secret of thirty-two bytes, x7Q9zK";

/// Starts the binary on this store, does all that it can be asked to, and reads what it said.
async fn say_nothing(folder: &Path, store: &[&str], format: &str) {
    let issuers = issuers_with(folder, SECRET);
    let mut arguments = vec!["--log-level", "trace", "--log-format", format];
    arguments.extend(["--jwt-issuers", issuers.to_str().unwrap()]);
    arguments.extend(["--auto-create-queues", "false"]);
    // Many wrong credentials come from this one address, and each of them is to be looked at.
    arguments.extend(["--rate-failed-logins", "0"]);
    arguments.extend_from_slice(store);
    let mut process = Process::start_heard(folder, &arguments);
    let key = std::fs::read_to_string(folder.join("data/admin.key")).unwrap();
    let token = sign(&but("note", json!(MARK)), SECRET);
    let old = sign(&but("exp", json!(1)), SECRET);
    let mut spy = Spy::new(process.address, key.trim(), &[&token, &old]);
    spy.read_document().await;
    story::tell(&mut spy).await;
    spy.assert_all_were_asked();
    attack::attack(&mut spy, &token).await;
    process.signal("TERM");
    assert!(process.wait().success());

    let said = std::fs::read_to_string(folder.join("said")).unwrap();
    for level in ["TRACE", "DEBUG", "INFO"] {
        let lines = said.lines().filter(|line| line.contains(level)).count();
        assert!(
            lines >= 3,
            "{lines} lines of {level}: is this all it can say?"
        );
    }
    assert!(!said.contains("panic"), "it panicked: {said}");
    spy.assert_none_in("what the server said", &said);
    spy.assert_none_in_problems();
    let signature = token.rsplit('.').next().unwrap();
    assert!(!said.contains(signature) && !said.contains(&good().to_string()));
    println!(
        "{format}: {} requests, {} problems, {} lines, {} secrets",
        spy.requests,
        spy.problems.len(),
        said.lines().count(),
        spy.secrets.len()
    );
}

fn on_sqlite(format: &str) {
    let folder = TempDir::new().unwrap();
    runtime().block_on(say_nothing(folder.path(), &[], format));
}

fn on_postgres(format: &str) {
    let folder = TempDir::new().unwrap();
    runtime().block_on(async {
        let Some(database) = postgres::database().await else {
            return;
        };
        let url = database
            .url
            .replacen("quita@", &format!("quita:{PASSWORD}@"), 1);
        say_nothing(folder.path(), &["--database-url", &url], format).await;
        database.drop().await;
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn on_sqlite_in_json() {
    on_sqlite("json");
}

#[test]
fn on_postgres_in_plain_lines() {
    on_postgres("plain");
}

#[test]
fn a_start_that_fails_shows_no_secret() {
    let folder = TempDir::new().unwrap();
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, format!("[[issuer]]\nsecret = '{PASSWORD}\n")).unwrap();
    let key = format!("qta_abcdefghijkl_{MARK}");
    for (setting, value) in [
        (
            "--database-url",
            format!("postgres://u:{PASSWORD}@127.0.0.1:1/db"),
        ),
        (
            "--database-url",
            format!("postgres://u:{PASSWORD}@127.0.0.1:port/db"),
        ),
        ("--database-url", format!("postgres://u:{PASSWORD}@[::1/db")),
        (
            "--database-url",
            format!("postgres://u:{PASSWORD}/@h:1/db?sslmode=nonsense"),
        ),
        (
            "--database-url",
            format!("postgres://127.0.0.1:1/db?user=u&password={PASSWORD}"),
        ),
        (
            "--database-url",
            format!("postgres://127.0.0.1:1/db?sslmode=x&password={PASSWORD}"),
        ),
        ("--database-url", format!("mysql://u:{PASSWORD}@h/db")),
        ("--database-url", format!("{PASSWORD}@h/db")),
        ("--admin-key", key),
        ("--jwt-issuers", bad.to_str().unwrap().to_owned()),
    ] {
        let mut command = command(folder.path());
        command.args(["--listen", "127.0.0.1:0", "--log-level", "trace"]);
        let by_variable = format!("QUITA_{}", setting[2..].to_uppercase().replace('-', "_"));
        command.env(by_variable, &value);
        let out = command.output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(
            !out.status.success() && !said.is_empty(),
            "{setting} {value}"
        );
        assert!(!said.contains(MARK), "{setting} {value}: {said}");
    }
}

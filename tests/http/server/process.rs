//! The binary as a process: what it prints, where it keeps things, and how it ends.

use quita_tests::server::{Process, command, free_address};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn output(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let out = command(folder).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_first_start_keeps_everything_private_and_a_signal_ends_it_with_0() {
    let folder = TempDir::new().unwrap();
    for signal in ["TERM", "INT"] {
        let mut process = Process::start(folder.path(), &[]);
        let data = folder.path().join("data");
        assert_eq!(mode(&data), 0o700);
        for file in ["admin.key", "quita.db"] {
            assert_eq!(mode(&data.join(file)), 0o600, "{file}");
        }
        let listen = process.address.to_string();
        let (ready, said, _) = output(folder.path(), &["health", "--listen", &listen]);
        assert!(ready && said == "ready\n");
        let began = Instant::now();
        process.signal(signal);
        assert_eq!(process.wait().code(), Some(0));
        assert!(began.elapsed() < Duration::from_secs(2));
        let (ready, _, why) = output(folder.path(), &["health", "--listen", &listen]);
        assert!(!ready && why.starts_with("quita: http://127.0.0.1:"));
    }
    let keys = output(folder.path(), &["key", "list"]).1;
    assert_eq!(keys.lines().count(), 1, "{keys}");
}

#[test]
fn a_server_serves_until_a_signal_whatever_is_logged() {
    for level in ["off", "error", "warn"] {
        let folder = TempDir::new().unwrap();
        let mut process = Process::start(folder.path(), &["--log-level", level]);
        let listen = process.address.to_string();
        for _ in 0..3 {
            let (ready, _, why) = output(folder.path(), &["health", "--listen", &listen]);
            assert!(ready, "{level}: {why}");
        }
        process.signal("TERM");
        assert_eq!(process.wait().code(), Some(0), "{level}");
    }
}

#[test]
fn keys_are_made_rotated_and_revoked_in_the_store_itself() {
    let folder = TempDir::new().unwrap();
    let key = |arguments: &[&str]| output(folder.path(), &[&["key"], arguments].concat());
    let scopes = ["--scope", "read:a*", "--scope", "publish:a1"];
    let (done, made, why) = key(&[&["create", "--expires", "90d"], &scopes[..]].concat());
    assert!(done && made.starts_with("qta_"), "{why}");
    let id = &made[4..16];
    let listed = key(&["list"]).1;
    assert!(
        listed.contains("good     publish:a1 read:a*  ends 2"),
        "{listed}"
    );
    assert!(listed.contains("used never"), "{listed}");
    let (done, next, why) = key(&["rotate", id, "--overlap", "0s"]);
    assert!(
        done && next.starts_with("qta_") && next[4..16] != *id,
        "{why}"
    );
    let listed = key(&["list"]).1;
    assert!(listed.contains(&format!("{id}  expired")), "{listed}");
    assert!(!key(&["rotate", id]).0);
    assert!(key(&["revoke", &next[4..16], "--reason", "was in a log"]).0);
    let (done, _, why) = key(&["create", "--scope", "reed"]);
    assert!(!done && why.contains("the nearest is read"), "{why}");
    assert!(!key(&["create", "--expires", "soon"]).0);
}

#[test]
fn a_second_server_on_one_file_is_refused_in_a_sentence() {
    let folder = TempDir::new().unwrap();
    let _first = Process::start(folder.path(), &[]);
    let (done, _, why) = output(folder.path(), &["--listen", "127.0.0.1:0"]);
    assert!(!done && why.contains("another process"), "{why}");
}

/// The status and the whole answer to a GET without a key.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[test]
fn the_inner_listener_has_health_and_metrics_without_a_key_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let inner = free_address();
    let at = inner.to_string();
    let mut process = Process::start(
        folder.path(),
        &["--inner-listen", &at, "--drain-delay-seconds", "1"],
    );
    assert_eq!(get(inner, "/healthz").0, 200);
    assert_eq!(get(inner, "/readyz").0, 200);
    let (status, text) = get(inner, "/metrics");
    assert!(
        status == 200 && text.contains("quita_requests_in_flight"),
        "{text}"
    );
    assert_eq!(get(process.address, "/metrics").0, 401);
    for path in ["/v1/queues", "/docs", "/openapi.json", "/problems"] {
        assert_eq!(get(inner, path).0, 404, "{path}");
    }
    // A port that is taken is said, and which setting names it.
    let other = TempDir::new().unwrap();
    let (done, _, why) = output(
        other.path(),
        &["--listen", "127.0.0.1:0", "--inner-listen", &at],
    );
    assert!(!done && why.contains("(--inner-listen)"), "{why}");
    process.signal("TERM");
    while get(inner, "/readyz").0 == 200 {}
    assert_eq!(get(inner, "/healthz").0, 200);
    assert_eq!(process.wait().code(), Some(0));
    assert!(TcpStream::connect(inner).is_err());
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = TempDir::new().unwrap();
    let mut process = Process::start(folder.path(), &["--drain-delay-seconds", "60"]);
    process.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    process.signal("TERM");
    let began = Instant::now();
    let status = process.wait();
    assert!(began.elapsed() < Duration::from_secs(1) && status.signal().is_none());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn it_starts_again_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let mut process = Process::start(folder.path(), &[]);
    process.signal("KILL");
    process.wait();
    let key = fs::read(folder.path().join("data/admin.key")).unwrap();
    let began = Instant::now();
    let again = Process::start(folder.path(), &[]);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(fs::read(folder.path().join("data/admin.key")).unwrap(), key);
    drop(again);
}

#[test]
fn keys_are_made_listed_and_revoked_without_showing_a_secret_twice() {
    let folder = TempDir::new().unwrap();
    assert!(output(folder.path(), &["migrate"]).0);
    let (_, key, _) = output(
        folder.path(),
        &["key", "create", "--description", "billing"],
    );
    let id = key.trim().split('_').nth(1).unwrap();
    let (_, list, _) = output(folder.path(), &["key", "list"]);
    assert!(
        list.contains(id)
            && list.contains("good")
            && list.contains("billing")
            && !list.contains(key.trim())
    );
    assert!(output(folder.path(), &["key", "revoke", id]).0);
    assert!(
        output(folder.path(), &["key", "list"])
            .1
            .contains("revoked")
    );
    let (again, _, why) = output(folder.path(), &["key", "revoke", id]);
    assert!(!again && why.contains(id));
}

#[test]
fn nonsense_on_the_command_line_is_a_sentence() {
    let folder = TempDir::new().unwrap();
    for (arguments, word) in [
        (&["--admin-key", "secret"][..], "whole API key"),
        (&["--database-url", "mysql://u:geheim@h/db"], "sqlite"),
        (&["--log-level", "quita=loud"], "log-level"),
        (&["--idle-timeout-seconds", "0"], "seconds"),
    ] {
        let (done, _, why) = output(folder.path(), arguments);
        assert!(
            !done && why.contains(word) && !why.contains("geheim"),
            "{why}"
        );
    }
}

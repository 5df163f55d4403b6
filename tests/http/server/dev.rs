//! `--dev-no-auth`, where it is refused, and what is said about a listener that others can reach.

use crate::client::checked;
use quita_tests::certificates::Authority;
use quita_tests::server::{Process, TestServer, command};
use quita_tests::wire::Wire;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use tempfile::TempDir;

/// What standard error says until the server serves or has ended, and its exit code if it ended by itself.
fn said_at_start(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = TempDir::new().unwrap();
    let mut child = command(folder.path())
        .args(arguments)
        .envs(variables.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        said += &(line.clone() + "\n");
        if line.contains(" serving ") {
            child.kill().unwrap();
            child.wait().unwrap();
            return (None, said);
        }
    }
    (child.wait().unwrap().code(), said)
}

#[test]
fn a_server_without_access_control_starts_where_nobody_else_can_call() {
    const POD: (&str, &str) = ("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    const ON: (&str, &str) = ("QUITA_DEV_NO_AUTH", "true");
    let flag = "--dev-no-auth";
    for (listen, arguments, variables, refused) in [
        ("127.0.0.1:0", &[flag][..], &[][..], None),
        ("127.0.0.1:0", &[], &[ON], None),
        ("0.0.0.0:0", &[flag], &[], Some("from other machines")),
        ("0.0.0.0:0", &[], &[ON], Some("from other machines")),
        ("[::]:0", &[flag], &[], Some("from other machines")),
        ("192.0.2.1:0", &[flag], &[], Some("from other machines")),
        ("127.0.0.1:0", &[flag], &[POD], Some("Kubernetes")),
        ("0.0.0.0:0", &[flag], &[POD], Some("from other machines")),
        ("127.0.0.1:0", &[], &[POD], None),
    ] {
        let arguments = [&["--listen", listen], arguments].concat();
        let (code, said) = said_at_start(&arguments, variables);
        let warned = said.contains("WARN") && said.contains("every request may do everything");
        match refused {
            None => {
                let on = arguments.contains(&flag) || variables.contains(&ON);
                assert!(code.is_none() && warned == on, "{said}");
            }
            Some(why) => {
                assert_eq!(code, Some(1), "{said}");
                assert!(said.starts_with("quita: --dev-no-auth") && said.contains(why));
                assert_eq!(said.lines().count(), 1, "{said}");
            }
        }
    }
    let nonsense = said_at_start(&[], &[("QUITA_DEV_NO_AUTH", "perhaps")]);
    assert_eq!(nonsense.0, Some(2), "{}", nonsense.1);
}

#[tokio::test]
async fn everybody_is_an_admin_and_the_audit_says_so() {
    let folder = TempDir::new().unwrap();
    let server = Process::start(folder.path(), &["--dev-no-auth"]);
    let mut wire = Wire::to(server.address).await;
    for credentials in [
        "",
        "authorization: Bearer qta_wrong\r\n",
        "authorization: Basic eDp5\r\n",
    ] {
        let headers = format!("{credentials}content-type: application/json\r\n");
        wire.request("PUT", "/v1/queues/q", &headers, "{}").await;
        assert!(wire.answer().await.status < 300, "{credentials}");
        wire.request("POST", "/v1/queues/q/pause", &headers, "{}")
            .await;
        assert_eq!(wire.answer().await.status, 200, "{credentials}");
    }
    let rows = wire.get("/v1/audit").await.json();
    let rows = rows["entries"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["actor"], "dev-no-auth", "{row}");
    }
    assert_eq!(
        wire.get("/v1/keys").await.json()["keys"],
        serde_json::json!([])
    );
    assert!(!folder.path().join("data/admin.key").exists());
    drop(server);

    // The next start without the setting is a first start.
    let server = Process::start(folder.path(), &[]);
    assert!(folder.path().join("data/admin.key").exists());
    let refused = Wire::to(server.address).await.get("/v1/queues").await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn no_page_that_is_open_in_a_browser_is_an_admin() {
    const EVIL: &str = "origin: https://evil.example\r\n";
    let folder = TempDir::new().unwrap();
    let named = [
        "--dev-no-auth",
        "--cors-allow-origin",
        "https://desk.example",
    ];
    let server = Process::start(folder.path(), &named);
    let local = format!("host: localhost:{}\r\n", server.address.port());
    let own = format!(
        "{local}origin: http://localhost:{}\r\n",
        server.address.port()
    );
    let mut wire = Wire::to(server.address).await;
    wire.request(
        "PUT",
        "/v1/queues/q",
        "content-type: application/json\r\n",
        "{}",
    )
    .await;
    assert_eq!(wire.answer().await.status, 201);
    for (headers, taken) in [
        (own.clone(), true),
        (
            format!("{local}origin: https://desk.example\r\nsec-fetch-site: cross-site\r\n"),
            true,
        ),
        (
            format!("host: evil.example:{}\r\n", server.address.port()),
            false,
        ),
        (format!("{local}{EVIL}"), false),
        (format!("{local}origin: null\r\n"), false),
        (format!("{local}sec-fetch-site: cross-site\r\n"), false),
    ] {
        for (method, path) in [
            ("POST", "/v1/queues/q/pause"),
            ("GET", "/v1/queues"),
            ("GET", "/nowhere"),
            ("OPTIONS", "/v1/queues"),
        ] {
            wire.send(format!("{method} {path} HTTP/1.1\r\n{headers}\r\n"))
                .await;
            let answer = wire.answer().await;
            assert_eq!(answer.status != 403, taken, "{headers}: {}", answer.head);
            if !taken {
                assert_eq!(checked(&answer).1["code"], "untrusted_origin");
                assert_eq!(answer.header("access-control-allow-origin"), None);
            }
        }
        let paused = wire.get("/v1/queues/q").await.json()["paused"].clone();
        assert_eq!(paused, taken, "{headers}");
        wire.request("POST", "/v1/queues/q/resume", "", "").await;
        assert_eq!(wire.answer().await.status, 200);
    }
    drop(server);

    // With keys none of this counts.
    let server = TestServer::start().await;
    let mut wire = server.wire().await;
    let key = format!("authorization: Bearer {}\r\n", server.key);
    wire.send(format!(
        "GET /v1/queues HTTP/1.1\r\nhost: evil.example\r\n{EVIL}{key}\r\n"
    ))
    .await;
    assert_eq!(wire.answer().await.status, 200);
    server.stop().await;
}

#[test]
fn a_key_that_others_read_is_warned_about_once() {
    let folder = TempDir::new().unwrap();
    let pair = Authority::default().issue(folder.path());
    for (mode, warned) in [(0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)] {
        std::fs::set_permissions(&pair.key, Permissions::from_mode(mode)).unwrap();
        let arguments = [&["--listen", "127.0.0.1:0"], &pair.arguments()[..]].concat();
        let (code, said) = said_at_start(&arguments, &[]);
        assert_eq!(code, None, "{said}");
        let lines = said.lines().filter(|line| line.contains("WARN"));
        let about = lines.filter(|line| line.contains("key.pem"));
        assert_eq!(about.count(), warned, "{mode:o}: {said}");
    }
}

#[test]
fn a_listener_that_others_reach_without_tls_is_warned_about() {
    let folder = TempDir::new().unwrap();
    let pair = Authority::default().issue(folder.path());
    for (listen, tls, warned) in [
        ("127.0.0.1:0", false, false),
        ("[::1]:0", false, false),
        ("0.0.0.0:0", false, true),
        ("[::]:0", false, true),
        ("0.0.0.0:0", true, false),
    ] {
        let mut arguments = vec!["--listen", listen];
        if tls {
            arguments.extend(pair.arguments());
        }
        let (code, said) = said_at_start(&arguments, &[]);
        assert_eq!(code, None, "{said}");
        let lines = said.lines().filter(|line| line.contains("WARN"));
        let about = lines.filter(|line| line.contains("--tls-cert and --tls-key"));
        assert_eq!(about.count(), usize::from(warned), "{said}");
    }
}

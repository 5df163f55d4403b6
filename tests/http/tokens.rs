//! Tokens of an issuer, from the outside: who is let in, what is told to whom, and when a wait ends.

use crate::client::checked;
use crate::issuer::{SECRET, but, good, issuers, now_s, sign};
use quita_storage::memory;
use quita_tests::server::{TestServer, command, json_headers};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const RECEIVE: &str = "/v1/queue/receive";

async fn server(file: Option<PathBuf>) -> TestServer {
    TestServer::start_with(memory::open(), |config| config.jwt_issuers = file).await
}

async fn ask(server: &TestServer, credentials: &str, path: &str, body: &Value) -> (u16, Value) {
    let mut wire = server.wire().await;
    wire.request("POST", path, &json_headers(credentials), &body.to_string())
        .await;
    let answer = wire.answer().await;
    if answer.status == 401 {
        assert!(answer.header("www-authenticate").is_some());
    }
    if answer.status == 503 {
        assert!(answer.header("retry-after").is_some());
    }
    checked(&answer)
}

#[tokio::test]
async fn a_token_opens_what_it_says_and_its_issuer_may_give() {
    let folder = TempDir::new().unwrap();
    let server = server(Some(issuers(folder.path()))).await;
    let token = sign(&good(), SECRET);
    let publish = "/v1/queue/publish";
    for (queue, status) in [("mail-eu", 201), ("mail-us", 201), ("orders", 404)] {
        let body = json!({"queue": queue, "message": 1});
        assert_eq!(ask(&server, &token, publish, &body).await.0, status);
    }
    let receive = |queue: &str| json!({"queue": queue});
    let (status, got) = ask(&server, &token, RECEIVE, &receive("mail-eu")).await;
    assert_eq!(
        (status, got["messages"].as_array().unwrap().len()),
        (200, 1)
    );
    assert_eq!(
        ask(&server, &token, RECEIVE, &receive("mail-us")).await.0,
        404
    );
    let audit = server.get("/v1/audit?action=create_queue").await;
    let rows: Value = serde_json::from_slice(&audit.body).unwrap();
    assert_eq!(rows["entries"][0]["actor"], "login:alice", "{rows}");
    server.stop().await;
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_token_gets_one_answer() {
    let folder = TempDir::new().unwrap();
    let with = server(Some(issuers(folder.path()))).await;
    let without = server(None).await;
    let good_one = sign(&good(), SECRET);
    let wrong = [
        sign(&good(), "another secret of thirty-two bytes or more"),
        sign(&but("iss", json!("https://elsewhere/")), SECRET),
        sign(&but("aud", json!("others")), SECRET),
        sign(&but("exp", json!(now_s() - 31)), SECRET),
        sign(&but("exp", json!(now_s() + 90_000)), SECRET),
        sign(&but("nbf", json!(now_s() + 60)), SECRET),
        sign(&but("sub", json!("")), SECRET),
        good_one[..good_one.len() - 2].to_owned(),
        format!("{good_one}x"),
        format!("{good_one}.x"),
        "a.b.c".to_owned(),
        format!("e30.{}.e30", "A".repeat(9_000)),
    ];
    let mut answers = Vec::new();
    for token in &wrong {
        answers.push(ask(&with, token, RECEIVE, &json!({"queue": "q"})).await);
    }
    answers.push(ask(&without, &good_one, RECEIVE, &json!({"queue": "q"})).await);
    for (status, json) in &mut answers {
        json["request_id"] = Value::Null;
        assert_eq!((*status, &json["code"]), (401, &json!("invalid_token")));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let key = ask(&with, "nonsense", RECEIVE, &json!({"queue": "q"}))
        .await
        .1;
    assert_eq!(key["code"], "invalid_key");
    with.stop().await;
    without.stop().await;
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_a_reason_to_try_again() {
    let folder = TempDir::new().unwrap();
    issuers(folder.path());
    let server = server(Some(folder.path().join("down.toml"))).await;
    let token = sign(&but("iss", json!("https://down/")), SECRET);
    let rs256 = "eyJhbGciOiJSUzI1NiJ9"; // {"alg":"RS256"}
    let token = format!("{rs256}.{}", token.split_once('.').unwrap().1);
    let (status, json) = ask(&server, &token, RECEIVE, &json!({"queue": "q"})).await;
    assert_eq!((status, &json["code"]), (503, &json!("issuer_unavailable")));
    assert_eq!(json["retryable"], true);
    // Keys do not depend on it.
    let body = json!({"queue": "q", "message": 1});
    let made = ask(&server, &server.key, "/v1/queue/publish", &body);
    assert_eq!(made.await.0, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_waiting_receive_ends_with_its_token() {
    let folder = TempDir::new().unwrap();
    let server = server(Some(issuers(folder.path()))).await;
    server
        .post(
            "/v1/queue/publish",
            r#"{"queue":"mail-eu","message":1,"delay_seconds":60}"#,
        )
        .await;
    // 30 s are tolerated.
    let token = sign(&but("exp", json!(now_s() - 28)), SECRET);
    let began = Instant::now();
    let body = json!({"queue": "mail-eu", "wait_seconds": 20});
    let (status, json) = ask(&server, &token, RECEIVE, &body).await;
    assert_eq!((status, &json["code"]), (401, &json!("invalid_token")));
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    server.stop().await;
}

fn check(folder: &Path, arguments: &[&str], token: &str) -> Output {
    let mut child = command(folder)
        .args(["token", "check"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(token.as_bytes());
    child.wait_with_output().unwrap()
}

#[test]
fn an_operator_is_told_what_is_wrong_with_a_token() {
    let folder = TempDir::new().unwrap();
    let file = issuers(folder.path());
    let by = ["--jwt-issuers", file.to_str().unwrap()];
    let good_one = sign(&good(), SECRET);
    let path = folder.path().join("token");
    std::fs::write(&path, format!("Bearer {good_one}\n")).unwrap();
    for (more, sent) in [
        (&[][..], &*good_one),
        (&["-"], &good_one),
        (&[&good_one], ""),
        (&["--token-file", path.to_str().unwrap()], ""),
    ] {
        let out = check(folder.path(), &[&by[..], more].concat(), sent);
        let said = String::from_utf8(out.stdout).unwrap();
        assert!(out.status.success(), "{said}");
        for part in ["login:alice", "HS256", "publish:mail-*", "consume:mail-eu"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("redrive:") && !said.contains(SECRET));
    }
    for (claims, secret, why) in [
        (
            good(),
            "another secret of thirty-two bytes or more",
            "signature is wrong",
        ),
        (but("aud", json!("others")), SECRET, "`aud`"),
        (but("exp", json!(now_s() - 100)), SECRET, "expired"),
    ] {
        let out = check(folder.path(), &by, &sign(&claims, secret));
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success() && said.contains(why), "{said}");
        assert!(said.contains("invalid_token") && !said.contains(SECRET));
    }
}

#[test]
fn a_server_does_not_start_with_a_bad_file_of_issuers() {
    let folder = TempDir::new().unwrap();
    let bad = folder.path().join("bad.toml");
    let short = "[[issuer]]\nname = 'login'\niss = 'https://login/'\naudience = ['quita']\nalgorithms = ['HS256']\nsecret = 'canary-short'\nceiling = ['read']\n";
    for (text, why) in [
        (short, "shorter than 32 bytes"),
        ("[[issuer]]\nnane = 'canary'\n", "line 2"),
        ("", "issuers.toml"),
    ] {
        std::fs::write(&bad, text).unwrap();
        let file = if text.is_empty() {
            "issuers.toml"
        } else {
            "bad.toml"
        };
        let out = command(folder.path())
            .args(["--listen", "127.0.0.1:0", "--jwt-issuers", file])
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert!(!out.status.success() && out.stdout.is_empty());
        assert!(
            said.contains("the token issuers: ") && said.contains(why),
            "{said}"
        );
        assert!(!said.contains("canary"), "{said}");
    }
}

//! What browsers are told: to keep nothing, to run nothing, and which other origins may call.

use crate::client::checked;
use quita_api::auth::bucket::Rate;
use quita_storage::memory;
use quita_tests::server::TestServer;
use quita_tests::wire::Answer;
use std::fmt::Write;
use std::num::NonZeroU32;

const CLOSED: &str = "default-src 'none'; frame-ancestors 'none'";
const DESK: &str = "https://desk.example.com";

async fn ask(server: &TestServer, method: &str, path: &str, headers: &str, key: bool) -> Answer {
    let mut headers = headers.to_owned();
    if key {
        let _ = write!(headers, "authorization: Bearer {}\r\n", server.key);
    }
    let mut wire = server.wire().await;
    wire.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}\r\n"
    ))
    .await;
    wire.answer().await
}

#[tokio::test]
async fn nothing_that_is_about_somebody_may_be_kept_run_or_framed() {
    let server = TestServer::start().await;
    let body = r#"{"queue":"q","message":1}"#;
    let mut answers = vec![
        server.post("/v1/queue/publish", body).await,
        server.post("/v1/queue/receive", r#"{"queue":"q"}"#).await,
        server.post("/v1/queue/publish", "{").await,
        server.get("/v1/audit").await,
        server.get("/v1/queues/nowhere").await,
        server.get("/docs/nowhere").await,
    ];
    for (method, path, headers) in [
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("GET", "/v1/queues", ""),
        ("GET", "/nowhere", ""),
        ("OPTIONS", "/v1/queues", ""),
        ("PUT", "/v1/queues", ""),
        // Before the router, and beside it.
        ("GET", "/healthz", "expect: nonsense\r\n"),
        ("GET", "/healthz", "host: twice\r\n"),
    ] {
        answers.push(ask(&server, method, path, headers, false).await);
    }
    for answer in answers {
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(
            answer.header("cache-control"),
            Some("no-store"),
            "{}",
            answer.head
        );
        assert_eq!(answer.header("content-security-policy"), Some(CLOSED));
        assert_eq!(answer.header("strict-transport-security"), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_connection_over_the_cap_is_answered_with_the_same_headers() {
    let few = |config: &mut quita_api::config::Config| config.max_connections = Some(1);
    let server = TestServer::start_with(memory::open(), few).await;
    let mut inside = server.wire().await;
    assert_eq!(inside.get("/healthz").await.status, 200);
    let answer = server.wire().await.answer().await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("content-security-policy"), Some(CLOSED));
    drop(inside);
    server.stop().await;
}

#[tokio::test]
async fn pages_for_people_run_their_own_files_alone_and_stand_in_no_frame() {
    let server = TestServer::start().await;
    for (path, accept) in [
        ("/docs/index.html", "*/*"),
        ("/docs/swagger-ui-bundle.js", "*/*"),
        ("/problems", "text/html"),
        ("/problems/queue_full", "text/html"),
    ] {
        let answer = ask(
            &server,
            "GET",
            path,
            &format!("accept: {accept}\r\n"),
            false,
        )
        .await;
        assert_eq!(answer.status, 200);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe-eval"));
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "public, max-age=3600"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path} {name}");
        }
    }
    // One address, two forms: a cache must not mix them up.
    for accept in ["text/html", "application/json"] {
        let headers = format!("accept: {accept}\r\n");
        let answer = ask(&server, "GET", "/problems", &headers, false).await;
        assert_eq!(answer.header("vary"), Some("accept"));
    }
    let answer = ask(&server, "GET", "/openapi.json", "", false).await;
    assert_eq!(answer.header("cache-control"), Some("public, max-age=3600"));
    server.stop().await;
}

/// The policy of the page at `/docs` allows `script-src 'self'`: whatever its markup loads must come from here, and nothing
/// may stand in the markup itself.
#[tokio::test]
async fn the_page_for_people_has_no_script_in_its_markup_and_none_from_elsewhere() {
    let server = TestServer::start().await;
    let page = ask(&server, "GET", "/docs/index.html", "", false).await;
    let page = page.text();
    let mut files = Vec::new();
    for part in page.split('<').skip(1) {
        let (tag, inside) = part.split_once('>').unwrap();
        if tag.starts_with("script") {
            assert!(inside.trim().is_empty(), "a script in the markup: {inside}");
            assert!(tag.contains(" src=\""), "{tag}");
        }
        assert!(!tag.contains(" on"), "a handler in the markup: {tag}");
        for attribute in ["src=\"", "href=\""] {
            if let Some((_, rest)) = tag.split_once(attribute) {
                files.push(rest.split('"').next().unwrap().to_owned());
            }
        }
    }
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        assert!(!file.contains("//"), "{file} comes from elsewhere");
        let path = format!("/docs/{}", file.trim_start_matches("./"));
        let answer = ask(&server, "GET", &path, "", false).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    server.stop().await;
}

async fn desk() -> TestServer {
    TestServer::start_with(memory::open(), |config| {
        config.cors.cors_allow_origin = vec![DESK.parse().unwrap()];
        let one = NonZeroU32::new(1).unwrap();
        config.limits.rate_management = Rate::per_second(0.01, one);
    })
    .await
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_named_may_ask_and_read() {
    let server = desk().await;
    let asks = format!(
        "origin: {DESK}\r\naccess-control-request-method: PATCH\r\naccess-control-request-headers: authorization,content-type\r\n"
    );
    let answer = ask(&server, "OPTIONS", "/v1/queues/q", &asks, false).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(answer.header("access-control-allow-origin"), Some(DESK));
    let methods = answer.header("access-control-allow-methods").unwrap();
    assert!(
        methods.contains("PATCH") && !methods.contains("POST"),
        "{methods}"
    );
    let headers = answer.header("access-control-allow-headers").unwrap();
    for name in [
        "authorization",
        "content-type",
        "if-match",
        "idempotency-key",
    ] {
        assert!(headers.contains(name), "{headers}");
    }
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert!(answer.header("allow").unwrap().ends_with("OPTIONS"));
    assert!(answer.header("vary").unwrap().contains("origin"));

    let from = format!("origin: {DESK}\r\n");
    for (method, path, key, status) in [
        ("GET", "/v1/queues", true, 200),
        ("GET", "/v1/queues", false, 401),
        ("GET", "/v1/queues/nowhere", true, 404),
        ("PUT", "/v1/queues", true, 405),
        ("TRACE", "/v1/queues", false, 405),
        // The one for the changes of a key is used up.
        ("DELETE", "/v1/queues/nowhere", true, 404),
        ("DELETE", "/v1/queues/nowhere", true, 429),
    ] {
        let answer = ask(&server, method, path, &from, key).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some(DESK));
        let exposed = answer.header("access-control-expose-headers").unwrap();
        assert!(exposed.contains("request-id") && exposed.contains("retry-after"));
        assert_eq!(answer.header("access-control-allow-credentials"), None);
        checked(&answer);
    }
    server.stop().await;
}

#[tokio::test]
async fn another_origin_is_granted_nothing() {
    let (with, without) = (desk().await, TestServer::start().await);
    for (server, origin) in [
        (&with, "https://evil.example"),
        (&with, "https://desk.example.com.evil.example"),
        (&with, "https://desk.example.com:444"),
        (&with, "http://desk.example.com"),
        (&with, "null"),
        (&with, "*"),
        (&without, DESK),
        (&without, "null"),
    ] {
        let asks = format!("origin: {origin}\r\naccess-control-request-method: GET\r\n");
        let answer = ask(server, "OPTIONS", "/v1/queues", &asks, false).await;
        assert_eq!(answer.status, 204);
        assert!(
            !answer.head.contains("access-control"),
            "{origin}: {}",
            answer.head
        );
        assert!(answer.header("allow").unwrap().contains("GET"));
        let answer = ask(server, "GET", "/v1/queues", &asks, true).await;
        assert_eq!(
            answer.header("access-control-allow-origin"),
            None,
            "{origin}"
        );
        assert_eq!(answer.status, 200);
    }
    // No path, no grant.
    let asks = format!("origin: {DESK}\r\naccess-control-request-method: GET\r\n");
    let answer = ask(&with, "OPTIONS", "/nowhere", &asks, false).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    with.stop().await;
    without.stop().await;
}

//! D: who calls, and what a caller may do. Every credential that is not good gets one of a few answers, which say nothing of
//! why; what a good one does not allow is refused by its kind.

use super::credentials::{MISSING, TOKEN, key_rows, token_rows, with_checksum};
use super::{JSON, PUBLISH, RECEIVE};
use crate::client::{Client, checked, on_every_store};
use crate::issuer::{SECRET, STRAY, but, good, issuers, now_s, sign, sign_corp, sign_raw};
use jsonwebtoken::Algorithm;
use quita_api::auth::{ApiKey, admin_record};
use quita_api::config::Config;
use quita_storage::backend::{Call, KeyRecord};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

pub(crate) fn with_issuers(config: &mut Config) {
    config.jwt_issuers = Some(issuers(&config.store.data_dir));
}

async fn ask(client: &Client, authorization: &[u8], path: &str, body: &str) -> (u16, Value) {
    let mut head = format!("POST {path} HTTP/1.1\r\nhost: test\r\n").into_bytes();
    if !authorization.is_empty() {
        head.extend_from_slice(b"authorization: ");
        head.extend_from_slice(authorization);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(format!("{JSON}content-length: {}\r\n\r\n", body.len()).as_bytes());
    head.extend_from_slice(body.as_bytes());
    let mut wire = client.server.wire().await;
    // A head that is too long is refused before all of it was taken.
    let _ = wire.try_send(head).await;
    let answer = wire.answer().await;
    if answer.body.is_empty() {
        return (answer.status, Value::Null);
    }
    checked(&answer)
}

/// Waits until the server has read the keys of the store again.
async fn known(client: &Client, key: &str) {
    let began = Instant::now();
    let credentials = format!("Bearer {key}");
    while ask(client, credentials.as_bytes(), RECEIVE, "{}").await.0 == 401 {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn add(client: &Client, scope: &str, expires_at: Option<i64>) -> String {
    let key = ApiKey::generate().unwrap();
    let record = KeyRecord {
        scope: scope.into(),
        expires_at,
        ..admin_record(&key, "test")
    };
    let backend = &client.server.backend;
    let call = Call::by("test");
    assert!(backend.add_key(&call, record, false).await.unwrap());
    key.reveal().to_owned()
}

async fn every_bad_credential_is_refused_and_answers_say_nothing(client: &Client) {
    client.publish("there", json!("live")).await;
    let expired = add(client, "admin", Some(1)).await;
    let revoked = add(client, "admin", None).await;
    let call = Call::by("test");
    let backend = &client.server.backend;
    assert!(
        backend
            .revoke_key(&call, &revoked[4..16], None)
            .await
            .unwrap()
    );
    // The right id with the secret of another key, and the checksum that goes with it.
    let good = client.server.key.clone();
    let mixed = ApiKey::generate().unwrap().reveal().to_owned();
    let mixed = with_checksum(&format!("{}{}", &good[..17], &mixed[17..60]));
    assert!(ApiKey::parse(&mixed).is_some_and(|key| key.id() == &good[4..16]));
    let last = add(client, "publish", None).await;
    known(client, &last).await;
    let trail = "/v1/audit?page_size=500";
    let before = (client.snapshot().await, client.get(trail).await);
    let (mut wrong, mut bodies) = (String::new(), HashMap::new());
    let rows = [key_rows(&[expired, revoked, mixed]), token_rows()].concat();
    println!("{} rows", rows.len());
    for (row, sent, code) in &rows {
        let began = Instant::now();
        let body = r#"{"queue":"there","message":1}"#;
        let (status, mut json) = ask(client, sent.as_bytes(), PUBLISH, body).await;
        let shown: String = sent.chars().take(120).collect();
        json["request_id"] = Value::Null;
        if (status, json["code"].as_str()) != (401, Some(code)) {
            let _ = writeln!(
                wrong,
                "{row}: {shown}\n  wanted {code}, got {status} {json}"
            );
        }
        if began.elapsed() > Duration::from_secs(1) {
            let _ = writeln!(wrong, "{row}: {shown} took {:?}", began.elapsed());
        }
        if *bodies.entry(*code).or_insert_with(|| json.clone()) != json {
            let _ = writeln!(
                wrong,
                "{row}: {shown}\n  another answer than its like: {json}"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!((client.snapshot().await, client.get(trail).await), before);
}

async fn what_no_header_may_hold_ends_the_connection(client: &Client) {
    for (row, sent, statuses) in [
        ("D5", vec![b'k'; 1 << 20], &[431][..]),
        ("D5", b"Bearer a\0b".to_vec(), &[400]),
        ("D5", b"Bearer \xff\xfe".to_vec(), &[401]),
        (
            "D23",
            [b"Bearer ", &[b'a'; 16 << 10][..], b".b.c"].concat(),
            &[401],
        ),
    ] {
        let (status, _) = ask(client, &sent, RECEIVE, r#"{"queue":"q"}"#).await;
        assert!(statuses.contains(&status), "{row}: {status}");
    }
}

/// D2: what is in the address is in the logs of everything in between.
async fn credentials_in_the_address_are_not_read(client: &Client) {
    let key = &client.server.key;
    for name in ["api_key", "access_token", "key", "token", "authorization"] {
        let path = format!("{RECEIVE}?{name}={key}");
        let (status, json) = ask(client, b"", &path, r#"{"queue":"q"}"#).await;
        assert_eq!((status, &json["code"]), (401, &json!(MISSING)), "{name}");
        assert!(!json.to_string().contains(&key[17..]));
    }
}

async fn what_only_looks_bad_is_let_in(client: &Client) {
    let key = &client.server.key;
    let body = r#"{"queue":"mail-eu","message":1}"#;
    let ours = but("aud", json!(["others", "quita"]));
    let just = but("exp", json!(now_s() - 20));
    let corp = but("iss", json!("https://corp/"));
    for sent in [
        format!("bearer {key}"),
        format!("BEARER   {key}  "),
        format!("Bearer {}", sign(&ours, SECRET)),
        format!("Bearer {}", sign(&just, SECRET)),
        format!("Bearer {}", sign_corp(Algorithm::RS256, "rsa", &corp)),
        format!("Bearer {}", sign_corp(Algorithm::ES256, "ec", &corp)),
    ] {
        let (status, json) = ask(client, sent.as_bytes(), PUBLISH, body).await;
        assert_eq!(status, 201, "{json}");
    }
}

/// D6, on the server that takes none.
async fn without_an_issuer_no_token_is_good(client: &Client) {
    for token in [sign(&good(), SECRET), "a.b.c".into(), "..".into()] {
        let sent = format!("Bearer {token}");
        let (status, json) = ask(client, sent.as_bytes(), RECEIVE, r#"{"queue":"q"}"#).await;
        assert_eq!((status, &json["code"]), (401, &json!(TOKEN)));
    }
}

async fn a_key_that_is_public_or_for_something_else_verifies_nothing(client: &Client) {
    let claims = but("iss", json!("https://corp/"));
    for token in [
        sign_corp(Algorithm::RS256, "encrypts", &claims),
        // The key is one of the set, and its own algorithm another one.
        sign_corp(Algorithm::RS256, "ec", &claims),
        sign_corp(Algorithm::ES256, "rsa", &claims),
        sign_raw(
            r#"{"alg":"HS256","kid":"stray"}"#,
            &claims.to_string(),
            STRAY.as_bytes(),
        ),
        sign_raw(
            r#"{"alg":"RS256","kid":"stray"}"#,
            &claims.to_string(),
            STRAY.as_bytes(),
        ),
    ] {
        let sent = format!("Bearer {token}");
        let (status, json) = ask(client, sent.as_bytes(), RECEIVE, r#"{"queue":"q"}"#).await;
        assert_eq!((status, &json["code"]), (401, &json!(TOKEN)), "{token}");
    }
}

async fn a_token_for_others_or_out_of_time_is_refused(client: &Client) {
    let body = r#"{"queue":"mail-eu","message":1}"#;
    for (claims, status) in [
        (but("aud", json!(["others", "quita"])), 201),
        (but("aud", json!("others")), 401),
        (but("aud", json!(null)), 401),
        (but("exp", json!(null)), 401),
        // 30 s are tolerated.
        (but("exp", json!(now_s() - 61)), 401),
        (but("nbf", json!(now_s() + 61)), 401),
    ] {
        let sent = format!("Bearer {}", sign(&claims, SECRET));
        let got = ask(client, sent.as_bytes(), PUBLISH, body).await;
        assert_eq!(got.0, status, "{claims}: {}", got.1);
    }
}

/// D26: a right on something opens nothing else.
async fn a_scope_opens_what_it_names(client: &Client) {
    client.publish("q", json!(1)).await;
    let key = add(client, "publish", None).await;
    known(client, &key).await;
    let before = client.snapshot().await;
    for (method, path, body) in [
        ("POST", RECEIVE, r#"{"queue":"q"}"#),
        ("GET", "/v1/queues/q", ""),
        ("GET", "/v1/queues", ""),
        ("GET", "/v1/audit", ""),
        ("PUT", "/v1/queues/q", "{}"),
        ("POST", "/v1/dead-letters/selections", r#"{"queue":"q"}"#),
        ("POST", "/v1/redrives", "{}"),
        ("POST", "/v1/keys", r#"{"scopes":["publish"]}"#),
        ("GET", "/v1/keys", ""),
    ] {
        let mut wire = client.server.wire().await;
        let headers = quita_tests::server::json_headers(&key);
        wire.request(method, path, &headers, body).await;
        let (status, json) = checked(&wire.answer().await);
        assert_eq!(
            (status, &json["code"]),
            (403, &json!("insufficient_scope")),
            "{method} {path}"
        );
    }
    assert_eq!(client.snapshot().await, before);
}

/// D28: scopes that nobody could mean.
async fn scopes_of_nonsense_allow_nothing_and_make_no_key(client: &Client) {
    let many = vec!["publish:a"; 10_000];
    let before = client.get("/v1/keys").await;
    for scopes in [
        json!(["queue:.*"]),
        json!(["QUEUE:PUBLISH"]),
        json!(["Publish"]),
        json!(["publish:"]),
        json!(["publish:.*"]),
        json!(["publish:a*b"]),
        json!(["publish:ä"]),
        json!(["рublish"]),
        json!(["publish read"]),
        json!(["*"]),
        json!([""]),
        json!(many),
    ] {
        let (status, json) = client.post("/v1/keys", json!({"scopes": scopes})).await;
        let shown: String = scopes.to_string().chars().take(40).collect();
        assert_eq!(status, 422, "{shown}: {json}");
        let text = scopes.to_string();
        let token = sign(&but("scope", scopes), SECRET);
        let sent = format!("Bearer {token}");
        let asked = ask(client, sent.as_bytes(), RECEIVE, r#"{"queue":"mail-eu"}"#).await;
        // 431: ten thousand are longer than a head may be.
        assert!([401, 403, 431].contains(&asked.0), "{shown}: {}", asked.1);
        let word = sign(&but("scope", json!(text)), SECRET);
        let sent = format!("Bearer {word}");
        let asked = ask(client, sent.as_bytes(), RECEIVE, r#"{"queue":"mail-eu"}"#).await;
        assert!([401, 403, 431].contains(&asked.0), "{shown}: {}", asked.1);
    }
    assert_eq!(client.get("/v1/keys").await, before);
}

on_every_store!(with crate::bad_input::access::with_issuers:
    every_bad_credential_is_refused_and_answers_say_nothing,
    what_only_looks_bad_is_let_in,
    a_key_that_is_public_or_for_something_else_verifies_nothing,
    a_token_for_others_or_out_of_time_is_refused,
    scopes_of_nonsense_allow_nothing_and_make_no_key,
);
on_every_store!(
    without_an_issuer_no_token_is_good,
    credentials_in_the_address_are_not_read,
    what_no_header_may_hold_ends_the_connection,
    a_scope_opens_what_it_names,
);

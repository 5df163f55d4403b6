//! Requests that are wrong, with contents and secrets in every place that a request has.

use super::spy::Spy;
use super::{MARK, SECRET};
use crate::issuer::{but, good, part, sign_raw};
use quita_api::auth::ApiKey;
use serde_json::{Value, json};

const JSON: &str = "content-type: application/json\r\n";

pub(super) async fn attack(spy: &mut Spy, token: &str) {
    for index in 0..spy.operations.len() {
        let operation = &spy.operations[index];
        let (method, template) = (operation.method.clone(), operation.path.clone());
        let (query, body) = (operation.query.clone(), operation.body.clone());
        let path = filled(spy, &template);
        bodies(spy, &method, &path, body.as_ref()).await;
        addresses(spy, &method, &template, &path, &query).await;
        credentials(spy, &method, &path, token).await;
        headers(spy, &method, &path).await;
    }
    nonsense(spy).await;
}

/// The path with things that are there.
fn filled(spy: &Spy, template: &str) -> String {
    let known = |name: &str| match name {
        "queue" => "q".to_owned(),
        "message_id" => spy.names["live"].clone(),
        "code" => "not_found".to_owned(),
        "file" => "index.html".to_owned(),
        other => spy.names[other].clone(),
    };
    let parts = template.split('/').map(|part| {
        let name = part
            .strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'));
        name.map_or_else(|| part.to_owned(), known)
    });
    parts.collect::<Vec<_>>().join("/")
}

async fn bodies(spy: &mut Spy, method: &str, path: &str, example: Option<&Value>) {
    let big = format!(
        "{{\"queue\":\"q\",\"message\":\"{}\"}}",
        MARK.repeat(50_000)
    );
    let huge = format!(
        "{{\"queue\":\"q\",\"message\":\"{}\"}}",
        MARK.repeat(400_000)
    );
    let deep = format!(
        "{{\"{MARK}\":{}\"{MARK}\"{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let mut texts: Vec<Vec<u8>> = [
        MARK.to_owned(),
        format!("\"{MARK}\""),
        format!("[\"{MARK}\"]"),
        format!("{{\"message\":\"{MARK}"),
        format!("{{\"{MARK}\":"),
        format!("{{\"queue\":\"q\",\"message\":\"{MARK}\"}} {MARK}"),
        format!("{{\"{MARK}\":1,\"{MARK}\":2}}"),
        format!("{{\"queue\":\"q\",\"message\":1,\"key\":\"{MARK}\\ud800\"}}"),
        format!("{{\"queue\":\"q\",\"message\":1,\"key\":\"{MARK}\\u0000\"}}"),
        format!("{{\"queue\":\"{MARK} \",\"message\":1}}"),
        format!("{{\"queue\":\"{MARK}\",\"receipt\":\"{MARK}\"}}"),
        deep,
    ]
    .map(String::into_bytes)
    .into();
    texts.push(format!("{{\"message\":\"{MARK}\u{0}\"}}").into_bytes());
    texts.push([MARK.as_bytes(), b"\xff\xfe"].concat());
    if path.ends_with("publish") || path.ends_with("dead-letters") {
        texts.extend([big.into_bytes(), huge.into_bytes()]);
    }
    for (name, _) in example.and_then(Value::as_object).into_iter().flatten() {
        for value in [json!(MARK), json!([MARK]), json!({MARK: MARK})] {
            let mut body = example.cloned().unwrap_or_default();
            body[name] = value;
            texts.push(body.to_string().into_bytes());
        }
        let mut body = example.cloned().unwrap_or_default();
        body[MARK] = json!(MARK);
        texts.push(body.to_string().into_bytes());
    }
    for text in texts {
        spy.call(method, path, &text).await;
    }
}

async fn addresses(spy: &mut Spy, method: &str, template: &str, path: &str, query: &[String]) {
    let mut paths = vec![
        format!("{path}?{MARK}={MARK}"),
        format!("{path}?api_key={MARK}"),
        format!("{path}/{MARK}"),
        format!("/{MARK}{path}"),
    ];
    for name in query {
        paths.push(format!("{path}?{name}={MARK}"));
        paths.push(format!("{path}?{name}={MARK}%00%ff"));
        paths.push(format!("{path}?{name}={MARK}&{name}={MARK}"));
    }
    if query.iter().any(|name| name == "page_token") {
        // A good token of another listing, and a cut one.
        let token = spy.page_token.clone();
        let token = token.expect("no page token was given out");
        paths.push(format!("{path}?page_token={token}&page_size=0"));
        paths.push(format!("{path}?page_token={token}A"));
    }
    for (index, _) in template.match_indices('{') {
        let before = filled(spy, &template[..index]);
        let after = template[index..]
            .split_once('}')
            .map_or("", |(_, rest)| rest);
        for value in [
            MARK.to_owned(),
            format!("msg_{MARK}"),
            format!("{MARK}%00"),
            format!("{MARK}%2F..%2F"),
        ] {
            // Names of queues may be seen: no queue of this name is made.
            if method != "PUT" || value.contains('%') {
                paths.push(format!("{before}{value}{}", filled(spy, after)));
            }
        }
    }
    for path in paths {
        let body = if method == "GET" { "" } else { "{}" };
        spy.call(method, &path, body.as_bytes()).await;
    }
}

async fn credentials(spy: &mut Spy, method: &str, path: &str, token: &str) {
    let claims = good().to_string();
    let stranger = ApiKey::generate().unwrap().reveal().to_owned();
    spy.secrets.insert(stranger[17..].to_owned());
    let header = |kid: &str| json!({"alg": "HS256", "kid": kid, "typ": "JWT"}).to_string();
    for sent in [
        String::new(),
        MARK.to_owned(),
        format!("Basic {}", part(format!("{MARK}:{MARK}"))),
        format!("Basic {MARK}"),
        format!("Digest username=\"{MARK}\""),
        format!("Bearer {MARK}"),
        format!("Bearer qta_abcdefghijkl_{MARK}"),
        format!("Bearer {stranger}"),
        format!("Token {stranger}"),
        format!("Bearer {}", &spy.key[..spy.key.len() - 1]),
        format!("Bearer {token}x"),
        format!("Bearer {token}"),
        format!("Bearer {MARK}.{MARK}.{MARK}"),
        format!(
            "Bearer {}.{}.{MARK}",
            part(format!("{{\"alg\":\"{MARK}\"}}")),
            part(&claims)
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &header(MARK),
                &but("iss", json!(MARK)).to_string(),
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &header(MARK),
                &but("iss", json!("https://corp/")).to_string(),
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &header("k"),
                &but("aud", json!(MARK)).to_string(),
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &header("k"),
                &but("scope", json!([MARK, 7])).to_string(),
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &format!("{{\"alg\":\"HS256\",\"typ\":\"{MARK}\"}}"),
                &claims,
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &format!("{{\"{MARK}\":{MARK}}}"),
                &format!("{{{MARK}"),
                SECRET.as_bytes()
            )
        ),
        format!(
            "Bearer {}",
            sign_raw(
                &format!("{{\"alg\":\"HS256\",\"{MARK}\":1,\"{MARK}\":1}}"),
                &claims,
                SECRET.as_bytes()
            )
        ),
    ] {
        let line = format!("authorization: {sent}\r\n{JSON}");
        let body = if method == "GET" { "" } else { "{}" };
        // A good token may find what is forbidden; nothing good is changed by an empty body.
        spy.send(method, path, &line, body.as_bytes()).await;
    }
}

async fn headers(spy: &mut Spy, method: &str, path: &str) {
    let key = format!("authorization: Bearer {}\r\n", spy.key);
    for line in [
        format!("content-type: {MARK}\r\n"),
        format!("{JSON}content-encoding: {MARK}\r\n"),
        format!("{JSON}idempotency-key: {MARK}\r\n"),
        format!("{JSON}if-match: {MARK}\r\n"),
        format!("{JSON}if-match: \"7{MARK}\"\r\n"),
        format!("{JSON}request-id: {MARK} is not plain\r\n"),
        format!("{JSON}expect: {MARK}\r\n"),
        format!("{JSON}transfer-encoding: {MARK}, chunked\r\n"),
        format!("{JSON}host: {MARK}\r\n"),
        format!("{JSON}accept: {MARK}\r\naccept-language: {MARK}\r\n"),
        format!("{JSON}origin: https://{MARK}\r\ncookie: a={MARK}\r\nx-{MARK}: {MARK}\r\n"),
    ] {
        let body = if method == "GET" {
            ""
        } else {
            "{\"reason\":7}"
        };
        spy.send(method, path, &format!("{key}{line}"), body.as_bytes())
            .await;
    }
}

/// What is no request at all.
async fn nonsense(spy: &mut Spy) {
    for bytes in [
        format!("{MARK}\r\n\r\n"),
        format!("{MARK} / HTTP/1.1\r\nhost: test\r\n\r\n"),
        format!("GET /{MARK} HTTP/9.9\r\nhost: test\r\n\r\n"),
        format!("GET /{MARK} HTTP/1.1\r\n{MARK}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: {MARK}/\r\n\r\n"),
        format!(
            "GET / HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n",
            MARK.repeat(20_000)
        ),
        format!("GET /{} HTTP/1.1\r\nhost: test\r\n\r\n", MARK.repeat(2_000)),
        format!("POST /v1/queue/publish HTTP/1.1\r\nhost: test\r\ncontent-length: {MARK}\r\n\r\n"),
        format!(
            "POST /v1/queue/publish HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{MARK}\r\n"
        ),
    ] {
        spy.raw("nonsense", bytes.as_bytes()).await;
    }
    let key = spy.key.clone();
    let chunked = format!(
        "POST /v1/queue/publish HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{JSON}transfer-encoding: chunked\r\n\r\n{MARK}\r\n{MARK}\r\n"
    );
    spy.raw("a chunk of nonsense", chunked.as_bytes()).await;
}

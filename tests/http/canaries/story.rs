//! Everything that can be asked for, with contents that must not be seen.

use super::MARK;
use super::spy::Spy;
use serde_json::{Value, json};
use std::time::Duration;

/// Why something is done: contents as well.
fn why() -> Value {
    json!({"reason": format!("because of {MARK}, which is long enough")})
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_else(|| panic!("{json}")).to_owned()
}

/// Each operation of the document, once at least.
pub(super) async fn tell(spy: &mut Spy) {
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/docs",
        "/docs/index.html",
        "/problems",
        "/problems/not_found",
    ] {
        spy.ok("GET", path, Value::Null).await;
    }
    spy.ok("PUT", "/v1/queues/q", json!({"max_attempts": 9}))
        .await;
    work(spy).await;
    messages(spy).await;
    dead_letters(spy).await;
    redrives(spy).await;
    keys_and_audit(spy).await;
    queues(spy).await;
    let before = spy.problems.len();
    spy.ok("GET", "/metrics", Value::Null).await;
    assert_eq!(spy.problems.len(), before + 1, "figures are looked at too");
}

async fn publish(spy: &mut Spy, number: u32, more: Value) -> String {
    let mut body = json!({
        "queue": "q", "message": {"card": MARK, "n": number}, "key": format!("key-{MARK}"),
        "headers": {"trace": MARK}, "client_request_id": format!("{MARK}-{number}"),
    });
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let made = spy.ok("POST", "/v1/queue/publish", body).await;
    text(&made["message_id"])
}

async fn receive(spy: &mut Spy) -> String {
    let body = json!({"queue": "q", "worker": format!("worker-{MARK}"), "wait_seconds": 5});
    let got = spy.ok("POST", "/v1/queue/receive", body).await;
    text(&got["messages"][0]["receipt"])
}

async fn work(spy: &mut Spy) {
    for number in 0..5 {
        publish(spy, number, json!({})).await;
    }
    let batch = json!({"queue": "q", "messages": [{"message": MARK, "key": MARK}, {"message": 1, "priority": 11, "key": MARK}]});
    spy.ok("POST", "/v1/queue/publish-batch", batch).await;
    let receipt = receive(spy).await;
    let longer = json!({"receipt": receipt, "visibility_timeout_seconds": 60});
    spy.ok("POST", "/v1/queue/extend", longer).await;
    let ack = json!({"receipt": receipt, "outcome": {"charged": MARK}});
    spy.ok("POST", "/v1/queue/ack", ack.clone()).await;
    spy.ok("POST", "/v1/queue/ack", ack).await;
    let receipt = receive(spy).await;
    spy.ok("POST", "/v1/queue/release", json!({"receipt": receipt}))
        .await;
    let receipt = receive(spy).await;
    let error = json!({"code": "E1", "detail": format!("card {MARK} was refused")});
    let nack = json!({"receipt": receipt, "error": error});
    spy.ok("POST", "/v1/queue/nack", nack).await;
    let receipt = receive(spy).await;
    let one = json!({"receipt": receipt, "action": "ack"});
    let other = json!({"receipt": MARK, "action": "nack"});
    let settle = json!({"settlements": [one, other]});
    spy.ok("POST", "/v1/queue/settle", settle).await;
}

async fn messages(spy: &mut Spy) {
    let id = publish(spy, 10, json!({"delay_seconds": 600})).await;
    let at = format!("/v1/messages/{id}");
    spy.ok("GET", &at, Value::Null).await;
    let all = "/v1/queues/q/messages?page_size=1&state=ready";
    let page = spy.ok("GET", all, Value::Null).await;
    let token = text(&page["next_page_token"]);
    let next = format!("{all}&page_token={token}");
    spy.ok("GET", &next, Value::Null).await;
    let by_key = format!("/v1/queues/q/messages?key=key-{MARK}");
    spy.ok("GET", &by_key, Value::Null).await;
    spy.ok(
        "POST",
        &format!("{at}/promote"),
        json!({"client_request_id": format!("{MARK}-{at}")}),
    )
    .await;
    spy.ok("POST", &format!("{at}/dead-letter"), why()).await;
    let id = publish(spy, 11, json!({"delay_seconds": 600})).await;
    let justification = json!({"justification": format!("{MARK} was ordered twice")});
    let path = format!("/v1/messages/{id}/cancel");
    spy.ok("POST", &path, justification).await;
    let live = publish(spy, 12, json!({"delay_seconds": 600})).await;
    spy.names.insert("live".into(), live);
}

/// A new dead letter.
async fn bury(spy: &mut Spy, number: u32) -> String {
    let id = publish(spy, number, json!({"delay_seconds": 600})).await;
    let path = format!("/v1/messages/{id}/dead-letter");
    spy.ok("POST", &path, why()).await;
    id
}

async fn dead_letters(spy: &mut Spy) {
    let id = bury(spy, 20).await;
    let at = format!("/v1/queues/q/dead-letters/{id}");
    let edit = json!({"message": {"card": format!("new {MARK}")}, "reason": MARK});
    spy.ok("PATCH", &at, edit).await;
    spy.ok("POST", &format!("{at}/undo-edit"), why()).await;
    spy.ok(
        "PATCH",
        &at,
        json!({"merge_patch": {"card": MARK}, "reason": MARK}),
    )
    .await;
    let discard = json!({"code": "duplicate", "justification": format!("{MARK} was done by hand")});
    spy.ok("POST", &format!("{at}/discard"), discard).await;
    spy.ok("POST", &format!("{at}/reopen"), why()).await;
    spy.ok("POST", &format!("{at}/redrive"), why()).await;
    for number in 21..24 {
        bury(spy, number).await;
    }
    for path in [
        "/v1/dead-letters".to_owned(),
        "/v1/dead-letters/groups".to_owned(),
        "/v1/queues/q/dead-letters?page_size=1".to_owned(),
        format!("/v1/queues/q/dead-letters?key=key-{MARK}&error_code={MARK}"),
        format!("/v1/queues/q/dead-letters/groups?key_prefix=key-{MARK}"),
    ] {
        spy.ok("GET", &path, Value::Null).await;
    }
}

async fn redrives(spy: &mut Spy) {
    let filter = json!({"queue": "q", "filter": {"key": format!("key-{MARK}")}});
    let made = spy.ok("POST", "/v1/dead-letters/selections", filter).await;
    let id = text(&made["selection_id"]);
    let count = made["count"].clone();
    assert!(count.as_i64().is_some_and(|count| count > 2), "{made}");
    spy.ok(
        "GET",
        &format!("/v1/dead-letters/selections/{id}"),
        Value::Null,
    )
    .await;
    let body = json!({"selection_id": id, "expected_count": count, "rate_per_second": 0.01, "reason": format!("{MARK} is back")});
    let begun = spy.ok("POST", "/v1/redrives", body).await;
    let redrive = text(&begun["redrive_id"]);
    let at = format!("/v1/redrives/{redrive}");
    spy.ok("GET", &at, Value::Null).await;
    spy.ok(
        "PATCH",
        &at,
        json!({"rate_per_second": 0.02, "reason": MARK}),
    )
    .await;
    for word in ["pause", "resume", "cancel"] {
        spy.ok("POST", &format!("{at}/{word}"), why()).await;
    }
    spy.ok("GET", "/v1/redrives", Value::Null).await;
    spy.names.insert("selection_id".into(), id);
    spy.names.insert("redrive_id".into(), redrive);
}

async fn keys_and_audit(spy: &mut Spy) {
    let body = json!({"scopes": ["publish:q"], "description": format!("for {MARK}"), "client_request_id": MARK});
    let made = spy.ok("POST", "/v1/keys", body).await;
    let (id, key) = (text(&made["key_id"]), text(&made["key"]));
    let at = format!("/v1/keys/{id}");
    spy.ok("GET", &at, Value::Null).await;
    spy.ok("GET", "/v1/keys?page_size=1", Value::Null).await;
    let next = spy
        .ok(
            "POST",
            &format!("{at}/rotate"),
            json!({"client_request_id": format!("{MARK}-{at}")}),
        )
        .await;
    let next = format!("/v1/keys/{}", text(&next["key_id"]));
    spy.ok("POST", &format!("{next}/revoke"), why()).await;
    // The server looks at the keys again, and the one that was made is used.
    let mut status = 401;
    for _ in 0..200 {
        let headers = format!("authorization: Bearer {key}\r\n");
        status = spy.send("GET", "/v1/queues", &headers, b"").await.0;
        if status != 401 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(status, 403);
    let page = spy.ok("GET", "/v1/audit?page_size=1", Value::Null).await;
    let token = text(&page["next_page_token"]);
    spy.ok(
        "GET",
        &format!("/v1/audit?page_size=1&page_token={token}"),
        Value::Null,
    )
    .await;
    spy.names.insert("key_id".into(), id);
}

async fn queues(spy: &mut Spy) {
    spy.ok("GET", "/v1/queues", Value::Null).await;
    spy.ok("GET", "/v1/queues/q", Value::Null).await;
    spy.ok("PATCH", "/v1/queues/q", json!({"max_depth": 100_000}))
        .await;
    let body = json!({"client_request_id": format!("{MARK}-pause")});
    spy.ok("POST", "/v1/queues/q/pause", body).await;
    spy.ok("POST", "/v1/queues/q/resume", Value::Null).await;
    spy.ok("PUT", "/v1/queues/gone", json!({})).await;
    spy.ok(
        "POST",
        "/v1/queues/gone/purge",
        json!({"confirm": "gone", "justification": format!("{MARK} was long enough")}),
    )
    .await;
    spy.ok("DELETE", "/v1/queues/gone?force=true", Value::Null)
        .await;
}

//! API keys over the API: made, rotated, revoked, expired, and never wider than who makes them.

use crate::client::{Client, checked, on_every_store};
use quita_storage::clock;
use quita_tests::server::json_headers;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const KEYS: &str = "/v1/keys";
/// Within this a change is known to the server.
const SOON: Duration = Duration::from_secs(5);

async fn with(client: &Client, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut wire = client.server.wire().await;
    wire.request(method, path, &json_headers(key), &text).await;
    checked(&wire.answer().await)
}

fn text<'a>(json: &'a Value, name: &str) -> &'a str {
    json[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name}: {json}"))
}

/// Waits until `key` gets this status for a list of queues.
async fn until(client: &Client, key: &str, status: u16) {
    let began = Instant::now();
    loop {
        let (got, json) = with(client, key, "GET", "/v1/queues", Value::Null).await;
        if got == status {
            return;
        }
        assert!(began.elapsed() < SOON, "{got} instead of {status}: {json}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_key_is_shown_once_and_opens_what_it_says(client: &Client) {
    let body = json!({"scopes": ["read:a*", "publish:a1", "read:a1"], "description": "ci", "client_request_id": "k1"});
    let (status, made) = client.post(KEYS, body.clone()).await;
    assert_eq!(status, 201, "{made}");
    let key = text(&made, "key").to_owned();
    assert_eq!(made["scopes"], json!(["publish:a1", "read:a*"]));
    assert_eq!(
        (text(&made, "state"), text(&made, "description")),
        ("active", "ci")
    );
    assert_eq!(text(&made, "key_id"), &key[4..16]);
    let (status, json) = with(client, &key, "GET", "/v1/queues", Value::Null).await;
    assert_eq!(status, 200, "the server that made it knows it: {json}");
    let path = format!("{KEYS}/{}", text(&made, "key_id"));
    let (_, read) = client.get(&path).await;
    assert!(read.get("key").is_none() && read.get("expires_at").is_none());
    assert_eq!(read["created_at"], made["created_at"]);
    // A repeat finds it; another body under the same id does not.
    let (status, again) = client.post(KEYS, body).await;
    assert_eq!((status, &again["key_id"]), (200, &made["key_id"]));
    assert!(again.get("key").is_none());
    let other = json!({"scopes": ["read"], "client_request_id": "k1"});
    client
        .refused("POST", KEYS, other, 422, "client_request_id_conflict")
        .await;
    let rows = client.get("/v1/audit?action=create_key").await.1;
    let row = &rows["entries"][0];
    assert_eq!(row["after"]["key_id"], made["key_id"], "{rows}");
    assert!(!rows.to_string().contains(&key[17..]));
    client
        .refused("GET", "/v1/keys/nosuchkey", Value::Null, 404, "not_found")
        .await;
}

async fn a_key_makes_no_key_wider_than_itself(client: &Client) {
    let body = json!({"scopes": ["keys", "read:a*", "publish:a1"]});
    let made = client.ok(KEYS, body).await;
    let key = text(&made, "key").to_owned();
    until(client, &key, 200).await;
    for (scopes, status) in [
        (json!(["read:a1", "read:ab*"]), 201),
        (json!(["publish:a1", "keys"]), 201),
        (json!(["read"]), 403),
        (json!(["read:b"]), 403),
        (json!(["publish:a*"]), 403),
        (json!(["admin"]), 403),
        (json!(["discard:a1"]), 403),
    ] {
        let (got, json) = with(client, &key, "POST", KEYS, json!({"scopes": scopes})).await;
        assert_eq!(got, status, "{scopes}: {json}");
        assert!(status == 201 || json["code"] == "wider_than_caller");
    }
    // Nor does it get at a wider one, nor end it.
    let admin = format!("{KEYS}/{}", &client.server.key[4..16]);
    for (path, body) in [
        (format!("{admin}/rotate"), json!({})),
        (format!("{admin}/revoke"), json!({"reason": "mine now"})),
    ] {
        let (status, json) = with(client, &key, "POST", &path, body).await;
        assert_eq!((status, &json["code"]), (403, &json!("wider_than_caller")));
    }
    until(client, &client.server.key, 200).await;
}

async fn what_is_wrong_with_scopes_is_pointed_at(client: &Client) {
    for (scopes, pointer, code) in [
        (json!(["read", "reed"]), "/scopes/1", "invalid_value"),
        (json!(["audit:q"]), "/scopes/0", "invalid_value"),
        (json!(["read:-"]), "/scopes/0", "invalid_value"),
        (json!([]), "/scopes", "out_of_range"),
        (json!("read"), "/scopes", "wrong_type"),
        (json!(vec!["read"; 65]), "/scopes", "out_of_range"),
    ] {
        let body = json!({ "scopes": scopes });
        let json = client.refused("POST", KEYS, body, 422, code).await;
        assert_eq!(json["errors"][0]["pointer"], pointer, "{json}");
    }
    client
        .refused("POST", KEYS, json!({}), 422, "missing_field")
        .await;
    let body = json!({"scopes": ["read"], "expires_in_seconds": 0});
    client
        .refused("POST", KEYS, body, 422, "out_of_range")
        .await;
}

async fn an_expired_key_is_refused_like_an_unknown_one(client: &Client) {
    let body = json!({"scopes": ["read", "consume"], "expires_in_seconds": 4});
    let made = client.ok(KEYS, body).await;
    let key = text(&made, "key").to_owned();
    client.queue("q", json!({})).await;
    until(client, &key, 200).await;
    // Also while it waits.
    let wait = json!({"queue": "q", "wait_seconds": 20});
    let began = Instant::now();
    let (status, mut expired) = with(client, &key, "POST", "/v1/queue/receive", wait.clone()).await;
    assert_eq!((status, &expired["code"]), (401, &json!("invalid_key")));
    assert!(began.elapsed() < SOON);
    let unknown = quita_api::auth::ApiKey::generate().unwrap();
    let (_, mut other) = with(client, unknown.reveal(), "POST", "/v1/queue/receive", wait).await;
    for json in [&mut expired, &mut other] {
        json["request_id"] = Value::Null;
    }
    assert_eq!(expired, other);
    let path = format!("{KEYS}/{}", text(&made, "key_id"));
    assert_eq!(client.get(&path).await.1["state"], "expired");
    let rotate = format!("{path}/rotate");
    client
        .refused("POST", &rotate, json!({}), 409, "key_ended")
        .await;
}

async fn a_rotated_key_lives_beside_its_successor_for_a_while(client: &Client) {
    let body = json!({"scopes": ["read"], "description": "ci", "expires_in_seconds": 5000});
    let made = client.ok(KEYS, body).await;
    let old = text(&made, "key").to_owned();
    let path = format!("{KEYS}/{}", text(&made, "key_id"));
    let rotate = json!({"overlap_seconds": 3, "client_request_id": "r1"});
    let (status, next) = client.post(&format!("{path}/rotate"), rotate.clone()).await;
    assert_eq!(status, 201, "{next}");
    let new = text(&next, "key").to_owned();
    assert_eq!(
        (&next["scopes"], &next["description"]),
        (&json!(["read"]), &json!("ci"))
    );
    assert!(next["expires_at"].is_string() && next["key_id"] != made["key_id"]);
    until(client, &new, 200).await;
    assert_eq!(
        with(client, &old, "GET", "/v1/queues", Value::Null).await.0,
        200
    );
    until(client, &old, 401).await;
    assert_eq!(
        with(client, &new, "GET", "/v1/queues", Value::Null).await.0,
        200
    );
    let (status, again) = client.post(&format!("{path}/rotate"), rotate).await;
    assert_eq!((status, &again["key_id"]), (200, &next["key_id"]));
    let rows = client.get("/v1/audit?action=rotate_key").await.1;
    assert_eq!(rows["entries"].as_array().unwrap().len(), 1, "{rows}");
    let listed = client.get(KEYS).await.1;
    let states = listed["keys"].as_array().unwrap().iter();
    let states: Vec<_> = states.map(|key| text(key, "state")).collect();
    assert_eq!(states, ["active", "expired", "active"]);
}

async fn a_revoked_key_is_refused_soon_and_the_reason_kept(client: &Client) {
    let made = client.ok(KEYS, json!({"scopes": ["read"]})).await;
    let key = text(&made, "key").to_owned();
    until(client, &key, 200).await;
    let path = format!("{KEYS}/{}/revoke", text(&made, "key_id"));
    client
        .refused("POST", &path, json!({}), 422, "reason_required")
        .await;
    let body = json!({"reason": "was in a log"});
    let revoked = client.ok(&path, body.clone()).await;
    assert!(revoked["state"] == "revoked" && revoked["revoked_at"].is_string());
    until(client, &key, 401).await;
    assert_eq!(
        client.ok(&path, body).await["revoked_at"],
        revoked["revoked_at"]
    );
    let rows = client.get("/v1/audit?action=revoke_key").await.1;
    assert_eq!(rows["entries"].as_array().unwrap().len(), 1);
    assert_eq!(rows["entries"][0]["reason"], "was in a log");
}

async fn the_last_use_is_known_to_the_minute(client: &Client) {
    let made = client.ok(KEYS, json!({"scopes": ["read"]})).await;
    let path = format!("{KEYS}/{}", text(&made, "key_id"));
    assert!(client.get(&path).await.1.get("last_used_at").is_none());
    let before = clock::wall();
    until(client, text(&made, "key"), 200).await;
    let used = client
        .until(&path, |key| key["last_used_at"].is_string())
        .await;
    assert!(text(&used, "last_used_at").ends_with(":00.000Z"), "{used}");
    let keys = client.server.backend.keys().await.unwrap();
    let key = keys.iter().find(|key| made["key_id"] == *key.id).unwrap();
    let at = key.last_used_at.unwrap();
    assert!(before - at < 60_000 && at <= clock::wall());
    // Pages end where they say.
    let first = client.get("/v1/keys?page_size=1").await.1;
    let token = text(&first, "next_page_token");
    let (_, rest) = client.get(&format!("/v1/keys?page_token={token}")).await;
    assert_eq!(rest["keys"][0]["key_id"], made["key_id"]);
    assert!(rest.get("next_page_token").is_none());
}

on_every_store!(
    a_key_is_shown_once_and_opens_what_it_says,
    a_key_makes_no_key_wider_than_itself,
    what_is_wrong_with_scopes_is_pointed_at,
    an_expired_key_is_refused_like_an_unknown_one,
    a_rotated_key_lives_beside_its_successor_for_a_while,
    a_revoked_key_is_refused_soon_and_the_reason_kept,
    the_last_use_is_known_to_the_minute,
);

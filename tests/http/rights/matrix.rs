//! Every operation × everybody who knocks × what it is about: each cell is asserted.
//!
//! The operations come from the OpenAPI document that is served; an operation without a row fails the test. What must come
//! out is worked out from the right that the operation declares, by rules of the test's own.

use super::cell::{Declared, Object, Principal, Proof, Row, expected};
use super::rows::prepare;
use crate::client::{Client, checked, on_every_store};
use quita_api::auth::{ApiKey, admin_record};
use quita_storage::backend::{Call, KeyRecord};
use quita_tests::server::TestServer;
use serde_json::Value;
use std::time::{Duration, Instant};

/// An operation of the document that takes credentials.
struct Operation {
    id: String,
    declared: Declared,
}

fn operations(document: &Value) -> Vec<Operation> {
    let paths = document["paths"].as_object().unwrap().values();
    let all = paths.flat_map(|item| item.as_object().unwrap().values());
    all.filter(|operation| operation["security"].is_array())
        .map(|operation| {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let said = &operation["x-quita-right"];
            let declared = Declared::read(said).unwrap_or_else(|| panic!("{id}: no right"));
            Operation { id, declared }
        })
        .collect()
}

/// The credentials of everybody, `None` for who sends none.
async fn credentials(server: &TestServer, principals: &[Principal]) -> Vec<Option<String>> {
    let mut all = Vec::new();
    for who in principals {
        let key = ApiKey::generate().unwrap();
        let scope = match &who.proof {
            Proof::Scopes(scopes) => &**scopes,
            _ => "admin",
        };
        let record = KeyRecord {
            scope: scope.into(),
            ..admin_record(&key, &who.name)
        };
        let (backend, call) = (&server.backend, Call::by("test"));
        if !matches!(who.proof, Proof::Nothing | Proof::Wrong) {
            assert!(backend.add_key(&call, record, false).await.unwrap());
        }
        if matches!(who.proof, Proof::Revoked) {
            assert!(backend.revoke_key(&call, key.id(), None).await.unwrap());
        }
        let sent = !matches!(who.proof, Proof::Nothing);
        all.push(sent.then(|| key.reveal().to_owned()));
    }
    let last = all.last().unwrap().clone();
    let began = Instant::now();
    // Until the server has read the keys again.
    while knock(server, last.as_deref(), "GET", "/v1/audit", &Value::Null)
        .await
        .0
        == 401
    {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all
}

async fn knock(
    server: &TestServer,
    key: Option<&str>,
    method: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let mut headers = key.map_or_else(String::new, |key| {
        format!("authorization: Bearer {key}\r\n")
    });
    let mut text = String::new();
    if !body.is_null() {
        headers += "content-type: application/json\r\n";
        text = body.to_string();
    }
    let mut wire = server.wire().await;
    wire.request(method, path, &headers, &text).await;
    let answer = wire.answer().await;
    if answer.status == 200 && answer.header("content-type") != Some("application/json") {
        return (200, Value::Null);
    }
    checked(&answer)
}

/// The status that counts, and the problem without what differs from request to request.
fn outcome(row: &Row, (status, mut json): (u16, Value)) -> (u16, Value) {
    if row.items && status == 200 {
        let item = json["results"][0].take();
        let status = item["status"].as_u64().unwrap() as u16;
        return (status, item["error"].clone());
    }
    if let Some(members) = json.as_object_mut() {
        members.remove("request_id");
    }
    (status, json)
}

fn code_of(status: u16, who: &Principal) -> &'static [&'static str] {
    match status {
        401 if matches!(who.proof, Proof::Nothing) => &["missing_credentials"],
        401 => &["invalid_key"],
        403 => &["insufficient_scope"],
        404 => &["queue_not_found", "not_found"],
        _ => &["invalid_receipt"],
    }
}

/// So that a publish to no queue is refused and a receive from none does not wait.
pub(crate) fn no_new_queues(config: &mut quita_api::config::Config) {
    config.auto_create_queues = false;
}

async fn every_operation_for_everybody(client: &Client) {
    let document = client.get("/openapi.json").await.1;
    let principals = Principal::all();
    let keys = credentials(&client.server, &principals).await;
    for object in [Object::Own, Object::Other] {
        client
            .queue(object.queue(), Value::Object(serde_json::Map::default()))
            .await;
    }
    let (mut cells, mut open) = (0, 0);
    for operation in operations(&document) {
        let mut forbidden: Vec<Option<Value>> = vec![None; principals.len()];
        for object in Object::ALL {
            let prepared = prepare(client, &operation.id, object).await;
            let mut row = prepared.unwrap_or_else(|| panic!("{}: no row", operation.id));
            let mut before = client.snapshot().await;
            for (index, who) in principals.iter().enumerate() {
                let cell = format!("{} of {:?} by {}", operation.id, object, who.name);
                let wanted = expected(&operation.declared, &row, who, object);
                let key = keys[index].as_deref();
                let got = knock(&client.server, key, row.method, &row.path, &row.body).await;
                let (status, json) = outcome(&row, got);
                cells += 1;
                if wanted < 300 {
                    assert!((200..300).contains(&status), "{cell}: {status} {json}");
                    open += 1;
                    if row.changes {
                        if object == Object::Absent {
                            client.call("DELETE", &row.path, Value::Null).await;
                        }
                        row = prepare(client, &operation.id, object).await.unwrap();
                        before = client.snapshot().await;
                    }
                    if row.global && !who.may("read", Some("other")) && operation.id != "listAudit"
                    {
                        assert!(!json.to_string().contains("\"other\""), "{cell}: {json}");
                    }
                    continue;
                }
                assert_eq!(status, wanted, "{cell}: {json}");
                let codes = code_of(wanted, who);
                let code = json["code"].as_str().unwrap();
                assert!(codes.contains(&code), "{cell}: {json}");
                // What is forbidden looks like what is not there.
                if wanted == 404 && object != Object::Own {
                    let first = forbidden[index].get_or_insert_with(|| json.clone());
                    assert_eq!(*first, json, "{cell}");
                }
                if row.changes {
                    assert_eq!(client.snapshot().await, before, "{cell}");
                }
            }
        }
    }
    assert!(
        cells >= 45 * 22 * 3 && open > 200,
        "{cells} cells, {open} open"
    );
    println!("{cells} cells, {open} of them open");
}

on_every_store!(with crate::rights::matrix::no_new_queues: every_operation_for_everybody);

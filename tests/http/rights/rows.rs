//! One request for each operation: about the own queue, about another one, about none.

use super::cell::{Object, Row};
use crate::client::Client;
use serde_json::{Value, json};

const WHY: &str = "long enough to count as one";
const MISSING: &str = "0000000000zzz";

/// The queue as new, unless it is the absent one.
async fn fresh(client: &Client, object: Object) {
    if object != Object::Absent {
        let path = format!("/v1/queues/{}", object.queue());
        client
            .call("DELETE", &format!("{path}?force=true"), Value::Null)
            .await;
        client.queue(object.queue(), json!({})).await;
    }
}

/// A receipt of the queue; of the absent one there can be none that is authentic.
async fn receipt(client: &Client, object: Object) -> String {
    if object == Object::Absent {
        return "AQAAAAEAAAAB".into();
    }
    client.publish(object.queue(), json!(1)).await;
    client.receipt(object.queue()).await
}

async fn message(client: &Client, object: Object, more: Value) -> String {
    if object == Object::Absent {
        return format!("msg_{MISSING}");
    }
    let mut body = json!({"queue": object.queue(), "message": {"a": 1}});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let made = client.ok("/v1/queue/publish", body).await;
    made["message_id"].as_str().unwrap().to_owned()
}

/// Path of a dead letter.
async fn letter(client: &Client, object: Object) -> String {
    let id = message(client, object, json!({})).await;
    if object != Object::Absent {
        client.nack_for_good(object.queue(), "E1", "").await;
    }
    format!("/v1/queues/{}/dead-letters/{id}", object.queue())
}

async fn selection(client: &Client, object: Object) -> String {
    if object == Object::Absent {
        return format!("sel_{MISSING}");
    }
    for _ in 0..2 {
        letter(client, object).await;
    }
    let body = json!({"queue": object.queue()});
    let made = client.ok("/v1/dead-letters/selections", body).await;
    made["selection_id"].as_str().unwrap().to_owned()
}

/// Path of a redrive that has done one message and waits for long before the next.
async fn redrive(client: &Client, object: Object) -> String {
    let selection = selection(client, object).await;
    if object == Object::Absent {
        return format!("/v1/redrives/rdv_{MISSING}");
    }
    let body = json!({"selection_id": selection, "expected_count": 2, "rate_per_second": 0.001});
    let begun = client.ok("/v1/redrives", body).await;
    let path = format!("/v1/redrives/{}", begun["redrive_id"].as_str().unwrap());
    client.until(&path, |redrive| redrive["moved"] == 1).await;
    path
}

/// Path of a key that may no more than make keys.
async fn key(client: &Client, object: Object) -> String {
    if object == Object::Absent {
        return "/v1/keys/aaaaaaaaaaaa".into();
    }
    let made = client.ok("/v1/keys", json!({"scopes": ["keys"]})).await;
    format!("/v1/keys/{}", made["key_id"].as_str().unwrap())
}

fn row(method: &'static str, path: impl Into<String>, body: Value) -> Row {
    Row {
        method,
        path: path.into(),
        body,
        global: false,
        absent: 404,
        takes: None,
        items: false,
        changes: method != "GET",
    }
}

fn global(path: &str) -> Row {
    Row {
        global: true,
        ..row("GET", path, Value::Null)
    }
}

/// A settle: nobody can name what is not there.
fn settle(word: &str, body: Value) -> Row {
    Row {
        absent: 422,
        ..row("POST", format!("/v1/queue/{word}"), body)
    }
}

/// The row of an operation over fresh objects; `None`: it has none, and the test fails.
pub(super) async fn prepare(client: &Client, operation: &str, object: Object) -> Option<Row> {
    fresh(client, object).await;
    let queue = object.queue();
    let at = format!("/v1/queues/{queue}");
    let reason = json!({"reason": WHY});
    let row = match operation {
        "publish" => row(
            "POST",
            "/v1/queue/publish",
            json!({"queue": queue, "message": 1}),
        ),
        "publishBatch" => row(
            "POST",
            "/v1/queue/publish-batch",
            json!({"queue": queue, "messages": [{"message": 1}]}),
        ),
        "receive" => {
            message(client, object, json!({})).await;
            row("POST", "/v1/queue/receive", json!({"queue": queue}))
        }
        "ack" | "nack" | "release" => {
            settle(operation, json!({"receipt": receipt(client, object).await}))
        }
        "extend" => {
            let receipt = receipt(client, object).await;
            settle(
                "extend",
                json!({"receipt": receipt, "visibility_timeout_seconds": 60}),
            )
        }
        "settle" => {
            let one = json!({"receipt": receipt(client, object).await, "action": "ack"});
            Row {
                items: true,
                ..settle("settle", json!({"settlements": [one]}))
            }
        }
        "listQueues" => global("/v1/queues"),
        "getQueue" => row("GET", at, Value::Null),
        "putQueue" => Row {
            absent: 201,
            ..row("PUT", at, json!({"max_attempts": 3}))
        },
        "patchQueue" => row("PATCH", at, json!({"max_attempts": 4})),
        "deleteQueue" => row("DELETE", at, Value::Null),
        "pauseQueue" => row("POST", format!("{at}/pause"), Value::Null),
        "resumeQueue" => row("POST", format!("{at}/resume"), Value::Null),
        "purgeQueue" => row("POST", format!("{at}/purge"), json!({"confirm": queue})),
        "browseMessages" => row("GET", format!("{at}/messages"), Value::Null),
        "getMessage" => {
            let id = message(client, object, json!({})).await;
            row("GET", format!("/v1/messages/{id}"), Value::Null)
        }
        "cancelMessage" => {
            let id = message(client, object, json!({})).await;
            row(
                "POST",
                format!("/v1/messages/{id}/cancel"),
                json!({"justification": WHY}),
            )
        }
        "promoteMessage" => {
            let id = message(client, object, json!({"delay_seconds": 600})).await;
            row("POST", format!("/v1/messages/{id}/promote"), Value::Null)
        }
        "deadLetterMessage" => {
            let id = message(client, object, json!({})).await;
            row("POST", format!("/v1/messages/{id}/dead-letter"), reason)
        }
        "listDeadLetters" => row("GET", format!("{at}/dead-letters"), Value::Null),
        "groupDeadLetters" => row("GET", format!("{at}/dead-letters/groups"), Value::Null),
        "listAllDeadLetters" => global("/v1/dead-letters"),
        "groupAllDeadLetters" => global("/v1/dead-letters/groups"),
        _ => return decision(client, operation, object).await,
    };
    Some(row)
}

/// Decisions about dead letters, one or many.
async fn decision(client: &Client, operation: &str, object: Object) -> Option<Row> {
    let reason = json!({"reason": WHY});
    let by_object = |row| Row {
        takes: Some(("redrive", false)),
        ..row
    };
    let row = match operation {
        "editDeadLetter" => row(
            "PATCH",
            letter(client, object).await,
            json!({"message": 2, "reason": WHY}),
        ),
        "undoDeadLetterEdit" => {
            let path = letter(client, object).await;
            client
                .call("PATCH", &path, json!({"message": 2, "reason": WHY}))
                .await;
            row("POST", format!("{path}/undo-edit"), reason)
        }
        "redriveDeadLetter" => {
            let path = letter(client, object).await;
            row("POST", format!("{path}/redrive"), Value::Null)
        }
        "discardDeadLetter" | "reopenDeadLetter" => {
            let path = letter(client, object).await;
            let discard = json!({"code": "duplicate", "justification": WHY});
            if operation == "discardDeadLetter" {
                row("POST", format!("{path}/discard"), discard)
            } else {
                client.post(&format!("{path}/discard"), discard).await;
                row("POST", format!("{path}/reopen"), reason)
            }
        }
        "selectDeadLetters" => {
            let body = json!({"queue": object.queue()});
            row("POST", "/v1/dead-letters/selections", body)
        }
        "getSelection" => {
            let id = selection(client, object).await;
            row(
                "GET",
                format!("/v1/dead-letters/selections/{id}"),
                Value::Null,
            )
        }
        "startRedrive" => {
            let id = selection(client, object).await;
            let body = json!({"selection_id": id, "expected_count": 2, "dry_run": true});
            Row {
                takes: Some(("redrive", true)),
                ..row("POST", "/v1/redrives", body)
            }
        }
        "listRedrives" => global("/v1/redrives"),
        "getRedrive" => row("GET", redrive(client, object).await, Value::Null),
        "changeRedrive" => {
            let path = redrive(client, object).await;
            by_object(row("PATCH", path, json!({"rate_per_second": 0.002})))
        }
        "pauseRedrive" | "resumeRedrive" | "cancelRedrive" => {
            let word = operation.strip_suffix("Redrive")?;
            let path = redrive(client, object).await;
            by_object(row("POST", format!("{path}/{word}"), reason))
        }
        "listAudit" => global("/v1/audit"),
        "metrics" => global("/metrics"),
        "createKey" => Row {
            method: "POST",
            body: json!({"scopes": ["keys"]}),
            changes: true,
            ..global("/v1/keys")
        },
        "listKeys" => global("/v1/keys"),
        "getKey" => row("GET", key(client, object).await, Value::Null),
        "rotateKey" => {
            let path = key(client, object).await;
            row("POST", format!("{path}/rotate"), Value::Null)
        }
        "revokeKey" => {
            let path = key(client, object).await;
            row("POST", format!("{path}/revoke"), reason)
        }
        _ => return None,
    };
    Some(row)
}

//! What an answer says, in the words of the history.

use crate::history::{
    Body, Class, Counts, Digest, Handed, Kind, Listed, Past, Short, Told, Totals,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A delivery in hand.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The message's id.
    pub(crate) id: String,
    /// The receipt itself, which the history does not have.
    pub(crate) receipt: String,
    /// The queue.
    pub(crate) queue: String,
}

/// An answer, understood.
#[derive(Default)]
pub(crate) struct Heard {
    /// Whether the operation took effect.
    pub(crate) class: Class,
    /// The problem's code.
    pub(crate) code: String,
    /// The rest.
    pub(crate) body: Body,
    /// Deliveries with their receipts.
    pub(crate) held: Vec<Held>,
    /// Token of the next page.
    pub(crate) next: Option<String>,
    /// The answer itself, unless it holds payloads.
    pub(crate) json: Value,
}

/// Understands an answer.
pub(crate) fn heard(op: Kind, queue: &str, status: u16, head: &str, text: &[u8]) -> Heard {
    let json: Option<Value> = serde_json::from_slice(text).ok();
    let Some(json) = json else {
        return misshapen();
    };
    if !(200..300).contains(&status) {
        return problem(&json, head);
    }
    let mut heard = Heard {
        class: Class::Ok,
        ..Heard::default()
    };
    heard.body.replayed = head.contains("\nidempotency-replayed: true");
    let body = &mut heard.body;
    match op {
        Kind::Publish => body.told = vec![told(&json, 0, status)],
        Kind::PublishBatch => body.told = results(&json),
        Kind::Receive => {
            let Some((handed, held)) = received(text, queue) else {
                return misshapen();
            };
            (body.handed, heard.held) = (handed, held);
            body.paused = json["paused"] == true;
        }
        Kind::List | Kind::DrainList => {
            let messages = json["messages"].as_array();
            body.listed = messages.into_iter().flatten().map(listed).collect();
            heard.next = json["next_page_token"].as_str().map(str::to_owned);
            body.more = heard.next.is_some();
        }
        Kind::Get => body.listed = vec![listed(&json)],
        Kind::Stats | Kind::Recount | Kind::Pause | Kind::Resume => {
            body.counts = counts(&json["counts"]);
            body.totals = totals(&json["totals"]);
            body.paused = json["paused"] == true;
        }
        _ => changed(&json, body),
    }
    if op != Kind::Receive {
        heard.json = json;
    }
    heard
}

fn misshapen() -> Heard {
    let mut heard = Heard::default();
    heard.body.misshapen = true;
    heard
}

fn problem(json: &Value, head: &str) -> Heard {
    let effect = text(json, "effect");
    let whole = head.contains("content-type: application/problem+json")
        && ["code", "effect", "title", "detail"]
            .iter()
            .all(|member| json[member].is_string());
    Heard {
        class: match effect.as_str() {
            "none" => Class::Fail,
            "completion_remembered" => Class::Ok,
            _ => Class::Info,
        },
        code: text(json, "code"),
        body: Body {
            effect,
            misshapen: !whole,
            ..Body::default()
        },
        ..Heard::default()
    }
}

/// Of a settle, an operator's call or a decision about many.
fn changed(json: &Value, body: &mut Body) {
    let flag = |name: &str| json[name] == true;
    body.message_id = text(json, "message_id");
    body.result = match json["result"].as_str() {
        Some(result) => result.to_owned(),
        None => text(json, "state"),
    };
    body.end = text(json, "end");
    body.late = flag("late");
    body.superseded = flag("superseded");
    body.superseded_completion = flag("superseded_completion");
    body.acked_superseded = flag("acked_superseded");
    body.capped = flag("capped");
    body.attempts_left = json["attempts_left"].as_i64().map(|n| n as i32);
    body.redrive_id = text(json, "redrive_id");
    body.moved = json["purged"].as_u64().or(json["moved"].as_u64());
}

fn told(json: &Value, index: u32, status: u16) -> Told {
    let error = &json["error"];
    Told {
        index,
        status,
        id: text(json, "message_id"),
        deduplicated: json["deduplicated"] == true,
        by_key: json["duplicate_of"] == "key",
        effect: text(error, "effect"),
        code: text(error, "code"),
    }
}

fn results(json: &Value) -> Vec<Told> {
    let results = json["results"].as_array().into_iter().flatten();
    let number = |result: &Value, name: &str| result[name].as_u64().unwrap_or(0);
    results
        .map(|r| told(r, number(r, "index") as u32, number(r, "status") as u16))
        .collect()
}

fn listed(json: &Value) -> Listed {
    let number = |name: &str| json[name].as_u64().unwrap_or(0) as u32;
    let dead = &json["dead_letter"];
    let history = json["history"].as_array().into_iter().flatten();
    Listed {
        id: text(json, "message_id"),
        state: text(json, "state"),
        end: text(json, "end"),
        attempts: number("attempts"),
        deliveries: number("deliveries"),
        redrives: number("redrive_count"),
        reason: text(dead, "reason"),
        limit: text(dead, "limit"),
        error_code: text(dead, "error_code"),
        request_id: text(json, "client_request_id"),
        sha: None,
        history: history.map(past).collect(),
    }
}

fn past(json: &Value) -> Past {
    let number = |name: &str| json[name].as_u64().unwrap_or(0) as u32;
    Past {
        delivery: number("delivery"),
        attempt: number("attempt"),
        cause: text(json, "cause"),
        leased_at_ms: unix_ms(&text(json, "leased_at")),
        ended_at_ms: unix_ms(&text(json, "ended_at")),
        late: json["late"] == true,
    }
}

fn counts(json: &Value) -> Option<Counts> {
    serde_json::from_value(json.clone()).ok()
}

fn totals(json: &Value) -> Option<Totals> {
    serde_json::from_value(json.clone()).ok()
}

fn text(json: &Value, member: &str) -> String {
    json[member].as_str().unwrap_or_default().to_owned()
}

/// Of RFC 3339; 0 for what is none.
fn unix_ms(text: &str) -> i64 {
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map_or(0, jiff::Timestamp::as_millisecond)
}

#[derive(Deserialize)]
struct Received<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(rename = "message_id")]
    id: String,
    receipt: String,
    #[serde(borrow, rename = "message")]
    payload: &'a RawValue,
    attempt: u32,
    max_attempts: u32,
    lease_seconds: f64,
    lease_expires_at: String,
    client_request_id: Option<String>,
    redrive_count: u32,
}

fn received(text: &[u8], queue: &str) -> Option<(Vec<Handed>, Vec<Held>)> {
    let answer: Received<'_> = serde_json::from_slice(text).ok()?;
    let both = answer.messages.into_iter().map(|message| {
        let payload = message.payload.get().as_bytes();
        let handed = Handed {
            id: message.id.clone(),
            receipt: Short::of(&message.receipt),
            sha: Digest::of(payload),
            len: payload.len() as u32,
            attempt: message.attempt,
            max_attempts: message.max_attempts,
            lease_ms: (message.lease_seconds * 1_000.0).round() as u64,
            ends_at_ms: unix_ms(&message.lease_expires_at),
            request_id: message.client_request_id.unwrap_or_default(),
            redrives: message.redrive_count,
        };
        let held = Held {
            id: message.id,
            receipt: message.receipt,
            queue: queue.to_owned(),
        };
        (handed, held)
    });
    Some(both.unzip())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "http/1.1 409 conflict\r\ncontent-type: application/problem+json\r\n";

    #[test]
    fn a_received_payload_is_kept_as_a_digest_of_its_bytes() {
        let text = br#"{"messages":[{"message_id":"m","receipt":"r","message":{"a" : 1.0},"attempt":2,"max_attempts":5,
            "lease_seconds":1.5,"lease_expires_at":"1970-01-01T00:00:02.500Z","redrive_count":0}],"server_time":"t"}"#;
        let heard = heard(Kind::Receive, "plain", 200, "http/1.1 200 ok\r\n", text);
        assert_eq!(heard.held[0].receipt, "r");
        let handed = &heard.body.handed[0];
        assert_eq!(handed.sha, Digest::of(br#"{"a" : 1.0}"#));
        assert_eq!((handed.len, handed.attempt), (11, 2));
        assert_eq!((handed.lease_ms, handed.ends_at_ms), (1_500, 2_500));
    }

    #[test]
    fn the_effect_of_a_problem_decides_its_class() {
        for (effect, class) in [
            ("none", Class::Fail),
            ("completion_remembered", Class::Ok),
            ("unknown", Class::Info),
        ] {
            let text = format!(
                r#"{{"code":"c","effect":"{effect}","title":"t","detail":"d","status":409}}"#
            );
            let heard = heard(Kind::Ack, "plain", 409, HEAD, text.as_bytes());
            assert_eq!((heard.class, heard.code.as_str()), (class, "c"));
            assert!(!heard.body.misshapen);
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_document_is_misshapen() {
        let bare = heard(Kind::Ack, "plain", 500, "http/1.1 500 x\r\n", b"oops");
        assert!(bare.body.misshapen && bare.class == Class::Info);
        let wrong = r#"{"code":"c","effect":"none"}"#.as_bytes();
        assert!(heard(Kind::Ack, "plain", 409, HEAD, wrong).body.misshapen);
    }
}

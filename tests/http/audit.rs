//! The audit trail: a page at a time, or all of it as a stream of lines.

use crate::client::{Client, on_every_store};
use quita_tests::wire::Answer;
use serde_json::{Value, json};

const PATH: &str = "/v1/audit";
const LINES: &str = "accept: application/x-ndjson\r\n";

/// A queue, a dead letter that was changed and discarded, and a pause.
async fn history(client: &Client) -> String {
    client
        .queue("q", json!({"visibility_timeout_seconds": 45}))
        .await;
    let id = client.bury("q", json!("secret"), "E1", "").await;
    let letter = format!("/v1/queues/q/dead-letters/{id}");
    let edit = json!({"message": "other secret", "reason": "wrong word"}).to_string();
    let headers = "content-type: application/json\r\nrequest-id: night-shift-1\r\n";
    let answer = client
        .send("PATCH", &letter, headers, edit.as_bytes())
        .await;
    assert_eq!(answer.status, 200);
    let discard = json!({"code": "duplicate", "justification": "was sent twice"});
    client.ok(&format!("{letter}/discard"), discard).await;
    client.ok("/v1/queues/q/pause", Value::Null).await;
    id
}

fn actions(page: &Value) -> Vec<&str> {
    let entries = page["entries"].as_array().unwrap().iter();
    entries.map(|e| e["action"].as_str().unwrap()).collect()
}

async fn get(client: &Client, query: &str) -> Value {
    let (status, page) = client.get(&format!("{PATH}?{query}")).await;
    assert_eq!(status, 200, "{page}");
    page
}

async fn every_change_is_there_with_who_what_and_why(client: &Client) {
    let id = history(client).await;
    let page = get(client, "queue=q").await;
    assert_eq!(actions(&page), ["pause", "discard", "edit", "create_queue"]);
    let entries = page["entries"].as_array().unwrap();
    let (discard, edit, created) = (&entries[1], &entries[2], &entries[3]);
    assert_eq!(
        (
            &discard["message_id"],
            &discard["queue"],
            &discard["reason"]
        ),
        (&json!(id), &json!("q"), &json!("was sent twice"))
    );
    assert_eq!(
        (&discard["before"]["state"], &discard["after"]["code"]),
        (&json!("dead"), &json!("duplicate"))
    );
    assert_eq!(edit["request_id"], "night-shift-1");
    assert_eq!(edit["actor"], discard["actor"]);
    assert!(created["request_id"].is_string());
    assert_eq!(created["after"]["policy"]["visibility_timeout_seconds"], 45);
    assert!(!page.to_string().contains("secret") && !page.to_string().contains("_ms\""));
    assert_eq!(entries[0]["after"], json!({"paused": true}));
}

async fn filters_and_pages_find_rows(client: &Client) {
    let id = history(client).await;
    client.queue("other", json!({})).await;
    let all = get(client, "order=oldest&page_size=500").await;
    let entries = all["entries"].as_array().unwrap();
    let at = |n: usize| entries[entries.len() - n]["at"].as_str().unwrap();
    let actor = entries.last().unwrap()["actor"].as_str().unwrap();
    for (query, found) in [
        ("action=edit".to_owned(), vec!["edit"]),
        (
            format!("message_id={id}&order=oldest"),
            vec!["edit", "discard"],
        ),
        ("queue=other".to_owned(), vec!["create_queue"]),
        (format!("actor={actor}&action=pause"), vec!["pause"]),
        ("actor=nobody".to_owned(), vec![]),
        ("redrive_id=rdv_0000000000001".to_owned(), vec![]),
        (format!("to={}&queue=other", at(1)), vec![]),
        (format!("from={}&queue=other", at(1)), vec!["create_queue"]),
    ] {
        assert_eq!(actions(&get(client, &query).await), found, "{query}");
    }
    for order in ["oldest", "newest"] {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = get(client, &format!("order={order}&page_size=2{token}")).await;
            found.extend(page["entries"].as_array().unwrap().clone());
            let Some(next) = page["next_page_token"].as_str() else {
                break;
            };
            token = format!("&page_token={next}");
        }
        if order == "newest" {
            found.reverse();
        }
        assert_eq!(&found, entries, "{order}");
    }
    let page = get(client, "page_size=1").await;
    let token = page["next_page_token"].as_str().unwrap();
    for (query, status, code) in [
        (
            format!("page_token={token}&order=oldest"),
            422,
            "invalid_page_token",
        ),
        (
            format!("page_token={token}&queue=q"),
            422,
            "invalid_page_token",
        ),
        ("action=explode".to_owned(), 422, "invalid_value"),
        ("message_id=7".to_owned(), 422, "invalid_value"),
        ("from=yesterday".to_owned(), 422, "invalid_value"),
        (
            "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z".to_owned(),
            422,
            "out_of_range",
        ),
        ("queue=none".to_owned(), 404, "queue_not_found"),
        ("sort=at".to_owned(), 422, "unknown_parameter"),
    ] {
        let path = format!("{PATH}?{query}");
        client
            .refused("GET", &path, Value::Null, status, code)
            .await;
    }
}

async fn lines(client: &Client, query: &str) -> (Answer, Vec<Value>) {
    let answer = client
        .send("GET", &format!("{PATH}?{query}"), LINES, b"")
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let text = answer.text();
    assert!(text.is_empty() || text.ends_with('\n'));
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.collect();
    (answer, lines)
}

async fn all_of_it_comes_as_lines(client: &Client) {
    // More than are read at once.
    for n in 0..520 {
        let verb = if n % 2 == 0 { "pause" } else { "resume" };
        if n == 0 {
            client.queue("q", json!({})).await;
        }
        client
            .ok(&format!("/v1/queues/q/{verb}"), Value::Null)
            .await;
    }
    let (answer, found) = lines(client, "queue=q").await;
    assert!(answer.header("request-id").is_some());
    assert_eq!(found.len(), 521);
    let ids: Vec<i64> = found
        .iter()
        .map(|e| e["audit_id"].as_i64().unwrap())
        .collect();
    assert!(ids.is_sorted());
    assert_eq!(found[0]["action"], "create_queue");
    let page = get(client, "queue=q&order=oldest&page_size=500").await;
    assert_eq!(page["entries"].as_array().unwrap()[..], found[..500]);
    let (_, newest) = lines(client, "queue=q&order=newest&action=resume").await;
    assert_eq!(newest.len(), 260);
    assert_eq!(newest[0], found[520]);
    let (_, none) = lines(client, "actor=nobody").await;
    assert!(none.is_empty());
    for (query, code) in [
        ("page_size=5", "unknown_parameter"),
        ("action=explode", "invalid_value"),
    ] {
        let answer = client
            .send("GET", &format!("{PATH}?{query}"), LINES, b"")
            .await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (422, Some(code))
        );
    }
}

on_every_store!(
    every_change_is_there_with_who_what_and_why,
    filters_and_pages_find_rows,
    all_of_it_comes_as_lines,
);

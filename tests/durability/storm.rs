//! `kill -9` in the middle of a publish storm, three times; then every message that was answered for is there once.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const PRODUCERS: usize = 16;
/// Answers after which the server is killed.
const ANSWERS: usize = 400;
const KILLS: usize = 3;

/// What a producer knows of its publishes: the message that was answered, or `None` where no answer came.
type Known = BTreeMap<String, Option<String>>;

async fn produce(
    address: SocketAddr,
    key: String,
    producer: usize,
    round: usize,
    answers: Arc<AtomicUsize>,
) -> Known {
    let mut client = Client::new(address, &key);
    let mut known = Known::new();
    for number in 0.. {
        let id = format!("{round}-{producer}-{number}");
        let body = json!({"queue": "storm", "message": {"id": id}, "client_request_id": id});
        match client.call("POST", "/v1/queue/publish", &body).await {
            Ok((201, answer)) => {
                answers.fetch_add(1, Ordering::SeqCst);
                known.insert(id, Some(answer["message_id"].as_str().unwrap().to_owned()));
            }
            Ok((status, answer)) => panic!("{status} {answer}"),
            Err(_) => {
                known.insert(id, None);
                return known;
            }
        }
    }
    known
}

/// Publishes until enough was answered, and kills the server with publishes in flight.
async fn storm(server: &mut Process, key: &str, round: usize) -> Known {
    let answers = Arc::new(AtomicUsize::new(0));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            tokio::spawn(produce(
                server.address,
                key.to_owned(),
                producer,
                round,
                answers.clone(),
            ))
        })
        .collect();
    while answers.load(Ordering::SeqCst) < ANSWERS {
        assert!(
            !producers.iter().any(tokio::task::JoinHandle::is_finished),
            "a producer ended before the kill"
        );
        tokio::task::yield_now().await;
    }
    server.signal("KILL");
    server.wait();
    let mut known = Known::new();
    for producer in producers {
        known.extend(producer.await.unwrap());
    }
    known
}

/// Every id is published again: an answered one names the message it named before, another one makes or names one.
async fn repeat(client: &mut Client, known: &Known) -> BTreeSet<String> {
    let mut messages = BTreeSet::new();
    for (id, answered) in known {
        let body = json!({"queue": "storm", "message": {"id": id}, "client_request_id": id});
        let answer = client.must("POST", "/v1/queue/publish", &body).await;
        let message = answer["message_id"].as_str().unwrap().to_owned();
        if let Some(before) = answered {
            assert_eq!(
                answer["deduplicated"],
                json!(true),
                "{id} was answered before and is not there: {answer}"
            );
            assert_eq!(&message, before);
        }
        assert!(messages.insert(message), "two ids name one message");
    }
    messages
}

/// Receives and acks everything: each message once, byte for byte what was published.
async fn drain(client: &mut Client) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    loop {
        let body =
            json!({"queue": "storm", "max_messages": 100, "visibility_timeout_seconds": 600});
        let answer = client.must("POST", "/v1/queue/receive", &body).await;
        let messages = answer["messages"].as_array().unwrap();
        if messages.is_empty() {
            return ids;
        }
        let mut settlements = Vec::new();
        for message in messages {
            assert_eq!(message["attempt"], json!(1));
            assert_eq!(
                message["message"],
                json!({"id": message["client_request_id"]})
            );
            assert!(
                ids.insert(message["client_request_id"].as_str().unwrap().to_owned()),
                "delivered twice"
            );
            settlements.push(json!({"receipt": message["receipt"], "action": "ack"}));
        }
        let settled = client
            .must(
                "POST",
                "/v1/queue/settle",
                &json!({"settlements": settlements}),
            )
            .await;
        assert_eq!(settled["failed"], json!(0), "{settled}");
    }
}

async fn nothing_answered_is_lost(arguments: &[&str]) {
    let folder = TempDir::new().unwrap();
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let mut arguments = arguments.to_vec();
    arguments.extend(["--admin-key", &key]);
    let mut server = Process::start(folder.path(), &arguments);
    let mut known = Known::new();
    for round in 0..KILLS {
        known.extend(storm(&mut server, &key, round).await);
        server = Process::start(folder.path(), &arguments);
    }
    let unanswered = known.values().filter(|answered| answered.is_none()).count();
    assert!(unanswered > 0 && known.len() > KILLS * ANSWERS);
    let mut client = Client::new(server.address, &key);
    let messages = repeat(&mut client, &known).await;
    let numbers = client.must("GET", "/v1/queues/storm", &Value::Null).await;
    assert_eq!(numbers["counts"]["ready"], json!(known.len()), "{numbers}");
    assert_eq!(messages.len(), known.len());
    assert_eq!(drain(&mut client).await, known.keys().cloned().collect());
    let numbers = client.must("GET", "/v1/queues/storm", &Value::Null).await;
    assert_eq!(
        numbers["totals"]["accepted"],
        json!(known.len()),
        "{numbers}"
    );
    assert_eq!(numbers["totals"]["acked"], json!(known.len()), "{numbers}");
    println!(
        "{} ids, {unanswered} of them without an answer at a kill: all there once",
        known.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_that_was_answered_survives_kill_9_on_sqlite() {
    nothing_answered_is_lost(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_that_was_answered_survives_kill_9_on_postgres() {
    let Some(database) = postgres::database().await else {
        return;
    };
    nothing_answered_is_lost(&["--database-url", &database.url]).await;
    database.drop().await;
}

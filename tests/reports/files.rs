//! The SQLite file: others that lock, copy or read it.

use futures_util::future::{join, join_all};
use quita_tests::served::Client;
use quita_tests::server::TestServer;
use quita_tests::store::{self, Opened, Store};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PUBLISH: &str = "/v1/queue/publish";
const RECEIVE: &str = "/v1/queue/receive";

/// A server on a file of its own.
async fn start() -> (Opened, Client) {
    let opened = store::open(Store::Sqlite).await.unwrap();
    let server = TestServer::start_with(opened.backend.clone(), |_| {}).await;
    (opened, Client { server })
}

async fn end(opened: Opened, client: Client) {
    client.audit().await;
    client.server.stop().await;
    opened.close().await;
}

fn file(opened: &Opened, ending: &str) -> PathBuf {
    format!("{}{ending}", opened.url.strip_prefix("sqlite://").unwrap()).into()
}

/// B011: producers and consumers beside somebody who locks the file for seconds: each request is answered as done or as to be
/// repeated, and what was accepted is received, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_by_another_program_loses_nothing() {
    const LOCKED: Duration = Duration::from_secs(2);
    let (opened, client) = start().await;
    client.queue("q", json!({})).await;
    let (accepted, received, locked) = (Cell::new(0), Cell::new(0), Cell::new(true));
    let producing = async || {
        while locked.get() {
            let (status, answer) = client
                .post(PUBLISH, json!({"queue": "q", "message": 1}))
                .await;
            assert!([201, 503].contains(&status), "{answer}");
            accepted.set(accepted.get() + i64::from(status == 201));
        }
    };
    let consuming = async || {
        while locked.get() {
            let body = json!({"queue": "q", "visibility_timeout_seconds": 600});
            let (status, answer) = client.post(RECEIVE, body).await;
            assert!([200, 503].contains(&status), "{answer}");
            let Some(message) = answer["messages"].get(0) else {
                continue;
            };
            assert_eq!(message["attempt"], 1);
            let ack = json!({"receipt": message["receipt"]});
            let (status, answer) = client.post("/v1/queue/ack", ack).await;
            assert!([200, 503].contains(&status), "{answer}");
            received.set(received.get() + 1);
        }
    };
    let locking = async {
        let mut other = SqliteConnection::connect(&opened.url).await.unwrap();
        for _ in 0..2 {
            sqlx::raw_sql("BEGIN IMMEDIATE")
                .execute(&mut other)
                .await
                .unwrap();
            tokio::time::sleep(LOCKED / 2).await;
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
            tokio::time::sleep(LOCKED / 8).await;
        }
        other.close().await.unwrap();
        locked.set(false);
    };
    let working = join(
        join_all((0..16).map(|_| producing())),
        join_all((0..16).map(|_| consuming())),
    );
    join(working, locking).await;
    assert!(accepted.get() > 0 && received.get() > 0);
    assert_eq!(client.counts("q").await[1] + received.get(), accepted.get());
    end(opened, client).await;
}

/// B013: what was answered is in the files at that moment: a copy of them, made right after the answer, has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_in_a_copy_of_the_files() {
    let (opened, client) = start().await;
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    for number in 1..=5 {
        client.publish("q", json!(number)).await;
        for ending in ["", "-wal"] {
            let to = format!("{}{ending}", copy.display());
            std::fs::copy(file(&opened, ending), to).unwrap();
        }
        let url = format!("sqlite://{}", copy.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let there: i64 = sqlx::query_scalar("SELECT count(*) FROM message")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(there, number);
        connection.close().await.unwrap();
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", copy.display()));
        }
    }
    end(opened, client).await;
}

/// B123: a reader that stays open makes the write-ahead log grow, and holds up nobody; once it is gone the log begins anew, as
/// short as it should be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_begins_anew_when_a_reader_is_gone() {
    /// The length to which a log that begins anew is cut.
    const SHORT: u64 = 96 << 20;
    let (opened, client) = start().await;
    let length = || std::fs::metadata(file(&opened, "-wal")).unwrap().len();
    client.publish("q", json!(1)).await;
    let mut reader = SqliteConnection::connect(&opened.url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM message")
        .execute(&mut reader)
        .await
        .unwrap();
    let entry = json!({"message": "x".repeat(200_000)});
    let batch = json!({"queue": "large", "messages": vec![entry; 39]});
    while length() <= SHORT + (8 << 20) {
        client.ok("/v1/queue/publish-batch", batch.clone()).await;
    }
    let asked = Instant::now();
    client.publish("q", json!(2)).await;
    assert_eq!(client.receive("q").await["message"], 1);
    assert!(asked.elapsed() < Duration::from_secs(2));
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    reader.close().await.unwrap();
    let began = Instant::now();
    while length() > SHORT {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", length());
        client.publish("q", json!(3)).await;
    }
    end(opened, client).await;
}

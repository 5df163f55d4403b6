//! Several servers on one PostgreSQL: they start at once, and each sees at once what another answered.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres::{self, Database};
use quita_tests::server::Process;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Replicas {
    database: Database,
    servers: Vec<(Process, TempDir)>,
    key: String,
}

impl Replicas {
    async fn start(count: usize) -> Option<Self> {
        let database = postgres::database().await?;
        let key = ApiKey::generate().unwrap().reveal().to_owned();
        let servers = (0..count)
            .map(|_| {
                let folder = TempDir::new().unwrap();
                let arguments = ["--database-url", &database.url, "--admin-key", &key];
                (Process::start(folder.path(), &arguments), folder)
            })
            .collect();
        Some(Self {
            database,
            servers,
            key,
        })
    }

    fn client(&self, replica: usize) -> Client {
        Client::new(self.servers[replica].0.address, &self.key)
    }

    async fn end(self) {
        drop(self.servers);
        self.database.drop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_servers_that_start_at_once_on_an_empty_database_all_become_ready_and_make_one_key() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let starting: Vec<_> = (0..8)
        .map(|_| {
            let url = database.url.clone();
            tokio::task::spawn_blocking(move || {
                let folder = TempDir::new().unwrap();
                (
                    Process::start(folder.path(), &["--database-url", &url]),
                    folder,
                )
            })
        })
        .collect();
    let mut servers = Vec::new();
    for server in starting {
        servers.push(server.await.unwrap());
    }
    let keys: Vec<String> = servers
        .iter()
        .filter_map(|(_, folder)| {
            std::fs::read_to_string(folder.path().join("data/admin.key")).ok()
        })
        .collect();
    assert_eq!(keys.len(), 1, "exactly one first key");
    for (number, (server, _)) in servers.iter().enumerate() {
        let mut client = Client::new(server.address, keys[0].trim());
        let body = json!({"queue": "eight", "message": number});
        client.must("POST", "/v1/queue/publish", &body).await;
    }
    let mut client = Client::new(servers[0].0.address, keys[0].trim());
    let numbers = client.must("GET", "/v1/queues/eight", &Value::Null).await;
    assert_eq!(numbers["counts"]["ready"], json!(8), "{numbers}");
    drop(servers);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_replica_answered_the_other_knows() {
    let Some(replicas) = Replicas::start(2).await else {
        return;
    };
    let (mut a, mut b) = (replicas.client(0), replicas.client(1));
    // A receipt of one replica is good on the other.
    a.must(
        "POST",
        "/v1/queue/publish",
        &json!({"queue": "shared", "message": 1}),
    )
    .await;
    let received = b
        .must(
            "POST",
            "/v1/queue/receive",
            &json!({"queue": "shared", "wait_seconds": 5}),
        )
        .await;
    let receipt = received["messages"][0]["receipt"].clone();
    let acked = a
        .must("POST", "/v1/queue/ack", &json!({"receipt": receipt}))
        .await;
    assert_eq!(acked["result"], json!("acked"));
    let again = b
        .must("POST", "/v1/queue/ack", &json!({"receipt": receipt}))
        .await;
    assert_eq!(again["result"], json!("already_settled"));
    // After a pause is answered no replica hands out.
    b.must(
        "POST",
        "/v1/queue/publish",
        &json!({"queue": "shared", "message": 2}),
    )
    .await;
    a.must("POST", "/v1/queues/shared/pause", &json!({})).await;
    let paused = b
        .must("POST", "/v1/queue/receive", &json!({"queue": "shared"}))
        .await;
    assert_eq!(
        (&paused["messages"], &paused["paused"]),
        (&json!([]), &json!(true)),
        "{paused}"
    );
    a.must("POST", "/v1/queues/shared/resume", &json!({})).await;
    // A publish through a replica whose view of the queue is from before the purge is not lost.
    let purged = a
        .must(
            "POST",
            "/v1/queues/shared/purge",
            &json!({"confirm": "shared"}),
        )
        .await;
    assert_eq!(purged["purged"], json!(1));
    b.must(
        "POST",
        "/v1/queue/publish",
        &json!({"queue": "shared", "message": 3}),
    )
    .await;
    for client in [&mut a, &mut b] {
        let numbers = client.must("GET", "/v1/queues/shared", &Value::Null).await;
        assert_eq!(numbers["counts"]["ready"], json!(1), "{numbers}");
        assert_eq!(numbers["totals"]["purged"], json!(1), "{numbers}");
    }
    replicas.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_id_published_on_both_replicas_at_once_makes_one_message() {
    let Some(replicas) = Replicas::start(2).await else {
        return;
    };
    for round in 0..20 {
        let publishing: Vec<_> = (0..16)
            .map(|number| {
                let mut client = replicas.client(number % 2);
                let body = json!({"queue": "once", "message": "m", "client_request_id": format!("id-{round}")});
                tokio::spawn(async move { client.must("POST", "/v1/queue/publish", &body).await })
            })
            .collect();
        let (mut messages, mut created) = (BTreeSet::new(), 0);
        for answer in publishing {
            let answer = answer.await.unwrap();
            messages.insert(answer["message_id"].to_string());
            created += usize::from(answer["deduplicated"] == json!(false));
        }
        assert_eq!(
            (messages.len(), created),
            (1, 1),
            "round {round}: {messages:?}"
        );
    }
    replicas.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_receive_is_woken_by_a_publish_on_another_replica() {
    let Some(replicas) = Replicas::start(2).await else {
        return;
    };
    let mut publisher = replicas.client(1);
    publisher.must("PUT", "/v1/queues/far", &json!({})).await;
    for _ in 0..3 {
        let mut waiting = replicas.client(0);
        let receive = json!({"queue": "far", "wait_seconds": 30});
        let receiving =
            tokio::spawn(async move { waiting.must("POST", "/v1/queue/receive", &receive).await });
        // The receive has looked and waits: its empty look is the only thing that is under way.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let began = Instant::now();
        publisher
            .must(
                "POST",
                "/v1/queue/publish",
                &json!({"queue": "far", "message": 1}),
            )
            .await;
        let received = receiving.await.unwrap();
        assert_eq!(received["messages"].as_array().unwrap().len(), 1);
        // The promise is 250 ms at rest; on a busy test machine the bound only tells a poll from the end of the wait.
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        println!(
            "woken {:?} after the publish began on the other replica",
            began.elapsed()
        );
    }
    replicas.end().await;
}

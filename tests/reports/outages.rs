//! A database that goes away, comes back, ends sessions or falls silent. PostgreSQL only: a file does none of this.

use futures_util::future::{join, join_all};
use quita_tests::postgres::{self, Database};
use quita_tests::relay::Relay;
use quita_tests::served::{Client, checked};
use quita_tests::server::TestServer;
use serde_json::{Value, json};
use sqlx::Connection;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PUBLISH: &str = "/v1/queue/publish";
const RECEIVE: &str = "/v1/queue/receive";
/// Most sessions of one server: a lane for each kind of batch, the pool, and one that is being replaced.
const MOST_SESSIONS: i64 = 10;

struct Site {
    database: Database,
    relay: Relay,
    client: Client,
}

impl Site {
    /// A server behind a relay; `None` when there is no PostgreSQL.
    async fn start() -> Option<Self> {
        let database = postgres::database().await?;
        let relay = Relay::before(&database.url).await;
        let backend = quita_storage::open(&relay.url(&database.url))
            .await
            .unwrap();
        let server = TestServer::start_with(backend, |_| {}).await;
        let client = Client { server };
        Some(Self {
            database,
            relay,
            client,
        })
    }

    async fn end(self) {
        self.client.audit().await;
        let backend = self.client.server.backend.clone();
        self.client.server.stop().await;
        backend.close().await;
        drop(self.relay);
        self.database.drop().await;
    }

    /// A session of the database that is not the server's.
    async fn session(&self) -> sqlx::PgConnection {
        sqlx::PgConnection::connect(&self.database.url)
            .await
            .unwrap()
    }

    /// Waits until the server is ready, which must be within ten seconds.
    async fn until_ready(&self) {
        let began = Instant::now();
        while self.client.server.get("/readyz").await.status != 200 {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}

async fn receive(client: &Client, queue: &str, lease: u32, wait: u32) -> Vec<Value> {
    let body = json!({"queue": queue, "max_messages": 10, "visibility_timeout_seconds": lease, "wait_seconds": wait});
    let mut answer = client.ok(RECEIVE, body).await;
    std::mem::take(answer["messages"].as_array_mut().unwrap())
}

/// How many sessions the server has, and how many of them are left in a transaction.
async fn sessions(connection: &mut sqlx::PgConnection) -> (i64, i64) {
    sqlx::query_as(
        "SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%') FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'quita'",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

/// A receive that waits gets what is published now: the loops go on.
async fn assert_woken(client: &Client, queue: &str) {
    let waiting = async {
        let got = receive(client, queue, 600, 20).await;
        (got, Instant::now())
    };
    let publishing = async {
        client.until("/v1/queues", |_| true).await;
        client.publish(queue, json!("now")).await;
        Instant::now()
    };
    let ((got, came), published) = join(waiting, publishing).await;
    assert_eq!(got.len(), 1);
    assert!(came.saturating_duration_since(published) < Duration::from_secs(5));
}

/// Publishes with these ids while the database is away: each is told to come again, and when.
async fn publish_in_vain(client: &Client, ids: &mut BTreeSet<String>, lasting: Duration) {
    let began = Instant::now();
    while began.elapsed() < lasting {
        let id = format!("id-{}", ids.len());
        let body = json!({"queue": "new", "message": {"id": id}, "client_request_id": id});
        ids.insert(id);
        let answer = client.raw("POST", PUBLISH, body.to_string()).await;
        let (status, problem) = checked(&answer);
        assert_eq!(
            (status, &problem["retryable"]),
            (503, &json!(true)),
            "{problem}"
        );
        assert_eq!(client.server.get("/readyz").await.status, 503);
        assert_eq!(client.server.get("/healthz").await.status, 200);
    }
}

/// B053, B093, B096, B114: an outage ends no lease, stops no clock and loses no loop; whoever was told to come again finds each
/// message once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_everything_goes_on() {
    let Some(site) = Site::start().await else {
        return;
    };
    let client = &site.client;
    for queue in ["held", "short", "later", "new", "wake"] {
        client.queue(queue, json!({})).await;
    }
    client.publish("held", json!(1)).await;
    let held = receive(client, "held", 600, 0).await;
    client.publish("short", json!(1)).await;
    assert_eq!(receive(client, "short", 1, 0).await.len(), 1);
    let delayed = json!({"queue": "later", "message": 1, "delay_seconds": 2});
    client.ok(PUBLISH, delayed).await;
    let due = Instant::now() + Duration::from_secs(2);
    site.relay.cut();
    let mut ids = BTreeSet::new();
    publish_in_vain(client, &mut ids, Duration::from_millis(1_500)).await;
    site.relay.mend();
    site.until_ready().await;
    assert_eq!(receive(client, "held", 600, 0).await.len(), 0);
    let again = receive(client, "short", 600, 5).await;
    assert_eq!(again[0]["attempt"], 2);
    let later = receive(client, "later", 600, 5).await;
    assert!(later.len() == 1 && Instant::now() >= due);
    let ack = json!({"receipt": held[0]["receipt"]});
    assert_eq!(client.ok("/v1/queue/ack", ack).await["late"], false);
    assert_woken(client, "wake").await;
    let mut messages = BTreeSet::new();
    for id in &ids {
        let body = json!({"queue": "new", "message": {"id": id}, "client_request_id": id});
        messages.insert(client.ok(PUBLISH, body).await["message_id"].to_string());
    }
    assert_eq!(messages.len(), ids.len());
    assert_eq!(client.counts("new").await[1], ids.len() as i64);
    site.end().await;
}

/// B002, B003, B101: while sessions are ended over and over, all who publish one id hear of one message, which is there; the
/// number of sessions stays what it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_ended_cost_nothing_but_time() {
    const ROUNDS: usize = 8;
    let Some(site) = Site::start().await else {
        return;
    };
    let client = &site.client;
    client.queue("q", json!({})).await;
    let mut killer = site.session().await;
    for round in 0..ROUNDS {
        let id = format!("round-{round}");
        let body = json!({"queue": "q", "message": round, "client_request_id": id});
        let publishing = join_all((0..20).map(|_| client.post(PUBLISH, body.clone())));
        let killing = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'quita'",
        );
        let (answers, killed) = join(publishing, killing.fetch_all(&mut killer)).await;
        assert!(!killed.unwrap().is_empty());
        let named: BTreeSet<_> = answers
            .iter()
            .filter(|(status, _)| (200..300).contains(status))
            .map(|(_, answer)| answer["message_id"].to_string())
            .collect();
        let last = client.ok(PUBLISH, body).await["message_id"].take();
        let only = BTreeSet::from([last.to_string()]);
        assert!(named.is_subset(&only), "{named:?}");
        let path = format!("/v1/messages/{}", last.as_str().unwrap());
        let (_, message) = client.get(&path).await;
        assert_eq!(message["state"], "ready", "{message}");
    }
    assert_eq!(client.counts("q").await[1], ROUNDS as i64);
    client.queue("wake", json!({})).await;
    assert_woken(client, "wake").await;
    let (count, in_transaction) = sessions(&mut killer).await;
    assert!(
        count <= MOST_SESSIONS && in_transaction == 0,
        "{count} {in_transaction}"
    );
    site.end().await;
}

/// B103, B104: hundreds of receives that wait hold no session, and publishes beside them are quick; those that hang up leave
/// no transaction behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receives_that_wait_hold_no_session() {
    const WAITING: usize = 300;
    let Some(site) = Site::start().await else {
        return;
    };
    let client = &site.client;
    client.queue("idle", json!({})).await;
    let headers = quita_tests::server::json_headers(&client.server.key);
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut wire = client.server.wire().await;
        let body = r#"{"queue":"idle","wait_seconds":30}"#;
        wire.request("POST", RECEIVE, &headers, body).await;
        waiting.push(wire);
    }
    let mut slowest = Duration::ZERO;
    for n in 0..50 {
        let asked = Instant::now();
        client.publish("busy", json!(n)).await;
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let mut connection = site.session().await;
    assert!(sessions(&mut connection).await.0 <= MOST_SESSIONS);
    // Hang up while a message is on its way to one of them.
    let ((), id) = join(
        async { waiting.drain(..).for_each(quita_tests::wire::Wire::reset) },
        client.publish("idle", json!(1)),
    )
    .await;
    let path = format!("/v1/messages/{id}");
    client.until(&path, |m| m["state"] == "ready").await;
    assert_eq!(receive(client, "idle", 600, 5).await[0]["attempt"], 1);
    let (count, in_transaction) = sessions(&mut connection).await;
    assert!(
        count <= MOST_SESSIONS && in_transaction == 0,
        "{count} {in_transaction}"
    );
    site.end().await;
}

/// Dead letters, counted beside the server.
async fn dead_rows(connection: &mut sqlx::PgConnection) -> i64 {
    let counted = sqlx::query_scalar("SELECT count(*) FROM dead");
    counted.fetch_one(connection).await.unwrap()
}

/// B097, B098: connections that fall silent without an end are given up after 20 seconds, and nothing waits for them longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fall_silent_are_given_up() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let Some(site) = Site::start().await else {
        return;
    };
    let client = &site.client;
    client.queue("wake", json!({})).await;
    client.queue("q", json!({"max_attempts": 1})).await;
    client.publish("q", json!(1)).await;
    assert_eq!(receive(client, "q", 1, 0).await.len(), 1);
    let mut beside = site.session().await;
    let (address, key) = (client.server.address, client.server.key.clone());
    // A client that has the patience for it.
    let call = async |method: &str, path: &str, body: Value| {
        let mut caller = quita_tests::client::Client::new(address, &key);
        let answer = caller.call(method, path, &body).await;
        answer.unwrap()
    };
    let began = Instant::now();
    site.relay.fall_silent();
    let body = json!({"queue": "new", "message": 1, "client_request_id": "x"});
    let reads = join_all((0..8).map(|_| call("GET", "/v1/queues/q", Value::Null)));
    let (published, reads) = join(call("POST", PUBLISH, body.clone()), reads).await;
    assert!([201, 503].contains(&published.0), "{published:?}");
    for (status, answer) in reads {
        assert!([200, 503].contains(&status), "{answer}");
    }
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    // The loops have found their way back by themselves: the lease is long over.
    while dead_rows(&mut beside).await == 0 {
        assert!(began.elapsed() < PATIENCE);
    }
    client.ok(PUBLISH, body).await;
    assert_eq!(client.counts("new").await[1], 1);
    assert_woken(client, "wake").await;
    assert!(sessions(&mut beside).await.0 <= MOST_SESSIONS);
    site.end().await;
}

//! Servers that stop, in order or not, with everything under way: nothing is lost, freed early or handed to two.

use futures_util::future::join;
use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

const PUBLISH: &str = "/v1/queue/publish";
const RECEIVE: &str = "/v1/queue/receive";

struct Served {
    folder: TempDir,
    key: String,
    url: Option<String>,
    server: Process,
}

impl Served {
    fn start(url: Option<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let key = ApiKey::generate().unwrap().reveal().to_owned();
        let server = serve(&folder, &key, url.as_deref());
        Self {
            folder,
            key,
            url,
            server,
        }
    }

    /// Ends the server with this signal and starts it again; answers a client of the new one.
    fn after(&mut self, signal: &str) -> Client {
        self.server.signal(signal);
        let status = self.server.wait();
        assert_eq!(status.code(), (signal == "TERM").then_some(0), "{status}");
        self.server = serve(&self.folder, &self.key, self.url.as_deref());
        self.client()
    }

    fn client(&self) -> Client {
        Client::new(self.server.address, &self.key)
    }
}

fn serve(folder: &TempDir, key: &str, url: Option<&str>) -> Process {
    let mut arguments = vec!["--admin-key", key, "--drain-deadline-seconds", "5"];
    if let Some(url) = url {
        arguments.extend(["--database-url", url]);
    }
    Process::start(folder.path(), &arguments)
}

async fn receive(client: &mut Client, queue: &str, max: u32, lease: u32, wait: u32) -> Vec<Value> {
    let body = json!({"queue": queue, "max_messages": max, "visibility_timeout_seconds": lease, "wait_seconds": wait});
    let mut answer = client.must("POST", RECEIVE, &body).await;
    std::mem::take(answer["messages"].as_array_mut().unwrap())
}

async fn fill(client: &mut Client, queue: &str, count: u64, delay: u32) {
    for first in (0..count).step_by(500) {
        let messages: Vec<Value> = (first..count.min(first + 500))
            .map(|n| json!({"message": n, "delay_seconds": delay}))
            .collect();
        let batch = json!({"queue": queue, "messages": messages});
        client.must("POST", "/v1/queue/publish-batch", &batch).await;
    }
}

async fn counts(client: &mut Client, queue: &str) -> [u64; 4] {
    let path = format!("/v1/queues/{queue}");
    let queue = client.must("GET", &path, &Value::Null).await;
    ["delayed", "ready", "leased", "dead"].map(|name| queue["counts"][name].as_u64().unwrap())
}

/// B009, B015, B054: what is held at a stop in order is held after it; its receipts settle it and nothing that came later.
async fn what_is_held_stays_held(served: &mut Served) {
    let mut client = served.client();
    fill(&mut client, "held", 10, 0).await;
    let old = receive(&mut client, "held", 10, 600, 0).await;
    let mut client = served.after("TERM");
    assert_eq!(receive(&mut client, "held", 10, 600, 0).await.len(), 0);
    fill(&mut client, "held", 5, 0).await;
    assert_eq!(receive(&mut client, "held", 10, 600, 0).await.len(), 5);
    for held in &old {
        let ack = json!({"receipt": held["receipt"]});
        let acked = client.must("POST", "/v1/queue/ack", &ack).await;
        assert_eq!(
            (&acked["message_id"], &acked["result"]),
            (&held["message_id"], &json!("acked"))
        );
    }
    assert_eq!(counts(&mut client, "held").await, [0, 0, 5, 0]);
}

/// B081, B083: a message that ends its worker and the server dies at its limit, however often the server began anew.
async fn poison_is_counted_over_restarts(served: &mut Served) {
    let mut client = served.client();
    let policy = json!({"max_attempts": 3, "max_lease_expirations": 3});
    client.must("PUT", "/v1/queues/poison", &policy).await;
    fill(&mut client, "poison", 1, 0).await;
    for attempt in 1..=3 {
        let got = receive(&mut client, "poison", 1, 1, 10).await;
        assert_eq!(got[0]["attempt"], attempt);
        client = served.after(if attempt == 2 { "TERM" } else { "KILL" });
    }
    let began = Instant::now();
    while counts(&mut client, "poison").await != [0, 0, 0, 1] {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    let path = "/v1/queues/poison/dead-letters";
    let dead = client.must("GET", path, &Value::Null).await;
    assert_eq!(
        dead["messages"][0]["dead_letter"]["reason"], "lease_expired",
        "{dead}"
    );
}

/// B120: the wait after a nack is a time that is stored, not a timer in a process.
async fn a_retry_waits_over_a_restart(served: &mut Served) {
    let mut client = served.client();
    fill(&mut client, "later", 1, 0).await;
    let held = receive(&mut client, "later", 1, 600, 0).await;
    let nack = json!({"receipt": held[0]["receipt"], "delay_seconds": 3});
    let nacked = Instant::now();
    client.must("POST", "/v1/queue/nack", &nack).await;
    let mut client = served.after("KILL");
    let again = receive(&mut client, "later", 1, 600, 20).await;
    assert_eq!(again[0]["attempt"], 2);
    let took = nacked.elapsed();
    assert!(
        took >= Duration::from_secs(3) && took < Duration::from_secs(10),
        "{took:?}"
    );
}

async fn leases_limits_and_waits_outlive_it(url: Option<String>) {
    let mut served = Served::start(url);
    what_is_held_stays_held(&mut served).await;
    poison_is_counted_over_restarts(&mut served).await;
    a_retry_waits_over_a_restart(&mut served).await;
}

/// B008: of many messages that become due while the server is killed none is missing and none is there twice.
async fn killed_when_due(url: Option<String>) {
    const COUNT: u64 = 1_000;
    let mut served = Served::start(url);
    let mut client = served.client();
    fill(&mut client, "due", COUNT, 2).await;
    let first = receive(&mut client, "due", 1, 600, 20).await;
    let mut client = served.after("KILL");
    let mut numbers = BTreeSet::from([first[0]["message"].as_u64().unwrap()]);
    while numbers.len() < COUNT as usize {
        let got = receive(&mut client, "due", 100, 600, 5).await;
        assert!(!got.is_empty(), "{} of {COUNT}", numbers.len());
        for message in got {
            assert_eq!(message["attempt"], 1);
            assert!(
                numbers.insert(message["message"].as_u64().unwrap()),
                "{message}"
            );
        }
    }
    assert_eq!(counts(&mut client, "due").await, [0, 0, COUNT, 0]);
}

/// Receives until the server is gone; answers how many messages came.
fn wait_for_messages(address: SocketAddr, key: &str) -> JoinHandle<u64> {
    let mut client = Client::new(address, key);
    tokio::spawn(async move {
        let body = json!({"queue": "storm", "wait_seconds": 20, "visibility_timeout_seconds": 600});
        let mut came = 0;
        while let Ok((200, answer)) = client.call("POST", RECEIVE, &body).await {
            came += answer["messages"].as_array().unwrap().len() as u64;
        }
        came
    })
}

/// Publishes until the server is gone; counts what was answered.
fn publish(
    address: SocketAddr,
    key: &str,
    answered: Arc<AtomicU64>,
    stopping: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let mut client = Client::new(address, key);
    tokio::spawn(async move {
        let body = json!({"queue": "storm", "message": 1});
        loop {
            match client.call("POST", PUBLISH, &body).await {
                Ok((201, _)) => answered.fetch_add(1, Ordering::SeqCst),
                Ok((status, answer)) => panic!("{status} {answer}"),
                Err(_) if stopping.load(Ordering::SeqCst) => return,
                Err(error) => panic!("{error}"),
            };
        }
    })
}

/// B085, B100, B106, B163: a stop among receives that wait and publishes that go on ends soon and with 0; every message is in
/// an answer that came whole, and then leased, or it is ready.
async fn stopped_in_a_storm(url: Option<String>) {
    let mut served = Served::start(url);
    let (address, key) = (served.server.address, served.key.clone());
    let (answered, stopping) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    served
        .client()
        .must("PUT", "/v1/queues/storm", &json!({}))
        .await;
    let waiting: Vec<_> = (0..20).map(|_| wait_for_messages(address, &key)).collect();
    let publishing: Vec<_> = (0..4)
        .map(|_| publish(address, &key, answered.clone(), stopping.clone()))
        .collect();
    while answered.load(Ordering::SeqCst) < 200 {
        tokio::task::yield_now().await;
    }
    stopping.store(true, Ordering::SeqCst);
    let asked = Instant::now();
    let mut client = served.after("TERM");
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "{:?}",
        asked.elapsed()
    );
    let mut came = 0;
    for waiter in waiting {
        came += waiter.await.unwrap();
    }
    for publisher in publishing {
        publisher.await.unwrap();
    }
    let [delayed, ready, leased, dead] = counts(&mut client, "storm").await;
    assert_eq!((delayed, leased, dead), (0, came, 0));
    assert!(ready + leased >= answered.load(Ordering::SeqCst));
}

/// On both stores at once: most of a case is waiting.
async fn on_both(case: impl AsyncFn(Option<String>)) {
    let on_postgres = async {
        let Some(database) = postgres::database().await else {
            return;
        };
        case(Some(database.url.clone())).await;
        database.drop().await;
    };
    join(case(None), on_postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_change_nothing() {
    on_both(leases_limits_and_waits_outlive_it).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_at_a_kill_is_due_after_it() {
    on_both(killed_when_due).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_in_a_storm_loses_nothing() {
    on_both(stopped_in_a_storm).await;
}

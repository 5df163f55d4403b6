//! What a server knew before `kill -9` it knows after its next start: leases, attempts, receipts, pauses.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::{Value, json};
use tempfile::TempDir;

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

    /// Kills the server and starts it again; answers a client of the new one.
    fn again(&mut self) -> Client {
        self.server.signal("KILL");
        self.server.wait();
        self.server = serve(&self.folder, &self.key, self.url.as_deref());
        self.client()
    }

    fn client(&self) -> Client {
        Client::new(self.server.address, &self.key)
    }
}

fn serve(folder: &TempDir, key: &str, url: Option<&str>) -> Process {
    let mut arguments = vec!["--admin-key", key];
    if let Some(url) = url {
        arguments.extend(["--database-url", url]);
    }
    Process::start(folder.path(), &arguments)
}

async fn receive(client: &mut Client, lease: u32, wait: u32) -> Value {
    let body = json!({"queue": "kept", "visibility_timeout_seconds": lease, "wait_seconds": wait});
    client.must("POST", "/v1/queue/receive", &body).await
}

async fn everything_is_kept(url: Option<String>) {
    let mut served = Served::start(url);
    let mut client = served.client();
    client
        .must(
            "POST",
            "/v1/queue/publish",
            &json!({"queue": "kept", "message": 1}),
        )
        .await;
    let first = receive(&mut client, 600, 0).await["messages"][0].clone();
    assert_eq!(first["attempt"], json!(1));
    // A lease outlives the server: nobody else gets the message, and its receipt is good.
    let mut client = served.again();
    assert_eq!(receive(&mut client, 1, 0).await["messages"], json!([]));
    let nack = json!({"receipt": first["receipt"], "delay_seconds": 0});
    let nacked = client.must("POST", "/v1/queue/nack", &nack).await;
    assert_eq!(nacked["result"], json!("retry_scheduled"));
    let second = receive(&mut client, 1, 5).await["messages"][0].clone();
    assert_eq!(second["attempt"], json!(2));
    // An attempt outlives it too, and a lease that ran out meanwhile is over.
    let mut client = served.again();
    let third = receive(&mut client, 600, 10).await["messages"][0].clone();
    assert_eq!(
        (&third["attempt"], &third["message_id"]),
        (&json!(3), &first["message_id"])
    );
    // So does a pause.
    client
        .must("POST", "/v1/queues/kept/pause", &json!({}))
        .await;
    client
        .must(
            "POST",
            "/v1/queue/publish",
            &json!({"queue": "kept", "message": 2}),
        )
        .await;
    let mut client = served.again();
    assert_eq!(receive(&mut client, 1, 0).await["paused"], json!(true));
    let ack = json!({"receipt": third["receipt"]});
    assert_eq!(
        client.must("POST", "/v1/queue/ack", &ack).await["result"],
        json!("acked")
    );
    // And the end.
    let mut client = served.again();
    assert_eq!(
        client.must("POST", "/v1/queue/ack", &ack).await["result"],
        json!("already_settled")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_attempts_receipts_and_pauses_survive_kill_9_on_sqlite() {
    everything_is_kept(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_attempts_receipts_and_pauses_survive_kill_9_on_postgres() {
    let Some(database) = postgres::database().await else {
        return;
    };
    everything_is_kept(Some(database.url.clone())).await;
    database.drop().await;
}

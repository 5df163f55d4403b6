//! docs/OPERATING.md, the 03:00 page: its commands, in its order, against a server that had the outage.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::{Process, binary};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATING.md");

/// The commands of a page: its `sh` blocks, but not the one that says how to set the environment up.
fn commands(page: &str) -> String {
    let mut blocks = page.split("\n```sh\n");
    blocks.next();
    let mut script = String::new();
    for block in blocks {
        let (commands, _) = block.split_once("\n```").unwrap();
        script += commands;
        script += "\n";
    }
    script
}

async fn die(client: &mut Client, message: Value, key: &str, code: &str, detail: &str) {
    let body = json!({"queue": "charges", "message": message, "key": key});
    client.must("POST", "/v1/queue/publish", &body).await;
    let receive = json!({"queue": "charges", "worker": "charger-1"});
    let answer = client.must("POST", "/v1/queue/receive", &receive).await;
    let receipt = &answer["messages"][0]["receipt"];
    let error = json!({"code": code, "detail": detail});
    let nack = json!({"receipt": receipt, "permanent": true, "error": error});
    client.must("POST", "/v1/queue/nack", &nack).await;
}

/// The outage that the page tells of.
async fn outage(client: &mut Client) {
    client
        .must("PUT", "/v1/queues/charges", &json!({"max_attempts": 5}))
        .await;
    for number in 0..120 {
        let message = json!({"subscription": number, "cents": 18_990, "currency": "BRL"});
        let detail = format!("no answer after {} ms", 3_000 + number);
        let key = format!("cob-{number}");
        die(client, message, &key, "gateway_503", &detail).await;
    }
    for number in 120..132 {
        let message = json!({"subscription": number, "cents": 18_990, "currency": "BRL"});
        let key = format!("cob-{number}");
        die(client, message, &key, "card_cancelled", "card is cancelled").await;
    }
    let message = json!({"subscription": 132, "cents": 18_990, "currency": "BLR"});
    die(
        client,
        message,
        "cob-132",
        "bad_currency",
        "no such currency",
    )
    .await;
}

/// Charges what comes, until 121 charges are done.
async fn work(mut client: Client) -> Vec<Value> {
    let mut charged = Vec::new();
    while charged.len() < 121 {
        let receive = json!({"queue": "charges", "max_messages": 10, "wait_seconds": 20});
        let answer = client.must("POST", "/v1/queue/receive", &receive).await;
        for message in answer["messages"].as_array().unwrap() {
            charged.push(message["message"].clone());
            let ack = json!({"receipt": message["receipt"]});
            client.must("POST", "/v1/queue/ack", &ack).await;
        }
    }
    charged
}

fn bash(script: &str, folder: &Path, url: &str, key: &str) -> (bool, String) {
    let programs = binary().parent().unwrap();
    let path = std::env::join_paths([programs, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let done = Command::new("bash")
        .args(["-euo", "pipefail", "-x", "-c", script])
        .env_clear()
        .env("PATH", path)
        .env("HOME", folder)
        .env("QUITA_URL", url)
        .env("QUITA_API_KEY", key)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(text).unwrap())
}

async fn the_page_works_as_it_stands(arguments: &[&str]) {
    let folder = TempDir::new().unwrap();
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let mut arguments = arguments.to_vec();
    arguments.extend(["--admin-key", &key]);
    let server = Process::start(folder.path(), &arguments);
    let mut client = Client::new(server.address, &key);
    outage(&mut client).await;
    let worker = tokio::spawn(work(Client::new(server.address, &key)));
    let script = commands(&std::fs::read_to_string(PAGE).unwrap());
    assert!(script.contains("quita dead redrive"), "{script}");
    let url = format!("http://{}", server.address);
    let (place, secret) = (folder.path().to_owned(), key.clone());
    let ran = tokio::task::spawn_blocking(move || bash(&script, &place, &url, &secret));
    let (succeeded, said) = ran.await.unwrap();
    assert!(succeeded, "{said}");
    assert!(!said.contains(&key), "a key was printed");
    let charged = worker.await.unwrap();
    let fixed = charged.iter().filter(|m| m["subscription"] == json!(132));
    let currencies: Vec<&Value> = fixed.map(|m| &m["currency"]).collect();
    assert_eq!(currencies, [&json!("BRL")]);
    let queue = client.must("GET", "/v1/queues/charges", &Value::Null).await;
    let (counts, totals) = (&queue["counts"], &queue["totals"]);
    assert_eq!(counts["dead"], json!(0), "{queue}");
    assert_eq!(
        (&totals["acked"], &totals["discarded"]),
        (&json!(121), &json!(12)),
        "{queue}"
    );
    let audit = std::fs::read_to_string(folder.path().join("incident-77.jsonl")).unwrap();
    let rows: Vec<Value> = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |action: &str| rows.iter().filter(|row| row["action"] == action).count();
    assert_eq!(
        (of("redrive"), of("discard"), of("edit")),
        (121, 12, 1),
        "{audit}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_night_page_works_on_sqlite() {
    the_page_works_as_it_stands(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_night_page_works_on_postgres() {
    let Some(database) = postgres::database().await else {
        return;
    };
    the_page_works_as_it_stands(&["--database-url", &database.url]).await;
    database.drop().await;
}

//! Bulk decisions while servers die: each message is on one side, none twice, none lost.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(2);

async fn fill(client: &mut Client, queue: &str, count: usize) {
    for first in (0..count).step_by(500) {
        let messages: Vec<Value> = (first..count.min(first + 500))
            .map(|number| json!({"message": {"number": number}, "key": format!("card-{number}")}))
            .collect();
        let body = json!({"queue": queue, "messages": messages});
        client.must("POST", "/v1/queue/publish-batch", &body).await;
    }
    nack_all(client, queue).await;
}

/// Receives everything that is ready and nacks it for good; answers how many.
async fn nack_all(client: &mut Client, queue: &str) -> usize {
    let mut nacked = 0;
    loop {
        let body = json!({"queue": queue, "max_messages": 100, "visibility_timeout_seconds": 600});
        let answer = client.must("POST", "/v1/queue/receive", &body).await;
        let settlements: Vec<Value> = answer["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| {
                let error = json!({"code": "503", "detail": "no answer"});
                json!({"receipt": message["receipt"], "action": "nack", "permanent": true, "error": error})
            })
            .collect();
        if settlements.is_empty() {
            return nacked;
        }
        nacked += settlements.len();
        let body = json!({"settlements": settlements});
        let settled = client.must("POST", "/v1/queue/settle", &body).await;
        assert_eq!(settled["failed"], json!(0), "{settled}");
    }
}

async fn select(client: &mut Client, queue: &str) -> Value {
    let select = json!({"queue": queue, "filter": {"error_code": "503"}});
    client
        .must("POST", "/v1/dead-letters/selections", &select)
        .await
}

async fn start(client: &mut Client, selection: &Value, rate: Value) -> String {
    let plan = json!({
        "selection_id": selection["selection_id"], "expected_count": selection["count"],
        "rate_per_second": rate, "canary": null, "abort_if": null,
    });
    let redrive = client.must("POST", "/v1/redrives", &plan).await;
    redrive["redrive_id"].as_str().unwrap().to_owned()
}

async fn redrive(client: &mut Client, id: &str) -> Value {
    client
        .must("GET", &format!("/v1/redrives/{id}"), &Value::Null)
        .await
}

/// Waits until a redrive says `wanted`.
async fn until(client: &mut Client, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let now = redrive(client, id).await;
        if wanted(&now) {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "{now}");
    }
}

fn moved(redrive: &Value) -> u64 {
    redrive["moved"].as_u64().unwrap()
}

/// Every message of the queue by its number, with how often it was redriven.
async fn ready(client: &mut Client, queue: &str) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    loop {
        let body = json!({"queue": queue, "max_messages": 100, "visibility_timeout_seconds": 600});
        let answer = client.must("POST", "/v1/queue/receive", &body).await;
        let messages = answer["messages"].as_array().unwrap();
        if messages.is_empty() {
            return found;
        }
        for message in messages {
            let number = message["message"]["number"].as_u64().unwrap();
            let redrives = message["redrive_count"].as_u64().unwrap();
            assert_eq!(found.insert(number, redrives), None, "twice: {message}");
            assert_eq!(message["attempt"], json!(1));
        }
    }
}

async fn each_message_is_on_one_side(arguments: &[&str], kills: u32) {
    const MESSAGES: usize = 2_000;
    let folder = TempDir::new().unwrap();
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let mut arguments = arguments.to_vec();
    arguments.extend(["--admin-key", &key]);
    let mut server = Process::start(folder.path(), &arguments);
    let mut client = Client::new(server.address, &key);
    fill(&mut client, "charges", MESSAGES).await;
    // Slow enough to be killed so often also where a start takes a second.
    let rate = json!(MESSAGES as f64 / 100.0);
    let selection = select(&mut client, "charges").await;
    let id = start(&mut client, &selection, rate).await;
    let mut killed = 0;
    for kill in 0..kills {
        let before = moved(&redrive(&mut client, &id).await);
        let state = until(&mut client, &id, |r| {
            moved(r) > before || r["state"] != json!("running")
        })
        .await;
        if state["state"] == json!("done") {
            break;
        }
        // At another moment of the step each time.
        let pause = u64::from(kill * 7_919 % 97);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        server.signal("KILL");
        server.wait();
        killed += 1;
        server = Process::start(folder.path(), &arguments);
        client = Client::new(server.address, &key);
        let queue = client.must("GET", "/v1/queues/charges", &Value::Null).await;
        let (counts, moved) = (&queue["counts"], &queue["totals"]["redriven"]);
        let (ready, dead) = (
            counts["ready"].as_u64().unwrap(),
            counts["dead"].as_u64().unwrap(),
        );
        assert_eq!(ready + dead, MESSAGES as u64, "{queue}");
        assert_eq!(&json!(ready), moved, "{queue}");
    }
    let faster = json!({"rate_per_second": null});
    let path = format!("/v1/redrives/{id}");
    let (status, answer) = client.call("PATCH", &path, &faster).await.unwrap();
    assert!(
        status == 200 || answer["code"] == json!("redrive_finished"),
        "{answer}"
    );
    let done = until(&mut client, &id, |r| r["state"] == json!("done")).await;
    assert_eq!(
        (moved(&done), &done["skipped"]["total"]),
        (MESSAGES as u64, &json!(0))
    );
    let ready = ready(&mut client, "charges").await;
    assert_eq!(ready.len(), MESSAGES);
    assert!(
        ready.values().all(|redrives| *redrives == 1),
        "redriven twice"
    );
    println!("{killed} kills in a redrive of {MESSAGES}: each moved once");
    assert_eq!(
        killed, kills,
        "the redrive was over too soon to be killed so often"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_survives_fifty_kills_on_sqlite() {
    each_message_is_on_one_side(&[], 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_survives_fifty_kills_on_postgres() {
    let Some(database) = postgres::database().await else {
        return;
    };
    each_message_is_on_one_side(&["--database-url", &database.url], 50).await;
    database.drop().await;
}

/// Redrives 5,000 while another 200 a second die, on one or two servers: nothing is lost, and those that died meanwhile stay.
async fn more_die_meanwhile(servers: &[&Process], key: &str) {
    const MESSAGES: usize = 5_000;
    let mut client = Client::new(servers[0].address, key);
    fill(&mut client, "charges", MESSAGES).await;
    // Those that die meanwhile must not be received in place of the redriven ones: they come first.
    let selection = select(&mut client, "charges").await;
    let id = start(&mut client, &selection, json!(1_000)).await;
    let second = start(&mut client, &selection, json!(1_000)).await;
    let mut killer = Client::new(servers[servers.len() - 1].address, key);
    let (mut published, began) = (0, Instant::now());
    let done = loop {
        let due = (began.elapsed().as_secs_f64() * 200.0) as usize;
        while published < due {
            let body = json!({"queue": "charges", "message": {"number": MESSAGES + published}, "priority": 9});
            let answer = killer.must("POST", "/v1/queue/publish", &body).await;
            let path = format!(
                "/v1/messages/{}/dead-letter",
                answer["message_id"].as_str().unwrap()
            );
            killer
                .must("POST", &path, &json!({"reason": "poison"}))
                .await;
            published += 1;
        }
        let (a, b) = (
            redrive(&mut client, &id).await,
            redrive(&mut client, &second).await,
        );
        if a["state"] == json!("done") && b["state"] == json!("done") {
            break (a, b);
        }
        assert!(began.elapsed() < PATIENCE, "{a} {b}");
    };
    let skipped = |r: &Value| r["skipped"]["changed"].as_u64().unwrap();
    let sum = moved(&done.0) + moved(&done.1);
    assert_eq!(sum, MESSAGES as u64, "{} {}", done.0, done.1);
    assert_eq!(moved(&done.0) + skipped(&done.0), MESSAGES as u64);
    assert_eq!(moved(&done.1) + skipped(&done.1), MESSAGES as u64);
    let queue = client.must("GET", "/v1/queues/charges", &Value::Null).await;
    assert_eq!(queue["counts"]["ready"], json!(MESSAGES), "{queue}");
    assert_eq!(queue["counts"]["dead"], json!(published), "{queue}");
    assert!(published > 0);
    let ready = ready(&mut client, "charges").await;
    assert!(
        ready
            .into_iter()
            .eq((0..MESSAGES as u64).map(|number| (number, 1)))
    );
    println!("{published} died while {MESSAGES} were redriven twice over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_takes_only_its_own_while_more_die_on_sqlite() {
    let folder = TempDir::new().unwrap();
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let server = Process::start(folder.path(), &["--admin-key", &key]);
    more_die_meanwhile(&[&server], &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redrive_takes_only_its_own_while_more_die_on_two_replicas() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let arguments = ["--database-url", &database.url, "--admin-key", &key];
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let servers = (
        Process::start(one.path(), &arguments),
        Process::start(two.path(), &arguments),
    );
    more_die_meanwhile(&[&servers.0, &servers.1], &key).await;
    drop(servers);
    database.drop().await;
}

//! Servers whose clocks are wrong.
//!
//! A small library, compiled here, stands before the C library's clock and shifts what a server takes for the time of day.

use quita_api::auth::ApiKey;
use quita_tests::client::Client;
use quita_tests::postgres;
use quita_tests::server::Process;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(id, t);
    const char *by = getenv("SHIFT_SECONDS");
    if (id == CLOCK_REALTIME && by) t->tv_sec += atol(by);
    return done;
}
"#;

const RECEIVE: &str = "/v1/queue/receive";
const PUBLISH: &str = "/v1/queue/publish";
/// Longer than anything here may take, and much shorter than any clock is wrong.
const SOON: Duration = Duration::from_secs(8);

fn library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("shift.c"), folder.join("shift.so"));
    std::fs::write(&source, SHIFT).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]);
    let built = cc.arg(&library).arg(&source).arg("-ldl").status().unwrap();
    assert!(built.success());
    library
}

fn serve(folder: &Path, arguments: &[&str], shift: &str) -> Process {
    let library = library(folder);
    let variables = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("SHIFT_SECONDS", shift),
    ];
    Process::start_where(folder, arguments, &variables)
}

async fn receive(client: &mut Client, queue: &str, lease: u32, wait: u32) -> Value {
    let body = json!({"queue": queue, "visibility_timeout_seconds": lease, "wait_seconds": wait});
    client.must("POST", RECEIVE, &body).await
}

/// A lease and a delay of a second each, taken by one client, end for the other after a second.
async fn seconds_are_seconds(one: &mut Client, other: &mut Client, queue: &str) {
    one.must("POST", PUBLISH, &json!({"queue": queue, "message": 1}))
        .await;
    let began = Instant::now();
    let first = receive(one, queue, 1, 0).await;
    assert_eq!(first["messages"][0]["attempt"], 1);
    let second = receive(other, queue, 600, 20).await;
    assert_eq!(second["messages"][0]["attempt"], 2, "{second}");
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(990) && took < SOON,
        "{took:?}"
    );
    let receipt = &second["messages"][0]["receipt"];
    let acked = one
        .must("POST", "/v1/queue/ack", &json!({"receipt": receipt}))
        .await;
    assert_eq!(
        (&acked["result"], &acked["late"]),
        (&json!("acked"), &json!(false))
    );
    let began = Instant::now();
    let delayed =
        json!({"queue": queue, "message": 2, "delay_seconds": 1, "client_request_id": "d"});
    one.must("POST", PUBLISH, &delayed).await;
    let got = receive(other, queue, 600, 20).await;
    let took = began.elapsed();
    assert_eq!(got["messages"][0]["message"], 2);
    assert!(
        took >= Duration::from_millis(990) && took < SOON,
        "{took:?}"
    );
    let again = other.must("POST", PUBLISH, &delayed).await;
    assert_eq!(again["deduplicated"], true);
}

/// B078: replicas whose clocks are two hours apart agree on every lease, delay and time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_wrong_clocks_change_nothing() {
    let Some(database) = postgres::database().await else {
        return;
    };
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let arguments = ["--database-url", &database.url, "--admin-key", &key];
    let (fast, slow) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let servers = (
        serve(fast.path(), &arguments, "3600"),
        serve(slow.path(), &arguments, "-3600"),
    );
    let mut fast = Client::new(servers.0.address, &key);
    let mut slow = Client::new(servers.1.address, &key);
    seconds_are_seconds(&mut fast, &mut slow, "a").await;
    seconds_are_seconds(&mut slow, &mut fast, "b").await;
    // Nobody gets what another has, however fast or slow.
    fast.must("POST", PUBLISH, &json!({"queue": "c", "message": 1}))
        .await;
    let held = receive(&mut slow, "c", 600, 0).await;
    for client in [&mut fast, &mut slow] {
        assert_eq!(receive(client, "c", 600, 0).await["messages"], json!([]));
    }
    // One clock: what is told in turn by the two is in order.
    let mut times = vec![held["server_time"].clone()];
    for number in 0..4 {
        let client = if number % 2 == 0 {
            &mut fast
        } else {
            &mut slow
        };
        let published = client
            .must("POST", PUBLISH, &json!({"queue": "d", "message": 1}))
            .await;
        times.push(published["published_at"].clone());
    }
    assert!(
        times.is_sorted_by(|a, b| a.as_str() <= b.as_str()),
        "{times:?}"
    );
    drop(servers);
    database.drop().await;
}

/// B070, B078, B114: a file that was written while the clock was an hour ahead is served after the clock was set right: what
/// was held is held, and seconds are seconds from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_stops_no_queue() {
    let key = ApiKey::generate().unwrap().reveal().to_owned();
    let arguments = ["--admin-key", &key];
    let folder = TempDir::new().unwrap();
    let mut server = serve(folder.path(), &arguments, "3600");
    let mut client = Client::new(server.address, &key);
    client
        .must("POST", PUBLISH, &json!({"queue": "c", "message": 1}))
        .await;
    let held = receive(&mut client, "c", 600, 0).await;
    server.signal("KILL");
    server.wait();
    server = serve(folder.path(), &arguments, "0");
    let mut client = Client::new(server.address, &key);
    let now = receive(&mut client, "c", 600, 0).await;
    assert_eq!(now["messages"], json!([]));
    assert!(now["server_time"].as_str() >= held["server_time"].as_str());
    let mut other = Client::new(server.address, &key);
    seconds_are_seconds(&mut client, &mut other, "a").await;
    let receipt = &held["messages"][0]["receipt"];
    let acked = client
        .must("POST", "/v1/queue/ack", &json!({"receipt": receipt}))
        .await;
    assert_eq!(
        (&acked["result"], &acked["late"]),
        (&json!("acked"), &json!(false))
    );
}

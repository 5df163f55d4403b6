//! A client that speaks JSON, and a server on each kind of store.

use crate::server::TestServer;
use crate::store::{self, Store};
use crate::wire::Answer;
use quita_api::config::Config;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Longest page that the client asks for.
const PAGE: usize = 500;

/// How long a fact may take to come true, and how often it is looked at meanwhile.
const PATIENCE: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(10);

/// A server and short words for what a test does with it.
pub struct Client {
    /// The server, with a key that may everything.
    pub server: TestServer,
}

/// One test case on a server of its own with an empty store and settings changed by `change`. Afterwards the books of every
/// queue balance.
pub fn on(store: Store, change: fn(&mut Config), case: &impl AsyncFn(&Client)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let Some(opened) = store::open(store).await else {
            return;
        };
        let server = TestServer::start_with(opened.backend.clone(), change).await;
        let client = Client { server };
        case(&client).await;
        client.audit().await;
        client.server.stop().await;
        opened.close().await;
    });
}

/// Leaves the settings as they are.
pub fn as_it_is(_: &mut Config) {}

/// Makes each named case a test over HTTP on every store, with settings changed by `$change` where one is named.
#[macro_export]
macro_rules! served_on_every_store {
    ($($case:ident),+ $(,)?) => {
        $crate::served_on_every_store! { with $crate::served::as_it_is: $($case),+ }
    };
    (with $change:path: $($case:ident),+ $(,)?) => { $(
        mod $case {
            use $crate::store::Store;

            #[test]
            fn memory() {
                $crate::served::on(Store::Memory, $change, &super::$case);
            }

            #[test]
            fn sqlite() {
                $crate::served::on(Store::Sqlite, $change, &super::$case);
            }

            #[test]
            fn postgres() {
                $crate::served::on(Store::Postgres, $change, &super::$case);
            }
        }
    )+ };
}
impl Client {
    /// Any request on a connection of its own, with credentials. `headers` are whole lines.
    pub async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let key = &self.server.key;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n{headers}"
        );
        if !body.is_empty() || method != "GET" {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        let mut wire = self.server.wire().await;
        // A server that refuses the head may close before it has taken the body.
        let _ = wire.try_send([head.as_bytes(), body].concat()).await;
        wire.answer().await
    }

    /// A request with a JSON text.
    pub async fn raw(&self, method: &str, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send(
            method,
            path,
            "content-type: application/json\r\n",
            body.as_ref(),
        )
        .await
    }

    /// A request with a JSON value; the status and what was answered.
    pub async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let answer = match body {
            Value::Null => self.send(method, path, "", b"").await,
            body => self.raw(method, path, body.to_string()).await,
        };
        checked(&answer)
    }

    /// A POST.
    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, body).await
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, Value::Null).await
    }

    /// A POST that must succeed.
    pub async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, json) = self.post(path, body).await;
        assert!((200..300).contains(&status), "{path}: {status} {json}");
        json
    }

    /// A request that must be refused with this status and code.
    pub async fn refused(
        &self,
        method: &str,
        path: &str,
        body: Value,
        status: u16,
        code: &str,
    ) -> Value {
        let (got, json) = self.call(method, path, body).await;
        assert_eq!(
            (got, json["code"].as_str()),
            (status, Some(code)),
            "{path}: {json}"
        );
        json
    }

    /// Creates a queue with this policy.
    pub async fn queue(&self, name: &str, policy: Value) {
        let (status, json) = self
            .call("PUT", &format!("/v1/queues/{name}"), policy)
            .await;
        assert!(status == 201 || status == 200, "{json}");
    }

    /// Publishes a message and answers its id.
    pub async fn publish(&self, queue: &str, message: Value) -> String {
        let json = self
            .ok(
                "/v1/queue/publish",
                json!({"queue": queue, "message": message}),
            )
            .await;
        json["message_id"].as_str().unwrap().to_owned()
    }

    /// Receives one message, which must be there.
    pub async fn receive(&self, queue: &str) -> Value {
        let mut json = self
            .ok(
                "/v1/queue/receive",
                json!({"queue": queue, "wait_seconds": 2}),
            )
            .await;
        let message = json["messages"][0].take();
        assert!(message.is_object(), "nothing in {queue}");
        message
    }

    /// The receipt of one message, which must be there.
    pub async fn receipt(&self, queue: &str) -> String {
        let message = self.receive(queue).await;
        message["receipt"].as_str().unwrap().to_owned()
    }

    /// Publishes a message and buries it with this error code and text; answers its id.
    pub async fn bury(&self, queue: &str, message: Value, code: &str, text: &str) -> String {
        let id = self.publish(queue, message).await;
        self.nack_for_good(queue, code, text).await;
        id
    }

    /// Receives one message and says that repeating it is useless.
    pub async fn nack_for_good(&self, queue: &str, code: &str, text: &str) {
        let receipt = self.receipt(queue).await;
        let error = json!({"code": code, "detail": text});
        let nack = json!({"receipt": receipt, "permanent": true, "error": error});
        self.ok("/v1/queue/nack", nack).await;
    }

    /// What `path` answers as soon as `fact` holds of it, which must be soon.
    pub async fn until(&self, path: &str, fact: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let (status, json) = self.get(path).await;
            assert_eq!(status, 200, "{json}");
            if fact(&json) {
                return json;
            }
            assert!(began.elapsed() < PATIENCE, "not so in time: {json}");
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// The ids of the messages of a page.
    pub fn ids(page: &Value) -> Vec<String> {
        let messages = page["messages"].as_array().unwrap().iter();
        let ids = messages.map(|m| m["message_id"].as_str().unwrap().to_owned());
        ids.collect()
    }

    /// A queue's counts as `delayed, ready, leased, dead`.
    pub async fn counts(&self, queue: &str) -> [i64; 4] {
        let (_, json) = self.get(&format!("/v1/queues/{queue}")).await;
        ["delayed", "ready", "leased", "dead"].map(|name| json["counts"][name].as_i64().unwrap())
    }

    /// Every queue as it is now, without the times that pass by themselves.
    pub async fn snapshot(&self) -> Value {
        let (status, mut json) = self.get(&format!("/v1/queues?page_size={PAGE}")).await;
        assert_eq!(status, 200, "{json}");
        for queue in json["queues"].as_array_mut().unwrap() {
            let queue = queue.as_object_mut().unwrap();
            for name in [
                "server_time",
                "oldest_ready_age_seconds",
                "oldest_dead_age_seconds",
            ] {
                queue.remove(name);
            }
        }
        json["queues"].take()
    }

    /// The books of every queue balance.
    pub async fn audit(&self) {
        for queue in self.snapshot().await.as_array().unwrap() {
            let sum = |group: &str, names: &[&str]| -> i64 {
                names
                    .iter()
                    .map(|name| queue[group][name].as_i64().unwrap())
                    .sum()
            };
            let came = sum("totals", &["accepted", "reopened"]);
            let there = sum("counts", &["delayed", "ready", "leased", "dead"]);
            let went = sum(
                "totals",
                &["acked", "discarded", "purged", "dead_letter_expired"],
            );
            assert_eq!(came, there + went, "{queue}");
        }
    }
}

/// The status and the body of an answer, after what holds for every answer was checked.
pub fn checked(answer: &Answer) -> (u16, Value) {
    assert!(answer.header("request-id").is_some(), "{}", answer.head);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("cache-control").is_some(), "{}", answer.head);
    assert!(answer.header("content-security-policy").is_some());
    if answer.body.is_empty() {
        return (answer.status, Value::Null);
    }
    let json: Value = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|error| panic!("{error}: {}", answer.text()));
    if answer.status >= 400 {
        problem(answer, &json);
    } else {
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    (answer.status, json)
}

/// A problem has its one shape.
fn problem(answer: &Answer, json: &Value) {
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(json["status"], answer.status, "{json}");
    let code = json["code"].as_str().unwrap();
    assert_eq!(json["type"], format!("/problems/{code}"));
    for member in ["title", "detail", "hint"] {
        assert!(
            json[member].as_str().is_some_and(|text| !text.is_empty()),
            "{json}"
        );
    }
    assert!(json["retryable"].is_boolean(), "{json}");
    let effect = json["effect"].as_str().unwrap();
    assert!(
        ["none", "unknown", "completion_remembered"].contains(&effect),
        "{json}"
    );
    assert_eq!(json["request_id"].as_str(), answer.header("request-id"));
    for error in json["errors"].as_array().unwrap() {
        for member in ["pointer", "code", "detail"] {
            assert!(error[member].is_string(), "{json}");
        }
    }
    let retry_after = answer.header("retry-after").is_some();
    assert_eq!(
        retry_after,
        matches!(answer.status, 429 | 503 | 507),
        "{json}"
    );
    let challenged = ["insufficient_scope", "too_many_failed_logins"].contains(&code);
    assert_eq!(
        answer.header("www-authenticate").is_some(),
        answer.status == 401 || challenged
    );
}

//! A server that answers what it was told to, and keeps what it was asked.

use crate::run::{Ran, quita};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// An answer.
#[derive(Clone)]
pub(crate) enum Say {
    /// A status and JSON.
    Json(u16, Value),
    /// A 200 and this text.
    Text(String),
    /// A 200 and this text, of which the last byte never comes.
    BreakOff(String),
}

/// What was asked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Method and path, as in `GET /v1/queues`.
    pub(crate) what: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    /// The body as it came.
    pub(crate) text: String,
}

impl Seen {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

#[derive(Default)]
struct Script {
    answers: Mutex<HashMap<String, VecDeque<Say>>>,
    seen: Mutex<Vec<Seen>>,
}

/// The server.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    script: Arc<Script>,
    _runtime: Runtime,
}

impl Fake {
    /// One that answers each request, such as `GET /v1/queues`, with its answers in turn, and with the last one from then on.
    /// Anything else gets a 404.
    pub(crate) fn new(answers: &[(&str, Say)]) -> Self {
        let script = Arc::new(Script::default());
        for (what, say) in answers {
            let mut known = script.answers.lock();
            known
                .entry((*what).to_owned())
                .or_default()
                .push_back(say.clone());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(script.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            script,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the binary against it, without a terminal.
    pub(crate) fn quita(&self, line: &[&str]) -> Ran {
        quita(&self.url(), "the-key", line, "")
    }

    /// What was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.seen.lock().clone()
    }

    /// What was asked so far, as method and path.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }

    /// The last request like this.
    pub(crate) fn last(&self, what: &str) -> Seen {
        let mut seen = self.seen();
        seen.retain(|seen| seen.what == what);
        seen.pop().unwrap_or_else(|| panic!("no {what}"))
    }
}

async fn answer(
    State(script): State<Arc<Script>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let what = format!("{method} {}", uri.path());
    script.seen.lock().push(Seen {
        what: what.clone(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers,
        text: String::from_utf8(body.to_vec()).unwrap(),
    });
    let say = {
        let mut answers = script.answers.lock();
        match answers.get_mut(&what) {
            Some(left) if left.len() > 1 => left.pop_front(),
            Some(left) => left.front().cloned(),
            None => None,
        }
    };
    let (status, text) = match say.unwrap_or_else(|| problem(404, "not_found")) {
        Say::Json(status, json) => (status, Body::from(json.to_string())),
        Say::Text(text) => (200, Body::from(text)),
        Say::BreakOff(text) => {
            // The part goes out before the end does.
            let end = stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(std::io::Error::other("broken"))
            });
            let part = stream::once(async { Ok(text) }).chain(end);
            (200, Body::from_stream(part))
        }
    };
    let mut response = Response::new(text);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A problem document.
pub(crate) fn problem(status: u16, code: &str) -> Say {
    Say::Json(
        status,
        json!({"type": format!("/problems/{code}"), "title": format!("Title of {code}"), "status": status,
            "detail": "The detail\u{1b}[31m.", "code": code, "retryable": false, "effect": "none", "hint": "The hint.",
            "request_id": "req-1", "errors": []}),
    )
}

/// A 200.
pub(crate) fn ok(json: Value) -> Say {
    Say::Json(200, json)
}

//! HTTP as a careful caller does it: an answer that did not come is asked for again.

use super::Outcome;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client as Pool, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longer than any long poll of the demo.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// A server that was killed is back long before.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// `Null` when the body is not JSON.
    pub(super) body: Value,
}

impl Reply {
    /// The body of a 2xx; anything else is an error that quotes it.
    pub(super) fn success(self, what: &str) -> Outcome<Value> {
        if self.status.is_success() {
            Ok(self.body)
        } else {
            Err(format!("{what}: HTTP {}: {}", self.status.as_u16(), self.body).into())
        }
    }
}

/// Calls one host, with one set of headers.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    base: String,
    headers: HeaderMap,
}

impl Client {
    /// `base` is scheme, host and port; `key` becomes the bearer.
    pub(super) fn new(base: &str, key: Option<&str>) -> Outcome<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "application/json".parse()?);
        if let Some(key) = key {
            headers.insert(header::AUTHORIZATION, format!("Bearer {key}").parse()?);
        }
        Ok(Self {
            pool: Pool::builder(TokioExecutor::new()).build(connector),
            base: base.to_owned(),
            headers,
        })
    }

    /// The same client with one more header.
    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Outcome<Self> {
        self.headers.insert(name, value.parse()?);
        Ok(self)
    }

    /// One try. `Err`: nobody can say what the other side did.
    pub(super) async fn once(&self, method: Method, path: &str, body: &Value) -> Outcome<Reply> {
        let mut request = Request::new(Full::new(match body {
            Value::Null => Bytes::new(),
            body => serde_json::to_vec(body)?.into(),
        }));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.base).parse()?;
        request.headers_mut().clone_from(&self.headers);
        let exchange = async {
            let response = self.pool.request(request).await?;
            let status = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            Outcome::Ok(Reply {
                status,
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            })
        };
        tokio::time::timeout(ANSWER_TIMEOUT, exchange).await?
    }

    /// Tries until an answer comes that is not "later". Only for requests that may be repeated: all of quita's that
    /// carry a receipt or a `client_request_id`.
    pub(super) async fn call(&self, method: Method, path: &str, body: &Value) -> Outcome<Reply> {
        let start = Instant::now();
        loop {
            let reply = self.once(method.clone(), path, body).await;
            let later = match &reply {
                Ok(reply) => matches!(reply.status.as_u16(), 429 | 503),
                Err(_) => true,
            };
            if !later || start.elapsed() > PATIENCE {
                return reply;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// [`Client::call`] with `POST`.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Outcome<Reply> {
        self.call(Method::POST, path, body).await
    }

    /// [`Client::call`] with `GET`; the body of a success.
    pub(super) async fn get(&self, path: &str) -> Outcome<Value> {
        self.call(Method::GET, path, &Value::Null)
            .await?
            .success(path)
    }
}

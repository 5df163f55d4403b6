//! A client that remembers every secret that it was given, and every problem.

use super::MARK;
use quita_tests::wire::Wire;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// No receipt and no page token is shorter.
const MIN_SECRET: usize = 12;

/// An operation of the document.
pub(super) struct Operation {
    pub(super) method: String,
    /// With its parameters in braces.
    pub(super) path: String,
    /// Names that its query knows.
    pub(super) query: Vec<String>,
    /// A body that it takes.
    pub(super) body: Option<Value>,
}

pub(super) struct Spy {
    address: SocketAddr,
    pub(super) key: String,
    pub(super) operations: Vec<Operation>,
    /// What was given out, and may not be seen again.
    pub(super) secrets: BTreeSet<String>,
    /// Every problem, by the request that got it.
    pub(super) problems: Vec<(String, String)>,
    /// Values for the parameters of paths.
    pub(super) names: BTreeMap<String, String>,
    pub(super) requests: usize,
    asked: BTreeSet<(String, String)>,
}

impl Spy {
    pub(super) fn new(address: SocketAddr, key: &str, more: &[&str]) -> Self {
        let mut secrets: BTreeSet<String> = more.iter().map(|text| (*text).to_owned()).collect();
        secrets.insert(key[17..].to_owned());
        Self {
            address,
            key: key.to_owned(),
            operations: Vec::new(),
            secrets,
            problems: Vec::new(),
            names: BTreeMap::new(),
            requests: 0,
            asked: BTreeSet::new(),
        }
    }

    /// Learns which operations there are.
    pub(super) async fn read_document(&mut self) {
        let document = self.ok("GET", "/openapi.json", Value::Null).await;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let parameters = operation["parameters"].as_array();
                let query = parameters
                    .into_iter()
                    .flatten()
                    .filter(|parameter| parameter["in"] == "query")
                    .map(|parameter| parameter["name"].as_str().unwrap().to_owned());
                let body = &operation["requestBody"]["content"]["application/json"]["example"];
                self.operations.push(Operation {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    query: query.collect(),
                    body: body.is_object().then(|| body.clone()),
                });
            }
        }
    }

    /// Sends bytes as they are; `None` when they get no answer. `what` names the request.
    pub(super) async fn raw(&mut self, what: &str, bytes: &[u8]) -> Option<(u16, Value)> {
        self.requests += 1;
        let mut wire = Wire::to(self.address).await;
        // A server that refuses the head may close before it has taken the body.
        let _ = wire.try_send(bytes).await;
        let answer = wire.next().await?;
        let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        // Figures are for more eyes than messages are.
        let figures = answer
            .header("content-type")
            .is_some_and(|kind| kind.contains("openmetrics") || kind.starts_with("text/plain"));
        if answer.status >= 400 || figures {
            let said = format!("{}{}", answer.head, answer.text());
            self.problems.push((what.to_owned(), said));
        }
        self.look(what, &json);
        Some((answer.status, json))
    }

    /// A request; `headers` are whole lines.
    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, Value) {
        let length = body.len();
        let length = if length == 0 && method == "GET" {
            String::new()
        } else {
            format!("content-length: {length}\r\n")
        };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}{length}\r\n");
        let what = format!(
            "{method} {path} {headers} {}",
            String::from_utf8_lossy(&body[..body.len().min(200)])
        );
        let answer = self.raw(&what, &[head.as_bytes(), body].concat()).await;
        answer.unwrap_or_else(|| panic!("no answer to {what}"))
    }

    /// A request with a key and JSON.
    pub(super) async fn call(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let mut headers = format!("authorization: Bearer {}\r\n", self.key);
        if !body.is_empty() {
            headers += "content-type: application/json\r\n";
        }
        self.send(method, path, &headers, body).await
    }

    /// A call that must succeed.
    pub(super) async fn ok(&mut self, method: &str, path: &str, body: Value) -> Value {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, json) = self.call(method, path, text.as_bytes()).await;
        assert!(
            (200..400).contains(&status),
            "{method} {path}: {status} {json}"
        );
        let plain = path.split('?').next().unwrap_or(path).to_owned();
        self.asked.insert((method.to_owned(), plain));
        json
    }

    /// Remembers the secrets in an answer, and the problems in one that is a success.
    fn look(&mut self, what: &str, json: &Value) {
        match json {
            Value::Object(members) => {
                if members.contains_key("effect") && members.contains_key("hint") {
                    self.problems.push((what.to_owned(), json.to_string()));
                }
                for (name, value) in members {
                    match (&**name, value.as_str()) {
                        // The document has examples, which are shorter.
                        ("receipt" | "next_page_token" | "previous_page_token", Some(text))
                            if text.len() >= MIN_SECRET =>
                        {
                            self.secrets.insert(text.to_owned());
                        }
                        ("key", Some(text)) if text.starts_with("qta_") && text.len() == 66 => {
                            self.secrets.insert(text[17..].to_owned());
                        }
                        _ => self.look(what, value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.look(what, item)),
            _ => {}
        }
    }

    /// Every operation of the document has succeeded at least once.
    pub(super) fn assert_all_were_asked(&self) {
        let fits = |template: &str, path: &str| {
            let (template, path) = (template.split('/'), path.split('/'));
            template.clone().count() == path.clone().count()
                && template
                    .zip(path)
                    .all(|(t, p)| t.starts_with('{') || t == p)
        };
        assert!(self.operations.len() >= 47);
        for operation in &self.operations {
            let asked = self
                .asked
                .iter()
                .any(|(method, path)| *method == operation.method && fits(&operation.path, path));
            assert!(asked, "{} {}", operation.method, operation.path);
        }
    }

    pub(super) fn assert_none_in(&self, what: &str, text: &str) {
        let line = |secret: &str| text.lines().find(|line| line.contains(secret));
        if let Some(line) = line(MARK) {
            panic!("{what}: {line}");
        }
        assert!(self.secrets.len() > 10, "{} secrets", self.secrets.len());
        for secret in &self.secrets {
            if let Some(line) = line(secret) {
                panic!("{what} has {secret}: {line}");
            }
        }
    }

    pub(super) fn assert_none_in_problems(&self) {
        assert!(self.problems.len() > 500, "{}", self.problems.len());
        for (request, problem) in &self.problems {
            self.assert_none_in(request, problem);
        }
    }
}

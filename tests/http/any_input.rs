//! Every operation on any input: bytes that are nothing, and requests of known names with any values. None panics, which
//! would be a 500; each is a success or a problem of the client's.

use crate::client::{Client, checked, on_every_store};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Requests of each kind to each operation.
const EACH: usize = 20;

/// JSON texts, not all of which a parser for values would make.
fn any_value() -> impl Strategy<Value = String> {
    let edge = prop::sample::select(vec![
        "null",
        "true",
        "0",
        "-0",
        "1",
        "-1",
        "1.5",
        "1e400",
        "-1e400",
        "1e-400",
        "0.0005",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "\"\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"2026-11-30T15:04:05Z\"",
        "\"9999-12-31T23:59:59.999999999Z\"",
        "\"-9999-01-01T00:00:00Z\"",
        "\"msg_0000000000001\"",
        "\"grp_ffffffffffffffff\"",
        "\"newest\"",
        "\"redrive\"",
        "\"q\"",
        "\"admin\"",
        "[]",
        "{}",
        "[[[]]]",
    ])
    .prop_map(str::to_owned);
    let text = any::<String>().prop_map(|text| Value::from(text).to_string());
    let number = any::<f64>().prop_map(|number| number.to_string());
    let leaf = prop_oneof![4 => edge, 2 => text, 1 => number];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(("[a-z_]{1,8}", inner), 0..4).prop_map(|all| {
                let members = all
                    .iter()
                    .map(|(name, value)| format!("\"{name}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

/// A good body with some members that are any value, and at times a name of another operation, or of none.
fn any_object(example: &Value, names: Vec<String>) -> impl Strategy<Value = String> + use<> {
    let good: Vec<(String, String)> = example
        .as_object()
        .into_iter()
        .flatten()
        // Nobody waits here.
        .filter(|(name, _)| *name != "wait_seconds")
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    let own: Vec<String> = good.iter().map(|(name, _)| name.clone()).collect();
    let own = if own.is_empty() { names.clone() } else { own };
    let name = prop_oneof![
        6 => prop::sample::select(own),
        3 => prop::sample::select(names),
        1 => "[a-z_]{1,8}",
    ];
    prop::collection::vec((name, any_value()), 0..3).prop_map(move |changes| {
        let mut members = good.clone();
        for (name, value) in changes {
            members.retain(|(other, _)| *other != name);
            members.push((name, value));
        }
        let members = members
            .iter()
            .map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

/// Bytes as a path or a query carries them.
fn any_escaped() -> impl Strategy<Value = String> {
    let bytes = prop::collection::vec(any::<u8>(), 0..24).prop_map(|bytes| {
        let escape = |all: String, byte: &u8| all + &format!("%{byte:02x}");
        bytes.iter().fold(String::new(), escape)
    });
    let like = "(msg|sel|rdv|grp|key)_[0-9a-z]{10,14}|[A-Za-z0-9_.-]{1,20}|-?[0-9]{1,20}";
    prop_oneof![bytes, like]
}

struct Operation {
    method: String,
    path: String,
    query: Vec<String>,
    /// A body that it takes.
    example: Value,
}

/// The operations of the document, and all names of fields in it.
fn read(document: &Value) -> (Vec<Operation>, Vec<String>) {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                query: query
                    .map(|p| p["name"].as_str().unwrap().to_owned())
                    .collect(),
                example: operation["requestBody"]["content"]["application/json"]["example"].clone(),
            });
        }
    }
    let mut names = BTreeSet::new();
    for schema in document["components"]["schemas"]
        .as_object()
        .unwrap()
        .values()
    {
        let properties = schema["properties"].as_object().into_iter().flatten();
        names.extend(properties.map(|(name, _)| name.clone()));
    }
    (operations, names.into_iter().collect())
}

struct Dice {
    runner: TestRunner,
    names: Vec<String>,
}

impl Dice {
    fn roll<T>(&mut self, strategy: &impl Strategy<Value = T>) -> T {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    /// The path with each parameter one that is there or any text, and with some query.
    fn target(&mut self, operation: &Operation) -> String {
        let mut path = Vec::new();
        for part in operation.path.split('/') {
            let there = part == "{queue}" && self.roll(&any::<bool>());
            path.push(match part.starts_with('{') {
                true if there => "q".to_owned(),
                true => self.roll(&any_escaped()),
                false => part.to_owned(),
            });
        }
        let mut target = path.join("/");
        if !operation.query.is_empty() {
            let name = prop::sample::select(operation.query.clone());
            let pairs = self.roll(&prop::collection::vec((name, any_escaped()), 0..4));
            let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
            target = format!("{target}?{}", pairs.collect::<Vec<_>>().join("&"));
        }
        target
    }
}

async fn no_input_makes_a_handler_fail(client: &Client) {
    client.queue("q", json!({})).await;
    client.bury("q", json!({"a": 1}), "E1", "text").await;
    let (operations, names) = read(&client.get("/openapi.json").await.1);
    assert!(
        operations.len() >= 47 && names.len() > 80,
        "{}",
        names.len()
    );
    let mut dice = Dice {
        runner: TestRunner::deterministic(),
        names,
    };
    let mut requests = 0;
    for operation in &operations {
        for kind in 0..EACH * 3 {
            let path = dice.target(operation);
            let body = match (operation.method.as_str(), kind % 3) {
                ("GET" | "DELETE", _) => Vec::new(),
                (_, 0) => dice.roll(&prop::collection::vec(any::<u8>(), 1..60)),
                (_, 1) => dice.roll(&any_value()).into_bytes(),
                (_, _) => {
                    let names = dice.names.clone();
                    dice.roll(&any_object(&operation.example, names))
                        .into_bytes()
                }
            };
            let answer = client.raw(&operation.method, &path, &body).await;
            requests += 1;
            let shown = String::from_utf8_lossy(&body);
            assert!(
                answer.status < 500,
                "{} {path} {shown}: {}",
                operation.method,
                answer.text()
            );
            if answer.status >= 400 {
                checked(&answer);
            }
        }
    }
    println!("{requests} requests");
    assert_eq!(client.get("/readyz").await.0, 200);
}

on_every_store!(no_input_makes_a_handler_fail);

//! Many dead letters, made as they are made in life: published, received, nacked for good.

use crate::Outcome;
use crate::client::{Connection, Request};
use crate::server::Quita;
use serde_json::json;
use std::fmt::Write;

/// Messages of one publish; each is received and nacked by a tenth.
const PUBLISHED: u64 = 1_000;
/// Messages of one receive.
const RECEIVED: u64 = 100;
/// Connections that fill at once.
const HANDS: u64 = 4;
/// One in so many was declined; all the others met a gateway that was not there.
const DECLINED: u64 = 100;

/// Puts `count` dead letters into a queue; a multiple of 1,000.
pub(crate) async fn fill(quita: &Quita, queue: &'static str, count: u64) -> Outcome<()> {
    let mut hands = tokio::task::JoinSet::new();
    let rounds = count / PUBLISHED;
    for hand in 0..HANDS {
        let (address, key) = (quita.address, quita.key.clone());
        hands.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for round in (hand..rounds).step_by(HANDS as usize) {
                one_round(&mut connection, &key, queue, round * PUBLISHED).await?;
            }
            Outcome::Ok(())
        });
    }
    while let Some(done) = hands.join_next().await {
        done??;
    }
    Ok(())
}

async fn one_round(connection: &mut Connection, key: &str, queue: &str, first: u64) -> Outcome<()> {
    let mut messages = String::new();
    for number in first..first + PUBLISHED {
        let comma = if messages.is_empty() { "" } else { "," };
        write!(
            messages,
            "{comma}{{\"message\":{{\"card\":{number}}},\"key\":\"card-{number:019}\"}}"
        )?;
    }
    let body = format!("{{\"queue\":\"{queue}\",\"messages\":[{messages}]}}");
    post(connection, key, "publish-batch", &body, |_| ()).await?;
    for part in 0..PUBLISHED / RECEIVED {
        let body = format!(
            "{{\"queue\":\"{queue}\",\"max_messages\":{RECEIVED},\"visibility_timeout_seconds\":600}}"
        );
        let receipts = post(connection, key, "receive", &body, receipts).await?;
        let settlements: Vec<_> = (first + part * RECEIVED..)
            .zip(receipts)
            .map(|(number, receipt)| {
                let (code, detail) = if number % DECLINED == 0 {
                    ("declined", format!("card {number} is cancelled"))
                } else {
                    ("503", format!("no answer after {number} ms"))
                };
                json!({"receipt": receipt, "action": "nack", "permanent": true, "error": {"code": code, "detail": detail}})
            })
            .collect();
        let body = json!({"settlements": settlements}).to_string();
        post(connection, key, "settle", &body, |_| ()).await?;
    }
    Ok(())
}

fn receipts(answer: &[u8]) -> Vec<String> {
    const BEFORE: &[u8] = b"\"receipt\":\"";
    memchr::memmem::find_iter(answer, BEFORE)
        .filter_map(|at| {
            let start = at + BEFORE.len();
            let length = memchr::memchr(b'"', &answer[start..])?;
            std::str::from_utf8(&answer[start..start + length])
                .ok()
                .map(str::to_owned)
        })
        .collect()
}

async fn post<T>(
    connection: &mut Connection,
    key: &str,
    what: &str,
    body: &str,
    read: impl FnOnce(&[u8]) -> T,
) -> Outcome<T> {
    let request = Request::new("POST", &format!("/v1/queue/{what}"), Some(key), body);
    let answer = connection.call(request.bytes()).await?;
    if answer.status / 100 == 2 {
        Ok(read(answer.body))
    } else {
        Err(answer.unexpected().into())
    }
}

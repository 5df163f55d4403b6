//! What is sent: messages of a stated size, and the requests that carry them, built once.

use crate::client::{Request, SERIAL, STAMP};
use std::fmt::Write;

/// Size of a message unless stated otherwise, in bytes: a charge with some baggage.
pub(crate) const MESSAGE_BYTES: usize = 1024;

/// The queue that is worked on.
pub(crate) const QUEUE: &str = "bench";

/// A JSON object of [`MESSAGE_BYTES`] that no compressor shrinks, with a [`SERIAL`] and a [`STAMP`] in it.
pub(crate) fn message() -> String {
    message_of(MESSAGE_BYTES)
}

/// The same of another size, of 200 bytes at least.
pub(crate) fn message_of(bytes: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes);
    let _ = write!(
        text,
        "{{\"id\":\"{SERIAL}\",\"sent\":\"{STAMP}\",\"subscription\":\"sub_0412\",\"customer\":\"Padaria Bom Grao\",\
         \"amount\":18990,\"competence\":\"2026-10\",\"pad\":\""
    );
    // Marsaglia's xorshift64: repeatable noise.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    while text.len() + 2 < bytes {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        text.push(char::from(ALPHABET[(noise & 63) as usize]));
    }
    text + "\"}"
}

/// A publish of `message` into `queue`, with a request id of its own each time it is numbered.
pub(crate) fn publish(queue: &str, message: &str, key: Option<&str>) -> Request {
    publish_as("0", queue, message, key)
}

/// The same in one of several runs on one store: each run has request ids of its own.
pub(crate) fn publish_as(run: &str, queue: &str, message: &str, key: Option<&str>) -> Request {
    let body = format!(
        "{{\"queue\":\"{queue}\",\"message\":{message},\"client_request_id\":\"{SERIAL}-{run}\"}}"
    );
    Request::new("POST", "/v1/queue/publish", key, &body)
}

/// A publish of `count` messages at once, each with a request id; `more` are further members of each, such as `,"key":1`.
pub(crate) fn publish_batch(queue: &str, count: u64, more: &str, key: Option<&str>) -> Request {
    let message = message();
    let messages: Vec<String> = (0..count)
        .map(|at| {
            format!("{{\"message\":{message},\"client_request_id\":\"{SERIAL}-{at}\"{more}}}")
        })
        .collect();
    let body = format!(
        "{{\"queue\":\"{queue}\",\"messages\":[{}]}}",
        messages.join(",")
    );
    Request::new("POST", "/v1/queue/publish-batch", key, &body)
}

/// A receive of one message that waits `wait_seconds` for it.
pub(crate) fn receive(queue: &str, wait_seconds: u64, key: Option<&str>) -> Request {
    let body =
        format!("{{\"queue\":\"{queue}\",\"max_messages\":1,\"wait_seconds\":{wait_seconds}}}");
    Request::new("POST", "/v1/queue/receive", key, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_json_of_the_stated_size() {
        for bytes in [200, MESSAGE_BYTES, 262_144] {
            let text = message_of(bytes);
            assert_eq!(text.len(), bytes);
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }

    #[test]
    fn a_batch_has_a_request_id_for_each_message() {
        let mut request = publish_batch("q", 3, ",\"delay_seconds\":1", None);
        request.number(7, 0);
        let text = String::from_utf8(request.bytes().to_vec()).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body["messages"][2]["client_request_id"],
            "0000000000000007-2"
        );
        assert_eq!(body["messages"][0]["delay_seconds"], 1);
    }
}

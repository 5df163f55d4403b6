//! Receive. The answer is written by hand: its messages are JSON text already and must come back byte for byte.

use super::values::{LeaseSeconds, MessageId, QueueName, ReceiptText, WaitSeconds, WorkerName};
use super::{Time, write_string};
use crate::service::receive::Got;
use quita_storage::backend::Delivery;
use quita_storage::model::{Delivered, Millis, Place};
use quita_storage::receipt::{Receipt, Receipts};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use utoipa::ToSchema;

/// A request for messages.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Receive {
    /// The queue.
    queue: QueueName,
    /// Most messages wanted.
    #[schema(required = false, minimum = 1, maximum = 100, default = 1)]
    max_messages: u32,
    /// Length of the leases; the queue's when absent.
    #[schema(required = false)]
    visibility_timeout_seconds: LeaseSeconds,
    /// How long to wait for the first message; the queue's when absent.
    #[schema(required = false)]
    wait_seconds: WaitSeconds,
    /// Who asks: shown in the message's history.
    #[schema(required = false)]
    worker: WorkerName,
}

/// Messages, leased to the caller.
#[derive(Serialize, ToSchema)]
pub struct Received {
    /// At most as many as asked; may be empty.
    pub messages: Vec<ReceivedMessage>,
    /// The store's time.
    pub server_time: Time,
    /// The queue is paused and hands nothing out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

/// One delivery of a message.
#[derive(Serialize, ToSchema)]
pub struct ReceivedMessage {
    /// The message's id.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// Names this delivery in ack, nack, release and extend. Opaque.
    #[schema(value_type = ReceiptText)]
    pub receipt: String,
    /// What was published, byte for byte.
    #[schema(value_type = Value)]
    pub message: serde_json::Value,
    /// Number of this attempt, from 1.
    pub attempt: i32,
    /// Attempts allowed.
    pub max_attempts: i32,
    /// The business key.
    pub key: Option<String>,
    /// The producer's request id.
    pub client_request_id: Option<String>,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// 0 to 9.
    pub priority: u8,
    /// Redrives so far.
    pub redrive_count: i32,
    /// When it was published.
    pub published_at: Time,
    /// When the lease runs out, unless it is extended.
    pub lease_expires_at: Time,
    /// Length of the lease.
    pub lease_seconds: super::Seconds,
    /// How the last delivery that failed ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<super::message::PastDelivery>,
}

/// Writes the answer.
pub(crate) fn write(got: &Got, receipts: &Receipts, epoch: i32) -> Vec<u8> {
    let payload: usize = got.messages.iter().map(|d| d.payload.len()).sum();
    let mut out = Vec::with_capacity(96 + payload + got.messages.len() * 512);
    out.extend_from_slice(b"{\"messages\":[");
    for (index, delivery) in got.messages.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_message(delivery, receipts, epoch, &mut out);
    }
    out.extend_from_slice(b"],\"server_time\":");
    write_time(got.now, &mut out);
    if got.paused {
        out.extend_from_slice(b",\"paused\":true");
    }
    out.push(b'}');
    out
}

fn write_message(delivery: &Delivery, receipts: &Receipts, epoch: i32, out: &mut Vec<u8>) {
    let message = &delivery.message;
    let envelope = &message.envelope;
    let (leased_at, expires_at) = match &message.place {
        Place::Leased(lease) => (lease.leased_at, lease.expires_at),
        _ => (0, 0),
    };
    let receipt = receipts.seal(&Receipt {
        epoch,
        queue: envelope.queue,
        id: envelope.id,
        fence: message.life.fence,
        handed_out_at: leased_at,
    });
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        "{{\"message_id\":\"{}\",\"receipt\":\"{receipt}\",\"message\":",
        envelope.id
    );
    out.extend_from_slice(&delivery.payload);
    let _ = write!(
        out,
        ",\"attempt\":{},\"max_attempts\":{},\"key\":",
        message.life.attempts + 1,
        delivery.max_attempts
    );
    write_optional(envelope.key.as_deref(), out);
    out.extend_from_slice(b",\"client_request_id\":");
    let request_id = envelope.request_id.as_deref();
    write_optional(request_id.and_then(|id| std::str::from_utf8(id).ok()), out);
    out.extend_from_slice(b",\"headers\":");
    out.extend_from_slice(envelope.headers.as_deref().unwrap_or("{}").as_bytes());
    let _ = write!(
        out,
        ",\"priority\":{},\"redrive_count\":{},\"published_at\":",
        envelope.priority, message.life.redrives
    );
    write_time(envelope.created_at, out);
    out.extend_from_slice(b",\"lease_expires_at\":");
    write_time(expires_at, out);
    out.extend_from_slice(b",\"lease_seconds\":");
    let length = expires_at - leased_at;
    let _ = match length % 1000 {
        0 => write!(out, "{}", length / 1000),
        _ => write!(out, "{}", length as f64 / 1000.0),
    };
    if let Some(failure) = &delivery.last_failure {
        out.extend_from_slice(b",\"last_failure\":");
        write_failure(failure, out);
    }
    out.push(b'}');
}

fn write_failure(failure: &Delivered, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, &super::message::PastDelivery::new(failure));
}

fn write_optional(text: Option<&str>, out: &mut Vec<u8>) {
    match text {
        Some(text) => write_string(text, out),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_time(at: Millis, out: &mut Vec<u8>) {
    out.push(b'"');
    Time(at).write(out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use quita_storage::model::{
        Bounds, Cause, Envelope, Failure, Lease, Life, MessageId, QueueUid,
    };
    use quita_storage::rules::Message;
    use std::sync::Arc;

    fn delivery() -> Delivery {
        Delivery {
            message: Message {
                envelope: Arc::new(Envelope {
                    id: MessageId(12345),
                    queue: QueueUid(3),
                    created_at: 1_000,
                    first_available_at: 1_000,
                    priority: 4,
                    request_id: Some(Bytes::from_static(b"a\"\x00")),
                    key: None,
                    expires_at: None,
                    max_attempts: None,
                    backoff: None,
                    headers: Some(r#"{"a":"b"}"#.into()),
                }),
                life: Life {
                    fence: 2,
                    attempts: 1,
                    ..Life::default()
                },
                place: Place::Leased(Lease {
                    leased_at: 5_000,
                    expires_at: 6_500,
                    available_at: 1_000,
                    bounds: Bounds::default(),
                    worker: None,
                }),
                completion: None,
                expires_at: None,
            },
            max_attempts: 5,
            payload: Bytes::from_static(br#"{"a":1e999,"a":"\ud800" }"#),
            last_failure: Some(Delivered {
                fence: 1,
                attempt: 1,
                leased_at: 2_000,
                ended_at: 3_000,
                cause: Cause::Nack,
                late: false,
                worker: Some("w".into()),
                failure: Failure::cleaned(Some("E1"), None),
            }),
        }
    }

    #[test]
    fn what_is_written_by_hand_is_what_is_described_and_the_message_is_untouched() {
        let receipts = Receipts::new(&[1; 32]);
        let mut got = Got {
            messages: vec![delivery(), delivery()],
            paused: true,
            now: 7_000,
            held: None,
        };
        let text = String::from_utf8(write(&got, &receipts, 9)).unwrap();
        assert_eq!(
            text.matches(r#""message":{"a":1e999,"a":"\ud800" },"#)
                .count(),
            2
        );
        for delivery in &mut got.messages {
            delivery.payload = Bytes::from_static(b"[1]");
        }
        let json: serde_json::Value = serde_json::from_slice(&write(&got, &receipts, 9)).unwrap();
        let written = &json["messages"][1];
        let failure = delivery().last_failure.unwrap();
        let described = ReceivedMessage {
            message_id: MessageId(12345).to_string(),
            receipt: written["receipt"].as_str().unwrap().to_owned(),
            message: serde_json::json!([1]),
            attempt: 2,
            max_attempts: 5,
            key: None,
            client_request_id: Some("a\"\u{0}".to_owned()),
            headers: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            priority: 4,
            redrive_count: 0,
            published_at: Time(1_000),
            lease_expires_at: Time(6_500),
            lease_seconds: super::super::Seconds(1_500),
            last_failure: Some(super::super::message::PastDelivery::new(&failure)),
        };
        assert_eq!(*written, serde_json::to_value(described).unwrap());
        assert_eq!(json["server_time"], "1970-01-01T00:00:07.000Z");
        assert_eq!(json["paused"], true);
        let receipt = receipts.open(written["receipt"].as_str().unwrap()).unwrap();
        assert_eq!(
            (receipt.epoch, receipt.fence, receipt.handed_out_at),
            (9, 2, 5_000)
        );
    }
}

//! `POST /v1/queue/receive`.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::problem::Code;
use super::publish::queue_field;
use super::text_rule::TextRule;
use super::wire::receive;
use crate::service::receive::Ask;
use http::StatusCode;
use serde_json::json;
use std::sync::OnceLock;

/// Name of a worker, shown in histories.
const WORKER: TextRule = TextRule::line(0, 128);
const FIELDS: &[&str] = &[
    "queue",
    "max_messages",
    "visibility_timeout_seconds",
    "wait_seconds",
    "worker",
];

pub(crate) async fn receive(mut incoming: Incoming) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), FIELDS)?;
    let queue = queue_field(&mut fields);
    let max = fields.integer("max_messages", 1, 100);
    let lease_ms = fields.seconds("visibility_timeout_seconds", 1.0, 43_200.0);
    let wait_ms = fields.seconds("wait_seconds", 0.0, 30.0);
    let worker = fields.text_in("worker", WORKER);
    fields.finish()?;
    let queue = queue.ok_or(Code::MissingField)?;
    let ask = Ask {
        queue: &queue,
        max: max.map_or(1, |max| max as u32),
        lease_ms,
        wait_ms,
        worker: worker
            .filter(|worker| !worker.is_empty())
            .map(|worker| (&*worker).into()),
    };
    let state = &incoming.state;
    let (service, caller) = (&state.service, &incoming.caller);
    let refused = OnceLock::new();
    let stop = async {
        tokio::select! {
            () = state.drain.draining() => {}
            failure = state.auth.until_refused(caller) => drop(refused.set(failure)),
        }
    };
    let mut got = service.receive(caller, ask, stop).await?;
    if let (Some(failure), true) = (refused.into_inner(), got.messages.is_empty()) {
        return Err(failure.into());
    }
    incoming.charge_messages(got.messages.len());
    let text = receive::write(&got, service.receipts(), service.epoch());
    incoming.hold(got.held.take());
    Ok(answer::text(StatusCode::OK, text))
}

/// The receipt of the first message that was answered.
const RECEIPT: &str = "$response.body#/messages/0/receipt";

pub(crate) fn describe() -> Route {
    Describe::new("receive", "work", "Receive messages")
        .text("Leases messages to the caller, waiting up to wait_seconds for the first one. Settle each one within its lease: ack, nack or release. Stops at 8 MiB. A receive from an unknown queue waits as on an empty one where queues are created automatically.")
        .body::<receive::Receive>(json!({"queue": "orders", "max_messages": 10, "wait_seconds": 20, "worker": "billing-7"}))
        .answer::<receive::Received>(200, "Messages; none when the wait was over", json!({"messages": [{
            "message_id": "msg_02mx3k8s9qv40", "receipt": "AQAAAAEAAAAB…", "message": {"order": 4711}, "attempt": 1, "max_attempts": 5, "key": null,
            "client_request_id": "order-4711", "headers": {}, "priority": 4, "redrive_count": 0, "published_at": "2026-11-30T15:04:05.123Z",
            "lease_expires_at": "2026-11-30T15:04:36.000Z", "lease_seconds": 30}], "server_time": "2026-11-30T15:04:06.000Z"}))
        .leads_to("getMessage", &[("message_id", "$response.body#/messages/0/message_id")])
        .leads_to_with("ack", &[], json!({"receipt": RECEIPT}))
        .leads_to_with("nack", &[], json!({"receipt": RECEIPT, "error": {"code": "gateway_timeout"}}))
        .leads_to_with("release", &[], json!({"receipt": RECEIPT}))
        .leads_to_with("extend", &[], json!({"receipt": RECEIPT, "visibility_timeout_seconds": 60}))
        .leads_to_with("settle", &[], json!({"settlements": [{"receipt": RECEIPT, "action": "ack"}]}))
        .problems(&[Code::QueueNotFound, Code::InvalidQueueName, Code::MissingField, Code::OutOfRange, Code::TooLong, Code::ControlCharacter, Code::Draining, Code::OutcomeUnknown])
        .build()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_read_is_what_is_described() {
        use utoipa::PartialSchema;
        let schema = super::receive::Receive::schema();
        super::super::fields::tests::assert_described(&schema, super::FIELDS);
    }
}

//! What an operation asked and heard. Every field is left out of the line where it says nothing.

use super::{Digest, Short};
use serde::{Deserialize, Serialize};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Args {
    /// Messages of a publish (one) or of a batch, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<Entry>,
    /// Receipt of a settle or extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Short>,
    /// Message that a settle, an operator or a look is about, where the driver knows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message_id: String,
    /// The receipt or token was made up, cut or changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) forged: bool,
    /// `max_messages` of a receive, `max` of a decision about many, `page_size` of a listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<u32>,
    /// `wait_seconds` of a receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_ms: Option<u64>,
    /// `visibility_timeout_seconds` of a receive or extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<u64>,
    /// `delay_seconds` of a nack or release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    /// `permanent` of a nack; `force` of an operator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) permanent: bool,
    /// `force` of an operator.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) force: bool,
    /// `dead_letters` of a purge.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dead_letters: bool,
    /// `action` of a decision about many: `redrive` or `discard`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) action: String,
    /// `client_request_id` of an operator's call.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) request_id: String,
    /// State that a listing is of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    /// Number of a complete pass of listings over all queues and states of one replica; pages of one pass share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pass: Option<u32>,
}

/// One message to publish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    /// Digest of `message`.
    pub(crate) sha: Digest,
    /// Its bytes.
    pub(crate) len: u32,
    /// `client_request_id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) request_id: String,
    /// `key`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) key: String,
    /// `delay_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_ms: Option<u64>,
    /// `expires_in_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_in_ms: Option<u64>,
    /// `max_attempts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_attempts: Option<u32>,
}

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Body {
    /// `effect` of a problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) effect: String,
    /// The answer is no 2xx and no whole `application/problem+json`, or a 2xx that is no JSON of the expected shape.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) misshapen: bool,
    /// What a publish said of each message, in the order of the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) told: Vec<Told>,
    /// What a receive handed out, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) handed: Vec<Handed>,
    /// What a listing or a look showed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) listed: Vec<Listed>,
    /// A listing has another page.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
    /// `paused` of a receive, or of a queue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) paused: bool,
    /// `message_id` of a settle's or an operator's answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message_id: String,
    /// `result` of a settle; `state` of an operator's answer or of a decision about many.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) result: String,
    /// `end`, where the message is gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) end: String,
    /// `late` of a settle.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) late: bool,
    /// `superseded` of an ack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) superseded: bool,
    /// `superseded_completion` of an extend.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) superseded_completion: bool,
    /// `acked_superseded` of an operator's answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) acked_superseded: bool,
    /// `capped` of an extend.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) capped: bool,
    /// `attempts_left` of a nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts_left: Option<i32>,
    /// `Idempotency-Replayed: true` came with an operator's answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) replayed: bool,
    /// `redrive_id` of a decision about many.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) redrive_id: String,
    /// `moved` of a decision about many; `purged` of a purge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moved: Option<u64>,
    /// Gauges of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<Counts>,
    /// Totals of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) totals: Option<Totals>,
}

/// What a publish said of one message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    /// `index` as answered; 0 for a single publish.
    pub(crate) index: u32,
    /// Status of this entry; of a single publish, the answer's.
    pub(crate) status: u16,
    /// `message_id`; empty when it was refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
    /// `deduplicated`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deduplicated: bool,
    /// `"duplicate_of":"key"`: another body under the same business key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_key: bool,
    /// `effect` of an entry's problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) effect: String,
    /// Code of an entry's problem.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) code: String,
}

/// One delivery as it was handed out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Handed {
    /// `message_id`.
    pub(crate) id: String,
    /// Hash of `receipt`.
    pub(crate) receipt: Short,
    /// Digest of `message` as it came back.
    pub(crate) sha: Digest,
    /// Its bytes.
    pub(crate) len: u32,
    /// `attempt`.
    pub(crate) attempt: u32,
    /// `max_attempts`.
    pub(crate) max_attempts: u32,
    /// `lease_seconds`.
    pub(crate) lease_ms: u64,
    /// `lease_expires_at` as Unix time: less `lease_ms`, the moment of the hand-out on the store's clock.
    pub(crate) ends_at_ms: i64,
    /// `client_request_id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) request_id: String,
    /// `redrive_count`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) redrives: u32,
}

/// A message as a listing or a look shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Listed {
    /// `message_id`.
    pub(crate) id: String,
    /// `state`: `ready`, `delayed`, `leased`, `dead` or `ended`.
    pub(crate) state: String,
    /// `end` of an ended one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) end: String,
    /// `attempts`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) attempts: u32,
    /// `deliveries`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) deliveries: u32,
    /// `redrive_count`.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) redrives: u32,
    /// `dead_letter.reason`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// `dead_letter.limit`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) limit: String,
    /// `dead_letter.error_code`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) error_code: String,
    /// `client_request_id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) request_id: String,
    /// Digest of the payload, where a look shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha: Option<Digest>,
    /// `history`, where a look shows it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) history: Vec<Past>,
}

/// One ended delivery as a look shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Past {
    /// `delivery`.
    pub(crate) delivery: u32,
    /// `attempt`.
    pub(crate) attempt: u32,
    /// `cause`.
    pub(crate) cause: String,
    /// `leased_at` as Unix time.
    pub(crate) leased_at_ms: i64,
    /// `ended_at` as Unix time.
    pub(crate) ended_at_ms: i64,
    /// `late`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) late: bool,
}

/// Gauges of a queue, from one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// `delayed`.
    pub(crate) delayed: i64,
    /// `ready`.
    pub(crate) ready: i64,
    /// `leased`.
    pub(crate) leased: i64,
    /// `dead`.
    pub(crate) dead: i64,
}

/// Totals of a queue, from one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// `accepted`.
    pub(crate) accepted: i64,
    /// `acked`.
    pub(crate) acked: i64,
    /// `discarded`.
    pub(crate) discarded: i64,
    /// `purged`.
    pub(crate) purged: i64,
    /// `dead_letter_expired`.
    pub(crate) dead_letter_expired: i64,
    /// `reopened`.
    pub(crate) reopened: i64,
    /// `delivered`.
    pub(crate) delivered: i64,
    /// `redriven`.
    pub(crate) redriven: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

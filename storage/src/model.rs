//! Nouns: ids, policies, messages and where a message can be.
//!
//! Read this first, then [`crate::rules`] (what may happen to a message) and [`crate::backend`] (who makes it durable).
//! Units: every `…_ms` and every [`Millis`] is milliseconds; times count from the Unix epoch on the store's clock.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Milliseconds: a point in time since the Unix epoch, or a length.
pub type Millis = i64;

/// 2024-01-01T00:00:00Z, where message ids begin to count.
const ID_EPOCH_MS: Millis = 1_704_067_200_000;

/// Longest delay or backoff: 7 days (product §6).
pub const MAX_DELAY_MS: Millis = 604_800_000;
/// An extend never reaches further than 24 h from the hand-out (product 4.5).
pub const MAX_LEASE_FROM_HANDOUT_MS: Millis = 86_400_000;
/// How long a discarded message keeps its payload: 7 days (product §3, `discard_undo_seconds`).
pub const DISCARD_UNDO_MS: Millis = 604_800_000;
/// How long an operator's `client_request_id` is remembered: 7 days (product §5).
pub const OPERATION_MEMORY_MS: Millis = 604_800_000;
/// Longest error code kept of a nack, in bytes (product 4.14).
pub const MAX_ERROR_CODE_BYTES: usize = 128;
/// Longest error detail kept of a nack, in bytes (product 4.14).
pub const MAX_ERROR_DETAIL_BYTES: usize = 4096;
/// Deliveries kept from the start of a message's history (product 4.14).
pub const HISTORY_HEAD: i32 = 10;
/// Deliveries kept from the end of a message's history (product 4.14).
pub const HISTORY_TAIL: i32 = 100;
/// End of a message is remembered at least this long wherever it is remembered, so that a repeat of a settle by a
/// worker whose lease ran its full 24 h still learns it.
pub const MIN_END_MEMORY_MS: Millis = 2 * MAX_LEASE_FROM_HANDOUT_MS;

/// A message's number: 41 bits of milliseconds since 2024, 10 bits of process tag, 12 bits of counter.
///
/// Ids of one process rise in publish order; across processes they rise with time. Written as `msg_` and 13 characters
/// of lower-case Crockford base32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub i64);

const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl MessageId {
    /// Builds an id from a time, a process tag (10 bits) and a counter (12 bits).
    pub fn new(at: Millis, tag: u16, counter: u16) -> Self {
        let ms = (at - ID_EPOCH_MS).max(0);
        Self((ms << 22) | (i64::from(tag & 0x3ff) << 12) | i64::from(counter & 0xfff))
    }

    /// When the id was made: within milliseconds of the publish.
    pub fn made_at(self) -> Millis {
        (self.0 >> 22) + ID_EPOCH_MS
    }

    /// Reads the written form; `None` for anything that this type never writes.
    pub fn parse(text: &str) -> Option<Self> {
        read_number("msg_", text).map(Self)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_number("msg_", self.0, f)
    }
}

/// Writes a number as a prefix and 13 characters of lower-case Crockford base32.
pub(crate) fn write_number(prefix: &str, number: i64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [b'0'; 13];
    let mut rest = number as u64;
    for slot in text.iter_mut().rev() {
        *slot = BASE32[(rest & 31) as usize];
        rest >>= 5;
    }
    f.write_str(prefix)?;
    f.write_str(std::str::from_utf8(&text).unwrap_or_default())
}

/// Back from [`write_number`]; `None` for anything that it never writes.
pub(crate) fn read_number(prefix: &str, text: &str) -> Option<i64> {
    let digits = text.strip_prefix(prefix)?.as_bytes();
    if digits.len() != 13 {
        return None;
    }
    let mut value: u128 = 0;
    for digit in digits {
        let position = BASE32.iter().position(|b| b == digit)?;
        value = (value << 5) | position as u128;
    }
    i64::try_from(value).ok()
}

/// Makes [`MessageId`]s that rise, whatever the clock does.
#[derive(Debug)]
pub struct IdMaker {
    tag: u16,
    at: Millis,
    counter: u16,
}

impl IdMaker {
    /// `tag` tells processes on one store apart (10 bits).
    pub fn new(tag: u16) -> Self {
        Self {
            tag,
            at: 0,
            counter: 0,
        }
    }

    /// The next id at time `now`. More than 4,096 ids in one millisecond borrow from the next one.
    pub fn next(&mut self, now: Millis) -> MessageId {
        if now > self.at {
            self.at = now;
            self.counter = 0;
        } else if self.counter >= 0xfff {
            self.at += 1;
            self.counter = 0;
        } else {
            self.counter += 1;
        }
        MessageId::new(self.at, self.tag, self.counter)
    }
}

/// The stable number of a queue's *name*: survives purge, delete and re-creation. Request ids, keys and totals belong
/// to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct QueueUid(pub i32);

/// What a queue does with its messages (product §6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Length of a lease when a receive names none.
    pub visibility_timeout_ms: Millis,
    /// Deliveries that may end in a nack or an expiration.
    pub max_attempts: u32,
    /// Deliveries that may end in an expiration.
    pub max_lease_expirations: u32,
    /// Releases allowed; `None` = no bound.
    pub max_releases: Option<u32>,
    /// Redrives allowed without force.
    pub max_redrives: u32,
    /// Wait between a failure and the next attempt.
    pub backoff: Backoff,
    /// Delay of a publish that names none.
    pub delay_ms: Millis,
    /// Wait of a receive that names none.
    pub wait_ms: Millis,
    /// How long a request id stays taken after its message is gone.
    pub dedupe_window_ms: Millis,
    /// One message per business key.
    pub unique_key: bool,
    /// How long a key and its outcome stay after the message is gone; `None` = for ever.
    pub key_retention_ms: Option<Millis>,
    /// Age at which a ready message goes to the dead letters.
    pub retention_ms: Millis,
    /// Age at which an undecided dead letter ends; `None` = never.
    pub dead_letter_retention_ms: Option<Millis>,
    /// Largest message with key and headers, in bytes.
    pub max_message_bytes: u32,
    /// Most messages delayed, ready and leased together; `None` = no bound.
    pub max_depth: Option<u64>,
    /// What a late ack means.
    pub late_ack: LateAck,
}

impl Default for Policy {
    /// The defaults of product §6.
    fn default() -> Self {
        Self {
            visibility_timeout_ms: 30_000,
            max_attempts: 5,
            max_lease_expirations: 3,
            max_releases: None,
            max_redrives: 3,
            backoff: Backoff::default(),
            delay_ms: 0,
            wait_ms: 0,
            dedupe_window_ms: 86_400_000,
            unique_key: false,
            key_retention_ms: Some(34_560_000_000),
            retention_ms: 1_209_600_000,
            dead_letter_retention_ms: None,
            max_message_bytes: 262_144,
            max_depth: None,
            late_ack: LateAck::Accept,
        }
    }
}

/// What a late settle of an expired, not superseded delivery means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateAck {
    /// Finished work counts (the default).
    Accept,
    /// The first settle of a delivery must come within its lease.
    Strict,
}

/// How the wait between attempts grows (product §6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// `min(max, base · factor^(n−1))` after failure n.
    Exponential {
        /// Wait after the first failure.
        base_ms: Millis,
        /// Growth per failure.
        factor: f64,
        /// Largest wait.
        max_ms: Millis,
        /// How the wait is spread.
        jitter: Jitter,
    },
    /// The same wait each time.
    Fixed {
        /// The wait.
        base_ms: Millis,
        /// How the wait is spread.
        jitter: Jitter,
    },
    /// A list of waits, the last one repeating. Never empty.
    Schedule {
        /// The waits.
        schedule_ms: Vec<Millis>,
        /// How each wait is spread.
        jitter: Jitter,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential {
            base_ms: 2_000,
            factor: 2.0,
            max_ms: 900_000,
            jitter: Jitter::Equal,
        }
    }
}

/// How a wait d is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Exactly d.
    None,
    /// Between d/2 and d.
    Equal,
    /// Between 0 and d.
    Full,
}

/// A queue as a caller saw it: its identity, the version of that view, and the policy.
///
/// A statement that acts on a queue confirms `version`; when it changed since (policy, pause, purge, delete) the item
/// comes back as stale, is looked up again and repeated, so caches can never make a wrong decision durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Stable number of the name.
    pub uid: QueueUid,
    /// The name, compared exactly.
    pub name: Arc<str>,
    /// Rises with every change of policy, pause, purge or delete.
    pub version: i64,
    /// No hand-outs while set.
    pub paused: bool,
    /// What the queue does with its messages.
    pub policy: Arc<Policy>,
    /// When the queue was created, or created again.
    pub created_at: Millis,
}

/// A message as it was published; never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The message's number.
    pub id: MessageId,
    /// Its queue.
    pub queue: QueueUid,
    /// When it was published.
    pub created_at: Millis,
    /// When it first became or becomes available: `created_at` plus its delay.
    pub first_available_at: Millis,
    /// 0 to 9, higher first.
    pub priority: u8,
    /// The producer's request id, exactly as sent.
    pub request_id: Option<Bytes>,
    /// The business key.
    pub key: Option<Arc<str>>,
    /// When it must be dead-lettered unless it is done or leased.
    pub expires_at: Option<Millis>,
    /// Overrides the queue's `max_attempts`.
    pub max_attempts: Option<u32>,
    /// Overrides the queue's backoff.
    pub backoff: Option<Backoff>,
    /// Headers as one JSON object's text; the store does not look inside.
    pub headers: Option<Arc<str>>,
}

/// Counters that follow a message through its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// +1 at every hand-out, never reset: also the number of deliveries so far.
    pub fence: i32,
    /// Deliveries since the last redrive that ended in a nack or an expiration.
    pub attempts: i32,
    /// Deliveries since the last redrive that ended in an expiration.
    pub expirations: i32,
    /// Releases since the last redrive.
    pub releases: i32,
    /// Redrives so far.
    pub redrives: i32,
}

/// Where a message is. A row's table is its state.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Not due yet.
    Delayed {
        /// When it becomes ready.
        due_at: Millis,
    },
    /// Can be received.
    Ready {
        /// Its place in the order, and where retention counts from.
        available_at: Millis,
    },
    /// Handed out.
    Leased(Lease),
    /// Waits for a decision.
    Dead(Dead),
    /// Decided by an operator.
    Discarded(Discarded),
}

/// One live hand-out. The delivery is the message's present fence.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// When it was handed out.
    pub leased_at: Millis,
    /// When the lease runs out.
    pub expires_at: Millis,
    /// The old place: where a release or a give-back returns it.
    pub available_at: Millis,
    /// What a failure of this delivery means, decided at hand-out.
    pub bounds: Bounds,
    /// Who took it.
    pub worker: Option<Arc<str>>,
}

/// Limits as they were read at hand-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// This delivery is the last that `max_attempts` allows.
    pub last_attempt: bool,
    /// An expiration of this delivery is the last that `max_lease_expirations` allows.
    pub last_expiration: bool,
}

impl Bounds {
    /// As stored: bit 0 and bit 1.
    pub fn bits(self) -> i16 {
        i16::from(self.last_attempt) | (i16::from(self.last_expiration) << 1)
    }

    /// Back from [`Bounds::bits`].
    pub fn from_bits(bits: i16) -> Self {
        Self {
            last_attempt: bits & 1 != 0,
            last_expiration: bits & 2 != 0,
        }
    }
}

/// A quarantined message.
#[derive(Clone, Debug, PartialEq)]
pub struct Dead {
    /// When it was dead-lettered.
    pub died_at: Millis,
    /// How the last delivery ended.
    pub reason: Reason,
    /// The bound that was reached, where one was.
    pub limit: Option<Limit>,
    /// It died by the expiration of its present fence: that delivery may still ack.
    pub by_expiry: bool,
    /// An operator changed the payload or headers since.
    pub edited: bool,
    /// Code of the last failure, for listing and grouping.
    pub error_code: Option<Arc<str>>,
    /// Dead letters that failed alike have the same: see [`crate::rules::group`]. 0 = died before there were groups.
    pub group: i64,
}

/// A dead letter that an operator discarded. Its payload is kept for [`DISCARD_UNDO_MS`], all the rest as long as audit rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Discarded {
    /// When.
    pub discarded_at: Millis,
    /// The payload is still there, so the discard can be undone.
    pub payload_kept: bool,
    /// The dead letter it was.
    pub dead: Dead,
}

macro_rules! coded_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All values, in code order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As stored.
            pub fn code(self) -> i16 {
                match self { $(Self::$variant => $code),+ }
            }

            /// Back from [`Self::code`]; `None` for a code that this version does not know.
            pub fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }

            /// As written in answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Back from [`Self::as_str`].
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).ok_or_else(|| serde::de::Error::custom(concat!("not a ", stringify!($name))))
            }
        }
    };
}
pub(crate) use coded_enum;

coded_enum! {
    /// Why a message is dead.
    Reason {
        /// The last allowed attempt was nacked.
        MaxAttempts = 1 => "max_attempts",
        /// The worker said that repeating is useless.
        PermanentFailure = 2 => "permanent_failure",
        /// The last allowed delivery ran out.
        LeaseExpired = 3 => "lease_expired",
        /// Released too often.
        ReleaseLimit = 4 => "release_limit",
        /// Retention or `expires_at` passed.
        Expired = 5 => "expired",
        /// An operator took it out.
        Operator = 6 => "operator",
    }
}

impl Reason {
    /// What the last delivery's end was, in the words of the deliveries. One to one with the reason.
    pub fn failure_kind(self) -> &'static str {
        match self {
            Self::MaxAttempts => "nack",
            Self::PermanentFailure => "permanent",
            Self::LeaseExpired | Self::ReleaseLimit | Self::Expired | Self::Operator => {
                self.as_str()
            }
        }
    }
}

coded_enum! {
    /// Why a dead letter is left undone.
    DiscardCode {
        /// What it asks for is not wanted any more.
        NotApplicable = 1 => "not_applicable",
        /// Something else did the work.
        Duplicate = 2 => "duplicate",
        /// A later message replaces it.
        Superseded = 3 => "superseded",
        /// The loss is taken.
        WrittenOff = 4 => "written_off",
    }
}

coded_enum! {
    /// The bound that sent a message to the dead letters.
    Limit {
        /// `max_attempts`.
        MaxAttempts = 1 => "max_attempts",
        /// `max_lease_expirations`.
        MaxLeaseExpirations = 2 => "max_lease_expirations",
        /// `max_releases`.
        MaxReleases = 3 => "max_releases",
        /// `retention_seconds`.
        Retention = 4 => "retention_seconds",
        /// `expires_at`.
        ExpiresAt = 5 => "expires_at",
    }
}

coded_enum! {
    /// How a delivery ended.
    Cause {
        /// The worker reported a failure that may pass.
        Nack = 1 => "nack",
        /// The worker reported a failure that will not pass.
        Permanent = 2 => "permanent",
        /// Nobody settled it in time.
        LeaseExpired = 3 => "lease_expired",
        /// The worker gave it back unworked.
        Release = 4 => "release",
        /// The answer could not be delivered.
        GivenBack = 5 => "given_back",
        /// An operator dead-lettered the message meanwhile.
        Operator = 6 => "operator",
        /// The worker finished it. Kept only for messages whose end is remembered.
        Ack = 7 => "ack",
    }
}

coded_enum! {
    /// How a message left for good.
    End {
        /// A worker finished it.
        Acked = 1 => "acked",
        /// An operator discarded the dead letter.
        Discarded = 2 => "discarded",
        /// An operator cancelled it before it was handed out.
        Cancelled = 3 => "cancelled",
        /// It went with a purge or with its queue.
        Purged = 4 => "purged",
        /// `dead_letter_retention_seconds` passed.
        DeadLetterExpired = 5 => "dead_letter_expired",
        /// It is not there and the record of how it went is over.
        Gone = 6 => "gone",
    }
}

coded_enum! {
    /// Where a message is, as a word; also the state that listings take.
    State {
        /// Not due yet.
        Delayed = 1 => "delayed",
        /// Can be received.
        Ready = 2 => "ready",
        /// Handed out.
        Leased = 3 => "leased",
        /// Waits for a decision.
        Dead = 4 => "dead",
        /// Gone: see [`End`].
        Ended = 5 => "ended",
    }
}

/// A completion that arrived while somebody else held the message. The end of the present lease settles the message as
/// acked with this outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The delivery that finished the work.
    pub fence: i32,
    /// What it reported, as JSON text.
    pub outcome: Option<Arc<str>>,
}

/// An error as reported by a worker: cleaned and cut, never refused (product 4.14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// At most [`MAX_ERROR_CODE_BYTES`].
    pub code: Option<Arc<str>>,
    /// At most [`MAX_ERROR_DETAIL_BYTES`].
    pub detail: Option<Arc<str>>,
    /// Something was cut off.
    pub truncated: bool,
}

impl Failure {
    /// Cleans control characters (they become U+FFFD; line breaks and tabs stay) and cuts at a character boundary.
    pub fn cleaned(code: Option<&str>, detail: Option<&str>) -> Self {
        let mut truncated = false;
        let mut clean = |text: &str, max: usize| -> Arc<str> {
            let mut out = String::with_capacity(text.len().min(max));
            for c in text.chars() {
                let c = if c.is_control() && !matches!(c, '\n' | '\t' | '\r') {
                    '\u{fffd}'
                } else {
                    c
                };
                if out.len() + c.len_utf8() > max {
                    truncated = true;
                    break;
                }
                out.push(c);
            }
            out.into()
        };
        let code = code.map(|c| clean(c, MAX_ERROR_CODE_BYTES));
        let detail = detail.map(|d| clean(d, MAX_ERROR_DETAIL_BYTES));
        Self {
            code,
            detail,
            truncated,
        }
    }
}

/// One delivery of a message's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// The delivery.
    pub fence: i32,
    /// Its attempt number (releases and give-backs not counted).
    pub attempt: i32,
    /// When it was handed out.
    pub leased_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// How it ended.
    pub cause: Cause,
    /// It was settled after its lease.
    pub late: bool,
    /// Who had it.
    pub worker: Option<Arc<str>>,
    /// What the worker reported.
    pub failure: Failure,
}

/// The record of a message that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// When.
    pub at: Millis,
    /// The delivery that settled it; 0 where none did.
    pub fence: i32,
    /// What the worker reported, as JSON text.
    pub outcome: Option<Arc<str>>,
}

/// Exact numbers of one queue, all from one snapshot.
///
/// `accepted + reopened = delayed + ready + leased + dead + acked + discarded + purged + dead_letter_expired`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for their time.
    pub delayed: i64,
    /// Can be received.
    pub ready: i64,
    /// Handed out.
    pub leased: i64,
    /// Waiting for a decision.
    pub dead: i64,
    /// Messages that publishes made.
    pub accepted: i64,
    /// Discards undone.
    pub reopened: i64,
    /// Finished.
    pub acked: i64,
    /// Discarded or cancelled.
    pub discarded: i64,
    /// Gone by purge or with the queue.
    pub purged: i64,
    /// Ended by dead-letter retention.
    pub dead_letter_expired: i64,
    /// Hand-outs.
    pub delivered: i64,
    /// Redrives.
    pub redriven: i64,
}

impl Counts {
    /// 0 when the conservation law holds.
    pub fn imbalance(&self) -> i64 {
        self.accepted + self.reopened
            - (self.delayed + self.ready + self.leased + self.dead)
            - (self.acked + self.discarded + self.purged + self.dead_letter_expired)
    }
}

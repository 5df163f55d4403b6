//! The history: one JSON line per operation, fault, event and sample. What a verdict needs is in here and nowhere else.
//!
//! Reading order: this file (what a line is) → [`call`] (what an operation asked and heard) → [`digest`] →
//! [`write`] → [`read`].
//!
//! All times are nanoseconds of this host's monotonic clock since the history began ([`History::now`]). A line is written
//! when its operation has ended, so lines are not in the order of `t_inv`.

pub(crate) mod call;
pub(crate) mod digest;
pub(crate) mod read;
pub(crate) mod write;

pub(crate) use call::{Args, Body, Counts, Entry, Handed, Listed, Past, Told, Totals};
pub(crate) use digest::{Digest, Short};
pub(crate) use read::Lines;
pub(crate) use write::History;

use quita_storage::model::Policy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Nanoseconds since the history began.
pub(crate) type Nanos = u64;

/// A second of [`Nanos`].
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// A millisecond of [`Nanos`].
pub(crate) const MILLI: Nanos = 1_000_000;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first line.
    Header(Box<Header>),
    /// An operation that has ended.
    Op(Box<Op>),
    /// A fault that is over.
    Fault(Fault),
    /// Something that happened at one moment.
    Event(Event),
    /// What a server used at one moment.
    Sample(Sample),
}

/// What was run, and what the checker has to know beforehand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    /// Everything random follows from it.
    pub(crate) seed: u64,
    /// `sqlite` or `postgres`.
    pub(crate) store: String,
    /// Servers.
    pub(crate) replicas: u32,
    /// Length of the load.
    pub(crate) minutes: f64,
    /// Version of the servers.
    pub(crate) version: String,
    /// When it began, RFC 3339.
    pub(crate) started: String,
    /// The policy of each queue; nobody changes one while it runs.
    pub(crate) queues: BTreeMap<String, Policy>,
    /// How long a server goes on accepting after SIGTERM.
    pub(crate) drain_delay_ms: u64,
    /// From SIGTERM to the exit, at most.
    pub(crate) stop_deadline_ms: u64,
    /// What else is good to know; no verdict needs it.
    pub(crate) notes: BTreeMap<String, String>,
}

/// One call of a client. Never repeated inside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_field_names,
    reason = "the member is called so in the file"
)]
pub(crate) struct Op {
    /// Number of the operation; [`History::record`] gives it.
    pub(crate) n: u64,
    /// Who called. One client has one call at a time.
    pub(crate) client: String,
    /// Which server was called.
    pub(crate) replica: u32,
    /// Before the first byte was sent.
    pub(crate) t_inv: Nanos,
    /// After the last byte was read, or when it was given up.
    pub(crate) t_ret: Nanos,
    /// What was asked.
    pub(crate) op: Kind,
    /// The queue that was named, or that the driver knows the receipt or id to belong to. Empty where there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) queue: String,
    /// What was asked for.
    pub(crate) args: Args,
    /// Whether it took effect.
    pub(crate) class: Class,
    /// Status of the answer; 0 without an answer.
    pub(crate) status: u16,
    /// The problem's code, or what broke the call: `refused` (the connection was never made), `timeout`, `reset`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) code: String,
    /// What was answered, as far as it matters.
    pub(crate) body: Body,
}

/// What an operation asks for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// `POST /v1/queue/publish`.
    Publish,
    /// `POST /v1/queue/publish-batch`.
    PublishBatch,
    /// `POST /v1/queue/receive`.
    Receive,
    /// `POST /v1/queue/ack`.
    Ack,
    /// `POST /v1/queue/nack`.
    Nack,
    /// `POST /v1/queue/release`.
    Release,
    /// `POST /v1/queue/extend`.
    Extend,
    /// Redrive of one dead letter.
    Redrive,
    /// `POST /v1/redrives`: a decision about a selection (redrive or discard, see [`Args::action`]).
    RedriveMany,
    /// `GET /v1/redrives/{redrive_id}`.
    RedriveState,
    /// Discard of one dead letter.
    Discard,
    /// A discard taken back.
    Reopen,
    /// Cancel of a ready or delayed message.
    Cancel,
    /// Promote of a delayed message.
    Promote,
    /// An operator's dead-lettering.
    DeadLetter,
    /// Pause of a queue.
    Pause,
    /// Resume of a queue.
    Resume,
    /// Purge of a queue.
    Purge,
    /// `GET /v1/queues/{queue}`: counts and totals.
    Stats,
    /// One page of a listing of one state, under load.
    List,
    /// `GET /v1/messages/{message_id}`.
    Get,
    /// One page of a listing of one state, after the drain.
    DrainList,
    /// [`Kind::Stats`] after the drain, while nobody changes anything.
    Recount,
    /// `GET /readyz`.
    Readyz,
    /// Anything else: nonsense, foreign receipts, limits.
    #[default]
    Probe,
}

/// Whether an operation took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// Yes: 2xx, or the 409 with `completion_remembered`.
    Ok,
    /// Surely not: a problem with `"effect":"none"`, or a connection that was never made.
    Fail,
    /// Nobody knows; it may also take effect after `t_ret`.
    #[default]
    Info,
}

/// Something that was done to the servers or between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Fault {
    /// What: `kill`, `term`, `rolling_restart`, `pause`, `power_cut`, `disk_full`, `proxy_reset`, … `fsync_error` begins when
    /// a sync has surely failed, `clock…` are wrong clocks of servers, `store_clock…` moves the store's own.
    pub(crate) kind: String,
    /// Whom: `replica 1`, `postgres`, `clients of 0`, …
    pub(crate) target: String,
    /// From when on it could be felt.
    pub(crate) t_begin: Nanos,
    /// When it was undone.
    pub(crate) t_end: Nanos,
    /// Figures, or why it was `SKIPPED`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// A tool was missing; nothing was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skipped: bool,
}

/// Something that happened at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Event {
    /// What.
    pub(crate) kind: Happened,
    /// Which server; `None` = all of them.
    pub(crate) replica: Option<u32>,
    /// When.
    pub(crate) t: Nanos,
    /// Exit code of an [`Happened::Exited`]; `None` = a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<i32>,
    /// The line of the log, for [`Happened::Panicked`] and [`Happened::Leaked`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Happened {
    /// A process was started.
    #[default]
    Started,
    /// Its `/readyz` answered 200 for the first time.
    Ready,
    /// It was sent SIGTERM.
    Termed,
    /// It was sent SIGKILL.
    Killed,
    /// It ended.
    Exited,
    /// A panic stands in its log.
    Panicked,
    /// A secret, a receipt or a payload stands in its log.
    Leaked,
    /// Its logs were searched for panics and for what must not be there.
    LogRead,
    /// Every fault is undone and every server is ready.
    Healed,
    /// Nothing came for longer than any lease, backoff and delay: the final listing may begin.
    Drained,
}

/// What a server used at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    /// When.
    pub(crate) t: Nanos,
    /// Which server.
    pub(crate) replica: u32,
    /// Resident memory.
    pub(crate) rss_kib: u64,
    /// Open files.
    pub(crate) fds: u64,
    /// Size of the write-ahead log.
    pub(crate) wal_bytes: u64,
    /// Size of the database.
    pub(crate) db_bytes: u64,
}

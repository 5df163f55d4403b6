//! Small records with numbers for names.

use super::Index;
use crate::history::{Class, Digest, Kind, Nanos};

/// One message that a publish asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Number of the operation.
    pub(crate) n: u64,
    pub(crate) queue: Index,
    pub(crate) sha: Digest,
    pub(crate) len: u32,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    /// Of this entry, in a batch too.
    pub(crate) class: Class,
    pub(crate) request: Index,
    pub(crate) key: Index,
    pub(crate) delay_ms: u64,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) max_attempts: Option<u32>,
    /// The message that the answer names.
    pub(crate) message: Index,
    pub(crate) deduplicated: bool,
    pub(crate) by_key: bool,
    pub(crate) of_batch: bool,
    /// The answer has it at the right place of the right length.
    pub(crate) in_place: bool,
}

/// One receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) n: u64,
    pub(crate) queue: Index,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    pub(crate) class: Class,
    pub(crate) max: u32,
    pub(crate) got: u32,
    pub(crate) paused: bool,
    pub(crate) replica: u32,
    /// One message twice in one answer.
    pub(crate) repeats: bool,
    /// After this moment it takes effect no more, if its class is info.
    pub(crate) until: Nanos,
}

/// One delivery that a client has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) n: u64,
    pub(crate) message: Index,
    /// The queue that was asked.
    pub(crate) queue: Index,
    pub(crate) sha: Digest,
    pub(crate) len: u32,
    pub(crate) receipt: u64,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    /// Between these two its lease began; see [`super::clock`].
    pub(crate) begun: (Nanos, Nanos),
    /// It was granted between these two.
    pub(crate) granted: (Nanos, Nanos),
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) redrives: u32,
    pub(crate) lease_ms: u64,
    /// The lease that was asked for, or the queue's.
    pub(crate) asked_ms: u64,
    /// On the store's clock.
    pub(crate) leased_at_ms: i64,
}

/// What came of a settle or extend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Acked,
    Retry,
    Dead,
    Released,
    AckedSuperseded,
    Extended,
    Already,
    /// 409, and the completion is kept.
    Remembered,
    /// 409 without effect.
    Conflict,
    /// Another 4xx that is about the receipt.
    Refused,
    /// Surely without effect and not about the receipt: overload, no server.
    Unavailable,
    /// No answer, or one that says `unknown`.
    Unknown,
    /// 2xx with words that no settle has.
    Nonsense,
}

impl Said {
    /// This settle ended the delivery.
    pub(crate) fn ended(self) -> bool {
        matches!(
            self,
            Self::Acked | Self::Retry | Self::Dead | Self::Released | Self::AckedSuperseded
        )
    }

    /// Surely nothing changed.
    pub(crate) fn nothing(self) -> bool {
        matches!(self, Self::Conflict | Self::Refused | Self::Unavailable)
    }
}

/// One settle or extend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settle {
    pub(crate) n: u64,
    pub(crate) kind: Kind,
    pub(crate) receipt: u64,
    /// The delivery that has this receipt.
    pub(crate) delivery: Index,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    pub(crate) said: Said,
    pub(crate) status: u16,
    pub(crate) forged: bool,
    pub(crate) permanent: bool,
    pub(crate) late: bool,
    pub(crate) superseded: bool,
    pub(crate) end_acked: bool,
    pub(crate) delay_ms: Option<u64>,
    pub(crate) lease_ms: u64,
}

/// One call of an operator.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) n: u64,
    pub(crate) kind: Kind,
    pub(crate) queue: Index,
    /// The message, if it is about one.
    pub(crate) message: Index,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    pub(crate) class: Class,
    pub(crate) force: bool,
    /// It discards; for decisions about many.
    pub(crate) discards: bool,
    /// `client_request_id`; each call without one is its own.
    pub(crate) request: Index,
    pub(crate) max: Option<u32>,
    pub(crate) moved: Option<u64>,
    pub(crate) replayed: bool,
    pub(crate) acked_superseded: bool,
    /// After this moment it takes effect no more.
    pub(crate) until: Nanos,
    /// The record that a decision about many names.
    pub(crate) redrive: Index,
}

/// Where a message is shown to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    Delayed,
    Ready,
    Leased,
    Dead,
    Ended,
}

/// A message in a listing or a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) n: u64,
    pub(crate) kind: Kind,
    pub(crate) queue: Index,
    pub(crate) message: Index,
    pub(crate) place: Place,
    pub(crate) replica: u32,
    /// Number of the pass of a final listing.
    pub(crate) pass: Index,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
    pub(crate) attempts: u32,
    pub(crate) redrives: u32,
    /// Of a dead letter: 0 none, else a word of [`super::gather::REASONS`].
    pub(crate) reason: u8,
    pub(crate) request: Index,
}

/// A page of a final listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) queue: Index,
    pub(crate) place: Place,
    pub(crate) replica: u32,
    pub(crate) pass: Index,
    pub(crate) last: bool,
    pub(crate) t_inv: Nanos,
    pub(crate) t_ret: Nanos,
}

impl Delivery {
    /// Granted when `earlier` surely was already.
    pub(crate) fn is_surely_after(&self, earlier: &Self) -> bool {
        earlier.granted.1 <= self.granted.0
    }
}

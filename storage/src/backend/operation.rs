//! What operators do, and the answers to it: kept for repeats, so they can be written as JSON.

use super::Stir;
use crate::dead_letters::DeadFilter;
use crate::model::{MessageId, Policy, QueueUid};
use crate::redrives::{RedriveId, RedrivePlan, Steer};
use crate::rules::operate::{Act, ActRefused};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who calls, and what makes a repeat of the call recognisable. Every operation leaves an audit row with the actor and the
/// justification.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The principal's id, never a secret.
    pub actor: Arc<str>,
    /// Repeating with this id gives the first answer again, for 7 days.
    pub request_id: Option<Arc<str>>,
    /// Hash over route and body, to tell a repeat from a reuse.
    pub fingerprint: i64,
    /// What the operator wrote.
    pub justification: Option<Arc<str>>,
    /// `Request-Id` of the HTTP request, for the audit row.
    pub http_request: Option<Arc<str>>,
}

impl Call {
    /// A call of `actor` that is never repeated and needs no words.
    pub fn by(actor: &str) -> Self {
        Self {
            actor: actor.into(),
            ..Self::default()
        }
    }
}

/// Something an operator does. One transaction: look up the request id, act, write the audit row, remember the answer.
#[derive(Clone, Debug)]
pub enum Operation {
    /// One message.
    Act {
        /// Must be the message's queue, where given; else it counts as not found.
        queue: Option<QueueUid>,
        /// The message.
        id: MessageId,
        /// The decision.
        act: Act,
    },
    /// Change a dead letter's payload or headers. Id, request id, key and fingerprint stay as they were published. What is there
    /// already is no change: no revision, no audit row.
    Edit {
        /// Must be the message's queue.
        queue: QueueUid,
        /// The message.
        id: MessageId,
        /// The revision that the caller changed; another one is there: [`OperationRefused::RevisionConflict`].
        base: i32,
        /// The whole new JSON text.
        payload: Bytes,
        /// The new headers, as one JSON object's text; `None` = none.
        headers: Option<Arc<str>>,
    },
    /// Put a dead letter's payload and headers back to what they were when it died, as a new revision.
    UndoEdit {
        /// Must be the message's queue.
        queue: QueueUid,
        /// The message.
        id: MessageId,
    },
    /// Freeze which dead letters of a queue a bulk decision is about.
    Select {
        /// Whose.
        queue: QueueUid,
        /// Which.
        filter: Box<DeadFilter>,
    },
    /// Begin a bulk decision.
    StartRedrive(Box<RedrivePlan>),
    /// Change a bulk decision that is under way.
    SteerRedrive {
        /// Which.
        id: RedriveId,
        /// How.
        steer: Steer,
    },
    /// Everything that waits or is leased, in one step at any depth.
    Purge {
        /// Whose.
        queue: QueueUid,
        /// Also the dead letters.
        dead_letters: bool,
    },
    /// Stop or start hand-outs.
    Pause {
        /// Whose.
        queue: QueueUid,
        /// Stop.
        paused: bool,
    },
    /// Create the queue or replace its policy.
    PutQueue {
        /// Its name, valid.
        name: Arc<str>,
        /// The whole policy.
        policy: Box<Policy>,
        /// What must be there.
        expect: Expect,
    },
    /// Delete the queue. Its request ids, keys and totals stay with the name.
    DeleteQueue {
        /// Whose.
        queue: QueueUid,
        /// Also when it holds messages; they count as purged.
        force: bool,
        /// The version that must be there, from `If-Match`.
        version: Option<i64>,
    },
}

/// What a [`Operation::PutQueue`] requires of the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: create or replace.
    Anything,
    /// The queue is not there; when it is, it is left as it is and answered.
    Absent,
    /// The queue is there in this version.
    Version(i64),
}

/// The answer to an [`Operation`]; kept for repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The message is where it was wanted.
    Acted {
        /// The message.
        id: i64,
        /// Its state now, as [`State::code`].
        state: i16,
        /// A remembered completion took effect instead.
        acked_superseded: bool,
    },
    /// The dead letter is changed.
    Edited {
        /// The message.
        id: i64,
        /// The revision that is there now.
        revision: i32,
        /// It differs from what it was when it died.
        edited: bool,
    },
    /// The selection is made.
    Selected {
        /// Its number.
        id: i64,
    },
    /// The bulk decision has begun, or is changed.
    Redrive {
        /// Its number.
        id: i64,
    },
    /// Messages were taken out.
    Purged {
        /// How many.
        purged: i64,
    },
    /// The queue is as it was wanted.
    Queue {
        /// Stable number of the name.
        uid: i32,
        /// It was not there before.
        created: bool,
    },
    /// The queue is gone.
    Deleted {
        /// Messages that went with it.
        purged: i64,
    },
    /// Nothing happened.
    Refused(OperationRefused),
}

/// Why an [`Operation`] was refused. Refusals are not remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationRefused {
    /// No such message.
    MessageNotFound,
    /// No such queue.
    QueueNotFound,
    /// It is not a dead letter.
    NotDead,
    /// It is one already.
    AlreadyDead,
    /// It is not waiting.
    NotWaiting,
    /// It is not delayed.
    NotDelayed,
    /// `max_redrives` is reached.
    RedriveLimit,
    /// A worker has reported the work as done.
    CompletionRemembered,
    /// Its `expires_at` is over.
    Expired,
    /// `If-Match` names another version.
    VersionMismatch,
    /// It holds messages.
    QueueNotEmpty,
    /// `unique_key` cannot be switched on over repeated live keys.
    KeysNotUnique,
    /// The request id was used for another call.
    RequestIdConflict,
    /// It is not a discarded dead letter.
    NotDiscarded,
    /// It was discarded too long ago: its payload is gone.
    PayloadGone,
    /// Its key must be unique and belongs to another message now.
    KeyTaken,
    /// Nobody has changed it since it died.
    NotEdited,
    /// Somebody else has changed it meanwhile.
    RevisionConflict,
    /// It was changed [`MAX_REVISIONS`] times. Taking the changes back is still possible.
    RevisionLimit,
    /// No such selection.
    SelectionNotFound,
    /// The selection is too old.
    SelectionExpired,
    /// The operator expects another number of messages than the selection has.
    CountMismatch {
        /// What the selection has.
        actual: i64,
    },
    /// No such redrive.
    RedriveNotFound,
    /// The redrive is in a final state.
    RedriveFinished,
}

/// Changes of one dead letter's payload, at most; taking them back is one more.
pub const MAX_REVISIONS: i32 = 20;

impl From<ActRefused> for OperationRefused {
    fn from(refused: ActRefused) -> Self {
        match refused {
            ActRefused::NotFound => Self::MessageNotFound,
            ActRefused::NotDead => Self::NotDead,
            ActRefused::AlreadyDead => Self::AlreadyDead,
            ActRefused::NotWaiting => Self::NotWaiting,
            ActRefused::NotDelayed => Self::NotDelayed,
            ActRefused::RedriveLimit => Self::RedriveLimit,
            ActRefused::CompletionRemembered => Self::CompletionRemembered,
            ActRefused::Expired => Self::Expired,
            ActRefused::NotDiscarded => Self::NotDiscarded,
            ActRefused::PayloadGone => Self::PayloadGone,
            ActRefused::NotEdited => Self::NotEdited,
        }
    }
}

/// What [`Backend::operate`] answers.
#[derive(Clone, Debug)]
pub struct Operated {
    /// The answer, or the first answer again.
    pub answer: Answer,
    /// This call was answered before.
    pub repeated: bool,
    /// Whom to wake.
    pub stir: Stir,
}

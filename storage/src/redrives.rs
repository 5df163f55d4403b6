//! A bulk decision over a selection, as a resource that goes on by itself: redrive or discard, slowly, with a canary.
//!
//! How it goes on is decided in [`crate::rules::bulk`]; a store runs one bounded step at a time
//! ([`Backend::step_redrives`](crate::backend::Backend::step_redrives)), each in one transaction that moves the messages, writes
//! their audit rows and saves this record. So any replica can go on where another one stopped, and each message is decided once.

use crate::backend::Cursor;
use crate::dead_letters::SelectionId;
use crate::model::{DiscardCode, Millis, QueueUid, coded_enum, read_number, write_number};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How long redriven messages are watched after their redrive ended: 24 hours.
pub const WATCH_MS: Millis = 86_400_000;

/// The number of a [`Redrive`]; written as `rdv_` and 13 characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RedriveId(pub i64);

impl RedriveId {
    /// Reads the written form.
    pub fn parse(text: &str) -> Option<Self> {
        read_number("rdv_", text).map(Self)
    }
}

impl fmt::Display for RedriveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_number("rdv_", self.0, f)
    }
}

/// What is done to each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkAction {
    /// Another round.
    Redrive,
    /// Left undone, for this reason; the words are in the call's justification.
    Discard(DiscardCode),
}

/// A few first, then a pause to see what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// How many, at least 1.
    pub count: u32,
    /// How long the pause is at most; it ends sooner when all of them are gone.
    pub wait_ms: Millis,
}

/// When to stop by itself: see [`crate::rules::bulk`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbortIf {
    /// This part of the redriven ones, or more, died again. Above 0, at most 1.
    pub failed_fraction: f64,
    /// Judge no smaller number, at least 1.
    pub min_sample: u32,
}

/// What an operator asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RedrivePlan {
    /// Which messages.
    pub selection: SelectionId,
    /// What is done to them.
    pub action: BulkAction,
    /// How many the operator believes they are.
    pub expected_count: i64,
    /// Decide at most this many.
    pub max: Option<i64>,
    /// Messages per second, above 0; `None` = no limit.
    pub rate: Option<f64>,
    /// A few first.
    pub canary: Option<Canary>,
    /// When to stop.
    pub abort_if: Option<AbortIf>,
    /// Also above `max_redrives`, or although a completion is remembered.
    pub force: bool,
    /// Count what would happen, and change nothing.
    pub dry_run: bool,
}

coded_enum! {
    /// Where a redrive is in its own life.
    RedriveState {
        /// Moves the first few, or waits to see what becomes of them.
        Canary = 1 => "canary",
        /// Moves.
        Running = 2 => "running",
        /// Stopped by an operator, for now.
        Paused = 3 => "paused",
        /// Stopped by itself, for good: too many died again.
        Aborted = 4 => "aborted",
        /// Stopped by an operator, for good.
        Cancelled = 5 => "cancelled",
        /// Came to the end of its selection, or of its `max`.
        Done = 6 => "done",
    }
}

impl RedriveState {
    /// It will never move a message again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Aborted | Self::Cancelled | Self::Done)
    }
}

/// Messages of the selection that were left alone, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// At or above `max_redrives`.
    pub redrive_limit: i64,
    /// A worker has reported the work as done.
    pub completion_remembered: i64,
    /// Past their `expires_at`.
    pub expired: i64,
    /// Changed or decided by somebody else since the selection was made. Known once the end of the selection is reached.
    pub changed: i64,
}

impl Skipped {
    /// All of them.
    pub fn total(&self) -> i64 {
        self.redrive_limit + self.completion_remembered + self.expired + self.changed
    }
}

/// A bulk decision and how far it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Redrive {
    /// Its number.
    pub id: RedriveId,
    /// Whose dead letters.
    pub queue: QueueUid,
    /// What was asked for; the rate may have been changed since.
    pub plan: RedrivePlan,
    /// Who asked.
    pub actor: String,
    /// Why.
    pub justification: Option<String>,
    /// The selection's count.
    pub count: i64,
    /// Where it is.
    pub state: RedriveState,
    /// Messages decided; with `dry_run`, those that would be.
    pub moved: i64,
    /// Messages left alone.
    pub skipped: Skipped,
    /// Redriven ones that died again, other than by an operator.
    pub failed_again: i64,
    /// Place among the redriven ones (from 1) of the last of those that died again: all up to there have had as much time.
    pub failed_up_to: i64,
    /// How far the selection is looked through, by (time of death, id).
    pub cursor: Option<(Millis, i64)>,
    /// When the canary's pause ends at the latest, once it has begun.
    pub canary_until: Option<Millis>,
    /// The canary was judged.
    pub canary_over: bool,
    /// The time up to which the rate is used up.
    pub paced_until: Millis,
    /// When it may do the next step.
    pub next_at: Millis,
    /// When it was asked for.
    pub created_at: Millis,
    /// When it came to a final state.
    pub finished_at: Option<Millis>,
}

impl Redrive {
    /// One that begins now.
    pub fn new(id: RedriveId, queue: QueueUid, plan: RedrivePlan, count: i64, now: Millis) -> Self {
        let canary = plan.canary.is_some() && !plan.dry_run;
        Self {
            id,
            queue,
            plan,
            actor: String::new(),
            justification: None,
            count,
            state: if canary {
                RedriveState::Canary
            } else {
                RedriveState::Running
            },
            moved: 0,
            skipped: Skipped::default(),
            failed_again: 0,
            failed_up_to: 0,
            cursor: None,
            canary_until: None,
            canary_over: !canary,
            paced_until: now,
            next_at: now,
            created_at: now,
            finished_at: None,
        }
    }

    /// Messages that it may decide: all of the selection, or its `max`.
    pub fn goal(&self) -> i64 {
        self.plan.max.map_or(self.count, |max| max.min(self.count))
    }

    /// Messages that are still to be decided, as far as is known; of one that was cancelled or aborted, those that were not.
    pub fn remaining(&self) -> i64 {
        if self.state == RedriveState::Done {
            return 0;
        }
        let left = self.count - self.moved - self.skipped.total();
        left.min(self.goal() - self.moved).max(0)
    }

    /// The place to continue at.
    pub fn after(&self) -> Option<Cursor> {
        self.cursor.map(|(at, id)| Cursor {
            priority: 0,
            at,
            id: crate::model::MessageId(id),
        })
    }
}

/// What an operator does to a redrive that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steer {
    /// Stop for now.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good.
    Cancel,
    /// Messages per second from now on; `None` = no limit.
    Rate(Option<f64>),
}

impl Steer {
    /// As written in audit rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pause => "pause_redrive",
            Self::Resume => "resume_redrive",
            Self::Cancel => "cancel_redrive",
            Self::Rate(_) => "change_redrive",
        }
    }
}

/// Which redrives.
#[derive(Clone, Debug, Default)]
pub struct RedriveListing {
    /// Of these queues; `None` = of all.
    pub queues: Option<Vec<QueueUid>>,
    /// In this state.
    pub state: Option<RedriveState>,
    /// Only older ones than this.
    pub before: Option<RedriveId>,
    /// At most this many, the youngest first.
    pub limit: u32,
}

/// What one step did.
#[derive(Clone, Debug, Default)]
pub struct Stepped {
    /// A redrive made a step: there may be more to do at once.
    pub stepped: bool,
    /// When the next step is due; `None` = nothing is under way.
    pub next_at: Option<Millis>,
    /// Whom to wake.
    pub stir: crate::backend::Stir,
    /// The store's time.
    pub now: Millis,
}

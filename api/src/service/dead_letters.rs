//! Dead letters: another round, or the decision that there is none.

use super::messages::Decided;
use super::{Done, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Answer, Call, Operation};
use quita_storage::model::{MessageId, Millis};
use quita_storage::rules::operate::Act;

/// What a redrive of the oldest dead letters did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redriven {
    /// Given another round.
    pub moved: u32,
    /// Left: at `max_redrives`.
    pub skipped_redrive_limit: u32,
    /// Left: a worker has reported the work as done.
    pub skipped_completion: u32,
    /// Left: past their `expires_at`.
    pub skipped_expired: u32,
    /// Dead letters of the queue now.
    pub remaining: i64,
}

impl Service {
    /// Gives one dead letter another round: same id, keys and payload.
    pub async fn redrive(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
        force: bool,
        expires_in_ms: Option<Millis>,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Redrive, queue).await?;
        let act = Act::Redrive {
            force,
            expires_in_ms,
        };
        self.act(call, &queue, id, act).await
    }

    /// Decides that a dead letter stays undone.
    pub async fn discard(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Discard, queue).await?;
        self.act(call, &queue, id, Act::Discard).await
    }

    /// Gives the oldest dead letters another round, at most `limit`.
    pub async fn redrive_oldest(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        limit: u32,
    ) -> Result<Done<Redriven>> {
        let queue = self.queue_for(caller, Right::Redrive, queue).await?;
        let operation = Operation::RedriveOldest {
            queue: queue.uid,
            limit,
        };
        let (answer, repeated) = self.operate(call, operation).await?;
        let Answer::Redriven {
            moved,
            skipped_redrive_limit,
            skipped_completion,
            skipped_expired,
            remaining,
        } = answer
        else {
            return Err(unexpected(&answer));
        };
        let redriven = Redriven {
            moved,
            skipped_redrive_limit,
            skipped_completion,
            skipped_expired,
            remaining,
        };
        Ok(Done::new(redriven, repeated))
    }
}

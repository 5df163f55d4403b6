//! Dead letters: another round, or the decision that there is none.

use super::messages::Decided;
use super::{Done, Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::backend::Call;
use quita_storage::model::{DiscardCode, MessageId, Millis};
use quita_storage::rules::operate::Act;

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
        code: DiscardCode,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Discard, queue).await?;
        self.act(call, &queue, id, Act::Discard { code }).await
    }
}

//! What operators make of a dead letter's payload and headers.

use super::{Done, Error, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use bytes::Bytes;
use quita_storage::backend::{Answer, Call, Operation, OperationRefused};
use quita_storage::model::{MessageId, Place, Queue};
use std::sync::Arc;

/// How often a change is worked out again because somebody else changed the same dead letter meanwhile.
const MAX_REBASES: usize = 5;
/// A revision that there never is. A call with it is refused without an effect, unless it repeats one that was answered.
const NO_REVISION: i32 = -1;

/// What an operator may change of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// JSON text, byte for byte.
    pub payload: Bytes,
    /// Canonical text of a JSON object with string members; `None` when there are none.
    pub headers: Option<Arc<str>>,
}

/// A dead letter after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The message.
    pub id: MessageId,
    /// The revision that is there now.
    pub revision: i32,
    /// It differs from what it was when it died.
    pub edited: bool,
}

/// A dead letter's content as it is now.
struct Present {
    content: Content,
    key_bytes: usize,
    revision: i32,
}

impl Service {
    /// Changes a dead letter's payload or headers by `change`, which gets what is there now and may refuse with an error of
    /// the caller's own. When somebody else changed it meanwhile: worked out again with `rebase`, else refused.
    ///
    /// A call that was answered before gets that answer again, whatever has become of the message since.
    pub async fn edit<E: From<Error>>(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
        rebase: bool,
        change: impl Fn(&Content) -> Result<Content, E>,
    ) -> Result<Done<Edited>, E> {
        let queue = self.queue_to_edit(caller, queue).await?;
        for _ in 0..MAX_REBASES {
            let worked_out = match self.present(&queue, id).await {
                Ok(present) => change(&present.content).and_then(|content| {
                    fits(&queue, &content, present.key_bytes)?;
                    Ok((present.revision, content))
                }),
                Err(refused) => Err(refused.into()),
            };
            let (base, content) = match worked_out {
                Ok(worked_out) => worked_out,
                Err(refused) => return self.first_answer(call, &queue, id, refused).await,
            };
            let edit = Operation::Edit {
                queue: queue.uid,
                id,
                base,
                payload: content.payload,
                headers: content.headers,
            };
            match self.write_revision(call, edit).await {
                Err(Error::Operation(OperationRefused::RevisionConflict)) if rebase => {}
                done => return Ok(done?),
            }
        }
        Err(Error::from(OperationRefused::RevisionConflict).into())
    }

    /// Puts payload and headers back to what they were when the message died.
    pub async fn undo_edit(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
    ) -> Result<Done<Edited>> {
        let queue = self.queue_to_edit(caller, queue).await?;
        let undo = Operation::UndoEdit {
            queue: queue.uid,
            id,
        };
        self.write_revision(call, undo).await
    }

    /// Who changes a message must be allowed to see it.
    async fn queue_to_edit(&self, caller: &Principal, name: &str) -> Result<Arc<Queue>> {
        let queue = self.queue_for(caller, Right::Redrive, name).await?;
        if !caller.may(Right::Payload, name) {
            return Err(self.no_such_queue(caller, Right::Payload, name).await);
        }
        Ok(queue)
    }

    async fn present(&self, queue: &Queue, id: MessageId) -> Result<Present> {
        let found = self.backend().message(id, None).await?;
        let detail = found
            .filter(|detail| detail.queue == queue.uid)
            .ok_or(Error::MessageNotFound)?;
        let (Some(message), Some(payload)) = (detail.message, detail.payload) else {
            return Err(Error::MessageNotFound);
        };
        match message.place {
            Place::Dead(_) => Ok(Present {
                content: Content {
                    payload,
                    headers: message.envelope.headers.clone(),
                },
                key_bytes: message.envelope.key.as_ref().map_or(0, |key| key.len()),
                revision: detail.revisions.last().map_or(0, |last| last.number),
            }),
            Place::Discarded(_) => Err(Error::MessageNotFound),
            _ => Err(OperationRefused::NotDead.into()),
        }
    }

    /// The answer that this call got before; when it is new, the refusal.
    async fn first_answer<E: From<Error>>(
        &self,
        call: &Call,
        queue: &Queue,
        id: MessageId,
        refused: E,
    ) -> Result<Done<Edited>, E> {
        if call.request_id.is_none() {
            return Err(refused);
        }
        let nothing = Operation::Edit {
            queue: queue.uid,
            id,
            base: NO_REVISION,
            payload: Bytes::new(),
            headers: None,
        };
        match self.write_revision(call, nothing).await {
            Ok(done) => Ok(done),
            Err(Error::Operation(OperationRefused::RequestIdConflict)) => {
                Err(Error::from(OperationRefused::RequestIdConflict).into())
            }
            Err(Error::Store(error)) => Err(Error::from(error).into()),
            Err(_) => Err(refused),
        }
    }

    async fn write_revision(&self, call: &Call, operation: Operation) -> Result<Done<Edited>> {
        let (answer, repeated) = self.operate(call, operation).await?;
        let Answer::Edited {
            id,
            revision,
            edited,
        } = answer
        else {
            return Err(unexpected(&answer));
        };
        let edited = Edited {
            id: MessageId(id),
            revision,
            edited,
        };
        Ok(Done::new(edited, repeated))
    }
}

/// The limit is that of a publish.
fn fits(queue: &Queue, content: &Content, key_bytes: usize) -> Result<()> {
    let headers = content.headers.as_ref().map_or(0, |headers| headers.len());
    let (size, limit) = (
        content.payload.len() + headers + key_bytes,
        queue.policy.max_message_bytes,
    );
    if size > limit as usize {
        return Err(Error::PayloadTooLarge { limit, size });
    }
    Ok(())
}

//! Messages as resources: browse, read, and an operator's decision about a single one.

use super::publish::digest;
use super::{Done, Error, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use bytes::Bytes;
use quita_storage::backend::{Answer, Browse, Call, Cursor, Detail, Operation, Page, RequestId};
use quita_storage::model::{MessageId, Queue, State};
use quita_storage::rules::operate::Act;
use std::sync::Arc;

/// Which messages of a queue to list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// In this state, in its own order.
    pub state: State,
    /// With this key.
    pub key: Option<Arc<str>>,
    /// With this request id.
    pub client_request_id: Option<Bytes>,
}

/// Everything about one message that the caller may see.
#[derive(Clone, Debug)]
pub struct MessageView {
    /// Its queue.
    pub queue: Arc<Queue>,
    /// What the store knows. Payload and revisions only with the right to them.
    pub detail: Box<Detail>,
    /// How often its payload or headers were changed.
    pub revision: i32,
    /// The caller may see what is inside.
    pub inside: bool,
}

/// What a decision about one message did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The message.
    pub id: MessageId,
    /// Where it is now.
    pub state: State,
    /// A remembered completion took effect instead.
    pub acked_superseded: bool,
}

impl Service {
    /// A page of one state. Leases nothing, counts nothing.
    pub async fn browse(
        &self,
        caller: &Principal,
        queue: &str,
        filter: Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<(Arc<Queue>, Page)> {
        let queue = self.queue_for(caller, Right::Read, queue).await?;
        let browse = Browse {
            queue: queue.uid,
            state: filter.state,
            key: filter.key,
            request_id: filter.client_request_id.map(|text| RequestId {
                digest: digest(&text),
                text,
            }),
            after,
            limit,
        };
        let page = self.backend().browse(browse, None).await?;
        Ok((queue, page))
    }

    /// Everything about one message.
    pub async fn message(&self, caller: &Principal, id: MessageId) -> Result<MessageView> {
        Self::entitled(caller, Right::Read)?;
        let (queue, mut detail) = self.find_message(id).await?;
        Self::allow(caller, Right::Read, &queue, Error::MessageNotFound)?;
        let revision = detail.revisions.last().map_or(0, |last| last.number);
        let inside = caller.may(Right::Payload, &queue.name);
        if !inside {
            detail.payload = None;
            detail.revisions.clear();
        }
        Ok(MessageView {
            queue,
            detail,
            revision,
            inside,
        })
    }

    async fn find_message(&self, id: MessageId) -> Result<(Arc<Queue>, Box<Detail>)> {
        let found = self.backend().message(id, None).await?;
        let detail = Box::new(found.ok_or(Error::MessageNotFound)?);
        let queue = self.catalog.by_uid(detail.queue).await?;
        let (queue, _) = queue.ok_or(Error::MessageNotFound)?;
        Ok((queue, detail))
    }

    /// Decides about one message, wherever it is.
    pub async fn decide(
        &self,
        caller: &Principal,
        call: &Call,
        right: Right,
        id: MessageId,
        act: Act,
    ) -> Result<Done<Decided>> {
        Self::entitled(caller, right)?;
        let (queue, _) = self.find_message(id).await?;
        Self::allow(caller, right, &queue, Error::MessageNotFound)?;
        self.act(call, &queue, id, act).await
    }

    pub(super) async fn act(
        &self,
        call: &Call,
        queue: &Queue,
        id: MessageId,
        act: Act,
    ) -> Result<Done<Decided>> {
        let operation = Operation::Act {
            queue: Some(queue.uid),
            id,
            act,
        };
        let (answer, repeated) = self.operate(call, operation).await?;
        let Answer::Acted {
            id,
            state,
            acked_superseded,
        } = answer
        else {
            return Err(unexpected(&answer));
        };
        let decided = Decided {
            id: MessageId(id),
            state: State::from_code(state).unwrap_or(State::Ended),
            acked_superseded,
        };
        Ok(Done::new(decided, repeated))
    }
}

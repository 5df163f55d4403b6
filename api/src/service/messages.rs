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

    /// Everything about one message, and its queue. The payload only with the right to it.
    pub async fn message(
        &self,
        caller: &Principal,
        id: MessageId,
    ) -> Result<(Arc<Queue>, Box<Detail>)> {
        let found = self.backend().message(id, None).await?;
        let mut detail = Box::new(found.ok_or(Error::MessageNotFound)?);
        let queue = self.catalog.by_uid(detail.queue).await?;
        let (queue, _) = queue.ok_or(Error::MessageNotFound)?;
        if !caller.may(Right::Read, &queue.name) {
            return Err(Error::MessageNotFound);
        }
        if !caller.may(Right::Payload, &queue.name) {
            detail.payload = None;
        }
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
        let (queue, _) = self.message(caller, id).await?;
        if !caller.may(right, &queue.name) {
            return Err(Error::MessageNotFound);
        }
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

//! Queues as resources: list, read, create, change, pause, purge, delete.

use super::{Done, Error, MANY_QUEUES, MAX_STALE, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Answer, Call, Expect, Operation, OperationRefused, QueueNumbers};
use quita_storage::model::{Policy, Queue};
use std::sync::Arc;

/// A queue and its exact numbers.
#[derive(Clone, Debug)]
pub struct QueueView {
    /// What it is.
    pub queue: Arc<Queue>,
    /// What it holds.
    pub numbers: QueueNumbers,
}

/// What a change of a queue requires of its present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// Any version is there.
    Exists,
    /// None is there.
    Absent,
    /// This version is there.
    Version(i64),
    /// Names a version that can never be there.
    Never,
}

impl Service {
    /// Queues that the caller may read, in name order behind `after`; and the name where the next page begins.
    pub async fn queues(
        &self,
        caller: &Principal,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<QueueView>, Option<Arc<str>>)> {
        Self::entitled(caller, Right::Read)?;
        let wanted = limit + 1;
        let at_once = if caller.may_everywhere(Right::Read) {
            wanted
        } else {
            MANY_QUEUES
        };
        let mut visible: Vec<Queue> = Vec::new();
        let mut after = after.map(Arc::<str>::from);
        while visible.len() < wanted as usize {
            let queues = self.backend().queues(after.as_deref(), at_once).await?;
            let more = queues.len() as u32 == at_once;
            after = queues.last().map(|queue| queue.name.clone());
            let may_read = |queue: &Queue| caller.may(Right::Read, &queue.name);
            visible.extend(queues.into_iter().filter(may_read));
            if !more {
                break;
            }
        }
        let more = visible.len() > limit as usize;
        visible.truncate(limit as usize);
        // The next page begins behind a name that the caller may know.
        let last = visible.last().filter(|_| more);
        let next = last.map(|queue| queue.name.clone());
        let mut views = Vec::with_capacity(visible.len());
        for queue in visible {
            let numbers = self.backend().numbers(queue.uid, None).await?;
            let queue = Arc::new(queue);
            views.push(QueueView { queue, numbers });
        }
        Ok((views, next))
    }

    /// One queue as it is now.
    pub async fn queue(&self, caller: &Principal, name: &str) -> Result<QueueView> {
        if caller.may(Right::Read, name)
            && let Some(queue) = self.catalog.look(name).await?
        {
            let numbers = self.backend().numbers(queue.uid, None).await?;
            return Ok(QueueView { queue, numbers });
        }
        Err(self.no_such_queue(caller, Right::Read, name).await)
    }

    /// A queue as it is after a change, for whoever made it.
    async fn changed(&self, name: &str) -> Result<QueueView> {
        let absent = Error::QueueNotFound { nearest: None };
        let queue = self.catalog.look(name).await?.ok_or(absent)?;
        let numbers = self.backend().numbers(queue.uid, None).await?;
        Ok(QueueView { queue, numbers })
    }

    /// Creates the queue or replaces its policy; says whether it was created.
    pub async fn put_queue(
        &self,
        caller: &Principal,
        call: &Call,
        name: &str,
        policy: Policy,
        precondition: Precondition,
    ) -> Result<(QueueView, bool)> {
        if !caller.may(Right::Manage, name) {
            return Err(self.no_such_queue(caller, Right::Manage, name).await);
        }
        let expect = match precondition {
            Precondition::None => Expect::Anything,
            Precondition::Absent => Expect::Absent,
            Precondition::Version(version) => Expect::Version(version),
            Precondition::Never => return Err(OperationRefused::VersionMismatch.into()),
            Precondition::Exists => match self.catalog.look(name).await? {
                Some(queue) => Expect::Version(queue.version),
                None => return Err(OperationRefused::VersionMismatch.into()),
            },
        };
        let created = self.write_queue(call, name, policy, expect).await?;
        if expect == Expect::Absent && !created {
            return Err(OperationRefused::VersionMismatch.into());
        }
        Ok((self.changed(name).await?, created))
    }

    /// Changes the policy by `change`; repeated when somebody else changed it meanwhile, unless a version is required.
    ///
    /// `change` is called with the present policy and may refuse with an error of the caller's own.
    pub async fn patch_queue<E: From<Error>>(
        &self,
        caller: &Principal,
        call: &Call,
        name: &str,
        precondition: Precondition,
        change: impl Fn(Policy) -> Result<Policy, E>,
    ) -> Result<QueueView, E> {
        for _ in 0..MAX_STALE {
            let found = if caller.may(Right::Manage, name) {
                self.catalog.look(name).await.map_err(Error::from)?
            } else {
                None
            };
            let Some(queue) = found else {
                return Err(self.no_such_queue(caller, Right::Manage, name).await.into());
            };
            let met = match precondition {
                Precondition::None | Precondition::Exists => true,
                Precondition::Version(version) => version == queue.version,
                Precondition::Absent | Precondition::Never => false,
            };
            if !met {
                return Err(Error::from(OperationRefused::VersionMismatch).into());
            }
            let policy = change(Policy::clone(&queue.policy))?;
            let expect = Expect::Version(queue.version);
            match self.write_queue(call, name, policy, expect).await {
                Ok(_) => return Ok(self.changed(name).await?),
                Err(Error::Operation(OperationRefused::VersionMismatch)) => {}
                Err(refused) => return Err(refused.into()),
            }
        }
        Err(Error::QueueBusy.into())
    }

    async fn write_queue(
        &self,
        call: &Call,
        name: &str,
        policy: Policy,
        expect: Expect,
    ) -> Result<bool> {
        let operation = Operation::PutQueue {
            name: name.into(),
            policy: Box::new(policy),
            expect,
        };
        let (answer, _) = self.operate(call, operation).await?;
        let Answer::Queue { created, .. } = answer else {
            return Err(unexpected(&answer));
        };
        if let Some(queue) = self.catalog.look(name).await? {
            self.coalescer.wakeup().all(queue.uid);
        }
        if created {
            self.catalog.created(name);
        }
        Ok(created)
    }

    /// Stops or starts hand-outs. Once it is answered, no receive that begins afterwards leases anything from a paused
    /// queue, on any replica.
    pub async fn pause_queue(
        &self,
        caller: &Principal,
        call: &Call,
        name: &str,
        paused: bool,
    ) -> Result<Done<QueueView>> {
        let queue = self.queue_for(caller, Right::Manage, name).await?;
        let operation = Operation::Pause {
            queue: queue.uid,
            paused,
        };
        let (_, repeated) = self.operate(call, operation).await?;
        let view = self.changed(name).await?;
        self.coalescer.wakeup().all(queue.uid);
        Ok(Done::new(view, repeated))
    }

    /// Takes out everything that waits or is leased, and the dead letters where asked; answers how many.
    pub async fn purge_queue(
        &self,
        caller: &Principal,
        call: &Call,
        name: &str,
        dead_letters: bool,
    ) -> Result<Done<i64>> {
        let queue = self.queue_for(caller, Right::Manage, name).await?;
        if dead_letters && !caller.may(Right::Discard, name) {
            return Err(self.no_such_queue(caller, Right::Discard, name).await);
        }
        let operation = Operation::Purge {
            queue: queue.uid,
            dead_letters,
        };
        let (answer, repeated) = self.operate(call, operation).await?;
        self.catalog.look(name).await?;
        match answer {
            Answer::Purged { purged } => Ok(Done::new(purged, repeated)),
            answer => Err(unexpected(&answer)),
        }
    }

    /// Deletes the queue; answers how many messages went with it. Its waiting receives end as not found. With `force` its
    /// dead letters go, too: that takes the right to discard them.
    pub async fn delete_queue(
        &self,
        caller: &Principal,
        call: &Call,
        name: &str,
        force: bool,
        precondition: Precondition,
    ) -> Result<i64> {
        let queue = self.queue_for(caller, Right::Manage, name).await?;
        if force && !caller.may(Right::Discard, name) {
            return Err(self.no_such_queue(caller, Right::Discard, name).await);
        }
        let version = match precondition {
            Precondition::None | Precondition::Exists => None,
            Precondition::Version(version) => Some(version),
            Precondition::Absent | Precondition::Never => {
                return Err(OperationRefused::VersionMismatch.into());
            }
        };
        let operation = Operation::DeleteQueue {
            queue: queue.uid,
            force,
            version,
        };
        let (answer, _) = self.operate(call, operation).await?;
        self.catalog.look(name).await?;
        self.coalescer.wakeup().all(queue.uid);
        match answer {
            Answer::Deleted { purged } => Ok(purged),
            answer => Err(unexpected(&answer)),
        }
    }
}

//! The coalescer in front of a gated store: a batch begins only when the test lets it.

use super::*;
use crate::audit::{AuditPage, AuditQuery};
use crate::backend::{
    Answer as OperationAnswer, Batch, BatchOutcome, Browse, Call, Detail, Expect, Facts, Keep,
    KeyRecord, Kinds, Lane, Moved, Operated, Operation, Page, QueueNumbers,
};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::memory;
use crate::model::{Policy, Queue, QueueUid, State};
use crate::redrives::{Redrive, RedriveId, RedriveListing, Stepped};
use crate::rules::settle::{Action, Claim};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The memory store behind a gate: each batch takes a permit, is noted, and may be made to fail.
struct Gated {
    inner: Arc<dyn Backend>,
    gate: Semaphore,
    arrived: AtomicUsize,
    batches: Mutex<Vec<(usize, usize, usize)>>,
    unknown: Mutex<bool>,
    max_items: usize,
}

impl Gated {
    fn new(max_items: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: memory::open(),
            gate: Semaphore::new(0),
            arrived: AtomicUsize::new(0),
            batches: Mutex::default(),
            unknown: Mutex::new(false),
            max_items,
        })
    }

    /// Waits until `count` batches have begun since the start.
    async fn begun(&self, count: usize) {
        while self.arrived.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl Backend for Gated {
    async fn apply(&self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome> {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.batches.lock().push((
            batch.settles.len(),
            batch.publishes.len(),
            batch.receives.len(),
        ));
        if *self.unknown.lock() {
            return Err(StoreError::CommitUnknown("the line broke".into()));
        }
        if batch
            .publishes
            .iter()
            .any(|p| &p.payload[..] == b"\"poison\"")
        {
            return Err(StoreError::internal("poison"));
        }
        self.inner.apply(batch, now).await
    }
    async fn move_due(&self, now: Option<Millis>) -> Result<Moved> {
        self.inner.move_due(now).await
    }
    async fn operate(
        &self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Result<Operated> {
        self.inner.operate(call, operation, now).await
    }
    async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        self.inner.queue(name).await
    }
    async fn queue_by_uid(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>> {
        self.inner.queue_by_uid(uid).await
    }
    async fn queues(&self, after: Option<&str>, limit: u32) -> Result<Vec<Queue>> {
        self.inner.queues(after, limit).await
    }
    async fn numbers(&self, queue: QueueUid, now: Option<Millis>) -> Result<QueueNumbers> {
        self.inner.numbers(queue, now).await
    }
    async fn browse(&self, browse: Browse, now: Option<Millis>) -> Result<Page> {
        self.inner.browse(browse, now).await
    }
    async fn message(&self, id: MessageId, now: Option<Millis>) -> Result<Option<Detail>> {
        self.inner.message(id, now).await
    }
    async fn poll(&self, waiting: &[QueueUid]) -> Result<Vec<QueueUid>> {
        self.inner.poll(waiting).await
    }
    async fn dead_letters(&self, listing: &DeadListing, now: Option<Millis>) -> Result<Page> {
        self.inner.dead_letters(listing, now).await
    }
    async fn dead_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> Result<DeadGroups> {
        self.inner.dead_groups(queues, filter, limit, now).await
    }
    async fn selection(&self, id: SelectionId) -> Result<Option<Selection>> {
        self.inner.selection(id).await
    }
    async fn redrive(&self, id: RedriveId) -> Result<Option<Redrive>> {
        self.inner.redrive(id).await
    }
    async fn redrives(&self, listing: &RedriveListing) -> Result<Vec<Redrive>> {
        self.inner.redrives(listing).await
    }
    async fn step_redrives(&self, now: Option<Millis>) -> Result<Stepped> {
        self.inner.step_redrives(now).await
    }
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        self.inner.audit(query).await
    }
    async fn maintain(&self, keep: &Keep, now: Option<Millis>) -> Result<bool> {
        self.inner.maintain(keep, now).await
    }
    async fn keys(&self) -> Result<Vec<KeyRecord>> {
        self.inner.keys().await
    }
    async fn add_key(&self, call: &Call, key: KeyRecord, only_first: bool) -> Result<bool> {
        self.inner.add_key(call, key, only_first).await
    }
    async fn revoke_key(&self, call: &Call, id: &str, now: Option<Millis>) -> Result<bool> {
        self.inner.revoke_key(call, id, now).await
    }
    async fn rotate_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: KeyRecord,
    ) -> Result<bool> {
        self.inner.rotate_key(call, id, ends_at, new).await
    }
    async fn touch_keys(&self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        self.inner.touch_keys(used).await
    }
    fn facts(&self) -> &Facts {
        self.inner.facts()
    }
    fn lanes(&self) -> Vec<Lane> {
        let kinds = Kinds {
            settles: true,
            publishes: true,
            receives: true,
        };
        vec![Lane {
            kinds,
            dedicated: false,
            max_items: self.max_items,
            max_bytes: 1 << 20,
        }]
    }
    async fn check(&self) -> Result<()> {
        self.inner.check().await
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}

struct Setup {
    store: Arc<Gated>,
    coalescer: Coalescer,
    queues: Vec<Arc<Queue>>,
}

async fn setup(max_items: usize, limits: Limits) -> Setup {
    let store = Gated::new(max_items);
    let mut queues = Vec::new();
    for name in ["first", "second"] {
        let operation = Operation::PutQueue {
            name: name.into(),
            policy: Box::new(Policy::default()),
            expect: Expect::Anything,
        };
        let operated = store
            .operate(&Call::default(), operation, None)
            .await
            .unwrap();
        assert!(matches!(
            operated.answer,
            OperationAnswer::Queue { created: true, .. }
        ));
        queues.push(Arc::new(store.queue(name).await.unwrap().unwrap()));
    }
    let coalescer = Coalescer::start(store.clone(), Arc::default(), Arc::default(), limits);
    Setup {
        store,
        coalescer,
        queues,
    }
}

fn message(queue: &Arc<Queue>, payload: &'static str) -> Publish {
    Publish {
        queue: queue.clone(),
        request_id: None,
        fingerprint: 0,
        key: None,
        delay_ms: 0,
        priority: 4,
        headers: None,
        payload: Bytes::from_static(payload.as_bytes()),
        expires_in_ms: None,
        max_attempts: None,
        backoff: None,
    }
}

fn ask(queue: &Arc<Queue>) -> Receive {
    Receive {
        queue: queue.clone(),
        max: 1,
        lease_ms: 30_000,
        worker: None,
    }
}

impl Setup {
    /// A publish under way; it has reached the intake when this returns.
    async fn publishing(
        &self,
        queue: usize,
        payload: &'static str,
    ) -> tokio::task::JoinHandle<Result<Vec<Published>>> {
        let before = self.coalescer.waiting().0;
        let (coalescer, item) = (
            self.coalescer.clone(),
            message(&self.queues[queue], payload),
        );
        let handle = tokio::spawn(async move { coalescer.publish(vec![item]).await });
        while self.coalescer.waiting().0 == before {
            tokio::task::yield_now().await;
        }
        handle
    }

    /// Occupies the lane, so that what comes next gathers behind it.
    async fn occupy(&self) -> tokio::task::JoinHandle<Result<Vec<Published>>> {
        let (coalescer, item) = (self.coalescer.clone(), message(&self.queues[0], "0"));
        let begun = self.store.arrived.load(Ordering::SeqCst);
        let handle = tokio::spawn(async move { coalescer.publish(vec![item]).await });
        self.store.begun(begun + 1).await;
        handle
    }
}

#[tokio::test]
async fn what_comes_during_a_commit_is_the_next_batch() {
    let setup = setup(512, Limits::default()).await;
    let first = setup.occupy().await;
    let mut rest = Vec::new();
    for _ in 0..40 {
        rest.push(setup.publishing(0, "1").await);
    }
    setup.store.gate.add_permits(2);
    first.await.unwrap().unwrap();
    for handle in rest {
        assert!(matches!(
            handle.await.unwrap().unwrap()[..],
            [Published::Created { .. }]
        ));
    }
    assert_eq!(*setup.store.batches.lock(), [(0, 1, 0), (0, 40, 0)]);
}

#[tokio::test]
async fn a_caller_that_hung_up_costs_nothing() {
    let setup = setup(512, Limits::default()).await;
    let first = setup.occupy().await;
    let gone = setup.publishing(0, "1").await;
    let stays = setup.publishing(0, "2").await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    setup.store.gate.add_permits(2);
    first.await.unwrap().unwrap();
    stays.await.unwrap().unwrap();
    assert_eq!(*setup.store.batches.lock(), [(0, 1, 0), (0, 1, 0)]);
    let numbers = setup
        .store
        .numbers(setup.queues[0].uid, None)
        .await
        .unwrap();
    assert_eq!(numbers.counts.accepted, 2);
}

#[tokio::test]
async fn a_receive_whose_caller_left_during_the_commit_gives_its_leases_back() {
    let setup = setup(512, Limits::default()).await;
    setup.store.gate.add_permits(1);
    setup
        .coalescer
        .publish(vec![message(&setup.queues[0], "1")])
        .await
        .unwrap();
    let (coalescer, item) = (setup.coalescer.clone(), ask(&setup.queues[0]));
    let gone = tokio::spawn(async move { coalescer.receive(item).await.map(|_| ()) });
    setup.store.begun(2).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    // The receive commits, then its give-back, then the next receive.
    setup.store.gate.add_permits(2);
    setup.store.begun(3).await;
    setup.store.gate.add_permits(1);
    let grant = setup
        .coalescer
        .receive(ask(&setup.queues[0]))
        .await
        .unwrap();
    let Handed::Messages(deliveries) = grant.handed else {
        panic!("no messages")
    };
    assert_eq!(deliveries.len(), 1);
    assert_eq!(
        deliveries[0].message.life.attempts, 0,
        "nothing was counted"
    );
    assert_eq!(deliveries[0].message.life.fence, 2);
    grant.held.delivered();
}

#[tokio::test]
async fn a_dropped_grant_gives_back_and_a_delivered_one_does_not() {
    let setup = setup(512, Limits::default()).await;
    setup.store.gate.add_permits(100);
    setup
        .coalescer
        .publish(vec![
            message(&setup.queues[0], "1"),
            message(&setup.queues[0], "2"),
        ])
        .await
        .unwrap();
    let dropped = setup
        .coalescer
        .receive(ask(&setup.queues[0]))
        .await
        .unwrap();
    drop(dropped);
    setup.store.begun(3).await;
    let delivered = setup
        .coalescer
        .receive(Receive {
            max: 2,
            ..ask(&setup.queues[0])
        })
        .await
        .unwrap();
    let Handed::Messages(deliveries) = &delivered.handed else {
        panic!("no messages")
    };
    assert_eq!(deliveries.len(), 2);
    delivered.held.delivered();
    setup.coalescer.drain().await;
    let numbers = setup
        .store
        .numbers(setup.queues[0].uid, None)
        .await
        .unwrap();
    assert_eq!((numbers.counts.leased, numbers.counts.ready), (2, 0));
}

#[tokio::test]
async fn one_bad_item_never_fails_its_neighbours() {
    let setup = setup(512, Limits::default()).await;
    let first = setup.occupy().await;
    let mut handles = Vec::new();
    for index in 0..9 {
        handles.push(
            setup
                .publishing(0, if index == 5 { "\"poison\"" } else { "1" })
                .await,
        );
    }
    setup.store.gate.add_permits(100);
    first.await.unwrap().unwrap();
    for (index, handle) in handles.into_iter().enumerate() {
        let answer = handle.await.unwrap();
        assert_eq!(answer.is_err(), index == 5, "{index}: {answer:?}");
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_said_and_nothing_is_run_again() {
    let setup = setup(512, Limits::default()).await;
    let first = setup.occupy().await;
    let second = setup.publishing(0, "1").await;
    *setup.store.unknown.lock() = true;
    setup.store.gate.add_permits(2);
    assert!(matches!(
        first.await.unwrap(),
        Err(StoreError::CommitUnknown(_))
    ));
    assert!(matches!(
        second.await.unwrap(),
        Err(StoreError::CommitUnknown(_))
    ));
    assert_eq!(setup.store.batches.lock().len(), 2);
}

#[tokio::test]
async fn a_busy_queue_leaves_room_for_a_quiet_one() {
    let setup = setup(64, Limits::default()).await;
    let first = setup.occupy().await;
    for _ in 0..200 {
        setup.publishing(0, "1").await;
    }
    let quiet = setup.publishing(1, "2").await;
    setup.store.gate.add_permits(2);
    first.await.unwrap().unwrap();
    assert!(matches!(
        quiet.await.unwrap().unwrap()[..],
        [Published::Created {
            state: State::Ready,
            ..
        }]
    ));
    assert_eq!(setup.store.batches.lock()[1].1, 64);
}

#[tokio::test]
async fn beyond_the_bound_new_work_is_shed_and_settles_are_not() {
    let setup = setup(
        512,
        Limits {
            items: 3,
            bytes: 1 << 20,
        },
    )
    .await;
    let first = setup.occupy().await;
    for _ in 0..3 {
        setup.publishing(0, "1").await;
    }
    let shed = setup
        .coalescer
        .publish(vec![message(&setup.queues[0], "1")])
        .await;
    assert!(matches!(shed, Err(StoreError::Overloaded)));
    let coalescer = setup.coalescer.clone();
    let claim = Claim {
        fence: 1,
        handed_out_at: 0,
        action: Action::Ack { outcome: None },
        chance: 0.0,
    };
    let settle = Settle {
        queue: setup.queues[0].clone(),
        id: MessageId(7),
        claim,
    };
    let settled = tokio::spawn(async move { coalescer.settle(vec![settle]).await });
    setup.store.gate.add_permits(100);
    first.await.unwrap().unwrap();
    assert_eq!(settled.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_drain_commits_what_waits_and_takes_nothing_more() {
    let setup = setup(512, Limits::default()).await;
    let first = setup.occupy().await;
    let waiting = setup.publishing(0, "1").await;
    setup.coalescer.refuse_new_work();
    let refused = setup
        .coalescer
        .publish(vec![message(&setup.queues[0], "2")])
        .await;
    assert!(matches!(refused, Err(StoreError::Draining)));
    setup.store.gate.add_permits(100);
    tokio::time::timeout(Duration::from_secs(10), setup.coalescer.drain())
        .await
        .unwrap();
    first.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    let numbers = setup
        .store
        .numbers(setup.queues[0].uid, None)
        .await
        .unwrap();
    assert_eq!(numbers.counts.accepted, 2);
}

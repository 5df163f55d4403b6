//! One store, a clock that only the test moves, and short words for what a test does.
//!
//! Every word that answers a value panics when the store fails; refusals are values.

use bytes::Bytes;
use quita_storage::backend::{
    Answer, Backend, Batch, BatchOutcome, Browse, Call, Cursor, Delivery, Detail, Expect, Keep,
    Listed, Operated, Operation, OperationRefused, Publish, Published, QueueNumbers, Receive,
    Received, RequestId, Settle, SettleOutcome,
};
use quita_storage::dead_letters::{DeadFilter, DeadListing, Selection, SelectionId};
use quita_storage::model::{
    Backoff, Counts, DiscardCode, Failure, Jitter, MessageId, Millis, Policy, Queue, QueueUid,
    Reason, State,
};
use quita_storage::redrives::{BulkAction, Redrive, RedriveId, RedrivePlan, Stepped};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::{Action, Claim, Refused, Settled};
use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// 2030-01-01T00:00:00Z: where every test's clock starts.
pub const START: Millis = 1_893_456_000_000;
/// One second.
pub const SECOND: Millis = 1_000;
/// One minute.
pub const MINUTE: Millis = 60 * SECOND;
/// One hour.
pub const HOUR: Millis = 60 * MINUTE;
/// One day.
pub const DAY: Millis = 24 * HOUR;
/// Length of a lease where a test does not say otherwise.
pub const LEASE: Millis = 30 * SECOND;
/// Wait after a failure where a test does not say otherwise.
pub const BACKOFF: Millis = 10 * SECOND;

/// The policy that a test starts from: the defaults, with a wait that is always the same.
pub fn plain_policy() -> Policy {
    Policy {
        backoff: Backoff::Fixed {
            base_ms: BACKOFF,
            jitter: Jitter::None,
        },
        ..Policy::default()
    }
}

/// One store under test.
pub struct Fixture {
    /// The store.
    pub backend: Arc<dyn Backend>,
    now: Cell<Millis>,
    queues: RefCell<Vec<QueueUid>>,
}

/// A queue of a [`Fixture`]; its view of the policy is always fresh.
#[derive(Clone, Copy)]
pub struct TestQueue<'f> {
    /// Where it is.
    pub fixture: &'f Fixture,
    /// Its number.
    pub uid: QueueUid,
}

/// One hand-out, with the claim that its receipt makes.
#[derive(Clone, Debug)]
pub struct Hand {
    /// What the receive answered.
    pub delivery: Delivery,
    /// The queue.
    pub queue: QueueUid,
    /// The message.
    pub id: MessageId,
    /// The delivery.
    pub fence: i32,
    /// When.
    pub handed_out_at: Millis,
}

impl Hand {
    /// The hand-out in a receive's answer.
    pub fn of(delivery: Delivery, now: Millis) -> Self {
        Self {
            queue: delivery.message.envelope.queue,
            id: delivery.message.envelope.id,
            fence: delivery.message.life.fence,
            handed_out_at: now,
            delivery,
        }
    }

    /// Attempts used before, plus this one.
    pub fn attempt(&self) -> i32 {
        self.delivery.message.life.attempts + 1
    }
}

impl Fixture {
    /// Around an empty store.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            now: Cell::new(START),
            queues: RefCell::default(),
        }
    }

    /// The time that every call carries.
    pub fn now(&self) -> Millis {
        self.now.get()
    }

    /// Lets time pass, and nothing else happen.
    pub fn pass(&self, ms: Millis) {
        self.now.set(self.now.get() + ms);
    }

    /// Lets time pass and the sweep do its work.
    pub async fn pass_and_sweep(&self, ms: Millis) {
        self.pass(ms);
        self.sweep().await;
    }

    /// Files everything that is due.
    pub async fn sweep(&self) {
        while self.backend.move_due(Some(self.now())).await.unwrap().more {}
    }

    /// Background work until there is none left.
    pub async fn maintain(&self) {
        while self
            .backend
            .maintain(&Keep::default(), Some(self.now()))
            .await
            .unwrap()
        {}
    }

    /// Creates a queue with [`plain_policy`], changed by `change`.
    pub async fn queue(&self, name: &str, change: impl FnOnce(&mut Policy)) -> TestQueue<'_> {
        let mut policy = plain_policy();
        change(&mut policy);
        match self.put_queue(name, policy, Expect::Anything).await {
            Answer::Queue { uid, .. } => self.known(QueueUid(uid)),
            other => panic!("creating {name} answered {other:?}"),
        }
    }

    /// A queue with [`plain_policy`].
    pub async fn plain_queue(&self) -> TestQueue<'_> {
        self.queue("orders", |_| {}).await
    }

    /// A queue by its number; [`Fixture::audit`] checks it at the end.
    pub fn known(&self, uid: QueueUid) -> TestQueue<'_> {
        if !self.queues.borrow().contains(&uid) {
            self.queues.borrow_mut().push(uid);
        }
        TestQueue { fixture: self, uid }
    }

    /// Creates or replaces.
    pub async fn put_queue(&self, name: &str, policy: Policy, expect: Expect) -> Answer {
        let (name, policy) = (name.into(), Box::new(policy));
        self.operate(Operation::PutQueue {
            name,
            policy,
            expect,
        })
        .await
    }

    /// Performs an operation that is never repeated.
    pub async fn operate(&self, operation: Operation) -> Answer {
        self.call(&operator(None), operation).await.answer
    }

    /// Performs an operation.
    pub async fn call(&self, call: &Call, operation: Operation) -> Operated {
        self.backend
            .operate(call, operation, Some(self.now()))
            .await
            .unwrap()
    }

    /// One operator's decision about one message.
    pub async fn act(&self, id: MessageId, act: Act) -> Answer {
        self.operate(Operation::Act {
            queue: None,
            id,
            act,
        })
        .await
    }

    /// A decision that must be taken.
    pub async fn do_act(&self, id: MessageId, act: Act) {
        let answer = self.act(id, act).await;
        assert!(matches!(answer, Answer::Acted { .. }), "{answer:?}");
    }

    /// A decision that must be refused.
    pub async fn refuse_act(&self, id: MessageId, act: Act) -> OperationRefused {
        match self.act(id, act).await {
            Answer::Refused(why) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Applies a batch as it is.
    pub async fn apply(&self, batch: &Batch) -> BatchOutcome {
        self.backend.apply(batch, Some(self.now())).await.unwrap()
    }

    /// Everything about a message.
    pub async fn message(&self, id: MessageId) -> Option<Detail> {
        self.backend.message(id, Some(self.now())).await.unwrap()
    }

    /// Where a message is, as a word; [`State::Ended`] also when nothing is remembered.
    pub async fn state(&self, id: MessageId) -> State {
        let message = self.message(id).await.and_then(|d| d.message);
        message.map_or(State::Ended, |m| m.state())
    }

    /// One claim with the receipt of `hand`. The backoff is at the low end of its jitter.
    pub async fn settle(&self, hand: &Hand, action: Action) -> Result<Settled, Refused> {
        let item = self.known(hand.queue).settle_item(hand, action).await;
        let batch = Batch {
            settles: vec![item],
            ..Batch::default()
        };
        match self.apply(&batch).await.settles.remove(0) {
            SettleOutcome::Decided(decided) => decided,
            SettleOutcome::Stale => panic!("a fresh view came back as stale"),
        }
    }

    /// Ack without an outcome.
    pub async fn ack(&self, hand: &Hand) -> Result<Settled, Refused> {
        self.settle(hand, Action::Ack { outcome: None }).await
    }

    /// Ack with an outcome.
    pub async fn ack_with(&self, hand: &Hand, outcome: &str) -> Result<Settled, Refused> {
        let outcome = Some(outcome.into());
        self.settle(hand, Action::Ack { outcome }).await
    }

    /// Nack that may be repeated, with the queue's backoff.
    pub async fn nack(&self, hand: &Hand) -> Result<Settled, Refused> {
        self.settle(hand, nack(None, false)).await
    }

    /// Nack for good.
    pub async fn nack_permanently(&self, hand: &Hand) -> Result<Settled, Refused> {
        self.settle(hand, nack(None, true)).await
    }

    /// Release to the old place.
    pub async fn release(&self, hand: &Hand) -> Result<Settled, Refused> {
        self.settle(hand, Action::Release { delay_ms: None }).await
    }

    /// Extend by `ms` from now.
    pub async fn extend(&self, hand: &Hand, ms: Millis) -> Result<Settled, Refused> {
        let visibility_timeout_ms = ms;
        self.settle(
            hand,
            Action::Extend {
                visibility_timeout_ms,
            },
        )
        .await
    }

    /// The server's own word: the answer was not delivered.
    pub async fn give_back(&self, hand: &Hand) -> Result<Settled, Refused> {
        self.settle(hand, Action::GiveBack).await
    }

    async fn is_deleted(&self, uid: QueueUid) -> bool {
        self.backend.queue_by_uid(uid).await.unwrap().unwrap().1
    }

    /// Begins a bulk decision that must begin.
    pub async fn start(&self, plan: RedrivePlan) -> RedriveId {
        match self.operate(Operation::StartRedrive(Box::new(plan))).await {
            Answer::Redrive { id } => RedriveId(id),
            other => panic!("not begun: {other:?}"),
        }
    }

    /// A bulk decision as it is now.
    pub async fn redrive(&self, id: RedriveId) -> Redrive {
        self.backend.redrive(id).await.unwrap().unwrap()
    }

    /// One step of whichever bulk decision is due.
    pub async fn step(&self) -> Stepped {
        self.backend.step_redrives(Some(self.now())).await.unwrap()
    }

    /// Lets a bulk decision go on until it is in a final state; time passes as it needs.
    pub async fn run_redrive(&self, id: RedriveId) -> Redrive {
        for _ in 0..10_000 {
            let redrive = self.redrive(id).await;
            if redrive.state.is_final() {
                return redrive;
            }
            let stepped = self.step().await;
            if !stepped.stepped {
                let next = stepped.next_at.expect("nothing will ever happen");
                self.pass((next - self.now()).max(1));
            }
        }
        panic!("a redrive without an end");
    }

    /// What holds after every case: the conservation law, and gauges that equal a recount through the listings.
    pub async fn audit(&self) {
        let queues = self.queues.borrow().clone();
        for uid in queues {
            let queue = self.known(uid);
            let counts = queue.counts().await;
            assert_eq!(counts.imbalance(), 0, "conservation: {counts:?}");
            let mut recounted = counts;
            recounted.delayed = queue.list(State::Delayed).await.len() as i64;
            recounted.ready = queue.list(State::Ready).await.len() as i64;
            recounted.leased = queue.list(State::Leased).await.len() as i64;
            recounted.dead = queue.list(State::Dead).await.len() as i64;
            assert_eq!(counts, recounted, "counts beside a recount");
            if !self.is_deleted(uid).await {
                let dead = queue.dead(DeadFilter::default()).await;
                assert_eq!(
                    dead.len() as i64,
                    counts.dead,
                    "dead letters beside a recount"
                );
            }
        }
    }
}

impl TestQueue<'_> {
    /// The queue as it is now.
    pub async fn view(&self) -> Arc<Queue> {
        let found = self.fixture.backend.queue_by_uid(self.uid).await.unwrap();
        Arc::new(found.unwrap().0)
    }

    /// Changes the policy.
    pub async fn set(&self, change: impl FnOnce(&mut Policy)) -> Answer {
        let view = self.view().await;
        let mut policy = (*view.policy).clone();
        change(&mut policy);
        self.fixture
            .put_queue(&view.name, policy, Expect::Anything)
            .await
    }

    /// A message with this body and nothing else, changed by `change`.
    pub async fn publish_item(&self, body: &str, change: impl FnOnce(&mut Publish)) -> Publish {
        let mut item = Publish {
            queue: self.view().await,
            request_id: None,
            fingerprint: 0,
            key: None,
            delay_ms: 0,
            priority: 4,
            headers: None,
            payload: Bytes::copy_from_slice(body.as_bytes()),
            expires_in_ms: None,
            max_attempts: None,
            backoff: None,
        };
        change(&mut item);
        item.fingerprint = fingerprint(&(&item.payload, &item.key, &item.headers));
        item
    }

    /// Publishes one message.
    pub async fn publish_with(&self, body: &str, change: impl FnOnce(&mut Publish)) -> Published {
        let item = self.publish_item(body, change).await;
        let batch = Batch {
            publishes: vec![item],
            ..Batch::default()
        };
        self.fixture.apply(&batch).await.publishes.remove(0)
    }

    /// Publishes one message that must be new.
    pub async fn create(&self, body: &str, change: impl FnOnce(&mut Publish)) -> MessageId {
        match self.publish_with(body, change).await {
            Published::Created { id, .. } => id,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Publishes one plain message.
    pub async fn publish(&self, body: &str) -> MessageId {
        self.create(body, |_| {}).await
    }

    /// Asks for messages.
    pub async fn receive_item(&self, max: u32, lease_ms: Millis) -> Receive {
        let (queue, worker) = (self.view().await, Some("worker-1".into()));
        Receive {
            queue,
            max,
            lease_ms,
            worker,
        }
    }

    /// Receives; `None` while the queue is paused.
    pub async fn receive_for(&self, max: u32, lease_ms: Millis) -> Option<Vec<Hand>> {
        let item = self.receive_item(max, lease_ms).await;
        let batch = Batch {
            receives: vec![item],
            ..Batch::default()
        };
        let mut outcome = self.fixture.apply(&batch).await;
        match outcome.receives.remove(0) {
            Received::Messages(messages) => {
                let hand = |delivery| Hand::of(delivery, outcome.now);
                Some(messages.into_iter().map(hand).collect())
            }
            Received::Paused => None,
            Received::Stale => panic!("a fresh view came back as stale"),
        }
    }

    /// Receives at most `max` for [`LEASE`].
    pub async fn receive(&self, max: u32) -> Vec<Hand> {
        self.receive_for(max, LEASE).await.unwrap()
    }

    /// Receives one message that must be there.
    pub async fn take(&self) -> Hand {
        let mut hands = self.receive(1).await;
        assert_eq!(hands.len(), 1, "nothing to receive");
        hands.remove(0)
    }

    /// Publishes a message and receives it.
    pub async fn publish_and_take(&self) -> Hand {
        let id = self.publish("1").await;
        let hand = self.take().await;
        assert_eq!(hand.id, id, "another message came first");
        hand
    }

    /// Nothing can be received.
    pub async fn assert_empty(&self) {
        let hands = self.receive(100).await;
        assert!(hands.is_empty(), "received {hands:?}");
    }

    /// A settle for a batch.
    pub async fn settle_item(&self, hand: &Hand, action: Action) -> Settle {
        let claim = Claim {
            fence: hand.fence,
            handed_out_at: hand.handed_out_at,
            action,
            chance: 0.0,
        };
        Settle {
            queue: self.view().await,
            id: hand.id,
            claim,
        }
    }

    /// Exact numbers.
    pub async fn numbers(&self) -> QueueNumbers {
        let now = Some(self.fixture.now());
        self.fixture.backend.numbers(self.uid, now).await.unwrap()
    }

    /// Gauges and totals.
    pub async fn counts(&self) -> Counts {
        self.numbers().await.counts
    }

    /// One listing's request.
    pub fn browse_item(&self, state: State) -> Browse {
        Browse {
            queue: self.uid,
            state,
            key: None,
            request_id: None,
            after: None,
            limit: 7,
        }
    }

    /// Walks a listing to its end, page by page.
    pub async fn walk(&self, mut browse: Browse) -> Vec<Listed> {
        let (mut all, mut seen): (Vec<Listed>, Vec<Cursor>) = (Vec::new(), Vec::new());
        loop {
            let (request, now) = (browse.clone(), Some(self.fixture.now()));
            let page = self.fixture.backend.browse(request, now).await.unwrap();
            assert!(page.items.len() <= browse.limit as usize);
            all.extend(page.items);
            let Some(next) = page.next else { return all };
            assert!(!seen.contains(&next), "a listing that turns in circles");
            seen.push(next);
            browse.after = Some(next);
        }
    }

    /// Everything in one state, in its order.
    pub async fn list(&self, state: State) -> Vec<Listed> {
        self.walk(self.browse_item(state)).await
    }

    /// The messages in one state, in its order.
    pub async fn ids(&self, state: State) -> Vec<MessageId> {
        let listed = self.list(state).await;
        listed.iter().map(|l| l.message.envelope.id).collect()
    }

    /// The only dead letter's reason.
    pub async fn only_reason(&self) -> Reason {
        let dead = self.list(State::Dead).await;
        assert_eq!(dead.len(), 1, "{dead:?}");
        match &dead[0].message.place {
            quita_storage::model::Place::Dead(dead) => dead.reason,
            other => panic!("listed as dead: {other:?}"),
        }
    }

    /// Stops or starts hand-outs.
    pub async fn pause(&self, paused: bool) {
        let queue = self.uid;
        let answer = self
            .fixture
            .operate(Operation::Pause { queue, paused })
            .await;
        assert!(matches!(answer, Answer::Queue { .. }), "{answer:?}");
    }

    /// Purges; answers how many.
    pub async fn purge(&self, dead_letters: bool) -> i64 {
        let queue = self.uid;
        let purge = Operation::Purge {
            queue,
            dead_letters,
        };
        match self.fixture.operate(purge).await {
            Answer::Purged { purged } => purged,
            other => panic!("{other:?}"),
        }
    }

    /// The dead letters that a filter means, oldest first.
    pub async fn dead(&self, filter: DeadFilter) -> Vec<MessageId> {
        let listed = self.dead_listing(filter, false).await;
        listed.iter().map(|l| l.message.envelope.id).collect()
    }

    /// Walks a listing of dead letters to its end, page by page.
    pub async fn dead_listing(&self, filter: DeadFilter, newest_first: bool) -> Vec<Listed> {
        let mut listing = DeadListing {
            queues: Some(vec![self.uid]),
            filter,
            after: None,
            newest_first,
            limit: 3,
        };
        let mut all = Vec::new();
        loop {
            let now = Some(self.fixture.now());
            let page = self.fixture.backend.dead_letters(&listing, now);
            let page = page.await.unwrap();
            assert!(page.items.len() <= 3);
            all.extend(page.items);
            let Some(next) = page.next else { return all };
            assert_ne!(listing.after, Some(next), "a listing that stands still");
            listing.after = Some(next);
        }
    }

    /// Freezes dead letters.
    pub async fn select(&self, filter: DeadFilter) -> Selection {
        let (queue, filter) = (self.uid, Box::new(filter));
        let id = match self
            .fixture
            .operate(Operation::Select { queue, filter })
            .await
        {
            Answer::Selected { id } => SelectionId(id),
            other => panic!("not selected: {other:?}"),
        };
        self.fixture.backend.selection(id).await.unwrap().unwrap()
    }

    /// Gives dead letters another round, the oldest first, at most `max`: a selection of all, without rate and canary.
    pub async fn redrive_oldest(&self, max: i64) -> Redrive {
        let selection = self.select(DeadFilter::default()).await;
        let mut plan = plan(&selection);
        plan.max = Some(max);
        let id = self.fixture.start(plan).await;
        self.fixture.run_redrive(id).await
    }

    /// A message that one permanent nack with this error made a dead letter.
    pub async fn dead_of(&self, code: &str, detail: &str) -> MessageId {
        self.dead_with(|_| {}, code, detail).await
    }

    /// The same, published as `change` says.
    pub async fn dead_with(
        &self,
        change: impl FnOnce(&mut Publish),
        code: &str,
        detail: &str,
    ) -> MessageId {
        let id = self.create("1", change).await;
        let hand = self.take().await;
        assert_eq!(hand.id, id, "another message came first");
        let action = Action::Nack {
            failure: Failure::cleaned(Some(code), Some(detail)),
            delay_ms: None,
            permanent: true,
        };
        self.fixture.settle(&hand, action).await.unwrap();
        id
    }

    /// Deletes the queue.
    pub async fn delete(&self, force: bool) -> Answer {
        let (queue, version) = (self.uid, None);
        self.fixture
            .operate(Operation::DeleteQueue {
                queue,
                force,
                version,
            })
            .await
    }

    /// A message that one permanent nack made a dead letter.
    pub async fn dead_letter(&self) -> Hand {
        let hand = self.publish_and_take().await;
        self.fixture.nack_permanently(&hand).await.unwrap();
        hand
    }
}

/// A nack with an error `{code: "E1", detail: "it failed"}`.
pub fn nack(delay_ms: Option<Millis>, permanent: bool) -> Action {
    let failure = Failure::cleaned(Some("E1"), Some("it failed"));
    Action::Nack {
        failure,
        delay_ms,
        permanent,
    }
}

/// All of a selection at once: no rate, no canary, no end by itself.
pub fn plan(selection: &Selection) -> RedrivePlan {
    RedrivePlan {
        selection: selection.id,
        action: BulkAction::Redrive,
        expected_count: selection.figures.count,
        max: None,
        rate: None,
        canary: None,
        abort_if: None,
        force: false,
        dry_run: false,
    }
}

/// A redrive without a new life span.
pub fn redrive(force: bool) -> Act {
    let expires_in_ms = None;
    Act::Redrive {
        force,
        expires_in_ms,
    }
}

/// A discard.
pub fn discard() -> Act {
    Act::Discard {
        code: DiscardCode::WrittenOff,
    }
}

/// An operator's call; with a request id when it may be repeated.
pub fn operator(request_id: Option<&str>) -> Call {
    Call {
        actor: "operator-1".into(),
        request_id: request_id.map(Into::into),
        fingerprint: 7,
        justification: Some("because".into()),
        http_request: None,
    }
}

/// A producer's request id.
pub fn request_id(text: &str) -> RequestId {
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&fingerprint(&(text, 1)).to_be_bytes());
    digest[8..].copy_from_slice(&fingerprint(&(text, 2)).to_be_bytes());
    RequestId {
        digest,
        text: Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn fingerprint(value: &impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    (hasher.finish() >> 1) as i64
}

//! The same random operations on the specification and on another store, compared step by step.
//!
//! Messages are named by the order in which they were published and hand-outs by the order in which they were made, since
//! ids differ between stores. Chance and time are part of the operation, so every outcome is exact. What a store may do
//! sooner or later (file what is due) is done by a sweep after each step, at the same time on both.
//!
//! `QUITA_MODEL_CASES` sets the number of sequences. A sequence that fails is made as short as possible and kept in
//! `proptest-regressions/`, to be tried first from then on.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quita_storage::backend::{
    Answer, Batch, Delivery, Detail, Expect, Listed, Operation, Publish, Published, Received,
    SettleOutcome,
};
use quita_storage::dead_letters::{DeadFilter, Selection};
use quita_storage::model::{
    Backoff, DiscardCode, End, Failure, Jitter, LateAck, MessageId, Millis, Policy, State,
};
use quita_storage::redrives::{BulkAction, RedriveId};
use quita_storage::rules::Message;
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Action;
use quita_tests::fixture::{DAY, HOUR, MINUTE, SECOND, discard, plan, request_id};
use quita_tests::{Fixture, Hand, Store, TestQueue, store};
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};

/// One step. Messages and hand-outs are picked by a number that is taken modulo how many there are, counted from the latest.
#[derive(Clone, Debug)]
enum Op {
    /// Settles, publishes and receives of one commit.
    Commit(Vec<Settling>, Vec<Publishing>, Vec<Receiving>),
    Pass(Millis),
    Maintain,
    Decide(usize, Act),
    RedriveOldest(u32),
    /// Freezes dead letters: all, or those with the error code that the settles here use.
    Select(bool),
    /// Decides the messages of the latest selection, however old it is.
    Bulk(Bulk),
    Edit(usize, u8),
    UndoEdit(usize),
    Purge(bool),
    Pause(bool),
    Set(Knobs),
    Recreate,
}

#[derive(Clone, Debug)]
struct Bulk {
    discard: bool,
    max: Option<i64>,
    force: bool,
    dry_run: bool,
}

#[derive(Clone, Debug)]
struct Settling {
    hand: usize,
    action: Action,
    chance: f64,
}

#[derive(Clone, Debug)]
struct Publishing {
    body: u8,
    request_id: Option<u8>,
    key: Option<u8>,
    delay_ms: Millis,
    priority: u8,
    expires_in_ms: Option<Millis>,
    max_attempts: Option<u32>,
}

#[derive(Clone, Debug)]
struct Receiving {
    max: u32,
    lease_ms: Millis,
}

/// What of the policy varies.
#[derive(Clone, Debug)]
struct Knobs {
    unique_key: bool,
    strict: bool,
    max_depth: Option<u64>,
    max_attempts: u32,
    max_releases: Option<u32>,
    retention_ms: Millis,
}

impl Knobs {
    fn policy(&self) -> Policy {
        Policy {
            max_attempts: self.max_attempts,
            max_lease_expirations: 2,
            max_releases: self.max_releases,
            max_redrives: 1,
            backoff: Backoff::Exponential {
                base_ms: 2 * SECOND,
                factor: 2.0,
                max_ms: MINUTE,
                jitter: Jitter::Equal,
            },
            dedupe_window_ms: MINUTE,
            unique_key: self.unique_key,
            key_retention_ms: Some(DAY),
            retention_ms: self.retention_ms,
            dead_letter_retention_ms: Some(2 * HOUR),
            max_depth: self.max_depth,
            late_ack: if self.strict {
                LateAck::Strict
            } else {
                LateAck::Accept
            },
            ..Policy::default()
        }
    }
}

fn settling() -> impl Strategy<Value = Settling> {
    let outcome = prop::option::of(Just("{\"ok\":1}".into()));
    let wait = || prop::option::of(prop::sample::select(vec![0, SECOND, MINUTE]));
    let code = prop::option::of(prop::sample::select(vec!["E1", "E2"]));
    let action = prop_oneof![
        4 => outcome.prop_map(|outcome| Action::Ack { outcome }),
        3 => (wait(), prop::bool::weighted(0.2), code).prop_map(|(delay_ms, permanent, code)| {
            let failure = Failure::cleaned(code, code.map(|_| "detail"));
            Action::Nack { failure, delay_ms, permanent }
        }),
        2 => wait().prop_map(|delay_ms| Action::Release { delay_ms }),
        2 => prop::sample::select(vec![SECOND, 10 * SECOND, HOUR, 12 * HOUR])
            .prop_map(|visibility_timeout_ms| Action::Extend { visibility_timeout_ms }),
        1 => Just(Action::GiveBack),
    ];
    let hand = prop_oneof![3 => Just(0_usize), 2 => 1..4_usize, 1 => 4..30_usize];
    (hand, action, 0.0..1.0_f64).prop_map(|(hand, action, chance)| Settling {
        hand,
        action,
        chance,
    })
}

fn publishing() -> impl Strategy<Value = Publishing> {
    (
        0..2_u8,
        prop::option::weighted(0.4, 0..3_u8),
        prop::option::weighted(0.4, 0..3_u8),
        prop_oneof![4 => Just(0), 1 => Just(SECOND), 1 => Just(MINUTE)],
        prop_oneof![3 => Just(4_u8), 1 => Just(2), 1 => Just(9)],
        prop::option::weighted(0.15, prop::sample::select(vec![90 * SECOND, HOUR])),
        prop::option::weighted(0.2, 1..3_u32),
    )
        .prop_map(
            |(body, request_id, key, delay_ms, priority, expires_in_ms, max_attempts)| Publishing {
                body,
                request_id,
                key,
                delay_ms,
                priority,
                expires_in_ms,
                max_attempts,
            },
        )
}

fn receiving() -> impl Strategy<Value = Receiving> {
    let lease_ms = prop::sample::select(vec![SECOND, 10 * SECOND, MINUTE]);
    (1..4_u32, lease_ms).prop_map(|(max, lease_ms)| Receiving { max, lease_ms })
}

fn knobs() -> impl Strategy<Value = Knobs> {
    (
        prop::bool::weighted(0.4),
        prop::bool::weighted(0.2),
        prop::option::weighted(0.3, 1..6_u64),
        1..4_u32,
        prop::option::weighted(0.3, 1..3_u32),
        prop::sample::select(vec![MINUTE, HOUR, DAY]),
    )
        .prop_map(
            |(unique_key, strict, max_depth, max_attempts, max_releases, retention_ms)| Knobs {
                unique_key,
                strict,
                max_depth,
                max_attempts,
                max_releases,
                retention_ms,
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let redrive = (any::<bool>(), prop::option::weighted(0.3, Just(HOUR))).prop_map(
        |(force, expires_in_ms)| Act::Redrive {
            force,
            expires_in_ms,
        },
    );
    let act = prop_oneof![
        1 => Just(Act::Cancel),
        1 => Just(Act::Promote),
        2 => Just(Act::DeadLetter),
        2 => redrive,
        1 => Just(discard()),
        1 => Just(Act::Reopen),
    ];
    let bulk = (
        any::<bool>(),
        prop::option::of(1..4_i64),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(discard, max, force, dry_run)| Bulk {
            discard,
            max,
            force,
            dry_run,
        });
    let pass = vec![
        1,
        500,
        SECOND,
        2 * SECOND,
        10 * SECOND,
        30 * SECOND,
        MINUTE,
        HOUR,
        DAY,
    ];
    let commit = (
        prop::collection::vec(settling(), 0..4),
        prop::collection::vec(publishing(), 0..4),
        prop::collection::vec(receiving(), 0..3),
    );
    prop_oneof![
        6 => publishing().prop_map(|p| Op::Commit(vec![], vec![p], vec![])),
        6 => receiving().prop_map(|r| Op::Commit(vec![], vec![], vec![r])),
        8 => settling().prop_map(|s| Op::Commit(vec![s], vec![], vec![])),
        4 => commit.prop_map(|(s, p, r)| Op::Commit(s, p, r)),
        7 => prop::sample::select(pass).prop_map(Op::Pass),
        1 => Just(Op::Maintain),
        4 => (0..6_usize, act).prop_map(|(pick, act)| Op::Decide(pick, act)),
        1 => (1..4_u32).prop_map(Op::RedriveOldest),
        1 => any::<bool>().prop_map(Op::Select),
        1 => bulk.prop_map(Op::Bulk),
        1 => (0..6_usize, 0..3_u8).prop_map(|(pick, body)| Op::Edit(pick, body)),
        1 => (0..6_usize).prop_map(Op::UndoEdit),
        1 => any::<bool>().prop_map(Op::Purge),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => knobs().prop_map(Op::Set),
        1 => Just(Op::Recreate),
    ]
}

/// One store with the names that this sequence gave to its messages and hand-outs.
struct World<'f> {
    queue: TestQueue<'f>,
    name: String,
    policy: Policy,
    ids: Vec<MessageId>,
    hands: Vec<Hand>,
    selection: Option<Selection>,
    since_maintained: Millis,
}

impl<'f> World<'f> {
    async fn new(fixture: &'f Fixture, name: &str, policy: Policy) -> Self {
        let queue = fixture.queue(name, |p| *p = policy.clone()).await;
        Self {
            queue,
            name: name.to_owned(),
            policy,
            ids: Vec::new(),
            hands: Vec::new(),
            selection: None,
            since_maintained: 0,
        }
    }

    fn fixture(&self) -> &'f Fixture {
        self.queue.fixture
    }

    fn number(&self, id: MessageId) -> String {
        let position = self.ids.iter().position(|known| *known == id);
        position.map_or_else(|| format!("unknown {id}"), |n| format!("#{n}"))
    }

    /// What the store answered, with names for ids.
    async fn step(&mut self, op: &Op) -> String {
        match op {
            Op::Commit(settles, publishes, receives) => {
                self.commit(settles, publishes, receives).await
            }
            Op::Pass(ms) => {
                self.fixture().pass(*ms);
                self.since_maintained += ms;
                // Within a minute, background work has been everywhere: the contract allows ids 60 s for that.
                if self.since_maintained >= 30 * SECOND {
                    self.since_maintained = 0;
                    self.fixture().sweep().await;
                    self.fixture().maintain().await;
                }
                String::new()
            }
            Op::Maintain => {
                self.fixture().sweep().await;
                self.fixture().maintain().await;
                String::new()
            }
            Op::Decide(pick, act) => {
                let Some(id) = latest(&self.ids, *pick).copied() else {
                    return String::new();
                };
                self.answer(self.fixture().act(id, act.clone()).await)
            }
            // The next ones count what is where: what is due is filed before, on every store.
            Op::RedriveOldest(limit) => {
                self.fixture().sweep().await;
                let done = self.queue.redrive_oldest(i64::from(*limit)).await;
                format!("{:?} {} {:?}", done.state, done.moved, done.skipped)
            }
            Op::Select(some) => {
                self.fixture().sweep().await;
                let error_code = some.then(|| "E1".to_owned());
                let filter = DeadFilter {
                    error_code,
                    ..DeadFilter::default()
                };
                let selection = self.queue.select(filter).await;
                let sample: Vec<String> = selection
                    .sample
                    .iter()
                    .map(|id| self.number(MessageId(*id)))
                    .collect();
                let text = format!("{:?} {sample:?}", selection.figures);
                self.selection = Some(selection);
                text
            }
            Op::Bulk(bulk) => self.bulk(bulk).await,
            Op::Edit(pick, body) => {
                let Some(id) = latest(&self.ids, *pick).copied() else {
                    return String::new();
                };
                let detail = self.fixture().message(id).await;
                let base = detail.and_then(|d| d.revisions.last().map(|r| r.number));
                let (payload, headers) = [
                    ("{\"a\":2}", None),
                    ("[3]", Some("{\"h\":\"1\"}")),
                    ("4", None),
                ][usize::from(*body)];
                let answer = self.fixture().operate(Operation::Edit {
                    queue: self.queue.uid,
                    id,
                    base: base.unwrap_or(0),
                    payload: payload.into(),
                    headers: headers.map(Into::into),
                });
                self.answer(answer.await)
            }
            Op::UndoEdit(pick) => {
                let Some(id) = latest(&self.ids, *pick).copied() else {
                    return String::new();
                };
                let queue = self.queue.uid;
                let answer = self.fixture().operate(Operation::UndoEdit { queue, id });
                self.answer(answer.await)
            }
            Op::Purge(dead_letters) => {
                self.fixture().sweep().await;
                format!("{}", self.queue.purge(*dead_letters).await)
            }
            Op::Pause(paused) => {
                self.queue.pause(*paused).await;
                String::new()
            }
            Op::Set(knobs) => {
                let policy = knobs.policy();
                let answer = self.put(policy.clone()).await;
                if !matches!(answer, Answer::Refused(_)) {
                    self.policy = policy;
                }
                self.answer(answer)
            }
            Op::Recreate => {
                self.fixture().sweep().await;
                let deleted = self.queue.delete(true).await;
                let created = self.put(self.policy.clone()).await;
                format!("{deleted:?} {}", self.answer(created))
            }
        }
    }

    async fn bulk(&self, bulk: &Bulk) -> String {
        self.fixture().sweep().await;
        let Some(selection) = &self.selection else {
            return String::new();
        };
        let mut plan = plan(selection);
        if bulk.discard {
            plan.action = BulkAction::Discard(DiscardCode::Duplicate);
        }
        (plan.max, plan.force, plan.dry_run) = (bulk.max, bulk.force, bulk.dry_run);
        let start = Operation::StartRedrive(Box::new(plan));
        match self.fixture().operate(start).await {
            Answer::Redrive { id } => {
                let done = self.fixture().run_redrive(RedriveId(id)).await;
                format!("{:?} {} {:?}", done.state, done.moved, done.skipped)
            }
            other => format!("{other:?}"),
        }
    }

    async fn put(&self, policy: Policy) -> Answer {
        self.fixture()
            .put_queue(&self.name, policy, Expect::Anything)
            .await
    }

    fn answer(&self, answer: Answer) -> String {
        match answer {
            Answer::Acted {
                id,
                state,
                acked_superseded,
            } => {
                let state = State::from_code(state);
                format!(
                    "{} {state:?} {acked_superseded}",
                    self.number(MessageId(id))
                )
            }
            Answer::Edited {
                id,
                revision,
                edited,
            } => format!("{} {revision} {edited}", self.number(MessageId(id))),
            Answer::Queue { created, .. } => format!("created {created}"),
            other => format!("{other:?}"),
        }
    }

    async fn commit(
        &mut self,
        settles: &[Settling],
        publishes: &[Publishing],
        receives: &[Receiving],
    ) -> String {
        if self.policy.max_depth.is_some() {
            self.fixture().sweep().await;
        }
        let mut batch = Batch::default();
        for settling in settles {
            if let Some(hand) = latest(&self.hands, settling.hand) {
                let action = settling.action.clone();
                let mut item = self.queue.settle_item(hand, action).await;
                item.claim.chance = settling.chance;
                batch.settles.push(item);
            }
        }
        for publishing in publishes {
            batch.publishes.push(self.publish_item(publishing).await);
        }
        for receiving in receives {
            let item = self
                .queue
                .receive_item(receiving.max, receiving.lease_ms)
                .await;
            batch.receives.push(item);
        }
        let outcome = self.fixture().apply(&batch).await;
        let mut text = String::new();
        for settle in outcome.settles {
            match settle {
                SettleOutcome::Decided(decided) => writeln!(text, "{decided:?}").unwrap(),
                SettleOutcome::Stale => panic!("a fresh view came back as stale"),
            }
        }
        for published in outcome.publishes {
            let line = self.published(published);
            writeln!(text, "{line}").unwrap();
        }
        for received in outcome.receives {
            match received {
                Received::Messages(deliveries) => {
                    for delivery in deliveries {
                        let line = self.delivery(&delivery);
                        writeln!(text, "{line}").unwrap();
                        self.hands.push(Hand::of(delivery, outcome.now));
                    }
                }
                Received::Paused => writeln!(text, "paused").unwrap(),
                Received::Stale => panic!("a fresh view came back as stale"),
            }
        }
        text
    }

    async fn publish_item(&self, publishing: &Publishing) -> Publish {
        let body = ["{\"a\":1}", "[2]"][usize::from(publishing.body)];
        self.queue
            .publish_item(body, |p| {
                p.request_id = publishing
                    .request_id
                    .map(|n| request_id(&format!("id-{n}")));
                p.key = publishing.key.map(|n| format!("key-{n}").into());
                p.delay_ms = publishing.delay_ms;
                p.priority = publishing.priority;
                p.expires_in_ms = publishing.expires_in_ms;
                p.max_attempts = publishing.max_attempts;
            })
            .await
    }

    fn published(&mut self, published: Published) -> String {
        match published {
            Published::Created {
                id,
                state,
                published_at,
            } => {
                self.ids.push(id);
                format!("created {} {state:?} {published_at}", self.number(id))
            }
            Published::Duplicate(mut duplicate) => {
                let first = self.number(duplicate.id);
                duplicate.id = MessageId(0);
                format!("duplicate of {first}: {duplicate:?}")
            }
            Published::Conflict { id } => format!("conflict with {}", self.number(id)),
            Published::Full => "full".to_owned(),
            Published::Stale => panic!("a fresh view came back as stale"),
        }
    }

    fn delivery(&self, delivery: &Delivery) -> String {
        let message = self.message(&delivery.message);
        format!(
            "{message} of {} {:?} after {:?}",
            delivery.max_attempts, delivery.payload, delivery.last_failure
        )
    }

    /// Without the life span that the envelope was published with: a redrive may write over it.
    fn message(&self, message: &Message) -> String {
        let e = &message.envelope;
        format!(
            "{} {:?} {:?} {:?} {:?} {} {} {:?} {:?} {:?}",
            self.number(e.id),
            message.life,
            message.place,
            message.completion,
            message.expires_at,
            e.created_at,
            e.first_available_at,
            e.priority,
            e.request_id,
            e.key,
        )
    }

    fn listed(&self, listed: &Listed) -> String {
        let message = self.message(&listed.message);
        format!("{message} {} {:?}", listed.size, listed.last)
    }

    async fn numbers(&self) -> String {
        format!("{:?}", self.queue.numbers().await)
    }

    async fn listings(&self) -> String {
        let mut text = String::new();
        for state in [State::Delayed, State::Ready, State::Leased, State::Dead] {
            writeln!(text, "{state:?}:").unwrap();
            for listed in self.queue.list(state).await {
                writeln!(text, "{}", self.listed(&listed)).unwrap();
            }
        }
        let now = Some(self.fixture().now());
        let all = DeadFilter::default();
        let queues = [self.queue.uid];
        let groups = self
            .fixture()
            .backend
            .dead_groups(Some(&queues), &all, 100, now);
        for group in groups.await.unwrap().groups {
            let example = self.number(group.example);
            let span = (group.first_died_at, group.last_died_at);
            let what = (
                group.group,
                group.reason,
                group.error_code,
                group.example_detail,
            );
            writeln!(text, "{} {what:?} {span:?} {example}", group.count).unwrap();
        }
        text
    }

    /// Everything about every message, and what each hand-out would hear now.
    async fn epilogue(&mut self) -> String {
        let mut text = String::new();
        for id in self.ids.clone() {
            let detail = self.fixture().message(id).await;
            writeln!(text, "{}", self.detail(id, detail)).unwrap();
        }
        let hands = self.hands.len();
        for back in 0..hands {
            for action in [
                Action::Extend {
                    visibility_timeout_ms: MINUTE,
                },
                Action::Ack { outcome: None },
            ] {
                let settling = Settling {
                    hand: back,
                    action,
                    chance: 0.0,
                };
                text += &self.commit(&[settling], &[], &[]).await;
            }
        }
        text
    }

    fn detail(&self, id: MessageId, detail: Option<Detail>) -> String {
        let number = self.number(id);
        // How long the purge of a message that nobody can ask about is remembered is up to the store.
        let known = detail.filter(|d| d.ended.as_ref().is_none_or(|e| e.end != End::Purged));
        let Some(detail) = known else {
            return format!("{number} nothing known");
        };
        let message = detail.message.as_ref().map(|m| self.message(m));
        let decisions: Vec<_> = detail
            .decisions
            .iter()
            .map(|d| (d.at, &d.action, &d.actor, &d.reason, &d.before, &d.after))
            .collect();
        format!(
            "{number} {message:?} {:?} {:?} {:?} {decisions:?} {:?} {:?}",
            detail.ended, detail.payload, detail.deliveries, detail.key, detail.revisions
        )
    }
}

fn latest<T>(all: &[T], back: usize) -> Option<&T> {
    let steps = back.checked_rem(all.len())?;
    all.iter().rev().nth(steps)
}

/// Runs one sequence on both stores and compares.
async fn compare(spec: &Fixture, other: &Fixture, knobs: &Knobs, ops: &[Op]) -> Result<(), String> {
    static SEQUENCE: AtomicU32 = AtomicU32::new(0);
    let name = format!("model-{}", SEQUENCE.fetch_add(1, Ordering::Relaxed));
    let (mut a, mut b) = (
        World::new(spec, &name, knobs.policy()).await,
        World::new(other, &name, knobs.policy()).await,
    );
    for (n, op) in ops.iter().enumerate() {
        let what = |part: &str| format!("step {n}, {op:?}, {part}");
        same(&what("outcome"), &a.step(op).await, &b.step(op).await)?;
        spec.sweep().await;
        other.sweep().await;
        same(&what("numbers"), &a.numbers().await, &b.numbers().await)?;
        if n % 4 == 3 || n + 1 == ops.len() {
            same(&what("listings"), &a.listings().await, &b.listings().await)?;
        }
    }
    let balance = a.queue.counts().await.imbalance();
    same("conservation", "0", &balance.to_string())?;
    same("epilogue", &a.epilogue().await, &b.epilogue().await)?;
    // Room for the next sequence. Not too far into the future: ids hold times of 69 years.
    a.queue.delete(true).await;
    b.queue.delete(true).await;
    for fixture in [spec, other] {
        fixture.pass(3 * DAY);
        fixture.maintain().await;
    }
    Ok(())
}

fn same(what: &str, spec: &str, other: &str) -> Result<(), String> {
    if spec == other {
        return Ok(());
    }
    let mut lines = spec.lines().zip(other.lines());
    let first = lines.find(|(a, b)| a != b);
    let (a, b) = first.unwrap_or((spec, other));
    Err(format!("{what}\nspecification: {a}\n        other: {b}"))
}

fn random_operations_agree(with: Store, cases: u32) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one setting of this test is read here"
    )]
    let asked = std::env::var("QUITA_MODEL_CASES").ok();
    let cases = asked.map_or(cases, |n| n.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let opened = runtime.block_on(async {
        let other = store::open(with).await?;
        Some((store::open(Store::Memory).await?, other))
    });
    let Some((spec, other)) = opened else { return };
    let config = Config {
        cases,
        max_shrink_iters: 2_000,
        source_file: Some(file!()),
        ..Config::default()
    };
    let strategy = (knobs(), prop::collection::vec(op(), 1..80));
    let fixtures = [&spec, &other].map(|o| Fixture::new(o.backend.clone()));
    let result = TestRunner::new(config).run(&strategy, |(knobs, ops)| {
        let compared = runtime.block_on(compare(&fixtures[0], &fixtures[1], &knobs, &ops));
        compared.map_err(TestCaseError::fail)
    });
    drop(fixtures);
    runtime.block_on(async {
        spec.close().await;
        other.close().await;
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

mod random_operations_agree {
    use super::Store;

    #[test]
    fn memory_and_sqlite() {
        super::random_operations_agree(Store::Sqlite, 100);
    }

    #[test]
    fn memory_and_postgres() {
        super::random_operations_agree(Store::Postgres, 20);
    }
}

//! §5: bulk decisions: slowly, with a canary, each message once.

use quita_storage::audit::AuditQuery;
use quita_storage::backend::{Answer, Operation, OperationRefused};
use quita_storage::dead_letters::DeadFilter;
use quita_storage::model::{DiscardCode, MessageId, Millis, State};
use quita_storage::redrives::{
    AbortIf, BulkAction, Canary, Redrive, RedriveId, RedriveListing, RedrivePlan, RedriveState,
    Skipped, Steer,
};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{DAY, HOUR, SECOND, TestQueue, plan, redrive};
use quita_tests::{Fixture, on_every_store};

pub(super) async fn some_dead(queue: TestQueue<'_>, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(queue.dead_letter().await.id);
    }
    ids
}

pub(super) async fn plan_of_all(queue: TestQueue<'_>) -> RedrivePlan {
    plan(&queue.select(DeadFilter::default()).await)
}

pub(super) async fn refused(f: &Fixture, plan: RedrivePlan) -> OperationRefused {
    match f.operate(Operation::StartRedrive(Box::new(plan))).await {
        Answer::Refused(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

async fn steer(f: &Fixture, id: RedriveId, steer: Steer) -> Answer {
    f.operate(Operation::SteerRedrive { id, steer }).await
}

/// Steps until nothing is due at this moment.
async fn step_now(f: &Fixture, id: RedriveId) -> Redrive {
    while f.step().await.next_at.is_some_and(|at| at <= f.now()) {}
    f.redrive(id).await
}

/// §3, §5 – redriven messages keep id, key, payload, fence and history; counters begin again.
async fn redriven_messages_begin_again_as_themselves(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 2).await;
    let key = |p: &mut quita_storage::backend::Publish| {
        p.key = Some("order-1".into());
        p.priority = 7;
    };
    let id = queue.create("1", key).await;
    for _ in 0..2 {
        f.nack(&queue.take().await).await.unwrap();
        f.pass(HOUR);
    }
    let live = queue.create("2", |p| p.priority = 7).await;
    f.pass(SECOND);
    queue.redrive_oldest(10).await;
    let message = f.message(id).await.unwrap().message.unwrap();
    assert_eq!((message.life.fence, message.life.redrives), (2, 1));
    assert_eq!((message.life.attempts, message.life.expirations), (0, 0));
    // Not ahead of live traffic of the same priority.
    assert_eq!(queue.take().await.id, live);
    let hand = queue.take().await;
    assert_eq!((hand.id, hand.attempt(), hand.fence), (id, 1, 3));
    assert_eq!(f.message(id).await.unwrap().deliveries.len(), 2);
    let decision = &f.message(id).await.unwrap().decisions[0];
    assert_eq!(
        (&*decision.action, &*decision.actor),
        ("redrive", "operator-1")
    );
    assert!(decision.redrive.is_some());
    assert_eq!(decision.reason.as_deref(), Some("because"));
}

/// §5 – over `max_redrives`, or with a remembered completion: skipped, unless forced.
async fn guards_hold_unless_forced(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_redrives = 0).await;
    some_dead(queue, 2).await;
    let hand = queue.publish_and_take().await;
    f.do_act(hand.id, Act::DeadLetter).await;
    assert!(f.ack(&hand).await.is_err());
    let short = queue.create("1", |p| p.expires_in_ms = Some(HOUR)).await;
    f.pass_and_sweep(HOUR).await;
    let id = f.start(plan_of_all(queue).await).await;
    let done = f.run_redrive(id).await;
    let expected = Skipped {
        redrive_limit: 3,
        completion_remembered: 0,
        expired: 1,
        changed: 0,
    };
    assert_eq!((done.moved, done.skipped), (0, expected));
    let forced = RedrivePlan {
        force: true,
        ..plan_of_all(queue).await
    };
    let id = f.start(forced).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.moved, done.skipped.expired), (3, 1));
    assert_eq!(queue.ids(State::Dead).await, [short]);
}

/// §5 – a bulk discard writes its code and words to every message.
async fn a_bulk_discard_is_a_discard_of_each(f: &Fixture) {
    let queue = f.plain_queue().await;
    let ids = some_dead(queue, 3).await;
    let bulk = RedrivePlan {
        action: BulkAction::Discard(DiscardCode::Superseded),
        max: Some(2),
        ..plan_of_all(queue).await
    };
    let id = f.start(bulk).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.state, done.moved), (RedriveState::Done, 2));
    let counts = queue.counts().await;
    assert_eq!((counts.discarded, counts.dead), (2, 1));
    let decision = f.message(ids[0]).await.unwrap().decisions.remove(0);
    assert_eq!(
        (&*decision.action, decision.reason.as_deref()),
        ("discard", Some("because"))
    );
    assert!(decision.after.unwrap().contains("superseded"));
    f.do_act(ids[0], Act::Reopen).await;
}

/// §5 – a dry run answers the same figures and changes nothing but its own record.
async fn a_dry_run_changes_nothing(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_redrives = 1).await;
    let ids = some_dead(queue, 4).await;
    f.do_act(ids[0], redrive(false)).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let before = queue.numbers().await.counts;
    let dry = RedrivePlan {
        dry_run: true,
        rate: Some(0.001),
        canary: Some(Canary {
            count: 1,
            wait_ms: DAY,
        }),
        ..plan_of_all(queue).await
    };
    let began = f.now();
    let id = f.start(dry.clone()).await;
    let foreseen = f.run_redrive(id).await;
    assert!(f.now() - began < SECOND, "a dry run waits for nothing");
    assert_eq!(queue.numbers().await.counts, before);
    assert_eq!(f.message(ids[1]).await.unwrap().decisions.len(), 0);
    let real = RedrivePlan {
        dry_run: false,
        canary: None,
        rate: None,
        ..dry
    };
    let id = f.start(real).await;
    let done = f.run_redrive(id).await;
    assert_eq!(
        (foreseen.moved, foreseen.skipped),
        (done.moved, done.skipped)
    );
    assert_eq!((done.moved, done.skipped.redrive_limit), (3, 1));
}

/// §5 – the rate bounds what becomes ready; pause, resume, another rate, cancel.
async fn a_redrive_can_be_steered(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 20).await;
    let slow = RedrivePlan {
        rate: Some(1.0),
        ..plan_of_all(queue).await
    };
    let id = f.start(slow).await;
    let moved = async |pass: Millis| {
        f.pass(pass);
        step_now(f, id).await.moved
    };
    assert_eq!(moved(0).await, 1);
    assert_eq!(moved(SECOND).await, 2);
    assert!(matches!(
        steer(f, id, Steer::Pause).await,
        Answer::Redrive { .. }
    ));
    assert_eq!(f.redrive(id).await.state, RedriveState::Paused);
    assert_eq!(moved(HOUR).await, 2);
    steer(f, id, Steer::Resume).await;
    assert_eq!(moved(0).await, 3, "an hour of pause is not made up for");
    steer(f, id, Steer::Rate(Some(5.0))).await;
    assert_eq!(f.redrive(id).await.plan.rate, Some(5.0));
    let fast = moved(SECOND).await;
    assert!((8..=9).contains(&fast), "{fast}");
    steer(f, id, Steer::Cancel).await;
    let done = f.redrive(id).await;
    assert_eq!(
        (done.state, done.finished_at),
        (RedriveState::Cancelled, Some(f.now()))
    );
    assert_eq!(moved(HOUR).await, fast);
    for steering in [
        Steer::Resume,
        Steer::Pause,
        Steer::Cancel,
        Steer::Rate(None),
    ] {
        let answer = steer(f, id, steering).await;
        assert_eq!(answer, Answer::Refused(OperationRefused::RedriveFinished));
    }
    let unknown = steer(f, RedriveId(4_711), Steer::Pause).await;
    assert_eq!(unknown, Answer::Refused(OperationRefused::RedriveNotFound));
    let query = AuditQuery {
        redrive: Some(id),
        limit: 100,
        ..AuditQuery::default()
    };
    let rows = f.backend.audit(&query).await.unwrap().entries;
    let steps = rows.iter().filter(|row| row.message.is_some()).count();
    assert_eq!(steps as i64, fast);
    let words: Vec<&str> = rows
        .iter()
        .filter(|row| row.message.is_none())
        .map(|row| &*row.action)
        .collect();
    assert_eq!(
        words,
        [
            "start_redrive",
            "pause_redrive",
            "resume_redrive",
            "change_redrive",
            "cancel_redrive"
        ]
    );
}

fn careful(plan: &RedrivePlan) -> RedrivePlan {
    RedrivePlan {
        canary: Some(Canary {
            count: 10,
            wait_ms: 60 * SECOND,
        }),
        abort_if: Some(AbortIf {
            failed_fraction: 0.2,
            min_sample: 10,
        }),
        ..plan.clone()
    }
}

/// §5 – the canary goes first, the rest waits; it goes on sooner when all of them are done.
async fn a_canary_goes_first(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 30).await;
    let id = f.start(careful(&plan_of_all(queue).await)).await;
    let first = step_now(f, id).await;
    assert_eq!((first.state, first.moved), (RedriveState::Canary, 10));
    f.pass(SECOND);
    let waiting = step_now(f, id).await;
    assert_eq!((waiting.moved, waiting.canary_until.is_some()), (10, true));
    for hand in queue.receive(10).await {
        f.ack(&hand).await.unwrap();
    }
    f.pass(SECOND);
    let done = step_now(f, id).await;
    assert_eq!((done.state, done.moved), (RedriveState::Done, 30));
}

/// §5 – the canary's pause ends by itself.
async fn a_canary_waits_no_longer_than_told(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 12).await;
    let id = f.start(careful(&plan_of_all(queue).await)).await;
    step_now(f, id).await;
    f.pass(60 * SECOND - 1);
    assert_eq!(step_now(f, id).await.moved, 10);
    f.pass(1);
    assert_eq!(step_now(f, id).await.state, RedriveState::Done);
}

/// §5 – when the redriven ones die again, it stops by itself.
async fn a_redrive_stops_when_they_die_again(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 30).await;
    let id = f.start(careful(&plan_of_all(queue).await)).await;
    step_now(f, id).await;
    let hands = queue.receive(10).await;
    f.nack_permanently(&hands[0]).await.unwrap();
    // An operator's word is not a failure.
    f.do_act(hands[1].id, Act::DeadLetter).await;
    f.pass(SECOND);
    let still = step_now(f, id).await;
    assert_eq!((still.state, still.failed_again), (RedriveState::Canary, 1));
    f.nack_permanently(&hands[2]).await.unwrap();
    f.pass(SECOND);
    let done = step_now(f, id).await;
    assert_eq!((done.state, done.failed_again), (RedriveState::Aborted, 2));
    assert_eq!((done.moved, done.finished_at), (10, Some(f.now())));
    let query = AuditQuery {
        redrive: Some(id),
        newest_first: true,
        limit: 1,
        ..AuditQuery::default()
    };
    let row = f.backend.audit(&query).await.unwrap().entries.remove(0);
    assert_eq!((&*row.action, &*row.actor), ("abort_redrive", "policy"));
}

/// §5 – failures are counted for a day after the end, each once, also when the message was redriven by another one since.
async fn failures_are_counted_after_the_end(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 3).await;
    let id = f.start(plan_of_all(queue).await).await;
    assert_eq!(f.run_redrive(id).await.failed_again, 0);
    f.nack_permanently(&queue.take().await).await.unwrap();
    assert_eq!(f.redrive(id).await.failed_again, 1);
    let second = f.start(plan_of_all(queue).await).await;
    f.run_redrive(second).await;
    for hand in queue.receive(3).await {
        f.nack_permanently(&hand).await.unwrap();
    }
    assert_eq!(f.redrive(id).await.failed_again, 3);
    assert_eq!(f.redrive(second).await.failed_again, 1);
}

/// §5 – two operators with the same selection: each message is moved once.
async fn two_redrives_of_one_selection_move_each_message_once(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 20).await;
    let slow = RedrivePlan {
        rate: Some(7.0),
        ..plan_of_all(queue).await
    };
    let first = f.start(slow.clone()).await;
    let second = f.start(slow).await;
    let (a, b) = (f.run_redrive(first).await, f.run_redrive(second).await);
    assert_eq!(a.moved + b.moved, 20);
    assert_eq!(
        (a.moved + a.skipped.changed, b.moved + b.skipped.changed),
        (20, 20)
    );
    let counts = queue.counts().await;
    assert_eq!((counts.ready, counts.redriven), (20, 20));
}

/// §4.13, §5 – a purge, or the end of the queue, ends a redrive: there is nothing left to move.
async fn a_purge_leaves_a_redrive_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 3).await;
    let id = f.start(plan_of_all(queue).await).await;
    queue.purge(true).await;
    some_dead(queue, 2).await;
    let done = f.run_redrive(id).await;
    assert_eq!(
        (done.state, done.moved, done.skipped.changed),
        (RedriveState::Done, 0, 3)
    );
    let id = f.start(plan_of_all(queue).await).await;
    queue.delete(true).await;
    assert_eq!(f.run_redrive(id).await.moved, 0);
}

/// §5 – redrives are listed, the youngest first, by queue and state.
async fn redrives_are_listed(f: &Fixture) {
    let queue = f.plain_queue().await;
    let other = f.queue("other", |_| {}).await;
    some_dead(queue, 1).await;
    let first = f.start(plan_of_all(queue).await).await;
    let second = f.start(plan_of_all(other).await).await;
    let third = f.start(plan_of_all(queue).await).await;
    steer(f, first, Steer::Pause).await;
    let listed = async |listing: RedriveListing| {
        let found = f.backend.redrives(&listing).await.unwrap();
        found.iter().map(|r| r.id).collect::<Vec<_>>()
    };
    let all = || RedriveListing {
        limit: 10,
        ..RedriveListing::default()
    };
    assert_eq!(listed(all()).await, [third, second, first]);
    assert_eq!(
        listed(RedriveListing { limit: 2, ..all() }).await,
        [third, second]
    );
    assert_eq!(
        listed(RedriveListing {
            before: Some(second),
            ..all()
        })
        .await,
        [first]
    );
    let of_queue = RedriveListing {
        queues: Some(vec![queue.uid]),
        ..all()
    };
    assert_eq!(listed(of_queue).await, [third, first]);
    let paused = RedriveListing {
        state: Some(RedriveState::Paused),
        ..all()
    };
    assert_eq!(listed(paused).await, [first]);
}

/// §5 – a record is kept as long as audit rows.
async fn a_finished_redrive_is_remembered(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 1).await;
    let id = f.start(plan_of_all(queue).await).await;
    f.run_redrive(id).await;
    f.pass(399 * DAY);
    f.maintain().await;
    assert_eq!(f.redrive(id).await.moved, 1);
    f.pass(2 * DAY);
    f.maintain().await;
    assert_eq!(f.backend.redrive(id).await.unwrap(), None);
}

/// §5 – more than one step's worth, and more than a step looks at.
async fn many_are_moved_in_steps(f: &Fixture) {
    let queue = f.plain_queue().await;
    let item = queue.publish_item("1", |_| {}).await;
    let batch = quita_storage::backend::Batch {
        publishes: vec![item; 1_200],
        ..Default::default()
    };
    f.apply(&batch).await;
    let mut odd = 0;
    for round in 0..12 {
        let mut batch = quita_storage::backend::Batch::default();
        for hand in queue.receive(100).await {
            let code = if round % 2 == 0 { "a" } else { "b" };
            odd += i64::from(round % 2);
            let action = quita_storage::rules::settle::Action::Nack {
                failure: quita_storage::model::Failure::cleaned(Some(code), None),
                delay_ms: None,
                permanent: true,
            };
            batch.settles.push(queue.settle_item(&hand, action).await);
        }
        f.apply(&batch).await;
    }
    let filter = DeadFilter {
        error_code: Some("b".into()),
        ..DeadFilter::default()
    };
    let some = plan(&queue.select(filter).await);
    assert_eq!(some.expected_count, odd);
    let id = f.start(some).await;
    assert_eq!(f.run_redrive(id).await.moved, odd);
    let done = queue.redrive_oldest(10_000).await;
    assert_eq!((done.moved, done.skipped.total()), (1_200 - odd, 0));
    let counts = queue.counts().await;
    assert_eq!(
        (counts.ready, counts.dead, counts.redriven),
        (1_200, 0, 1_200)
    );
}

on_every_store![
    redriven_messages_begin_again_as_themselves,
    guards_hold_unless_forced,
    a_bulk_discard_is_a_discard_of_each,
    a_dry_run_changes_nothing,
    a_redrive_can_be_steered,
    a_canary_goes_first,
    a_canary_waits_no_longer_than_told,
    a_redrive_stops_when_they_die_again,
    failures_are_counted_after_the_end,
    two_redrives_of_one_selection_move_each_message_once,
    a_purge_leaves_a_redrive_nothing,
    redrives_are_listed,
    a_finished_redrive_is_remembered,
    many_are_moved_in_steps,
];

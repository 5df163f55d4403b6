//! §3, §5: what operators do: redrive, discard, cancel, promote, dead-letter; repeats by request id; audit rows.

use quita_storage::backend::{Answer, Operation, OperationRefused};
use quita_storage::dead_letters::DeadFilter;
use quita_storage::model::{End, MessageId, QueueUid, State};
use quita_storage::redrives::RedriveId;
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Action;
use quita_tests::fixture::{DAY, HOUR, SECOND, discard, nack, operator, plan, redrive};
use quita_tests::{Fixture, on_every_store};

fn on(id: MessageId, act: Act) -> Operation {
    let queue = None;
    Operation::Act { queue, id, act }
}

/// §5 – every operator call with a request id repeats its first answer, for 7 days.
async fn a_repeated_call_gives_its_first_answer_again(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let call = operator(Some("op-1"));
    let first = f.call(&call, on(id, redrive(false))).await;
    assert!(!first.repeated);
    assert!(matches!(first.answer, Answer::Acted { .. }));
    // The message moves on; the answer does not.
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.pass(7 * DAY - 1);
    f.maintain().await;
    let again = f.call(&call, on(id, redrive(false))).await;
    assert!(again.repeated);
    assert_eq!(again.answer, first.answer);
    assert_eq!(queue.counts().await.redriven, 1);
    f.pass(1);
    f.maintain().await;
    let later = f.call(&call, on(id, redrive(false))).await;
    assert!(!later.repeated);
    assert_eq!(queue.counts().await.redriven, 2);
}

/// §5 – a request id of another call is a conflict.
async fn a_request_id_of_another_call_is_a_conflict(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let mut call = operator(Some("op-1"));
    f.call(&call, on(id, redrive(false))).await;
    call.fingerprint += 1;
    let other = f.call(&call, on(id, Act::DeadLetter)).await;
    let conflict = Answer::Refused(OperationRefused::RequestIdConflict);
    assert_eq!(other.answer, conflict);
    assert_eq!(f.state(id).await, State::Ready);
}

/// §5 – a refusal is not remembered: the same call may succeed later.
async fn a_refused_call_may_be_repeated(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let call = operator(Some("op-1"));
    let refused = f.call(&call, on(hand.id, redrive(false))).await;
    let not_dead = Answer::Refused(OperationRefused::NotDead);
    assert_eq!(refused.answer, not_dead);
    f.nack_permanently(&hand).await.unwrap();
    let done = f.call(&call, on(hand.id, redrive(false))).await;
    assert!(!done.repeated);
    assert!(matches!(done.answer, Answer::Acted { .. }));
}

/// §5 – repeats of a purge, and of a bounded redrive, move nothing more.
async fn a_repeated_purge_takes_nothing_more(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    let call = operator(Some("op-1"));
    let purge = Operation::Purge {
        queue: queue.uid,
        dead_letters: false,
    };
    let first = f.call(&call, purge.clone()).await;
    assert_eq!(first.answer, Answer::Purged { purged: 1 });
    queue.publish("2").await;
    let again = f.call(&call, purge).await;
    assert_eq!((again.answer, again.repeated), (first.answer, true));
    assert_eq!(queue.counts().await.ready, 1);
}

/// §5 – a bounded redrive takes the oldest first, and a repeat of it begins no second one.
async fn a_bounded_redrive_takes_the_oldest(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(queue.dead_letter().await.id);
        f.pass(SECOND);
    }
    let mut plan = plan(&queue.select(DeadFilter::default()).await);
    plan.max = Some(3);
    let (call, operation) = (
        operator(Some("op-1")),
        Operation::StartRedrive(Box::new(plan)),
    );
    for repeated in [false, true] {
        let done = f.call(&call, operation.clone()).await;
        assert_eq!(done.repeated, repeated);
        let Answer::Redrive { id } = done.answer else {
            panic!("{:?}", done.answer)
        };
        let redrive = f.run_redrive(RedriveId(id)).await;
        assert_eq!((redrive.moved, redrive.remaining()), (3, 0));
    }
    let mut ready = queue.ids(State::Ready).await;
    ready.sort_unstable();
    assert_eq!(ready, ids[..3]);
    assert_eq!(queue.ids(State::Dead).await, ids[3..]);
}

/// §6 – `max_redrives` bounds redrives without force; a bounded redrive walks past what it must skip.
async fn redrives_are_bounded_without_force(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_redrives = 1).await;
    let tired = queue.dead_letter().await.id;
    f.do_act(tired, redrive(false)).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let refused = f.refuse_act(tired, redrive(false)).await;
    assert_eq!(refused, OperationRefused::RedriveLimit);

    f.pass(SECOND);
    let fresh = queue.dead_letter().await.id;
    let done = queue.redrive_oldest(1).await;
    assert_eq!((done.moved, done.skipped.redrive_limit), (1, 1));
    assert_eq!(queue.ids(State::Ready).await, [fresh]);

    f.do_act(tired, redrive(true)).await;
    let message = f.message(tired).await.unwrap().message.unwrap();
    assert_eq!(message.life.redrives, 2);
}

/// §6 – with `max_redrives` 0, every redrive needs force.
async fn a_queue_may_forbid_redrives(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_redrives = 0).await;
    let id = queue.dead_letter().await.id;
    let refused = f.refuse_act(id, redrive(false)).await;
    assert_eq!(refused, OperationRefused::RedriveLimit);
    f.do_act(id, redrive(true)).await;
}

/// §5 – a redrive of many leaves each message on one side.
async fn a_redrive_of_many_moves_each_once(f: &Fixture) {
    let queue = f.plain_queue().await;
    let item = queue.publish_item("1", |_| {}).await;
    let batch = quita_storage::backend::Batch {
        publishes: vec![item; 300],
        ..Default::default()
    };
    f.apply(&batch).await;
    for _ in 0..3 {
        let mut batch = quita_storage::backend::Batch::default();
        for hand in queue.receive(100).await {
            batch
                .settles
                .push(queue.settle_item(&hand, nack(None, true)).await);
        }
        f.apply(&batch).await;
    }
    assert_eq!(queue.counts().await.dead, 300);
    let done = queue.redrive_oldest(250).await;
    assert_eq!(done.moved, 250);
    let counts = queue.counts().await;
    assert_eq!((counts.ready, counts.dead, counts.redriven), (250, 50, 250));
}

/// §5 – nothing to redrive is an answer.
async fn an_empty_redrive_moves_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    let done = queue.redrive_oldest(10).await;
    assert_eq!((done.moved, done.skipped.total()), (0, 0));
}

/// Seam – a message that is asked for in another queue is not found there.
async fn a_message_is_found_in_its_own_queue_only(f: &Fixture) {
    let queue = f.plain_queue().await;
    let other = f.queue("other", |_| {}).await;
    let id = queue.publish("1").await;
    for (uid, found) in [(other.uid, false), (queue.uid, true)] {
        let act = Operation::Act {
            queue: Some(uid),
            id,
            act: Act::Cancel,
        };
        let answer = f.operate(act).await;
        assert_eq!(matches!(answer, Answer::Acted { .. }), found, "{answer:?}");
    }
}

/// §5 – the answer to a decision names the message and its state now.
async fn a_decision_answers_the_state_now(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = HOUR).await;
    for (act, state) in [
        (Act::Promote, State::Ready),
        (Act::DeadLetter, State::Dead),
        (redrive(false), State::Ready),
        (Act::DeadLetter, State::Dead),
        (discard(), State::Ended),
    ] {
        let answer = f.act(id, act).await;
        let expected = Answer::Acted {
            id: id.0,
            state: state.code(),
            acked_superseded: false,
        };
        assert_eq!(answer, expected);
    }
}

/// §5 – who decided what, when and why is kept with the message, oldest first.
async fn decisions_are_kept_with_their_reasons(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = HOUR).await;
    f.do_act(id, Act::Promote).await;
    f.pass(SECOND);
    f.do_act(id, Act::DeadLetter).await;
    f.pass(SECOND);
    queue.redrive_oldest(1).await;
    let decisions = f.message(id).await.unwrap().decisions;
    let actions: Vec<&str> = decisions.iter().map(|d| &*d.action).collect();
    assert_eq!(actions, ["promote", "dead_letter", "redrive"]);
    for decision in &decisions {
        assert_eq!(&*decision.actor, "operator-1");
        assert_eq!(decision.reason.as_deref(), Some("because"));
    }
    assert_eq!(decisions[1].at + SECOND, decisions[2].at);
}

/// §5 – a refused decision leaves no row.
async fn a_refused_decision_leaves_no_row(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    f.refuse_act(id, discard()).await;
    let decisions = f.message(id).await.unwrap().decisions;
    assert!(decisions.is_empty(), "{decisions:?}");
}

/// §5 – the decision that ended a message is still told afterwards.
async fn the_last_decision_outlives_the_message(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    f.do_act(id, Act::Cancel).await;
    let detail = f.message(id).await.unwrap();
    assert_eq!(detail.ended.unwrap().end, End::Cancelled);
    assert_eq!(&*detail.decisions[0].action, "cancel");
}

/// §5 – an operation on a queue that is not there is refused.
async fn an_unknown_queue_is_not_found(f: &Fixture) {
    let queue = QueueUid(4_711);
    for operation in [
        Operation::Select {
            queue,
            filter: Box::default(),
        },
        Operation::Pause {
            queue,
            paused: true,
        },
        Operation::DeleteQueue {
            queue,
            force: true,
            version: None,
        },
    ] {
        let answer = f.operate(operation).await;
        let not_found = Answer::Refused(OperationRefused::QueueNotFound);
        assert_eq!(answer, not_found);
    }
}

/// §3 – an operator's dead-lettering takes a message away from its holder at once.
async fn a_dead_lettered_message_is_out_of_its_holders_hands(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.do_act(hand.id, Act::DeadLetter).await;
    let settled = f.settle(&hand, Action::Release { delay_ms: None }).await;
    assert!(settled.is_err());
    assert_eq!(queue.ids(State::Dead).await, [hand.id]);
    let delivered = f.message(hand.id).await.unwrap().deliveries;
    assert_eq!(delivered[0].cause, quita_storage::model::Cause::Operator);
}

/// §3 – decisions see the time passed: what expired a moment ago is ready, what is due cannot be promoted.
async fn decisions_see_the_time_passed(f: &Fixture) {
    let queue = f.plain_queue().await;
    let due = queue.create("1", |p| p.delay_ms = SECOND).await;
    f.pass(SECOND);
    let refused = f.refuse_act(due, Act::Promote).await;
    assert_eq!(refused, OperationRefused::NotDelayed);
    f.do_act(due, Act::Cancel).await;
    let exhausted = queue.create("2", |p| p.max_attempts = Some(1)).await;
    queue.take().await;
    f.pass(HOUR);
    f.do_act(exhausted, redrive(false)).await;
    assert_eq!(queue.take().await.id, exhausted);
}

on_every_store![
    a_repeated_call_gives_its_first_answer_again,
    a_request_id_of_another_call_is_a_conflict,
    a_refused_call_may_be_repeated,
    a_repeated_purge_takes_nothing_more,
    a_bounded_redrive_takes_the_oldest,
    redrives_are_bounded_without_force,
    a_queue_may_forbid_redrives,
    a_redrive_of_many_moves_each_once,
    an_empty_redrive_moves_nothing,
    a_message_is_found_in_its_own_queue_only,
    a_decision_answers_the_state_now,
    decisions_are_kept_with_their_reasons,
    a_refused_decision_leaves_no_row,
    the_last_decision_outlives_the_message,
    an_unknown_queue_is_not_found,
    a_dead_lettered_message_is_out_of_its_holders_hands,
    decisions_see_the_time_passed,
];

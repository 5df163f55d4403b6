//! §4.13: purge.

use quita_storage::backend::{Answer, OperationRefused};
use quita_storage::model::{End, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::{Refused, Settled};
use quita_tests::fixture::{DAY, HOUR, LEASE, discard};
use quita_tests::{Fixture, TestQueue, on_every_store};

/// One ready, delayed, leased, dead and discarded message each.
async fn one_of_each(f: &Fixture, queue: TestQueue<'_>) {
    let discarded = queue.dead_letter().await.id;
    f.do_act(discarded, discard()).await;
    queue.dead_letter().await;
    queue.publish_and_take().await;
    queue.publish("ready").await;
    queue.create("delayed", |p| p.delay_ms = HOUR).await;
}

/// §4.13 – takes delayed, ready and leased ones, answers the count; dead ones stay.
async fn a_purge_takes_what_waits_and_is_leased(f: &Fixture) {
    let queue = f.plain_queue().await;
    one_of_each(f, queue).await;
    assert_eq!(queue.purge(false).await, 3);
    let counts = queue.counts().await;
    assert_eq!((counts.ready, counts.delayed, counts.leased), (0, 0, 0));
    assert_eq!((counts.dead, counts.purged), (1, 3));
    queue.assert_empty().await;
    f.pass_and_sweep(DAY).await;
    queue.assert_empty().await;
}

/// §4.13 – dead ones only with `dead_letters:true`.
async fn a_purge_of_dead_letters_takes_them_too(f: &Fixture) {
    let queue = f.plain_queue().await;
    one_of_each(f, queue).await;
    assert_eq!(queue.purge(true).await, 4);
    let counts = queue.counts().await;
    assert_eq!((counts.dead, counts.purged, counts.discarded), (0, 4, 1));
    assert!(queue.ids(State::Dead).await.is_empty());
    assert_eq!(queue.purge(true).await, 0);
}

/// §4.13 – nothing answered after the purge is lost, and background work takes nothing more.
async fn what_comes_after_a_purge_stays(f: &Fixture) {
    let queue = f.plain_queue().await;
    one_of_each(f, queue).await;
    queue.purge(true).await;
    let id = queue.publish("new").await;
    f.maintain().await;
    f.sweep().await;
    assert_eq!(queue.ids(State::Ready).await, [id]);
    f.ack(&queue.take().await).await.unwrap();
    queue.dead_letter().await;
    f.maintain().await;
    let counts = queue.counts().await;
    assert_eq!((counts.purged, counts.acked, counts.dead), (4, 1, 1));
}

/// §4.13 – a purge moves no total but its own, before and after the rows are cleared.
async fn clearing_moves_no_number(f: &Fixture) {
    let queue = f.plain_queue().await;
    one_of_each(f, queue).await;
    queue.purge(true).await;
    let before = queue.counts().await;
    f.maintain().await;
    assert_eq!(queue.counts().await, before);
    assert_eq!(before.imbalance(), 0);
}

/// §4.13 – a settle of a purged message finds it gone, before and after the rows are cleared.
async fn a_purged_message_is_gone_for_its_holder(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    queue.purge(false).await;
    for _ in 0..2 {
        let end = Some(End::Purged);
        assert_eq!(f.ack(&hand).await, Ok(Settled::Already { end }));
        assert_eq!(f.nack(&hand).await, Err(Refused::MessageGone));
        assert_eq!(f.release(&hand).await, Err(Refused::MessageGone));
        assert_eq!(f.extend(&hand, LEASE).await, Err(Refused::MessageGone));
        f.maintain().await;
    }
    assert_eq!(queue.counts().await.acked, 0);
}

/// §4.13 – a repeat of a settle before the purge is still a repeat.
async fn a_settle_before_a_purge_is_still_a_repeat(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.nack(&hand).await.unwrap();
    queue.purge(false).await;
    for _ in 0..2 {
        let end = Some(End::Purged);
        assert_eq!(f.nack(&hand).await, Ok(Settled::Already { end }));
        assert_eq!(f.ack(&hand).await, Err(Refused::ReceiptSpent));
        f.maintain().await;
    }
}

/// §4.13 – a purged message is not found by operators, and its detail says how it went.
async fn a_purged_message_is_gone_for_operators(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue
        .create("1", |p| {
            p.request_id = Some(quita_tests::fixture::request_id("x"));
        })
        .await;
    let purged_at = f.now();
    queue.purge(false).await;
    for _ in 0..2 {
        let refused = f.refuse_act(id, Act::DeadLetter).await;
        assert_eq!(refused, OperationRefused::MessageNotFound);
        let detail = f.message(id).await.unwrap();
        let ended = detail.ended.unwrap();
        assert_eq!((ended.end, ended.at), (End::Purged, purged_at));
        assert!(detail.message.is_none());
        f.pass(HOUR);
        f.maintain().await;
    }
}

/// §4.13 – purge again and again, with messages in between.
async fn purges_add_up(f: &Fixture) {
    let queue = f.plain_queue().await;
    for round in 1..=3 {
        queue.publish("1").await;
        queue.publish("2").await;
        queue.take().await;
        assert_eq!(queue.purge(false).await, 2);
        assert_eq!(queue.counts().await.purged, 2 * round);
        if round == 2 {
            f.maintain().await;
        }
    }
}

/// §4.13 – a purge concerns one queue.
async fn a_purge_concerns_one_queue(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    one.publish("1").await;
    let id = two.publish("2").await;
    one.purge(true).await;
    assert_eq!(two.ids(State::Ready).await, [id]);
}

/// §4.13 – a purge of many is counted exactly.
async fn a_purge_of_many_is_counted_exactly(f: &Fixture) {
    let queue = f.plain_queue().await;
    let item = queue.publish_item("1", |_| {}).await;
    let batch = quita_storage::backend::Batch {
        publishes: vec![item; 2_500],
        ..Default::default()
    };
    f.apply(&batch).await;
    queue.receive(100).await;
    assert_eq!(queue.purge(false).await, 2_500);
    f.maintain().await;
    let counts = queue.counts().await;
    assert_eq!((counts.purged, counts.imbalance()), (2_500, 0));
}

/// §4.13 – an unknown queue cannot be purged.
async fn an_unknown_queue_cannot_be_purged(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.delete(false).await;
    let purge = quita_storage::backend::Operation::Purge {
        queue: queue.uid,
        dead_letters: true,
    };
    let refused = Answer::Refused(OperationRefused::QueueNotFound);
    assert_eq!(f.operate(purge).await, refused);
}

on_every_store![
    a_purge_takes_what_waits_and_is_leased,
    a_purge_of_dead_letters_takes_them_too,
    what_comes_after_a_purge_stays,
    clearing_moves_no_number,
    a_purged_message_is_gone_for_its_holder,
    a_settle_before_a_purge_is_still_a_repeat,
    a_purged_message_is_gone_for_operators,
    purges_add_up,
    a_purge_concerns_one_queue,
    a_purge_of_many_is_counted_exactly,
    an_unknown_queue_cannot_be_purged,
];

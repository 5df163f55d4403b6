//! §4.10: higher priority first, then the time a message became available, then publish order.

use quita_storage::model::{MessageId, State};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{HOUR, LEASE, SECOND, nack, redrive};
use quita_tests::{Fixture, TestQueue, on_every_store};

async fn drain(queue: TestQueue<'_>) -> Vec<MessageId> {
    let mut ids = Vec::new();
    loop {
        let hands = queue.receive(1).await;
        let Some(hand) = hands.first() else {
            return ids;
        };
        ids.push(hand.id);
    }
}

/// §4.10 – publish order, also inside one millisecond.
async fn messages_come_in_publish_order(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(queue.publish("1").await);
        f.pass(n % 2);
    }
    assert_eq!(queue.ids(State::Ready).await, ids);
    assert_eq!(drain(queue).await, ids);
}

/// §4.10 – higher `priority` first.
async fn higher_priority_comes_first(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut by_priority = Vec::new();
    for priority in [4, 0, 9, 5, 9, 4] {
        let id = queue.create("1", |p| p.priority = priority).await;
        by_priority.push((std::cmp::Reverse(priority), id));
        f.pass(1);
    }
    by_priority.sort();
    let ids: Vec<MessageId> = by_priority.into_iter().map(|(_, id)| id).collect();
    assert_eq!(queue.ids(State::Ready).await, ids);
    assert_eq!(drain(queue).await, ids);
}

/// §4.10 – the time a message became available, not the time it was published.
async fn a_delayed_message_takes_its_place_by_due_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    let delayed = queue.create("1", |p| p.delay_ms = 2 * SECOND).await;
    f.pass(SECOND);
    let early = queue.publish("2").await;
    f.pass(2 * SECOND);
    let late = queue.publish("3").await;
    assert_eq!(drain(queue).await, [early, delayed, late]);
}

/// §4.10 – an expired lease re-enters at its expiry, in its own priority, swept or not.
async fn an_expired_lease_re_enters_at_its_expiry(f: &Fixture) {
    for swept in [false, true] {
        let queue = f.queue(&format!("swept-{swept}"), |_| {}).await;
        let first = queue.publish_and_take().await.id;
        f.pass(LEASE - SECOND);
        let before = queue.publish("2").await;
        f.pass(2 * SECOND);
        let after = queue.publish("3").await;
        let urgent = queue.create("4", |p| p.priority = 9).await;
        if swept {
            f.sweep().await;
        }
        let order = [urgent, before, first, after];
        assert_eq!(queue.ids(State::Ready).await, order, "swept: {swept}");
        assert_eq!(drain(queue).await, order, "swept: {swept}");
    }
}

/// §4.10 – an expired lease keeps its priority.
async fn an_expired_lease_keeps_its_priority(f: &Fixture) {
    let queue = f.plain_queue().await;
    let urgent = queue.create("1", |p| p.priority = 9).await;
    queue.take().await;
    let plain = queue.publish("2").await;
    f.pass(LEASE);
    assert_eq!(drain(queue).await, [urgent, plain]);
}

/// §4.10 – release and give-back keep the old place, however long ago.
async fn release_and_give_back_keep_the_old_place(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = queue.publish("1").await;
    f.pass(SECOND);
    let second = queue.publish("2").await;
    f.pass(SECOND);
    let third = queue.publish("3").await;
    let hands = queue.receive(2).await;
    f.pass(SECOND);
    f.give_back(&hands[1]).await.unwrap();
    f.release(&hands[0]).await.unwrap();
    assert_eq!(queue.ids(State::Ready).await, [first, second, third]);
    // And again: the old place is still the old one.
    let hand = queue.take().await;
    f.release(&hand).await.unwrap();
    assert_eq!(drain(queue).await, [first, second, third]);
}

/// §4.10 – a retry, a redrive and a promotion come at the time they became available.
async fn whoever_comes_back_queues_up_again(f: &Fixture) {
    let queue = f.plain_queue().await;
    let nacked = queue.publish_and_take().await;
    let dead = queue.dead_letter().await.id;
    let delayed = queue.create("3", |p| p.delay_ms = HOUR).await;
    let waiting = queue.publish("4").await;
    f.pass(1);
    f.settle(&nacked, nack(Some(0), false)).await.unwrap();
    f.pass(1);
    f.do_act(delayed, Act::Promote).await;
    f.pass(1);
    f.do_act(dead, redrive(false)).await;
    assert_eq!(drain(queue).await, [waiting, nacked.id, delayed, dead]);
}

/// §4.10 – one receive of many is in the same order.
async fn one_receive_is_in_order(f: &Fixture) {
    let queue = f.plain_queue().await;
    let expired = queue.create("1", |p| p.priority = 5).await;
    queue.take().await;
    let low = queue.create("2", |p| p.priority = 1).await;
    f.pass(LEASE);
    let plain = queue.publish("3").await;
    let high = queue.create("4", |p| p.priority = 8).await;
    let due = queue
        .create("5", |p| {
            p.priority = 8;
            p.delay_ms = SECOND;
        })
        .await;
    f.pass(SECOND);
    let ids: Vec<MessageId> = queue.receive(10).await.iter().map(|h| h.id).collect();
    assert_eq!(ids, [high, due, expired, plain, low]);
}

on_every_store![
    messages_come_in_publish_order,
    higher_priority_comes_first,
    a_delayed_message_takes_its_place_by_due_time,
    an_expired_lease_re_enters_at_its_expiry,
    an_expired_lease_keeps_its_priority,
    release_and_give_back_keep_the_old_place,
    whoever_comes_back_queues_up_again,
    one_receive_is_in_order,
];

//! §4.12: pause stops hand-out, and nothing else.

use quita_storage::model::State;
use quita_storage::rules::settle::Settled;
use quita_tests::fixture::{LEASE, SECOND};
use quita_tests::{Fixture, on_every_store};

/// §4.12 – no lease is granted while a queue is paused; it says so.
async fn a_paused_queue_hands_nothing_out(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    queue.pause(true).await;
    assert!(queue.receive_for(10, LEASE).await.is_none());
    let counts = queue.counts().await;
    assert_eq!((counts.ready, counts.delivered), (1, 0));
    queue.pause(false).await;
    queue.take().await;
}

/// §4.12 – publish, settle and listing go on.
async fn publish_settle_and_listing_go_on(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    queue.pause(true).await;
    let id = queue.publish("2").await;
    assert_eq!(queue.ids(State::Ready).await, [id]);
    f.extend(&hand, LEASE).await.unwrap();
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
}

/// §4.12 – time goes on: leases run out, delays end.
async fn time_goes_on_while_paused(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish_and_take().await;
    queue.create("2", |p| p.delay_ms = SECOND).await;
    queue.pause(true).await;
    f.pass_and_sweep(LEASE).await;
    assert_eq!(queue.counts().await.ready, 2);
    queue.pause(false).await;
    assert_eq!(queue.receive(10).await.len(), 2);
}

/// §4.12 – a pause is part of the queue's view; pausing twice is pausing once.
async fn a_queue_says_that_it_is_paused(f: &Fixture) {
    let queue = f.plain_queue().await;
    assert!(!queue.view().await.paused);
    for _ in 0..2 {
        queue.pause(true).await;
        assert!(queue.view().await.paused);
    }
    queue.pause(false).await;
    assert!(!queue.view().await.paused);
}

/// §4.12 – a new policy does not resume.
async fn a_new_policy_does_not_resume(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.pause(true).await;
    queue.set(|p| p.max_attempts = 7).await;
    assert!(queue.view().await.paused);
}

/// §4.12 – the other queues go on.
async fn a_pause_concerns_one_queue(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    two.publish("1").await;
    one.pause(true).await;
    two.take().await;
}

on_every_store![
    a_paused_queue_hands_nothing_out,
    publish_settle_and_listing_go_on,
    time_goes_on_while_paused,
    a_queue_says_that_it_is_paused,
    a_new_policy_does_not_resume,
    a_pause_concerns_one_queue,
];

//! §4.11: retention and life spans.

use quita_storage::backend::OperationRefused;
use quita_storage::model::{Reason, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Settled;
use quita_tests::fixture::{HOUR, LEASE, MINUTE, SECOND, redrive};
use quita_tests::{Fixture, on_every_store};

/// §4.11 – retention counts from when the message last became available, not from publish.
async fn retention_counts_from_when_it_became_available(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    queue.create("1", |p| p.delay_ms = 2 * HOUR).await;
    f.pass_and_sweep(3 * HOUR - 1).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – a retry starts it over.
async fn a_retry_starts_retention_over(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    queue.publish("1").await;
    f.pass(HOUR - SECOND);
    queue.take().await;
    f.pass_and_sweep(LEASE + HOUR - 1).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.counts().await.dead, 1);
}

/// §4.11 – a release or give-back to the old place keeps the older time.
async fn a_release_keeps_the_older_time(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    queue.publish("1").await;
    f.pass(HOUR - SECOND);
    f.release(&queue.take().await).await.unwrap();
    f.give_back(&queue.take().await).await.unwrap();
    f.pass_and_sweep(SECOND - 1).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – retention runs during pause.
async fn retention_runs_during_pause(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    queue.publish("1").await;
    queue.pause(true).await;
    f.pass_and_sweep(HOUR).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – retention never interrupts a lease.
async fn retention_never_interrupts_a_lease(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = MINUTE).await;
    queue.publish("1").await;
    let hand = queue.receive_for(1, HOUR).await.unwrap().remove(0);
    f.pass_and_sweep(HOUR - 1).await;
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
}

/// §4.11 – nor does `expires_at`; once the lease is over, the message expires.
async fn a_life_span_never_interrupts_a_lease(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.create("1", |p| p.expires_in_ms = Some(MINUTE)).await;
    let hand = queue.receive_for(1, HOUR).await.unwrap().remove(0);
    f.pass_and_sweep(HOUR - 1).await;
    assert_eq!(f.state(hand.id).await, State::Leased);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
    queue.assert_empty().await;
}

/// §4.11 – `expires_in_seconds` counts from publish, not from when the message is due.
async fn a_life_span_counts_from_publish(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue
        .create("1", |p| {
            p.delay_ms = MINUTE;
            p.expires_in_ms = Some(MINUTE + SECOND);
        })
        .await;
    let message = f.message(id).await.unwrap().message.unwrap();
    assert_eq!(message.expires_at, Some(f.now() + MINUTE + SECOND));
    f.pass_and_sweep(MINUTE).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(SECOND).await;
    assert_eq!(queue.counts().await.dead, 1);
}

/// §4.11 – a redrive past `expires_at` → `expired` unless a new value is given.
async fn a_redrive_past_its_end_needs_a_new_life_span(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.expires_in_ms = Some(MINUTE)).await;
    f.pass_and_sweep(MINUTE).await;
    let refused = f.refuse_act(id, redrive(true)).await;
    assert_eq!(refused, OperationRefused::Expired);
    let done = queue.redrive_oldest(10).await;
    assert_eq!((done.moved, done.skipped.expired), (0, 1));
    let again = Act::Redrive {
        force: false,
        expires_in_ms: Some(HOUR),
    };
    f.do_act(id, again).await;
    let expires_at = f.now() + HOUR;
    let message = f.message(id).await.unwrap().message.unwrap();
    assert_eq!(message.expires_at, Some(expires_at));
    f.pass_and_sweep(HOUR - 1).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – a redrive before the end keeps it.
async fn a_redrive_before_its_end_keeps_it(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.expires_in_ms = Some(HOUR)).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.pass(HOUR - SECOND);
    f.do_act(id, redrive(false)).await;
    f.pass_and_sweep(SECOND).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – a lowered retention takes effect on what waits already.
async fn a_lowered_retention_takes_effect_at_once(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    f.pass_and_sweep(2 * HOUR).await;
    queue.set(|p| p.retention_ms = HOUR).await;
    queue.assert_empty().await;
    f.sweep().await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §4.11 – a sweep files many at once, all of them.
async fn a_sweep_files_all_of_many(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    let item = queue.publish_item("1", |_| {}).await;
    let batch = quita_storage::backend::Batch {
        publishes: vec![item; 1_500],
        ..Default::default()
    };
    f.apply(&batch).await;
    f.pass_and_sweep(HOUR).await;
    let counts = queue.counts().await;
    assert_eq!((counts.ready, counts.dead), (0, 1_500));
}

on_every_store![
    retention_counts_from_when_it_became_available,
    a_retry_starts_retention_over,
    a_release_keeps_the_older_time,
    retention_runs_during_pause,
    retention_never_interrupts_a_lease,
    a_life_span_never_interrupts_a_lease,
    a_life_span_counts_from_publish,
    a_redrive_past_its_end_needs_a_new_life_span,
    a_redrive_before_its_end_keeps_it,
    a_lowered_retention_takes_effect_at_once,
    a_sweep_files_all_of_many,
];

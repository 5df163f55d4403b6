//! §4.14: errors and history.

use quita_storage::model::{
    Cause, Failure, MAX_ERROR_CODE_BYTES, MAX_ERROR_DETAIL_BYTES, Place, State,
};
use quita_storage::rules::settle::Action;
use quita_tests::fixture::{LEASE, SECOND, nack};
use quita_tests::{Fixture, on_every_store};

/// §4.14 – code and detail are cleaned and cut, never refused, and come back with the next delivery.
async fn an_oversized_error_is_cut_and_kept(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let failure = Failure::cleaned(
        Some(&"é".repeat(100)),
        Some(&format!("nul \u{0} bell \u{7} line\n{}", "x".repeat(5_000))),
    );
    assert!(failure.truncated);
    let action = Action::Nack {
        failure: failure.clone(),
        delay_ms: Some(0),
        permanent: false,
    };
    f.settle(&hand, action).await.unwrap();
    let kept = queue.take().await.delivery.last_failure.unwrap().failure;
    assert_eq!(kept, failure);
    let (code, detail) = (kept.code.unwrap(), kept.detail.unwrap());
    assert!(code.len() <= MAX_ERROR_CODE_BYTES && code.starts_with('é'));
    assert!(detail.len() <= MAX_ERROR_DETAIL_BYTES);
    assert!(detail.starts_with("nul \u{fffd} bell \u{fffd} line\n"));
}

/// §4.14 – a nack without an error is as good.
async fn an_error_is_optional(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let action = Action::Nack {
        failure: Failure::default(),
        delay_ms: Some(0),
        permanent: false,
    };
    f.settle(&hand, action).await.unwrap();
    let last = queue.take().await.delivery.last_failure.unwrap();
    assert_eq!(
        (last.cause, last.failure),
        (Cause::Nack, Failure::default())
    );
}

/// §4.14 – each delivery that ended is in the history, with attempt, times, worker, cause and error.
async fn history_tells_every_delivery(f: &Fixture) {
    let queue = f.plain_queue().await;
    let start = f.now();
    queue.publish("1").await;
    let first = queue.take().await;
    f.pass(SECOND);
    f.settle(&first, nack(Some(0), false)).await.unwrap();
    queue.take().await;
    f.pass_and_sweep(LEASE).await;
    let third = queue.take().await;
    f.release(&third).await.unwrap();
    let fourth = queue.take().await;
    f.give_back(&fourth).await.unwrap();
    queue.take().await;

    let deliveries = f.message(first.id).await.unwrap().deliveries;
    let told: Vec<(i32, i32, Cause)> = deliveries
        .iter()
        .map(|d| (d.fence, d.attempt, d.cause))
        .collect();
    assert_eq!(
        told,
        [
            (1, 1, Cause::Nack),
            (2, 2, Cause::LeaseExpired),
            (3, 3, Cause::Release),
            (4, 3, Cause::GivenBack),
        ]
    );
    assert_eq!(deliveries[0].leased_at, start);
    assert_eq!(deliveries[0].ended_at, start + SECOND);
    assert_eq!(deliveries[1].ended_at, start + SECOND + LEASE);
    assert_eq!(deliveries[0].failure.code.as_deref(), Some("E1"));
    assert_eq!(deliveries[0].failure.detail.as_deref(), Some("it failed"));
    for delivery in &deliveries {
        assert_eq!(delivery.worker.as_deref(), Some("worker-1"));
        assert!(!delivery.late);
    }
}

/// §4.14 – history keeps the first 10 and last 100 deliveries, and the counters stay exact.
async fn history_keeps_the_first_ten_and_the_last_hundred(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 1_000;
            p.max_lease_expirations = 1_000;
        })
        .await;
    let id = queue.publish("1").await;
    for round in 0..125 {
        let hand = queue.take().await;
        if round % 5 == 0 {
            f.pass(LEASE);
        } else {
            f.settle(&hand, nack(Some(0), false)).await.unwrap();
        }
    }
    f.sweep().await;
    let detail = f.message(id).await.unwrap();
    let fences: Vec<i32> = detail.deliveries.iter().map(|d| d.fence).collect();
    let kept: Vec<i32> = (1..=10).chain(26..=125).collect();
    assert_eq!(fences, kept);
    let life = detail.message.unwrap().life;
    assert_eq!(
        (life.fence, life.attempts, life.expirations),
        (125, 125, 25)
    );
}

/// §4.14 – the last failure comes with the next delivery, also when releases came between.
async fn the_last_failure_comes_with_the_next_delivery(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = queue.publish_and_take().await;
    assert_eq!(first.delivery.last_failure, None);
    f.settle(&first, nack(Some(0), false)).await.unwrap();
    f.release(&queue.take().await).await.unwrap();
    let third = queue.take().await;
    let failure = third.delivery.last_failure.unwrap();
    assert_eq!((failure.fence, failure.cause), (1, Cause::Nack));
    assert_eq!(failure.failure.code.as_deref(), Some("E1"));
}

/// §4.14 – a late nack writes over the expiration in the history.
async fn a_late_nack_corrects_the_history(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    f.nack(&hand).await.unwrap();
    let deliveries = f.message(hand.id).await.unwrap().deliveries;
    assert_eq!(deliveries.len(), 1);
    assert_eq!(
        (deliveries[0].cause, deliveries[0].late),
        (Cause::Nack, true)
    );
    assert_eq!(deliveries[0].attempt, 1);
    assert_eq!(deliveries[0].worker.as_deref(), Some("worker-1"));
}

/// §4.14 – the history of a message whose end is remembered ends with the ack.
async fn history_ends_with_the_ack(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.settle(&hand, nack(Some(0), false)).await.unwrap();
    f.ack(&queue.take().await).await.unwrap();
    let detail = f.message(hand.id).await.unwrap();
    let causes: Vec<Cause> = detail.deliveries.iter().map(|d| d.cause).collect();
    assert_eq!(causes, [Cause::Nack, Cause::Ack]);
}

/// §5 – a dead letter lists its last delivery and the error's code, for grouping.
async fn a_dead_letter_lists_its_error(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.dead_letter().await;
    let listed = queue.list(State::Dead).await.remove(0);
    let Place::Dead(dead) = listed.message.place else {
        panic!("not dead")
    };
    assert_eq!(dead.error_code.as_deref(), Some("E1"));
    let last = listed.last.unwrap();
    assert_eq!((last.cause, last.fence), (Cause::Permanent, 1));
}

on_every_store![
    an_oversized_error_is_cut_and_kept,
    an_error_is_optional,
    history_tells_every_delivery,
    history_keeps_the_first_ten_and_the_last_hundred,
    the_last_failure_comes_with_the_next_delivery,
    a_late_nack_corrects_the_history,
    history_ends_with_the_ack,
    a_dead_letter_lists_its_error,
];

//! What went wrong in other queues, where it is a rule of the store: docs/REPORTS.md says which report a case answers.

use quita_storage::model::{Millis, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Settled;
use quita_tests::fixture::{HOUR, LEASE, MINUTE, SECOND, nack, redrive, request_id};
use quita_tests::{Fixture, TestQueue, on_every_store};

/// B045 – a delivery never looks like an earlier one, whichever way that ended.
async fn no_delivery_repeats_another(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 1_000;
            p.max_lease_expirations = 1_000;
        })
        .await;
    let id = queue.publish("1").await;
    let mut hands = Vec::new();
    for round in 0..200 {
        let hand = queue.take().await;
        match round % 6 {
            0 => f.pass(LEASE),
            1 => f.pass_and_sweep(LEASE).await,
            2 => drop(f.settle(&hand, nack(Some(0), false)).await.unwrap()),
            3 => drop(f.release(&hand).await.unwrap()),
            4 => drop(f.give_back(&hand).await.unwrap()),
            _ => {
                f.nack_permanently(&hand).await.unwrap();
                f.do_act(id, redrive(true)).await;
            }
        }
        hands.push(hand);
    }
    let last = queue.take().await;
    let fences: Vec<i32> = hands.iter().chain([&last]).map(|h| h.fence).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    for old in &hands {
        assert_eq!(old.id, id);
        assert!(f.extend(old, HOUR).await.is_err(), "{old:?}");
    }
    let now = queue.list(State::Leased).await.remove(0);
    assert_eq!(now.message.place, last.delivery.message.place);
    let acked = f.ack(&last).await;
    assert!(matches!(acked, Ok(Settled::Acked { late: false, .. })));
}

async fn extended_at(f: &Fixture, queue: TestQueue<'_>, swept: bool, after: Millis) {
    let hand = queue.publish_and_take().await;
    f.pass(after);
    if swept {
        f.sweep().await;
    }
    f.extend(&hand, LEASE).await.unwrap();
    queue.assert_empty().await;
    f.pass(LEASE - 1);
    queue.assert_empty().await;
    let acked = f.ack(&hand).await;
    assert!(matches!(acked, Ok(Settled::Acked { late: false, .. })));
}

/// B058 – whoever was told that a lease goes on has it until then, also when it was told in the last moment or after it.
async fn an_extend_that_was_answered_holds(f: &Fixture) {
    let queue = f.plain_queue().await;
    for after in [LEASE - 1, LEASE, LEASE + 1] {
        for swept in [false, true] {
            extended_at(f, queue, swept, after).await;
        }
    }
}

/// B091 – one message that may not be handed out keeps no other one back.
async fn a_receive_gives_all_that_may_be_given(f: &Fixture) {
    let queue = f.plain_queue().await;
    for _ in 0..5 {
        let key = |p: &mut quita_storage::backend::Publish| p.key = Some("same".into());
        let exhausted = queue.create("1", key).await;
        f.settle(&queue.take().await, nack(Some(0), false))
            .await
            .unwrap();
        let over = queue.create("2", |p| p.expires_in_ms = Some(SECOND)).await;
        let released = queue.create("3", key).await;
        let all = queue.receive(10).await;
        assert_eq!(all.len(), 3);
        for hand in &all {
            f.give_back(hand).await.unwrap();
        }
        let fresh = queue.create("4", key).await;
        f.pass(SECOND);
        queue.set(|p| p.max_attempts = 1).await;
        let given: Vec<_> = queue.receive(10).await;
        let ids: Vec<_> = given.iter().map(|h| h.id).collect();
        assert_eq!(ids, [released, fresh]);
        f.sweep().await;
        for id in [exhausted, over] {
            assert_eq!(f.state(id).await, State::Dead);
        }
        for hand in &given {
            f.ack(hand).await.unwrap();
        }
        queue.set(|p| p.max_attempts = 5).await;
    }
}

/// B158 – whatever brings a message back, it keeps its priority.
async fn whoever_comes_back_keeps_its_priority(f: &Fixture) {
    let queue = f.plain_queue().await;
    let high = queue.create("1", |p| p.priority = 9).await;
    for _ in 0..3 {
        queue.publish("2").await;
    }
    let mut hand = queue.take().await;
    for way in 0..5 {
        assert_eq!(hand.id, high, "way {way}");
        match way {
            0 => drop(f.settle(&hand, nack(Some(0), false)).await.unwrap()),
            1 => drop(f.release(&hand).await.unwrap()),
            2 => f.pass_and_sweep(LEASE).await,
            3 => {
                f.settle(&hand, nack(Some(HOUR), false)).await.unwrap();
                f.do_act(high, Act::Promote).await;
            }
            _ => {
                f.nack_permanently(&hand).await.unwrap();
                f.do_act(high, redrive(false)).await;
            }
        }
        hand = queue.take().await;
    }
    assert_eq!(hand.id, high);
}

/// B159 – a repeat makes the time in which repeats are known no longer.
async fn repeats_do_not_prolong_the_window(f: &Fixture) {
    let queue = f.queue("orders", |p| p.dedupe_window_ms = HOUR).await;
    let publish = async || {
        let with_id =
            |p: &mut quita_storage::backend::Publish| p.request_id = Some(request_id("x"));
        queue.publish_with("1", with_id).await
    };
    let is_new = |published: &quita_storage::backend::Published| {
        matches!(published, quita_storage::backend::Published::Created { .. })
    };
    assert!(is_new(&publish().await));
    f.ack(&queue.take().await).await.unwrap();
    let mut passed = 0;
    let (step, last) = (20 * MINUTE, 2 * HOUR + MINUTE);
    while passed + step < last {
        f.pass(step);
        f.maintain().await;
        passed += step;
        assert!(passed >= HOUR || !is_new(&publish().await), "{passed}");
    }
    f.pass(last - passed);
    f.maintain().await;
    assert!(is_new(&publish().await));
}

on_every_store![
    no_delivery_repeats_another,
    an_extend_that_was_answered_holds,
    a_receive_gives_all_that_may_be_given,
    whoever_comes_back_keeps_its_priority,
    repeats_do_not_prolong_the_window,
];

//! §4.7 batches, and the seam's promises about them: n items in, n outcomes out, in order; staleness.

use quita_storage::backend::{Batch, MAX_RECEIVE_BYTES, Published, Received, SettleOutcome};
use quita_storage::model::{MessageId, State};
use quita_storage::rules::settle::{Action, Refused, Settled};
use quita_tests::fixture::{LEASE, SECOND, nack, plain_policy, request_id};
use quita_tests::{Fixture, Hand, on_every_store};

fn received(received: &Received) -> Vec<MessageId> {
    match received {
        Received::Messages(messages) => messages.iter().map(|d| d.message.envelope.id).collect(),
        other => panic!("{other:?}"),
    }
}

/// §4.7 – n publishes in, n results out, same order; a refused item never fails its neighbours.
async fn a_refused_publish_spares_its_neighbours(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_depth = Some(3)).await;
    let taken = queue
        .create("0", |p| p.request_id = Some(request_id("x")))
        .await;
    let mut batch = Batch::default();
    for (body, id) in [
        ("1", "a"),
        ("other", "x"),
        ("2", "b"),
        ("3", "c"),
        ("0", "x"),
    ] {
        let item = queue
            .publish_item(body, |p| p.request_id = Some(request_id(id)))
            .await;
        batch.publishes.push(item);
    }
    let published = f.apply(&batch).await.publishes;
    assert!(matches!(published[0], Published::Created { .. }));
    assert_eq!(published[1], Published::Conflict { id: taken });
    assert!(matches!(published[2], Published::Created { .. }));
    assert_eq!(published[3], Published::Full);
    assert!(matches!(published[4], Published::Duplicate(_)));
    assert_eq!(queue.counts().await.accepted, 3);
}

/// §4.7 – n settles in, n results out, same order, over messages in all states.
async fn a_refused_settle_spares_its_neighbours(f: &Fixture) {
    let queue = f.plain_queue().await;
    for body in ["1", "2", "3", "4", "5"] {
        queue.publish(body).await;
    }
    let hands = queue.receive(5).await;
    f.ack(&hands[1]).await.unwrap();
    let actions = [
        Action::Ack { outcome: None },
        nack(None, false),
        nack(None, false),
        Action::Release { delay_ms: None },
        Action::Extend {
            visibility_timeout_ms: SECOND,
        },
    ];
    let mut batch = Batch::default();
    for (hand, action) in hands.iter().zip(actions) {
        batch.settles.push(queue.settle_item(hand, action).await);
    }
    let settles = f.apply(&batch).await.settles;
    let decided: Vec<_> = settles
        .iter()
        .map(|s| match s {
            SettleOutcome::Decided(decided) => decided,
            SettleOutcome::Stale => panic!("stale"),
        })
        .collect();
    assert!(matches!(decided[0], Ok(Settled::Acked { .. })));
    assert_eq!(decided[1], &Err(Refused::ReceiptSpent));
    assert!(matches!(decided[2], Ok(Settled::RetryScheduled { .. })));
    assert_eq!(decided[3], &Ok(Settled::Released));
    assert!(matches!(decided[4], Ok(Settled::Extended { .. })));
    assert_eq!(decided.len(), 5);
}

/// Seam – settles, publishes, receives apply in this order: a receive sees what the same commit freed and published.
async fn a_receive_sees_what_its_own_commit_freed_and_published(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let batch = Batch {
        settles: vec![
            queue
                .settle_item(&hand, Action::Release { delay_ms: None })
                .await,
        ],
        publishes: vec![queue.publish_item("2", |_| {}).await],
        receives: vec![queue.receive_item(10, LEASE).await],
    };
    let outcome = f.apply(&batch).await;
    let Published::Created { id, .. } = outcome.publishes[0] else {
        panic!("{:?}", outcome.publishes)
    };
    assert_eq!(received(&outcome.receives[0]), [hand.id, id]);
}

/// Seam – several receives in one commit share the queue: no message twice, in the queue's order.
async fn receives_of_one_commit_share_the_queue(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for body in ["1", "2", "3", "4", "5"] {
        ids.push(queue.publish(body).await);
    }
    let receive = queue.receive_item(2, LEASE).await;
    let batch = Batch {
        receives: vec![receive.clone(), receive.clone(), receive.clone(), receive],
        ..Batch::default()
    };
    let outcome = f.apply(&batch).await;
    let lists: Vec<_> = outcome.receives.iter().map(received).collect();
    assert_eq!(lists, [&ids[..2], &ids[2..4], &ids[4..], &[]]);
}

/// Seam – different queues in one commit do not mix.
async fn a_commit_for_several_queues_keeps_them_apart(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    let batch = Batch {
        publishes: vec![
            one.publish_item("1", |_| {}).await,
            two.publish_item("2", |_| {}).await,
            one.publish_item("3", |_| {}).await,
        ],
        receives: vec![
            two.receive_item(10, LEASE).await,
            one.receive_item(10, LEASE).await,
        ],
        ..Batch::default()
    };
    let outcome = f.apply(&batch).await;
    let ids: Vec<MessageId> = outcome
        .publishes
        .iter()
        .map(|p| match p {
            Published::Created { id, .. } => *id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(received(&outcome.receives[0]), [ids[1]]);
    assert_eq!(received(&outcome.receives[1]), [ids[0], ids[2]]);
}

/// Seam – nack, then its own message in one commit: the second settle sees the first one's effect.
async fn settles_of_one_message_see_each_other(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let mut batch = Batch::default();
    for action in [
        Action::Extend {
            visibility_timeout_ms: 5 * SECOND,
        },
        Action::Release { delay_ms: None },
        Action::Extend {
            visibility_timeout_ms: 5 * SECOND,
        },
    ] {
        batch.settles.push(queue.settle_item(&hand, action).await);
    }
    let settles = f.apply(&batch).await.settles;
    assert!(matches!(
        settles[0],
        SettleOutcome::Decided(Ok(Settled::Extended { .. }))
    ));
    assert_eq!(settles[1], SettleOutcome::Decided(Ok(Settled::Released)));
    assert_eq!(
        settles[2],
        SettleOutcome::Decided(Err(Refused::ReceiptSpent))
    );
}

/// §5 receive – at most `max`, and never more than there are.
async fn a_receive_answers_at_most_what_was_asked(f: &Fixture) {
    let queue = f.plain_queue().await;
    for _ in 0..7 {
        queue.publish("1").await;
    }
    assert_eq!(queue.receive(3).await.len(), 3);
    assert_eq!(queue.receive(100).await.len(), 4);
    assert_eq!(queue.receive(1).await.len(), 0);
}

/// §5 receive – stops at 8 MiB, but always takes one.
async fn a_receive_stops_before_eight_mebibytes(f: &Fixture) {
    let queue = f.plain_queue().await;
    let body = format!("\"{}\"", "x".repeat(MAX_RECEIVE_BYTES / 3));
    for _ in 0..4 {
        queue.publish(&body).await;
    }
    assert_eq!(queue.receive(100).await.len(), 2);
    let huge = format!("\"{}\"", "x".repeat(MAX_RECEIVE_BYTES));
    let queue = f.queue("huge", |_| {}).await;
    queue.publish(&huge).await;
    queue.publish(&huge).await;
    assert_eq!(queue.receive(100).await.len(), 1);
    assert_eq!(queue.receive(100).await.len(), 1);
}

/// Seam – a publish or receive that knows an older version of its queue comes back as stale, and nothing happened.
async fn an_item_with_an_old_view_is_stale_and_has_no_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let waiting = queue.publish("2").await;
    let batch = Batch {
        publishes: vec![queue.publish_item("3", |_| {}).await],
        receives: vec![queue.receive_item(10, LEASE).await],
        ..Batch::default()
    };
    queue.set(|p| p.max_attempts = 7).await;
    let outcome = f.apply(&batch).await;
    assert_eq!(outcome.publishes, [Published::Stale]);
    assert!(matches!(outcome.receives[..], [Received::Stale]));
    assert_eq!(queue.ids(State::Ready).await, [waiting]);
}

/// Seam – a settle with an old view is stale and has no effect, or is decided by the queue as it is now; never by the old
/// view.
async fn a_settle_is_never_decided_by_an_old_view(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let batch = Batch {
        settles: vec![queue.settle_item(&hand, nack(None, false)).await],
        ..Batch::default()
    };
    queue
        .set(|p| {
            p.backoff = quita_storage::model::Backoff::Fixed {
                base_ms: 77,
                jitter: quita_storage::model::Jitter::None,
            };
        })
        .await;
    match f.apply(&batch).await.settles.remove(0) {
        SettleOutcome::Stale => assert_eq!(queue.ids(State::Leased).await, [hand.id]),
        SettleOutcome::Decided(decided) => {
            let retry = Settled::RetryScheduled {
                late: false,
                next_attempt_at: f.now() + 77,
                attempts_left: 4,
            };
            assert_eq!(decided, Ok(retry));
        }
    }
}

/// Seam – stale items spare the fresh ones beside them.
async fn a_stale_item_spares_its_neighbours(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    let batch = Batch {
        publishes: vec![
            one.publish_item("1", |_| {}).await,
            two.publish_item("2", |_| {}).await,
        ],
        ..Batch::default()
    };
    one.set(|p| p.max_attempts = 7).await;
    let published = f.apply(&batch).await.publishes;
    assert_eq!(published[0], Published::Stale);
    assert!(matches!(published[1], Published::Created { .. }));
}

/// Seam – a publish or receive for a queue that is deleted is stale, also with the deleted queue's own view.
async fn a_deleted_queue_takes_and_gives_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.delete(false).await;
    let batch = Batch {
        publishes: vec![queue.publish_item("1", |_| {}).await],
        receives: vec![queue.receive_item(1, LEASE).await],
        ..Batch::default()
    };
    let outcome = f.apply(&batch).await;
    assert_eq!(outcome.publishes, [Published::Stale]);
    assert!(matches!(outcome.receives[..], [Received::Stale]));
}

/// Seam – an empty batch is nothing.
async fn an_empty_batch_does_nothing(f: &Fixture) {
    let outcome = f.apply(&Batch::default()).await;
    assert!(outcome.settles.is_empty() && outcome.publishes.is_empty());
    assert!(outcome.receives.is_empty());
}

/// §4.7 – a batch of a thousand of each.
async fn a_large_batch_is_answered_item_by_item(f: &Fixture) {
    let queue = f.queue("orders", |_| {}).await;
    let mut batch = Batch::default();
    let item = queue.publish_item("1", |_| {}).await;
    for _ in 0..1_000 {
        batch.publishes.push(item.clone());
    }
    let published = f.apply(&batch).await.publishes;
    let mut ids: Vec<MessageId> = published
        .iter()
        .map(|p| match p {
            Published::Created { id, .. } => *id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(ids.is_sorted(), "ids rise in publish order");
    ids.dedup();
    assert_eq!(ids.len(), 1_000);
    let mut hands: Vec<Hand> = Vec::new();
    for _ in 0..10 {
        hands.extend(queue.receive(100).await);
    }
    assert_eq!(hands.iter().map(|h| h.id).collect::<Vec<_>>(), ids);
    let mut batch = Batch::default();
    let view = queue.view().await;
    for hand in &hands {
        let claim = quita_storage::rules::settle::Claim {
            fence: hand.fence,
            handed_out_at: hand.handed_out_at,
            action: Action::Ack { outcome: None },
            chance: 0.0,
        };
        batch.settles.push(quita_storage::backend::Settle {
            queue: view.clone(),
            id: hand.id,
            claim,
        });
    }
    let settles = f.apply(&batch).await.settles;
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert!(
        settles
            .iter()
            .all(|s| *s == SettleOutcome::Decided(Ok(acked.clone())))
    );
    assert_eq!(queue.counts().await.acked, 1_000);
}

/// §4.15 – `max_depth` counts ready, delayed and leased; dead letters do not fill a queue.
async fn depth_counts_ready_delayed_and_leased(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_depth = Some(3)).await;
    queue.publish_and_take().await;
    queue.publish("2").await;
    let delayed = queue.create("3", |p| p.delay_ms = SECOND).await;
    let full = queue.publish_with("4", |_| {}).await;
    assert_eq!(full, Published::Full);
    f.do_act(delayed, quita_storage::rules::operate::Act::DeadLetter)
        .await;
    queue.publish("4").await;
    assert_eq!(queue.publish_with("5", |_| {}).await, Published::Full);
    queue.set(|p| p.max_depth = None).await;
    queue.publish("5").await;
}

/// §4.15 – inside one batch, the bound is met exactly.
async fn depth_is_met_exactly_inside_one_batch(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_depth = Some(4)).await;
    let item = queue.publish_item("1", |_| {}).await;
    let batch = Batch {
        publishes: vec![item; 6],
        ..Batch::default()
    };
    let published = f.apply(&batch).await.publishes;
    let created = published
        .iter()
        .take_while(|p| matches!(p, Published::Created { .. }));
    assert_eq!(created.count(), 4);
    assert_eq!(published[4..], [Published::Full, Published::Full]);
}

/// §4.15 – a queue that was lowered below what it holds takes nothing new and loses nothing.
async fn a_lowered_depth_loses_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    for _ in 0..5 {
        queue.publish("1").await;
    }
    queue
        .set(|p| {
            *p = quita_storage::model::Policy {
                max_depth: Some(2),
                ..plain_policy()
            }
        })
        .await;
    assert_eq!(queue.publish_with("2", |_| {}).await, Published::Full);
    assert_eq!(queue.receive(10).await.len(), 5);
}

on_every_store![
    a_refused_publish_spares_its_neighbours,
    a_refused_settle_spares_its_neighbours,
    a_receive_sees_what_its_own_commit_freed_and_published,
    receives_of_one_commit_share_the_queue,
    a_commit_for_several_queues_keeps_them_apart,
    settles_of_one_message_see_each_other,
    a_receive_answers_at_most_what_was_asked,
    a_receive_stops_before_eight_mebibytes,
    an_item_with_an_old_view_is_stale_and_has_no_effect,
    a_settle_is_never_decided_by_an_old_view,
    a_stale_item_spares_its_neighbours,
    a_deleted_queue_takes_and_gives_nothing,
    an_empty_batch_does_nothing,
    a_large_batch_is_answered_item_by_item,
    depth_counts_ready_delayed_and_leased,
    depth_is_met_exactly_inside_one_batch,
    a_lowered_depth_loses_nothing,
];

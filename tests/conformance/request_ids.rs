//! §4.3: client request ids.

use quita_storage::backend::{Batch, Duplicate, Expect, Published};
use quita_storage::model::{End, MessageId, State};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{DAY, HOUR, MINUTE, SECOND, discard, plain_policy, request_id};
use quita_tests::{Fixture, TestQueue, on_every_store};

async fn publish(queue: TestQueue<'_>, body: &str, id: &str) -> Published {
    queue
        .publish_with(body, |p| p.request_id = Some(request_id(id)))
        .await
}

async fn create(queue: TestQueue<'_>, body: &str, id: &str) -> MessageId {
    match publish(queue, body, id).await {
        Published::Created { id, .. } => id,
        other => panic!("not created: {other:?}"),
    }
}

fn duplicate(published: Published) -> Duplicate {
    match published {
        Published::Duplicate(duplicate) => duplicate,
        other => panic!("no duplicate: {other:?}"),
    }
}

/// §4.3 – same id, same body → the original's id and present state.
async fn a_repeat_names_the_first_message_and_its_present_state(f: &Fixture) {
    let queue = f.plain_queue().await;
    let published_at = f.now();
    let first = create(queue, "1", "x").await;
    f.pass(SECOND);
    let again = duplicate(publish(queue, "1", "x").await);
    assert_eq!((again.id, again.state), (first, State::Ready));
    assert_eq!(
        (again.by_key, again.same_body, again.end),
        (false, true, None)
    );
    assert_eq!(again.published_at, published_at);
    queue.take().await;
    let again = duplicate(publish(queue, "1", "x").await);
    assert_eq!((again.id, again.state), (first, State::Leased));
    assert_eq!(queue.counts().await.accepted, 1);
}

/// §4.3 – same id, other body → `client_request_id_conflict`, nothing stored.
async fn another_body_is_a_conflict(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = create(queue, "1", "x").await;
    let other = publish(queue, "2", "x").await;
    assert_eq!(other, Published::Conflict { id: first });
    assert_eq!(queue.counts().await.accepted, 1);
}

/// §4.3 – body = message, key and headers; another key or other headers are another body.
async fn key_and_headers_belong_to_the_body(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = create(queue, "1", "x").await;
    for change in [0, 1] {
        let other = queue
            .publish_with("1", |p| {
                p.request_id = Some(request_id("x"));
                if change == 0 {
                    p.key = Some("k".into());
                } else {
                    p.headers = Some(r#"{"a":"b"}"#.into());
                }
            })
            .await;
        assert_eq!(other, Published::Conflict { id: first });
    }
}

/// §4.3 – nothing else belongs to the body: not delay, priority, life span, limits.
async fn delay_and_priority_do_not_belong_to_the_body(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = create(queue, "1", "x").await;
    let again = queue
        .publish_with("1", |p| {
            p.request_id = Some(request_id("x"));
            p.delay_ms = HOUR;
            p.priority = 9;
            p.expires_in_ms = Some(DAY);
            p.max_attempts = Some(1);
        })
        .await;
    assert_eq!(duplicate(again).id, first);
}

/// §4.3 – ids are compared exactly: case, spaces and length tell them apart.
async fn ids_are_compared_exactly(f: &Fixture) {
    let queue = f.plain_queue().await;
    let long = "a".repeat(128);
    for id in ["a", "A", " a", "a ", "a\u{301}", "á", &long, &long[1..]] {
        create(queue, "1", id).await;
    }
    assert_eq!(queue.counts().await.accepted, 8);
}

/// §4.3 – an id belongs to one queue name.
async fn an_id_belongs_to_its_queue(f: &Fixture) {
    let one = f.queue("one", |_| {}).await;
    let two = f.queue("two", |_| {}).await;
    let first = create(one, "1", "x").await;
    let second = create(two, "1", "x").await;
    assert_ne!(first, second);
    assert_eq!(one.counts().await.accepted, 1);
    assert_eq!(two.counts().await.accepted, 1);
}

/// §4.3 – in one batch each request gets the answer it would have had one statement later; exactly one is new.
async fn repeats_inside_one_batch_make_one_message(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut batch = Batch::default();
    for body in ["1", "1", "2", "1"] {
        let item = queue
            .publish_item(body, |p| p.request_id = Some(request_id("x")))
            .await;
        batch.publishes.push(item);
    }
    let published = f.apply(&batch).await.publishes;
    let Published::Created { id, .. } = published[0] else {
        panic!("{published:?}")
    };
    assert_eq!(duplicate(published[1].clone()).id, id);
    assert_eq!(duplicate(published[1].clone()).state, State::Ready);
    assert_eq!(published[2], Published::Conflict { id });
    assert_eq!(duplicate(published[3].clone()).id, id);
    assert_eq!(queue.counts().await.accepted, 1);
}

/// §4.3 – the first of a batch is the first, also when one of the repeats has a key to be checked.
async fn a_repeat_with_a_key_does_not_change_the_order(f: &Fixture) {
    let queue = f.queue("orders", |p| p.unique_key = true).await;
    let mut batch = Batch::default();
    for key in [Some("k"), None] {
        let item = queue
            .publish_item("1", |p| {
                p.request_id = Some(request_id("x"));
                p.key = key.map(Into::into);
            })
            .await;
        batch.publishes.push(item);
    }
    let published = f.apply(&batch).await.publishes;
    let Published::Created { id, .. } = published[0] else {
        panic!("{published:?}")
    };
    assert_eq!(published[1], Published::Conflict { id });
}

/// §4.3 – a batch may mix an id that is taken, siblings and new ones.
async fn a_batch_applies_the_same_rule_to_each_item(f: &Fixture) {
    let queue = f.plain_queue().await;
    let x = create(queue, "1", "x").await;
    let mut batch = Batch::default();
    for id in ["x", "y", "y", "z"] {
        let item = queue
            .publish_item("1", |p| p.request_id = Some(request_id(id)))
            .await;
        batch.publishes.push(item);
    }
    let published = f.apply(&batch).await.publishes;
    assert_eq!(duplicate(published[0].clone()).id, x);
    let Published::Created { id: y, .. } = published[1] else {
        panic!("{published:?}")
    };
    assert_eq!(duplicate(published[2].clone()).id, y);
    assert!(matches!(published[3], Published::Created { .. }));
    assert_eq!(queue.counts().await.accepted, 3);
}

/// §4.3 – N concurrent publishes with one id make one message, and every answer names it.
async fn concurrent_publishes_with_one_id_make_one_message(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut batches = Vec::new();
    for _ in 0..16 {
        let item = queue
            .publish_item("1", |p| p.request_id = Some(request_id("x")))
            .await;
        batches.push(Batch {
            publishes: vec![item],
            ..Batch::default()
        });
    }
    let now = Some(f.now());
    let calls = batches.iter().map(|batch| f.backend.apply(batch, now));
    let mut ids = Vec::new();
    let mut created = 0;
    for outcome in futures_util::future::join_all(calls).await {
        match outcome.unwrap().publishes.remove(0) {
            Published::Created { id, .. } => {
                created += 1;
                ids.push(id);
            }
            other => ids.push(duplicate(other).id),
        }
    }
    ids.dedup();
    assert_eq!((created, ids.len()), (1, 1), "{ids:?}");
    assert_eq!(queue.counts().await.accepted, 1);
}

/// §4.3 – the id stays taken while the message exists, however long.
async fn an_id_is_taken_while_its_message_exists(f: &Fixture) {
    let queue = f.queue("orders", |p| p.dedupe_window_ms = MINUTE).await;
    let first = create(queue, "1", "x").await;
    f.pass_and_sweep(10 * DAY).await;
    f.maintain().await;
    assert_eq!(duplicate(publish(queue, "1", "x").await).id, first);
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.pass_and_sweep(100 * DAY).await;
    f.maintain().await;
    let again = duplicate(publish(queue, "1", "x").await);
    assert_eq!((again.id, again.state), (first, State::Dead));
}

/// §4.3 – and for `dedupe_window_seconds` after it is gone, by ack; free after at most 2 × the window + 60 s.
async fn an_id_is_taken_for_a_window_after_the_ack(f: &Fixture) {
    let queue = f.queue("orders", |p| p.dedupe_window_ms = HOUR).await;
    let first = create(queue, "1", "x").await;
    f.ack(&queue.take().await).await.unwrap();
    f.pass(HOUR - 1);
    f.maintain().await;
    let again = duplicate(publish(queue, "1", "x").await);
    assert_eq!(
        (again.id, again.state, again.end),
        (first, State::Ended, Some(End::Acked))
    );
    f.pass(HOUR + MINUTE);
    let second = create(queue, "1", "x").await;
    assert_ne!(first, second);
}

/// §4.3 – also when the message lived longer than a window: a full window from its end.
async fn a_long_life_is_followed_by_a_whole_window(f: &Fixture) {
    let queue = f.queue("orders", |p| p.dedupe_window_ms = MINUTE).await;
    let first = create(queue, "1", "x").await;
    f.pass(10 * HOUR);
    f.ack(&queue.take().await).await.unwrap();
    f.pass(MINUTE - 1);
    f.maintain().await;
    assert_eq!(duplicate(publish(queue, "1", "x").await).id, first);
    f.pass(2 * MINUTE);
    create(queue, "1", "x").await;
}

/// §4.3 – also when a purge or the deletion of the queue ended a long life.
async fn a_purge_of_a_long_life_is_followed_by_a_whole_window(f: &Fixture) {
    for deleted in [false, true] {
        let name = format!("deleted-{deleted}");
        let queue = f.queue(&name, |p| p.dedupe_window_ms = MINUTE).await;
        let first = create(queue, "1", "x").await;
        f.pass(10 * HOUR);
        if deleted {
            queue.delete(true).await;
            let policy = (*queue.view().await.policy).clone();
            f.put_queue(&name, policy, Expect::Anything).await;
        } else {
            queue.purge(true).await;
        }
        for _ in 0..2 {
            let again = duplicate(publish(queue, "1", "x").await);
            assert_eq!((again.id, again.end), (first, Some(End::Purged)));
            f.pass(MINUTE - 1);
            f.maintain().await;
        }
        f.pass(2 * MINUTE);
        create(queue, "1", "x").await;
    }
}

/// §4.3 – background work frees no id early and changes no answer.
async fn maintenance_changes_no_answer(f: &Fixture) {
    let queue = f.queue("orders", |p| p.dedupe_window_ms = HOUR).await;
    let first = create(queue, "1", "x").await;
    f.ack(&queue.take().await).await.unwrap();
    for _ in 0..6 {
        f.pass(10 * MINUTE - 1);
        f.maintain().await;
        assert_eq!(duplicate(publish(queue, "1", "x").await).id, first);
    }
    f.pass(HOUR + MINUTE);
    f.maintain().await;
    create(queue, "1", "x").await;
}

/// §4.3 – however it went: the answer to a repeat says how.
async fn a_repeat_says_how_the_message_went(f: &Fixture) {
    let queue = f.plain_queue().await;
    let cancelled = create(queue, "1", "cancelled").await;
    f.do_act(cancelled, Act::Cancel).await;
    let discarded = create(queue, "1", "discarded").await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.do_act(discarded, discard()).await;
    let purged = create(queue, "1", "purged").await;
    assert_eq!(queue.purge(false).await, 1);
    for (id, text, end) in [
        (cancelled, "cancelled", End::Cancelled),
        (discarded, "discarded", End::Discarded),
        (purged, "purged", End::Purged),
    ] {
        let again = duplicate(publish(queue, "1", text).await);
        assert_eq!((again.id, again.state), (id, State::Ended));
        assert_eq!(again.end, Some(end));
    }
    assert_eq!(queue.counts().await.accepted, 3);
}

/// §4.3 – purge and deletion of the queue free no id; it belongs to the queue's name.
async fn an_id_survives_purge_delete_and_a_new_queue(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = create(queue, "1", "x").await;
    queue.purge(true).await;
    assert_eq!(duplicate(publish(queue, "1", "x").await).id, first);
    queue.delete(true).await;
    f.maintain().await;
    f.put_queue("orders", plain_policy(), Expect::Anything)
        .await;
    let again = duplicate(publish(queue, "1", "x").await);
    assert_eq!((again.id, again.end), (first, Some(End::Purged)));
}

/// §4.3 – a duplicate is answered also when the queue is full or paused.
async fn a_repeat_is_answered_by_a_full_and_paused_queue(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_depth = Some(1)).await;
    let first = create(queue, "1", "x").await;
    queue.pause(true).await;
    assert_eq!(publish(queue, "2", "y").await, Published::Full);
    assert_eq!(duplicate(publish(queue, "1", "x").await).id, first);
    // A refused publish takes no id.
    f.do_act(first, Act::Cancel).await;
    create(queue, "3", "y").await;
}

/// §4.3 – order of checks: the request id comes before the key.
async fn the_request_id_is_checked_before_the_key(f: &Fixture) {
    let queue = f.queue("orders", |p| p.unique_key = true).await;
    let keyed = |id: &'static str, key: &'static str| {
        move |p: &mut quita_storage::backend::Publish| {
            p.request_id = Some(request_id(id));
            p.key = Some(key.into());
        }
    };
    let first = queue.create("1", keyed("x", "k")).await;
    let again = duplicate(queue.publish_with("1", keyed("x", "k")).await);
    assert_eq!((again.id, again.by_key), (first, false));
    let by_key = duplicate(queue.publish_with("1", keyed("y", "k")).await);
    assert_eq!((by_key.id, by_key.by_key), (first, true));
    let conflict = queue.publish_with("2", keyed("x", "k")).await;
    assert_eq!(conflict, Published::Conflict { id: first });
}

/// §4.3 – messages without an id are never taken for repeats.
async fn messages_without_an_id_are_all_different(f: &Fixture) {
    let queue = f.plain_queue().await;
    for _ in 0..3 {
        queue.publish("1").await;
    }
    assert_eq!(queue.counts().await.accepted, 3);
}

/// §5 receive – the id comes back exactly as it was sent.
async fn the_id_comes_back_as_sent(f: &Fixture) {
    let queue = f.plain_queue().await;
    create(queue, "1", " é\u{0}x ").await;
    let hand = queue.take().await;
    let sent = hand.delivery.message.envelope.request_id.clone();
    assert_eq!(sent.unwrap(), " é\u{0}x ".as_bytes());
}

on_every_store![
    a_repeat_names_the_first_message_and_its_present_state,
    another_body_is_a_conflict,
    key_and_headers_belong_to_the_body,
    delay_and_priority_do_not_belong_to_the_body,
    ids_are_compared_exactly,
    an_id_belongs_to_its_queue,
    repeats_inside_one_batch_make_one_message,
    a_repeat_with_a_key_does_not_change_the_order,
    a_batch_applies_the_same_rule_to_each_item,
    concurrent_publishes_with_one_id_make_one_message,
    an_id_is_taken_while_its_message_exists,
    an_id_is_taken_for_a_window_after_the_ack,
    a_long_life_is_followed_by_a_whole_window,
    a_purge_of_a_long_life_is_followed_by_a_whole_window,
    maintenance_changes_no_answer,
    a_repeat_says_how_the_message_went,
    an_id_survives_purge_delete_and_a_new_queue,
    a_repeat_is_answered_by_a_full_and_paused_queue,
    the_request_id_is_checked_before_the_key,
    messages_without_an_id_are_all_different,
    the_id_comes_back_as_sent,
];

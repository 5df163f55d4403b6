//! §4.4: business keys.

use quita_storage::backend::{Answer, Batch, Duplicate, Expect, OperationRefused, Published};
use quita_storage::model::{End, MessageId, Policy, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Settled;
use quita_tests::fixture::{DAY, HOUR, LEASE, discard, plain_policy};
use quita_tests::{Fixture, TestQueue, on_every_store};

async fn publish(queue: TestQueue<'_>, body: &str, key: &str) -> Published {
    queue.publish_with(body, |p| p.key = Some(key.into())).await
}

async fn create(queue: TestQueue<'_>, body: &str, key: &str) -> MessageId {
    queue.create(body, |p| p.key = Some(key.into())).await
}

fn duplicate(published: Published) -> Duplicate {
    match published {
        Published::Duplicate(duplicate) => duplicate,
        other => panic!("no duplicate: {other:?}"),
    }
}

fn unique(policy: &mut Policy) {
    policy.unique_key = true;
    policy.key_retention_ms = Some(30 * DAY);
}

/// §4.4 – messages are searchable by key, in any state.
async fn messages_are_found_by_their_key(f: &Fixture) {
    let queue = f.plain_queue().await;
    let dead = create(queue, "1", "a").await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let leased = create(queue, "2", "a").await;
    queue.take().await;
    let ready = create(queue, "3", "a").await;
    create(queue, "4", "b").await;
    let delayed = queue
        .create("5", |p| {
            p.key = Some("a".into());
            p.delay_ms = HOUR;
        })
        .await;
    for (state, id) in [
        (State::Ready, ready),
        (State::Leased, leased),
        (State::Dead, dead),
        (State::Delayed, delayed),
    ] {
        let mut browse = queue.browse_item(state);
        browse.key = Some("a".into());
        let found = queue.walk(browse).await;
        assert_eq!(found.len(), 1, "{state:?}");
        assert_eq!(found[0].message.envelope.id, id);
    }
}

/// §4.4 – without `unique_key`, a key may repeat.
async fn keys_may_repeat_on_a_plain_queue(f: &Fixture) {
    let queue = f.plain_queue().await;
    create(queue, "1", "a").await;
    create(queue, "1", "a").await;
    assert_eq!(queue.counts().await.accepted, 2);
}

/// §4.4 – with `unique_key`, a publish whose key is live stores nothing and names the first message and its state.
async fn a_live_key_is_a_duplicate(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let first = create(queue, "1", "a").await;
    let again = duplicate(publish(queue, "1", "a").await);
    assert_eq!((again.id, again.state), (first, State::Ready));
    assert_eq!((again.by_key, again.same_body), (true, true));
    queue.take().await;
    let other = duplicate(publish(queue, "2", "a").await);
    assert_eq!((other.id, other.state), (first, State::Leased));
    assert!(!other.same_body);
    f.pass_and_sweep(LEASE).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let dead = duplicate(publish(queue, "1", "a").await);
    assert_eq!((dead.id, dead.state), (first, State::Dead));
    create(queue, "1", "b").await;
    assert_eq!(queue.counts().await.accepted, 2);
}

/// §4.4 – keys are compared exactly and belong to one queue.
async fn keys_are_compared_exactly(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let other = f.queue("others", unique).await;
    for key in ["a", "A", "a ", " a", "á", "a\u{301}"] {
        create(queue, "1", key).await;
        create(other, "1", key).await;
    }
    assert_eq!(queue.counts().await.accepted, 6);
}

/// §4.4 – a remembered key answers with its end and its ack's outcome, for `key_retention_seconds` after it is gone.
async fn a_key_is_remembered_with_its_outcome(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let first = create(queue, "1", "a").await;
    f.ack_with(&queue.take().await, r#"{"paid":12}"#)
        .await
        .unwrap();
    f.pass(30 * DAY - 1);
    f.maintain().await;
    let again = duplicate(publish(queue, "1", "a").await);
    assert_eq!((again.id, again.state), (first, State::Ended));
    assert_eq!(again.end, Some(End::Acked));
    assert_eq!(again.outcome.as_deref(), Some(r#"{"paid":12}"#));
    let detail = f.message(first).await.unwrap();
    assert_eq!(
        detail.ended.unwrap().outcome.as_deref(),
        Some(r#"{"paid":12}"#)
    );
    assert_eq!(detail.key.as_deref(), Some("a"));
    f.pass(1);
    assert_ne!(create(queue, "1", "a").await, first);
}

/// §4.4 – also after a plain ack without an outcome.
async fn a_plainly_acked_key_is_remembered(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let published_at = f.now();
    let first = create(queue, "1", "a").await;
    f.pass(1_234);
    f.ack(&queue.take().await).await.unwrap();
    f.pass(29 * DAY);
    f.maintain().await;
    let again = duplicate(publish(queue, "1", "a").await);
    assert_eq!((again.id, again.end), (first, Some(End::Acked)));
    assert_eq!((again.outcome, again.published_at), (None, published_at));
}

/// §4.4 – a retention of one day ends after one day.
async fn a_short_key_retention_ends_in_time(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.unique_key = true;
            p.key_retention_ms = Some(DAY);
        })
        .await;
    create(queue, "1", "a").await;
    f.ack(&queue.take().await).await.unwrap();
    f.pass(DAY);
    create(queue, "1", "a").await;
}

/// §4.4, §6 – `key_retention_seconds: null` remembers for ever.
async fn a_key_may_be_remembered_for_ever(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.unique_key = true;
            p.key_retention_ms = None;
        })
        .await;
    let first = create(queue, "1", "a").await;
    f.ack_with(&queue.take().await, "1").await.unwrap();
    f.pass(20 * 365 * DAY);
    f.maintain().await;
    let again = duplicate(publish(queue, "1", "a").await);
    assert_eq!((again.id, again.outcome.as_deref()), (first, Some("1")));
}

/// §4.4 – a key that a new message took over is not freed by the old one's memory.
async fn a_key_used_again_belongs_to_the_new_message(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.unique_key = true;
            p.key_retention_ms = Some(DAY);
        })
        .await;
    create(queue, "1", "a").await;
    f.ack(&queue.take().await).await.unwrap();
    f.pass(DAY);
    let second = create(queue, "1", "a").await;
    f.pass(10 * DAY);
    f.maintain().await;
    assert_eq!(duplicate(publish(queue, "1", "a").await).id, second);
}

/// §4.4 – however it went: cancel, discard and purge free no key.
async fn a_key_is_remembered_however_it_went(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let cancelled = create(queue, "1", "cancelled").await;
    f.do_act(cancelled, Act::Cancel).await;
    let discarded = create(queue, "1", "discarded").await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.do_act(discarded, discard()).await;
    let purged = create(queue, "1", "purged").await;
    queue.purge(false).await;
    f.pass(29 * DAY);
    f.maintain().await;
    for (id, key, end) in [
        (cancelled, "cancelled", End::Cancelled),
        (discarded, "discarded", End::Discarded),
        (purged, "purged", End::Purged),
    ] {
        let again = duplicate(publish(queue, "1", key).await);
        assert_eq!((again.id, again.end), (id, Some(end)));
    }
}

/// §4.4 – a key belongs to the queue's name and survives purge, delete and re-creation.
async fn a_key_survives_a_new_queue_of_the_same_name(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let first = create(queue, "1", "a").await;
    queue.delete(true).await;
    f.maintain().await;
    let mut policy = plain_policy();
    unique(&mut policy);
    f.put_queue("orders", policy, Expect::Anything).await;
    let again = duplicate(publish(queue, "1", "a").await);
    assert_eq!((again.id, again.end), (first, Some(End::Purged)));
}

/// §4.4 – repeats of a key inside one batch make one message.
async fn repeats_of_a_key_inside_one_batch_make_one_message(f: &Fixture) {
    let queue = f.queue("orders", unique).await;
    let mut batch = Batch::default();
    for body in ["1", "2", "1"] {
        let item = queue.publish_item(body, |p| p.key = Some("a".into())).await;
        batch.publishes.push(item);
    }
    let published = f.apply(&batch).await.publishes;
    let Published::Created { id, .. } = published[0] else {
        panic!("{published:?}")
    };
    let (second, third) = (
        duplicate(published[1].clone()),
        duplicate(published[2].clone()),
    );
    assert_eq!((second.id, second.same_body), (id, false));
    assert_eq!((third.id, third.same_body), (id, true));
}

/// §4.4 – switching it on over repeated live keys is refused, and nothing changes.
async fn unique_keys_cannot_be_switched_on_over_repeats(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = create(queue, "1", "a").await;
    create(queue, "2", "a").await;
    let answer = queue.set(unique).await;
    assert_eq!(answer, Answer::Refused(OperationRefused::KeysNotUnique));
    assert!(!queue.view().await.policy.unique_key);
    f.do_act(first, Act::Cancel).await;
    let answer = queue.set(unique).await;
    assert!(matches!(answer, Answer::Queue { .. }), "{answer:?}");
}

/// §4.4 – switched on, the keys of messages that are there are live.
async fn switching_unique_keys_on_takes_the_live_keys(f: &Fixture) {
    let queue = f.plain_queue().await;
    let ready = create(queue, "1", "ready").await;
    let delayed = queue
        .create("1", |p| {
            p.key = Some("delayed".into());
            p.delay_ms = HOUR;
        })
        .await;
    queue.set(unique).await;
    assert_eq!(duplicate(publish(queue, "1", "ready").await).id, ready);
    let again = duplicate(publish(queue, "1", "delayed").await);
    assert_eq!(again.id, delayed);
}

/// §4.4 – a dead letter's key is live: two dead letters of one key are repeats.
async fn keys_of_dead_letters_are_live(f: &Fixture) {
    let queue = f.plain_queue().await;
    for _ in 0..2 {
        create(queue, "1", "a").await;
        f.nack_permanently(&queue.take().await).await.unwrap();
    }
    let answer = queue.set(unique).await;
    assert_eq!(answer, Answer::Refused(OperationRefused::KeysNotUnique));
}

/// §4.4 – what a purge took or an operator discarded is not live, cleared or not.
async fn keys_of_messages_that_left_are_not_live(f: &Fixture) {
    let queue = f.plain_queue().await;
    create(queue, "1", "a").await;
    let discarded = create(queue, "1", "b").await;
    queue
        .create("1", |p| {
            p.key = Some("c".into());
            p.delay_ms = HOUR;
        })
        .await;
    for hand in queue.receive(2).await {
        f.nack_permanently(&hand).await.unwrap();
    }
    f.do_act(discarded, discard()).await;
    queue.purge(true).await;
    let first = create(queue, "2", "a").await;
    let answer = queue.set(unique).await;
    assert!(matches!(answer, Answer::Queue { .. }), "{answer:?}");
    assert_eq!(duplicate(publish(queue, "2", "a").await).id, first);
    for key in ["b", "c"] {
        create(queue, "2", key).await;
    }
    f.maintain().await;
    for key in ["a", "b", "c"] {
        assert!(duplicate(publish(queue, "2", key).await).same_body);
    }
}

/// §4.4 – an outcome is returned by the message's detail as long as it is remembered, with or without a key.
async fn an_outcome_is_kept_without_a_key(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let acked = f.ack_with(&hand, r#"{"a":[1, 2]}"#).await;
    assert!(matches!(acked, Ok(Settled::Acked { .. })));
    let ended = f.message(hand.id).await.unwrap().ended.unwrap();
    assert_eq!(ended.outcome.as_deref(), Some(r#"{"a":[1, 2]}"#));
    assert_eq!((ended.end, ended.fence), (End::Acked, 1));
}

on_every_store![
    messages_are_found_by_their_key,
    keys_may_repeat_on_a_plain_queue,
    a_live_key_is_a_duplicate,
    keys_are_compared_exactly,
    a_key_is_remembered_with_its_outcome,
    a_plainly_acked_key_is_remembered,
    a_short_key_retention_ends_in_time,
    a_key_may_be_remembered_for_ever,
    a_key_used_again_belongs_to_the_new_message,
    a_key_is_remembered_however_it_went,
    a_key_survives_a_new_queue_of_the_same_name,
    repeats_of_a_key_inside_one_batch_make_one_message,
    unique_keys_cannot_be_switched_on_over_repeats,
    switching_unique_keys_on_takes_the_live_keys,
    keys_of_dead_letters_are_live,
    keys_of_messages_that_left_are_not_live,
    an_outcome_is_kept_without_a_key,
];

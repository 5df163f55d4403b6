//! §4.8: all times are the store's, in milliseconds, never running backwards; §4.9: payloads come back byte for byte.

use quita_storage::backend::{Batch, Published};
use quita_storage::model::{Place, State};
use quita_tests::fixture::{HOUR, LEASE, SECOND};
use quita_tests::{Fixture, on_every_store};

/// §4.8 – the times of an answer are the store's, to the millisecond.
async fn answers_carry_the_stores_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    f.pass(123);
    let batch = Batch {
        publishes: vec![queue.publish_item("1", |_| {}).await],
        ..Batch::default()
    };
    let outcome = f.apply(&batch).await;
    assert_eq!(outcome.now, f.now());
    let Published::Created {
        id, published_at, ..
    } = outcome.publishes[0]
    else {
        panic!("{:?}", outcome.publishes)
    };
    assert_eq!(published_at, f.now());
    let message = f.message(id).await.unwrap().message.unwrap();
    assert_eq!(message.envelope.created_at, f.now());
    assert_eq!(message.envelope.first_available_at, f.now());
    assert_eq!(queue.numbers().await.now, f.now());
}

/// §4.8 – a lease ends at its millisecond, not before and not after.
async fn a_lease_ends_at_its_millisecond(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    queue.receive_for(1, 1_001).await.unwrap();
    f.pass(1_000);
    queue.assert_empty().await;
    f.pass(1);
    queue.take().await;
}

/// §4.8 – many timers at once: each has its own.
async fn every_message_has_its_own_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for n in (0..10).rev() {
        ids.push(queue.create("1", |p| p.delay_ms = SECOND + n).await);
    }
    f.pass(SECOND - 1);
    for n in (0..10).rev() {
        f.pass(1);
        let hands = queue.receive(10).await;
        assert_eq!(hands.len(), 1);
        assert_eq!(hands[0].id, ids[n]);
    }
}

/// §4.8 – a sweep that comes late files nothing as if it had happened late: the order keeps the true times.
async fn a_late_sweep_keeps_the_true_times(f: &Fixture) {
    let queue = f.plain_queue().await;
    let due_at = f.now() + SECOND;
    let delayed = queue.create("1", |p| p.delay_ms = SECOND).await;
    f.pass(2 * SECOND);
    let published = queue.publish("2").await;
    f.pass(HOUR);
    f.sweep().await;
    assert_eq!(queue.ids(State::Ready).await, [delayed, published]);
    let listed = queue.list(State::Ready).await.remove(0);
    let place = Place::Ready {
        available_at: due_at,
    };
    assert_eq!(listed.message.place, place);
}

/// §4.8 – a delayed message's first time is kept with it.
async fn the_first_due_time_is_kept(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = SECOND).await;
    let first = f.now() + SECOND;
    f.pass(SECOND);
    f.nack(&queue.take().await).await.unwrap();
    let message = f.message(id).await.unwrap().message.unwrap();
    assert_eq!(message.envelope.first_available_at, first);
}

/// §4.8 – a lease of the largest length ends then.
async fn a_lease_of_twelve_hours_ends_then(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    let hands = queue.receive_for(1, 12 * HOUR).await.unwrap();
    f.pass_and_sweep(12 * HOUR - 1).await;
    queue.assert_empty().await;
    f.pass_and_sweep(1).await;
    assert_eq!(queue.take().await.id, hands[0].id);
    f.pass(LEASE);
}

/// §4.9 – `message` comes back byte for byte: escapes, huge numbers, white space, repeated names, deep nesting.
async fn a_payload_comes_back_byte_for_byte(f: &Fixture) {
    let queue = f.plain_queue().await;
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    let long = format!("\"{}\"", "é".repeat(100_000));
    for body in [
        "null",
        "0",
        "-0.0e+00",
        "123456789012345678901234567890.123456789e-400",
        r#"{"a":1,"a":2}"#,
        r#" { "a" : [ 1 , 2 ] }  "#,
        r#""\u0000 \ud800 \uDFFF \/""#,
        "\"\u{7f} \u{10ffff} \u{feff}\"",
        r#""$1 ? ' -- \\ ""#,
        &deep,
        &long,
    ] {
        let id = queue.publish(body).await;
        let hand = queue.take().await;
        assert_eq!(hand.delivery.payload, body.as_bytes());
        let kept = f.message(id).await.unwrap().payload.unwrap();
        assert_eq!(kept, body.as_bytes());
        f.ack(&hand).await.unwrap();
    }
}

/// §4.9 – so do key, headers and worker names.
async fn key_and_headers_come_back_as_sent(f: &Fixture) {
    let queue = f.plain_queue().await;
    let headers = r#"{"trace":"é ' \u0000","b":"2"}"#;
    queue
        .create("1", |p| {
            p.key = Some("k'\"\\ é \u{10ffff}".into());
            p.headers = Some(headers.into());
            p.priority = 9;
        })
        .await;
    let hand = queue.take().await;
    let envelope = &hand.delivery.message.envelope;
    assert_eq!(envelope.key.as_deref(), Some("k'\"\\ é \u{10ffff}"));
    assert_eq!(envelope.headers.as_deref(), Some(headers));
    assert_eq!(envelope.priority, 9);
    let Place::Leased(lease) = &hand.delivery.message.place else {
        panic!("not leased")
    };
    assert_eq!(lease.worker.as_deref(), Some("worker-1"));
}

/// §4.9 – listings say how large a message is.
async fn a_listing_says_the_size(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("\"é\"").await;
    assert_eq!(queue.list(State::Ready).await[0].size, 4);
}

on_every_store![
    answers_carry_the_stores_time,
    a_lease_ends_at_its_millisecond,
    every_message_has_its_own_time,
    a_late_sweep_keeps_the_true_times,
    the_first_due_time_is_kept,
    a_lease_of_twelve_hours_ends_then,
    a_payload_comes_back_byte_for_byte,
    key_and_headers_come_back_as_sent,
    a_listing_says_the_size,
];

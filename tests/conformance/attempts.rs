//! §4.2 attempts and §6 backoff.

use quita_storage::model::{Backoff, Jitter, Millis, Place, Reason, State};
use quita_storage::rules::settle::{Action, Settled};
use quita_tests::fixture::{BACKOFF, LEASE, SECOND, nack};
use quita_tests::{Fixture, Hand, TestQueue, on_every_store};

fn attempts_left(settled: &Settled) -> i32 {
    match settled {
        Settled::RetryScheduled { attempts_left, .. }
        | Settled::DeadLettered { attempts_left, .. } => *attempts_left,
        other => panic!("no failure: {other:?}"),
    }
}

async fn wait_after_nack(f: &Fixture, hand: &Hand) -> Millis {
    match f.nack(hand).await.unwrap() {
        Settled::RetryScheduled {
            next_attempt_at, ..
        } => next_attempt_at - f.now(),
        other => panic!("no retry: {other:?}"),
    }
}

async fn waits(f: &Fixture, queue: TestQueue<'_>, failures: u32) -> Vec<Millis> {
    let mut waits = Vec::new();
    for _ in 0..failures {
        let hand = queue.take().await;
        let wait = wait_after_nack(f, &hand).await;
        waits.push(wait);
        f.pass(wait);
    }
    waits
}

/// §4.2 – the first delivery is attempt 1, and each counted failure adds one.
async fn attempts_count_from_one(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish("1").await;
    for attempt in 1..=5 {
        let hand = queue.take().await;
        assert_eq!(hand.attempt(), attempt);
        let settled = f.nack(&hand).await.unwrap();
        assert_eq!(attempts_left(&settled), 5 - attempt);
        f.pass(BACKOFF);
    }
    assert_eq!(queue.counts().await.dead, 1);
}

/// §4.2 – `max_attempts` bounds nacks and expirations together.
async fn nacks_and_expirations_share_max_attempts(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 4;
            p.max_lease_expirations = 4;
        })
        .await;
    queue.publish("1").await;
    for failure in 0..4 {
        let hand = queue.take().await;
        if failure % 2 == 0 {
            f.settle(&hand, nack(Some(0), false)).await.unwrap();
        } else {
            f.pass_and_sweep(LEASE).await;
        }
    }
    assert_eq!(queue.only_reason().await, Reason::LeaseExpired);
}

/// §4.2 – `max_lease_expirations` bounds crash loops sooner; nacks in between do not start it over.
async fn expirations_have_a_bound_of_their_own(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 2).await;
    queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    let hand = queue.take().await;
    f.settle(&hand, nack(Some(0), false)).await.unwrap();
    queue.take().await;
    f.pass_and_sweep(LEASE).await;
    assert_eq!(queue.only_reason().await, Reason::LeaseExpired);
}

/// §4.2 – releases and give-backs are neither attempts nor expirations, however many.
async fn releases_and_give_backs_use_no_attempt(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    queue.publish("1").await;
    for round in 0..20 {
        let hand = queue.take().await;
        assert_eq!((hand.attempt(), hand.fence), (1, round + 1));
        if round % 2 == 0 {
            f.release(&hand).await.unwrap();
        } else {
            f.give_back(&hand).await.unwrap();
        }
    }
    assert_eq!(queue.counts().await.dead, 0);
}

/// §4.2 – browsing counts nothing.
async fn browsing_counts_nothing(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    let id = queue.publish("1").await;
    for _ in 0..5 {
        queue.list(State::Ready).await;
        f.message(id).await.unwrap();
    }
    let hand = queue.take().await;
    assert_eq!((hand.fence, hand.attempt()), (1, 1));
    assert_eq!(queue.counts().await.delivered, 1);
}

/// §5 publish – a message's own `max_attempts` overrides the queue's.
async fn a_message_may_have_its_own_max_attempts(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.create("1", |p| p.max_attempts = Some(1)).await;
    let hand = queue.take().await;
    assert_eq!(hand.delivery.max_attempts, 1);
    let settled = f.nack(&hand).await;
    let dead = Settled::DeadLettered {
        late: false,
        attempts_left: 0,
    };
    assert_eq!(settled, Ok(dead));
}

/// §5 publish – a message's own backoff overrides the queue's.
async fn a_message_may_have_its_own_backoff(f: &Fixture) {
    let queue = f.plain_queue().await;
    let backoff = Backoff::Fixed {
        base_ms: 77,
        jitter: Jitter::None,
    };
    queue.create("1", |p| p.backoff = Some(backoff)).await;
    assert_eq!(waits(f, queue, 2).await, [77, 77]);
}

/// §6 – exponential: `min(max, base·factor^(n−1))` after failure n.
async fn an_exponential_backoff_grows_to_its_largest(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 10;
            p.backoff = Backoff::Exponential {
                base_ms: 2_000,
                factor: 2.0,
                max_ms: 10_000,
                jitter: Jitter::None,
            };
        })
        .await;
    queue.publish("1").await;
    assert_eq!(
        waits(f, queue, 5).await,
        [2_000, 4_000, 8_000, 10_000, 10_000]
    );
}

/// §6 – schedule: `schedule_seconds[n−1]`, last one repeating.
async fn a_schedule_repeats_its_last_wait(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 10;
            p.backoff = Backoff::Schedule {
                schedule_ms: vec![300_000, 3_600_000],
                jitter: Jitter::None,
            };
        })
        .await;
    queue.publish("1").await;
    assert_eq!(waits(f, queue, 3).await, [300_000, 3_600_000, 3_600_000]);
}

/// §6 – a wait of zero makes the message ready at once, behind those that were ready.
async fn a_wait_of_zero_makes_ready_at_once(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.backoff = Backoff::Fixed {
                base_ms: 0,
                jitter: Jitter::None,
            };
        })
        .await;
    let hand = queue.publish_and_take().await;
    f.pass(SECOND);
    let waiting = queue.publish("2").await;
    f.pass(SECOND);
    f.nack(&hand).await.unwrap();
    assert_eq!(queue.ids(State::Ready).await, [waiting, hand.id]);
    let listed = queue.list(State::Ready).await.remove(1);
    let place = Place::Ready {
        available_at: f.now(),
    };
    assert_eq!(listed.message.place, place);
}

/// §6 – jitter `equal` is [d/2, d], `full` is [0, d], placed by chance alone.
async fn jitter_spreads_the_wait(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 100).await;
    queue.publish("1").await;
    for (jitter, chance, wait) in [
        (Jitter::Equal, 0.0, 5_000),
        (Jitter::Equal, 0.5, 7_500),
        (Jitter::Full, 0.0, 0),
        (Jitter::Full, 0.25, 2_500),
        (Jitter::None, 0.9, 10_000),
    ] {
        queue
            .set(|p| {
                p.backoff = Backoff::Fixed {
                    base_ms: 10_000,
                    jitter,
                };
            })
            .await;
        let hand = queue.take().await;
        let mut item = queue.settle_item(&hand, nack(None, false)).await;
        item.claim.chance = chance;
        let batch = quita_storage::backend::Batch {
            settles: vec![item],
            ..Default::default()
        };
        f.apply(&batch).await;
        f.pass(wait - 1);
        if wait > 0 {
            queue.assert_empty().await;
        }
        f.pass(1);
        assert_eq!(f.state(hand.id).await, State::Ready, "{jitter:?} {chance}");
    }
}

/// §6 – a nack's `delay_seconds` replaces the backoff.
async fn a_nack_may_name_its_wait(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let settled = f.settle(&hand, nack(Some(123), false)).await;
    let retry = Settled::RetryScheduled {
        late: false,
        next_attempt_at: f.now() + 123,
        attempts_left: 4,
    };
    assert_eq!(settled, Ok(retry));
}

/// §4.2 – a repeated nack counts one attempt.
async fn a_repeated_nack_counts_once(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    for _ in 0..3 {
        f.settle(&hand, nack(Some(0), false)).await.unwrap();
    }
    assert_eq!(queue.take().await.attempt(), 2);
}

/// §4.2 – a delivery that an operator ended is no attempt.
async fn an_operators_dead_lettering_uses_no_attempt(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.do_act(hand.id, quita_storage::rules::operate::Act::DeadLetter)
        .await;
    let listed = queue.list(State::Dead).await.remove(0);
    assert_eq!(listed.message.life.attempts, 0);
}

/// §4.2 – an extended lease is one attempt, however often it was extended.
async fn an_extended_lease_is_one_attempt(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    for _ in 0..5 {
        f.pass(LEASE - 1);
        f.settle(
            &hand,
            Action::Extend {
                visibility_timeout_ms: LEASE,
            },
        )
        .await
        .unwrap();
    }
    f.pass(LEASE);
    assert_eq!(queue.take().await.attempt(), 2);
}

on_every_store![
    attempts_count_from_one,
    nacks_and_expirations_share_max_attempts,
    expirations_have_a_bound_of_their_own,
    releases_and_give_backs_use_no_attempt,
    browsing_counts_nothing,
    a_message_may_have_its_own_max_attempts,
    a_message_may_have_its_own_backoff,
    an_exponential_backoff_grows_to_its_largest,
    a_schedule_repeats_its_last_wait,
    a_wait_of_zero_makes_ready_at_once,
    jitter_spreads_the_wait,
    a_nack_may_name_its_wait,
    a_repeated_nack_counts_once,
    an_operators_dead_lettering_uses_no_attempt,
    an_extended_lease_is_one_attempt,
];

//! §3: the life of a message, row by row.

use quita_storage::backend::{Answer, OperationRefused};
use quita_storage::model::{Cause, End, Limit, Place, Reason, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Settled;
use quita_tests::fixture::{BACKOFF, DAY, HOUR, LEASE, SECOND, discard, nack, redrive};
use quita_tests::{Fixture, on_every_store};

/// §3 – publish, no delay → ready; counts accepted.
async fn a_publish_without_delay_is_ready(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    assert_eq!(queue.ids(State::Ready).await, [id]);
    assert_eq!(queue.counts().await.accepted, 1);
}

/// §3 – publish with delay → delayed.
async fn a_publish_with_delay_is_delayed(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = 5 * SECOND).await;
    assert_eq!(queue.ids(State::Delayed).await, [id]);
    assert_eq!(queue.counts().await.accepted, 1);
    queue.assert_empty().await;
}

/// §3 delayed → ready at its due time, and not a millisecond before.
async fn a_delayed_message_is_ready_at_its_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = 5 * SECOND).await;
    f.pass(5 * SECOND - 1);
    queue.assert_empty().await;
    f.pass(1);
    assert_eq!(queue.take().await.id, id);
}

/// §3 delayed → ready by promote.
async fn a_promoted_message_is_ready_now(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = HOUR).await;
    f.do_act(id, Act::Promote).await;
    assert_eq!(queue.take().await.id, id);
    let refused = f.refuse_act(id, Act::Promote).await;
    assert_eq!(refused, OperationRefused::NotDelayed);
}

/// §3 ready → leased; fence + 1; attempt = attempts used + 1; counts deliveries.
async fn a_receive_leases(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    assert_eq!((hand.fence, hand.attempt()), (1, 1));
    assert_eq!(hand.delivery.max_attempts, 5);
    assert_eq!(&hand.delivery.payload[..], b"1");
    let Place::Leased(lease) = &hand.delivery.message.place else {
        panic!("{:?}", hand.delivery.message.place)
    };
    assert_eq!(lease.leased_at, f.now());
    assert_eq!(lease.expires_at, f.now() + LEASE);
    assert_eq!(queue.ids(State::Leased).await, [hand.id]);
    assert_eq!(queue.counts().await.delivered, 1);
    queue.assert_empty().await;
}

/// §3 leased → gone by ack; counts acked.
async fn an_acked_message_is_gone(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
    let counts = queue.counts().await;
    assert_eq!((counts.acked, counts.leased), (1, 0));
    f.pass(DAY);
    queue.assert_empty().await;
}

/// §3 leased → delayed by backoff; counts attempts.
async fn a_nacked_message_comes_again_after_its_backoff(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let retry = Settled::RetryScheduled {
        late: false,
        next_attempt_at: f.now() + BACKOFF,
        attempts_left: 4,
    };
    assert_eq!(f.nack(&hand).await, Ok(retry));
    assert_eq!(queue.ids(State::Delayed).await, [hand.id]);
    f.pass(BACKOFF - 1);
    queue.assert_empty().await;
    f.pass(1);
    let again = queue.take().await;
    assert_eq!((again.id, again.fence, again.attempt()), (hand.id, 2, 2));
    assert_eq!(again.delivery.message.life.attempts, 1);
}

/// §3 leased → dead when the attempts are used up (`max_attempts`).
async fn the_last_nack_makes_a_dead_letter(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 2).await;
    let first = queue.publish_and_take().await;
    f.nack(&first).await.unwrap();
    f.pass(BACKOFF);
    let last = queue.take().await;
    let dead = Settled::DeadLettered {
        late: false,
        attempts_left: 0,
    };
    assert_eq!(f.nack(&last).await, Ok(dead));
    let listed = queue.list(State::Dead).await.remove(0);
    let Place::Dead(dead) = listed.message.place else {
        panic!("{:?}", listed.message.place)
    };
    assert_eq!(dead.reason, Reason::MaxAttempts);
    assert_eq!(dead.limit, Some(Limit::MaxAttempts));
    assert_eq!(dead.died_at, f.now());
    assert_eq!(dead.error_code.as_deref(), Some("E1"));
    f.pass(DAY);
    queue.assert_empty().await;
}

/// §3 leased → dead when the nack is `permanent` (`permanent_failure`).
async fn a_permanent_nack_makes_a_dead_letter_at_once(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let dead = Settled::DeadLettered {
        late: false,
        attempts_left: 4,
    };
    assert_eq!(f.nack_permanently(&hand).await, Ok(dead));
    assert_eq!(queue.only_reason().await, Reason::PermanentFailure);
}

/// §3 leased → ready at its old place by release; counts releases, and no attempt.
async fn a_released_message_is_back_at_its_old_place(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = queue.publish("1").await;
    f.pass(SECOND);
    let second = queue.publish("2").await;
    let hand = queue.take().await;
    f.pass(SECOND);
    assert_eq!(f.release(&hand).await, Ok(Settled::Released));
    assert_eq!(queue.ids(State::Ready).await, [first, second]);
    let again = queue.take().await;
    assert_eq!((again.id, again.fence, again.attempt()), (first, 2, 1));
    assert_eq!(again.delivery.message.life.releases, 1);
}

/// §3 leased → delayed by the given delay by release.
async fn a_release_may_delay(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let release = quita_storage::rules::settle::Action::Release {
        delay_ms: Some(3 * SECOND),
    };
    assert_eq!(f.settle(&hand, release).await, Ok(Settled::Released));
    assert_eq!(queue.ids(State::Delayed).await, [hand.id]);
    f.pass(3 * SECOND);
    assert_eq!(queue.take().await.attempt(), 1);
}

/// §3 leased → dead above `max_releases` (`release_limit`).
async fn a_release_above_the_bound_makes_a_dead_letter(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_releases = Some(2)).await;
    queue.publish("1").await;
    for _ in 0..2 {
        let hand = queue.take().await;
        assert_eq!(f.release(&hand).await, Ok(Settled::Released));
    }
    let hand = queue.take().await;
    let settled = f.release(&hand).await;
    assert!(
        matches!(settled, Ok(Settled::DeadLettered { late: false, .. })),
        "{settled:?}"
    );
    assert_eq!(queue.only_reason().await, Reason::ReleaseLimit);
}

/// §3 leased → ready at its old place by give-back; counts nothing.
async fn a_given_back_message_costs_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    let first = queue.publish("1").await;
    f.pass(SECOND);
    let second = queue.publish("2").await;
    let hand = queue.take().await;
    assert_eq!(f.give_back(&hand).await, Ok(Settled::Released));
    assert_eq!(queue.ids(State::Ready).await, [first, second]);
    let again = queue.take().await;
    let life = again.delivery.message.life;
    assert_eq!((again.id, life.fence), (first, 2));
    assert_eq!((life.attempts, life.expirations, life.releases), (0, 0, 0));
}

/// §3 leased → ready at its expiry time when the lease runs out; counts attempts and expirations.
async fn an_expired_lease_is_ready_at_its_expiry_time(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let expiry = f.now() + LEASE;
    f.pass(LEASE - 1);
    queue.assert_empty().await;
    f.pass(1 + 7 * SECOND);
    let listed = queue.list(State::Ready).await.remove(0);
    let place = Place::Ready {
        available_at: expiry,
    };
    assert_eq!(listed.message.place, place);
    let again = queue.take().await;
    assert_eq!((again.id, again.fence, again.attempt()), (hand.id, 2, 2));
    let life = again.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 1));
    let failure = again.delivery.last_failure.unwrap();
    assert_eq!(
        (failure.cause, failure.ended_at),
        (Cause::LeaseExpired, expiry)
    );
}

/// §3 leased → dead, without anybody polling, when `max_lease_expirations` is reached (`lease_expired`).
async fn a_crash_loop_ends_in_the_dead_letters(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 2).await;
    queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    queue.take().await;
    f.pass_and_sweep(LEASE).await;
    let listed = queue.list(State::Dead).await.remove(0);
    let Place::Dead(dead) = listed.message.place else {
        panic!("{:?}", listed.message.place)
    };
    assert_eq!(dead.reason, Reason::LeaseExpired);
    assert_eq!(dead.limit, Some(Limit::MaxLeaseExpirations));
    assert_eq!(listed.message.life.attempts, 2);
}

/// §3 leased → dead when an expiration uses up `max_attempts`: the reason is `lease_expired`, the limit names the bound.
async fn an_expiration_of_the_last_attempt_makes_a_dead_letter(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    let listed = queue.list(State::Dead).await.remove(0);
    let Place::Dead(dead) = listed.message.place else {
        panic!("{:?}", listed.message.place)
    };
    assert_eq!(dead.reason, Reason::LeaseExpired);
    assert_eq!(dead.limit, Some(Limit::MaxAttempts));
}

/// §3 ready, delayed, leased → dead by an operator (`operator`).
async fn an_operator_may_dead_letter_any_live_message(f: &Fixture) {
    let queue = f.plain_queue().await;
    let leased = queue.publish_and_take().await.id;
    let ready = queue.publish("2").await;
    let delayed = queue.create("3", |p| p.delay_ms = HOUR).await;
    for id in [leased, ready, delayed] {
        f.do_act(id, Act::DeadLetter).await;
    }
    let dead = queue.list(State::Dead).await;
    assert_eq!(dead.len(), 3);
    for listed in dead {
        let Place::Dead(dead) = listed.message.place else {
            panic!("{:?}", listed.message.place)
        };
        assert_eq!((dead.reason, dead.limit), (Reason::Operator, None));
        assert_eq!(listed.message.life.attempts, 0);
    }
    let refused = f.refuse_act(ready, Act::DeadLetter).await;
    assert_eq!(refused, OperationRefused::AlreadyDead);
}

/// §3 ready → dead (`expired`) when retention is over.
async fn an_old_ready_message_expires(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    queue.publish("1").await;
    f.pass_and_sweep(HOUR - 1).await;
    assert_eq!(queue.counts().await.ready, 1);
    f.pass_and_sweep(1).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
    queue.assert_empty().await;
}

/// §3 ready, delayed → dead (`expired`) when `expires_at` passed.
async fn a_message_past_its_expires_at_expires(f: &Fixture) {
    let queue = f.plain_queue().await;
    let ready = queue
        .create("1", |p| p.expires_in_ms = Some(5 * SECOND))
        .await;
    let delayed = queue
        .create("2", |p| {
            p.expires_in_ms = Some(5 * SECOND);
            p.delay_ms = 4 * SECOND;
        })
        .await;
    // A nack sends it back to delayed, past its end.
    f.nack(&queue.take().await).await.unwrap();
    f.pass_and_sweep(5 * SECOND - 1).await;
    assert_eq!(queue.counts().await.dead, 0);
    f.pass_and_sweep(1).await;
    let mut dead = queue.ids(State::Dead).await;
    dead.sort_unstable();
    assert_eq!(dead, [ready, delayed]);
    for listed in queue.list(State::Dead).await {
        let Place::Dead(dead) = listed.message.place else {
            panic!("{:?}", listed.message.place)
        };
        assert_eq!(
            (dead.reason, dead.limit),
            (Reason::Expired, Some(Limit::ExpiresAt))
        );
    }
}

/// §3 – a message past its `expires_at` is not handed out, swept or not.
async fn a_message_past_its_expires_at_is_not_handed_out(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.create("1", |p| p.expires_in_ms = Some(SECOND)).await;
    f.pass(SECOND);
    queue.assert_empty().await;
    f.sweep().await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
}

/// §3 ready, delayed → gone by cancel; counts discarded.
async fn a_waiting_message_can_be_cancelled(f: &Fixture) {
    let queue = f.plain_queue().await;
    let ready = queue.publish("1").await;
    let delayed = queue.create("2", |p| p.delay_ms = HOUR).await;
    for id in [ready, delayed] {
        f.do_act(id, Act::Cancel).await;
        assert_eq!(f.state(id).await, State::Ended);
        let ended = f.message(id).await.unwrap().ended.unwrap();
        assert_eq!((ended.end, ended.at), (End::Cancelled, f.now()));
        let refused = f.refuse_act(id, Act::Cancel).await;
        assert_eq!(refused, OperationRefused::MessageNotFound);
    }
    assert_eq!(queue.counts().await.discarded, 2);
    f.pass(HOUR);
    queue.assert_empty().await;
}

/// §3 – only ready and delayed messages can be cancelled.
async fn a_leased_or_dead_message_cannot_be_cancelled(f: &Fixture) {
    let queue = f.plain_queue().await;
    let dead = queue.dead_letter().await.id;
    let leased = queue.publish_and_take().await.id;
    for id in [dead, leased] {
        let refused = f.refuse_act(id, Act::Cancel).await;
        assert_eq!(refused, OperationRefused::NotWaiting);
    }
}

/// §3 dead → ready by redrive; attempts, expirations, releases = 0; same id, keys, payload, fence, lifetime history.
async fn a_redriven_message_starts_over_and_stays_itself(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 3).await;
    let id = queue.create("[1]", |p| p.key = Some("k".into())).await;
    f.release(&queue.take().await).await.unwrap();
    queue.take().await;
    f.pass_and_sweep(LEASE).await;
    let last = queue.take().await;
    f.nack_permanently(&last).await.unwrap();
    f.do_act(id, redrive(false)).await;

    let again = queue.take().await;
    let life = again.delivery.message.life;
    assert_eq!((again.id, again.fence, again.attempt()), (id, 4, 1));
    assert_eq!((life.attempts, life.expirations, life.releases), (0, 0, 0));
    assert_eq!(life.redrives, 1);
    assert_eq!(&again.delivery.payload[..], b"[1]");
    assert_eq!(again.delivery.message.envelope.key.as_deref(), Some("k"));
    let detail = f.message(id).await.unwrap();
    let causes: Vec<Cause> = detail.deliveries.iter().map(|d| d.cause).collect();
    assert_eq!(
        causes,
        [Cause::Release, Cause::LeaseExpired, Cause::Permanent]
    );
    assert_eq!(queue.counts().await.redriven, 1);
}

/// §3 – only a dead letter can be redriven or discarded.
async fn a_live_message_is_neither_redriven_nor_discarded(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish("1").await;
    for act in [redrive(true), discard()] {
        assert_eq!(f.refuse_act(id, act).await, OperationRefused::NotDead);
    }
}

/// §3 dead → gone for ids and keys by discard, payload kept `discard_undo_seconds`; counts discarded.
async fn a_discarded_message_is_gone_and_its_payload_kept(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    f.do_act(id, discard()).await;
    assert_eq!(f.state(id).await, State::Ended);
    let counts = queue.counts().await;
    assert_eq!((counts.discarded, counts.dead), (1, 0));
    f.pass(7 * DAY - 1);
    f.maintain().await;
    let detail = f.message(id).await.unwrap();
    assert_eq!(&detail.payload.unwrap()[..], b"1");
    assert_eq!(detail.ended.unwrap().end, End::Discarded);
    f.pass(1);
    f.maintain().await;
    let payload = f.message(id).await.and_then(|d| d.payload);
    assert_eq!(payload, None);
    for act in [redrive(true), discard(), Act::DeadLetter] {
        let refused = f.refuse_act(id, act).await;
        assert_eq!(refused, OperationRefused::MessageNotFound);
    }
    let refused = f.refuse_act(id, Act::Reopen).await;
    assert_eq!(refused, OperationRefused::PayloadGone);
}

/// §3 – a discarded message is not there for any operator's decision but to be opened again.
async fn a_discarded_message_cannot_be_redriven(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    f.do_act(id, discard()).await;
    for act in [redrive(true), discard(), Act::DeadLetter] {
        let refused = f.refuse_act(id, act).await;
        assert_eq!(refused, OperationRefused::MessageNotFound);
    }
}

/// §3 dead → as if discarded by `policy` when dead-letter retention is set and over: record, audit row; counts
/// `dead_letter_expired`.
async fn dead_letter_retention_ends_with_a_record(f: &Fixture) {
    let queue = f
        .queue("orders", |p| p.dead_letter_retention_ms = Some(HOUR))
        .await;
    let id = queue.dead_letter().await.id;
    f.pass(HOUR - 1);
    f.maintain().await;
    assert_eq!(queue.counts().await.dead, 1);
    f.pass(1);
    f.maintain().await;
    let counts = queue.counts().await;
    assert_eq!((counts.dead, counts.dead_letter_expired), (0, 1));
    let detail = f.message(id).await.unwrap();
    assert_eq!(detail.ended.unwrap().end, End::DeadLetterExpired);
    let decision = detail.decisions.last().unwrap();
    assert_eq!((&*decision.actor, decision.at), ("policy", f.now()));
}

/// §3, §4.11 – undecided dead letters stay until decided by default.
async fn a_dead_letter_stays_by_default(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    f.pass_and_sweep(3_650 * DAY).await;
    f.maintain().await;
    assert_eq!(queue.ids(State::Dead).await, [id]);
}

/// §3 – per queue, in every snapshot: the conservation law; all totals only grow.
async fn totals_only_grow_and_always_balance(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 2).await;
    let mut before = queue.counts().await;
    for round in 0..12 {
        for body in ["1", "2", "3"] {
            queue.publish(body).await;
        }
        let hands = queue.receive(3).await;
        f.ack(&hands[0]).await.unwrap();
        f.settle(&hands[1], nack(Some(0), round % 2 == 0))
            .await
            .unwrap();
        f.pass_and_sweep(LEASE).await;
        match round % 4 {
            1 => {
                queue.redrive_oldest(1).await;
            }
            2 => {
                queue.purge(round > 6).await;
            }
            3 => {
                if let Some(id) = queue.ids(State::Dead).await.first() {
                    f.do_act(*id, discard()).await;
                }
            }
            _ => {}
        }
        let now = queue.counts().await;
        assert_eq!(now.imbalance(), 0, "{now:?}");
        for (old, new) in [
            (before.accepted, now.accepted),
            (before.acked, now.acked),
            (before.discarded, now.discarded),
            (before.purged, now.purged),
            (before.delivered, now.delivered),
            (before.redriven, now.redriven),
        ] {
            assert!(old <= new, "{before:?} before {now:?}");
        }
        before = now;
    }
    assert!(before.purged > 0 && before.discarded > 0 && before.redriven > 0);
}

/// §3 – limits are read at hand-out: a delivery keeps the limit that it was handed out with.
async fn a_limit_lowered_during_a_lease_does_not_end_it(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    queue.set(|p| p.max_attempts = 1).await;
    let settled = f.nack(&hand).await;
    assert!(
        matches!(settled, Ok(Settled::RetryScheduled { .. })),
        "{settled:?}"
    );
}

/// §3 – a ready message that is already at a lowered limit is dead-lettered, not handed out.
async fn a_ready_message_at_a_lowered_limit_is_dead_lettered(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.settle(&hand, nack(Some(0), false)).await.unwrap();
    queue.set(|p| p.max_attempts = 1).await;
    let healthy = queue.publish("2").await;
    let hands = queue.receive(10).await;
    assert_eq!(hands.iter().map(|h| h.id).collect::<Vec<_>>(), [healthy]);
    assert_eq!(queue.only_reason().await, Reason::MaxAttempts);
}

/// §3 – the reason tells how the last delivery ended, also at a lowered limit.
async fn a_lowered_limit_after_an_expiration_says_lease_expired(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.publish_and_take().await;
    f.pass(LEASE);
    queue.set(|p| p.max_lease_expirations = 1).await;
    queue.assert_empty().await;
    f.sweep().await;
    queue.assert_empty().await;
    assert_eq!(queue.only_reason().await, Reason::LeaseExpired);
}

/// §3 – a lease that ran out counts and lists as ready, before any sweep.
async fn an_expired_lease_counts_and_lists_as_ready(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.publish_and_take().await.id;
    f.pass(LEASE);
    let counts = queue.counts().await;
    assert_eq!((counts.leased, counts.ready), (0, 1));
    assert_eq!(queue.ids(State::Ready).await, [id]);
    assert!(queue.ids(State::Leased).await.is_empty());
    assert_eq!(f.state(id).await, State::Ready);
    assert_eq!(queue.numbers().await.oldest_ready_at, Some(f.now()));
}

/// §3 – a delayed message that is due counts and lists as ready, before any sweep.
async fn a_due_message_counts_and_lists_as_ready(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.create("1", |p| p.delay_ms = SECOND).await;
    f.pass(SECOND);
    let counts = queue.counts().await;
    assert_eq!((counts.delayed, counts.ready), (0, 1));
    assert_eq!(queue.ids(State::Ready).await, [id]);
    assert!(queue.ids(State::Delayed).await.is_empty());
    assert_eq!(f.state(id).await, State::Ready);
}

/// §3 – an exhausted message counts and lists as leased until it is filed, as dead then; never as ready.
async fn an_exhausted_message_is_never_seen_as_ready(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    let id = queue.publish_and_take().await.id;
    f.pass(LEASE);
    let state = f.state(id).await;
    assert!(matches!(state, State::Leased | State::Dead), "{state:?}");
    assert_eq!(queue.ids(state).await, [id]);
    let counts = queue.counts().await;
    let dead = i64::from(state == State::Dead);
    assert_eq!(
        (counts.leased, counts.ready, counts.dead),
        (1 - dead, 0, dead)
    );
    f.sweep().await;
    assert_eq!(queue.counts().await.dead, 1);
    assert_eq!(f.state(id).await, State::Dead);
}

/// §3 – a sweep wakes those who wait for what became ready.
async fn a_sweep_says_which_queues_have_ready_messages(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.create("1", |p| p.delay_ms = SECOND).await;
    queue.publish_and_take().await;
    f.pass(LEASE);
    let moved = f.backend.move_due(Some(f.now())).await.unwrap();
    let woken: u32 = moved.stir.ready.iter().map(|(_, n)| n).sum();
    assert!(woken >= 1, "{moved:?}");
    assert!(moved.stir.ready.iter().all(|(q, _)| *q == queue.uid));
}

/// §3 – every commit says when the clock next has something to do.
async fn a_commit_says_when_something_is_due(f: &Fixture) {
    let queue = f.plain_queue().await;
    let item = queue.publish_item("1", |p| p.delay_ms = 3 * SECOND).await;
    let batch = quita_storage::backend::Batch {
        publishes: vec![item],
        ..Default::default()
    };
    let due = f.apply(&batch).await.stir.next_due;
    assert_eq!(due, Some(f.now() + 3 * SECOND));
}

/// §3 – whatever is asked of a message that never was changes nothing.
async fn a_message_that_never_was_is_not_found(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = quita_storage::model::MessageId::new(f.now(), 1, 1);
    assert!(f.message(id).await.is_none());
    for act in [
        Act::Cancel,
        Act::Promote,
        Act::DeadLetter,
        discard(),
        redrive(true),
    ] {
        let answer = f.act(id, act).await;
        let not_found = Answer::Refused(OperationRefused::MessageNotFound);
        assert_eq!(answer, not_found);
    }
    assert_eq!(queue.counts().await.accepted, 0);
}

on_every_store![
    a_publish_without_delay_is_ready,
    a_publish_with_delay_is_delayed,
    a_delayed_message_is_ready_at_its_time,
    a_promoted_message_is_ready_now,
    a_receive_leases,
    an_acked_message_is_gone,
    a_nacked_message_comes_again_after_its_backoff,
    the_last_nack_makes_a_dead_letter,
    a_permanent_nack_makes_a_dead_letter_at_once,
    a_released_message_is_back_at_its_old_place,
    a_release_may_delay,
    a_release_above_the_bound_makes_a_dead_letter,
    a_given_back_message_costs_nothing,
    an_expired_lease_is_ready_at_its_expiry_time,
    a_crash_loop_ends_in_the_dead_letters,
    an_expiration_of_the_last_attempt_makes_a_dead_letter,
    an_operator_may_dead_letter_any_live_message,
    an_old_ready_message_expires,
    a_message_past_its_expires_at_expires,
    a_message_past_its_expires_at_is_not_handed_out,
    a_waiting_message_can_be_cancelled,
    a_leased_or_dead_message_cannot_be_cancelled,
    a_redriven_message_starts_over_and_stays_itself,
    a_live_message_is_neither_redriven_nor_discarded,
    a_discarded_message_is_gone_and_its_payload_kept,
    a_discarded_message_cannot_be_redriven,
    dead_letter_retention_ends_with_a_record,
    a_dead_letter_stays_by_default,
    totals_only_grow_and_always_balance,
    a_limit_lowered_during_a_lease_does_not_end_it,
    a_ready_message_at_a_lowered_limit_is_dead_lettered,
    a_lowered_limit_after_an_expiration_says_lease_expired,
    an_expired_lease_counts_and_lists_as_ready,
    a_due_message_counts_and_lists_as_ready,
    an_exhausted_message_is_never_seen_as_ready,
    a_sweep_says_which_queues_have_ready_messages,
    a_commit_says_when_something_is_due,
    a_message_that_never_was_is_not_found,
];

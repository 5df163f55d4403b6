//! §4.5: the table of late settles, cell by cell; repeats, remembered completions, strict queues, give-backs.
//!
//! Each row of the table has a function that brings a message there and answers the hand-out `d` that comes late.

use quita_storage::backend::{Answer, OperationRefused};
use quita_storage::model::{Cause, End, LateAck, Place, Policy, Reason, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::{Action, Refused, Settled};
use quita_tests::fixture::{BACKOFF, DAY, HOUR, LEASE, MINUTE, SECOND, discard, nack, redrive};
use quita_tests::{Fixture, Hand, TestQueue, on_every_store};

const LATE: Result<Settled, Refused> = Ok(Settled::Acked {
    late: true,
    superseded: false,
});
const SUPERSEDED: Result<Settled, Refused> = Ok(Settled::Acked {
    late: true,
    superseded: true,
});
const HELD: Result<Settled, Refused> = Err(Refused::LeaseSuperseded { remembered: false });
const HELD_AND_REMEMBERED: Result<Settled, Refused> =
    Err(Refused::LeaseSuperseded { remembered: true });
const TAKEN: Result<Settled, Refused> = Err(Refused::TakenByOperator { remembered: false });
const TAKEN_AND_REMEMBERED: Result<Settled, Refused> =
    Err(Refused::TakenByOperator { remembered: true });
const EXPIRED: Result<Settled, Refused> = Err(Refused::LeaseExpired);
const SPENT: Result<Settled, Refused> = Err(Refused::ReceiptSpent);
const GONE: Result<Settled, Refused> = Err(Refused::MessageGone);

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands where the answer of a settle is expected"
)]
fn already(end: Option<End>) -> Result<Settled, Refused> {
    Ok(Settled::Already { end })
}

fn strict(policy: &mut Policy) {
    policy.late_ack = LateAck::Strict;
}

/// Row 2: d expired, not handed out since.
async fn expired(f: &Fixture, queue: TestQueue<'_>) -> Hand {
    let hand = queue.publish_and_take().await;
    f.pass(LEASE);
    hand
}

/// Row 3: dead by d's own expiration.
async fn dead_by_own_expiration(f: &Fixture, queue: TestQueue<'_>) -> Hand {
    let id = queue.create("1", |p| p.max_attempts = Some(1)).await;
    let hand = queue.take().await;
    assert_eq!(hand.id, id);
    f.pass_and_sweep(LEASE).await;
    assert_eq!(f.state(id).await, State::Dead);
    hand
}

/// Row 4: leased by another delivery. Answers d and the other one.
async fn leased_by_another(f: &Fixture, queue: TestQueue<'_>) -> (Hand, Hand) {
    let hand = expired(f, queue).await;
    let other = queue.take().await;
    assert_eq!((other.id, other.fence), (hand.id, hand.fence + 1));
    (hand, other)
}

#[derive(Clone, Copy, Debug)]
enum Since {
    Ready,
    Delayed,
    Dead,
    DeadByExpiry,
}

/// Row 5: handed out again since, now ready, delayed or dead.
async fn handed_out_since(f: &Fixture, queue: TestQueue<'_>, since: Since) -> Hand {
    let (hand, other) = leased_by_another(f, queue).await;
    match since {
        Since::Ready => f.release(&other).await.map(drop).unwrap(),
        Since::Delayed => f.nack(&other).await.map(drop).unwrap(),
        Since::Dead => f.nack_permanently(&other).await.map(drop).unwrap(),
        Since::DeadByExpiry => {
            queue.set(|p| p.max_lease_expirations = 1).await;
            f.release(&other).await.unwrap();
            queue.set(|p| p.max_lease_expirations = 3).await;
            let third = queue.take().await;
            queue.set(|p| p.max_attempts = 2).await;
            f.release(&third).await.unwrap();
            queue.take().await;
            f.pass_and_sweep(LEASE).await;
        }
    }
    hand
}

#[derive(Clone, Copy, Debug)]
enum By {
    DeadLetter,
    DeadLetterAfterExpiry,
    Discard,
}

/// Row 6: dead-lettered by an operator, or discarded.
async fn taken_by_operator(f: &Fixture, queue: TestQueue<'_>, by: By) -> Hand {
    let hand = match by {
        By::DeadLetter => queue.publish_and_take().await,
        By::DeadLetterAfterExpiry => expired(f, queue).await,
        By::Discard => dead_by_own_expiration(f, queue).await,
    };
    let act = match by {
        By::DeadLetter | By::DeadLetterAfterExpiry => Act::DeadLetter,
        By::Discard => discard(),
    };
    f.do_act(hand.id, act).await;
    hand
}

// Row 1: leased by d, in time.

/// §4.5 row 1 – ack in time.
async fn in_time_an_ack_settles(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.pass(LEASE - 1);
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
    assert_eq!(f.state(hand.id).await, State::Ended);
}

/// §4.5 row 1 – nack in time.
async fn in_time_a_nack_settles(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.pass(LEASE - 1);
    let retry = Settled::RetryScheduled {
        late: false,
        next_attempt_at: f.now() + BACKOFF,
        attempts_left: 4,
    };
    assert_eq!(f.nack(&hand).await, Ok(retry));
}

/// §4.5 row 1 – release in time.
async fn in_time_a_release_settles(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.pass(LEASE - 1);
    assert_eq!(f.release(&hand).await, Ok(Settled::Released));
    assert_eq!(f.state(hand.id).await, State::Ready);
}

/// §4.5 row 1 – extend in time: `lease_expires_at = now + visibility_timeout_seconds`.
async fn in_time_an_extend_moves_the_end_of_the_lease(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.pass(LEASE - 1);
    let extended = Settled::Extended {
        lease_expires_at: f.now() + MINUTE,
        capped: false,
        superseded_completion: false,
    };
    assert_eq!(f.extend(&hand, MINUTE).await, Ok(extended));
    f.pass(MINUTE - 1);
    queue.assert_empty().await;
    f.pass(1);
    assert_eq!(queue.take().await.id, hand.id);
}

// Row 2: d expired, not handed out since.

/// §4.5 row 2 – ack: acked, late.
async fn after_expiry_an_ack_still_counts(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    assert_eq!(f.ack(&hand).await, LATE);
    queue.assert_empty().await;
    assert_eq!(queue.counts().await.acked, 1);
}

/// §4.5 row 2 – also when a sweep has filed the expiration.
async fn after_a_sweep_an_ack_still_counts(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    f.pass_and_sweep(HOUR).await;
    assert_eq!(f.ack_with(&hand, "7").await, LATE);
    let ended = f.message(hand.id).await.unwrap().ended.unwrap();
    assert_eq!(ended.outcome.as_deref(), Some("7"));
}

/// §4.5 row 2 – nack: late; the expiration becomes a failure (attempts stay, expirations −1), backoff from now.
async fn after_expiry_a_nack_turns_the_expiration_into_a_failure(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    f.pass(SECOND);
    let retry = Settled::RetryScheduled {
        late: true,
        next_attempt_at: f.now() + BACKOFF,
        attempts_left: 4,
    };
    assert_eq!(f.nack(&hand).await, Ok(retry));
    f.pass(BACKOFF);
    let again = queue.take().await;
    let life = again.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 0));
    let failure = again.delivery.last_failure.unwrap();
    assert_eq!((failure.cause, failure.late), (Cause::Nack, true));
    assert_eq!(failure.failure.code.as_deref(), Some("E1"));
}

/// §4.5 row 2 – a permanent nack: dead with that reason.
async fn after_expiry_a_permanent_nack_makes_a_dead_letter(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    let dead = Settled::DeadLettered {
        late: true,
        attempts_left: 4,
    };
    assert_eq!(f.nack_permanently(&hand).await, Ok(dead));
    assert_eq!(queue.only_reason().await, Reason::PermanentFailure);
    let life = queue.list(State::Dead).await.remove(0).message.life;
    assert_eq!((life.attempts, life.expirations), (1, 0));
}

/// §4.5 row 2 – release: `lease_expired`, nothing changes.
async fn after_expiry_a_release_is_refused(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    assert_eq!(f.release(&hand).await, EXPIRED);
    assert_eq!(queue.take().await.delivery.message.life.releases, 0);
}

/// §4.5 row 2 – extend: revived, the expiration is uncounted.
async fn after_expiry_an_extend_revives_the_lease(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    f.pass(SECOND);
    let extended = Settled::Extended {
        lease_expires_at: f.now() + MINUTE,
        capped: false,
        superseded_completion: false,
    };
    assert_eq!(f.extend(&hand, MINUTE).await, Ok(extended));
    queue.assert_empty().await;
    let life = queue.list(State::Leased).await.remove(0).message.life;
    assert_eq!((life.fence, life.attempts, life.expirations), (1, 0, 0));
    let history = f.message(hand.id).await.unwrap().deliveries;
    assert!(history.is_empty(), "{history:?}");
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
}

/// §4.5 row 2 – also when a sweep has filed the expiration.
async fn after_a_sweep_an_extend_revives_the_lease(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    f.sweep().await;
    f.extend(&hand, LEASE).await.unwrap();
    f.pass_and_sweep(LEASE).await;
    let life = queue.take().await.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 1));
}

/// §4.5 row 2 – a lease revived over and over never uses up `max_lease_expirations`.
async fn a_lease_revived_over_and_over_is_never_exhausted(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 2).await;
    let hand = queue.publish_and_take().await;
    for _ in 0..5 {
        f.pass_and_sweep(LEASE).await;
        f.extend(&hand, LEASE).await.unwrap();
    }
    f.pass_and_sweep(LEASE).await;
    assert_eq!(queue.counts().await.ready, 1);
}

/// §4.5 row 2 – a revived lease keeps the bounds of its hand-out: the last attempt is still the last.
async fn a_revived_lease_can_still_be_the_last_attempt(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 2).await;
    let hand = expired(f, queue).await;
    f.extend(&hand, LEASE).await.unwrap();
    f.settle(&hand, nack(Some(0), false)).await.unwrap();
    let last = queue.take().await;
    let dead = Settled::DeadLettered {
        late: false,
        attempts_left: 0,
    };
    assert_eq!(f.nack(&last).await, Ok(dead));
}

/// §4.5 row 2, also after a redrive – ack: acked, late.
async fn after_a_redrive_an_ack_still_counts(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.do_act(hand.id, redrive(false)).await;
    assert_eq!(f.ack(&hand).await, LATE);
    queue.assert_empty().await;
}

/// §4.5 row 2, also after a redrive – nack: late; attempts stay, and nothing falls below zero.
async fn after_a_redrive_a_late_nack_uses_no_attempt(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.do_act(hand.id, redrive(false)).await;
    let settled = f.nack(&hand).await;
    assert!(
        matches!(settled, Ok(Settled::RetryScheduled { late: true, .. })),
        "{settled:?}"
    );
    f.pass(BACKOFF);
    let life = queue.take().await.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (0, 0));
}

/// §4.5 row 2, after a redrive – release: `lease_expired`.
async fn after_a_redrive_a_release_is_refused(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.do_act(hand.id, redrive(false)).await;
    assert_eq!(f.release(&hand).await, EXPIRED);
}

/// §4.5 row 2, after a redrive – extend: 409.
async fn after_a_redrive_an_extend_is_refused(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.do_act(hand.id, redrive(false)).await;
    assert_eq!(f.extend(&hand, LEASE).await, EXPIRED);
    assert_eq!(queue.take().await.attempt(), 1);
}

/// §4.5 row 2 – dead of old age after d expired: finished work still counts.
async fn an_ack_after_retention_still_counts(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    let hand = expired(f, queue).await;
    f.pass_and_sweep(HOUR).await;
    assert_eq!(queue.only_reason().await, Reason::Expired);
    assert_eq!(f.ack(&hand).await, LATE);
    assert_eq!(queue.counts().await.dead, 0);
}

/// §4.5 row 2 – a late nack of a message that is dead of old age leaves it dead of old age, with the error.
async fn a_nack_after_retention_keeps_the_reason(f: &Fixture) {
    let queue = f.queue("orders", |p| p.retention_ms = HOUR).await;
    let hand = expired(f, queue).await;
    f.pass_and_sweep(HOUR).await;
    let settled = f.nack(&hand).await;
    assert!(
        matches!(settled, Ok(Settled::DeadLettered { late: true, .. })),
        "{settled:?}"
    );
    assert_eq!(queue.only_reason().await, Reason::Expired);
    let last = queue.list(State::Dead).await.remove(0).last.unwrap();
    assert_eq!(last.failure.code.as_deref(), Some("E1"));
}

// Row 3: dead by d's own expiration, not edited.

/// §4.5 row 3 – ack: acked, late, leaves the dead.
async fn an_ack_brings_a_dead_letter_back_from_its_own_expiration(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    assert_eq!(f.ack(&hand).await, LATE);
    let counts = queue.counts().await;
    assert_eq!((counts.dead, counts.acked), (0, 1));
}

/// §4.5 row 3 – also before anything has filed the exhausted message.
async fn an_ack_of_an_exhausted_message_counts_before_it_is_filed(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 1).await;
    let hand = expired(f, queue).await;
    assert_eq!(f.ack(&hand).await, LATE);
    f.sweep().await;
    let counts = queue.counts().await;
    assert_eq!((counts.dead, counts.acked), (0, 1));
}

/// §4.5 row 3 – nack: late; stays dead with the nack's error.
async fn a_nack_stays_dead_with_its_error(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    let died_at = f.now();
    f.pass(SECOND);
    let dead = Settled::DeadLettered {
        late: true,
        attempts_left: 0,
    };
    assert_eq!(f.nack(&hand).await, Ok(dead));
    let listed = queue.list(State::Dead).await.remove(0);
    let Place::Dead(dead) = listed.message.place else {
        panic!("{:?}", listed.message.place)
    };
    assert_eq!((dead.reason, dead.died_at), (Reason::MaxAttempts, died_at));
    assert_eq!(dead.error_code.as_deref(), Some("E1"));
    let life = listed.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 0));
    assert_eq!(f.ack(&hand).await, SPENT);
}

/// §4.5 row 3 – a permanent nack changes the reason.
async fn a_permanent_nack_of_a_dead_letter_changes_its_reason(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.nack_permanently(&hand).await.unwrap();
    assert_eq!(queue.only_reason().await, Reason::PermanentFailure);
}

/// §4.5 row 3 – release and extend: `lease_expired`.
async fn a_dead_letter_is_neither_released_nor_extended(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = dead_by_own_expiration(f, queue).await;
    assert_eq!(f.release(&hand).await, EXPIRED);
    assert_eq!(f.extend(&hand, LEASE).await, EXPIRED);
    assert_eq!(queue.only_reason().await, Reason::LeaseExpired);
}

// Row 4: leased by another delivery.

/// §4.5 row 4 – ack: `lease_superseded`, the completion is remembered; the holder keeps the message.
async fn a_superseded_receipt_cannot_ack(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = leased_by_another(f, queue).await;
    assert_eq!(f.ack(&hand).await, HELD_AND_REMEMBERED);
    assert_eq!(queue.ids(State::Leased).await, [hand.id]);
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&other).await, Ok(acked));
    assert_eq!(queue.counts().await.acked, 1);
}

/// §4.5 row 4 – nack, release and extend: `lease_superseded`; the holder notices nothing.
async fn a_superseded_receipt_changes_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = leased_by_another(f, queue).await;
    assert_eq!(f.nack(&hand).await, HELD);
    assert_eq!(f.nack_permanently(&hand).await, HELD);
    assert_eq!(f.release(&hand).await, HELD);
    assert_eq!(f.extend(&hand, HOUR).await, HELD);
    let listed = queue.list(State::Leased).await.remove(0);
    assert_eq!(listed.message.place, other.delivery.message.place);
    assert_eq!(listed.message.life.attempts, 1);
    let retry = f.nack(&other).await;
    assert!(matches!(
        retry,
        Ok(Settled::RetryScheduled { late: false, .. })
    ));
}

// Row 5: handed out again since.

/// §4.5 row 5 – ack: acked, late, superseded.
async fn an_ack_counts_when_nobody_holds_the_message(f: &Fixture) {
    for since in [
        Since::Ready,
        Since::Delayed,
        Since::Dead,
        Since::DeadByExpiry,
    ] {
        let queue = f.queue(&format!("{since:?}"), |_| {}).await;
        let hand = handed_out_since(f, queue, since).await;
        assert_eq!(f.ack_with(&hand, "9").await, SUPERSEDED, "{since:?}");
        let counts = queue.counts().await;
        assert_eq!((counts.acked, counts.dead, counts.ready), (1, 0, 0));
        let ended = f.message(hand.id).await.unwrap().ended.unwrap();
        assert_eq!((ended.end, ended.fence), (End::Acked, hand.fence));
        assert_eq!(ended.outcome.as_deref(), Some("9"));
    }
}

/// §4.5 row 5 – nack, release, extend: `lease_superseded`.
async fn only_an_ack_counts_when_nobody_holds_the_message(f: &Fixture) {
    for since in [
        Since::Ready,
        Since::Delayed,
        Since::Dead,
        Since::DeadByExpiry,
    ] {
        let queue = f.queue(&format!("{since:?}"), |_| {}).await;
        let hand = handed_out_since(f, queue, since).await;
        let before = f.message(hand.id).await.unwrap().message;
        assert_eq!(f.nack(&hand).await, HELD, "{since:?}");
        assert_eq!(f.nack_permanently(&hand).await, HELD, "{since:?}");
        assert_eq!(f.release(&hand).await, HELD, "{since:?}");
        assert_eq!(f.extend(&hand, LEASE).await, HELD, "{since:?}");
        assert_eq!(f.message(hand.id).await.unwrap().message, before);
    }
}

/// §4.5 row 5 – an older delivery than the last but one counts the same.
async fn the_first_of_many_deliveries_may_still_ack(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 100).await;
    queue.set(|p| p.max_attempts = 100).await;
    let first = expired(f, queue).await;
    for _ in 0..20 {
        queue.take().await;
        f.pass_and_sweep(LEASE).await;
    }
    assert_eq!(f.ack(&first).await, SUPERSEDED);
}

/// §4.5 row 5 – so does one whose history is no longer kept.
async fn a_delivery_that_history_forgot_may_still_ack(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.max_attempts = 1_000;
            p.max_lease_expirations = 1_000;
        })
        .await;
    queue.publish("1").await;
    let mut hands = Vec::new();
    for _ in 0..130 {
        hands.push(queue.take().await);
        f.pass(LEASE);
    }
    f.sweep().await;
    assert_eq!(f.extend(&hands[14], LEASE).await, HELD);
    assert_eq!(f.ack(&hands[14]).await, SUPERSEDED);
    assert_eq!(f.nack(&hands[14]).await, SPENT);
}

// Row 6: dead-lettered by an operator, edited or discarded.

/// §4.5 row 6 – ack: `taken_by_operator`; completion and outcome are kept on the dead letter.
async fn an_ack_is_kept_on_what_an_operator_took(f: &Fixture) {
    for by in [By::DeadLetter, By::DeadLetterAfterExpiry, By::Discard] {
        let queue = f.queue(&format!("{by:?}"), |_| {}).await;
        let hand = taken_by_operator(f, queue, by).await;
        assert_eq!(f.ack_with(&hand, "5").await, TAKEN_AND_REMEMBERED, "{by:?}");
        let message = f.message(hand.id).await.unwrap().message.unwrap();
        let completion = message.completion.unwrap();
        assert_eq!(completion.fence, hand.fence);
        assert_eq!(completion.outcome.as_deref(), Some("5"));
        assert_eq!(queue.counts().await.acked, 0);
        // Repeating it is the same 409 again.
        assert_eq!(f.ack(&hand).await, TAKEN_AND_REMEMBERED, "{by:?}");
    }
}

/// §4.5 row 6 – nack, release, extend: `taken_by_operator`.
async fn only_an_ack_is_kept_on_what_an_operator_took(f: &Fixture) {
    for by in [By::DeadLetter, By::DeadLetterAfterExpiry, By::Discard] {
        let queue = f.queue(&format!("{by:?}"), |_| {}).await;
        let hand = taken_by_operator(f, queue, by).await;
        assert_eq!(f.nack(&hand).await, TAKEN, "{by:?}");
        assert_eq!(f.nack_permanently(&hand).await, TAKEN, "{by:?}");
        assert_eq!(f.release(&hand).await, TAKEN, "{by:?}");
        assert_eq!(f.extend(&hand, LEASE).await, TAKEN, "{by:?}");
        let message = f.message(hand.id).await.unwrap().message.unwrap();
        assert_eq!(message.completion, None);
    }
}

/// §4.5 row 6 – a redrive of it then needs `force`.
async fn a_redrive_over_a_completion_needs_force(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = taken_by_operator(f, queue, By::DeadLetter).await;
    assert_eq!(f.ack(&hand).await, TAKEN_AND_REMEMBERED);
    let refused = f.refuse_act(hand.id, redrive(false)).await;
    assert_eq!(refused, OperationRefused::CompletionRemembered);
    let done = queue.redrive_oldest(10).await;
    assert_eq!((done.moved, done.skipped.completion_remembered), (0, 1));
    f.do_act(hand.id, redrive(true)).await;
    assert_eq!(queue.take().await.attempt(), 1);
}

/// §4.5 row 6, then row 2 – after a redrive the delivery that the operator ended may ack, and revives nothing.
async fn a_redriven_message_leaves_the_operators_hands(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = taken_by_operator(f, queue, By::DeadLetter).await;
    f.do_act(hand.id, redrive(false)).await;
    assert_eq!(f.extend(&hand, LEASE).await, EXPIRED);
    assert_eq!(f.release(&hand).await, EXPIRED);
    assert_eq!(f.ack(&hand).await, LATE);
}

// Row 7: gone.

/// §4.5 row 7 – ack: `already_settled` with the known end.
async fn an_ack_of_a_message_that_is_gone_says_how_it_went(f: &Fixture) {
    let queue = f.plain_queue().await;

    let (first, second) = leased_by_another(f, queue).await;
    f.ack(&second).await.unwrap();
    assert_eq!(f.ack(&first).await, already(Some(End::Acked)));

    let purged = queue.publish_and_take().await;
    queue.purge(false).await;
    assert_eq!(f.ack(&purged).await, already(Some(End::Purged)));

    let cancelled = expired(f, queue).await;
    f.do_act(cancelled.id, Act::Cancel).await;
    assert_eq!(f.ack(&cancelled).await, already(Some(End::Cancelled)));
}

/// §4.5 row 7 – also when a dead letter's retention ended it.
async fn an_ack_after_dead_letter_retention_says_so(f: &Fixture) {
    let queue = f
        .queue("orders", |p| p.dead_letter_retention_ms = Some(HOUR))
        .await;
    let hand = dead_by_own_expiration(f, queue).await;
    f.pass(HOUR);
    f.maintain().await;
    let end = already(Some(End::DeadLetterExpired));
    assert_eq!(f.ack(&hand).await, end);
}

/// §4.5 row 7 – also when the whole queue is deleted.
async fn an_ack_after_the_queue_was_deleted_says_purged(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    queue.delete(true).await;
    assert_eq!(f.ack(&hand).await, already(Some(End::Purged)));
    f.maintain().await;
    assert_eq!(f.ack(&hand).await, already(Some(End::Purged)));
    assert_eq!(f.nack(&hand).await, GONE);
}

/// §4.5 row 7 – nack, release, extend: `message_gone`.
async fn only_an_ack_is_welcome_when_the_message_is_gone(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (first, second) = leased_by_another(f, queue).await;
    f.ack(&second).await.unwrap();
    let purged = queue.publish_and_take().await;
    queue.purge(false).await;
    for hand in [first, purged] {
        assert_eq!(f.nack(&hand).await, GONE);
        assert_eq!(f.nack_permanently(&hand).await, GONE);
        assert_eq!(f.release(&hand).await, GONE);
        assert_eq!(f.extend(&hand, LEASE).await, GONE);
    }
}

/// §4.5 row 7 – `gone` where it cannot be known: the record is over.
async fn an_end_that_is_forgotten_is_gone(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    queue.purge(false).await;
    f.pass(60 * DAY);
    f.maintain().await;
    assert_eq!(f.ack(&hand).await, already(Some(End::Gone)));
    assert_eq!(f.nack(&hand).await, GONE);
}

// A remembered completion.

async fn remembered(f: &Fixture, queue: TestQueue<'_>) -> (Hand, Hand) {
    let (hand, other) = leased_by_another(f, queue).await;
    assert_eq!(f.ack_with(&hand, "3").await, HELD_AND_REMEMBERED);
    (hand, other)
}

async fn assert_completed(f: &Fixture, queue: TestQueue<'_>, hand: &Hand, outcome: &str) {
    let ended = f.message(hand.id).await.unwrap().ended.unwrap();
    assert_eq!(ended.end, End::Acked);
    assert_eq!(ended.outcome.as_deref(), Some(outcome));
    assert_eq!(queue.counts().await.acked, 1);
    f.pass_and_sweep(DAY).await;
    queue.assert_empty().await;
}

/// §4.5 – while a completion is remembered, a nack settles as acked: `acked_superseded`.
async fn a_nack_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    assert_eq!(f.nack(&other).await, Ok(Settled::AckedSuperseded));
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – so does a permanent nack.
async fn a_permanent_nack_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    let settled = f.nack_permanently(&other).await;
    assert_eq!(settled, Ok(Settled::AckedSuperseded));
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – so does a release.
async fn a_release_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    assert_eq!(f.release(&other).await, Ok(Settled::AckedSuperseded));
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – so does a give-back.
async fn a_give_back_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    assert_eq!(f.give_back(&other).await, Ok(Settled::AckedSuperseded));
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – so does the expiration of the present lease; nobody receives the message again.
async fn an_expiration_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, _) = remembered(f, queue).await;
    f.pass(LEASE);
    queue.assert_empty().await;
    f.sweep().await;
    queue.assert_empty().await;
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – so does an operator who dead-letters it.
async fn an_operator_lets_a_remembered_completion_take_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, _) = remembered(f, queue).await;
    let Answer::Acted {
        acked_superseded,
        state,
        ..
    } = f.act(hand.id, Act::DeadLetter).await
    else {
        panic!("refused")
    };
    assert!(acked_superseded);
    assert_eq!(State::from_code(state), Some(State::Ended));
    assert_completed(f, queue, &hand, "3").await;
}

/// §4.5 – extend says `superseded_completion`.
async fn an_extend_tells_of_a_remembered_completion(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (_, other) = remembered(f, queue).await;
    let extended = Settled::Extended {
        lease_expires_at: f.now() + MINUTE,
        capped: false,
        superseded_completion: true,
    };
    assert_eq!(f.extend(&other, MINUTE).await, Ok(extended));
}

/// §4.5 – the holder's own ack and outcome win.
async fn the_holders_own_outcome_wins(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack_with(&other, "8").await, Ok(acked));
    assert_eq!(f.ack(&hand).await, already(Some(End::Acked)));
    assert_completed(f, queue, &hand, "8").await;
}

/// §4.5 – the first completion stays: a second superseded delivery does not replace it.
async fn the_first_remembered_completion_stays(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 10).await;
    let (first, second) = leased_by_another(f, queue).await;
    f.pass(LEASE);
    let third = queue.take().await;
    assert_eq!(f.ack_with(&first, "3").await, HELD_AND_REMEMBERED);
    assert_eq!(f.ack_with(&second, "4").await, HELD_AND_REMEMBERED);
    assert_eq!(f.nack(&third).await, Ok(Settled::AckedSuperseded));
    assert_completed(f, queue, &first, "3").await;
}

// Repeats.

/// §4.5 – a repeat of the settle that succeeded → `already_settled`; counters move once.
async fn a_repeated_settle_is_already_settled(f: &Fixture) {
    let queue = f.plain_queue().await;
    let acked = queue.publish_and_take().await;
    f.ack(&acked).await.unwrap();
    let nacked = queue.publish_and_take().await;
    f.nack(&nacked).await.unwrap();
    let dead = queue.publish_and_take().await;
    f.nack_permanently(&dead).await.unwrap();
    let released = queue.publish_and_take().await;
    f.release(&released).await.unwrap();
    for _ in 0..2 {
        assert_eq!(f.ack(&acked).await, already(Some(End::Acked)));
        assert_eq!(f.nack(&nacked).await, already(None));
        assert_eq!(f.nack_permanently(&dead).await, already(None));
        assert_eq!(f.release(&released).await, already(None));
    }
    let counts = queue.counts().await;
    assert_eq!((counts.acked, counts.delayed), (1, 1));
    assert_eq!((counts.dead, counts.ready), (1, 1));
}

/// §4.5 – a different one → `receipt_spent`; first wins.
async fn a_different_settle_is_refused_as_spent(f: &Fixture) {
    let queue = f.plain_queue().await;
    let acked = queue.publish_and_take().await;
    f.ack(&acked).await.unwrap();
    assert_eq!(f.nack(&acked).await, SPENT);
    assert_eq!(f.release(&acked).await, SPENT);
    assert_eq!(f.extend(&acked, LEASE).await, SPENT);
    let nacked = queue.publish_and_take().await;
    f.nack(&nacked).await.unwrap();
    assert_eq!(f.ack(&nacked).await, SPENT);
    assert_eq!(f.release(&nacked).await, SPENT);
    assert_eq!(f.extend(&nacked, LEASE).await, SPENT);
    assert_eq!(f.nack_permanently(&nacked).await, SPENT);
    let released = queue.publish_and_take().await;
    f.release(&released).await.unwrap();
    assert_eq!(f.ack(&released).await, SPENT);
    assert_eq!(f.nack(&released).await, SPENT);
    assert_eq!(queue.counts().await.acked, 1);
}

/// §4.5 – a settle without end stays spent when others have had the message since, and when it is gone.
async fn a_spent_receipt_stays_spent(f: &Fixture) {
    let queue = f.plain_queue().await;
    let nacked = queue.publish_and_take().await;
    f.settle(&nacked, nack(Some(0), false)).await.unwrap();
    let second = queue.take().await;
    assert_eq!(f.ack(&nacked).await, SPENT);
    assert_eq!(f.nack(&nacked).await, already(None));
    f.ack(&second).await.unwrap();
    assert_eq!(f.ack(&nacked).await, SPENT);
    assert_eq!(f.nack(&nacked).await, already(Some(End::Acked)));
}

/// §4.5 – a repeated late ack is already settled, any other settle of it spent.
async fn a_repeated_late_ack_is_already_settled(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = expired(f, queue).await;
    assert_eq!(f.ack(&hand).await, LATE);
    assert_eq!(f.ack(&hand).await, already(Some(End::Acked)));
    assert_eq!(f.nack(&hand).await, SPENT);
}

/// §4.5 – an ack whose completion is only remembered: the same 409 again, 200 once it took effect.
async fn a_remembered_ack_is_refused_until_it_took_effect(f: &Fixture) {
    let queue = f.plain_queue().await;
    let (hand, other) = remembered(f, queue).await;
    assert_eq!(f.ack(&hand).await, HELD_AND_REMEMBERED);
    f.nack(&other).await.unwrap();
    assert_eq!(f.ack(&hand).await, already(Some(End::Acked)));
    assert_eq!(f.nack(&hand).await, SPENT);
    assert_eq!(f.nack(&other).await, already(Some(End::Acked)));
}

/// §4.5 – first wins, also when both arrive together.
async fn of_two_settles_in_one_commit_the_first_wins(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    let mut batch = quita_storage::backend::Batch::default();
    for action in [
        nack(Some(0), false),
        Action::Ack { outcome: None },
        nack(Some(0), false),
    ] {
        batch.settles.push(queue.settle_item(&hand, action).await);
    }
    let settles = f.apply(&batch).await.settles;
    let decided: Vec<_> = settles
        .into_iter()
        .map(|s| match s {
            quita_storage::backend::SettleOutcome::Decided(decided) => decided,
            quita_storage::backend::SettleOutcome::Stale => panic!("stale"),
        })
        .collect();
    assert!(matches!(decided[0], Ok(Settled::RetryScheduled { .. })));
    assert_eq!(decided[1], SPENT);
    assert_eq!(decided[2], already(None));
}

// Strict queues.

/// §4.5 – strict: the first settle of a delivery, arriving late → `lease_expired`, nothing is remembered.
async fn a_strict_queue_refuses_late_settles(f: &Fixture) {
    let queue = f.queue("orders", strict).await;
    let hand = expired(f, queue).await;
    assert_eq!(f.ack(&hand).await, EXPIRED);
    assert_eq!(f.nack(&hand).await, EXPIRED);
    assert_eq!(f.release(&hand).await, EXPIRED);
    assert_eq!(queue.counts().await.ready, 1);
    let dead = {
        let queue = f.queue("dead", strict).await;
        dead_by_own_expiration(f, queue).await
    };
    assert_eq!(f.ack(&dead).await, EXPIRED);
    assert_eq!(f.state(dead.id).await, State::Dead);
}

/// §4.5 – strict: also while another delivery holds the message; its failure is a failure.
async fn a_strict_queue_remembers_no_completion(f: &Fixture) {
    let queue = f.queue("orders", strict).await;
    let (hand, other) = leased_by_another(f, queue).await;
    assert_eq!(f.ack(&hand).await, EXPIRED);
    let retry = f.nack(&other).await;
    assert!(
        matches!(retry, Ok(Settled::RetryScheduled { .. })),
        "{retry:?}"
    );
    assert_eq!(f.ack(&hand).await, EXPIRED);
    let since = {
        let queue = f.queue("since", strict).await;
        handed_out_since(f, queue, Since::Dead).await
    };
    assert_eq!(f.ack(&since).await, EXPIRED);
    assert_eq!(queue.counts().await.acked, 0);
}

/// §4.5 – strict: a late settle is refused also when an operator has taken the message since.
async fn a_strict_queue_keeps_no_completion_on_a_dead_letter(f: &Fixture) {
    let queue = f.queue("orders", strict).await;
    let hand = taken_by_operator(f, queue, By::DeadLetterAfterExpiry).await;
    assert_eq!(f.ack(&hand).await, EXPIRED);
    f.do_act(hand.id, redrive(false)).await;
}

/// §4.5 – strict: settles in time, and repeats, as always.
async fn a_strict_queue_repeats_as_always(f: &Fixture) {
    let queue = f.queue("orders", strict).await;
    let acked = queue.publish_and_take().await;
    f.ack(&acked).await.unwrap();
    let nacked = queue.publish_and_take().await;
    f.nack(&nacked).await.unwrap();
    f.pass(LEASE);
    assert_eq!(f.ack(&acked).await, already(Some(End::Acked)));
    assert_eq!(f.nack(&nacked).await, already(None));
    assert_eq!(f.ack(&nacked).await, SPENT);
}

/// §4.5 – strict: a lease that ran out cannot be revived, or strictness would mean nothing.
async fn a_strict_queue_revives_no_lease(f: &Fixture) {
    let queue = f.queue("orders", strict).await;
    let hand = expired(f, queue).await;
    assert_eq!(f.extend(&hand, LEASE).await, EXPIRED);
}

// Extend.

/// §4.5 – an extend may shorten.
async fn an_extend_may_shorten(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.extend(&hand, SECOND).await.unwrap();
    f.pass(SECOND);
    assert_eq!(queue.take().await.id, hand.id);
}

/// §4.5 – an extend is cut to 24 h from the hand-out, with `capped`.
async fn an_extend_is_cut_to_a_day_from_the_hand_out(f: &Fixture) {
    let queue = f.plain_queue().await;
    let handed_out_at = f.now();
    let hand = queue.publish_and_take().await;
    for _ in 0..2 {
        f.extend(&hand, 12 * HOUR).await.unwrap();
        f.pass(11 * HOUR);
    }
    let extended = Settled::Extended {
        lease_expires_at: handed_out_at + DAY,
        capped: true,
        superseded_completion: false,
    };
    assert_eq!(f.extend(&hand, 12 * HOUR).await, Ok(extended));
    f.pass(2 * HOUR);
    // The day is over: nothing is left to extend.
    assert_eq!(f.extend(&hand, HOUR).await, EXPIRED);
    let life = queue.take().await.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 1));
}

/// §4.5 – a revived lease ends at most a day after its hand-out, too.
async fn a_revived_lease_is_cut_to_a_day_from_the_hand_out(f: &Fixture) {
    let queue = f.plain_queue().await;
    let handed_out_at = f.now();
    let hand = queue.publish_and_take().await;
    f.pass(20 * HOUR);
    let extended = Settled::Extended {
        lease_expires_at: handed_out_at + DAY,
        capped: true,
        superseded_completion: false,
    };
    assert_eq!(f.extend(&hand, 12 * HOUR).await, Ok(extended));
}

// Give-back (§4.6).

/// §4.6 – the receipts of given-back leases stay valid until the next hand-out: ack.
async fn a_given_back_receipt_may_still_ack(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.give_back(&hand).await.unwrap();
    let settled = f.ack(&hand).await;
    assert!(
        matches!(
            settled,
            Ok(Settled::Acked {
                superseded: false,
                ..
            })
        ),
        "{settled:?}"
    );
    queue.assert_empty().await;
}

/// §4.6 – extend: the worker did get the answer, and goes on.
async fn a_given_back_receipt_may_still_extend(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.give_back(&hand).await.unwrap();
    f.extend(&hand, LEASE).await.unwrap();
    queue.assert_empty().await;
    let acked = Settled::Acked {
        late: false,
        superseded: false,
    };
    assert_eq!(f.ack(&hand).await, Ok(acked));
}

/// §4.6 – nack: that delivery did happen, and failed; one attempt, no expiration.
async fn a_given_back_receipt_may_still_nack(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.give_back(&hand).await.unwrap();
    f.settle(&hand, nack(Some(0), false)).await.unwrap();
    let life = queue.take().await.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 0));
}

/// §4.6 – and only until the next hand-out.
async fn a_given_back_receipt_is_superseded_by_the_next_hand_out(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.give_back(&hand).await.unwrap();
    let other = queue.take().await;
    assert_eq!(f.nack(&hand).await, HELD);
    assert_eq!(f.ack(&hand).await, HELD_AND_REMEMBERED);
    assert_eq!(f.nack(&other).await, Ok(Settled::AckedSuperseded));
}

/// §4.6 – giving back what was settled or is over changes nothing.
async fn a_give_back_that_comes_late_changes_nothing(f: &Fixture) {
    let queue = f.plain_queue().await;
    let acked = queue.publish_and_take().await;
    f.ack(&acked).await.unwrap();
    assert_eq!(f.give_back(&acked).await, SPENT);
    let late = expired(f, queue).await;
    assert_eq!(f.give_back(&late).await, EXPIRED);
    let life = queue.take().await.delivery.message.life;
    assert_eq!((life.attempts, life.expirations), (1, 1));
    assert_eq!(f.give_back(&late).await, HELD);
}

/// §4.5 – a receipt for a delivery that this store has not made yet comes from before a restore.
async fn a_delivery_from_the_future_is_refused(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut hand = queue.publish_and_take().await;
    hand.fence += 1;
    assert_eq!(f.ack(&hand).await, Err(Refused::FromBeforeRestore));
    assert_eq!(queue.counts().await.leased, 1);
}

on_every_store![
    in_time_an_ack_settles,
    in_time_a_nack_settles,
    in_time_a_release_settles,
    in_time_an_extend_moves_the_end_of_the_lease,
    after_expiry_an_ack_still_counts,
    after_a_sweep_an_ack_still_counts,
    after_expiry_a_nack_turns_the_expiration_into_a_failure,
    after_expiry_a_permanent_nack_makes_a_dead_letter,
    after_expiry_a_release_is_refused,
    after_expiry_an_extend_revives_the_lease,
    after_a_sweep_an_extend_revives_the_lease,
    a_lease_revived_over_and_over_is_never_exhausted,
    a_revived_lease_can_still_be_the_last_attempt,
    after_a_redrive_an_ack_still_counts,
    after_a_redrive_a_late_nack_uses_no_attempt,
    after_a_redrive_a_release_is_refused,
    after_a_redrive_an_extend_is_refused,
    an_ack_after_retention_still_counts,
    a_nack_after_retention_keeps_the_reason,
    an_ack_brings_a_dead_letter_back_from_its_own_expiration,
    an_ack_of_an_exhausted_message_counts_before_it_is_filed,
    a_nack_stays_dead_with_its_error,
    a_permanent_nack_of_a_dead_letter_changes_its_reason,
    a_dead_letter_is_neither_released_nor_extended,
    a_superseded_receipt_cannot_ack,
    a_superseded_receipt_changes_nothing,
    an_ack_counts_when_nobody_holds_the_message,
    only_an_ack_counts_when_nobody_holds_the_message,
    the_first_of_many_deliveries_may_still_ack,
    a_delivery_that_history_forgot_may_still_ack,
    an_ack_is_kept_on_what_an_operator_took,
    only_an_ack_is_kept_on_what_an_operator_took,
    a_redrive_over_a_completion_needs_force,
    a_redriven_message_leaves_the_operators_hands,
    an_ack_of_a_message_that_is_gone_says_how_it_went,
    an_ack_after_dead_letter_retention_says_so,
    an_ack_after_the_queue_was_deleted_says_purged,
    only_an_ack_is_welcome_when_the_message_is_gone,
    an_end_that_is_forgotten_is_gone,
    a_nack_lets_a_remembered_completion_take_effect,
    a_permanent_nack_lets_a_remembered_completion_take_effect,
    a_release_lets_a_remembered_completion_take_effect,
    a_give_back_lets_a_remembered_completion_take_effect,
    an_expiration_lets_a_remembered_completion_take_effect,
    an_operator_lets_a_remembered_completion_take_effect,
    an_extend_tells_of_a_remembered_completion,
    the_holders_own_outcome_wins,
    the_first_remembered_completion_stays,
    a_repeated_settle_is_already_settled,
    a_different_settle_is_refused_as_spent,
    a_spent_receipt_stays_spent,
    a_repeated_late_ack_is_already_settled,
    a_remembered_ack_is_refused_until_it_took_effect,
    of_two_settles_in_one_commit_the_first_wins,
    a_strict_queue_refuses_late_settles,
    a_strict_queue_remembers_no_completion,
    a_strict_queue_keeps_no_completion_on_a_dead_letter,
    a_strict_queue_repeats_as_always,
    a_strict_queue_revives_no_lease,
    an_extend_may_shorten,
    an_extend_is_cut_to_a_day_from_the_hand_out,
    a_revived_lease_is_cut_to_a_day_from_the_hand_out,
    a_given_back_receipt_may_still_ack,
    a_given_back_receipt_may_still_extend,
    a_given_back_receipt_may_still_nack,
    a_given_back_receipt_is_superseded_by_the_next_hand_out,
    a_give_back_that_comes_late_changes_nothing,
    a_delivery_from_the_future_is_refused,
];

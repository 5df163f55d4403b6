//! Receives that take long: what is known of when and in which order they were granted.

use super::story::Story;

/// Receives from 100 to 3,000 whose answers tell when their leases began.
fn at_once(leases: [(u64, u32); 2]) -> Story {
    let mut s = Story::new();
    s.publish(0, "a");
    for (at, attempt) in leases {
        let op = s.receive(at, &[("a", attempt)]);
        (op.t_inv, op.t_ret) = (100_000_000, 3_000_000_000 + u64::from(attempt));
    }
    s
}

#[test]
fn of_two_answers_that_were_on_their_way_at_once_either_may_be_the_first() {
    at_once([(2_900, 2), (200, 1)]).holds(15);
    at_once([(200, 2), (2_900, 1)]).holds(15);
    assert_eq!(at_once([(2_900, 2), (200, 1)]).judge().broken(7), 0);
}

#[test]
fn in_no_order_is_the_same_attempt_right_twice() {
    at_once([(200, 1), (2_900, 1)]).breaks(15);
}

#[test]
fn a_waiting_receive_is_judged_by_when_its_lease_began() {
    let mut s = Story::new();
    for n in 0..30 {
        let id = format!("m{n}");
        s.publish(n, &id);
        s.receive(50 + n, &[(&id, 1)]);
        s.ack(100 + n, &format!("{id}/1"));
    }
    s.holds(10);
    // It waited since before the ack, and its lease began long after it.
    let op = s.receive(3_000, &[("m0", 2)]);
    op.t_inv = 60_000_000;
    s.breaks(10);
}

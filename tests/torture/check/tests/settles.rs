//! 8, 9, 14: what settles are answered.

use super::story::{Story, unanswered};
use crate::history::{Class, Kind};

/// Handed out at 100 and, its lease over, at 2,200 until 4,200.
fn twice(queue: &str) -> Story {
    let mut s = Story::new();
    s.publish(0, "a").queue = queue.into();
    s.receive(100, &[("a", 1)]).queue = queue.into();
    s.receive(2_200, &[("a", 2)]).queue = queue.into();
    s
}

#[test]
fn a_superseded_receipt_is_refused_and_the_holder_settles() {
    let mut s = twice("plain");
    s.refused(2_300, Kind::Nack, "a/1", "lease_superseded", false);
    s.refused(2_320, Kind::Ack, "a/1", "lease_superseded", true);
    s.ack(2_400, "a/2");
    s.holds(8);
}

#[test]
fn a_superseded_receipt_that_takes_effect_breaks_the_promise() {
    for (kind, result) in [
        (Kind::Ack, "acked"),
        (Kind::Ack, "already_settled"),
        (Kind::Nack, "retry_scheduled"),
        (Kind::Release, "released"),
        (Kind::Extend, "extended"),
    ] {
        let mut s = twice("plain");
        let op = s.settle(2_300, kind, "a/1", result);
        (op.body.late, op.body.superseded) = (true, true);
        s.breaks(8);
    }
}

#[test]
fn a_holder_that_is_refused_breaks_the_promise() {
    let mut s = twice("plain");
    s.refused(2_400, Kind::Ack, "a/2", "message_gone", false);
    s.breaks(8);
}

#[test]
fn a_holder_may_hear_that_it_was_done() {
    let mut s = twice("plain");
    s.refused(2_300, Kind::Ack, "a/1", "lease_superseded", true);
    s.settle(2_400, Kind::Nack, "a/2", "acked_superseded");
    s.holds(8);
}

#[test]
fn handed_out_again_and_free_an_ack_counts_and_nothing_else_does() {
    let mut s = twice("plain");
    let op = s.ack(4_300, "a/1");
    (op.body.late, op.body.superseded) = (true, true);
    s.holds(9);
    let mut s = twice("plain");
    s.settle(4_300, Kind::Release, "a/1", "released");
    s.breaks(9);
}

#[test]
fn what_is_in_time_works() {
    for (kind, result) in [
        (Kind::Ack, "acked"),
        (Kind::Nack, "retry_scheduled"),
        (Kind::Release, "released"),
        (Kind::Extend, "extended"),
    ] {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.settle(200, kind, "a/1", result);
        s.holds(9);
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.refused(200, kind, "a/1", "lease_expired", false);
        s.breaks(9);
    }
}

#[test]
fn a_settle_that_overload_refused_says_nothing_about_its_receipt() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    let op = s.ack(200, "a/1");
    (op.class, op.status, op.code) = (Class::Fail, 503, "overloaded".into());
    assert_eq!(s.judge().broken(9), 0);
}

#[test]
fn late_and_not_handed_out_since() {
    let story = |kind, result: &str, late| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.settle(2_200, kind, "a/1", result).body.late = late;
        s
    };
    story(Kind::Ack, "acked", true).holds(9);
    story(Kind::Nack, "retry_scheduled", true).holds(9);
    story(Kind::Ack, "acked", false).breaks(9);
    story(Kind::Release, "released", true).breaks(9);
    let mut doubt = story(Kind::Ack, "already_settled", true);
    doubt.lost_receive(2_150);
    assert_eq!(doubt.judge().broken(9), 0, "somebody may have had it since");
}

#[test]
fn a_strict_queue_takes_nothing_late() {
    let story = || {
        let mut s = Story::new();
        s.publish(0, "a").queue = "strict".into();
        s.receive(100, &[("a", 1)]).queue = "strict".into();
        s
    };
    let mut s = story();
    s.refused(2_200, Kind::Ack, "a/1", "lease_expired", false);
    s.holds(9);
    let mut s = story();
    s.ack(2_200, "a/1").body.late = true;
    s.breaks(9);
}

#[test]
fn the_same_again_is_settled_already_and_another_is_spent() {
    let story = || {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.ack(200, "a/1");
        s
    };
    let mut s = story();
    s.settle(300, Kind::Ack, "a/1", "already_settled").body.end = "acked".into();
    s.refused(310, Kind::Nack, "a/1", "receipt_spent", false);
    s.refused(320, Kind::Extend, "a/1", "receipt_spent", false);
    s.holds(9);
    let mut s = story();
    s.refused(300, Kind::Ack, "a/1", "receipt_spent", false);
    s.breaks(9);
    let mut s = story();
    s.settle(300, Kind::Extend, "a/1", "extended");
    s.breaks(9);
}

#[test]
fn of_two_settles_one_takes_effect() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.settle(205, Kind::Nack, "a/1", "retry_scheduled");
    s.breaks(9);
}

#[test]
fn a_first_try_without_an_answer_explains_both() {
    for result in ["acked", "already_settled"] {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        unanswered(s.ack(200, "a/1"));
        s.settle(300, Kind::Ack, "a/1", result).body.end = "acked".into();
        assert_eq!(s.judge().broken(9), 0, "{result}");
    }
}

#[test]
fn a_forged_receipt_is_refused() {
    let mut s = Story::new();
    let op = s.refused(100, Kind::Ack, "forged", "invalid_receipt", false);
    (op.status, op.args.forged) = (422, true);
    s.holds(14);
    s.ack(200, "forged").args.forged = true;
    s.breaks(14);
}

#[test]
fn a_server_whose_connection_was_cut_may_find_its_own_work_done() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    let op = s.settle(200, Kind::Ack, "a/1", "already_settled");
    op.body.end = "acked".into();
    s.breaks(9);
    s.fault("database_reset", 150, 400);
    let judged = s.judge();
    assert_eq!(judged.broken(9), 0);
    s.receive(3_000, &[("a", 2)]);
    s.breaks(10);
}

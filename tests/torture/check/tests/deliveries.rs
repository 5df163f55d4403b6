//! 6, 7, 10, 11, 13, 15, 16, 18, 22, 23: when and how often a message comes.

use super::story::{Story, unanswered, with};
use crate::history::{Happened, Kind};

#[test]
fn delay_and_expiry_are_kept() {
    let publish = |s: &mut Story| {
        let op = s.publish(0, "a");
        op.args.messages[0].delay_ms = Some(1_000);
        op.args.messages[0].expires_in_ms = Some(5_000);
    };
    let mut s = Story::new();
    publish(&mut s);
    s.receive(1_000, &[("a", 1)]);
    s.holds(6);
    let mut s = Story::new();
    publish(&mut s);
    s.receive(900, &[("a", 1)]);
    s.breaks(6);
    let mut s = Story::new();
    publish(&mut s);
    s.receive(7_100, &[("a", 1)]);
    s.breaks(6);
}

#[test]
fn a_promoted_message_comes_early() {
    let mut s = Story::new();
    s.publish(0, "a").args.messages[0].delay_ms = Some(1_000);
    s.decide(100, Kind::Promote, "a");
    s.receive(200, &[("a", 1)]);
    let judged = s.judge();
    assert_eq!(judged.broken(6), 0);
}

#[test]
fn a_lease_that_ran_out_is_no_overlap() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_100, &[("a", 2)]);
    s.holds(7);
    assert_eq!(s.judge().duplicates["expiration"], 1);
}

#[test]
fn a_second_lease_within_the_first_is_an_overlap() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_080, &[("a", 2)]);
    s.breaks(7);
    s.breaks(22);
}

#[test]
fn an_extend_moves_the_end_both_ways() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(500, Kind::Extend, "a/1", "extended").args.lease_ms = Some(3_000);
    s.receive(3_400, &[("a", 2)]);
    s.breaks(7);
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(500, Kind::Extend, "a/1", "extended").args.lease_ms = Some(1_000);
    s.receive(1_505, &[("a", 2)]);
    s.holds(7);
}

#[test]
fn an_extend_of_which_nobody_knows_may_have_made_it_shorter() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    unanswered(s.settle(500, Kind::Extend, "a/1", "extended"))
        .args
        .lease_ms = Some(1_000);
    s.receive(1_505, &[("a", 2)]);
    s.holds(7);
}

#[test]
fn a_nack_an_operator_and_a_purge_end_a_lease() {
    for end in [Kind::Nack, Kind::DeadLetter, Kind::Purge] {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        match end {
            Kind::Nack => unanswered(s.settle(200, Kind::Nack, "a/1", "")),
            Kind::Purge => s.decide(200, Kind::Purge, ""),
            other => s.decide(200, other, "a"),
        };
        s.receive(1_300, &[("a", 2)]);
        assert_eq!(s.judge().broken(7), 0, "{end:?}");
    }
}

#[test]
fn nothing_is_granted_after_an_ack() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.holds(10);
    s.receive(3_000, &[("a", 2)]);
    s.breaks(10);
}

#[test]
fn a_grant_that_may_have_come_before_the_ack_is_none_after_it() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    let late = s.settle(2_200, Kind::Ack, "a/1", "acked");
    (late.body.late, late.body.superseded) = (true, true);
    let op = s.receive(2_205, &[("a", 2)]);
    op.t_ret = 2_300_000_000;
    assert_eq!(s.judge().broken(10), 0);
}

#[test]
fn a_remembered_completion_is_final_unless_somebody_forces_it() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_200, &[("a", 2)]);
    s.refused(2_300, Kind::Ack, "a/1", "lease_superseded", true);
    s.holds(11);
    s.receive(4_300, &[("a", 3)]);
    s.breaks(11);
    s.decide(4_100, Kind::Redrive, "a").args.force = true;
    assert_eq!(s.judge().broken(11), 0);
}

#[test]
fn a_lost_answer_costs_one_attempt() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.lost_receive(100);
    s.receive(2_200, &[("a", 2)]);
    s.holds(13);
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(50, &[("a", 1)]);
    s.lost_receive(2_100);
    s.receive(4_200, &[("a", 3)]);
    s.holds(13);
    assert_eq!(s.judge().duplicates["lost answer"], 1);
}

#[test]
fn a_lost_answer_costs_no_two_attempts() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(50, &[("a", 1)]);
    s.lost_receive(2_100);
    let op = s.receive(4_200, &[("a", 4)]);
    op.body.handed[0].max_attempts = 9;
    s.breaks(13);
}

#[test]
fn attempts_grow_by_one_and_not_by_a_release() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(200, Kind::Nack, "a/1", "retry_scheduled");
    s.receive(1_300, &[("a", 2)]);
    s.settle(1_400, Kind::Release, "a/2", "released");
    let op = s.receive(1_500, &[("a", 2)]);
    op.body.handed[0].receipt.0 += 1;
    s.holds(15);
}

#[test]
fn attempts_neither_fall_nor_jump_nor_stay() {
    for (release, next) in [(true, 1), (true, 3), (false, 2)] {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.settle(200, Kind::Nack, "a/1", "retry_scheduled");
        s.receive(1_300, &[("a", 2)]);
        if release {
            s.settle(1_400, Kind::Release, "a/2", "released");
        }
        let op = s.receive(3_500, &[("a", next)]);
        op.body.handed[0].receipt.0 += 1;
        s.breaks(15);
    }
}

#[test]
fn no_attempt_is_above_the_limit() {
    let mut s = Story::new();
    s.publish(0, "a").args.messages[0].max_attempts = Some(1);
    s.lost_receive(1);
    s.receive(2_100, &[("a", 2)]);
    s.breaks(15);
}

#[test]
fn a_redrive_begins_anew_and_only_a_redrive_does() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(200, Kind::Nack, "a/1", "dead_lettered")
        .args
        .permanent = true;
    s.decide(300, Kind::Redrive, "a");
    let op = s.receive(400, &[("a", 1)]);
    op.body.handed[0].redrives = 1;
    op.body.handed[0].receipt.0 += 1;
    s.holds(15);
    assert_eq!(s.judge().duplicates["redrive"], 1);
}

#[test]
fn the_last_nack_is_the_end() {
    let story = |result: &str| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]).body.handed[0].max_attempts = 1;
        s.settle(200, Kind::Nack, "a/1", result);
        s
    };
    story("dead_lettered").holds(16);
    story("retry_scheduled").breaks(16);
    let mut s = story("dead_lettered");
    s.receive(3_000, &[("a", 2)]).body.handed[0].max_attempts = 2;
    s.breaks(22);
}

#[test]
fn too_many_expirations_are_the_end() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_200, &[("a", 2)]);
    s.holds(16);
    s.receive(4_300, &[("a", 3)]);
    s.breaks(16);
}

#[test]
fn a_lease_that_is_over_is_not_listed_as_one() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.listing(4_000, 0, &[("a", "leased")]);
    s.holds(16);
    s.listing(4_200, 1, &[("a", "leased")]);
    s.breaks(16);
}

#[test]
fn a_dead_letter_says_why() {
    let story = |reason: &str| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.settle(200, Kind::Nack, "a/1", "dead_lettered")
            .args
            .permanent = true;
        let op = s.op(300, Kind::Get);
        op.body.listed = vec![super::story::listed("a", "dead")];
        op.body.listed[0].reason = reason.into();
        s
    };
    story("permanent_failure").holds(16);
    story("lease_expired").breaks(16);
    story("").breaks(16);
}

#[test]
fn a_backoff_is_waited_for() {
    let story = |next| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.settle(200, Kind::Nack, "a/1", "retry_scheduled");
        s.receive(next, &[("a", 2)]);
        s
    };
    story(690).holds(18);
    story(680).breaks(18);
}

#[test]
fn a_nack_with_a_delay_waits_for_that() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    with(s.settle(200, Kind::Nack, "a/1", "retry_scheduled"), |a| {
        a.delay_ms = Some(3_000);
    });
    s.receive(3_100, &[("a", 2)]);
    s.breaks(18);
}

#[test]
fn what_is_ready_does_not_wait_while_somebody_asks() {
    let story = |empty: u64| {
        let mut s = Story::new();
        s.event(1_000, Happened::Healed).replica = None;
        s.publish(2_000, "a");
        s.receive(empty, &[]);
        s.receive(30_000, &[("a", 1)]);
        s
    };
    story(10_000).holds(23);
    story(20_000).breaks(23);
    let mut s = story(20_000);
    s.lost_receive(15_000);
    assert_eq!(s.judge().broken(23), 0, "it may have been with that one");
}

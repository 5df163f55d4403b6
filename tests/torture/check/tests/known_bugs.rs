//! The faults of the table in [`crate::check`], each as the history that ordinary load would leave.

use super::story::{Story, entry, handed, unanswered};
use crate::history::{Counts, Happened, Kind, Totals};

#[test]
fn an_ack_that_ignores_the_fence() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_200, &[("a", 2)]);
    s.ack(2_300, "a/1");
    s.breaks(8);
}

#[test]
fn a_commit_that_was_not_synced() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(10, "b");
    s.receive(100, &[("b", 1)]);
    s.ack(200, "b/1");
    s.fault("power_cut", 300, 600);
    s.receive(3_000, &[("b", 1)]).body.handed[0].receipt.0 += 1;
    s.listing(9_000, 0, &[]);
    s.breaks(1);
    s.breaks(10);
    s.breaks(15);
}

#[test]
fn a_claim_that_is_evaluated_twice() {
    let mut s = Story::new();
    for id in ["a", "b", "c"] {
        s.publish(0, id);
    }
    s.receive(100, &[("a", 1), ("b", 1), ("c", 1)]).args.max = Some(2);
    s.breaks(12);
}

#[test]
fn dedupe_by_select_then_insert() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    let op = s.publish_as(1, "b", "r", false);
    op.args.messages[0] = entry("a");
    op.args.messages[0].request_id = "r".into();
    s.breaks(4);
}

#[test]
fn a_dead_letter_that_moves_in_two_transactions() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(200, Kind::Nack, "a/1", "dead_lettered")
        .args
        .permanent = true;
    let totals = Totals {
        accepted: 1,
        delivered: 1,
        ..Totals::default()
    };
    s.stats(205, Counts::default(), totals);
    s.listing(9_000, 0, &[]);
    s.breaks(20);
    s.breaks(1);
}

#[test]
fn a_release_that_lowers_the_attempt() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(200, Kind::Nack, "a/1", "retry_scheduled");
    s.receive(1_300, &[("a", 2)]);
    s.settle(1_400, Kind::Release, "a/2", "released");
    s.receive(1_500, &[("a", 1)]).body.handed[0].receipt.0 += 1;
    s.breaks(15);
}

#[test]
fn a_counter_outside_the_transaction() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.fault("kill", 20, 500);
    s.stats(600, Counts::default(), Totals::default());
    s.breaks(21);
}

#[test]
fn an_expiry_that_is_judged_by_another_clock() {
    let mut s = Story::new();
    s.fault("clock_ahead", 0, 9_000);
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(200, &[("a", 2)]);
    s.breaks(7);
    s.breaks(28);
}

#[test]
fn a_listener_that_closes_before_readiness_flips() {
    let mut s = Story::new();
    s.event(1_000, Happened::Termed);
    s.event(3_000, Happened::Exited).exit = Some(0);
    unanswered(s.publish(1_300, "a")).code = "refused".into();
    s.breaks(27);
}

#[test]
fn a_commit_that_is_run_again_blindly() {
    let mut s = Story::new();
    s.publish(0, "a");
    let op = s.receive(100, &[("a", 1)]);
    let mut twin = handed(100, "twin", 1);
    twin.sha = entry("a").sha;
    twin.len = 1;
    op.body.handed.push(twin);
    let totals = Totals {
        accepted: 2,
        delivered: 2,
        ..Totals::default()
    };
    let counts = Counts {
        leased: 2,
        ..Counts::default()
    };
    s.stats(200, counts, totals);
    s.breaks(3);
    s.breaks(21);
}

#[test]
fn a_receive_that_is_run_again_blindly() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(0, "b");
    s.receive(100, &[("a", 1)]);
    s.receive(2_500, &[("b", 2)]);
    s.breaks(15);
}

#[test]
fn a_request_id_that_is_free_from_the_ack_on() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    let op = s.publish_as(300, "b", "r", false);
    op.args.messages[0].sha = entry("a").sha;
    s.breaks(4);
}

#[test]
fn a_late_ack_that_is_taken_from_the_present_holder() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.receive(2_200, &[("a", 2)]);
    let op = s.ack(2_300, "a/1");
    (op.body.late, op.body.superseded) = (true, true);
    s.settle(2_400, Kind::Ack, "a/2", "already_settled")
        .body
        .end = "acked".into();
    assert_eq!(
        s.judge().broken(8),
        2,
        "the one that took, and the one that it was taken from"
    );
}

#[test]
fn a_receive_that_is_committed_asynchronously() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.fault("postgres_kill", 150, 900);
    s.receive(1_000, &[("a", 1)]).body.handed[0].receipt.0 += 1;
    s.breaks(7);
    s.breaks(15);
    s.breaks(22);
}

#[test]
fn duplicates_that_share_one_answer() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    s.publish_as(1, "a", "r", false);
    s.breaks(4);
    let mut s = Story::new();
    s.publish_as(0, "a", "r", true);
    s.publish_as(1, "a", "r", true);
    s.breaks(4);
}

#[test]
fn a_purge_through_a_stale_cache() {
    let mut s = Story::new();
    s.decide(0, Kind::Purge, "").body.moved = Some(0);
    s.publish(100, "a");
    s.listing(9_000, 0, &[]);
    s.breaks(1);
}

#[test]
fn a_stale_cache_that_a_later_purge_hides() {
    let story = |looks: bool, took| {
        let mut s = Story::new();
        s.decide(0, Kind::Purge, "").body.moved = Some(0);
        let totals = |accepted, purged| Totals {
            accepted,
            purged,
            ..Totals::default()
        };
        s.publish(100, "a");
        if looks {
            s.stats(50, Counts::default(), totals(0, 0));
            s.stats(200, Counts::default(), totals(1, 1));
        }
        s.decide(300, Kind::Purge, "").body.moved = Some(took);
        s
    };
    story(true, 1).breaks(21);
    story(false, 0).breaks(21);
    assert_eq!(story(false, 1).judge().broken(21), 0);
}

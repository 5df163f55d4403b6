//! 17, 19, 20, 21: places and counts.

use super::story::Story;
use crate::history::{Counts, Kind, Totals};

fn gauges(ready: i64, leased: i64, dead: i64) -> Counts {
    Counts {
        ready,
        leased,
        dead,
        ..Counts::default()
    }
}

fn totals(accepted: i64, delivered: i64, acked: i64) -> Totals {
    Totals {
        accepted,
        acked,
        delivered,
        ..Totals::default()
    }
}

#[test]
fn one_message_is_in_one_place() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.listing(9_000, 0, &[("a", "ready")]);
    s.holds(17);
    s.listing(9_000, 1, &[("a", "ready"), ("a", "dead")]);
    s.breaks(17);
}

#[test]
fn the_clock_may_move_a_message_between_two_pages() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.listing(9_000, 0, &[("a", "delayed"), ("a", "ready")]);
    s.holds(17);
}

#[test]
fn what_was_acked_is_in_no_place() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.listing(9_000, 0, &[("a", "ready")]);
    s.breaks(17);
}

#[test]
fn what_was_purged_does_not_come_back() {
    let story = |published, received| {
        let mut s = Story::new();
        s.publish(published, "a");
        s.decide(200, Kind::Purge, "").body.moved = Some(1);
        s.receive(received, &[("a", 1)]);
        s
    };
    story(0, 300).breaks(17);
    story(205, 300).holds(2);
    assert_eq!(
        story(205, 300).judge().broken(17),
        0,
        "at once, either order is right"
    );
}

#[test]
fn a_purge_takes_what_waited() {
    let story = |took| {
        let mut s = Story::new();
        s.decide(0, Kind::Purge, "").body.moved = Some(0);
        for (at, id) in [(20, "a"), (40, "b"), (60, "c")] {
            s.publish(at, id);
        }
        s.receive(80, &[("a", 1)]);
        s.ack(100, "a/1");
        s.decide(200, Kind::Purge, "").body.moved = Some(took);
        s
    };
    story(2).holds(21);
    story(3).holds(21);
    story(1).breaks(21);
    let mut s = story(1);
    s.lost_receive(90);
    assert_eq!(s.judge().broken(21), 0, "it may have got one that died");
    let mut s = story(1);
    s.decide(195, Kind::Purge, "").body.moved = Some(1);
    assert_eq!(s.judge().broken(21), 0, "another one may have taken it");
}

#[test]
fn a_redrive_of_at_most_five_moves_five() {
    let story = |moved| {
        let mut s = Story::new();
        for at in [100, 200] {
            let op = s.decide(at, Kind::RedriveMany, "");
            (op.args.max, op.args.request_id) = (Some(5), "r".into());
            (op.body.redrive_id, op.body.moved) = ("rdr_1".into(), Some(0));
        }
        let op = s.op(300, Kind::RedriveState);
        (op.body.redrive_id, op.body.moved) = ("rdr_1".into(), Some(moved));
        s
    };
    story(5).holds(19);
    story(6).breaks(19);
}

#[test]
fn a_repeated_call_is_the_same_redrive() {
    let mut s = Story::new();
    for (at, redrive) in [(100, "rdr_1"), (200, "rdr_2")] {
        let op = s.decide(at, Kind::RedriveMany, "");
        op.args.request_id = "r".into();
        op.body.redrive_id = redrive.into();
    }
    s.breaks(19);
}

#[test]
fn nobody_redrives_but_who_asked() {
    let mut s = Story::new();
    s.publish(0, "a");
    for at in [100, 200] {
        s.decide(at, Kind::Redrive, "a").args.request_id = "one call".into();
    }
    s.receive(300, &[("a", 1)]).body.handed[0].redrives = 1;
    s.holds(19);
    let mut s = Story::new();
    s.publish(0, "a");
    s.decide(100, Kind::Redrive, "a");
    s.receive(300, &[("a", 1)]).body.handed[0].redrives = 2;
    s.breaks(19);
}

#[test]
fn what_came_is_accounted_for() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.stats(100, gauges(1, 0, 0), totals(1, 0, 0));
    s.holds(20);
    s.stats(200, gauges(0, 0, 0), totals(1, 0, 0));
    s.breaks(20);
}

#[test]
fn totals_are_between_what_was_answered_and_what_was_asked() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(95, "b");
    s.stats(100, gauges(1, 0, 0), totals(1, 0, 0));
    s.stats(100, gauges(2, 0, 0), totals(2, 0, 0));
    s.holds(21);
    let mut s = Story::new();
    s.publish(0, "a");
    s.stats(100, gauges(0, 0, 0), totals(0, 0, 0));
    s.breaks(21);
}

#[test]
fn totals_do_not_count_what_nobody_did() {
    let story = |t: Totals| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.receive(20, &[("a", 1)]);
        s.stats(100, gauges(0, 1 - t.acked, t.accepted - 1), t);
        s
    };
    story(totals(1, 1, 0)).holds(21);
    story(totals(2, 1, 0)).breaks(21);
    story(totals(1, 2, 0)).breaks(21);
    story(totals(1, 1, 1)).breaks(21);
}

#[test]
fn totals_never_fall() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.lost_receive(10);
    s.stats(100, gauges(1, 0, 0), totals(1, 3, 0));
    s.stats(200, gauges(1, 0, 0), totals(1, 2, 0));
    s.breaks(21);
}

#[test]
fn counts_are_what_the_listings_hold() {
    let story = |counts: Counts| {
        let mut s = Story::new();
        s.publish(0, "a");
        s.listing(9_000, 0, &[("a", "dead")]);
        let total = counts.dead + counts.ready;
        let op = s.stats(9_100, counts, totals(total, 0, 0));
        op.op = Kind::Recount;
        s
    };
    story(gauges(0, 0, 1)).holds(21);
    let judged = story(gauges(0, 0, 2)).judge();
    assert!(judged.broken(21) > 0);
    assert!(story(gauges(1, 0, 1)).judge().broken(21) > 0);
}

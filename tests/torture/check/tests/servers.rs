//! 24 to 29: processes, disks, clocks, answers.

use super::story::{Story, unanswered};
use crate::check::verdict::Verdict;
use crate::history::{Class, Happened, Kind};

#[test]
fn a_power_cut_loses_nothing_that_was_answered() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.fault("power_cut", 100, 500);
    s.listing(9_000, 0, &[("a", "dead")]);
    s.holds(24);
    let mut s = Story::new();
    s.publish(0, "a");
    s.fault("power_cut", 100, 500);
    s.listing(9_000, 0, &[]);
    s.breaks(24);
}

#[test]
fn nothing_is_answered_ok_after_a_failed_sync() {
    let story = |published| {
        let mut s = Story::new();
        s.fault("fsync_error", 100, 1_000);
        s.event(2_000, Happened::Started);
        s.event(2_100, Happened::Ready);
        s.publish(published, "a");
        s
    };
    story(2_200).holds(25);
    story(200).breaks(25);
}

#[test]
fn a_full_disk_is_got_over() {
    let mut s = Story::new();
    s.fault("disk_full", 100, 1_000);
    s.publish(2_000, "a");
    s.holds(25);
    let mut s = Story::new();
    s.fault("disk_full", 100, 1_000);
    s.breaks(25);
}

#[test]
fn a_killed_server_is_back_soon() {
    let story = |ready| {
        let mut s = Story::new();
        s.event(100, Happened::Killed);
        s.event(110, Happened::Exited);
        s.event(200, Happened::Started);
        s.event(ready, Happened::Ready);
        s
    };
    story(5_200).holds(26);
    story(5_300).breaks(26);
}

fn stopping(exit: i32, at: u64) -> Story {
    let mut s = Story::new();
    s.event(1_000, Happened::Termed);
    s.event(at, Happened::Exited).exit = Some(exit);
    s
}

#[test]
fn a_server_stops_in_order() {
    let mut s = stopping(0, 3_000);
    s.receive(900, &[]).t_ret = 2_000_000_000;
    let op = s.op(1_150, Kind::Readyz);
    (op.status, op.class) = (503, Class::Fail);
    let op = unanswered(s.publish(2_500, "late"));
    op.code = "refused".into();
    s.holds(27);
}

#[test]
fn a_server_that_does_not_stop_in_order_breaks_the_promise() {
    stopping(1, 3_000).breaks(27);
    stopping(0, 8_000).breaks(27);
    let mut s = stopping(0, 3_000);
    s.op(1_150, Kind::Readyz);
    s.breaks(27);
    let mut s = stopping(0, 3_000);
    s.receive(900, &[]).t_ret = 2_800_000_000;
    s.breaks(27);
    let mut s = stopping(0, 3_000);
    unanswered(s.publish(1_300, "a"));
    s.breaks(27);
}

#[test]
fn another_fault_at_the_same_time_is_no_fault_of_the_stop() {
    let mut s = stopping(0, 3_000);
    unanswered(s.publish(1_300, "a"));
    s.fault("proxy_reset", 900, 1_400);
    assert_eq!(s.judge().broken(27), 0);
}

#[test]
fn wrong_clocks_change_nothing() {
    let story = |next| {
        let mut s = Story::new();
        s.fault("clock_ahead", 0, 9_000);
        s.publish(0, "a");
        s.receive(100, &[("a", 1)]);
        s.receive(next, &[("a", 2)]);
        s
    };
    story(2_200).holds(28);
    story(1_000).breaks(28);
}

#[test]
fn a_5xx_needs_a_fault() {
    let mut s = Story::new();
    s.fault("kill", 5_000, 6_000);
    let op = unanswered(s.publish(15_000, "a"));
    (op.status, op.code) = (503, "store_unavailable".into());
    s.holds(29);
    let op = unanswered(s.publish(17_000, "b"));
    (op.status, op.code) = (500, "internal".into());
    s.breaks(29);
}

#[test]
fn misshapen_answers_panics_and_leaks_are_told() {
    let mut s = Story::new();
    let op = s.publish(0, "a");
    (op.status, op.class, op.body.misshapen) = (404, Class::Info, true);
    s.breaks(29);
    for kind in [Happened::Panicked, Happened::Leaked] {
        let mut s = Story::new();
        s.event(0, kind);
        s.breaks(29);
    }
    let mut s = Story::new();
    s.event(0, Happened::LogRead);
    s.holds(29);
}

#[test]
fn what_did_not_happen_is_not_covered() {
    let judged = Story::new().judge();
    for (n, verdict) in (1..).zip(&judged.verdicts) {
        assert!(
            matches!(verdict, Verdict::NotCovered(_)),
            "{n}: {verdict:?}"
        );
    }
    assert!(judged.holds());
}

//! 1 to 5, 12: what was published, what became of it, what a receive returns.

use super::story::{Story, entry, handed, listed, told, unanswered};
use crate::history::{Class, Kind};

#[test]
fn an_acked_and_a_listed_message_are_not_lost() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(0, "b");
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.listing(9_000, 0, &[("b", "dead")]);
    s.holds(1);
}

#[test]
fn an_ack_of_which_nobody_knows_may_have_ended_it() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    unanswered(s.ack(200, "a/1"));
    s.listing(9_000, 0, &[]);
    s.holds(1);
}

#[test]
fn a_message_that_no_listing_has_is_lost() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.listing(9_000, 0, &[]);
    s.breaks(1);
}

#[test]
fn a_message_that_one_server_does_not_list_is_lost() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.listing(9_000, 0, &[("a", "dead")]);
    s.listing(9_000, 1, &[]);
    s.breaks(1);
}

#[test]
fn what_was_published_after_the_listing_is_not_in_it() {
    let mut s = Story::new();
    s.listing(9_000, 0, &[]);
    s.publish(9_005, "a");
    s.publish(9_900, "b");
    s.holds(1);
}

#[test]
fn an_ack_that_was_settled_already_by_nobody_hides_no_loss() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]);
    s.settle(5_000, Kind::Ack, "a/1", "already_settled");
    s.listing(9_000, 0, &[]);
    s.breaks(1);
}

#[test]
fn without_a_whole_listing_nothing_is_said_about_loss() {
    let mut s = Story::new();
    s.publish(0, "a");
    let judged = s.judge();
    assert!(format!("{:?}", judged.of(1)).contains("no complete listing"));
}

#[test]
fn what_comes_is_what_was_published() {
    let mut s = Story::new();
    s.publish(0, "a");
    unanswered(s.publish(0, "b"));
    s.receive(100, &[("a", 1), ("b", 1)]);
    s.holds(2);
}

#[test]
fn another_payload_is_a_ghost() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]).body.handed[0].sha = entry("x").sha;
    s.breaks(2);
}

#[test]
fn a_publish_that_was_refused_never_comes() {
    let mut s = Story::new();
    let op = s.publish(0, "a");
    (op.class, op.status) = (Class::Fail, 429);
    op.body.told.clear();
    s.receive(100, &[("a", 1)]);
    s.breaks(2);
}

#[test]
fn an_id_that_nobody_was_told_of_needs_an_unknown_publish() {
    let mut s = Story::new();
    s.publish(0, "a");
    unanswered(s.publish(0, "b"));
    s.listing(9_000, 0, &[("a", "dead"), ("b", "dead")]);
    s.holds(2);
    s.listing(9_000, 1, &[("a", "dead"), ("b", "dead"), ("c", "dead")]);
    s.breaks(2);
}

#[test]
fn an_unknown_publish_comes_once() {
    let mut s = Story::new();
    unanswered(s.publish(0, "a"));
    s.receive(100, &[("a", 1)]);
    s.holds(3);
}

#[test]
fn an_unknown_publish_that_comes_as_two_messages_breaks_its_promise() {
    let mut s = Story::new();
    unanswered(s.publish(0, "a"));
    s.receive(100, &[("a", 1)]);
    let twin = handed(200, "twin", 1);
    let op = s.receive(200, &[]);
    op.body.handed = vec![twin];
    op.body.handed[0].sha = entry("a").sha;
    op.body.handed[0].len = 1;
    s.breaks(3);
}

#[test]
fn repeats_of_one_request_id_name_one_message() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", true);
    s.publish_as(1, "a", "r", false);
    s.publish_as(500, "a", "r", true);
    s.holds(4);
}

#[test]
fn the_first_of_them_may_be_one_without_an_answer() {
    let mut s = Story::new();
    unanswered(s.publish_as(0, "a", "r", false));
    s.publish_as(50, "a", "r", true);
    s.holds(4);
}

#[test]
fn an_id_is_free_a_window_after_its_message_went() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    let op = s.publish_as(60_300, "b", "r", false);
    op.args.messages[0].sha = entry("a").sha;
    s.holds(4);
}

#[test]
fn an_id_is_not_free_before_that() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.publish_as(60_000, "b", "r", false);
    s.breaks(4);
}

#[test]
fn an_id_is_not_kept_for_ever() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    s.receive(100, &[("a", 1)]);
    s.ack(200, "a/1");
    s.publish_as(181_000, "a", "r", true);
    s.breaks(4);
}

#[test]
fn no_listing_shows_a_twin_under_the_same_id() {
    let mut s = Story::new();
    s.publish_as(0, "a", "r", false);
    unanswered(s.publish_as(5, "a", "r", false));
    let op = s.op(300, Kind::List);
    op.body.listed = vec![listed("twin", "ready")];
    op.body.listed[0].request_id = "r".into();
    s.breaks(4);
}

#[test]
fn one_key_of_a_unique_queue_names_one_message() {
    let publish = |s: &mut Story, at, payload: &str, id: &str, duplicate| {
        let op = s.publish(at, payload);
        op.queue = "unique".into();
        op.args.messages[0].key = "k".into();
        op.body.told[0].id = id.into();
        (op.body.told[0].deduplicated, op.body.told[0].by_key) = (duplicate, duplicate);
    };
    let mut s = Story::new();
    publish(&mut s, 0, "a", "a", false);
    publish(&mut s, 100, "b", "a", true);
    s.holds(4);
    publish(&mut s, 200, "c", "c", false);
    s.breaks(4);
}

#[test]
fn a_batch_answers_for_each_entry() {
    let batch = |s: &mut Story| {
        let op = s.op(0, Kind::PublishBatch);
        op.args.messages = vec![entry("a"), entry("b")];
        op.body.told = vec![told("a"), told("")];
        op.body.told[1].index = 1;
        (op.body.told[1].status, op.body.told[1].effect) = (422, "none".into());
    };
    let mut s = Story::new();
    batch(&mut s);
    s.receive(100, &[("a", 1)]);
    s.holds(5);
    s.receive(200, &[("b", 1)]);
    s.breaks(5);
}

#[test]
fn results_at_the_wrong_place_break_the_promise() {
    let mut s = Story::new();
    let op = s.op(0, Kind::PublishBatch);
    op.args.messages = vec![entry("a")];
    op.body.told = vec![told("a")];
    op.body.told[0].index = 1;
    s.breaks(5);
}

#[test]
fn a_receive_returns_what_was_asked_for() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(0, "b");
    s.receive(100, &[("a", 1), ("b", 1)]).args.max = Some(2);
    s.holds(12);
    let mut s = Story::new();
    s.publish(0, "a");
    s.publish(0, "b");
    s.receive(100, &[("a", 1), ("b", 1)]).args.max = Some(1);
    s.breaks(12);
}

#[test]
fn a_lease_is_as_long_as_was_asked_for() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.receive(100, &[("a", 1)]).args.lease_ms = Some(3_000);
    s.breaks(12);
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let mut s = Story::new();
    s.publish(0, "a");
    s.decide(100, Kind::Pause, "");
    s.receive(200, &[]).body.paused = true;
    s.decide(300, Kind::Resume, "");
    s.receive(305, &[("a", 1)]);
    s.holds(12);
    let mut s = Story::new();
    s.publish(0, "a");
    s.decide(100, Kind::Pause, "");
    s.receive(200, &[("a", 1)]);
    s.breaks(12);
}

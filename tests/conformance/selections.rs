//! §5: what a bulk decision is about: a frozen selection, and nothing else.

use super::redrives::{plan_of_all, refused, some_dead};
use quita_storage::backend::Operation;
use quita_storage::backend::OperationRefused;
use quita_storage::dead_letters::{DeadFilter, SELECTION_LIFE_MS, SelectionId};
use quita_storage::model::{Reason, State};
use quita_storage::redrives::{RedriveListing, RedrivePlan, RedriveState};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{DAY, HOUR, LEASE, SECOND, discard, operator, plan, redrive};
use quita_tests::{Fixture, on_every_store};

/// §5 – a selection counts exactly, and says what is in it.
async fn a_selection_says_what_is_in_it(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_redrives = 1).await;
    let tired = queue.dead_of("503", "timeout").await;
    f.do_act(tired, redrive(false)).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    f.pass(8 * DAY);
    let mut ids = vec![tired];
    for (code, pause) in [("503", 2 * DAY), ("503", 2 * HOUR), ("declined", SECOND)] {
        ids.push(queue.dead_of(code, "e").await);
        f.pass(pause);
    }
    // Done by somebody else, under the same key.
    let key = |p: &mut quita_storage::backend::Publish| p.key = Some("order-1".into());
    queue.create("1", key).await;
    f.ack_with(&queue.take().await, "\"paid\"").await.unwrap();
    ids.push(queue.dead_with(key, "503", "e").await);
    // Done by a worker that an operator took it from.
    let hand = queue.publish_and_take().await;
    f.do_act(hand.id, Act::DeadLetter).await;
    assert!(f.ack(&hand).await.is_err());
    ids.push(hand.id);
    let edit = Operation::Edit {
        queue: queue.uid,
        id: ids[1],
        base: 0,
        payload: "2".into(),
        headers: None,
    };
    f.operate(edit).await;

    let selection = queue.select(DeadFilter::default()).await;
    let figures = &selection.figures;
    assert_eq!(figures.count, 6);
    let reasons = [(Reason::PermanentFailure, 5), (Reason::Operator, 1)];
    assert_eq!(figures.by_reason, reasons);
    let code = |code: &str| Some(code.to_owned());
    let codes = [
        (code("503"), 3),
        (None, 1),
        (code("E1"), 1),
        (code("declined"), 1),
    ];
    assert_eq!(figures.by_error_code, codes);
    assert_eq!(figures.by_age, [3, 1, 1, 1]);
    assert_eq!((figures.edited, figures.over_max_redrives), (1, 1));
    assert_eq!(
        (figures.completion_remembered, figures.outcome_recorded),
        (1, 1)
    );
    let mut sample = selection.sample.clone();
    sample.sort_unstable();
    let mut expected: Vec<i64> = ids.iter().map(|id| id.0).collect();
    expected.sort_unstable();
    assert_eq!(sample, expected);
    assert_eq!(selection.created_at, f.now());
    assert_eq!(selection.expires_at, f.now() + SELECTION_LIFE_MS);
}

/// §5 – the sample shows the oldest and the youngest.
async fn a_selection_shows_the_oldest_and_the_youngest(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut ids = Vec::new();
    for _ in 0..23 {
        ids.push(queue.dead_letter().await.id.0);
        f.pass(1);
    }
    let sample = queue.select(DeadFilter::default()).await.sample;
    assert_eq!(sample, [&ids[..5], &ids[18..]].concat());
}

/// §5 – a message that dies after the selection was answered is never in it, whatever its time.
async fn what_dies_after_a_selection_is_not_in_it(f: &Fixture) {
    let queue = f.plain_queue().await;
    let before = some_dead(queue, 3).await;
    let all = plan_of_all(queue).await;
    // In the same millisecond, and with smaller ids than some that are in it: the time alone cannot tell.
    let after = some_dead(queue, 3).await;
    assert_eq!(all.expected_count, 3);
    let id = f.start(all).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.state, done.moved), (RedriveState::Done, 3));
    assert_eq!(queue.ids(State::Dead).await, after);
    let mut ready = queue.ids(State::Ready).await;
    ready.sort_unstable();
    assert_eq!(ready, before);
}

/// §5 – one that was redriven and died again since is another one.
async fn what_died_again_since_is_not_in_it(f: &Fixture) {
    let queue = f.plain_queue().await;
    let ids = some_dead(queue, 3).await;
    let all = plan_of_all(queue).await;
    f.do_act(ids[1], redrive(false)).await;
    f.nack_permanently(&queue.take().await).await.unwrap();
    let id = f.start(all).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.moved, done.skipped.changed), (2, 1));
    assert_eq!(queue.ids(State::Dead).await, [ids[1]]);
}

/// §5 – what was decided, done or edited since the selection is skipped, and counted.
async fn what_changed_since_a_selection_is_skipped(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 1).await;
    let hand = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    let ids = some_dead(queue, 5).await;
    let all = plan_of_all(queue).await;
    assert_eq!(all.expected_count, 6);
    f.ack(&hand).await.unwrap();
    f.do_act(ids[0], discard()).await;
    let edit = |id, base| Operation::Edit {
        queue: queue.uid,
        id,
        base,
        payload: format!("{}", base + 2).into(),
        headers: None,
    };
    f.operate(edit(ids[1], 0)).await;
    f.do_act(ids[2], discard()).await;
    f.do_act(ids[2], Act::Reopen).await;
    let id = f.start(all).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.moved, done.skipped.total()), (2, 4));
    assert_eq!(done.skipped.changed, 4);
    // An edit of an edited one changes it again.
    let all = plan_of_all(queue).await;
    f.operate(edit(ids[1], 1)).await;
    let id = f.start(all).await;
    let done = f.run_redrive(id).await;
    assert_eq!((done.moved, done.skipped.changed), (1, 1));
}

/// §5 – the filter of the selection holds while more of both kinds die.
async fn a_redrive_keeps_to_its_filter(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut wanted = Vec::new();
    for round in 0..12 {
        let code = if round % 3 == 0 { "declined" } else { "503" };
        let id = queue.dead_of(code, "e").await;
        if code == "503" {
            wanted.push(id);
        }
        f.pass(1);
    }
    let filter = DeadFilter {
        error_code: Some("503".into()),
        ..DeadFilter::default()
    };
    let mut slow = plan(&queue.select(filter).await);
    slow.rate = Some(1.0);
    let id = f.start(slow).await;
    let mut moved = 0;
    while !f.redrive(id).await.state.is_final() {
        f.step().await;
        let now = f.redrive(id).await.moved;
        assert!(now - moved <= 1);
        moved = now;
        if moved == 4 {
            f.pass(10);
        } else {
            f.pass(SECOND);
        }
    }
    assert_eq!(moved, wanted.len() as i64);
    let mut ready = queue.ids(State::Ready).await;
    ready.sort_unstable();
    assert_eq!(ready, wanted);
}

/// §5 – `expected_count` must be the selection's; an unknown or old selection begins nothing.
async fn a_redrive_begins_only_as_expected(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 2).await;
    let good = plan_of_all(queue).await;
    let wrong = RedrivePlan {
        expected_count: 3,
        ..good.clone()
    };
    assert_eq!(
        refused(f, wrong).await,
        OperationRefused::CountMismatch { actual: 2 }
    );
    let unknown = RedrivePlan {
        selection: SelectionId(4_711),
        ..good.clone()
    };
    assert_eq!(
        refused(f, unknown).await,
        OperationRefused::SelectionNotFound
    );
    f.pass(SELECTION_LIFE_MS - 1);
    f.maintain().await;
    f.start(good.clone()).await;
    f.pass(1);
    f.maintain().await;
    assert_eq!(refused(f, good).await, OperationRefused::SelectionExpired);
    assert_eq!(queue.counts().await.ready, 0);
}

/// §5 – a selection that nobody used is forgotten, and its number is not used again.
async fn an_unused_selection_is_forgotten(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 1).await;
    let first = queue.select(DeadFilter::default()).await.id;
    f.pass(SELECTION_LIFE_MS);
    f.maintain().await;
    assert_eq!(f.backend.selection(first).await.unwrap(), None);
    assert!(queue.select(DeadFilter::default()).await.id > first);
}

/// §5 – the same `client_request_id` never begins a second one.
async fn a_repeated_start_begins_one_redrive(f: &Fixture) {
    let queue = f.plain_queue().await;
    some_dead(queue, 2).await;
    let all = plan_of_all(queue).await;
    let call = operator(Some("redrive-1"));
    let operation = Operation::StartRedrive(Box::new(all));
    let first = f.call(&call, operation.clone()).await;
    f.pass(2 * HOUR);
    let again = f.call(&call, operation).await;
    assert_eq!((again.answer, again.repeated), (first.answer, true));
    let listing = RedriveListing {
        limit: 10,
        ..RedriveListing::default()
    };
    assert_eq!(f.backend.redrives(&listing).await.unwrap().len(), 1);
}

on_every_store![
    a_selection_says_what_is_in_it,
    a_selection_shows_the_oldest_and_the_youngest,
    what_dies_after_a_selection_is_not_in_it,
    what_died_again_since_is_not_in_it,
    what_changed_since_a_selection_is_skipped,
    a_redrive_keeps_to_its_filter,
    a_redrive_begins_only_as_expected,
    an_unused_selection_is_forgotten,
    a_repeated_start_begins_one_redrive,
];

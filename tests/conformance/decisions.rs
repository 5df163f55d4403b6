//! §3, §4.5, §5: what an operator makes of one dead letter: another payload, a discard and its undo.

use bytes::Bytes;
use quita_storage::backend::{Answer, MAX_REVISIONS, Operation, OperationRefused, Published};
use quita_storage::dead_letters::DeadFilter;
use quita_storage::model::{MessageId, State};
use quita_storage::rules::operate::Act;
use quita_storage::rules::settle::Refused;
use quita_tests::fixture::{DAY, LEASE, SECOND, TestQueue, discard, operator, redrive, request_id};
use quita_tests::{Fixture, on_every_store};

pub(super) fn edit_item(
    queue: TestQueue<'_>,
    id: MessageId,
    base: i32,
    payload: &str,
) -> Operation {
    Operation::Edit {
        queue: queue.uid,
        id,
        base,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        headers: Some(r#"{"fixed":"yes"}"#.into()),
    }
}

pub(super) async fn edit(queue: TestQueue<'_>, id: MessageId, base: i32, payload: &str) -> Answer {
    queue
        .fixture
        .operate(edit_item(queue, id, base, payload))
        .await
}

async fn undo(queue: TestQueue<'_>, id: MessageId) -> Answer {
    let queue_uid = queue.uid;
    let operation = Operation::UndoEdit {
        queue: queue_uid,
        id,
    };
    queue.fixture.operate(operation).await
}

async fn payload(f: &Fixture, id: MessageId) -> Option<String> {
    let payload = f.message(id).await.unwrap().payload;
    payload.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn edited(id: MessageId, revision: i32, edited: bool) -> Answer {
    Answer::Edited {
        id: id.0,
        revision,
        edited,
    }
}

/// §3 – an edit replaces payload and headers; id, request id, key and what counts as the same body stay.
async fn an_edit_replaces_payload_and_headers_only(f: &Fixture) {
    let queue = f.plain_queue().await;
    let change = |p: &mut quita_storage::backend::Publish| {
        p.request_id = Some(request_id("pub-1"));
        p.key = Some("order-1".into());
        p.headers = Some(r#"{"a":"1"}"#.into());
    };
    let id = queue.dead_with(change, "E", "bad amount").await;
    let before = f.message(id).await.unwrap();
    assert!(before.revisions.is_empty());
    f.pass(SECOND);
    assert_eq!(
        edit(queue, id, 0, r#"{"amount":2}"#).await,
        edited(id, 1, true)
    );
    let after = f.message(id).await.unwrap();
    assert_eq!(&after.payload.unwrap()[..], br#"{"amount":2}"#);
    let message = after.message.unwrap();
    assert_eq!(
        message.envelope.headers.as_deref(),
        Some(r#"{"fixed":"yes"}"#)
    );
    let was = before.message.unwrap();
    assert_eq!(message.envelope.key, was.envelope.key);
    assert_eq!(message.envelope.request_id, was.envelope.request_id);
    assert_eq!(
        (message.life, message.envelope.created_at),
        (was.life, was.envelope.created_at)
    );
    // A repeat of the publish is still a repeat.
    let again = queue.publish_with("1", change).await;
    assert!(
        matches!(&again, Published::Duplicate(d) if d.id == id && d.same_body),
        "{again:?}"
    );

    f.do_act(id, redrive(false)).await;
    let hand = queue.take().await;
    assert_eq!(hand.id, id);
    assert_eq!(&hand.delivery.payload[..], br#"{"amount":2}"#);
    let headers = hand.delivery.message.envelope.headers.clone();
    assert_eq!(headers.as_deref(), Some(r#"{"fixed":"yes"}"#));
}

/// §3 – the original is kept as revision 0; later ones have author, time and reason.
async fn every_revision_is_kept(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let died_at = f.now();
    f.pass(SECOND);
    edit(queue, id, 0, "2").await;
    f.pass(SECOND);
    assert_eq!(edit(queue, id, 1, "3").await, edited(id, 2, true));
    let revisions = f.message(id).await.unwrap().revisions;
    let seen: Vec<(i32, &[u8], &str, bool)> = revisions
        .iter()
        .map(|r| (r.number, &r.payload[..], &*r.actor, r.undo))
        .collect();
    let by = "operator-1";
    assert_eq!(
        seen,
        [
            (0, &b"1"[..], "", false),
            (1, b"2", by, false),
            (2, b"3", by, false)
        ]
    );
    assert_eq!(revisions[0].at, died_at);
    assert_eq!(revisions[2].at, f.now());
    assert_eq!(revisions[2].reason.as_deref(), Some("because"));
    assert_eq!(revisions[0].headers, None);
}

/// §3 – undo goes back to what it was when it died, as a new revision, until it is redriven.
async fn an_edit_can_be_undone_until_redriven(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let not_edited = Answer::Refused(OperationRefused::NotEdited);
    assert_eq!(undo(queue, id).await, not_edited);
    edit(queue, id, 0, "2").await;
    edit(queue, id, 1, "3").await;
    assert_eq!(undo(queue, id).await, edited(id, 3, false));
    assert_eq!(payload(f, id).await.as_deref(), Some("1"));
    assert_eq!(
        f.message(id)
            .await
            .unwrap()
            .message
            .unwrap()
            .envelope
            .headers,
        None
    );
    assert_eq!(undo(queue, id).await, not_edited);

    edit(queue, id, 3, "4").await;
    f.do_act(id, redrive(false)).await;
    assert_eq!(
        undo(queue, id).await,
        Answer::Refused(OperationRefused::NotDead)
    );
    f.nack_permanently(&queue.take().await).await.unwrap();
    // It died with revision 4, which is what an undo goes back to from now on.
    assert_eq!(undo(queue, id).await, not_edited);
    assert_eq!(edit(queue, id, 4, "5").await, edited(id, 5, true));
    assert_eq!(undo(queue, id).await, edited(id, 6, false));
    assert_eq!(payload(f, id).await.as_deref(), Some("4"));
}

/// §3 – an edit on top of another revision than the present one is refused, and so are too many.
async fn edits_do_not_overwrite_each_other(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    edit(queue, id, 0, "2").await;
    let refused = edit(queue, id, 0, "3").await;
    assert_eq!(refused, Answer::Refused(OperationRefused::RevisionConflict));
    assert_eq!(payload(f, id).await.as_deref(), Some("2"));
    for base in 1..MAX_REVISIONS {
        let body = format!("{}", base + 10);
        assert_eq!(
            edit(queue, id, base, &body).await,
            edited(id, base + 1, true)
        );
    }
    let refused = edit(queue, id, MAX_REVISIONS, "9").await;
    assert_eq!(refused, Answer::Refused(OperationRefused::RevisionLimit));
    // All of them can be taken back all the same.
    assert_eq!(undo(queue, id).await, edited(id, MAX_REVISIONS + 1, false));
    assert_eq!(payload(f, id).await.as_deref(), Some("1"));
}

/// §3 – an edit to what is there already is none: no revision, no audit row, and the worker's late ack still counts.
async fn an_edit_that_changes_nothing_is_none(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 1).await;
    let hand = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    let same = async |base, payload: &str, headers: Option<&str>| {
        let operation = Operation::Edit {
            queue: queue.uid,
            id: hand.id,
            base,
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            headers: headers.map(Into::into),
        };
        f.operate(operation).await
    };
    assert_eq!(same(0, "1", None).await, edited(hand.id, 0, false));
    let detail = f.message(hand.id).await.unwrap();
    assert_eq!((detail.revisions.len(), detail.decisions.len()), (0, 0));
    assert_eq!(same(0, "2", None).await, edited(hand.id, 1, true));
    assert_eq!(same(1, "2", None).await, edited(hand.id, 1, true));
    assert_eq!(
        same(0, "2", None).await,
        Answer::Refused(OperationRefused::RevisionConflict)
    );
    undo(queue, hand.id).await;
    assert!(f.ack(&hand).await.is_ok());
}

/// §4.5 – a redrive that is forced over a completion keeps the evidence in its audit row.
async fn a_forced_redrive_keeps_the_evidence(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.publish_and_take().await;
    f.do_act(hand.id, Act::DeadLetter).await;
    let taken = f.ack_with(&hand, r#"{"charge":"ch_1"}"#).await;
    assert_eq!(taken, Err(Refused::TakenByOperator { remembered: true }));
    f.do_act(hand.id, redrive(true)).await;
    let decisions = f.message(hand.id).await.unwrap().decisions;
    let before = decisions.last().unwrap().before.clone().unwrap();
    assert!(
        before.contains(r#""completion":{"delivery":1,"outcome":{"charge":"ch_1"}}"#),
        "{before}"
    );
}

/// §3 – only dead letters can be edited, in their own queue.
async fn only_dead_letters_can_be_edited(f: &Fixture) {
    let queue = f.plain_queue().await;
    let other = f.queue("other", |_| {}).await;
    let live = queue.publish("1").await;
    let refused = edit(queue, live, 0, "2").await;
    assert_eq!(refused, Answer::Refused(OperationRefused::NotDead));
    f.ack(&queue.take().await).await.unwrap();
    let dead = queue.dead_letter().await.id;
    let not_found = Answer::Refused(OperationRefused::MessageNotFound);
    assert_eq!(edit(other, dead, 0, "2").await, not_found);
    assert_eq!(edit(queue, live, 0, "2").await, not_found);
    f.do_act(dead, discard()).await;
    assert_eq!(edit(queue, dead, 0, "2").await, not_found);
}

/// §4.5 row 6 – an edited dead letter is in the operator's hands; once undone it is not.
async fn a_worker_of_an_edited_dead_letter_is_told_so(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_lease_expirations = 1).await;
    let hand = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    edit(queue, hand.id, 0, "2").await;
    undo(queue, hand.id).await;
    let other = queue.publish_and_take().await;
    f.pass_and_sweep(LEASE).await;
    edit(queue, other.id, 0, "2").await;
    assert!(f.ack(&hand).await.is_ok());
    let taken = f.ack_with(&other, "\"done\"").await;
    assert_eq!(taken, Err(Refused::TakenByOperator { remembered: true }));
    let completion = f
        .message(other.id)
        .await
        .unwrap()
        .message
        .unwrap()
        .completion;
    assert_eq!(completion.unwrap().outcome.as_deref(), Some("\"done\""));
}

/// §5 – a repeated edit with the same request id gives the first answer and makes no second revision.
async fn a_repeated_edit_makes_one_revision(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let call = operator(Some("edit-1"));
    for repeated in [false, true] {
        let done = f.call(&call, edit_item(queue, id, 0, "2")).await;
        assert_eq!(
            (done.answer, done.repeated),
            (edited(id, 1, true), repeated)
        );
    }
    assert_eq!(f.message(id).await.unwrap().revisions.len(), 2);
}

/// §3 – revisions go with the payload: when the message is done, and when a discard is final.
async fn revisions_go_with_the_payload(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    edit(queue, id, 0, "2").await;
    f.do_act(id, redrive(false)).await;
    assert_eq!(f.message(id).await.unwrap().revisions.len(), 2);
    f.ack(&queue.take().await).await.unwrap();
    f.maintain().await;
    assert!(f.message(id).await.unwrap().revisions.is_empty());

    let id = queue.dead_letter().await.id;
    edit(queue, id, 0, "2").await;
    f.do_act(id, discard()).await;
    assert_eq!(f.message(id).await.unwrap().revisions.len(), 2);
    f.pass(7 * DAY);
    f.maintain().await;
    let detail = f.message(id).await.unwrap();
    assert_eq!((detail.payload, detail.revisions.len()), (None, 0));
}

/// §3 discarded → dead by re-open while the payload is kept; counts reopened.
async fn a_discard_can_be_taken_back(f: &Fixture) {
    let queue = f.plain_queue().await;
    let hand = queue.dead_letter().await;
    let id = hand.id;
    let before = f.message(id).await.unwrap();
    f.pass(SECOND);
    f.do_act(id, discard()).await;
    f.pass(7 * DAY - 1);
    f.maintain().await;
    f.do_act(id, Act::Reopen).await;
    let after = f.message(id).await.unwrap();
    assert_eq!(after.message, before.message);
    assert_eq!((after.payload, after.ended), (before.payload, None));
    let counts = queue.counts().await;
    assert_eq!((counts.dead, counts.discarded, counts.reopened), (1, 1, 1));
    assert_eq!(queue.dead(DeadFilter::default()).await, [id]);
    f.do_act(id, redrive(false)).await;
    assert_eq!(queue.take().await.id, id);
    for act in [Act::Reopen, discard()] {
        let refused = f.refuse_act(id, act.clone()).await;
        let expected = if act == Act::Reopen {
            OperationRefused::NotDiscarded
        } else {
            OperationRefused::NotDead
        };
        assert_eq!(refused, expected);
    }
}

/// §3 – only a discard can be taken back, and only while its payload is kept; envelope and history stay longer.
async fn a_discard_is_final_once_its_payload_is_gone(f: &Fixture) {
    let queue = f.plain_queue().await;
    let change = |p: &mut quita_storage::backend::Publish| p.key = Some("order-1".into());
    let id = queue.dead_with(change, "E7", "no such account").await;
    f.do_act(id, discard()).await;
    f.pass(7 * DAY);
    f.maintain().await;
    assert_eq!(
        f.refuse_act(id, Act::Reopen).await,
        OperationRefused::PayloadGone
    );
    f.pass(300 * DAY);
    f.maintain().await;
    let detail = f.message(id).await.unwrap();
    assert_eq!(detail.key.as_deref(), Some("order-1"));
    assert_eq!(detail.deliveries[0].failure.code.as_deref(), Some("E7"));
    let last = detail.decisions.last().unwrap();
    assert_eq!(
        (&*last.action, last.reason.as_deref()),
        ("discard", Some("because"))
    );
    assert!(last.after.as_deref().unwrap().contains("written_off"));
    f.pass(101 * DAY);
    f.maintain().await;
    assert_eq!(f.message(id).await.map(|d| d.decisions.len()), None);
}

/// §4.3, §4.4 – a discard does not free the request id and the key at once, and a re-opened message has them again.
async fn ids_and_keys_come_back_with_the_message(f: &Fixture) {
    let queue = f
        .queue("orders", |p| {
            p.unique_key = true;
            p.key_retention_ms = Some(DAY);
            p.dedupe_window_ms = 60 * SECOND;
        })
        .await;
    let change = |p: &mut quita_storage::backend::Publish| {
        p.request_id = Some(request_id("pub-1"));
        p.key = Some("order-1".into());
    };
    let is_duplicate = async |of: MessageId| {
        let again = queue.publish_with("1", change).await;
        assert!(
            matches!(&again, Published::Duplicate(d) if d.id == of),
            "{again:?}"
        );
    };
    let id = queue.dead_with(change, "E", "e").await;
    f.do_act(id, discard()).await;
    is_duplicate(id).await;
    // Long after both are free, it comes back, and takes them again.
    f.pass(6 * DAY);
    f.maintain().await;
    f.do_act(id, Act::Reopen).await;
    f.pass(6 * DAY);
    f.maintain().await;
    is_duplicate(id).await;
    f.do_act(id, discard()).await;
    f.pass(6 * DAY);
    f.maintain().await;
    let second = queue.create("1", change).await;
    assert_eq!(
        f.refuse_act(id, Act::Reopen).await,
        OperationRefused::KeyTaken
    );
    assert_eq!(queue.counts().await.reopened, 1);
    is_duplicate(second).await;
}

/// §3 – a re-open of a message of a deleted queue finds nothing.
async fn a_deleted_queue_gets_nothing_back(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    f.do_act(id, discard()).await;
    queue.delete(true).await;
    assert_eq!(
        f.refuse_act(id, Act::Reopen).await,
        OperationRefused::MessageNotFound
    );
}

/// §3 – purge leaves discarded messages alone; one that is re-opened then is a dead letter of the queue as it is now.
async fn a_message_can_be_reopened_after_a_purge(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    f.do_act(id, discard()).await;
    queue.purge(true).await;
    f.do_act(id, Act::Reopen).await;
    assert_eq!(queue.dead(DeadFilter::default()).await, [id]);
    assert_eq!(f.state(id).await, State::Dead);
}

on_every_store![
    an_edit_replaces_payload_and_headers_only,
    every_revision_is_kept,
    an_edit_can_be_undone_until_redriven,
    edits_do_not_overwrite_each_other,
    an_edit_that_changes_nothing_is_none,
    a_forced_redrive_keeps_the_evidence,
    only_dead_letters_can_be_edited,
    a_worker_of_an_edited_dead_letter_is_told_so,
    a_repeated_edit_makes_one_revision,
    revisions_go_with_the_payload,
    a_discard_can_be_taken_back,
    a_discard_is_final_once_its_payload_is_gone,
    ids_and_keys_come_back_with_the_message,
    a_deleted_queue_gets_nothing_back,
    a_message_can_be_reopened_after_a_purge,
];

//! §5 queues: create, replace, delete, versions.

use quita_storage::backend::{Answer, Expect, Operation, OperationRefused};
use quita_storage::model::{Backoff, Jitter, LateAck, Policy, QueueUid, State};
use quita_tests::fixture::{DAY, HOUR, discard, plain_policy};
use quita_tests::{Fixture, on_every_store};

fn uid(answer: &Answer) -> (QueueUid, bool) {
    match answer {
        Answer::Queue { uid, created } => (QueueUid(*uid), *created),
        other => panic!("{other:?}"),
    }
}

/// §5 – a queue is found by its name, exactly as written, and by its number.
async fn a_queue_is_found_by_its_exact_name(f: &Fixture) {
    let queue = f.queue("Orders.eu-1", |p| p.max_attempts = 7).await;
    let found = f.backend.queue("Orders.eu-1").await.unwrap().unwrap();
    assert_eq!(found.uid, queue.uid);
    assert_eq!(&*found.name, "Orders.eu-1");
    assert_eq!(found.policy.max_attempts, 7);
    assert_eq!((found.created_at, found.paused), (f.now(), false));
    for other in ["orders.eu-1", "Orders.eu", "Orders.eu-1 ", ""] {
        assert!(f.backend.queue(other).await.unwrap().is_none(), "{other:?}");
    }
    let (by_uid, deleted) = f.backend.queue_by_uid(queue.uid).await.unwrap().unwrap();
    assert_eq!((by_uid, deleted), (found, false));
    let unknown = f.backend.queue_by_uid(QueueUid(4_711)).await.unwrap();
    assert!(unknown.is_none());
}

/// §5 – names that differ in case are two queues.
async fn names_that_differ_in_case_are_two_queues(f: &Fixture) {
    let upper = f.queue("Jobs", |_| {}).await;
    let lower = f.queue("jobs", |_| {}).await;
    assert_ne!(upper.uid, lower.uid);
    upper.publish("1").await;
    assert_eq!(lower.counts().await.accepted, 0);
}

/// §6 – the whole policy comes back as it was put.
async fn a_policy_comes_back_as_it_was_put(f: &Fixture) {
    let policy = Policy {
        visibility_timeout_ms: 1_001,
        max_attempts: 1_000,
        max_lease_expirations: 999,
        max_releases: Some(10_000),
        max_redrives: 0,
        backoff: Backoff::Exponential {
            base_ms: 0,
            factor: 1.5,
            max_ms: 604_800_000,
            jitter: Jitter::Full,
        },
        delay_ms: 604_800_000,
        wait_ms: 30_000,
        dedupe_window_ms: 60_000,
        unique_key: true,
        key_retention_ms: None,
        retention_ms: 60_000,
        dead_letter_retention_ms: Some(315_360_000_000),
        max_message_bytes: 1,
        max_depth: Some(1_000_000_000),
        late_ack: LateAck::Strict,
    };
    let answer = f
        .put_queue("orders", policy.clone(), Expect::Anything)
        .await;
    let queue = f.known(uid(&answer).0);
    assert_eq!(*queue.view().await.policy, policy);
    let schedule = Policy {
        backoff: Backoff::Schedule {
            schedule_ms: vec![1, 2, 3],
            jitter: Jitter::Equal,
        },
        ..Policy::default()
    };
    f.put_queue("orders", schedule.clone(), Expect::Anything)
        .await;
    assert_eq!(*queue.view().await.policy, schedule);
}

/// §5 – PUT creates once and replaces then; the number stays.
async fn put_creates_once_and_then_replaces(f: &Fixture) {
    let first = f
        .put_queue("orders", plain_policy(), Expect::Anything)
        .await;
    let again = f
        .put_queue("orders", plain_policy(), Expect::Anything)
        .await;
    assert!(uid(&first).1);
    assert_eq!(uid(&again), (uid(&first).0, false));
}

/// §5 – creation on publish leaves a queue that is there as it is.
async fn creation_leaves_a_queue_that_is_there(f: &Fixture) {
    let queue = f.queue("orders", |p| p.max_attempts = 7).await;
    let before = queue.view().await;
    let answer = f.put_queue("orders", plain_policy(), Expect::Absent).await;
    assert_eq!(uid(&answer), (queue.uid, false));
    assert_eq!(queue.view().await, before);
    let other = f.put_queue("other", plain_policy(), Expect::Absent).await;
    assert!(uid(&other).1);
}

/// §5 – `If-Match` with another version → refused, nothing changes.
async fn a_policy_is_replaced_only_in_the_expected_version(f: &Fixture) {
    let queue = f.plain_queue().await;
    let version = queue.view().await.version;
    let seven = Policy {
        max_attempts: 7,
        ..plain_policy()
    };
    let done = f
        .put_queue("orders", seven.clone(), Expect::Version(version))
        .await;
    assert!(!uid(&done).1);
    assert!(queue.view().await.version > version);
    let eight = Policy {
        max_attempts: 8,
        ..plain_policy()
    };
    let refused = f.put_queue("orders", eight, Expect::Version(version)).await;
    let mismatch = Answer::Refused(OperationRefused::VersionMismatch);
    assert_eq!(refused, mismatch);
    assert_eq!(queue.view().await.policy.max_attempts, 7);
    let absent = f.put_queue("absent", seven, Expect::Version(1)).await;
    assert_eq!(absent, mismatch);
    assert!(f.backend.queue("absent").await.unwrap().is_none());
}

/// Seam – the version rises with policy, pause, purge and delete, so that no cache decides wrongly.
async fn every_change_of_a_queue_raises_its_version(f: &Fixture) {
    let queue = f.plain_queue().await;
    let mut version = queue.view().await.version;
    let mut raised = async |what: &str| {
        let now = queue.view().await.version;
        assert!(now > version, "{what}: {version} → {now}");
        version = now;
    };
    queue.set(|p| p.max_attempts = 7).await;
    raised("policy").await;
    queue.pause(true).await;
    raised("pause").await;
    queue.pause(false).await;
    raised("resume").await;
    queue.purge(false).await;
    raised("purge").await;
    queue.delete(false).await;
    raised("delete").await;
    f.put_queue("orders", plain_policy(), Expect::Anything)
        .await;
    raised("creation").await;
}

/// §5 – messages do not change a queue's version.
async fn messages_do_not_raise_the_version(f: &Fixture) {
    let queue = f.plain_queue().await;
    let version = queue.view().await.version;
    f.ack(&queue.publish_and_take().await).await.unwrap();
    queue.publish_and_take().await;
    f.pass_and_sweep(HOUR).await;
    f.maintain().await;
    assert_eq!(queue.view().await.version, version);
}

/// §5 – putting a queue again and again changes no message.
async fn a_new_policy_changes_no_message(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.dead_letter().await;
    queue.publish_and_take().await;
    queue.publish("2").await;
    queue.create("3", |p| p.delay_ms = HOUR).await;
    let before = queue.counts().await;
    for attempts in 5..25 {
        queue.set(|p| p.max_attempts = attempts).await;
    }
    assert_eq!(queue.counts().await, before);
}

/// §5 – DELETE of a non-empty queue is refused unless forced; dead letters count as content, discarded ones do not.
async fn a_queue_that_holds_messages_is_deleted_by_force_only(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let not_empty = Answer::Refused(OperationRefused::QueueNotEmpty);
    assert_eq!(queue.delete(false).await, not_empty);
    f.do_act(id, discard()).await;
    queue.publish("1").await;
    assert_eq!(queue.delete(false).await, not_empty);
    assert_eq!(queue.delete(true).await, Answer::Deleted { purged: 1 });
    let not_found = Answer::Refused(OperationRefused::QueueNotFound);
    assert_eq!(queue.delete(true).await, not_found);
}

/// §5 – a deleted queue is not found by name and not listed; its number says that it is deleted.
async fn a_deleted_queue_is_not_found(f: &Fixture) {
    let queue = f.plain_queue().await;
    assert_eq!(queue.delete(false).await, Answer::Deleted { purged: 0 });
    assert!(f.backend.queue("orders").await.unwrap().is_none());
    assert!(f.backend.queues(None, 10).await.unwrap().is_empty());
    let (_, deleted) = f.backend.queue_by_uid(queue.uid).await.unwrap().unwrap();
    assert!(deleted);
}

/// §5 – `If-Match` guards deletion, too.
async fn a_queue_is_deleted_only_in_the_expected_version(f: &Fixture) {
    let queue = f.plain_queue().await;
    let version = queue.view().await.version;
    let delete = |version| Operation::DeleteQueue {
        queue: queue.uid,
        force: false,
        version: Some(version),
    };
    let refused = f.operate(delete(version + 1)).await;
    let mismatch = Answer::Refused(OperationRefused::VersionMismatch);
    assert_eq!(refused, mismatch);
    let done = f.operate(delete(version)).await;
    assert_eq!(done, Answer::Deleted { purged: 0 });
}

/// §4.3, §4.4 – a queue created again has the same number, and totals that go on; nothing of the old content.
async fn a_queue_created_again_keeps_number_and_totals(f: &Fixture) {
    let queue = f.plain_queue().await;
    f.ack(&queue.publish_and_take().await).await.unwrap();
    queue.dead_letter().await;
    queue.publish("1").await;
    queue.pause(true).await;
    assert_eq!(queue.delete(true).await, Answer::Deleted { purged: 2 });
    f.pass(DAY);
    let answer = f.put_queue("orders", plain_policy(), Expect::Absent).await;
    assert_eq!(uid(&answer), (queue.uid, true));
    let view = queue.view().await;
    assert_eq!((view.created_at, view.paused), (f.now(), false));
    let counts = queue.counts().await;
    assert_eq!((counts.accepted, counts.acked, counts.purged), (3, 1, 2));
    assert_eq!((counts.ready, counts.dead), (0, 0));
    let id = queue.publish("2").await;
    f.maintain().await;
    assert_eq!(queue.ids(State::Ready).await, [id]);
}

/// §5 – queues are listed in name order, in pages.
async fn queues_are_listed_by_name(f: &Fixture) {
    let names = ["b", "a", "C", "b.1", "aa", "B"];
    for name in names {
        f.queue(name, |_| {}).await;
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    for limit in [1, 2, 100] {
        let mut listed: Vec<String> = Vec::new();
        loop {
            let after = listed.last().cloned();
            let page = f.backend.queues(after.as_deref(), limit).await.unwrap();
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                break;
            }
            listed.extend(page.iter().map(|q| q.name.to_string()));
        }
        assert_eq!(listed, sorted);
    }
}

/// §5 – an empty queue's numbers are zeros.
async fn an_empty_queue_counts_zero(f: &Fixture) {
    let queue = f.plain_queue().await;
    assert_eq!(
        queue.counts().await,
        quita_storage::model::Counts::default()
    );
}

/// Seam – a store answers and accepts writes.
async fn an_open_store_is_well(f: &Fixture) {
    f.backend.check().await.unwrap();
    assert!(!f.backend.lanes().is_empty());
    assert!(f.backend.facts().epoch >= 1);
}

on_every_store![
    a_queue_is_found_by_its_exact_name,
    names_that_differ_in_case_are_two_queues,
    a_policy_comes_back_as_it_was_put,
    put_creates_once_and_then_replaces,
    creation_leaves_a_queue_that_is_there,
    a_policy_is_replaced_only_in_the_expected_version,
    every_change_of_a_queue_raises_its_version,
    messages_do_not_raise_the_version,
    a_new_policy_changes_no_message,
    a_queue_that_holds_messages_is_deleted_by_force_only,
    a_deleted_queue_is_not_found,
    a_queue_is_deleted_only_in_the_expected_version,
    a_queue_created_again_keeps_number_and_totals,
    queues_are_listed_by_name,
    an_empty_queue_counts_zero,
    an_open_store_is_well,
];

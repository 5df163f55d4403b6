//! §5: the audit trail: one row for every change of an operator, and how rows are found.

use super::decisions::{edit, edit_item};
use quita_storage::audit::{AuditEntry, AuditQuery};
use quita_storage::backend::{Call, Keep, Operation};
use quita_storage::model::{DiscardCode, MessageId};
use quita_storage::rules::operate::Act;
use quita_tests::fixture::{DAY, SECOND, operator, plain_policy, redrive};
use quita_tests::{Fixture, on_every_store};

async fn rows(f: &Fixture, query: AuditQuery) -> Vec<AuditEntry> {
    let (mut all, mut query) = (Vec::new(), AuditQuery { limit: 2, ..query });
    loop {
        let page = f.backend.audit(&query).await.unwrap();
        assert!(page.entries.len() <= 2);
        all.extend(page.entries);
        let Some(next) = page.next else { return all };
        query.after = Some(next);
    }
}

fn words(rows: &[AuditEntry]) -> Vec<&str> {
    rows.iter().map(|row| &*row.action).collect()
}

/// §5 – every change of an operator leaves one row: who, what, on which, before and after, why, which request.
async fn every_change_leaves_one_audit_row(f: &Fixture) {
    let queue = f.plain_queue().await;
    f.pass(SECOND);
    let id = queue.dead_letter().await.id;
    let call = Call {
        http_request: Some("req-1".into()),
        ..operator(None)
    };
    let (uid, begin) = (queue.uid, f.now());
    let act = |act| Operation::Act {
        queue: None,
        id,
        act,
    };
    let mut policy = plain_policy();
    policy.max_attempts = 9;
    for operation in [
        Operation::Pause {
            queue: uid,
            paused: true,
        },
        Operation::Pause {
            queue: uid,
            paused: true,
        },
        Operation::Pause {
            queue: uid,
            paused: false,
        },
        Operation::PutQueue {
            name: "orders".into(),
            policy: Box::new(policy.clone()),
            expect: quita_storage::backend::Expect::Anything,
        },
        Operation::PutQueue {
            name: "orders".into(),
            policy: Box::new(policy),
            expect: quita_storage::backend::Expect::Anything,
        },
        edit_item(queue, id, 0, "\"secret payload\""),
        Operation::UndoEdit { queue: uid, id },
        act(Act::Discard {
            code: DiscardCode::Duplicate,
        }),
        act(Act::Reopen),
        act(redrive(false)),
        act(Act::Cancel),
        Operation::Purge {
            queue: uid,
            dead_letters: true,
        },
        Operation::DeleteQueue {
            queue: uid,
            force: false,
            version: None,
        },
    ] {
        f.call(&call, operation).await;
    }
    let rows = rows(
        f,
        AuditQuery {
            from: Some(begin),
            ..AuditQuery::default()
        },
    )
    .await;
    assert_eq!(
        words(&rows),
        [
            "pause",
            "resume",
            "put_queue",
            "edit",
            "undo_edit",
            "discard",
            "reopen",
            "redrive",
            "cancel",
            "purge",
            "delete_queue"
        ]
    );
    for row in &rows {
        assert_eq!(
            (&*row.actor, row.reason.as_deref()),
            ("operator-1", Some("because"))
        );
        assert_eq!((row.queue, row.at), (Some(uid), begin));
        assert_eq!(row.http_request.as_deref(), Some("req-1"));
        for text in [&row.before, &row.after].into_iter().flatten() {
            assert!(!text.contains("secret payload"), "{text}");
            serde_json::from_str::<serde_json::Value>(text).unwrap();
        }
    }
    let on_message: Vec<bool> = rows.iter().map(|row| row.message == Some(id)).collect();
    assert_eq!(on_message.iter().filter(|is| **is).count(), 6);
    let said = |at: usize| (rows[at].before.as_deref(), rows[at].after.as_deref());
    assert_eq!(
        said(0),
        (Some(r#"{"paused":false}"#), Some(r#"{"paused":true}"#))
    );
    assert!(said(2).0.unwrap().contains(r#""max_attempts":5"#));
    assert!(said(2).1.unwrap().contains(r#""max_attempts":9"#));
    assert!(said(5).1.unwrap().contains("duplicate"));
}

/// §5 – audit rows are found by each of their columns, both ways.
async fn audit_rows_are_found_by_what_they_say(f: &Fixture) {
    let queue = f.plain_queue().await;
    let other = f.queue("other", |_| {}).await;
    let id = queue.dead_letter().await.id;
    f.pass(SECOND);
    let begin = f.now();
    f.do_act(id, redrive(false)).await;
    f.pass(SECOND);
    let cancel = Operation::Act {
        queue: None,
        id,
        act: Act::Cancel,
    };
    f.call(&Call::by("somebody-else"), cancel).await;
    other.pause(true).await;
    let all = AuditQuery::default;
    let cases = [
        (
            AuditQuery {
                actor: Some("somebody-else".into()),
                ..all()
            },
            vec!["cancel"],
        ),
        (
            AuditQuery {
                action: Some("redrive".into()),
                ..all()
            },
            vec!["redrive"],
        ),
        (
            AuditQuery {
                message: Some(id),
                ..all()
            },
            vec!["redrive", "cancel"],
        ),
        (
            AuditQuery {
                queues: Some(vec![other.uid]),
                ..all()
            },
            vec!["create_queue", "pause"],
        ),
        (
            AuditQuery {
                queues: Some(vec![]),
                ..all()
            },
            vec![],
        ),
        (
            AuditQuery {
                from: Some(begin),
                until: Some(begin + SECOND),
                ..all()
            },
            vec!["redrive"],
        ),
        (
            AuditQuery {
                from: Some(begin + SECOND),
                ..all()
            },
            vec!["cancel", "pause"],
        ),
        (
            AuditQuery {
                message: Some(MessageId(7)),
                ..all()
            },
            vec![],
        ),
    ];
    for (query, mut expected) in cases {
        assert_eq!(words(&rows(f, query.clone()).await), expected, "{query:?}");
        let newest_first = AuditQuery {
            newest_first: true,
            ..query
        };
        expected.reverse();
        assert_eq!(
            words(&rows(f, newest_first.clone()).await),
            expected,
            "{newest_first:?}"
        );
    }
    let ids: Vec<i64> = rows(f, all()).await.iter().map(|row| row.id).collect();
    assert!(ids.is_sorted(), "{ids:?}");
}

/// §5 – audit rows are kept as long as is set, and no longer.
async fn audit_rows_are_kept_as_long_as_is_set(f: &Fixture) {
    let queue = f.plain_queue().await;
    queue.pause(true).await;
    let keep = Keep { audit_ms: 10 * DAY };
    f.pass(10 * DAY - 1);
    while f.backend.maintain(&keep, Some(f.now())).await.unwrap() {}
    assert_eq!(rows(f, AuditQuery::default()).await.len(), 2);
    f.pass(1);
    while f.backend.maintain(&keep, Some(f.now())).await.unwrap() {}
    assert_eq!(rows(f, AuditQuery::default()).await.len(), 0);
}

/// §5 – a repeated call and a refused call leave no row.
async fn repeats_and_refusals_leave_no_audit_row(f: &Fixture) {
    let queue = f.plain_queue().await;
    let id = queue.dead_letter().await.id;
    let call = operator(Some("op-1"));
    for _ in 0..3 {
        f.call(&call, edit_item(queue, id, 0, "2")).await;
    }
    edit(queue, id, 0, "3").await;
    f.refuse_act(id, Act::Promote).await;
    let rows = rows(
        f,
        AuditQuery {
            message: Some(id),
            ..AuditQuery::default()
        },
    )
    .await;
    assert_eq!(words(&rows), ["edit"]);
}

on_every_store![
    every_change_leaves_one_audit_row,
    audit_rows_are_found_by_what_they_say,
    audit_rows_are_kept_as_long_as_is_set,
    repeats_and_refusals_leave_no_audit_row,
];

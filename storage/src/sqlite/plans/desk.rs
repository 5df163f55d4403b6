//! Everything that operators can do at their desk, once.

use super::life::{DAY, Life, nack};
use crate::audit::AuditQuery;
use crate::backend::{Answer, Cursor, Keep, Operation};
use crate::dead_letters::{DeadFilter, DeadListing, KeyFilter, Range, SelectionId, Span};
use crate::model::{DiscardCode, MessageId, Reason};
use crate::redrives::{
    AbortIf, BulkAction, Canary, RedriveId, RedriveListing, RedrivePlan, RedriveState, Steer,
};
use crate::rules::operate::Act;
use bytes::Bytes;

fn filters() -> Vec<DeadFilter> {
    let span = Span {
        from: Some(1),
        until: Some(i64::MAX - 1),
    };
    let all = DeadFilter {
        died: span,
        published: span,
        attempts: Range {
            min: Some(0),
            max: Some(9),
        },
        redrives: Range {
            min: Some(0),
            max: Some(9),
        },
        edited: Some(false),
        ..DeadFilter::default()
    };
    let key = |key| DeadFilter {
        key: Some(key),
        reason: Some(Reason::PermanentFailure),
        ..all.clone()
    };
    vec![
        DeadFilter::default(),
        DeadFilter {
            reason: Some(Reason::PermanentFailure),
            ..all.clone()
        },
        DeadFilter {
            error_code: Some("code".into()),
            ..all.clone()
        },
        DeadFilter {
            group: Some(1),
            error_code: Some("code".into()),
            ..all.clone()
        },
        key(KeyFilter::Exactly("key-41".into())),
        key(KeyFilter::Prefix("key-".into())),
        all,
    ]
}

async fn look(life: &Life) {
    let after = Cursor {
        priority: 0,
        at: 1,
        id: MessageId(1),
    };
    for filter in filters() {
        for (newest_first, after) in [(false, None), (true, None), (false, Some(after))] {
            let listing = DeadListing {
                queues: after.is_none().then(|| vec![life.queue.uid]),
                filter: filter.clone(),
                after,
                newest_first,
                limit: 2,
            };
            life.store
                .dead_letters(&listing, Some(life.now))
                .await
                .unwrap();
        }
        life.store
            .dead_groups(None, &filter, 2, Some(life.now))
            .await
            .unwrap();
    }
    for message in [None, Some(MessageId(1))] {
        for redrive in [None, Some(RedriveId(1))] {
            for newest_first in [false, true] {
                let query = AuditQuery {
                    from: Some(life.now - DAY),
                    until: Some(life.now + 1),
                    actor: Some("policy".into()),
                    message,
                    redrive,
                    newest_first,
                    limit: 2,
                    ..AuditQuery::default()
                };
                life.store.audit(&query).await.unwrap();
            }
        }
    }
    let listing = RedriveListing {
        state: Some(RedriveState::Running),
        limit: 2,
        ..RedriveListing::default()
    };
    life.store.redrives(&listing).await.unwrap();
}

async fn select(life: &mut Life, filter: DeadFilter) -> SelectionId {
    let (queue, filter) = (life.queue.uid, Box::new(filter));
    match life.operate(Operation::Select { queue, filter }).await {
        Answer::Selected { id } => SelectionId(id),
        other => panic!("{other:?}"),
    }
}

async fn start(life: &mut Life, selection: SelectionId, action: BulkAction) -> RedriveId {
    let found = life.store.selection(selection).await.unwrap().unwrap();
    let plan = RedrivePlan {
        selection,
        action,
        expected_count: found.figures.count,
        max: None,
        rate: None,
        canary: Some(Canary {
            count: 1,
            wait_ms: 5_000,
        }),
        abort_if: Some(AbortIf {
            failed_fraction: 1.0,
            min_sample: 100,
        }),
        force: true,
        dry_run: false,
    };
    match life.operate(Operation::StartRedrive(Box::new(plan))).await {
        Answer::Redrive { id } => RedriveId(id),
        other => panic!("{other:?}"),
    }
}

async fn step(life: &Life) {
    life.store.step_redrives(Some(life.now)).await.unwrap();
}

/// Kills whatever is ready.
async fn kill(life: &mut Life) {
    for (id, fence) in life.receive().await {
        life.settle(id, fence, nack(true)).await;
    }
}

/// Runs it.
pub(super) async fn work(life: &mut Life) {
    let queue = life.queue.uid;
    let mut dead = Vec::new();
    for number in 41..46 {
        dead.push(life.publish(number, true, 0, None).await);
        kill(life).await;
    }
    look(life).await;
    for (base, text) in [(0, "2"), (1, "3")] {
        let edit = Operation::Edit {
            queue,
            id: dead[0],
            base,
            payload: Bytes::from(text),
            headers: None,
        };
        let answer = life.operate(edit).await;
        assert!(matches!(answer, Answer::Edited { .. }), "{answer:?}");
    }
    life.operate(Operation::UndoEdit { queue, id: dead[0] })
        .await;
    life.store
        .message(dead[0], Some(life.now))
        .await
        .unwrap()
        .unwrap();
    // A discard, and back.
    let code = DiscardCode::Duplicate;
    for act in [Act::Discard { code }, Act::Reopen, Act::Discard { code }] {
        let (queue, id) = (Some(queue), dead[1]);
        life.operate(Operation::Act { queue, id, act }).await;
    }
    life.operate(Operation::Act {
        queue: Some(queue),
        id: dead[1],
        act: Act::Reopen,
    })
    .await;
    // In bulk, with a canary that dies again and one that is acked.
    for filter in filters() {
        select(life, filter).await;
    }
    let selection = select(life, DeadFilter::default()).await;
    let id = start(life, selection, BulkAction::Redrive).await;
    step(life).await;
    step(life).await;
    kill(life).await;
    life.now += 1_500;
    for steer in [
        Steer::Pause,
        Steer::Resume,
        Steer::Rate(Some(1_000.0)),
        Steer::Rate(None),
    ] {
        life.operate(Operation::SteerRedrive { id, steer }).await;
    }
    for _ in 0..4 {
        life.now += 1_500;
        step(life).await;
    }
    let redrive = life.store.redrive(id).await.unwrap().unwrap();
    assert_eq!(redrive.state, RedriveState::Done, "{redrive:?}");
    assert_eq!(redrive.failed_again, 1);
    kill(life).await;
    life.store
        .maintain(&Keep::default(), Some(life.now))
        .await
        .unwrap();
    let selection = select(life, filters().remove(1)).await;
    start(life, selection, BulkAction::Discard(code)).await;
    for _ in 0..3 {
        life.now += 5_000;
        step(life).await;
    }
    look(life).await;
}

//! Every statement that the store runs is planned by an index: a life with everything in it runs under trace, then each
//! statement that was seen is explained.

use super::*;
use crate::backend::{Browse, Expect, Publish, Published, Receive, Received, RequestId, Settle};
use crate::clock;
use crate::model::{Backoff, Failure, Jitter, Policy, Reason, State};
use crate::rules::operate::Act;
use crate::rules::settle::{Action, Claim};
use bytes::Bytes;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::collections::BTreeSet;

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

pub(super) fn trace(connection: &Connection) {
    connection.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(|event| {
            if let TraceEvent::Stmt(statement, _) = event {
                SEEN.lock().insert(statement.sql().into_owned());
            }
        }),
    );
}

/// What may be read from end to end: it does not grow with traffic.
const SMALL: [&str; 7] = [
    "CONSTANT", "api_key", "counter", "meta", "queue", "ranks", "trash",
];

/// Statements that may read one of them from end to end, and why.
const ALLOWED: [(&str, &str); 3] = [
    (
        "-- young request ids",
        "the start reads them into memory once",
    ),
    (
        "-- clear lease",
        "clearing a purged queue walks over the live leases, which are few, in the background",
    ),
    (
        "-- unique_key on",
        "switching unique_key on reads the queue's live keys once",
    ),
];

struct Life {
    store: Arc<dyn Backend>,
    queue: Arc<Queue>,
    now: Millis,
}

impl Life {
    async fn refresh(&mut self) {
        self.queue = Arc::new(self.store.queue("life").await.unwrap().unwrap());
    }

    async fn operate(&mut self, operation: Operation) {
        let call = Call {
            request_id: Some(format!("call-{}", self.now).into()),
            justification: Some("because of the plan".into()),
            ..Call::default()
        };
        self.now += 1;
        self.store
            .operate(&call, operation, Some(self.now))
            .await
            .unwrap();
        self.refresh().await;
    }

    async fn publish(
        &mut self,
        number: u8,
        key: bool,
        delay_ms: Millis,
        expires_in_ms: Option<Millis>,
    ) -> MessageId {
        let item = Publish {
            queue: self.queue.clone(),
            request_id: Some(RequestId {
                digest: [number; 16],
                text: Bytes::from(vec![number]),
            }),
            fingerprint: 1,
            key: key.then(|| format!("key-{number}").into()),
            delay_ms,
            priority: 4,
            headers: None,
            payload: Bytes::from_static(b"1"),
            expires_in_ms,
            max_attempts: None,
            backoff: None,
        };
        let batch = Batch {
            publishes: vec![item],
            ..Batch::default()
        };
        match self
            .store
            .apply(&batch, Some(self.now))
            .await
            .unwrap()
            .publishes[0]
            .clone()
        {
            Published::Created { id, .. } => id,
            Published::Duplicate(duplicate) => duplicate.id,
            other => panic!("{other:?}"),
        }
    }

    async fn receive(&mut self) -> Vec<(MessageId, i32)> {
        let receive = Receive {
            queue: self.queue.clone(),
            max: 10,
            lease_ms: 1_000,
            worker: Some("w".into()),
        };
        let batch = Batch {
            receives: vec![receive],
            ..Batch::default()
        };
        let outcome = self.store.apply(&batch, Some(self.now)).await.unwrap();
        let Received::Messages(messages) = &outcome.receives[0] else {
            panic!("{outcome:?}")
        };
        messages
            .iter()
            .map(|d| (d.message.envelope.id, d.message.life.fence))
            .collect()
    }

    async fn settle(&mut self, id: MessageId, fence: i32, action: Action) {
        let claim = Claim {
            fence,
            handed_out_at: self.now,
            action,
            chance: 0.5,
        };
        let settle = Settle {
            queue: self.queue.clone(),
            id,
            claim,
        };
        let batch = Batch {
            settles: vec![settle],
            ..Batch::default()
        };
        self.store.apply(&batch, Some(self.now)).await.unwrap();
    }

    async fn look(&self) {
        for state in State::ALL {
            let mut browse = Browse {
                queue: self.queue.uid,
                state: *state,
                key: None,
                request_id: None,
                reason: None,
                after: None,
                limit: 2,
            };
            self.store
                .browse(browse.clone(), Some(self.now))
                .await
                .unwrap();
            browse.reason = Some(Reason::Operator);
            self.store
                .browse(browse.clone(), Some(self.now))
                .await
                .unwrap();
            browse.key = Some("key-1".into());
            self.store
                .browse(browse.clone(), Some(self.now))
                .await
                .unwrap();
            browse.request_id = Some(RequestId {
                digest: [1; 16],
                text: Bytes::from_static(&[1]),
            });
            self.store.browse(browse, Some(self.now)).await.unwrap();
        }
        self.store
            .numbers(self.queue.uid, Some(self.now))
            .await
            .unwrap();
    }
}

fn nack(permanent: bool) -> Action {
    Action::Nack {
        failure: Failure::cleaned(Some("code"), None),
        delay_ms: None,
        permanent,
    }
}

/// Everything that can happen to a queue and its messages, once.
async fn live(store: Arc<dyn Backend>) {
    let policy = Policy {
        max_attempts: 2,
        backoff: Backoff::Fixed {
            base_ms: 500,
            jitter: Jitter::None,
        },
        dead_letter_retention_ms: Some(3_600_000),
        retention_ms: 60_000,
        max_depth: Some(1_000),
        ..Policy::default()
    };
    let put = |policy: Policy| Operation::PutQueue {
        name: "life".into(),
        policy: Box::new(policy),
        expect: Expect::Anything,
    };
    let start = clock::wall();
    store
        .operate(&Call::default(), put(policy.clone()), Some(start))
        .await
        .unwrap();
    let queue = Arc::new(store.queue("life").await.unwrap().unwrap());
    let mut life = Life {
        store: store.clone(),
        queue,
        now: start,
    };
    let uid = life.queue.uid;
    // Plain, keyed, delayed, expiring; a duplicate.
    for number in 1..=6 {
        life.publish(
            number,
            number % 2 == 1,
            if number == 5 { 700 } else { 0 },
            (number == 6).then_some(5_000),
        )
        .await;
    }
    life.publish(1, true, 0, None).await;
    life.look().await;
    let leased = life.receive().await;
    life.settle(leased[0].0, 1, Action::Ack { outcome: None })
        .await;
    life.settle(
        leased[1].0,
        1,
        Action::Ack {
            outcome: Some("1".into()),
        },
    )
    .await;
    life.settle(leased[1].0, 1, Action::Ack { outcome: None })
        .await;
    life.settle(leased[2].0, 1, nack(false)).await;
    life.settle(
        leased[3].0,
        1,
        Action::Extend {
            visibility_timeout_ms: 2_000,
        },
    )
    .await;
    life.settle(leased[3].0, 1, Action::Release { delay_ms: None })
        .await;
    life.settle(leased[4].0, 1, nack(true)).await;
    life.look().await;
    // Leases run out, are superseded, completions are remembered.
    life.now += 1_000;
    let again = life.receive().await;
    life.now += 1_500;
    life.store.move_due(Some(life.now)).await.unwrap();
    life.settle(
        again[0].0,
        again[0].1,
        Action::Extend {
            visibility_timeout_ms: 100,
        },
    )
    .await;
    life.now += 200;
    life.receive().await;
    life.settle(again[0].0, 1, Action::Ack { outcome: None })
        .await;
    life.look().await;
    life.now += 2_000;
    life.store.move_due(Some(life.now)).await.unwrap();
    // Operators.
    let parked = life.publish(20, true, 60_000, None).await;
    life.operate(Operation::Act {
        queue: None,
        id: parked,
        act: Act::Promote,
    })
    .await;
    life.operate(Operation::Act {
        queue: None,
        id: parked,
        act: Act::DeadLetter,
    })
    .await;
    life.operate(Operation::RedriveOldest {
        queue: uid,
        limit: 1,
    })
    .await;
    life.operate(Operation::Act {
        queue: None,
        id: parked,
        act: Act::DeadLetter,
    })
    .await;
    life.operate(Operation::Act {
        queue: Some(uid),
        id: parked,
        act: Act::Discard {
            code: crate::model::DiscardCode::WrittenOff,
        },
    })
    .await;
    let redriven = life.publish(21, true, 0, None).await;
    life.operate(Operation::Act {
        queue: None,
        id: redriven,
        act: Act::DeadLetter,
    })
    .await;
    let redrive = Act::Redrive {
        force: false,
        expires_in_ms: Some(90_000),
    };
    life.operate(Operation::Act {
        queue: None,
        id: redriven,
        act: redrive,
    })
    .await;
    life.operate(Operation::Act {
        queue: None,
        id: redriven,
        act: Act::Cancel,
    })
    .await;
    life.operate(Operation::Pause {
        queue: uid,
        paused: true,
    })
    .await;
    life.operate(Operation::Pause {
        queue: uid,
        paused: false,
    })
    .await;
    life.operate(put(Policy {
        unique_key: true,
        ..policy.clone()
    }))
    .await;
    life.publish(30, true, 0, None).await;
    life.publish(31, true, 0, None).await;
    life.publish(31, false, 0, None).await;
    store.message(parked, Some(life.now)).await.unwrap();
    store.message(leased[1].0, Some(life.now)).await.unwrap();
    // Retention, purge, clearing, and the end of all memories.
    life.now += 60_000;
    life.look().await;
    life.publish(32, true, 1_000, None).await;
    life.receive().await;
    life.operate(Operation::Purge {
        queue: uid,
        dead_letters: true,
    })
    .await;
    life.publish(32, true, 0, None).await;
    life.now += 2_000;
    for step in [0, 3_600_000, DAY * 7, DAY * 500] {
        life.now += step;
        while store.maintain(Some(life.now)).await.unwrap() {}
    }
    life.publish(32, true, 0, None).await;
    let delete = Operation::DeleteQueue {
        queue: uid,
        force: true,
        version: None,
    };
    store
        .operate(&Call::default(), delete, Some(life.now))
        .await
        .unwrap();
    let key = KeyRecord {
        id: "k".into(),
        secret_hash: [0; 32],
        description: "".into(),
        scope: "admin".into(),
        created_at: 0,
        revoked_at: None,
    };
    assert!(store.add_key(key, true).await.unwrap());
    assert!(store.revoke_key("k", None).await.unwrap());
    assert_eq!(store.keys().await.unwrap().len(), 1);
    store.check().await.unwrap();
}

const DAY: Millis = 86_400_000;

/// Runs all statements that were seen through `EXPLAIN QUERY PLAN`.
fn explain(connection: &Connection) -> Vec<String> {
    let mut complaints = Vec::new();
    let seen: Vec<String> = SEEN.lock().iter().cloned().collect();
    for sql in seen {
        let head = sql.trim_start();
        if sql.contains("sqlite_stat") {
            continue;
        }
        let plain = [
            "BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "EXPLAIN", "CREATE", "ANALYZE",
        ];
        if plain
            .iter()
            .any(|word| head.to_uppercase().starts_with(word))
        {
            continue;
        }
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let unbound = statement.parameter_count();
        let values = vec![rusqlite::types::Value::Null; unbound];
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(values), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        for line in plan {
            let scanned = line
                .strip_prefix("SCAN ")
                .and_then(|rest| rest.split(' ').next());
            let large = scanned.is_some_and(|name| !SMALL.contains(&name));
            if large && !ALLOWED.iter().any(|(start, _)| head.starts_with(start)) {
                complaints.push(format!("{line}\n  {sql}"));
            }
        }
    }
    complaints
}

#[tokio::test]
async fn no_statement_reads_a_large_table_from_end_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plans.db");
    let store = open(&path).await.unwrap();
    live(store.clone()).await;
    assert!(
        SEEN.lock().len() > 80,
        "only {} statements were seen",
        SEEN.lock().len()
    );
    let connection = connect(&path, false).unwrap();
    assert_eq!(explain(&connection), Vec::<String>::new());
    // Somebody else's statistics of the empty tables would change that; they do not survive the next start.
    connection.execute_batch("ANALYZE").unwrap();
    assert_ne!(
        explain(&connection),
        Vec::<String>::new(),
        "then dropping them is not needed any more"
    );
    drop(connection);
    store.close().await;
    drop(store);
    let store = open(&path).await.unwrap();
    let connection = connect(&path, false).unwrap();
    assert_eq!(explain(&connection), Vec::<String>::new());
    store.close().await;
}

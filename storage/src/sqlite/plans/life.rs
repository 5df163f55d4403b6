//! Everything that can happen to a queue and its messages, once.

use super::desk;
use crate::backend::{
    Answer, Backend, Batch, Browse, Call, Expect, Keep, KeyRecord, Operation, Publish, Published,
    Receive, Received, RequestId, Settle,
};
use crate::clock;
use crate::model::{Backoff, Failure, Jitter, MessageId, Millis, Policy, Queue, State};
use crate::rules::operate::Act;
use crate::rules::settle::{Action, Claim};
use bytes::Bytes;
use std::sync::Arc;

pub(super) const DAY: Millis = 86_400_000;

pub(super) struct Life {
    pub(super) store: Arc<dyn Backend>,
    pub(super) queue: Arc<Queue>,
    pub(super) now: Millis,
}

impl Life {
    async fn refresh(&mut self) {
        self.queue = Arc::new(self.store.queue("life").await.unwrap().unwrap());
    }

    pub(super) async fn operate(&mut self, operation: Operation) -> Answer {
        let call = Call {
            request_id: Some(format!("call-{}", self.now).into()),
            justification: Some("because of the plan".into()),
            ..Call::default()
        };
        self.now += 1;
        let operated = self.store.operate(&call, operation, Some(self.now)).await;
        self.refresh().await;
        operated.unwrap().answer
    }

    pub(super) async fn publish(
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

    pub(super) async fn receive(&mut self) -> Vec<(MessageId, i32)> {
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

    pub(super) async fn settle(&mut self, id: MessageId, fence: i32, action: Action) {
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
                after: None,
                limit: 2,
            };
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

pub(super) fn nack(permanent: bool) -> Action {
    Action::Nack {
        failure: Failure::cleaned(Some("code"), None),
        delay_ms: None,
        permanent,
    }
}

/// Runs it.
pub(super) async fn live(store: Arc<dyn Backend>) {
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
    desk::work(&mut life).await;
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
        while store
            .maintain(&Keep::default(), Some(life.now))
            .await
            .unwrap()
        {}
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
        expires_at: None,
        last_used_at: None,
    };
    let call = Call::by("admin");
    let next = KeyRecord {
        id: "l".into(),
        ..key.clone()
    };
    assert!(store.add_key(&call, key, true).await.unwrap());
    assert!(store.rotate_key(&call, "k", 9, next).await.unwrap());
    store.touch_keys(&[("k".into(), 1)]).await.unwrap();
    assert!(store.revoke_key(&call, "k", None).await.unwrap());
    assert_eq!(store.keys().await.unwrap().len(), 2);
    store.check().await.unwrap();
}

//! What only several replicas on one PostgreSQL can get wrong: starting together, racing for the same messages, purging under
//! publishes, and losing connections in the middle of a commit.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use quita_storage::audit::AuditQuery;
use quita_storage::backend::{
    Answer, Backend, Batch, Call, Delivery, Expect, Keep, Operation, Publish, Published, Receive,
    Received, RequestId, Settle, SettleOutcome,
};
use quita_storage::dead_letters::SelectionId;
use quita_storage::error::StoreError;
use quita_storage::model::{Failure, MessageId, Place, Policy, Queue, QueueUid};
use quita_storage::redrives::{BulkAction, RedriveId, RedrivePlan, RedriveState};
use quita_storage::rules::settle::{Action, Claim, Settled};
use quita_tests::postgres::{Database, database};
use sqlx::Connection;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

type Store = Arc<dyn Backend>;

async fn replicas(database: &Database, count: usize) -> Vec<Store> {
    let opening = (0..count).map(|_| {
        let url = database.url.clone();
        tokio::spawn(async move { quita_storage::postgres::open(&url).await.unwrap() })
    });
    let opening: Vec<_> = opening.collect();
    let mut stores = Vec::new();
    for store in opening {
        stores.push(store.await.unwrap());
    }
    stores
}

async fn queue(store: &Store, name: &str, policy: Policy) -> Arc<Queue> {
    let put = Operation::PutQueue {
        name: name.into(),
        policy: Box::new(policy),
        expect: Expect::Anything,
    };
    let operated = store.operate(&Call::default(), put, None).await.unwrap();
    assert!(
        matches!(operated.answer, Answer::Queue { .. }),
        "{operated:?}"
    );
    Arc::new(store.queue(name).await.unwrap().unwrap())
}

async fn view(store: &Store, uid: QueueUid) -> Arc<Queue> {
    Arc::new(store.queue_by_uid(uid).await.unwrap().unwrap().0)
}

fn message(queue: &Arc<Queue>, id: Option<u64>, body: u64) -> Publish {
    let request_id = id.map(|id| {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&id.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        RequestId {
            digest,
            text: Bytes::from(id.to_string()),
        }
    });
    Publish {
        queue: Arc::clone(queue),
        request_id,
        fingerprint: body as i64,
        key: None,
        delay_ms: 0,
        priority: 4,
        headers: None,
        payload: Bytes::from(body.to_string()),
        expires_in_ms: None,
        max_attempts: None,
        backoff: None,
    }
}

fn receive(queue: &Arc<Queue>, max: u32, lease_ms: i64) -> Batch {
    let receives = vec![Receive {
        queue: Arc::clone(queue),
        max,
        lease_ms,
        worker: None,
    }];
    Batch {
        receives,
        ..Batch::default()
    }
}

fn settle(
    queue: &Arc<Queue>,
    id: MessageId,
    fence: i32,
    handed_out_at: i64,
    action: Action,
) -> Settle {
    Settle {
        queue: Arc::clone(queue),
        id,
        claim: Claim {
            fence,
            handed_out_at,
            action,
            chance: 0.0,
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_replicas_start_together_on_an_empty_database() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 8).await;
    let secrets: HashSet<[u8; 32]> = stores.iter().map(|s| s.facts().receipt_secret).collect();
    assert_eq!(secrets.len(), 1);
    let puts = stores
        .iter()
        .map(|store| queue(store, "orders", Policy::default()));
    let mut uids = HashSet::new();
    for queue in futures_util::future::join_all(puts).await {
        uids.insert(queue.uid);
    }
    assert_eq!(uids.len(), 1, "one name, one queue");
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

/// What the racing tasks share.
#[derive(Default)]
struct Race {
    done: AtomicBool,
    next: AtomicU64,
    /// Messages that answers named, by request id.
    named: Mutex<HashMap<u64, HashSet<MessageId>>>,
    acked: Mutex<HashMap<MessageId, u32>>,
    /// Hand-outs by message and fence: never twice.
    handed_out: Mutex<HashSet<(MessageId, i32)>>,
    /// Messages stored without a request id.
    anonymous: AtomicU64,
    unknown: AtomicU64,
}

async fn produce(store: Store, uid: QueueUid, race: Arc<Race>) {
    while !race.done.load(Ordering::Relaxed) {
        let queue = view(&store, uid).await;
        // Every id is published by two producers, and the first one twice in one batch.
        let first = race.next.fetch_add(3, Ordering::Relaxed);
        let ids: Vec<u64> = (first..first + 6).chain([first]).collect();
        let publishes = ids
            .iter()
            .map(|id| message(&queue, Some(*id), *id))
            .collect();
        let outcome = match store
            .apply(
                &Batch {
                    publishes,
                    ..Batch::default()
                },
                None,
            )
            .await
        {
            Ok(outcome) => outcome,
            Err(StoreError::CommitUnknown(_) | StoreError::Unavailable(_)) => {
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for (id, published) in ids.iter().zip(outcome.publishes) {
            let found = match published {
                Published::Created { id, .. } => id,
                Published::Duplicate(duplicate) => duplicate.id,
                Published::Stale => continue,
                other => panic!("{other:?}"),
            };
            race.named
                .lock()
                .unwrap()
                .entry(*id)
                .or_default()
                .insert(found);
        }
    }
}

/// Messages without a request id, which no repeat could find again.
async fn produce_anonymously(store: Store, uid: QueueUid, race: Arc<Race>) {
    while !race.done.load(Ordering::Relaxed) {
        let queue = view(&store, uid).await;
        let publishes = (0..3).map(|n| message(&queue, None, n)).collect();
        match store
            .apply(
                &Batch {
                    publishes,
                    ..Batch::default()
                },
                None,
            )
            .await
        {
            Ok(outcome) => {
                let stored = outcome
                    .publishes
                    .iter()
                    .filter(|p| matches!(p, Published::Created { .. }))
                    .count();
                race.anonymous.fetch_add(stored as u64, Ordering::Relaxed);
            }
            Err(StoreError::CommitUnknown(_)) => drop(race.unknown.fetch_add(3, Ordering::Relaxed)),
            Err(StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

async fn work(store: Store, uid: QueueUid, race: Arc<Race>, mut turn: u64) {
    while !race.done.load(Ordering::Relaxed) {
        let queue = view(&store, uid).await;
        let Ok(outcome) = store.apply(&receive(&queue, 10, 300), None).await else {
            continue;
        };
        let Some(Received::Messages(messages)) = outcome.receives.into_iter().next() else {
            continue;
        };
        if messages.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut settles = Vec::new();
        for delivery in messages {
            let (id, fence) = (delivery.message.envelope.id, delivery.message.life.fence);
            assert!(
                race.handed_out.lock().unwrap().insert((id, fence)),
                "{id} was handed out twice as {fence}"
            );
            turn += 1;
            let action = match turn % 9 {
                0 => continue,
                1 => Action::Nack {
                    failure: Failure::default(),
                    delay_ms: Some(20),
                    permanent: false,
                },
                2 => Action::Release { delay_ms: None },
                3 => Action::Extend {
                    visibility_timeout_ms: 500,
                },
                4 => Action::Nack {
                    failure: Failure::default(),
                    delay_ms: None,
                    permanent: true,
                },
                5 => Action::Ack {
                    outcome: Some("1".into()),
                },
                _ => Action::Ack { outcome: None },
            };
            settles.push(settle(&queue, id, fence, outcome.now, action));
        }
        // Now and then too late.
        if turn.is_multiple_of(7) {
            tokio::time::sleep(Duration::from_millis(350)).await;
        }
        let batch = Batch {
            settles,
            ..Batch::default()
        };
        let Ok(outcome) = store.apply(&batch, None).await else {
            continue;
        };
        for (settle, outcome) in batch.settles.iter().zip(outcome.settles) {
            let is_ack = matches!(settle.claim.action, Action::Ack { .. });
            if let SettleOutcome::Decided(Ok(Settled::Acked { .. } | Settled::AckedSuperseded)) =
                outcome
            {
                *race.acked.lock().unwrap().entry(settle.id).or_default() += u32::from(is_ack);
            }
        }
    }
}

/// Selects all dead letters, and answers a plan to redrive them.
async fn select(store: &Store, uid: QueueUid) -> Option<RedrivePlan> {
    let select = Operation::Select {
        queue: uid,
        filter: Box::default(),
    };
    let operated = store.operate(&Call::default(), select, None).await.ok()?;
    let Answer::Selected { id } = operated.answer else {
        panic!("{operated:?}");
    };
    let selection = store.selection(SelectionId(id)).await.ok()??;
    Some(RedrivePlan {
        selection: selection.id,
        action: BulkAction::Redrive,
        expected_count: selection.figures.count,
        max: None,
        rate: None,
        canary: None,
        abort_if: None,
        force: true,
        dry_run: false,
    })
}

async fn operate(store: Store, uid: QueueUid, race: Arc<Race>) {
    let mut round = 0;
    while !race.done.load(Ordering::Relaxed) {
        round += 1;
        let operation = match round % 3 {
            0 => Operation::Purge {
                queue: uid,
                dead_letters: round % 2 == 0,
            },
            1 => match select(&store, uid).await {
                Some(plan) => Operation::StartRedrive(Box::new(plan)),
                None => continue,
            },
            _ => Operation::Pause {
                queue: uid,
                paused: round % 6 == 2,
            },
        };
        match store.operate(&Call::default(), operation, None).await {
            Ok(_) | Err(StoreError::CommitUnknown(_) | StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
        for _ in 0..3 {
            let _ = store.move_due(None).await;
            let _ = store.step_redrives(None).await;
            let _ = store.maintain(&Keep::default(), None).await;
            let counts = store.numbers(uid, None).await;
            if let Ok(numbers) = counts {
                assert_eq!(numbers.counts.imbalance(), 0, "{:?}", numbers.counts);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Ends the race and checks what must hold afterwards.
async fn check(store: &Store, uid: QueueUid, race: &Race) {
    while store.maintain(&Keep::default(), None).await.unwrap() {}
    let counts = store.numbers(uid, None).await.unwrap().counts;
    assert_eq!(counts.imbalance(), 0, "{counts:?}");
    let mut messages = HashSet::new();
    for (id, named) in race.named.lock().unwrap().iter() {
        assert_eq!(named.len(), 1, "request id {id} made {named:?}");
        messages.extend(named.iter().copied());
    }
    let acked = race.acked.lock().unwrap();
    let twice: Vec<_> = acked.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "acked more than once: {twice:?}");
    let stored = messages.len() as i64 + race.anonymous.load(Ordering::Relaxed) as i64;
    let unknown = race.unknown.load(Ordering::Relaxed) as i64;
    assert!(
        (stored..=stored + unknown).contains(&counts.accepted),
        "{stored} and {unknown} unknown, but {counts:?}"
    );
    eprintln!(
        "{} messages, {} acked, {counts:?}",
        messages.len(),
        acked.len()
    );
}

/// Producers that repeat, workers that ack, nack, release, extend or forget, and an operator who purges, redrives and pauses,
/// on three replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_race_keep_every_promise() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 3).await;
    let policy = Policy {
        max_attempts: 50,
        max_lease_expirations: 50,
        ..Policy::default()
    };
    let uid = queue(&stores[0], "orders", policy).await.uid;
    let race = Arc::new(Race::default());
    let mut tasks = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        tasks.push(tokio::spawn(produce(store.clone(), uid, race.clone())));
        tasks.push(tokio::spawn(produce_anonymously(
            store.clone(),
            uid,
            race.clone(),
        )));
        tasks.push(tokio::spawn(work(
            store.clone(),
            uid,
            race.clone(),
            number as u64,
        )));
    }
    tasks.push(tokio::spawn(operate(stores[2].clone(), uid, race.clone())));
    tokio::time::sleep(Duration::from_secs(6)).await;
    race.done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(race.unknown.load(Ordering::Relaxed), 0);
    check(&stores[1], uid, &race).await;
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

/// A relay before the server that now and then swallows an answer and then cuts the connection: the statement, and its commit,
/// have happened, and nobody was told.
async fn faulty_relay(server: String, faulty: Arc<AtomicBool>, swallowed: Arc<AtomicU64>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, faulty, swallowed) = (server.clone(), faulty.clone(), swallowed.clone());
            tokio::spawn(async move {
                let Ok(upstream) = tokio::net::TcpStream::connect(server).await else {
                    return;
                };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = upstream.into_split();
                let there =
                    tokio::spawn(
                        async move { tokio::io::copy(&mut from_client, &mut to_server).await },
                    );
                let mut buffer = vec![0; 65_536];
                while let Ok(read) = from_server.read(&mut buffer).await {
                    if read == 0 {
                        break;
                    }
                    if faulty.load(Ordering::Relaxed) && rand::random_range(0..150) == 0 {
                        swallowed.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    if to_client.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
                there.abort();
            });
        }
    });
    port
}

/// Connections are cut by the server, and by a relay that swallows answers: what was answered holds, and nothing is stored
/// twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_and_double_nothing() {
    use sqlx::Connection;
    let Some(database) = database().await else {
        return;
    };
    let (head, name) = database.url.rsplit_once('/').unwrap();
    let (user, server) = head.rsplit_once('@').unwrap();
    let server = server.to_owned();
    let (faulty, swallowed) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let port = faulty_relay(server, faulty.clone(), swallowed.clone()).await;
    let url = format!("{user}@127.0.0.1:{port}/{name}");
    let stores = [
        quita_storage::open(&url).await.unwrap(),
        quita_storage::open(&url).await.unwrap(),
    ];
    let policy = Policy {
        max_attempts: 50,
        max_lease_expirations: 50,
        ..Policy::default()
    };
    let uid = queue(&stores[0], "orders", policy).await.uid;
    let race = Arc::new(Race::default());
    faulty.store(true, Ordering::Relaxed);
    let mut tasks = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        tasks.push(tokio::spawn(produce(store.clone(), uid, race.clone())));
        tasks.push(tokio::spawn(produce_anonymously(
            store.clone(),
            uid,
            race.clone(),
        )));
        tasks.push(tokio::spawn(work(
            store.clone(),
            uid,
            race.clone(),
            number as u64,
        )));
    }
    let mut killer = sqlx::PgConnection::connect(&database.url).await.unwrap();
    for _ in 0..80 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
             ORDER BY random() LIMIT 1) a",
        )
        .execute(&mut killer)
        .await
        .unwrap();
    }
    race.done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    faulty.store(false, Ordering::Relaxed);
    assert!(swallowed.load(Ordering::Relaxed) > 10);
    eprintln!("swallowed: {swallowed:?}, unknown: {:?}", race.unknown);
    // Whatever came back as unknown is repeated, as a client would.
    produce_again(&stores[0], uid, &race).await;
    check(&stores[1], uid, &race).await;
    for store in &stores {
        store.close().await;
    }
    database.drop().await;
}

async fn produce_again(store: &Store, uid: QueueUid, race: &Race) {
    let last = race.next.load(Ordering::Relaxed) + 6;
    for first in (0..last).step_by(200) {
        let queue = view(store, uid).await;
        let ids: Vec<u64> = (first..(first + 200).min(last)).collect();
        let publishes = ids
            .iter()
            .map(|id| message(&queue, Some(*id), *id))
            .collect();
        let outcome = store
            .apply(
                &Batch {
                    publishes,
                    ..Batch::default()
                },
                None,
            )
            .await
            .unwrap();
        for (id, published) in ids.iter().zip(outcome.publishes) {
            let found = match published {
                Published::Created { id, .. } => id,
                Published::Duplicate(duplicate) => duplicate.id,
                other => panic!("{other:?}"),
            };
            race.named
                .lock()
                .unwrap()
                .entry(*id)
                .or_default()
                .insert(found);
        }
    }
}

/// Publishes on two replicas while a third purges: a publish that is answered after the purge was answered is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_answered_after_a_purge_is_there() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 3).await;
    let uid = queue(&stores[0], "orders", Policy::default()).await.uid;
    let race = Arc::new(Race::default());
    let answered: Arc<Mutex<Vec<(tokio::time::Instant, MessageId)>>> = Arc::default();
    let mut tasks = Vec::new();
    for store in &stores[..2] {
        let (store, race, answered) = (store.clone(), race.clone(), answered.clone());
        tasks.push(tokio::spawn(async move {
            while !race.done.load(Ordering::Relaxed) {
                let queue = view(&store, uid).await;
                // An old view is refused, never stored in the wrong place.
                for _ in 0..5 {
                    let publishes = (0..10).map(|n| message(&queue, None, n)).collect();
                    let outcome = store
                        .apply(
                            &Batch {
                                publishes,
                                ..Batch::default()
                            },
                            None,
                        )
                        .await
                        .unwrap();
                    let at = tokio::time::Instant::now();
                    for published in outcome.publishes {
                        if let Published::Created { id, .. } = published {
                            answered.lock().unwrap().push((at, id));
                        }
                    }
                }
            }
        }));
    }
    let (mut purged, mut last) = (0, tokio::time::Instant::now());
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        let purge = Operation::Purge {
            queue: uid,
            dead_letters: true,
        };
        match stores[2]
            .operate(&Call::default(), purge, None)
            .await
            .unwrap()
            .answer
        {
            Answer::Purged { purged: now } => purged += now,
            other => panic!("{other:?}"),
        }
        last = tokio::time::Instant::now();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    race.done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let numbers = stores[0].numbers(uid, None).await.unwrap().counts;
    assert_eq!(
        numbers.purged, purged,
        "the answers of the purges add up: {numbers:?}"
    );
    let answered = answered.lock().unwrap().clone();
    assert_eq!(numbers.accepted, answered.len() as i64);
    for (at, id) in answered {
        if at > last + Duration::from_millis(50) {
            let detail = stores[1].message(id, None).await.unwrap();
            assert!(detail.is_some_and(|d| d.message.is_some()), "{id} is gone");
        }
    }
    while stores[0].maintain(&Keep::default(), None).await.unwrap() {}
    assert_eq!(
        stores[0].numbers(uid, None).await.unwrap().counts,
        numbers,
        "clearing moves no number"
    );
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

/// Buries `count` messages of a queue, a hundred at a time.
async fn bury(store: &Store, queue: &Arc<Queue>, count: u64) {
    for _ in 0..count.div_ceil(100) {
        let publishes = (0..100).map(|body| message(queue, None, body)).collect();
        let batch = Batch {
            publishes,
            ..Batch::default()
        };
        store.apply(&batch, None).await.unwrap();
        let outcome = store.apply(&receive(queue, 100, 30_000), None).await;
        let mut outcome = outcome.unwrap();
        let Some(Received::Messages(taken)) = outcome.receives.pop() else {
            panic!("nothing received");
        };
        let settles = taken.iter().map(|taken| {
            let message = &taken.message;
            let nack = Action::Nack {
                failure: Failure::default(),
                delay_ms: None,
                permanent: true,
            };
            settle(
                queue,
                message.envelope.id,
                message.life.fence,
                outcome.now,
                nack,
            )
        });
        let batch = Batch {
            settles: settles.collect(),
            ..Batch::default()
        };
        store.apply(&batch, None).await.unwrap();
    }
}

/// Three replicas step one bulk decision while more messages die: each selected one is moved once, by one of them, and none
/// that died since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_a_bulk_decision_and_move_each_message_once() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 3).await;
    let queue = queue(&stores[0], "orders", Policy::default()).await;
    bury(&stores[0], &queue, 3_000).await;
    let plan = select(&stores[1], queue.uid).await.unwrap();
    assert_eq!(plan.expected_count, 3_000);
    let start = Operation::StartRedrive(Box::new(plan));
    let operated = stores[0].operate(&Call::by("op"), start, None).await;
    let Answer::Redrive { id } = operated.unwrap().answer else {
        panic!("no redrive");
    };
    let dying = tokio::spawn({
        let (store, queue) = (stores[0].clone(), queue.clone());
        async move { bury(&store, &queue, 500).await }
    });
    let steps = stores.iter().cloned().map(|store| {
        tokio::spawn(async move {
            let mut steps = 0;
            loop {
                let stepped = store.step_redrives(None).await.unwrap();
                steps += u32::from(stepped.stepped);
                match stepped.next_at {
                    None => return steps,
                    Some(at) if at > stepped.now => {
                        let wait = (at - stepped.now).clamp(1, 50) as u64;
                        tokio::time::sleep(Duration::from_millis(wait)).await;
                    }
                    Some(_) => {}
                }
            }
        })
    });
    let steps: Vec<_> = steps.collect();
    let mut made = 0;
    for steps in steps {
        made += steps.await.unwrap();
    }
    dying.await.unwrap();
    let redrive = stores[2].redrive(RedriveId(id)).await.unwrap().unwrap();
    assert_eq!(redrive.state, RedriveState::Done, "{redrive:?}");
    assert_eq!((redrive.moved, redrive.skipped.total()), (3_000, 0));
    assert!((6..=7).contains(&made), "{made} steps");
    let mut query = AuditQuery {
        redrive: Some(redrive.id),
        action: Some("redrive".into()),
        limit: 500,
        ..AuditQuery::default()
    };
    let (mut moved, mut rows) = (HashSet::new(), 0);
    loop {
        let page = stores[1].audit(&query).await.unwrap();
        rows += page.entries.len();
        moved.extend(page.entries.iter().filter_map(|row| row.message));
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!((rows, moved.len()), (3_000, 3_000));
    let counts = stores[0].numbers(queue.uid, None).await.unwrap().counts;
    assert_eq!(counts.imbalance(), 0, "{counts:?}");
    assert_eq!(counts.redriven, 3_000);
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

/// Publishes messages that live for a moment, receives and nacks them, until `done`.
async fn hurry(store: Store, queue: Arc<Queue>, done: Arc<AtomicBool>) {
    while !done.load(Ordering::Relaxed) {
        let publish = |number: u64| Publish {
            expires_in_ms: Some(1 + number as i64 * 7 % 60),
            ..message(&queue, None, number)
        };
        let receive = Receive {
            queue: Arc::clone(&queue),
            max: 20,
            lease_ms: 1_000,
            worker: None,
        };
        let batch = Batch {
            publishes: (0..20).map(publish).collect(),
            receives: vec![receive],
            ..Batch::default()
        };
        let outcome = store.apply(&batch, None).await.unwrap();
        let Received::Messages(found) = &outcome.receives[0] else {
            panic!("{outcome:?}");
        };
        let settle = |delivery: &quita_storage::backend::Delivery| Settle {
            queue: Arc::clone(&queue),
            id: delivery.message.envelope.id,
            claim: Claim {
                fence: delivery.message.life.fence,
                handed_out_at: outcome.now,
                action: Action::Nack {
                    failure: Failure::default(),
                    delay_ms: Some(0),
                    permanent: false,
                },
                chance: 0.0,
            },
        };
        let settles = found.iter().map(settle).collect();
        let batch = Batch {
            settles,
            ..Batch::default()
        };
        store.apply(&batch, None).await.unwrap();
    }
}

/// Two replicas file life spans that are over while workers on both nack the same messages: nobody waits for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_spans_end_without_a_dead_lock() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 2).await;
    let queue = queue(&stores[0], "short", Policy::default()).await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for store in &stores {
        for _ in 0..4 {
            tasks.push(tokio::spawn(hurry(
                Arc::clone(store),
                Arc::clone(&queue),
                Arc::clone(&done),
            )));
        }
        let (store, done) = (Arc::clone(store), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                store.move_due(None).await.unwrap();
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let expired = stores[0]
        .numbers(queue.uid, None)
        .await
        .unwrap()
        .counts
        .dead;
    assert!(expired > 0, "nothing expired");
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    // The numbers of a session arrive when it ends or rests.
    for store in &stores {
        store.close().await;
    }
    let dead_locks: i64 = sqlx::query_scalar(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(dead_locks, 0);
    println!("{expired} life spans ended, no dead-lock");
    drop(connection);
    database.drop().await;
}

/// A receive from two queues is held up in the first one; what is published to the second one meanwhile is handed out too, and
/// its lease does not begin before it was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_begins_when_its_message_is_there_however_long_the_receive_was_held_up() {
    let Some(database) = database().await else {
        return;
    };
    let stores = replicas(&database, 2).await;
    let slow = queue(&stores[0], "slow", Policy::default()).await;
    let quick = queue(&stores[0], "quick", Policy::default()).await;
    let mut holder = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let mut watcher = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let mut held_up = false;
    // Counters have a row per minute: where one ends in between, nothing is held up, and it has to be tried again.
    for _ in 0..3 {
        // The first one makes the row of the counter that the second one is held up at.
        publish(&stores[0], &slow, 2).await;
        let first = stores[0].apply(&receive(&slow, 1, 60_000), None).await;
        assert_eq!(deliveries(first.unwrap().receives).len(), 1);
        let sql = format!(
            "BEGIN; SELECT FROM counter WHERE uid = {} FOR UPDATE",
            slow.uid.0
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut holder)
            .await
            .unwrap();
        let mut both = receive(&slow, 1, 60_000);
        both.receives.extend(receive(&quick, 1, 60_000).receives);
        let store = Arc::clone(&stores[0]);
        let receiving = tokio::spawn(async move { store.apply(&both, None).await });
        while !held_up && !receiving.is_finished() {
            let waits =
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
                AND wait_event_type = 'Lock')";
            held_up = sqlx::query_scalar(waits)
                .fetch_one(&mut watcher)
                .await
                .unwrap();
        }
        publish(&stores[1], &quick, 1).await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
        let received = deliveries(receiving.await.unwrap().unwrap().receives);
        let late = received
            .iter()
            .find(|d| d.message.envelope.queue == quick.uid);
        if let (true, Some(late)) = (held_up, late) {
            let Place::Leased(lease) = &late.message.place else {
                panic!("{late:?}");
            };
            let published = late.message.envelope.created_at;
            assert!(lease.leased_at >= published, "{published} {lease:?}");
            assert_eq!(lease.expires_at, lease.leased_at + 60_000);
            break;
        }
    }
    assert!(held_up, "no receive was held up");
    for store in stores {
        store.close().await;
    }
    database.drop().await;
}

async fn publish(store: &Store, queue: &Arc<Queue>, count: u64) {
    let batch = Batch {
        publishes: (0..count).map(|n| message(queue, None, n)).collect(),
        ..Batch::default()
    };
    store.apply(&batch, None).await.unwrap();
}

fn deliveries(received: Vec<Received>) -> Vec<Delivery> {
    let messages = received.into_iter().map(|received| match received {
        Received::Messages(messages) => messages,
        other => panic!("{other:?}"),
    });
    messages.flatten().collect()
}

/// A relay that passes on until it sees the commit of a publish that took a unique key. That one it passes on, and then nothing
/// more in any direction until `dark` is false again.
async fn relay_that_goes_dark(server: String, dark: Arc<AtomicBool>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if dark.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(upstream) = tokio::net::TcpStream::connect(&server).await else {
                continue;
            };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = upstream.into_split();
            let goes_dark = dark.clone();
            tokio::spawn(async move {
                let (mut buffer, mut took_a_key) = (vec![0; 65_536], false);
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    let says = |text: &[u8]| buffer[..read].windows(text.len()).any(|w| w == text);
                    took_a_key |= says(b"publish, claim key");
                    if took_a_key && says(b"COMMIT") {
                        goes_dark.store(true, Ordering::SeqCst);
                    }
                    if to_server.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
            let is_dark = dark.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_536];
                while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                    let lost = is_dark.load(Ordering::SeqCst);
                    if lost || to_client.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

/// The answer to the commit is lost, and before the server can look, its message was received and acked elsewhere: it is no
/// duplicate of itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_whose_commit_was_not_answered_is_no_duplicate_of_itself() {
    let Some(database) = database().await else {
        return;
    };
    let (head, name) = database.url.rsplit_once('/').unwrap();
    let (user, server) = head.rsplit_once('@').unwrap();
    let dark = Arc::new(AtomicBool::new(false));
    let port = relay_that_goes_dark(server.to_owned(), dark.clone()).await;
    let behind = quita_storage::open(&format!("{user}@127.0.0.1:{port}/{name}"))
        .await
        .unwrap();
    let direct = quita_storage::open(&database.url).await.unwrap();
    let policy = Policy {
        unique_key: true,
        ..Policy::default()
    };
    let queue = queue(&direct, "charges", policy).await;
    let publish = Publish {
        key: Some("order-1".into()),
        ..message(&queue, None, 1)
    };
    let store = Arc::clone(&behind);
    let publishing = tokio::spawn(async move {
        let batch = Batch {
            publishes: vec![publish],
            ..Batch::default()
        };
        store.apply(&batch, None).await
    });
    let delivery = loop {
        let received = direct
            .apply(&receive(&queue, 1, 60_000), None)
            .await
            .unwrap();
        if let Some(delivery) = deliveries(received.receives).pop() {
            break delivery;
        }
        assert!(!publishing.is_finished(), "its answer came through");
    };
    let Place::Leased(lease) = &delivery.message.place else {
        panic!("{delivery:?}");
    };
    let id = delivery.message.envelope.id;
    let ack = settle(
        &queue,
        id,
        1,
        lease.leased_at,
        Action::Ack { outcome: None },
    );
    let batch = Batch {
        settles: vec![ack],
        ..Batch::default()
    };
    direct.apply(&batch, None).await.unwrap();
    dark.store(false, Ordering::SeqCst);
    let outcome = publishing.await.unwrap().unwrap();
    assert!(
        matches!(outcome.publishes[..], [Published::Created { id: made, .. }] if made == id),
        "{outcome:?}"
    );
    for store in [behind, direct] {
        store.close().await;
    }
    database.drop().await;
}

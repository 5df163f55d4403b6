//! Deep queues: what a million messages weigh, and whether they slow down who receives.
//!
//! One store holds three queues: 1,000 waiting, a million waiting, and 1,000 waiting beside a million delayed ones. Each is
//! received from and acked in turn, and what is acked is published again in batches, so that its depth stays.

use super::book::{Book, DISK, Figure, MESSAGES_PER_SECOND, Who};
use super::requests::{memory, with_memory};
use crate::Outcome;
use crate::client::{Connection, Request};
use crate::fresh::Fresh;
use crate::lifecycle::Consumer;
use crate::load::{Measured, Tally, Window, collect};
use crate::messages;
use sqlx::{Connection as _, PgConnection};
use std::io::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Messages of one publish while a queue is filled, and connections that fill it.
const FILLED: u64 = 1_000;
const HANDS: u64 = 4;
/// Messages of one publish while a queue is kept as deep as it is.
const REFILLED: u64 = 100;
const SHALLOW: u64 = 1_000;
const CONSUMERS: usize = 64;
/// Of a message that is due in a week.
const DELAYED: &str = ",\"delay_seconds\":604800";

/// Fills the queues, then measures each `repeat` times.
pub(super) async fn run(
    fresh: &Fresh,
    deep: u64,
    repeat: u32,
    length: Duration,
    book: &mut Book,
) -> Outcome<()> {
    let who = Who::Quita(fresh.store);
    let before = disk_bytes(fresh).await?;
    let rate = fill(fresh, "deep", deep, "").await?;
    sleep(Duration::from_secs(2)).await;
    let bytes = (disk_bytes(fresh).await? - before) / deep as f64;
    let mut figures = vec![(DISK, bytes), (MESSAGES_PER_SECOND, rate)];
    figures.extend(memory(fresh)?);
    book.note(who, "million", &figures);
    fill(fresh, "shallow", SHALLOW, "").await?;
    fill(fresh, "delayed", deep, DELAYED).await?;
    fill(fresh, "delayed", SHALLOW, "").await?;
    for turn in 0..repeat {
        for (row, queue) in [
            ("depth-1k", "shallow"),
            ("depth-1m", "deep"),
            ("depth-delayed", "delayed"),
        ] {
            book.note(who, row, &turnover(fresh, queue, turn, length).await?);
        }
    }
    Ok(())
}

/// Publishes `count` messages, a multiple of 1,000. Answers how many a second.
async fn fill(fresh: &Fresh, queue: &'static str, count: u64, more: &str) -> Outcome<f64> {
    fresh.quita.create(queue).await?;
    let begun = Instant::now();
    let mut hands = JoinSet::new();
    let request = messages::publish_batch(queue, FILLED, more, Some(&fresh.quita.key));
    for hand in 0..HANDS {
        let (address, mut request) = (fresh.quita.address, request.clone());
        // The short fill of a queue must not repeat the request ids of the long one before it.
        let first = if count == SHALLOW { 1 << 40 } else { 0 };
        hands.spawn(async move {
            let mut connection = Connection::open(address).await?;
            for round in (hand..count / FILLED).step_by(HANDS as usize) {
                request.number(first + round, round);
                publish(&mut connection, &request).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(done) = hands.join_next().await {
        done??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// A batch of which every message must be new.
async fn publish(connection: &mut Connection, request: &Request) -> Result<()> {
    let answer = connection.call(request.bytes()).await?;
    let all = memchr::memmem::find(answer.body, b"\"duplicates\":0,\"rejected\":0").is_some();
    if answer.status == 200 && all {
        Ok(())
    } else {
        Err(answer.unexpected())
    }
}

/// Receives and acks for `length`.
async fn turnover(fresh: &Fresh, queue: &str, turn: u32, length: Duration) -> Outcome<Vec<Figure>> {
    let key = fresh.quita.key.as_str();
    let receive = messages::receive(queue, 1, Some(key));
    let again = messages::publish_batch(queue, REFILLED, "", Some(key));
    let mut open = Vec::with_capacity(CONSUMERS);
    for _ in 0..CONSUMERS {
        open.push(Connection::open(fresh.quita.address).await?);
    }
    let refiller = Connection::open(fresh.quita.address).await?;
    let gone = Arc::new(Semaphore::new(0));
    let window = Window::after_warm_up(length);
    let mut tasks = JoinSet::new();
    tasks.spawn(refill(
        refiller,
        again,
        (u64::from(turn) + 2) << 40,
        Arc::clone(&gone),
    ));
    for connection in open {
        let consumer = Consumer {
            connection,
            receive: receive.clone(),
            key: key.into(),
            gone: Arc::clone(&gone),
            window,
        };
        tasks.spawn(consumer.run(None));
    }
    let spent = window.watch(&fresh.meters()).await;
    gone.close();
    let measured: Measured = collect(tasks, window, spent).await?;
    with_memory(fresh, &measured, &[])
}

/// Publishes as many as are gone, a batch at a time; ends when `gone` is closed.
async fn refill(
    mut connection: Connection,
    mut again: Request,
    first: u64,
    gone: Arc<Semaphore>,
) -> Result<Tally> {
    for serial in first.. {
        let Ok(permits) = gone.acquire_many(REFILLED as u32).await else {
            break;
        };
        permits.forget();
        again.number(serial, serial);
        publish(&mut connection, &again).await?;
    }
    Ok(Tally::default())
}

/// What the store takes on disk: of SQLite its files with their log, of PostgreSQL the database without it.
async fn disk_bytes(fresh: &Fresh) -> Outcome<f64> {
    if let Some(url) = fresh.url() {
        let mut sql = PgConnection::connect(url).await?;
        let size = sqlx::query_scalar("SELECT pg_database_size(current_database())::float8");
        return Ok(size.fetch_one(&mut sql).await?);
    }
    let mut bytes = 0;
    for entry in std::fs::read_dir(fresh.quita.folder())? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64)
}

//! Receives that wait: what many of them cost while nothing comes, and how soon one hears of a message.

use super::book::{CPU_PERCENT, Figure, P50_MS, P99_MS};
use super::requests::memory;
use crate::Outcome;
use crate::client::{Connection, Request};
use crate::fresh::Fresh;
use crate::messages::{self, QUEUE, message};
use crate::server::Quita;
use crate::stats::percentile_ms;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Receives that wait at once.
pub(super) const WAITING: usize = 1_000;
/// How long they are watched; a receive waits 30 s at most.
const WATCHED: Duration = Duration::from_secs(10);
const LONGEST_WAIT_SECONDS: u64 = 30;

/// Time from sending a receive until it surely waits.
const SETTLES: Duration = Duration::from_millis(15);
/// A wake-up that takes longer is none.
const LOST: Duration = Duration::from_secs(4);

/// CPU of the server, and of PostgreSQL where there is one, while nothing happens. In percent of one core.
pub(super) async fn idle(fresh: &Fresh) -> Outcome<Vec<Figure>> {
    fresh.quita.create(QUEUE).await?;
    let receive = messages::receive(QUEUE, LONGEST_WAIT_SECONDS, Some(&fresh.quita.key));
    let mut waiting = JoinSet::new();
    for _ in 0..WAITING {
        let mut connection = Connection::open(fresh.quita.address).await?;
        let receive = receive.clone();
        waiting.spawn(async move {
            connection
                .call(receive.bytes())
                .await
                .map(|answer| answer.status)
        });
    }
    sleep(Duration::from_secs(2)).await;
    let meters = fresh.meters();
    let before = meters.read();
    sleep(WATCHED).await;
    let spent = meters.read() - before;
    if let Some(ended) = waiting.try_join_next() {
        return Err(format!("a receive did not wait: {ended:?}").into());
    }
    let percent = 100.0 * (spent.server + spent.postgres) / WATCHED.as_secs_f64();
    let mut figures = vec![(CPU_PERCENT, percent)];
    figures.extend(memory(fresh)?);
    Ok(figures)
}

/// Time from sending a publish to `at` until a receive that waits at `waiting` has its message, `count` times.
pub(super) async fn wake_ups(at: &Quita, waiting: &Quita, count: u64) -> Outcome<Vec<Figure>> {
    at.create(QUEUE).await?;
    let mut publish = messages::publish(QUEUE, &message(), Some(&at.key));
    let receive = messages::receive(QUEUE, LONGEST_WAIT_SECONDS, Some(&at.key));
    let mut producer = Connection::open(at.address).await?;
    let mut consumer = Some(Connection::open(waiting.address).await?);
    let mut took = Vec::new();
    for number in 0..count {
        let (mut connection, receive) = (consumer.take().ok_or("no consumer")?, receive.clone());
        let wait = tokio::spawn(async move {
            let answer = connection.call(receive.bytes()).await?;
            let receipt = answer.text_after("\"receipt\":\"").map(str::to_owned);
            Outcome::Ok((Instant::now(), receipt, connection))
        });
        // Not always at the same place of whatever beat the server has.
        sleep(SETTLES + Duration::from_millis(number * 7 % 53)).await;
        let begun = Instant::now();
        publish.number(number, number);
        producer.call(publish.bytes()).await?;
        let (heard, receipt, mut connection) = timeout(LOST, wait).await???;
        took.push(u32::try_from((heard - begun).as_micros()).unwrap_or(u32::MAX));
        let receipt = receipt.ok_or("a receive that ended without a message")?;
        let body = format!("{{\"receipt\":\"{receipt}\"}}");
        let ack = Request::new("POST", "/v1/queue/ack", Some(&at.key), &body);
        let answer = connection.call(ack.bytes()).await?;
        if answer.status != 200 {
            return Err(answer.unexpected().into());
        }
        consumer = Some(connection);
    }
    took.sort_unstable();
    Ok(vec![
        (P50_MS, percentile_ms(&took, 0.50)),
        (P99_MS, percentile_ms(&took, 0.99)),
    ])
}
